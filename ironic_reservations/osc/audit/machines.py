# SPDX-License-Identifier: Apache-2.0
"""Kinds of disagreement about nodes and the servers on them."""

from collections.abc import Iterator
import datetime
import urllib.parse

from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.osc.audit import base
from ironic_reservations.osc.audit import repairs
from ironic_reservations.osc.audit import snapshot

#: Provision states of a reserved node that end without a command.
_TRANSIENT = ('cleaning', 'clean wait', 'inspecting', 'inspect wait',
              'verifying', 'adopting')


def _format_delete(finding: snapshot.Finding) -> str:
    """Return the command that deletes a server."""
    return f'openstack server delete {finding.instance}'


def _is_reserved(cloud: snapshot.Cloud, finding: snapshot.Finding) -> bool:
    """Return whether nothing is deployed on a reserved node."""
    reservation = cloud.find_reservation(finding.instance)
    return reservation is not None and reservation.state == 'reserved'


class ExpiredTouched(base.Kind):
    """The lease expired more than a minute ago, but the node is still
    reserved, because a deployment was prepared on it.
    """

    name = 'lapsed-touched'
    needs_nova = False
    instructions = ('Delete the server, if there is one and its machine is '
                    'not in use. Otherwise remove the preparations from the '
                    'node, and sweep: :doc:`/reference/reservations`.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for instance, reservation in cloud.reservations.items():
            if reservation.is_expired and reservation.state == 'reserved':
                yield instance, reservation.node, reservation.host

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        if finding.instance in cloud.servers:
            return base.UNLESS_IN_USE + _format_delete(finding)
        node = cloud.format_node(finding.node)
        return (f'remove what was prepared on the node, then it is released: '
                f'openstack baremetal node show {node} -c instance_info; '
                f'openstack baremetal node vif list {node}; openstack '
                f'baremetal volume target list --node {node}')


class Failed(base.Kind):
    """The node is reserved, its deployment or tear-down failed, and Nova is
    not working on the server.
    """

    name = 'failed'
    needs_nova = False
    instructions = ('Unless the machine is in use, delete the server; '
                    'without one, ``openstack baremetal node undeploy``.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for instance, reservation in cloud.reservations.items():
            if reservation.state == 'error' and not cloud.is_busy(instance):
                yield instance, reservation.node, reservation.host

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        if finding.instance in cloud.servers:
            return base.UNLESS_IN_USE + _format_delete(finding)
        return base.UNLESS_IN_USE + base.format_undeploy(cloud, finding.node)


class Unavailable(base.Kind):
    """The node is reserved, and an operator moved it to a state in which it
    has no instance, such as ``manageable``, cleaning or inspection.
    """

    name = 'unavailable'
    needs_nova = False
    instructions = ('Bring the node back, for example with ``openstack '
                    'baremetal node provide``, or delete the reservation.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for instance, reservation in cloud.reservations.items():
            if reservation.state == 'unavailable':
                yield instance, reservation.node, reservation.host

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        node = cloud.format_node(finding.node)
        state = cloud.find_state(finding.node)
        if state in _TRANSIENT:
            return f'wait: node {node} is {state}'
        verb = 'provide' if state == 'manageable' else 'manage'
        return f'openstack baremetal node {verb} {node}'


class NoServer(base.Kind):
    """A compute host holds the node for a server that does not exist in Nova.
    """

    name = 'no-server'
    instructions = ('Make sure that the host is up: a periodic task tears '
                    'down instances that were deleted in Nova. Otherwise, '
                    'if the machine is not in use, undeploy the node or, if '
                    'nothing was deployed to it, delete the reservation.')
    exclusions = ('A node in any other state, because something may be '
                  'deployed to it; and the node of a host that has no '
                  'compute node in Nova, because another Nova may have the '
                  'server.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for instance, reservation in cloud.reservations.items():
            if reservation.host and instance not in cloud.servers:
                yield instance, reservation.node, reservation.host

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        undeploy = base.format_undeploy(cloud, finding.node)
        if _is_reserved(cloud, finding):
            # The host is unknown to this Nova: see may_repair.
            return (f'unless host {finding.host} belongs to another Nova: '
                    f'openstack baremetal reservation delete --all-projects '
                    f'{finding.instance}')
        if finding.host in cloud.hosts_up:
            return (f'wait: host {finding.host} tears it down; if it does '
                    f'not, and the machine is not in use: {undeploy}')
        return (f'start nova-compute on host {finding.host}, which tears it '
                f'down; without that host, and if the machine is not in use: '
                f'{undeploy}')

    def may_repair(self, cloud: snapshot.Cloud,
                   finding: snapshot.Finding) -> bool:
        # A host that is unknown to this Nova may belong to another Nova,
        # which has the server.
        return finding.host in cloud.hosts and _is_reserved(cloud, finding)

    def repair(self, cmd: command.Command, details: snapshot.Details,
               finding: snapshot.Finding) -> str:
        """Expire the lease of a ``reserved`` node now. Unlike a deletion,
        this frees the node only if no deployment was prepared on it, and a
        host that is still building gives up before it writes to the node.
        """
        expires_at = details.reservation['expires_at']
        if expires_at and (datetime.datetime.fromisoformat(expires_at)
                           <= datetime.datetime.now(datetime.UTC)):
            raise repairs.Refusal(
                'its lease has expired, but a deployment was prepared on the '
                'node')
        client.request_ironic(
            cmd, 'PATCH', f'{client.PATH}/{finding.instance}?'
                          + urllib.parse.urlencode({'host': finding.host}),
            auth=details.auth,
            body=[{'op': 'add', 'path': '/expires_in', 'value': 1}])
        return 'lease expired'


class NoReservation(base.Kind):
    """A node carries a server of Nova without being reserved for it, and the
    server is not on that node's own compute node. If no node is shown: no
    node carries the server, although its status is not ``ERROR``.
    """

    name = 'no-reservation'
    instructions = ('``--repair``, if the node is deployed. Without a node: '
                    "if Ironic's database was restored from a backup, "
                    'continue with :doc:`/how-to/restore`; otherwise the '
                    'machine is lost, and the server can be deleted.')
    exclusions = ("A node that is not deployed, because the server's disks "
                  'may be lost; and servers on the compute node of an Ironic '
                  'node, because their host adopts them when it migrates.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for instance, server in cloud.servers.items():
            node = cloud.machines.get(instance)
            if (instance in cloud.reservations or server.task == 'deleting'
                    or server.status in ('BUILD', 'UNKNOWN')):
                continue
            # In per-node mode, a server needs none while the node of its
            # compute node carries it.
            if node and node == server.compute_node:
                continue
            # After a failed build, a server in status ERROR has no machine.
            if node or (server.host in cloud.hosts and server.is_at_rest
                        and server.status != 'ERROR'):
                yield instance, node, server.host

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        if finding.node is None:
            return ("no reservation and no machine; if Ironic's database was "
                    'restored, see "Restore a database"')
        return (f'bring its node, which is {cloud.find_state(finding.node)}, '
                f'back to active; if that is impossible: '
                f'{_format_delete(finding)}')

    def may_repair(self, cloud: snapshot.Cloud,
                   finding: snapshot.Finding) -> bool:
        return (cloud.is_on_one_row(finding.instance)
                and cloud.find_state(finding.node) in snapshot.DEPLOYED)

    def repair(self, cmd: command.Command, details: snapshot.Details,
               finding: snapshot.Finding) -> str:
        """Reserve a deployed node for the server that it carries, for the
        host whose compute node the server is on. The request spec has the
        server's flavor and the ID of its image, because Nova's API shows no
        more; a rebuild adds the rest.
        """
        server, image = details.server, details.server['image']
        client.request_ironic(
            cmd, 'POST', f'{client.PATH}?adopt=true', auth=details.auth, body={
                'instance_uuid': finding.instance,
                'host': finding.host,
                'project_id': server['tenant_id'],
                'user_id': server['user_id'],
                'name': server['flavor']['original_name'],
                **repairs.build_server_spec(server),
                **({'image': {'id': image['id']}} if image else {})})
        return f'host {finding.host} holds it again'


class LostBuild(base.Kind):
    """A host went down before it started to build a server, or the lease
    expired before it could deploy the node. The server stays in status
    ``BUILD``, with an allocation from the host's provider.
    """

    name = 'lost-build'
    instructions = ('Start the host, which then completes or ends the build; '
                    'or move its servers to another host with ``openstack '
                    'baremetal reservation move``, which sets this server to '
                    '``ERROR`` and deletes its allocation.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for instance, providers in cloud.allocations.items():
            server = cloud.servers.get(instance)
            # A host that has a node for it also has its reservation.
            if (server and server.status == 'BUILD'
                    and instance not in cloud.reservations):
                for uuid in sorted(providers & cloud.compute_nodes.keys()):
                    if (cloud.compute_nodes[uuid].is_down and server.host in (
                            None, cloud.compute_nodes[uuid].name)):
                        yield instance, None, cloud.compute_nodes[uuid].host

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        return (f'start nova-compute on host {finding.host}, which builds '
                f'it; if that is impossible: openstack baremetal reservation '
                f'move --from {finding.host} --to HOST')


class WrongHost(base.Kind):
    """The node is held by another host than the server's, or by none."""

    name = 'wrong-host'
    instructions = ('Wait, if the host of the server is down and the one '
                    'that holds the node is up: that one takes the server '
                    'over. Otherwise give the reservation to the host of the '
                    'server. If the server is on no host and the machine is '
                    'not in use, delete the server; if it is shelved, '
                    'undeploy the node.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for instance, reservation in cloud.reservations.items():
            server = cloud.servers.get(instance)
            if (server and server.is_at_rest
                    and reservation.host != server.host):
                yield instance, reservation.node, server.host

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        if finding.host is None:
            server = cloud.find_server(finding.instance)
            if server and server.status == 'SHELVED_OFFLOADED':
                # Its disk is in an image.
                return base.UNLESS_IN_USE + base.format_undeploy(
                    cloud, finding.node)
            return base.UNLESS_IN_USE + _format_delete(finding)
        holder = cloud.find_host(finding.instance)
        if holder in cloud.hosts_up and finding.host not in cloud.hosts_up:
            return (f'wait: host {holder} takes it over; if it does not, its '
                    f'log says why')
        return (f'openstack baremetal reservation set {finding.instance} '
                f'--host {finding.host} --force')


class PerNodeRow(base.Kind):
    """A server is on the compute node of an Ironic node instead of its
    host's.
    """

    name = 'per-node-row'
    instructions = ('Nothing, or migrate the host to one compute node: '
                    ':doc:`/how-to/switching`.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for instance, server in cloud.servers.items():
            if (server.compute_node != server.host
                    and (server.host in cloud.hosts
                         or server.compute_node in cloud.nodes)
                    and server.host not in cloud.hosts_migrated_back):
                yield (instance,
                       cloud.machines.get(instance, server.compute_node),
                       server.host)

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        if finding.host in cloud.one_row_providers:
            return (f'wait: host {finding.host} is migrating; its log says '
                    f'how many servers are left. After migrating back, this '
                    f'is shown until Nova has deleted the host\'s former '
                    f'compute node, a minute or two')
        return (f'nothing; to migrate host {finding.host} to one compute '
                f'node, set [reservations] mode = reservations and adopt = '
                f'true in its nova.conf, and restart nova-compute')


class OrphanNode(base.Kind):
    """A node is deployed, but carries no server of Nova, is not reserved, and
    has no allocation in Ironic.
    """

    name = 'orphan-node'
    instructions = ('Find out who uses the machine; if nobody does, '
                    '``openstack baremetal node undeploy``.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        hosts = {row.name: row.host for row in cloud.compute_nodes.values()}
        reserved = {reservation.node
                    for reservation in cloud.reservations.values()}
        for uuid, node in cloud.nodes.items():
            if (node.is_deployed and not node.has_allocation
                    and uuid not in reserved
                    and node.instance not in cloud.servers):
                yield node.instance, uuid, hosts.get(uuid)

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        return base.UNLESS_IN_USE + base.format_undeploy(cloud, finding.node)


class UnknownInstance(base.Kind):
    """An ``available`` node carries an instance that has no reservation, no
    allocation in Ironic and no server, so the node is never free.
    """

    name = 'unknown-instance'
    needs_nova = False
    instructions = ('Unless somebody is about to deploy it, remove the '
                    'instance: ``openstack baremetal node unset NODE '
                    '--instance-uuid``.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for uuid, node in cloud.nodes.items():
            if (node.instance and node.state == 'available'
                    and not node.has_allocation
                    and node.instance not in cloud.reservations
                    and node.instance not in cloud.servers):
                yield node.instance, uuid, None

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        return (f'unless somebody is about to deploy it: openstack baremetal '
                f'node unset {cloud.format_node(finding.node)} '
                f'--instance-uuid')


class Prepared(base.Kind):
    """An ``available`` node without an instance cannot be held, because it
    carries something of a tenant: an ``instance_info``, a VIF or a volume
    target.
    """

    name = 'prepared'
    needs_nova = False
    instructions = ('Unless somebody is about to deploy it, remove what it '
                    'carries with the commands that are shown.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for uuid, node in cloud.nodes.items():
            if (node.cleaning and node.state == 'available'
                    and not node.instance):
                yield None, uuid, None

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        commands = cloud.nodes[str(finding.node)].cleaning
        return f'unless somebody is about to deploy it: {"; ".join(commands)}'
