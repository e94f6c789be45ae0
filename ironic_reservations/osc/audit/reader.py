# SPDX-License-Identifier: Apache-2.0
"""Reads lists from the four services over their public APIs."""

import collections
import datetime
import typing

from ironicclient import exc
from openstack import exceptions as sdk_exc

from ironic_reservations.osc import client
from ironic_reservations.osc import progress
from ironic_reservations.osc.audit import cloud as values
from ironic_reservations.osc.audit import kinds

#: Seconds after which a lease that has ended counts as expired, because the
#: clock of this machine may be ahead of that of the database.
SLACK = 60

#: Progress is logged after this number of resources.
STEP = 1000

#: The fields of a node that are read from Ironic.
_NODE_FIELDS = 'uuid,name,instance_uuid,provision_state'


class Now(typing.NamedTuple):
    """Everything about one Finding, read right before the repair.

    :param cloud: a Cloud that has only this.
    :param reservation: the reservation in our API, or None.
    :param server: the server in Nova's API, or None.
    :param allocations: the allocations of the instance in Placement; None if
        the Finding has no instance.
    :param auth: how to log in to Ironic; see ``scope.of_ironic``.
    """

    cloud: values.Cloud
    reservation: dict | None
    server: dict | None
    allocations: dict | None
    auth: typing.Any


