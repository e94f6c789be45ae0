# SPDX-License-Identifier: Apache-2.0
"""A reservation that nobody uses yet passes to an instance, with its node.

What is reserved today is claimed tomorrow: by the UUID of the reservation's
instance, or of a group, any fitting member of which will do. The new
reservation takes the place of the old one in one transaction, so that the
node is never free in between.
"""

import random

from oslo_db import exception as db_exc

from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import explanation
from ironic_reservations import hosts
from ironic_reservations import membership
from ironic_reservations import metrics
from ironic_reservations import reservations
from ironic_reservations import search
from ironic_reservations.db import counting
from ironic_reservations.db import engine
from ironic_reservations.db import queries


class _Place:
    """The place of a claimed reservation in its group: see membership.Place.

    :param claimed: reservations.Reservation.
    """

    def __init__(self, claimed):
        self._claimed = claimed
        self.claimed_id = claimed.id

    def enter(self, connection, node):
        # Another may have claimed it, or may be moving it to a host.
        if not connection.execute(
                queries.delete_of_hosts(self._claimed)).rowcount:
            raise membership.Changed()
        return {name: getattr(self._claimed, name)
                for name in ('group_id', 'domain')}

    def confirm(self, connection):
        """The group has as many members as before, and where they were."""

    def shown(self):
        return {f'group_{name}': getattr(self._claimed, f'group_{name}')
                for name in ('uuid', 'policy', 'by')}


def claim(uuid, matcher, request, authorize):
    """Have an instance take over a reservation that no host has yet.

    :param uuid: of the reservation's instance, or of a group.
    :param matcher: matching.Matcher that the node must satisfy.
    :param request: reservations.Request, whose owner's project must be the
        reservation's.
    :param authorize: called with the Reservation before it is taken over; it
        raises when the caller may not release it.
    :returns: the new Reservation, and True when this call has made it.
    :raises: NotFound when the project has no such reservation or group;
        Conflict when a host has it, or no member of the group can be claimed,
        or the instance holds a node already; NoMatchingNode when the request
        does not match; PreconditionFailed when the host is not the holder's;
        DeadlineExceeded.
    """
    claimed, reservation, created = _claim(uuid, matcher, request, authorize)
    if created:
        # It is not known where the answer to the COMMIT was lost.
        if claimed:
            events.tell(events.CLAIMED, claimed)
        events.tell(events.HELD, reservation)
    return reservation, created


@engine.retry
def _claim(uuid, matcher, request, authorize):
    if not request.written:
        hosts.check(request.owner.host, request.holder)
    claimed = None
    while True:
        # What was claimed is gone when the request is repeated.
        answer = reservations.repeat(matcher, request)
        if answer:
            return claimed, *answer
        for node, claimed in _fitting(uuid, matcher,
                                      request.owner.project_id):
            authorize(claimed)
            held = _take(matcher, request, node, claimed)
            if held:
                return claimed, held, True
        engine.check_deadline()


def _take(matcher, request, node, claimed):
    """One transaction; None when somebody else was faster."""
    try:
        return reservations.take(matcher, request, node, _Place(claimed))
    except membership.Changed:
        metrics.conflict()
        return None
    except db_exc.DBDuplicateEntry:
        # A row whose node has moved on may stand in the way.
        reservations.purge(request.instance_uuid)
        return None


def _fitting(uuid, matcher, project_id):
    """What can be claimed and satisfies the request, the best fit first.

    :returns: list of pairs of a matching.Node and its Reservation; empty
        where others have claimed what would be, since it was read.
    :raises: NotFound, Conflict, NoMatchingNode.
    """
    candidates = {each.id: each for each in _candidates(uuid, project_id)}
    found = []
    for row in engine.rows(counting.held_by(list(candidates))):
        facts = dict(row._mapping)
        reason = facts.pop('reason')
        claimed = candidates[facts.pop('reservation_id')]
        found.append((search.node_of(facts), claimed, reason))
    fitting = [(node, claimed) for node, claimed, reason in found
               if reason is None and matcher.visible(node)
               and matcher.matches(node)]
    if not fitting and len(found) == len(candidates):
        raise explanation.refusal({
            'matching_nodes': 0, 'explanation': matcher.explain(
                (node, reason, 1) for node, _, reason in found)},
            matcher.restricted_to)
    random.shuffle(fitting)
    fitting.sort(key=lambda pair: matcher.fit(pair[0]))
    return fitting


def _candidates(uuid, project_id):
    """The Reservations that a UUID names and an instance may take over.

    :raises: NotFound, Conflict.
    """
    named = reservations.named(uuid, project_id)
    if not named:
        raise exception.NotFound(
            f'No reservation and no group {uuid} could be found.')
    found = [each for each in named
             if each.host is None and each.state == 'reserved']
    if not found:
        raise exception.Conflict(
            f'Nothing of {uuid} can be claimed: a compute host has it, or '
            f'its node is no longer available.')
    return found
