# SPDX-License-Identifier: Apache-2.0
"""Kinds of disagreement about nodes and the servers on them."""

import datetime

from ironic_reservations.osc import client
from ironic_reservations.osc.audit import base
from ironic_reservations.osc.audit import repairs

#: Provision states of a reserved node that Ironic leaves without a command.
_TRANSIENT = ('cleaning', 'clean wait', 'inspecting', 'inspect wait',
              'verifying', 'adopting')


def _delete_server(finding):
    return f'openstack server delete {finding.instance}'


class LapsedTouched(base.Kind):
    """The lease expired more than a minute ago, but the node is still
    reserved, because something was begun on it.
    """

    name = 'lapsed-touched'
    needs_nova = False
    instructions = ('Delete the server, if there is one. Otherwise remove '
                    'what was begun on the node, and sweep: :doc:`leases`.')

    def find(self, cloud):
        for instance, reservation in cloud.reservations.items():
            if reservation.lapsed and reservation.state == 'reserved':
                yield instance, reservation.node, reservation.host

    def advice(self, cloud, finding):
        if finding.instance in cloud.servers:
            return _delete_server(finding)
        node = cloud.node_name(finding.node)
        return (f'take away what was begun, and it is given back: openstack '
                f'baremetal node show {node} -c instance_info; openstack '
                f'baremetal node vif list {node}; openstack baremetal volume '
                f'target list --node {node}')


class Failed(base.Kind):
    """The node is reserved, its deployment or tear-down failed, and Nova is
    not working on the server.
    """

    name = 'failed'
    needs_nova = False
    instructions = ('Delete the server; without one, ``openstack baremetal '
                    'node undeploy``.')

    def find(self, cloud):
        for instance, reservation in cloud.reservations.items():
            if reservation.state == 'error' and not cloud.busy(instance):
                yield instance, reservation.node, reservation.host

    def advice(self, cloud, finding):
        if finding.instance in cloud.servers:
            return _delete_server(finding)
        return base.undeploy(cloud, finding.node)


class Unavailable(base.Kind):
    """The node is reserved, and an operator moved it to a state in which it
    has no instance, such as ``manageable``, cleaning or inspection.
    """

    name = 'unavailable'
    needs_nova = False
    instructions = ('Bring the node back, for example with ``openstack '
                    'baremetal node provide``, or delete the reservation.')

    def find(self, cloud):
        for instance, reservation in cloud.reservations.items():
            if reservation.state == 'unavailable':
                yield instance, reservation.node, reservation.host

    def advice(self, cloud, finding):
        node = cloud.node_name(finding.node)
        state = cloud.node_state(finding.node)
        if state in _TRANSIENT:
            return f'wait: node {node} is {state}'
        verb = 'provide' if state == 'manageable' else 'manage'
        return f'openstack baremetal node {verb} {node}'


class NoServer(base.Kind):
    """A compute host holds the node for a server that does not exist in Nova.
    """

    name = 'no-server'
    instructions = ('Make sure that the host is up: a periodic task tears '
                    'down instances that were deleted in Nova. Otherwise '
                    'undeploy the node or, if nothing was deployed to it, '
                    'delete the reservation.')
    exclusions = ('A node in any other state, because something may be '
                  'deployed to it; and the node of a host that has no '
                  'compute node in Nova, because another Nova may have the '
                  'server.')

    def find(self, cloud):
        for instance, reservation in cloud.reservations.items():
            if reservation.host and instance not in cloud.servers:
                yield instance, reservation.node, reservation.host

    def advice(self, cloud, finding):
        undeploy = base.undeploy(cloud, finding.node)
        if cloud.reservations[finding.instance].state == 'reserved':
            # The host is unknown to this Nova: see may_repair.
            return (f'unless host {finding.host} is of another Nova: '
                    f'openstack baremetal reservation delete --all-projects '
                    f'{finding.instance}')
        if finding.host in cloud.up:
            return (f'wait: host {finding.host} tears it down; if it does '
                    f'not: {undeploy}')
        return (f'start nova-compute on host {finding.host}, which tears it '
                f'down; without that host: {undeploy}')

    def may_repair(self, cloud, finding):
        # A host that is unknown to this Nova may belong to another Nova,
        # which has the server.
        return (finding.host in cloud.hosts
                and cloud.reservations[finding.instance].state == 'reserved')

    def repair(self, cmd, now, finding):
        """Expire the lease of a ``reserved`` node now. Unlike a deletion,
        this frees the node only if nothing was begun on it, and a host that
        is building after all gives up before it writes to the node.
        """
        expires_at = now.reservation['expires_at']
        if expires_at and (datetime.datetime.fromisoformat(expires_at)
                           <= datetime.datetime.now(datetime.UTC)):
            raise repairs.Refusal(
                'its lease is over, but something was begun on the node')
        client.request(
            cmd, 'PATCH', f'{client.PATH}/{finding.instance}'
                          f'?host={finding.host}', auth=now.auth,
            body=[{'op': 'add', 'path': '/expires_in', 'value': 1}])
        return 'its lease is ended'


