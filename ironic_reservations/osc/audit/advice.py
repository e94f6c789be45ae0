# SPDX-License-Identifier: Apache-2.0
"""What mends a Finding: a command wherever there is one.

``tests/cloud/test_day_two.py`` and ``tests/nova/test_audit.py`` run what is
said here. All functions are pure: they are given a Cloud and a Finding.
"""

from ironic_reservations.osc.audit import repairs

REPAIR = 'openstack baremetal reservation audit --repair'

#: What Ironic does by itself to a node that is held, and ends some day.
_IN_MOTION = ('cleaning', 'clean wait', 'inspecting', 'inspect wait',
              'verifying', 'adopting')


def of(cloud, finding):
    """Return what a human does about a Finding."""
    repair = repairs.REPAIRS.get(finding.kind)
    if repair and repair.may(cloud, finding):
        return REPAIR
    return _ADVICE[finding.kind](cloud, finding)


def _node(cloud, finding):
    node = cloud.nodes.get(finding.node)
    return node and node.name or finding.node


def _delete_server(finding):
    return f'openstack server delete {finding.instance}'


def _undeploy(cloud, finding):
    return f'openstack baremetal node undeploy {_node(cloud, finding)}'


def _lapsed_touched(cloud, finding):
    if finding.instance in cloud.servers:
        return _delete_server(finding)
    node = _node(cloud, finding)
    return (f'take away what was begun, and it is given back: openstack '
            f'baremetal node show {node} -c instance_info; openstack '
            f'baremetal node vif list {node}; openstack baremetal volume '
            f'target list --node {node}')


def _failed(cloud, finding):
    if finding.instance in cloud.servers:
        return _delete_server(finding)
    return _undeploy(cloud, finding)


def _unavailable(cloud, finding):
    node, state = _node(cloud, finding), _state(cloud, finding)
    if state in _IN_MOTION:
        return f'wait: node {node} is {state}'
    verb = 'provide' if state == 'manageable' else 'manage'
    return f'openstack baremetal node {verb} {node}'


def _state(cloud, finding):
    node = cloud.nodes.get(finding.node)
    return node.state if node else None


def _no_server(cloud, finding):
    state = cloud.reservations[finding.instance].state
    if state == 'reserved':
        # The host is none of this Nova's: see repairs.may_end_lease.
        return (f'unless host {finding.host} is of another Nova: openstack '
                f'baremetal reservation delete --all-projects '
                f'{finding.instance}')
    if finding.host in cloud.up:
        return (f'wait: host {finding.host} tears it down; if it does not: '
                f'{_undeploy(cloud, finding)}')
    return (f'start nova-compute on host {finding.host}, which tears it '
            f'down; without that host: {_undeploy(cloud, finding)}')


def _no_reservation(cloud, finding):
    if finding.node is None:
        return f'its machine is lost: {_delete_server(finding)}'
    return (f'its node is {_state(cloud, finding)}: '
            f'{_delete_server(finding)}; or bring the node back to active')


def _lost_build(cloud, finding):
    return (f'start nova-compute on host {finding.host}, which builds it; or '
            f'end its build: openstack baremetal reservation move --from '
            f'{finding.host} --to HOST')


def _wrong_host(cloud, finding):
    if finding.host is None:
        if cloud.servers[finding.instance].status == 'SHELVED_OFFLOADED':
            # Its disk is in an image.
            return _undeploy(cloud, finding)
        return _delete_server(finding)
    holder = cloud.holder(finding.instance)
    if holder in cloud.up and finding.host not in cloud.up:
        return f'wait: host {holder} takes it over'
    return (f'openstack baremetal reservation set {finding.instance} '
            f'--host {finding.host} --force')


def _per_node_row(cloud, finding):
    if finding.host in cloud.own_rows:
        return (f'wait: host {finding.host} is being switched, and its log '
                f'says what is left')
    return (f'none is needed; to make host {finding.host} one row: '
            f'[reservations] mode = reservations, adopt = true in its '
            f'nova.conf, and restart nova-compute')


def _orphan_node(cloud, finding):
    return f'unless it is somebody\'s: {_undeploy(cloud, finding)}'


def _no_allocation(cloud, finding):
    # The host of the server does not hold its node, which is a finding of
    # another kind.
    return f'wait: host {finding.host} makes it again'


def _wrong_allocation(cloud, finding):
    server = cloud.servers.get(finding.instance)
    if server is None:
        if finding.instance in cloud.machines:
            return _undeploy(cloud, finding._replace(
                node=cloud.machines[finding.instance]))
        return (f'unless it is of a virtual machine: openstack resource '
                f'provider allocation delete {finding.instance}')
    wrong = sorted(cloud.allocations[finding.instance] - {
        cloud.own_rows.get(server.host)})
    return ('openstack resource provider allocation unset '
            + ''.join(f'--provider {each} ' for each in wrong)
            + finding.instance)


def _stale_row(cloud, finding):
    # Otherwise it is repaired.
    return f'wait: host {finding.host} deletes it in a periodic task'


_ADVICE = {
    'lapsed-touched': _lapsed_touched,
    'failed': _failed,
    'unavailable': _unavailable,
    'no-server': _no_server,
    'no-reservation': _no_reservation,
    'lost-build': _lost_build,
    'wrong-host': _wrong_host,
    'per-node-row': _per_node_row,
    'orphan-node': _orphan_node,
    'no-allocation': _no_allocation,
    'wrong-allocation': _wrong_allocation,
    'stale-row': _stale_row,
}
