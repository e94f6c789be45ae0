# SPDX-License-Identifier: Apache-2.0
"""Reads the four services over their public APIs, in a few lists each."""

import collections
import datetime
import typing

from ironicclient import exc
from openstack import exceptions as sdk_exc

from ironic_reservations.osc import client
from ironic_reservations.osc import progress
from ironic_reservations.osc.audit import cloud as values
from ironic_reservations.osc.audit import kinds

#: A lease counts as over only so many seconds after its end, because the
#: clock of this machine may be ahead of that of the database.
SLACK = 60

#: After so many servers and the like the log says how far the reading is.
STEP = 1000

#: The fields of a node that are read from Ironic.
_NODE_FIELDS = 'uuid,name,instance_uuid,provision_state'


class Now(typing.NamedTuple):
    """What concerns one Finding, read right before it is repaired.

    :param cloud: a Cloud that has only this.
    :param held: the reservation as our API has it; None without one.
    :param server: the server as Nova's API has it; None without one.
    :param allocations: the allocations of the instance as Placement has
        them; None where the Finding has no instance.
    :param auth: how to log in to Ironic; see ``scope.of_ironic``.
    """

    cloud: values.Cloud
    held: dict | None
    server: dict | None
    allocations: dict | None
    auth: typing.Any


class Reader:
    """Reads what the services say now.

    All methods raise what the clients of the services raise.

    :param cmd: the command that reads.
    :param auth: how to log in to Ironic; see ``scope.of_ironic``.
    """

    def __init__(self, cmd, auth):
        self._cmd = cmd
        self._auth = auth
        self._sdk = cmd.app.client_manager.sdk_connection

    def has_nova(self):
        """Whether a Nova belongs to this Ironic.

        Without a Keystone, every service is said to be at the one endpoint
        that the user gives, which is Ironic's.
        """
        return (self._sdk.compute.get_endpoint()
                != self._sdk.baremetal.get_endpoint())

    def read_ironic(self):
        """Return a Cloud that has no Nova."""
        return values.Cloud(reservations=self._reservations(),
                            nodes=self._nodes(), has_nova=False)

    def read(self, host=None):
        """Return a Cloud.

        Servers are read last, because everything that names a server is made
        after the server.

        :param host: the only host whose servers and allocations are needed;
            None for all.
        """
        rows = {each.id: values.Row(each.service_details['host'], each.name,
                                    each.state == 'down')
                for each in self._counted(
                    self._sdk.compute.hypervisors(details=True),
                    'hypervisors')
                if each.hypervisor_type == 'ironic'}
        reservations, nodes = self._reservations(), self._nodes()
        providers = {each['uuid'] for each in self._counted(
            client.placement(self._cmd, '/resource_providers')[
                'resource_providers'], 'resource providers')}
        allocations = self._allocations(
            uuid for uuid, row in rows.items()
            if row.name == row.host and host in (None, row.host)
            and uuid in providers)
        servers = {each.id: _server(each) for each in self._counted(
            self._sdk.compute.servers(
                details=True, all_projects=True, is_soft_deleted=True,
                **({'compute_host': host} if host else {})),
            'servers')}
        cloud = values.Cloud(servers, reservations, nodes, rows, providers,
                             allocations)
        self._complete(cloud, host)
        return cloud

    def _reservations(self):
        return {each['instance_uuid']: _reservation(each)
                for each in self._listed(
                    'reservations',
                    'instance_uuid,node_uuid,host,state,expires_at')}

    def _nodes(self):
        # Ironic's allocations are read, because Ironic answers 500 to a list
        # of nodes with the field allocation_uuid. An allocation has the UUID
        # of the instance.
        allocated = {each['uuid'] for each in self._listed(
            'allocations', 'uuid')}
        return {each['uuid']: _node(each, each['instance_uuid'] in allocated)
                for each in self._listed('nodes', _NODE_FIELDS)}

    def _allocations(self, providers):
        """Return the sets of those providers that consumers have."""
        found = collections.defaultdict(set)
        for uuid in providers:
            used = client.placement(
                self._cmd, f'/resource_providers/{uuid}/allocations')
            for consumer in used['allocations']:
                found[consumer].add(uuid)
        return found

    def _complete(self, cloud, host):
        """Read one by one what seems to be missing.

        The lists lack a server of another host or of a cell that cannot be
        reached now, and an allocation from the provider of another host or
        of a node.
        """
        for each in kinds.find_all(cloud, host):
            if each.instance and each.instance not in cloud.servers:
                try:
                    cloud.servers[each.instance] = _server(
                        self._sdk.compute.get_server(each.instance))
                except sdk_exc.NotFoundException:
                    continue
            elif each.kind != 'no-allocation':
                continue
            cloud.allocations[each.instance] = set(client.placement(
                self._cmd, f'/allocations/{each.instance}')['allocations'])

    def read_again(self, cloud, finding):
        """Read what a Finding stands on.

        :param cloud: the Cloud in which it was found; its rows are kept.
        :returns: a Now.
        """
        if finding.instance is None:
            return self._provider_now(cloud, finding.node)
        return self._instance_now(cloud, finding.instance)

    def _provider_now(self, cloud, node):
        row = _found(self._sdk.compute.get(
            f'/os-hypervisors/{node}', microversion='2.53'))
        row = {node: values.Row(row['hypervisor']['service']['host'],
                                row['hypervisor']['hypervisor_hostname'])
               } if row else {}
        provider = _found(self._sdk.placement.get(
            f'/resource_providers/{node}'))
        return Now(values.Cloud(
            nodes={node: cloud.nodes[node]}, rows=cloud.rows | row,
            providers={node} if provider else set()),
            None, None, None, self._auth)

    def _instance_now(self, cloud, instance):
        try:
            held = client.request(
                self._cmd, 'GET', f'{client.PATH}/{instance}',
                auth=self._auth)
        except exc.NotFound:
            held = None
        nodes = self._listed('nodes', _NODE_FIELDS, instance_uuid=instance)
        allocations = client.placement(self._cmd, f'/allocations/{instance}')
        server = _found(self._sdk.compute.get(
            f'/servers/{instance}', microversion='2.69'))
        server = server and server['server']
        return Now(values.Cloud(
            # Of a server in a cell that does not answer, Nova tells only the
            # status.
            {instance: values.Server(
                server.get('OS-EXT-SRV-ATTR:host'),
                server.get('OS-EXT-SRV-ATTR:hypervisor_hostname'),
                server['status'], server.get('OS-EXT-STS:task_state'),
            )} if server else {},
            {instance: _reservation(held)} if held else {},
            {each['uuid']: _node(each) for each in nodes}, cloud.rows,
            allocations={instance: set(allocations['allocations'])}),
            held, server, allocations, self._auth)

    def _listed(self, collection, fields, **query):
        """Yield what Ironic's API lists."""
        return client.listed(self._cmd, collection,
                             {'fields': fields, **query}, auth=self._auth)

    def _counted(self, resources, name):
        """Yield the resources, and log how many have been read."""
        count = 0
        for count, each in enumerate(resources, 1):
            yield each
            if count % STEP == 0:
                progress.say(self._cmd, '%d %s read', count, name)
        progress.say(self._cmd, '%d %s read', count, name)


def _server(server):
    """Return the Server of one of the SDK."""
    return values.Server(server.compute_host, server.hypervisor_hostname,
                         server.status, server.task_state)


def _reservation(held):
    """Return the Reservation of one of our API."""
    return values.Reservation(held['node_uuid'], held['host'], held['state'],
                              _is_over(held['expires_at']))


def _node(node, allocated=False):
    """Return the Node of one of Ironic's API."""
    return values.Node(node['name'], node['instance_uuid'],
                       node['provision_state'], allocated)


def _found(response):
    """Return the data of an answer of the SDK; None if it is 404."""
    if response.status_code == 404:
        return None
    sdk_exc.raise_from_response(response)
    return response.json()


def _is_over(expires_at):
    return expires_at is not None and (
        datetime.datetime.now(datetime.UTC)
        > datetime.datetime.fromisoformat(expires_at)
        + datetime.timedelta(seconds=SLACK))
