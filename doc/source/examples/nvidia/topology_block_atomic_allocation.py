# SPDX-License-Identifier: Apache-2.0
"""CAP04-02: allocate machines of one topology block, all or none."""

import _common


def allocate(conn, args):
    """Reserve the machines for the tenant, check them, and release them.

    Networks and storage are not reserved.
    """
    tenant, block = args.tenant_id, args.topology_block_id
    number = int(args.requested_compute)
    name = _common.DOMAIN.removeprefix('capability:')
    group = conn.baremetal_reservations.create_group(
        number, {'extra_specs': {f'capabilities:{name}': block}},
        policy='pack', by=_common.DOMAIN, project_id=tenant, expires_in=600)
    try:
        rows = group.reservations
        return {'topology_block': {
            'block_id': block, 'reservation_id': group.uuid,
            'tenant_id': tenant,
            'allocated_as_unit': len(rows) == number,
            'partial_allocation': len(rows) != number,
            'homogeneous': len({row['resource_class'] for row in rows}) == 1,
            'isolation_enforced': {row['project_id']
                                   for row in rows} == {tenant},
            'requested': {'compute': number,
                          'network': int(args.requested_network),
                          'storage': int(args.requested_storage)},
            'allocated': {'compute': len(rows), 'network': 0, 'storage': 0},
            'resources': [{
                'resource_id': row['node_uuid'], 'resource_type': 'compute',
                'tenant_id': row['project_id'],
                'topology_block_id': row['group']['domain'],
                'performance_domain': row['group']['domain'],
                'isolation_boundary': row['project_id']} for row in rows]}}
    finally:
        conn.baremetal_reservations.release_group(group)


_common.run(allocate, 'tenant-id', 'topology-block-id', 'requested-compute',
            'requested-network', 'requested-storage')
