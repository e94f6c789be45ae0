# SPDX-License-Identifier: Apache-2.0
"""What Nova, Placement, the reservations and Ironic's nodes disagree about.

``find`` compares them: a pure function of what was read. The command reads,
over the public APIs, in a few lists each. With ``--repair`` it does about
each what ``repairs`` has for its kind.
"""

import collections
import contextlib
import dataclasses
import datetime
import functools
import time
import typing

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from keystoneauth1.identity import v3
from openstack import exceptions as sdk_exc
from osc_lib import exceptions

from ironic_reservations.osc import client
from ironic_reservations.osc import output
from ironic_reservations.osc import repairs

#: Provision states in which a node is at rest and has an instance on its
#: disks.
DEPLOYED = ('active', 'rescue', 'rescue failed', 'unrescue failed',
            'service', 'service failed', 'service hold')

#: Seconds that a lease must be over, because the clock of this machine may be
#: ahead of the database's.
SLACK = 60

#: Seconds between the two readings. Nova deletes a server and then its
#: allocation, for example, and has time to finish what it had begun.
PAUSE = 2

#: After so many servers and the like the log says how far the reading is.
STEP = 1000

#: No project has this ID.
_NOBODY = '0' * 32

#: What is read of a node, in the words of Ironic's API.
_NODE = 'uuid,name,instance_uuid,provision_state'


class Server(typing.NamedTuple):
    """A server of Nova.

    :param host: the compute host, or None.
    :param row: its ``hypervisor_hostname``: the host's name, or on a row per
        node the UUID of the node; None as long as it is on no host.
    :param status: ``UNKNOWN`` where its cell cannot be reached.
    :param task: its ``task_state``, or None.
    """

    host: str | None
    row: str | None
    status: str
    task: str | None = None

    @property
    def at_rest(self):
        """Whether Nova is doing nothing with it that would explain a lot."""
        return self.task is None and self.status not in ('BUILD', 'UNKNOWN')


class Reservation(typing.NamedTuple):
    """A reservation.

    :param node: UUID of the node.
    :param host: the compute host that holds it, or None.
    :param state: as the API has it.
    :param lapsed: whether its lease is over.
    """

    node: str
    host: str | None
    state: str
    lapsed: bool = False


class Node(typing.NamedTuple):
    """A node of Ironic.

    :param instance: its ``instance_uuid``, or None.
    :param state: its provision state.
    :param allocated: whether it has an allocation of Ironic's.
    """

    name: str | None
    instance: str | None
    state: str
    allocated: bool = False

    @property
    def is_deployed(self):
        return self.state in DEPLOYED


class Row(typing.NamedTuple):
    """A compute node of Nova, which its API calls a hypervisor.

    :param host: the compute host.
    :param name: the host's name if it is the host's one row, or the UUID of
        a node.
    """

    host: str
    name: str


@dataclasses.dataclass(frozen=True)
class Cloud:
    """What the four services have said.

    :param servers: by UUID.
    :param reservations: by the UUID of the instance.
    :param nodes: by UUID.
    :param rows: of bare metal only, by UUID, which is also that of the
        resource provider.
    :param providers: set of the UUIDs of all resource providers.
    :param allocations: sets of UUIDs of resource providers by the UUID of
        the consumer, at least for the providers of the hosts' own rows.
    """

    servers: dict = dataclasses.field(default_factory=dict)
    reservations: dict = dataclasses.field(default_factory=dict)
    nodes: dict = dataclasses.field(default_factory=dict)
    rows: dict = dataclasses.field(default_factory=dict)
    providers: set = dataclasses.field(default_factory=set)
    allocations: dict = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def hosts(self):
        """The names of the compute hosts of bare metal."""
        return {row.host for row in self.rows.values()}

    @functools.cached_property
    def own_rows(self):
        """The UUID of a host's one row, by the name of the host."""
        return {row.host: uuid for uuid, row in self.rows.items()
                if row.name == row.host}

    @functools.cached_property
    def machines(self):
        """The UUID of the node that carries an instance, by the instance."""
        return {node.instance: uuid for uuid, node in self.nodes.items()
                if node.instance}

    def busy(self, instance):
        """Whether Nova is at work with the server of an instance."""
        return (instance in self.servers
                and not self.servers[instance].at_rest)


