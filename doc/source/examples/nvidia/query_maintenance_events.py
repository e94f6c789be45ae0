# SPDX-License-Identifier: Apache-2.0
"""BFX02-01: list upcoming and current maintenance."""

import _common


def list_events(conn, args):
    """Return the maintenance of the machines that the caller may see."""
    return {'events_queryable': True, 'events': [
        _common.describe_event(notice) for state in ('planned', 'open')
        for notice in conn.baremetal_reservations.notices(
            kind='maintenance', state=state)]}


_common.run(list_events)
