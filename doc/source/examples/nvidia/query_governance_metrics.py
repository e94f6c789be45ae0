# SPDX-License-Identifier: Apache-2.0
"""CAP01-01: count delivered, healthy, reserved and active machines."""

import _common


def count(conn, args):
    """Sum all projects that the caller may see; a project sees only itself."""
    metrics = {name: {'nodes': 0, 'gpus': 0} for name in (
        'delivered', 'healthy', 'reserved', 'active')}
    for row in conn.baremetal_reservations.capacity(
            by=['project_id', 'capability:gpus']):
        is_allocated = row['project_id'] is not None
        counts = {'delivered': row.total, 'healthy': row['healthy'],
                  'reserved': row.total if is_allocated else 0,
                  'active': row.taken if is_allocated else 0}
        for name, number in counts.items():
            metrics[name]['nodes'] += number
            metrics[name]['gpus'] += number * int(
                row['capability:gpus'] or 0)
    return {'machine_count': metrics['delivered']['nodes'],
            'metrics': metrics}


_common.run(count)
