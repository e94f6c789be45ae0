# SPDX-License-Identifier: Apache-2.0
"""Reads lists from the four services over their public APIs."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import datetime
from typing import Any

from ironicclient import exc
from openstack import exceptions as sdk_exc
from osc_lib.command import command
from oslo_utils import uuidutils

from ironic_reservations.osc import client
from ironic_reservations.osc import progress
from ironic_reservations.osc.audit import kinds
from ironic_reservations.osc.audit import machines
from ironic_reservations.osc.audit import snapshot
from ironic_reservations.shared import leftovers

#: Seconds past its end after which a lease counts as expired, because the
#: clock of this machine may be ahead of that of the database.
SLACK = 60

#: Progress is logged after this number of resources.
STEP = 1000

#: Maximum number of nodes in a dry run. The API allows 1024 candidates.
DRY_RUN_NODES = 1000

#: The fields of a node that are read from Ironic.
_NODE_FIELDS = 'uuid,name,instance_uuid,provision_state,lessee'

#: The fields of resources that may be left on a free node, by the path of
#: their list.
_LEFTOVERS = {**dict.fromkeys(('ports', 'portgroups'),
                              'uuid,node_uuid,internal_info,extra'),
              'volume/targets': 'uuid,node_uuid'}


class Reader:
    """Reads the services.

    UUIDs are in lower case, because Ironic stores them as its clients sent
    them, and Nova and Placement may spell them differently.

    All methods raise the errors of the services' clients.

    :param auth: how to log in to Ironic; see ``scope.find_full_auth``.
    """

    def __init__(self, cmd: command.Command, auth: Any) -> None:
        self._cmd = cmd
        self._auth = auth
        self._sdk = client.get_sdk(cmd)

    def read_ironic(self) -> snapshot.Cloud:
        """Return a Cloud without Nova."""
        cloud = snapshot.Cloud(reservations=self._read_reservations(),
                               nodes=self._read_nodes(),
                               pools=self._read_pools(), has_nova=False)
        self._free_expired(cloud)
        return cloud

    def read_cloud(self, host: str | None = None) -> snapshot.Cloud:
        """Return a Cloud.

        Servers are read last, because everything that names a server is
        created after the server.

        :param host: the only host whose servers and allocations are needed;
            None for all.
        """
        compute_nodes = {
            row.id.lower(): snapshot.ComputeNode(
                row.service_details['host'], _fold_uuid(row.name),
                row.state == 'down')
            for row in self._count(
                self._sdk.compute.hypervisors(details=True), 'hypervisors')
            if row.hypervisor_type == 'ironic'}
        reservations = self._read_reservations()
        # Leftovers on free nodes, and notices, belong to no host.
        nodes = self._read_nodes(with_details=host is None)
        pools = self._read_pools()
        providers = {
            provider['uuid'].lower(): provider['root_provider_uuid'].lower()
            for provider in self._count(client.request_placement(
                self._cmd, '/resource_providers')['resource_providers'],
                'resource providers')}
        one_rows = {uuid for uuid, row in compute_nodes.items()
                    if row.name == row.host and host in (None, row.host)}
        allocations = self._read_allocations(
            uuid for uuid, root in providers.items() if root in one_rows)
        servers = {server.id: _convert_server(server)
                   for server in self._count(self._sdk.compute.servers(
                       details=True, all_projects=True, is_soft_deleted=True,
                       **({'compute_host': host} if host else {})),
                       'servers')}
        cloud = snapshot.Cloud(servers, reservations, nodes, compute_nodes,
                               providers, allocations, pools)
        self._complete(cloud, host)
        self._free_expired(cloud)
        return cloud

    def _read_reservations(self) -> dict[str, snapshot.Reservation]:
        return {row['instance_uuid'].lower(): _convert_reservation(row)
                for row in self._read_list(
                    'reservations',
                    'instance_uuid,node_uuid,host,state,expires_at,'
                    'project_id')}

    def _read_pools(self) -> dict[str, snapshot.Pool]:
        pools: dict[str, snapshot.Pool] = {}
        # An older version of our API takes "pools" for an instance.
        with contextlib.suppress(exc.BadRequest):
            for row in client.read_list(self._cmd, 'reservations/pools', {},
                                        auth=self._auth):
                # Otherwise no node carries an instance.
                if row['summary']['free'] < row['summary']['total']:
                    pool = snapshot.Pool(row['uuid'], row['project_id'])
                    pools |= dict.fromkeys(
                        self._read_members(pool.uuid), pool)
        return pools

    def _read_members(self, uuid: str) -> list[str]:
        """Return the nodes of a pool, which may be deleted by now."""
        with contextlib.suppress(exc.NotFound):
            pool = client.request_ironic(
                self._cmd, 'GET', client.build_path(
                    f'{client.PATH}/pools', uuid), auth=self._auth)
            return [node['uuid'].lower() for node in pool['nodes']]
        return []

    def _free_expired(self, cloud: snapshot.Cloud) -> None:
        """Take the instances of expired reservations off their nodes.

        No list shows an expired reservation, but its node carries the instance
        until a request releases it. For a dry run such a node is free.
        """
        # Nodes of a pool match no other project, whatever their state.
        nodes = collections.defaultdict(list)
        for finding in kinds.find_all_findings(cloud):
            if finding.kind == machines.UnknownInstance.name:
                pool = cloud.pools.get(str(finding.node))
                nodes[pool and pool.project].append(str(finding.node))
        # A user with the role reader may make no dry run.
        with contextlib.suppress(exc.Forbidden):
            for project, uuids in nodes.items():
                for uuid in self._find_free(uuids, project):
                    cloud.nodes[uuid] = cloud.nodes[uuid]._replace(
                        instance=None)

    def _find_free(self, nodes: list[str], project: str | None,
                   traits: Sequence[str] = ()) -> list[str]:
        """Return the nodes in a list that a dry run does not call reserved.

        A dry run counts the fleet. Usually one is enough, because all of the
        nodes are reserved, or none.

        :param traits: dedicated traits of all of the nodes, without which
            these would not match.
        """
        if len(nodes) <= DRY_RUN_NODES:
            verdict = client.request_ironic(
                self._cmd, 'POST', f'{client.PATH}?dry_run=true',
                auth=self._auth, body={
                    'candidate_nodes': nodes, 'project_id': project,
                    'ownership': 'any', 'extra_specs': {
                        f'trait:{trait}': 'required' for trait in traits}})
            numbers = {step['by']: step['nodes'] for step
                       in verdict['explanation']['eliminated']}
            by_trait = {by.removeprefix('dedicated:'): number
                        for by, number in numbers.items()
                        if by.startswith('dedicated:')}
            if len(nodes) in by_trait.values():
                return self._find_free(nodes, project, [*traits, *by_trait])
            reserved = numbers.get('reserved', 0)
            if not by_trait and reserved in (0, len(nodes)):
                return [] if reserved else nodes
        middle = len(nodes) // 2
        return (self._find_free(nodes[:middle], project, traits)
                + self._find_free(nodes[middle:], project, traits))

    def _read_nodes(self, with_details: bool = True
                    ) -> dict[str, snapshot.Node]:
        # Ironic's allocations are read, because Ironic responds with 500 to a
        # list of nodes with the field allocation_uuid. An allocation has the
        # UUID of the instance.
        allocations = {allocation['uuid'].lower() for allocation
                       in self._read_list('allocations', 'uuid')}
        nodes = {node['uuid'].lower(): _convert_node(
            node, (node['instance_uuid'] or '').lower() in allocations)
            for node in self._read_list('nodes', _NODE_FIELDS)}
        if with_details:
            self._read_leftovers(nodes)
            self._read_notices(nodes)
        return nodes

    def _read_notices(self, nodes: dict[str, snapshot.Node]) -> None:
        """Add to each node what its open notices say."""
        # An older version of our API takes "notices" for an instance.
        with contextlib.suppress(exc.BadRequest):
            for row in self._read_list('reservations/notices', state='open'):
                uuid = row['node_uuid'].lower()
                if uuid not in nodes:
                    continue
                # Another older version has no due times.
                if row.get('overdue'):
                    nodes[uuid] = nodes[uuid]._replace(has_overdue_notice=True)
                if row['cordon'] and row['project_id']:
                    nodes[uuid] = nodes[uuid]._replace(
                        cordon_project=row['project_id'])

    def _read_leftovers(self, nodes: dict[str, snapshot.Node]) -> None:
        """Add to each free node the commands that clean it.

        The instance_info of other nodes may be long, and is not read.
        """
        info = {node['uuid'].lower(): node['instance_info'] for node in
                self._read_list('nodes', 'uuid,instance_info',
                                provision_state='available',
                                associated='false')}
        rows: dict[tuple[str, str], list[client.Data]] = (
            collections.defaultdict(list))
        for path, fields in _LEFTOVERS.items():
            for row in self._read_list(path, fields):
                uuid = row['node_uuid'].lower()
                if uuid in info and (
                        row.get('internal_info', True) or row['extra']):
                    rows[path, uuid].append(row)
        for uuid in info.keys() & nodes.keys():
            node = nodes[uuid]
            nodes[uuid] = node._replace(cleaning=tuple(leftovers.list_commands(
                node.name or uuid, info[uuid], rows['ports', uuid],
                rows['portgroups', uuid],
                [row['uuid'] for row in rows['volume/targets', uuid]])))

    def _read_allocations(self, providers: Iterable[str],
                          ) -> dict[str, set[str]]:
        """Return the providers of the consumers of some providers."""
        allocations: dict[str, set[str]] = collections.defaultdict(set)
        for uuid in providers:
            response = client.request_placement(
                self._cmd, f'/resource_providers/{uuid}/allocations')
            for consumer in response['allocations']:
                allocations[consumer].add(uuid)
        return allocations

    def _complete(self, cloud: snapshot.Cloud, host: str | None) -> None:
        """Read servers and allocations that seem to be missing, one by one.

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
            _fold_uuid(data['hypervisor']['hypervisor_hostname']),
        )} if data else {}
        provider = _parse_response(self._sdk.placement.get(
            f'/resource_providers/{node}'))
        return snapshot.Details(
            # Ironic may no longer have the node of a compute node.
            snapshot.Cloud(nodes={uuid: values for uuid, values
                                  in cloud.nodes.items() if uuid == node},
                           compute_nodes=cloud.compute_nodes | row,
                           providers={node: node} if provider else {}),
            {}, {}, {}, self._auth)

    def _read_instance(self, cloud: snapshot.Cloud,
                       instance: str) -> snapshot.Details:
        try:
            reservation = client.request_ironic(
                self._cmd, 'GET', f'{client.PATH}/{instance}',
                auth=self._auth)
        except exc.NotFound:
            reservation = {}
        # On SQLite, Ironic finds only the spelling that it stores.
        nodes = self._read_list(
            'nodes', _NODE_FIELDS,
            instance_uuid=reservation.get('instance_uuid', instance))
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
                _fold_uuid(server.get('OS-EXT-SRV-ATTR:hypervisor_hostname')),
                server['status'], server.get('OS-EXT-STS:task_state'),
                server.get('tenant_id'))} if server else {},
            {instance: _convert_reservation(reservation)}
            if reservation else {},
            {node['uuid'].lower(): _convert_node(node) for node in nodes},
            cloud.compute_nodes, cloud.providers,
            {instance: set(allocations['allocations'])}),
            reservation, server, allocations, self._auth)

    def _read_list(self, collection: str, fields: str | None = None,
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
    return snapshot.Server(
        server.compute_host, _fold_uuid(server.hypervisor_hostname),
        server.status, server.task_state, server.project_id)


def _fold_uuid(name: Any) -> Any:
    """Return a UUID in lower case, and any other name as it is.

    A compute node in per-node mode has the UUID of its node as its name.
    """
    return name.lower() if uuidutils.is_uuid_like(name) else name


def _convert_reservation(row: client.Data) -> snapshot.Reservation:
    """Convert a reservation of our API."""
    return snapshot.Reservation(
        row['node_uuid'].lower(), row['host'], row['state'],
        _is_expired(row['expires_at']), row['project_id'])


def _convert_node(node: client.Data,
                  has_allocation: bool = False) -> snapshot.Node:
    """Convert a node of Ironic's API."""
    return snapshot.Node(
        node['name'], node['instance_uuid'] and node['instance_uuid'].lower(),
        node['provision_state'], has_allocation, lessee=node['lessee'])


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