class Finding(typing.NamedTuple):
    """Something that disagrees; each but the kind may be None.

    :param kind: a key of ``KINDS``.
    :param instance: UUID of the instance.
    :param node: UUID of the node.
    :param host: the compute host that has the instance, the node or the row.
    """

    kind: str
    instance: str | None
    node: str | None
    host: str | None


# The kinds. Each is a function of a Cloud that yields instance, node, host.


def _lapsed_touched(cloud):
    for instance, held in cloud.reservations.items():
        if held.lapsed and held.state == 'reserved':
            yield instance, held.node, held.host


def _failed(cloud):
    for instance, held in cloud.reservations.items():
        if held.state == 'error' and not cloud.busy(instance):
            yield instance, held.node, held.host


def _unavailable(cloud):
    for instance, held in cloud.reservations.items():
        if held.state == 'unavailable':
            yield instance, held.node, held.host


def _no_server(cloud):
    for instance, held in cloud.reservations.items():
        if held.host and instance not in cloud.servers:
            yield instance, held.node, held.host


def _no_reservation(cloud):
    for instance, server in cloud.servers.items():
        node = cloud.machines.get(instance)
        if (instance in cloud.reservations or server.task == 'deleting'
                or server.status in ('BUILD', 'UNKNOWN')):
            continue
        # A build that has failed may have left a server without a machine.
        if node or (server.host in cloud.hosts and server.at_rest
                    and server.status != 'ERROR'):
            yield instance, node, server.host


def _no_allocation(cloud):
    for instance, server in cloud.servers.items():
        if (server.at_rest and server.row == server.host
                and server.host in cloud.own_rows
                and not cloud.allocations.get(instance)):
            yield instance, cloud.machines.get(instance), server.host


def _wrong_allocation(cloud):
    for instance, providers in cloud.allocations.items():
        server = cloud.servers.get(instance)
        if server is None:
            for uuid in sorted(providers & cloud.rows.keys()):
                yield instance, None, cloud.rows[uuid].host
        # That of a server on a row per node may be on its way to the host's.
        elif server.at_rest and providers - {
                cloud.own_rows.get(server.host), server.row}:
            yield instance, cloud.machines.get(instance), server.host


def _wrong_host(cloud):
    for instance, held in cloud.reservations.items():
        server = cloud.servers.get(instance)
        if server and server.at_rest and held.host != server.host:
            yield instance, held.node, server.host


def _per_node_row(cloud):
    for instance, server in cloud.servers.items():
        if (server.row != server.host
                and (server.host in cloud.hosts
                     or server.row in cloud.nodes)):
            yield (instance, cloud.machines.get(instance, server.row),
                   server.host)


def _orphan_node(cloud):
    hosts = {row.name: row.host for row in cloud.rows.values()}
    reserved = {held.node for held in cloud.reservations.values()}
    for uuid, node in cloud.nodes.items():
        if (node.is_deployed and not node.allocated
                and uuid not in reserved
                and node.instance not in cloud.servers):
            yield node.instance, uuid, hosts.get(uuid)


def _stale_row(cloud):
    used = {server.row for server in cloud.servers.values()}
    for row in cloud.rows.values():
        if (row.name != row.host and row.host in cloud.own_rows
                and row.name not in used):
            yield None, row.name, row.host
    # Nova names the provider of a node by the node's UUID, and gives it that.
    for uuid in cloud.nodes:
        if uuid in cloud.providers and uuid not in cloud.rows:
            yield None, uuid, None


class Kind(typing.NamedTuple):
    """A way to disagree.

    :param find: a function of a Cloud that yields instance, node and host.
    :param advice: what to do, with ``{node}`` and ``{host}`` of what is found,
        and ``{holder}``, the host that has the reservation.
    :param repair: repairs.Repair; None where it takes somebody's judgement.
    """

    find: typing.Callable
    advice: str
    repair: repairs.Repair | None = None