class Reader:
    """Reads the services.

    All methods raise the errors of the services' clients.

    :param cmd: the command.
    :param auth: how to log in to Ironic; see ``scope.of_ironic``.
    """

    def __init__(self, cmd, auth):
        self._cmd = cmd
        self._auth = auth
        self._sdk = cmd.app.client_manager.sdk_connection

    def has_nova(self):
        """Return whether a Nova belongs to this Ironic.

        Without Keystone, all services have the one endpoint that the user
        sets, which is Ironic's.
        """
        return (self._sdk.compute.get_endpoint()
                != self._sdk.baremetal.get_endpoint())

    def read_ironic(self):
        """Return a Cloud without Nova."""
        return values.Cloud(reservations=self._reservations(),
                            nodes=self._nodes(), has_nova=False)

    def read(self, host=None):
        """Return a Cloud.

        Servers are read last, because everything that names a server is
        created after the server.

        :param host: the only host whose servers and allocations are needed;
            None for all.
        """
        rows = {row.id: values.Row(row.service_details['host'], row.name,
                                   row.state == 'down')
                for row in self._count(
                    self._sdk.compute.hypervisors(details=True),
                    'hypervisors')
                if row.hypervisor_type == 'ironic'}
        reservations, nodes = self._reservations(), self._nodes()
        providers = {provider['uuid'] for provider in self._count(
            client.placement(self._cmd, '/resource_providers')[
                'resource_providers'], 'resource providers')}
        allocations = self._allocations(
            uuid for uuid, row in rows.items()
            if row.name == row.host and host in (None, row.host)
            and uuid in providers)
        servers = {server.id: _server(server) for server in self._count(
            self._sdk.compute.servers(
                details=True, all_projects=True, is_soft_deleted=True,
                **({'compute_host': host} if host else {})),
            'servers')}
        cloud = values.Cloud(servers, reservations, nodes, rows, providers,
                             allocations)
        self._complete(cloud, host)
        return cloud

    def _reservations(self):
        return {reservation['instance_uuid']: _reservation(reservation)
                for reservation in self._list(
                    'reservations',
                    'instance_uuid,node_uuid,host,state,expires_at')}

    def _nodes(self):
        # Ironic's allocations are read, because Ironic answers 500 to a list
        # of nodes with the field allocation_uuid. An allocation has the UUID
        # of the instance.
        allocations = {allocation['uuid'] for allocation in self._list(
            'allocations', 'uuid')}
        return {node['uuid']: _node(node, node['instance_uuid'] in allocations)
                for node in self._list('nodes', _NODE_FIELDS)}

    def _allocations(self, providers):
        """Return the sets of these providers by consumer."""
        allocations = collections.defaultdict(set)
        for uuid in providers:
            response = client.placement(
                self._cmd, f'/resource_providers/{uuid}/allocations')
            for consumer in response['allocations']:
                allocations[consumer].add(uuid)
        return allocations

    def _complete(self, cloud, host):
        """Read one by one what seems to be missing.

        The lists lack servers of other hosts and of cells that are currently
        unreachable, and allocations from the providers of other hosts and of
        nodes.
        """
        for finding in kinds.find_all(cloud, host):
            instance = finding.instance
            if instance and instance not in cloud.servers:
                try:
                    cloud.servers[instance] = _server(
                        self._sdk.compute.get_server(instance))
                except sdk_exc.NotFoundException:
                    continue
            elif finding.kind != 'no-allocation':
                continue
            cloud.allocations[instance] = set(client.placement(
                self._cmd, f'/allocations/{instance}')['allocations'])

    def read_again(self, cloud, finding):
        """Return a Now with what a Finding depends on.

        :param cloud: the Cloud of the Finding; its rows are kept.
        """
        if finding.instance is None:
            return self._provider_now(cloud, finding.node)
        return self._instance_now(cloud, finding.instance)

    def _provider_now(self, cloud, node):
        row = _data(self._sdk.compute.get(
            f'/os-hypervisors/{node}', microversion='2.53'))
        row = {node: values.Row(row['hypervisor']['service']['host'],
                                row['hypervisor']['hypervisor_hostname'])
               } if row else {}
        provider = _data(self._sdk.placement.get(
            f'/resource_providers/{node}'))
        return Now(values.Cloud(
            nodes={node: cloud.nodes[node]}, rows=cloud.rows | row,
            providers={node} if provider else set()),
            None, None, None, self._auth)

    def _instance_now(self, cloud, instance):
        try:
            reservation = client.request(
                self._cmd, 'GET', f'{client.PATH}/{instance}',
                auth=self._auth)
        except exc.NotFound:
            reservation = None
        nodes = self._list('nodes', _NODE_FIELDS, instance_uuid=instance)
        allocations = client.placement(self._cmd, f'/allocations/{instance}')
        server = _data(self._sdk.compute.get(
            f'/servers/{instance}', microversion='2.69'))
        server = server and server['server']
        return Now(values.Cloud(
            # For a server in a cell that does not answer, Nova shows only the
            # status.
            {instance: values.Server(
                server.get('OS-EXT-SRV-ATTR:host'),
                server.get('OS-EXT-SRV-ATTR:hypervisor_hostname'),
                server['status'], server.get('OS-EXT-STS:task_state'),
            )} if server else {},
            {instance: _reservation(reservation)} if reservation else {},
            {node['uuid']: _node(node) for node in nodes}, cloud.rows,
            allocations={instance: set(allocations['allocations'])}),
            reservation, server, allocations, self._auth)

    def _list(self, collection, fields, **query):
        """Yield the members of a collection in Ironic's API."""
        return client.listed(self._cmd, collection,
                             {'fields': fields, **query}, auth=self._auth)

    def _count(self, resources, name):
        """Yield the resources, and log their number."""
        count = 0
        for count, resource in enumerate(resources, 1):
            yield resource
            if count % STEP == 0:
                progress.say(self._cmd, '%d %s read', count, name)
        progress.say(self._cmd, '%d %s read', count, name)


def _server(server):
    """Convert a server of the SDK."""
    return values.Server(server.compute_host, server.hypervisor_hostname,
                         server.status, server.task_state)


def _reservation(data):
    """Convert a reservation of our API."""
    return values.Reservation(data['node_uuid'], data['host'], data['state'],
                              _is_expired(data['expires_at']))


def _node(node, allocated=False):
    """Convert a node of Ironic's API."""
    return values.Node(node['name'], node['instance_uuid'],
                       node['provision_state'], allocated)


def _data(response):
    """Return the data of an HTTP response; None for 404."""
    if response.status_code == 404:
        return None
    sdk_exc.raise_from_response(response)
    return response.json()


def _is_expired(expires_at):
    return expires_at is not None and (
        datetime.datetime.now(datetime.UTC)
        > datetime.datetime.fromisoformat(expires_at)
        + datetime.timedelta(seconds=SLACK))
