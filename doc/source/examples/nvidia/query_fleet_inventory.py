# SPDX-License-Identifier: Apache-2.0
"""CAP02-01: list each machine with its health, account and use."""

import collections

import _common


def list_nodes(conn, args):
    """List all machines; requires system scope."""
    reservations = {row.node_uuid: row
                    for row in conn.baremetal_reservations.list()}
    pools = {node['uuid']: pool.project_id
             for pool in conn.baremetal_reservations.pools()
             for node in conn.baremetal_reservations.show_pool(pool).nodes}
    notices = collections.defaultdict(list)
    for notice in conn.baremetal_reservations.notices(state='open'):
        notices[notice.node_uuid].append(notice)
    domains = {project.id: project.domain_id
               for project in conn.identity.projects()}
    # Machines of no project belong to the operator.
    operator = conn.identity.get_user(conn.current_user_id).domain_id
    nodes = []
    for node in conn.baremetal.nodes(details=True):
        reservation = reservations.get(node.id)
        project = reservation.project_id if reservation else pools.get(
            node.id, node.owner)
        nodes.append({
            'node_id': node.id,
            'health_state': 'healthy' if _common.is_healthy(
                node.is_maintenance, node.health, notices[node.id])
            else 'unhealthy',
            'instance_id': reservation.instance_uuid if reservation else '',
            'created_at': node.created_at,
            'hardware_type': node.resource_class,
            'gpu_count': _common.count_gpus(node),
            'account_id': domains.get(project, operator),
            'project_id': project or '',
            'in_use': bool(reservation and reservation.state == 'active'),
            'region': conn.config.region_name})
    return {'nodes_checked': len(nodes), 'nodes': nodes}


_common.run(list_nodes)
