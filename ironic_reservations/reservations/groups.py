# SPDX-License-Identifier: Apache-2.0
"""Creates groups, and finds them with their members.

All nodes of a new group are held in one transaction, sorted by their ids, as
in all such transactions. The nodes are chosen before the transaction begins.
If a concurrent request takes one of them, none is held, and the search starts
over.
"""

import collections
from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import dataclasses
import math
from typing import Any

import sqlalchemy as sa

from ironic_reservations import context
from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import group_rows
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import goals
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import updates

#: Number of groups whose members are counted by one statement.
GROUPS_AT_ONCE = 100


def create_group(matcher: matching.Matcher, request: obtain.Request
                 ) -> tuple[values.Group, bool]:
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
    group_request = request.group
    if group_request is None:
        raise ValueError('The request has no group')
    levels = group_policy.find_levels(group_request)
    search = goals.Search()

    def find(run: transaction.Run) -> values.Group | None:
        return _find_repeat(run, matcher, request, group_request)

    def make(run: transaction.Run) -> values.Group:
        goal = goals.Goal(matcher, len(request.instances), levels,
                          request.count_usage(run),
                          membership.Place.clear_new(group_request))
        return transaction.write_first(
            search.find(goal),
            lambda nodes: _hold_members(run, goal, request, nodes))

    return transaction.find_or_make(find, make, request.actor)


def _hold_members(run: transaction.Run, goal: goals.Goal,
                  request: obtain.Request, nodes: Sequence[matching.Node]
                  ) -> values.Group:
    """Hold the nodes of a new group.

    :param nodes: in the order of segments.
    :raises: as ``obtain.hold_picks``.
    """
    picks = sorted((obtain.Pick(
        instance_uuid, node, segment=goal.levels.find_segment(number))
        for number, (instance_uuid, node) in enumerate(
            zip(request.instances, nodes, strict=True))),
        key=lambda pick: pick.node.id)
    with obtain.hold_picks(run, goal.matcher, request, picks, goal.place) as (
            tx, reservations):
        row = tx.execute(group_rows.select_group(
            str(reservations[0].group_uuid))).one()
        return values.Group(**row._mapping, members=tuple(reservations))


def _find_repeat(run: transaction.Run, matcher: matching.Matcher,
                 request: obtain.Request,
                 group_request: values.GroupRequest
                 ) -> values.Group | None:
    """Return the group if it already has members, or None.

    Without this, a repeated request would search for other nodes.

    :raises: Conflict if a different request created the group, if the project
        may no longer use one of its nodes, or if an instance already has a
        node; ConcurrentChange if the group has just been deleted.
    """
    group = membership.clear_group(group_request.uuid)
    if group is not None and group.places:
        if not (group.satisfies(group_request)
                and group.request_digest == request.digest
                and group.places.total() >= len(request.instances)
                and matcher.reach.has_project(group.project_id)):
            raise membership.make_conflict(group.uuid)
        return _renew_members(run, matcher, request, _read_members(group))
    if run.tries:
        for reservation in lookup.find_carriers(request.instances):
            if not reservation.is_expired:
                raise lookup.make_conflict(reservation.instance_uuid)
    return None


def _renew_members(run: transaction.Run, matcher: matching.Matcher,
                   request: obtain.Request, group: values.Group
                   ) -> values.Group:
    """Renew the leases of the members of a group.

    :raises: as ``_find_repeat``.
    """
    if matcher.reach.is_limited:
        # All are checked before the first is renewed, because a refused
        # request changes nothing.
        for member in group.members:
            updates.check_may_use(member, matcher.ownership.kind)
    for member in group.members:
        # The lease of a member that a compute host has claimed is the host's.
        if member.host in (None, request.assignment.host) and (
                updates.is_renewable(member, request.lease, matcher.reach)):
            with contextlib.suppress(transaction.ConcurrentChange):
                updates.write_changes(run, member, {'lease': request.lease},
                                      events.RENEWED, member.host)
    return _read_members(group)


def _read_members(group: values.Group) -> values.Group:
    """Return a group with its members.

    :raises: ConcurrentChange if it was deleted, or if another group has its
        UUID.
    """
    for row in engine.fetch_rows(group_rows.select_group(group.uuid)):
        members = lookup.find_members(row.id)
        if row.id == group.id and members:
            return values.Group(**row._mapping, members=tuple(members))
    raise transaction.ConcurrentChange()


@engine.retry
def get_group(uuid: str,
              authorize: Callable[[values.Group], None] = context.allow_all
              ) -> values.Group:
    """Return a group with its members.

    :param authorize: raises if the caller may not do this to the group. It is
        called with the group before its members are read, because otherwise
        the duration would reveal a group that the caller must not see.
    :raises: NotFound if there is no such group, or it no longer has members;
        what ``authorize`` raises.
    """
    for row in engine.fetch_rows(group_rows.select_group(uuid)):
        group = values.Group(**row._mapping)
        authorize(group)
        members = lookup.find_members(row.id)
        if members:
            return dataclasses.replace(group, members=tuple(members))
    raise exception.NotFound.of(f'group {uuid}')


@engine.retry
def find_position(uuid: str, reach: values.Ownership = values.ALL
                  ) -> list[int]:
    """Return the id of a group; empty if the caller sees no such group."""
    return [row.id for row in engine.fetch_rows(group_rows.select_group(uuid))
            if reach.has_project(row.project_id)][:1]


@engine.retry
def find_groups(limit: int, reach: values.Ownership = values.ALL,
                after: int | None = None, room: float = math.inf
                ) -> list[values.Group]:
    """Return groups that have members, in the order of creation.

    :param limit: maximum number.
    :param reach: that of the caller.
    :param after: id of the last group of the page before.
    :param room: maximum number of characters of all names of domains; the
        list ends after the page that exceeds it.
    :returns: groups with their ``places`` and ``health``.
    """
    groups: list[values.Group] = []
    length = 0
    while True:
        page = min(limit - len(groups), GROUPS_AT_ONCE)
        rows = engine.fetch_rows(group_rows.select_live_groups(
            reach, after, page))
        # Groups may lose their members between the two statements. Go on
        # then, because a short page would be taken for the last one.
        for group in _count_members(rows):
            groups.append(group)
            length += sum(len(name or '') for name in group.domains)
        if len(rows) < page or len(groups) == limit or length > room:
            return groups
        after = rows[-1].id


def _count_members(rows: Sequence[sa.Row[Any]]) -> list[values.Group]:
    """Return the groups that have members, with their counts."""
    places: collections.defaultdict[
        int, collections.Counter[tuple[int | None, str | None]]] = (
        collections.defaultdict(collections.Counter))
    for group_id, segment, domain, number in rows and engine.fetch_rows(
            group_rows.select_places([row.id for row in rows])):
        places[group_id][segment, domain] = number
    health: collections.defaultdict[int, collections.Counter[str]] = (
        collections.defaultdict(collections.Counter))
    for group_id, word, number in engine.fetch_rows(
            group_rows.select_health(places)) if places else ():
        if word is not None:
            health[group_id][word] += number
    return [values.Group(**row._mapping, places=places[row.id],
                         health=health[row.id])
            for row in rows if row.id in places]
