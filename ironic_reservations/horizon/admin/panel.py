# SPDX-License-Identifier: Apache-2.0
"""The panel of the whole fleet."""

from django.conf import settings
from django.utils.translation import gettext_lazy as _
import horizon


class BaremetalReservations(horizon.Panel):
    """What the fleet can give, who holds what, and why."""

    name = _('Bare Metal Reservations')
    slug = 'baremetal_reservations'
    permissions = ('openstack.services.baremetal',)

    def allowed(self, context):
        """As Horizon's own panels of services that have system scope."""
        wanted = 'baremetal' in settings.SYSTEM_SCOPE_SERVICES
        return (wanted == bool(context['request'].user.system_scoped)
                and super().allowed(context))
