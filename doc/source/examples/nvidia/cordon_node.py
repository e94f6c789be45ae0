# SPDX-License-Identifier: Apache-2.0
"""BFX01-04: keep new work off a machine while its server continues."""

import _common


def cordon(conn, args):
    """Cordon a machine with a server, and uncordon it at the end."""
    reservations = conn.baremetal_reservations
    with _common.create_notices(
            conn, 'maintenance', nodes=[args.machine_id]) as [notice]:
        server = _common.find_reservation(conn, args.machine_id)
        return {'operation': {
            'node_id': notice.node_uuid,
            'cordoned': notice.cordon and notice.state == 'open',
            'new_workloads_blocked': not reservations.dry_run(
                candidate_nodes=[args.machine_id])['matching_nodes'],
            'existing_workloads_running': server.state == 'active'}}


_common.run(cordon, 'machine-id')
