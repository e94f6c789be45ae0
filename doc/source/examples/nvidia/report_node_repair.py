# SPDX-License-Identifier: Apache-2.0
"""BFX01-06: report that a machine needs a repair, and keep it."""

import _common


def report(conn, args):
    """Report a fault of the project's machine, and close the report."""
    machine = _common.find_reservation(conn, args.machine_id)
    with _common.create_notices(
            conn, 'fault', nodes=[args.machine_id]) as [notice]:
        is_observed = is_open(conn, machine, notice)
    return {'operation': {
        'requested': True, 'repair_state_observed': is_observed,
        'restored': not is_open(conn, machine, notice),
        'node_id': notice.node_uuid}}


def is_open(conn, machine, notice):
    """Return whether the project's machine shows the report as open."""
    return any((row.uuid, row.state) == (notice.uuid, 'open')
               for row in conn.baremetal_reservations.show(machine).notices)


_common.run(report, 'machine-id')
