# SPDX-License-Identifier: Apache-2.0
"""Creates groups, and finds them with their members.

All nodes of a new group are held in one transaction, sorted by their ids, as
in all such transactions. The nodes are chosen before. If a concurrent request
takes one of them, none is held, and the search starts over.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import math
from typing import Any

import sqlalchemy as sa

from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import group_rows
from ironic_reservations.fleet import domains
from ironic_reservations.matching import explanation
from ironic_reservations.matching import group_plan
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import searching
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import updates
from ironic_reservations.reservations import values

#: Number of times that nodes are read again after a concurrent request has
#: taken one of them, before the group is looked up again.
MAX_LOST = 16

#: Number of groups whose members are counted by one statement.
GROUPS_AT_ONCE = 100


def create_group(matcher: matching.Matcher, request: obtain.Request
                 ) -> tuple[membership.Group, bool]:
    """Hold a node for each member of a new group, or for none.

    A repeated request renews the leases of the members.

    :param matcher: each node must satisfy it.
    :param request: has the group and a digest.
    :returns: the group with its members, and whether this call has made it.
    :raises: NoMatchingNode; QuotaExceeded if only the quota prevents it;
        Conflict if there is another group of this UUID, or a member already
        holds a node, or the project may no longer use the node of a member;
        DeadlineExceeded.
    """
    return obtain.obtain_nodes(_NewGroup(matcher, request))


class _NewGroup(obtain.Operation):
    """A request for all nodes of a new group."""

    # Without it, a repeated request would search for other nodes.
    checks_repeat_first = True

    def __init__(self, matcher: matching.Matcher, request: obtain.Request
                 ) -> None:
        super().__init__(matcher, request)
        if request.group is None:
            raise ValueError('The request has no group')
        self._group = request.group
        self._finder = searching.Finder(matcher, request.quota)

    def find_result(self, run: transaction.Run
                    ) -> tuple[membership.Group, bool] | None:
        """Return the group if it already has members, or None.

        :raises: Conflict if they are not those of this request, or the
            project may no longer use the node of one, or an instance already
            has a node; ConcurrentChange if the group has just been deleted.
        """
        group = membership.load_group(self._group.uuid)
        if group is not None and group.places:
            return self._repeat(run, group)
        self.place = membership.Place(self._group, group)
        if run.tries:
            for reservation in lookup.find_carriers(self.request.instances):
                if not reservation.is_expired:
                    raise lookup.make_conflict(reservation.instance_uuid)
        return None

    def _repeat(self, run: transaction.Run, group: membership.Group
                ) -> tuple[membership.Group, bool]:
        request = self.request
        if not (group.satisfies(self._group)
                and group.request_digest == request.digest
                and group.places.total() >= len(request.instances)
                and self.matcher.restricted_to in (None, group.project_id)):
            raise membership.make_conflict(group.uuid)
        group = _read_members(group)
        if run.unsure:
            return group, False
        is_restricted = self.matcher.restricted_to is not None
        if is_restricted:
            # All are checked before the first is renewed, because a refused
            # request changes nothing.
            for member in group.members:
                updates.check_may_use(member, self.matcher.holds_unowned)
        for member in group.members:
            # A member that a compute host has claimed has the lease that the
            # host has given it.
            if member.host in (None, request.assignment.host) and (
                    updates.is_renewable(
                        member, request.lease, is_restricted)):
                with contextlib.suppress(transaction.ConcurrentChange):
                    updates.write_changes(
                        run, member, {'lease': request.lease}, events.RENEWED,
                        member.host)
        return _read_members(group), False

    def list_picks(self) -> Iterator[list[obtain.Pick]]:
        """See obtain.Operation."""
        finder = self._finder
        finder.count_candidates()
        finder.prepare(self._judge)
        in_vain = True
        for picks in self._list_alternatives():
            in_vain = False
            yield picks
        finder.in_vain = in_vain

    def _list_alternatives(self) -> Iterator[list[obtain.Pick]]:
        """Yield nodes for all members, those in the best domains first.

        A domain whose nodes were lost to concurrent requests is read again: it
        may have others. A domain with too few nodes is corrected, so that the
        next plan uses other domains.
        """
        quota, instances = self.request.quota, self.request.instances
        matcher, levels = quota.narrow(self.matcher), self._group.levels
        free_nodes = domains.get_domains(
            matcher, self._finder.get_fleet(), levels)
        for _ in range(MAX_LOST):
            while (plan := group_plan.plan_segments(
                    levels, free_nodes.count_room(quota.limit_remaining),
                    len(instances))):
                nodes = free_nodes.choose_nodes(plan, quota.count_remaining)
                if nodes is None:
                    return
                if all(len(nodes[name]) == number
                       for name, number in plan.items()):
                    break
                engine.check_deadline()
            else:
                return
            members = [node for batch in nodes.values() for node in batch]
            yield sorted((
                obtain.Pick(instance_uuid, node, segment=(
                    number // levels.segment_size
                    if levels.inner_by else None))
                for number, (instance_uuid, node) in enumerate(
                    zip(instances, members, strict=True))),
                key=lambda pick: pick.node.id)

    def _judge(self) -> tuple[dict[str, Any], bool]:
        """See searching.Finder.prepare."""
        verdict = explanation.explain_group(
            self.matcher, self._finder.get_fleet(), self._group.levels,
            len(self.request.instances))
        members = verdict['members']
        return verdict, members['available'] >= members['wanted']

    def make_result(self, tx: transaction.Transaction,
                    reservations: list[values.Reservation],
                    picks: Sequence[obtain.Pick]) -> membership.Group:
        """See obtain.Operation."""
        row = tx.execute(group_rows.select_group(self._group.uuid)).one()
        for member in reservations:
            tx.emit(events.HELD, member)
        return membership.Group(**row._mapping, members=tuple(reservations))


def _read_members(group: membership.Group) -> membership.Group:
    """Return a group with its members.

    :raises: ConcurrentChange if it was deleted, or if another group has its
        UUID.
    """
    for row in engine.fetch_rows(group_rows.select_group(group.uuid)):
        members = lookup.find_members(row.id)
        if row.id == group.id and members:
            return membership.Group(**row._mapping, members=tuple(members))
    raise transaction.ConcurrentChange()


def _allow_all(group: membership.Group) -> None:
    """Authorize every caller."""


@engine.retry
def get_group(uuid: str,
              authorize: Callable[[membership.Group], None] = _allow_all
              ) -> membership.Group:
    """Return a group with its members.

    :param authorize: raises if the caller may not do this to the group. It is
        called with the group before its members are read, because otherwise
        the duration would reveal a group that the caller must not see.
    :raises: NotFound if there is none, or it has no members any more; what
        ``authorize`` raises.
    """
    for row in engine.fetch_rows(group_rows.select_group(uuid)):
        group = membership.Group(**row._mapping)
        authorize(group)
        members = lookup.find_members(row.id)
        if members:
            return dataclasses.replace(group, members=tuple(members))
    raise membership.make_not_found(uuid)


@engine.retry
def find_group_id(uuid: str, restricted_to: str | None = None) -> int:
    """Return the id of a group that is a marker.

    :param restricted_to: project of the group; None for any.
    :raises: InvalidInput if there is no such group.
    """
    for row in engine.fetch_rows(group_rows.select_group(uuid)):
        if restricted_to in (None, row.project_id):
            return row.id
    raise exception.InvalidInput('marker', 'must be the UUID of a group',
                                 got=uuid)


@engine.retry
def find_groups(limit: int, restricted_to: str | None = None,
                after: int | None = None, room: float = math.inf
                ) -> list[membership.Group]:
    """Return groups that have members, in the order of creation.

    :param limit: maximum number.
    :param restricted_to: project of the groups; None for any.
    :param after: id of the last group of the page before.
    :param room: maximum number of characters of all names of domains; the
        list ends after the page that exceeds it.
    :returns: groups with their ``places``.
    """
    groups: list[membership.Group] = []
    length = 0
    while True:
        page = min(limit - len(groups), GROUPS_AT_ONCE)
        rows = engine.fetch_rows(group_rows.select_live_groups(
            restricted_to, after, page))
        # Groups may lose their members between the two statements. Go on
        # then, because a short page would be taken for the last one.
        for group in _count_members(rows):
            groups.append(group)
            length += sum(len(name or '') for name in group.domains)
        if len(rows) < page or len(groups) == limit or length > room:
            return groups
        after = rows[-1].id


def _count_members(rows: Sequence[sa.Row[Any]]) -> list[membership.Group]:
    """Return those groups that have members, with their ``places``."""
    places: collections.defaultdict[
        int, collections.Counter[tuple[int | None, str | None]]] = (
        collections.defaultdict(collections.Counter))
    for group_id, segment, domain, number in rows and engine.fetch_rows(
            group_rows.select_places([row.id for row in rows])):
        places[group_id][segment, domain] = number
    return [membership.Group(**row._mapping, places=places[row.id])
            for row in rows if row.id in places]
