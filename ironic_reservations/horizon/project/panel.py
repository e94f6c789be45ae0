# SPDX-License-Identifier: Apache-2.0
"""The panel of a project."""

from django.utils.translation import gettext_lazy as _
import horizon


class BaremetalReservations(horizon.Panel):
    """Shows the capacity and the reservations of a project."""

    name = _('Bare Metal Reservations')
    slug = 'baremetal_reservations'
    permissions = ('openstack.services.baremetal',)
