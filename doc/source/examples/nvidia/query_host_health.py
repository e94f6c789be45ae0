# SPDX-License-Identifier: Apache-2.0
"""CAP05-01: show the health of each machine that the caller has reserved."""

import _common


def list_hosts(conn, args):
    """Return Ironic's health and the open notices as alerts."""
    hosts = []
    for row in conn.baremetal_reservations.list(
            fields='node_uuid,node_name,provision_state,health,maintenance,'
                   'notices'):
        alerts = [{'id': notice.category or notice.kind,
                   'target': row.node_name or row.node_uuid,
                   'message': notice.description or '',
                   'classifications': [notice.kind]}
                  for notice in row.notices if notice.state == 'open']
        if row.health not in (None, 'OK'):
            alerts.append({'id': 'health', 'target': 'BMC',
                           'message': f'The health is {row.health}',
                           'classifications': [row.health]})
        hosts.append({
            'host_id': row.node_uuid, 'chassis_serial': '',
            'status': row.provision_state,
            'health_present': row.health is not None,
            'healthy': not alerts and not row.maintenance,
            # Ironic stores neither the age nor the parts of the health.
            'observed_age_seconds': None, 'probe_ids': [],
            'alerts': alerts, 'components': {}})
    return {'hosts_checked': len(hosts), 'hosts': hosts}


_common.run(list_hosts)
