# SPDX-License-Identifier: Apache-2.0
"""Copy this into Horizon's folder openstack_dashboard/local/enabled."""

PANEL = 'baremetal_reservations'
PANEL_DASHBOARD = 'admin'
PANEL_GROUP = 'compute'
ADD_PANEL = ('ironic_reservations.horizon.admin.panel.'
             'BaremetalReservations')