#: In the order in which they are shown. doc/source/audit.rst says more.
KINDS = {
    'lapsed-touched': Kind(
        _lapsed_touched,
        'delete the server; without one, clean node {node} up and sweep'),
    'failed': Kind(
        _failed, 'delete the server; without one, undeploy node {node}'),
    'unavailable': Kind(
        _unavailable,
        'bring node {node} back to what it was, or delete the reservation'),
    'no-server': Kind(
        _no_server,
        'let host {host} clean up; else undeploy node {node}, or delete the '
        'reservation',
        repairs.Repair(repairs.may_end_lease, repairs.end_lease)),
    'no-reservation': Kind(
        _no_reservation,
        'if the server is on a row per node, switch host {host} to one row; '
        'without a node, delete the server',
        repairs.Repair(repairs.may_adopt, repairs.adopt)),
    'no-allocation': Kind(
        _no_allocation, 'let host {host} make it again, in a periodic task',
        repairs.Repair(repairs.may_allocate, repairs.allocate)),
    'wrong-allocation': Kind(
        _wrong_allocation,
        'move it to the provider of the host of the server; without a '
        'server, delete it',
        repairs.Repair(repairs.may_mend_allocation, repairs.mend_allocation)),
    'wrong-host': Kind(
        _wrong_host,
        '{holder} holds node {node}: let it take the server over, or give '
        'the reservation to the host of the server'),
    'per-node-row': Kind(
        _per_node_row, 'switch host {host} to one row'),
    'orphan-node': Kind(
        _orphan_node, 'undeploy node {node}'),
    'stale-row': Kind(
        _stale_row,
        'let the host delete it, in a periodic task; else delete provider '
        '{node}',
        repairs.Repair(repairs.may_delete_provider, repairs.delete_provider)),
}


def find(cloud, host=None):
    """Compare what the services have said.

    :param cloud: a Cloud.
    :param host: to be told only of what concerns this compute host. Other
        hosts' servers and allocations need not be known then.
    :returns: list of Findings.
    """
    found = (Finding(name, *what) for name, kind in KINDS.items()
             for what in kind.find(cloud))
    return [each for each in found if host is None or host in (
        each.host, _holder(cloud, each.instance))]


def _holder(cloud, instance):
    held = cloud.reservations.get(instance)
    return held.host if held else None


def auth_of_ironic(cmd):
    """Return an authentication that sees all of Ironic, None for the own.

    Nova and Placement want a token for a project, and Ironic, by default,
    one in system scope: the latter is made from the former.

    :raises: CommandError when there is none.
    """
    def try_it(auth=None):
        # Refused to those who see their own project's only.
        list(client.listed(
            cmd, 'reservations', {'project_id': _NOBODY}, auth=auth))
        return auth

    try:
        return try_it()
    except exc.Forbidden:
        manager = cmd.app.client_manager
    try:
        return try_it(v3.Token(
            manager.auth.auth_url, manager.auth.get_token(manager.session),
            system_scope='all'))
    except (exc.Forbidden, ksa_exc.ClientException) as error:
        raise exceptions.CommandError(
            f'Ironic does not show this user all reservations, for which '
            f'it needs the role reader in system scope: {error}')