class NoReservation(base.Kind):
    """A node carries a server of Nova without being reserved for it, and the
    server is not on that node's own compute node. If no node is shown: no
    node carries the server, although its status is not ``ERROR``.
    """

    name = 'no-reservation'
    instructions = ('``--repair``, if the node is deployed. Without a node '
                    'the machine is lost: delete the server, unless '
                    "Ironic's database was restored from a backup "
                    '(:doc:`restore`).')
    exclusions = ("A node that is not deployed, because the server's disks "
                  'may be lost; and servers on the compute node of an Ironic '
                  'node, because their host adopts them when it migrates.')

    def find(self, cloud):
        for instance, server in cloud.servers.items():
            node = cloud.machines.get(instance)
            if (instance in cloud.reservations or server.task == 'deleting'
                    or server.status in ('BUILD', 'UNKNOWN')):
                continue
            # On the row of a node, as long as it is the node that carries
            # it, a server needs none.
            if node and node == server.row:
                continue
            # A server in status ERROR may have no machine, because its build
            # has failed.
            if node or (server.host in cloud.hosts and server.at_rest
                        and server.status != 'ERROR'):
                yield instance, node, server.host

    def advice(self, cloud, finding):
        if finding.node is None:
            return f'its machine is lost: {_delete_server(finding)}'
        return (f'its node is {cloud.node_state(finding.node)}: '
                f'{_delete_server(finding)}; or bring the node back to '
                f'active')

    def may_repair(self, cloud, finding):
        node = cloud.nodes.get(finding.node)
        return (cloud.is_on_own_row(finding.instance)
                and node is not None and node.is_deployed)

    def repair(self, cmd, now, finding):
        """Reserve a deployed node for the server that it carries, for the
        host whose compute node the server is on. The request spec has the
        server's flavor and the ID of its image, because Nova's API shows no
        more; a rebuild adds the rest.
        """
        server, image = now.server, now.server['image']
        client.request(
            cmd, 'POST', f'{client.PATH}?adopt=true', auth=now.auth, body={
                'instance_uuid': finding.instance,
                'host': finding.host,
                'project_id': server['tenant_id'],
                'user_id': server['user_id'],
                'name': server['flavor']['original_name'],
                **repairs.build_spec(server),
                **({'image': {'id': image['id']}} if image else {})})
        return f'host {finding.host} holds it again'


class LostBuild(base.Kind):
    """A host that is down should have built a server, but had not begun, or
    its lease expired before it could deploy the node. The server stays in
    status ``BUILD``, with an allocation from the host's provider.
    """

    name = 'lost-build'
    instructions = ('Start the host, which then completes or ends the build; '
                    'or move its servers to another host with ``openstack '
                    'baremetal reservation move``, which sets this server to '
                    '``ERROR`` and deletes its allocation.')

    def find(self, cloud):
        for instance, providers in cloud.allocations.items():
            server = cloud.servers.get(instance)
            # A host that has a machine for it has its reservation, too.
            if (server and server.status == 'BUILD'
                    and instance not in cloud.reservations):
                for uuid in sorted(providers & cloud.rows.keys()):
                    if (cloud.rows[uuid].is_down and server.host in (
                            None, cloud.rows[uuid].name)):
                        yield instance, None, cloud.rows[uuid].host

    def advice(self, cloud, finding):
        return (f'start nova-compute on host {finding.host}, which builds '
                f'it; or end its build: openstack baremetal reservation move '
                f'--from {finding.host} --to HOST')


class WrongHost(base.Kind):
    """The node is held by another host than the server's, or by none."""

    name = 'wrong-host'
    instructions = ('Wait, if the host of the server is down and the one '
                    'that holds the node is up: that one takes the server '
                    'over. Otherwise give the reservation to the host of the '
                    'server. Delete a server that is on no host; if it is '
                    'shelved, undeploy the node.')

    def find(self, cloud):
        for instance, reservation in cloud.reservations.items():
            server = cloud.servers.get(instance)
            if (server and server.at_rest
                    and reservation.host != server.host):
                yield instance, reservation.node, server.host

    def advice(self, cloud, finding):
        if finding.host is None:
            if cloud.servers[finding.instance].status == 'SHELVED_OFFLOADED':
                # Its disk is in an image.
                return base.undeploy(cloud, finding.node)
            return _delete_server(finding)
        holder = cloud.holder(finding.instance)
        if holder in cloud.up and finding.host not in cloud.up:
            return f'wait: host {holder} takes it over'
        return (f'openstack baremetal reservation set {finding.instance} '
                f'--host {finding.host} --force')


class PerNodeRow(base.Kind):
    """A server is on the compute node of an Ironic node instead of its
    host's.
    """

    name = 'per-node-row'
    instructions = ('Nothing, or migrate the host to one compute node: '
                    ':doc:`switching`.')

    def find(self, cloud):
        for instance, server in cloud.servers.items():
            if (server.row != server.host
                    and (server.host in cloud.hosts
                         or server.row in cloud.nodes)
                    and server.host not in cloud.switched_back):
                yield (instance, cloud.machines.get(instance, server.row),
                       server.host)

    def advice(self, cloud, finding):
        if finding.host in cloud.own_rows:
            return (f'wait: host {finding.host} is being switched, and its '
                    f'log says what is left')
        return (f'none is needed; to make host {finding.host} one row: '
                f'[reservations] mode = reservations, adopt = true in its '
                f'nova.conf, and restart nova-compute')


class OrphanNode(base.Kind):
    """A node is deployed, but carries no server of Nova, is not reserved, and
    has no allocation in Ironic.
    """

    name = 'orphan-node'
    instructions = ('Find out whose machine it is; ``openstack baremetal '
                    'node undeploy``.')

    def find(self, cloud):
        hosts = {row.name: row.host for row in cloud.rows.values()}
        reserved = {reservation.node
                    for reservation in cloud.reservations.values()}
        for uuid, node in cloud.nodes.items():
            if (node.is_deployed and not node.allocated
                    and uuid not in reserved
                    and node.instance not in cloud.servers):
                yield node.instance, uuid, hosts.get(uuid)

    def advice(self, cloud, finding):
        undeploy = base.undeploy(cloud, finding.node)
        return f"unless it is somebody's: {undeploy}"
