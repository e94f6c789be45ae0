# SPDX-License-Identifier: Apache-2.0
"""Reads lists from the four services over their public APIs."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
import datetime
from typing import Any

from ironicclient import exc
from openstack import exceptions as sdk_exc
from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.osc import progress
from ironic_reservations.osc.audit import kinds
from ironic_reservations.osc.audit import snapshot

#: Seconds past its end after which a lease counts as expired, because the
#: clock of this machine may be ahead of that of the database.
SLACK = 60

#: Progress is logged after this number of resources.
STEP = 1000

#: The fields of a node that are read from Ironic.
_NODE_FIELDS = 'uuid,name,instance_uuid,provision_state'


class Reader:
    """Reads the services.

    All methods raise the errors of the services' clients.

    :param auth: how to log in to Ironic; see ``scope.find_full_auth``.
    """

    def __init__(self, cmd: command.Command, auth: Any) -> None:
        self._cmd = cmd
        self._auth = auth
        self._sdk = cmd.app.client_manager.sdk_connection

    def has_nova(self) -> bool:
        """Return whether a Nova belongs to this Ironic.

        Without Keystone, all services have the one endpoint that the user
        sets, which is Ironic's.
        """
        return (self._sdk.compute.get_endpoint()
                != self._sdk.baremetal.get_endpoint())

    def read_ironic(self) -> snapshot.Cloud:
        """Return a Cloud without Nova."""
        return snapshot.Cloud(reservations=self._read_reservations(),
                              nodes=self._read_nodes(), has_nova=False)

    def read_cloud(self, host: str | None = None) -> snapshot.Cloud:
        """Return a Cloud.

        Servers are read last, because everything that names a server is
        created after the server.

        :param host: the only host whose servers and allocations are needed;
            None for all.
        """
        compute_nodes = {
            row.id: snapshot.ComputeNode(row.service_details['host'], row.name,
                                         row.state == 'down')
            for row in self._count(
                self._sdk.compute.hypervisors(details=True), 'hypervisors')
            if row.hypervisor_type == 'ironic'}
        reservations = self._read_reservations()
        nodes = self._read_nodes()
        providers = {provider['uuid'] for provider in self._count(
            client.request_placement(self._cmd, '/resource_providers')[
                'resource_providers'], 'resource providers')}
        allocations = self._read_allocations(
            uuid for uuid, row in compute_nodes.items()
            if row.name == row.host and host in (None, row.host)
            and uuid in providers)
        servers = {server.id: _convert_server(server)
                   for server in self._count(self._sdk.compute.servers(
                       details=True, all_projects=True, is_soft_deleted=True,
                       **({'compute_host': host} if host else {})),
                       'servers')}
        cloud = snapshot.Cloud(servers, reservations, nodes, compute_nodes,
                               providers, allocations)
        self._complete(cloud, host)
        return cloud

    def _read_reservations(self) -> dict[str, snapshot.Reservation]:
        return {row['instance_uuid']: _convert_reservation(row)
                for row in self._read_list(
                    'reservations',
                    'instance_uuid,node_uuid,host,state,expires_at')}

    def _read_nodes(self) -> dict[str, snapshot.Node]:
        # Ironic's allocations are read, because Ironic responds with 500 to a
        # list of nodes with the field allocation_uuid. An allocation has the
        # UUID of the instance.
        allocations = {allocation['uuid'] for allocation in self._read_list(
            'allocations', 'uuid')}
        return {node['uuid']: _convert_node(
            node, node['instance_uuid'] in allocations)
            for node in self._read_list('nodes', _NODE_FIELDS)}

    def _read_allocations(self, providers: Iterable[str],
                          ) -> dict[str, set[str]]:
        """Return the consumers of resource providers, with these."""
        allocations: dict[str, set[str]] = collections.defaultdict(set)
        for uuid in providers:
            response = client.request_placement(
                self._cmd, f'/resource_providers/{uuid}/allocations')
            for consumer in response['allocations']:
                allocations[consumer].add(uuid)
        return allocations

    def _complete(self, cloud: snapshot.Cloud, host: str | None) -> None:
        """Read one by one what seems to be missing.

        The lists lack servers of other hosts and of cells that are currently
        unreachable, and allocations from the providers of other hosts and of
        nodes.
        """
        for finding in kinds.find_all_findings(cloud, host):
            instance = finding.instance
            if instance and instance not in cloud.servers:
                try:
                    cloud.servers[instance] = _convert_server(
                        self._sdk.compute.get_server(instance))
                except sdk_exc.NotFoundException:
                    continue
            elif not instance or finding.kind != 'no-allocation':
                continue
            cloud.allocations[instance] = set(client.request_placement(
                self._cmd, f'/allocations/{instance}')['allocations'])

    def read_details(self, cloud: snapshot.Cloud,
                     finding: snapshot.Finding) -> snapshot.Details:
        """Read the current values for a finding.

        :param cloud: the Cloud of the finding; its compute nodes are kept.
        """
        if finding.instance is not None:
            return self._read_instance(cloud, finding.instance)
        return self._read_provider(cloud, finding.node or '')

    def _read_provider(self, cloud: snapshot.Cloud,
                       node: str) -> snapshot.Details:
        data = _parse_response(self._sdk.compute.get(
            f'/os-hypervisors/{node}', microversion='2.53'))
        row = {node: snapshot.ComputeNode(
            data['hypervisor']['service']['host'],
            data['hypervisor']['hypervisor_hostname'])} if data else {}
        provider = _parse_response(self._sdk.placement.get(
            f'/resource_providers/{node}'))
        return snapshot.Details(
            # Ironic may no longer have the node of a compute node.
            snapshot.Cloud(nodes={uuid: values for uuid, values
                                  in cloud.nodes.items() if uuid == node},
                           compute_nodes=cloud.compute_nodes | row,
                           providers={node} if provider else set()),
            {}, {}, {}, self._auth)

    def _read_instance(self, cloud: snapshot.Cloud,
                       instance: str) -> snapshot.Details:
        try:
            reservation = client.request_ironic(
                self._cmd, 'GET', f'{client.PATH}/{instance}',
                auth=self._auth)
        except exc.NotFound:
            reservation = {}
        nodes = self._read_list('nodes', _NODE_FIELDS, instance_uuid=instance)
        allocations = client.request_placement(
            self._cmd, f'/allocations/{instance}')
        data = _parse_response(self._sdk.compute.get(
            f'/servers/{instance}', microversion='2.69'))
        server = data['server'] if data else {}
        return snapshot.Details(snapshot.Cloud(
            # For a server in a cell that does not respond, Nova shows only
            # the status.
            {instance: snapshot.Server(
                server.get('OS-EXT-SRV-ATTR:host'),
                server.get('OS-EXT-SRV-ATTR:hypervisor_hostname'),
                server['status'], server.get('OS-EXT-STS:task_state'),
            )} if server else {},
            {instance: _convert_reservation(reservation)}
            if reservation else {},
            {node['uuid']: _convert_node(node) for node in nodes},
            cloud.compute_nodes,
            allocations={instance: set(allocations['allocations'])}),
            reservation, server, allocations, self._auth)

    def _read_list(self, collection: str, fields: str,
                   **query: str) -> Iterator[client.Data]:
        """Yield the members of a collection in Ironic's API."""
        return client.read_list(self._cmd, collection,
                                {'fields': fields, **query}, auth=self._auth)

    def _count(self, resources: Iterable[Any], name: str) -> Iterator[Any]:
        """Yield the resources, and log their number."""
        count = 0
        for count, resource in enumerate(resources, 1):
            yield resource
            if count % STEP == 0:
                progress.update_line(self._cmd, '%d %s read', count, name)
        progress.update_line(self._cmd, '%d %s read', count, name)


def _convert_server(server: Any) -> snapshot.Server:
    """Convert a server of the SDK."""
    return snapshot.Server(server.compute_host, server.hypervisor_hostname,
                           server.status, server.task_state)


def _convert_reservation(row: client.Data) -> snapshot.Reservation:
    """Convert a reservation of our API."""
    return snapshot.Reservation(
        row['node_uuid'], row['host'], row['state'],
        _is_expired(row['expires_at']))


def _convert_node(node: client.Data,
                  has_allocation: bool = False) -> snapshot.Node:
    """Convert a node of Ironic's API."""
    return snapshot.Node(node['name'], node['instance_uuid'],
                         node['provision_state'], has_allocation)


def _parse_response(response: Any) -> Any:
    """Return the data of an HTTP response; None for 404."""
    if response.status_code == 404:
        return None
    sdk_exc.raise_from_response(response)
    return response.json()


def _is_expired(expires_at: str | None) -> bool:
    return expires_at is not None and (
        datetime.datetime.now(datetime.UTC)
        > datetime.datetime.fromisoformat(expires_at)
        + datetime.timedelta(seconds=SLACK))
