# SPDX-License-Identifier: Apache-2.0
"""BFX01-02: give a broken machine back, which nobody gets until its repair."""

import _common


def give_back(conn, args):
    """Cordon the machine of a server, and delete the server.

    The cordon stays until an operator closes the notice. If projects may not
    set it ([reservations] project_cordons of ironic.conf), an operator does:
    the login of --operator-cloud.
    """
    if not args.instance_id:
        raise _common.Skip('This deletes a server: set instance_id')
    caller = _common.connect(args.operator_cloud or args.cloud)
    machine = conn.baremetal_reservations.show(args.instance_id)
    notice, = caller.baremetal_reservations.create_notices(
        'fault', nodes=[machine.node_uuid], cordon=True,
        description='Given back in a test of the validation suite')
    server = conn.compute.get_server(machine.instance_uuid)
    conn.compute.delete_server(server)
    conn.compute.wait_for_delete(server, wait=900)
    return {'operation': {
        'requested': True, 'accepted': notice.state == 'open',
        'instance_deleted': conn.compute.find_server(server.id) is None,
        'machine_quarantined': is_cordoned(caller, notice),
        'instance_id': server.id, 'machine_id': machine.node_uuid}}


def is_cordoned(conn, notice):
    """Return whether the cordon is still open, and the machine not offered."""
    reservations = conn.baremetal_reservations
    is_offered = reservations.dry_run(
        candidate_nodes=[notice.node_uuid])['matching_nodes']
    return not is_offered and any(
        row.cordon and row.state == 'open'
        for row in reservations.notices(uuid=notice.uuid))


_common.run(give_back, 'instance-id', 'operator-cloud')
