# SPDX-License-Identifier: Apache-2.0
"""CAP04-01: pin a group of machines to an account."""

import uuid

import _common


def pin(conn, args):
    """Create a pool for the account, check who may use it, and delete it.

    Networks and storage are not pinned.
    """
    reservations = conn.baremetal_reservations
    account, number = args.account_id, int(args.resource_count)
    pool = reservations.create_pool(
        account, number, {'resource_class': args.resource_class})

    def count_machines(project):
        """Return the number of the pool's machines that a project may use."""
        return reservations.dry_run(
            candidate_nodes=[row['uuid'] for row in pool.nodes],
            project_id=project)['matching_nodes']

    try:
        is_pinned = count_machines(account) == len(pool.nodes) == number
        return {
            'reservation_id': pool.uuid, 'account_id': pool.project_id,
            'pinned': is_pinned,
            # No project has this ID.
            'isolation_enforced': not count_machines(uuid.uuid4().hex),
            'resources': [{
                'resource_id': row['uuid'], 'resource_type': 'compute',
                'account_id': pool.project_id, 'pinned': is_pinned}
                for row in pool.nodes]}
    finally:
        reservations.delete_pool(pool)


_common.run(pin, 'account-id', 'resource-class', 'resource-count')
