# SPDX-License-Identifier: Apache-2.0
"""The panel of the whole fleet."""

from typing import Any

from django.conf import settings
from django.utils.translation import gettext_lazy as _
import horizon


class BaremetalReservations(horizon.Panel):
    """Shows the capacity and the reservations of the whole fleet."""

    name = _('Bare Metal Reservations')
    slug = 'baremetal_reservations'
    permissions = ('openstack.services.baremetal',)

    def allowed(self, context: dict[str, Any]) -> bool:
        """Apply Horizon's rule for services that have system scope."""
        is_system = 'baremetal' in settings.SYSTEM_SCOPE_SERVICES
        return (is_system == bool(context['request'].user.system_scoped)
                and super().allowed(context))
