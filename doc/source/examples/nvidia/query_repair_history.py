# SPDX-License-Identifier: Apache-2.0
"""BFX02-03: list the repairs of each machine."""

import collections

import _common


def list_repairs(conn, args):
    """Return the closed notices of machines that the caller may see."""
    entries = collections.defaultdict(list)
    for notice in conn.baremetal_reservations.notices(state='closed'):
        entries[notice.node_uuid].append(_common.describe_event(notice))
    return {'history_queryable': True, 'records': [
        {'machine_id': node, 'entries': repairs}
        for node, repairs in entries.items()]}


_common.run(list_repairs)
