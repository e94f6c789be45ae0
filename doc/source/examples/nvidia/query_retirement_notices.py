# SPDX-License-Identifier: Apache-2.0
"""BFX02-02: list machines that will be retired."""

import _common


def list_notices(conn, args):
    """Return the retirements of machines that the caller may see."""
    return {'notices_queryable': True, 'notices': [
        {**_common.describe_event(notice), 'retire_after': notice.starts_at}
        for state in ('planned', 'open')
        for notice in conn.baremetal_reservations.notices(
            kind='retirement', state=state)]}


_common.run(list_notices)
