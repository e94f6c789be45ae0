# SPDX-License-Identifier: Apache-2.0
"""BFX01-03: return the machines of a rack to the operator for maintenance."""

import _common


def report(conn, args):
    """Report a fault of all machines that the project has in the rack."""
    with _common.create_notices(
            conn, 'fault', by={_common.DOMAIN: args.rack_id}) as notices:
        return {'operation': {
            'requested': True,
            'accepted': all(notice.state == 'open' for notice in notices),
            'rack_id': args.rack_id,
            'machine_ids': [notice.node_uuid for notice in notices]}}


_common.run(report, 'rack-id')
