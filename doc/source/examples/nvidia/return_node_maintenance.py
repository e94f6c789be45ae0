# SPDX-License-Identifier: Apache-2.0
"""BFX01-02: return a machine to the operator for maintenance."""

import _common


def report(conn, args):
    """Report a fault as the project; the operator decides what to do."""
    with _common.create_notices(
            conn, 'fault', nodes=[args.machine_id]) as [notice]:
        return {'operation': {
            'requested': True, 'accepted': notice.state == 'open',
            'machine_id': notice.node_uuid,
            'maintenance_mode': notice.cordon}}


_common.run(report, 'machine-id')
