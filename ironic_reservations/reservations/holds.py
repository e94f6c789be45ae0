# SPDX-License-Identifier: Apache-2.0
"""One node for one instance, the best fit that there is."""

import dataclasses
import time

from ironic_reservations import events
from ironic_reservations import metrics
from ironic_reservations.db import reservations as reservation_rows
from ironic_reservations.fleet import explanation
from ironic_reservations.fleet import search
from ironic_reservations.matching import visible
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quota as quotas
from ironic_reservations.reservations import searching
from ironic_reservations.reservations import updates
from ironic_reservations.reservations import values


@dataclasses.dataclass(frozen=True)
class Request:
    """A hold request: for whom a node is to be held, and for how long.

    :param instance_uuid: canonical UUID of the instance.
    :param lease: seconds after which the reservation is over if nothing has
        begun on the node; None for no end.
    :param project_id: the project that the caller has named. A reservation
        that the instance has already must be that project's.
    :param holder: when given, only while the owner's host is this holder's.
    :param group: membership.Named of which the reservation is to be a
        member, or None.
    :param quota: quota.Quota, by which a new reservation is limited.
    """

    instance_uuid: str
    owner: values.Owner
    lease: int | None = None
    project_id: str | None = None
    holder: str | None = None
    group: membership.Named | None = None
    quota: 'quotas.Quota' = dataclasses.field(default_factory=quotas.Quota)

    @property
    def actor(self):
        return values.Actor(self.owner.host, self.holder)


def hold(matcher, request):
    """Hold a node that satisfies a request, the best fit there is.

    Asking again for the same instance and the same request spec gives the
    node that is held already, begins its lease anew, and moves it to another
    host if one is named.

    :param matcher: matching.Matcher of the request. A caller who is bound to
        a project is given only that project's reservation again, and only on
        a node that the project may still use.
    :param request: Request.
    :returns: the Reservation, and True when this call has made it.
    :raises: NoMatchingNode when the fleet, counted after the request came,
        has none; Conflict when the instance holds a node for something else,
        or its node has gone too far to be moved, or the group is another
        one; QuotaExceeded when nothing else is in the way of a new one;
        PreconditionFailed when the host is not the holder's;
        DeadlineExceeded.
    """
    began = time.monotonic()
    reservation, created = obtain.obtain(_Hold(matcher, request),
                                         request.actor)
    if created:
        metrics.held(time.monotonic() - began)
    return reservation, created


class OneNode:
    """What a hold and a claim have in common: see ``obtain``.

    :param matcher: matching.Matcher.
    :param request: Request.
    """

    request_digest = None

    def __init__(self, matcher, request):
        self.matcher, self.quota = matcher, request.quota
        self.owner, self.lease = request.owner, request.lease
        self._instance_uuid = request.instance_uuid
        self._project_id = request.project_id

    def known(self, run):
        """The answer to a request whose instance holds a node already.

        Nova builds an instance on one host at a time, so the later host is
        right as long as nothing has begun on the node.

        :returns: None when it holds none.
        :raises: Conflict when it holds one that this request may not have;
            Again when it has just lost it.
        """
        for held in lookup.carried(self._instance_uuid):
            if held.lapsed:
                return None
            self._check(held)
            return self._repeat(run, held)
        return None

    def _check(self, held):
        """Raise unless a reservation is what the request asks for."""
        matcher = self.matcher
        if (held.id is None
                or held.request_spec != matcher.spec.canonical
                or matcher.restricted_to not in (None, held.project_id)
                or self._project_id not in (None, held.project_id)
                or not visible(held.node_owner, held.node_lessee,
                               matcher.restricted_to, matcher.holds_unowned)
                or held.state not in ('reserved', 'deploying', 'active')
                or not (self._is_host_of(held) or held.state == 'reserved')):
            raise lookup.in_use(self._instance_uuid)

    def _is_host_of(self, held):
        return self.owner.host in (None, held.host)

    def _repeat(self, run, held):
        emitted = run.settle_written(held)
        if emitted and self._is_host_of(held):
            # A COMMIT of this request went through unnoticed.
            return held, events.HELD in emitted
        restricted = self.matcher.restricted_to is not None
        moves = not self._is_host_of(held)
        if not moves and not updates.is_renewable(
                held, self.lease, restricted):
            return held, False
        changes = {'lease': self.lease}
        if self.owner.host is not None:
            changes['host'] = self.owner.host
        return updates.change(
            run, held, changes, events.MOVED if moves else events.RENEWED,
            None if restricted else reservation_rows.ANY_HOST), False

    def record_events(self, tx, group_id, reservations, picks):
        """See ``obtain``."""
        [reservation], [pick] = reservations, picks
        if pick.claimed:
            tx.emits(reservation.id, events.CLAIMED, pick.claimed)
        tx.emits(reservation.id, events.HELD, reservation)
        return reservation


class _Hold(searching.Searched, OneNode):
    """An ask for one node, found by a search: see ``obtain``."""

    asks_first = False

    def __init__(self, matcher, request):
        OneNode.__init__(self, matcher, request)
        searching.Searched.__init__(self)
        self._group = request.group

    def sets(self):
        """See ``obtain``."""
        self.place = membership.Place.find(self._group)
        self.prepare()
        found = False
        for node in search.search(self.narrowed(), self.counted,
                                  thorough=self.fresh):
            found = True
            yield [obtain.Pick(self._instance_uuid, node)]
        self.in_vain = not found

    def verdict(self):
        """See searching.Searched."""
        found = explanation.verdict(self.narrowed(), self.counted)
        return found, found['matching_nodes'] > 0
