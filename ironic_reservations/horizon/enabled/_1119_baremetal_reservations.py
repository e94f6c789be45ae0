# SPDX-License-Identifier: Apache-2.0
"""Copy this into Horizon's folder openstack_dashboard/local/enabled.

Both panels need it. Each panel has its own file.
"""

FEATURE = 'baremetal_reservations'
ADD_INSTALLED_APPS = ['ironic_reservations.horizon']
