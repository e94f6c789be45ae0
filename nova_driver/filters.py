# SPDX-License-Identifier: Apache-2.0
"""Filters of Nova's scheduler that leave server groups to Ironic.

Nova refuses a server group with a hard policy unless a filter of one of these
names is enabled (``_get_group_details`` in ``nova/scheduler/utils.py``), and
its own filters of these names count compute hosts, which say nothing of where
a machine is. Hosts of other hypervisors are filtered as Nova filters them.
"""

from nova.objects import fields
from nova.scheduler import filters
from nova.scheduler.filters import affinity_filter


class _BareMetalPasses:

    def host_passes(self, host_state, spec_obj):
        return (host_state.hypervisor_type == fields.HVType.IRONIC
                or super().host_passes(host_state, spec_obj))


class ServerGroupAffinityFilter(
        _BareMetalPasses, affinity_filter.ServerGroupAffinityFilter):
    """Keeps a group on one host, unless the host is one of bare metal."""


class ServerGroupAntiAffinityFilter(
        _BareMetalPasses, affinity_filter.ServerGroupAntiAffinityFilter):
    """Keeps a group's hosts apart, unless the host is one of bare metal."""


def all_filters():
    """Nova's filters, with these two in the place of those of their names.

    For ``[filter_scheduler] available_filters``.
    """
    return [*filters.all_filters(), ServerGroupAffinityFilter,
            ServerGroupAntiAffinityFilter]
