# SPDX-License-Identifier: Apache-2.0
"""CAP05-02: sum the health of the machines of each group."""

import _common


def list_groups(conn, args):
    """Return the groups of reservations that the caller may see."""
    return {'aggregation_level': 'reservation',
            'groups': [count(conn, group) for group
                       in conn.baremetal_reservations.groups()]}


def count(conn, group):
    unhealthy, total = [], 0
    for row in conn.baremetal_reservations.list(
            group=group.uuid, fields='node_uuid,health,maintenance,notices'):
        total += 1
        if not _common.is_healthy(row.maintenance, row.health, row.notices):
            unhealthy.append(row.node_uuid)
    return {'group_id': group.uuid, 'group_type': 'reservation',
            'name': group.description or group.uuid, 'total': total,
            'healthy': total - len(unhealthy), 'unhealthy': len(unhealthy),
            'status': 'Degraded' if unhealthy else 'Healthy',
            'unhealthy_hosts': unhealthy}


_common.run(list_groups)