class AuditReservation(output.Lister):
    """Show what Nova, Placement, the reservations and Ironic disagree about.

    Log in for a project, as an admin of Nova and Placement. Ironic is asked
    for all projects, with a token in system scope where it wants one. The
    exit status is 1 if there is anything to show, or, with --repair, if
    anything of it is left.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Only what concerns this compute service')
        parser.add_argument(
            '--repair', action='store_true',
            help='Mend what needs no judgement, say of each what was done, '
                 'and look again what is left; no machine is touched')
        return parser

    def take_action(self, parsed_args):
        host, columns = parsed_args.host, (
            'Kind', 'Instance', 'Node', 'Host', 'What to Do')
        with one_sentence():
            ironic = auth_of_ironic(self)
            cloud, found = self._audit(host, ironic)
            if not parsed_args.repair:
                self.status = 1 if found else 0
                return columns, [self._shown(cloud, each) for each in found]
            results = {each: self._repair(cloud, each, ironic)
                       for each in found}
            try:
                after, left = self._audit(host, ironic)
            except Exception:
                # There will be no table to say it.
                for each, result in results.items():
                    self.log.warning('%s, instance %s, node %s: %s',
                                     each.kind, each.instance, each.node,
                                     result)
                raise
        self.status = 1 if left else 0
        return (*columns, 'Repair'), [
            (*(self._shown(after, each) if each in left else
               (*self._shown(cloud, each)[:-1], 'nothing')),
             results.get(each, 'new'))
            for each in dict.fromkeys([*found, *left])]

    def _audit(self, host, ironic):
        """Return a Cloud, and the Findings that are sure."""
        cloud = self._read(host, ironic)
        findings = find(cloud, host)
        if findings:
            # The lists are of different moments. What disagrees is read once
            # more.
            self.log.info('%d may disagree, and are read again',
                          len(findings))
            time.sleep(PAUSE)
            cloud, before = self._read(host, ironic), set(findings)
            findings = [each for each in find(cloud, host) if each in before]
        return cloud, findings

    @staticmethod
    def _shown(cloud, finding):
        node = cloud.nodes.get(finding.node)
        return (*finding._replace(node=node and node.name or finding.node),
                KINDS[finding.kind].advice.format(
                    **finding._asdict(),
                    holder=_holder(cloud, finding.instance) or 'nobody'))

    def _repair(self, cloud, finding, ironic):
        """Do about a finding what can be done.

        :returns: what was done, or why nothing was, in a few words.
        """
        kind = KINDS[finding.kind]
        if kind.repair is None:
            return 'left'
        try:
            now = self._read_again(cloud, finding, ironic)
            if finding[1:] not in kind.find(now.cloud):
                return 'gone'
            if not kind.repair.may(now.cloud, finding):
                return 'left'
            result = f'done: {kind.repair.do(self, now, finding)}'
        except (exc.ClientException, sdk_exc.SDKException,
                ksa_exc.ClientException, repairs.Refusal) as error:
            result = f'failed: {error}'
        self.log.info('%s, instance %s, node %s: %s', *finding[:3], result)
        return result

    def _read_again(self, cloud, finding, ironic):
        """Read what a finding stands on.

        :param cloud: the Cloud in which it was found, for the hosts' rows.
        :returns: a repairs.Now.
        """
        sdk = self.app.client_manager.sdk_connection
        instance, node = finding.instance, finding.node
        if instance is None:
            row = _found(sdk.compute.get(
                f'/os-hypervisors/{node}', microversion='2.53'))
            row = {node: Row(row['hypervisor']['service']['host'],
                             row['hypervisor']['hypervisor_hostname'])
                   } if row else {}
            provider = _found(sdk.placement.get(
                f'/resource_providers/{node}'))
            return repairs.Now(Cloud(
                nodes={node: cloud.nodes[node]}, rows=cloud.rows | row,
                providers={node} if provider else set()),
                None, None, None, ironic)
        try:
            held = client.request(
                self, 'GET', f'{client.PATH}/{instance}', auth=ironic)
        except exc.NotFound:
            held = None
        nodes = client.listed(
            self, 'nodes', {'instance_uuid': instance, 'fields': _NODE},
            auth=ironic)
        allocations = repairs.placement(self, f'/allocations/{instance}')
        server = _found(sdk.compute.get(
            f'/servers/{instance}', microversion='2.69'))
        server = server and server['server']
        return repairs.Now(Cloud(
            # A cell that does not answer tells the status alone.
            {instance: Server(
                server.get('OS-EXT-SRV-ATTR:host'),
                server.get('OS-EXT-SRV-ATTR:hypervisor_hostname'),
                server['status'], server.get('OS-EXT-STS:task_state'),
            )} if server else {},
            {instance: _reservation(held)} if held else {},
            {each['uuid']: _node(each) for each in nodes}, cloud.rows,
            allocations={instance: set(allocations['allocations'])}),
            held, server, allocations, ironic)

    def _read(self, host, ironic):
        """Return a Cloud as it is now.

        Servers are read last: whatever names one is made after it.

        :param host: the only host whose servers and allocations are needed,
            or None.
        :param ironic: how to log in to Ironic.
        """
        sdk = self.app.client_manager.sdk_connection
        rows = {each.id: Row(each.service_details['host'], each.name)
                for each in self._counted(
                    sdk.compute.hypervisors(details=True), 'hypervisors')
                if each.hypervisor_type == 'ironic'}
        reservations = {
            each['instance_uuid']: _reservation(each)
            for each in client.listed(
                self, 'reservations', {'fields': 'instance_uuid,node_uuid,'
                                                 'host,state,expires_at'},
                auth=ironic)}
        # An allocation of Ironic's has the UUID of the instance. A node's
        # own field cannot be asked for here: Ironic answers 500.
        allocated = {each['uuid'] for each in client.listed(
            self, 'allocations', {'fields': 'uuid'}, auth=ironic)}
        nodes = {
            each['uuid']: _node(each, each['instance_uuid'] in allocated)
            for each in client.listed(
                self, 'nodes', {'fields': _NODE}, auth=ironic)}
        providers = {each['uuid'] for each in self._counted(
            repairs.placement(
                self, '/resource_providers')['resource_providers'],
            'resource providers')}
        allocations = collections.defaultdict(set)
        for uuid, row in rows.items():
            if (row.name == row.host and host in (None, row.host)
                    and uuid in providers):
                used = repairs.placement(
                    self, f'/resource_providers/{uuid}/allocations')
                for consumer in used['allocations']:
                    allocations[consumer].add(uuid)
        servers = {each.id: _server(each) for each in self._counted(
            sdk.compute.servers(details=True, all_projects=True,
                                is_soft_deleted=True,
                                **({'compute_host': host} if host else {})),
            'servers')}
        cloud = Cloud(servers, reservations, nodes, rows, providers,
                      allocations)
        self._read_singly(cloud, host)
        return cloud

    def _read_singly(self, cloud, host):
        """Read what seems to be missing, and need not be in the lists.

        That is a server of another host or of a cell that cannot be reached
        now, and an allocation from another provider.
        """
        compute = self.app.client_manager.sdk_connection.compute
        for each in find(cloud, host):
            if each.instance and each.instance not in cloud.servers:
                try:
                    cloud.servers[each.instance] = _server(
                        compute.get_server(each.instance))
                except sdk_exc.NotFoundException:
                    continue
            elif each.kind != 'no-allocation':
                continue
            cloud.allocations[each.instance] = set(repairs.placement(
                self, f'/allocations/{each.instance}')['allocations'])

    def _counted(self, resources, name):
        """Yield them all, and say in the log how far that is."""
        count = 0
        for count, each in enumerate(resources, 1):
            yield each
            if count % STEP == 0:
                self.log.info('%d %s read', count, name)
        self.log.info('%d %s read', count, name)


def _server(server):
    """Return a Server of one of the SDK."""
    return Server(server.compute_host, server.hypervisor_hostname,
                  server.status, server.task_state)


def _reservation(held):
    """Return a Reservation of one of our API."""
    return Reservation(held['node_uuid'], held['host'], held['state'],
                       _is_over(held['expires_at']))


def _node(node, allocated=False):
    """Return a Node of one of Ironic's API."""
    return Node(node['name'], node['instance_uuid'], node['provision_state'],
                allocated)


def _found(response):
    """Return what the SDK was answered; None where nothing is."""
    if response.status_code == 404:
        return None
    sdk_exc.raise_from_response(response)
    return response.json()


def _is_over(expires_at):
    return expires_at is not None and (
        datetime.datetime.now(datetime.UTC)
        > datetime.datetime.fromisoformat(expires_at)
        + datetime.timedelta(seconds=SLACK))


@contextlib.contextmanager
def one_sentence():
    """Say in one sentence that Nova or Placement cannot be read."""
    try:
        yield
    except sdk_exc.ForbiddenException as error:
        raise exceptions.CommandError(
            f'Nova and Placement let only an admin do this, who is logged in '
            f'for a project: {error}')
    except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
        raise exceptions.CommandError(
            f'Nova or Placement cannot be read: {error}')
