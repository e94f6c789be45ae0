# SPDX-License-Identifier: Apache-2.0
"""Filters of Nova's scheduler that leave server groups to Ironic.

Nova refuses a server group with a hard policy unless a filter with one of
these names is enabled (``_get_group_details`` in ``nova/scheduler/utils.py``).
Its own filters with these names count compute hosts, which do not determine
where a machine is. For other hypervisors these filters do as Nova's.
"""

from typing import Any

from nova.objects import fields
from nova.scheduler import filters
from nova.scheduler.filters import affinity_filter


class _BareMetalPasses:

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return (host_state.hypervisor_type == fields.HVType.IRONIC
                # The other base class of the filters below has it.
                or super().host_passes(  # type: ignore[misc]
                    host_state, spec_obj))


class ServerGroupAffinityFilter(
        _BareMetalPasses, affinity_filter.ServerGroupAffinityFilter):
    """Keeps a group on one host, except on bare metal hosts."""


class ServerGroupAntiAffinityFilter(
        _BareMetalPasses, affinity_filter.ServerGroupAntiAffinityFilter):
    """Keeps a group's hosts apart, except on bare metal hosts."""


def all_filters() -> list[type]:
    """Return Nova's filters; these two replace the filters of the same names.

    For ``[filter_scheduler] available_filters``.
    """
    return [*filters.all_filters(), ServerGroupAffinityFilter,
            ServerGroupAntiAffinityFilter]
