# SPDX-License-Identifier: Apache-2.0
"""Copy this into Horizon's folder openstack_dashboard/local/enabled.

Both panels need it, each of which has a file of its own.
"""

FEATURE = 'baremetal_reservations'
ADD_INSTALLED_APPS = ['ironic_reservations.horizon']
