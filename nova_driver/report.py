# SPDX-License-Identifier: Apache-2.0
"""What a host says of the fleet between two looks at it.

Nova calls the driver's methods of reporting under the resource tracker's lock.
They send no requests, and go by what was read at the last look.
"""

import collections
import dataclasses
import threading
import time

from nova import exception
from oslo_log import log as logging

from ironic_reservations import resources

from . import client
from . import conf
from . import fleet

CONF = conf.CONF
LOG = logging.getLogger(__name__)


def partition():
    """Return the part of the fleet that this host uses; None means any."""
    return {'conductor_group': CONF.ironic.conductor_group,
            'shard': CONF.ironic.shard or None}


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What a look at the fleet has found.

    :param asked: when the look began, on time.monotonic().
    :param allocated: names of the resource classes of which the host's
        provider has allocations; None while that is not known.
    """

    asked: float
    partition: dict
    fleet: fleet.Fleet
    allocated: set | None


class Report:
    """What one host reports. Nova's threads of RPC share it.

    :param host: the name of the compute host.
    :param reservations: a client.Client.
    """

    def __init__(self, host, reservations):
        self._host = host
        self._client = reservations
        self._seen = None
        # Traits of the fleet that this process has ever reported.
        self._reported = set()
        self._looking = threading.Lock()
        # What the host has released and may still be counted as free: pairs
        # of a time (time.monotonic) and amounts by resource class.
        self._released = []
        self._releasing = threading.Lock()

    def look(self, allocated, fresh=False):
        """Read what the fleet can give, for the methods below.

        A thread that waits while another looks takes what that one has seen
        if its look began later than the thread has asked.

        :param allocated: names of the resource classes of which the host's
            provider has allocations; None where that is not known.
        :param fresh: have the fleet counted anew.
        :raises: VirtDriverNotReady when it cannot be read now.
        """
        asked = time.monotonic()
        with self._looking:
            if fresh or self._seen is None or self._seen.asked < asked:
                try:
                    self._look(allocated, fresh)
                except client.Failure as e:
                    LOG.error('What the fleet can give is not known: %s', e)
                    raise exception.VirtDriverNotReady()

    def _look(self, allocated, fresh):
        # Builds ask for a node of the partition that was reported, even when
        # the configuration has changed since.
        part, asked, taken = partition(), time.monotonic(), None
        rows, age = self._client.capacity(self._host, fresh, **part)
        if not any(row['total'] for row in rows):
            LOG.warning(
                'Ironic shows host %s no node at all, so nothing can be built '
                'here. Check that the user of [ironic] has system scope '
                '(system_scope = all, without project_name) or the service '
                'role as Ironic wants it, and that there are nodes in the '
                'host\'s part of the fleet: conductor_group %s, shard %s.',
                self._host, *('any' if each is None else repr(each)
                              for each in part.values()))
        if CONF.reservations.report_standard_resources:
            taken = sum((resources.sum_amounts(each['request_spec'])
                         for each in self._client.held_by(
                             self._host, ['request_spec'])),
                        collections.Counter())
        seen = _Seen(asked, part, fleet.Fleet(rows, taken), allocated)
        # The age is in whole seconds, rounded down, so one more is allowed.
        counted = asked - age - 1
        with self._releasing:
            # What was released before the profiles were counted is in them.
            self._released = [each for each in self._released
                              if each[0] >= counted]
            self._seen = seen

    def _last(self):
        if self._seen is None:
            raise exception.VirtDriverNotReady()
        return self._seen

    @property
    def in_use(self):
        """How many nodes of that part are not free; 0 before any look."""
        return self._seen.fleet.in_use if self._seen else 0

    @property
    def partition(self):
        """The part of the fleet that was reported; None before any look."""
        return self._seen and self._seen.partition

    def resources(self):
        """See fleet.Fleet.resources.

        :raises: VirtDriverNotReady before the first look.
        """
        return self._last().fleet.resources()

    def traits(self, before):
        """Return the traits of the host's provider in Placement.

        Those of the fleet, and those that others have set: an operator, or
        Nova, which says so that the provider is its own. A trait of the fleet
        that has gone is taken away if this process has reported it.

        :param before: the traits as Placement has them.
        """
        traits = self._last().fleet.traits()
        kept = set(before) - self._reported
        self._reported |= traits
        return kept | traits

    def inventory(self, before):
        """Return the inventory of the host's provider in Placement.

        A class that no node has any more must stay in the inventory while it
        has allocations, because Placement refuses to remove it.

        :param before: the inventory as Placement has it.
        """
        with self._releasing:
            seen = self._last()
            released = sum((amounts for _, amounts in self._released),
                           collections.Counter())
        inventory = seen.fleet.inventory(released)
        for name, was in before.items():
            if name not in inventory and (
                    seen.allocated is None or name in seen.allocated):
                inventory[name] = {**was, 'reserved': was['total']}
        return inventory

    def note_release(self, held):
        """Note that a node is being cleaned, so that less is offered.

        Nova updates the inventory before it deletes the instance's
        allocation, so no other instance can take its place in between.

        :param held: the reservation, a dict.
        """
        amounts = resources.sum_amounts(held['request_spec'])
        if not CONF.reservations.report_standard_resources:
            amounts = collections.Counter(
                {fleet.normalize(held['resource_class']): 1})
        with self._releasing:
            self._released.append((time.monotonic(), amounts))
