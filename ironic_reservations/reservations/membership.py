# SPDX-License-Identifier: Apache-2.0
"""Adds a reservation to a group.

A hold reads the group and its members, and searches for a node that the
group's policy allows. When it writes, the generation of the group shows
whether a concurrent request has added a member; the hold then starts over.
Concurrent holds break no policy, not even on two members of a Galera cluster,
because each writes the row of the group.
"""

import collections
import dataclasses
from typing import Any

from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import group_rows
from ironic_reservations.fleet import domains
from ironic_reservations.fleet import profiles
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import transaction

#: Attributes of a group that its members' reservations show.
GROUP_ATTRIBUTES = ('uuid', 'policy', 'by', 'segment_levels')


def load_group(uuid: str) -> values.Group | None:
    """Return a group with the ``places`` of its live members.

    :returns: None if the group has no row. Without a live member, its
        ``places`` are empty.
    """
    places: collections.Counter[tuple[int | None, str | None]] = (
        collections.Counter())
    columns: dict[str, Any] = {}
    has_former = False
    # One statement reads both, so that they are of the same time.
    for row in engine.fetch_rows(group_rows.GROUP, {'uuid': uuid}):
        columns = dict(row._mapping)
        member, domain, segment, live = map(
            columns.pop, ('member', 'domain', 'segment', 'live'))
        if live:
            places[segment, domain] += 1
        elif member is not None:
            has_former = True
    return values.Group(**columns, places=places, has_former_members=has_former
                        ) if columns else None


def clear_group(uuid: str) -> values.Group | None:
    """Remove the expired and stale members of a group, and return the group.

    Such a member would count again if something began on its node, or if the
    node got its instance back. By then, another member could be in its domain.
    Therefore call this before a new member is chosen.

    :returns: see ``load_group``.
    """
    while (group := load_group(uuid)) and group.has_former_members:
        expiry.expire_or_purge_members(group.id)
        engine.check_deadline()
    return group


def make_conflict(uuid: str) -> exception.Conflict:
    """Return the error for a request that does not fit the group it names.

    The message is the same in all cases, so that it reveals nothing.
    """
    return exception.Conflict(
        f'Group {uuid} already exists with another policy, domain, project '
        f'or request, or with fewer members.')


class Place:
    """Where new members go: the group that a request names, or no group.

    :param request: None if the request names no group.
    :param group: the group as it was read; None if it has no row.
    """

    def __init__(self, request: values.GroupRequest | None = None,
                 group: values.Group | None = None) -> None:
        self._request, self._group = request, group

    @classmethod
    def load(cls, request: values.GroupRequest | None) -> 'Place':
        """Return the place in a group as it is now.

        :raises: Conflict if the request names another policy or project than
            the group has.
        """
        return cls._check(
            request, load_group(request.uuid) if request else None)

    @classmethod
    def clear(cls, request: values.GroupRequest | None) -> 'Place':
        """Return the place in a group for new members; see ``clear_group``.

        :raises: as ``load``.
        """
        return cls._check(
            request, clear_group(request.uuid) if request else None)

    @classmethod
    def _check(cls, request: values.GroupRequest | None,
               group: values.Group | None) -> 'Place':
        if request is None:
            return cls()
        place = cls(request, group)
        group = place._find_group_with_members()
        if request.segment is not None:
            place._check_segment(group, request.segment)
        elif group is not None and not group.satisfies(request):
            if (group.segments and group.project_id == request.project_id
                    and request.policy is None):
                raise exception.InvalidInput(
                    'group.segment', f'is required, because group '
                                     f'{group.uuid} has segments')
            raise make_conflict(request.uuid)
        return place

    @classmethod
    def clear_new(cls, request: values.GroupRequest) -> 'Place':
        """Return the place in a group that is to be created.

        :raises: ConcurrentChange if it has members already.
        """
        place = cls(request, clear_group(request.uuid))
        if place._find_group_with_members() is not None:
            raise transaction.ConcurrentChange()
        return place

    def _check_segment(self, group: values.Group | None, segment: int) -> None:
        """Check that a member can join a segment.

        :raises: NotFound, Conflict.
        """
        request = self._request
        if (request is None or group is None
                or group.project_id != request.project_id):
            raise exception.NotFound.of(
                f'group {request.uuid if request else ""}')
        if not group.segments or segment >= group.segments:
            raise exception.Conflict(
                f'Group {group.uuid} has no segment {segment}.')
        size = group_policy.find_levels(group).segment_size
        if sum(members for (number, _), members in group.places.items()
               if number == segment) >= size:
            raise exception.Conflict(
                f'Segment {segment} of group {group.uuid} already has '
                f'{size} members.')

    def _find_group_with_members(self) -> values.Group | None:
        return self._group if self._group and self._group.places else None

    @property
    def _levels(self) -> group_policy.Levels:
        group = self._find_group_with_members() or self._request
        return (group_policy.find_levels(group) if group
                else group_policy.Levels())

    def narrow(self, matcher: matching.Matcher, fleet: profiles.Fleet
               ) -> matching.Matcher:
        """Return the matcher of the nodes that the policy allows."""
        request, levels = self._request, self._levels
        if request is None or not levels.keys:
            return matcher
        group = self._find_group_with_members()
        members: collections.Counter[str | None] = collections.Counter()
        others: set[tuple[int | None, str | None]] = set()
        domains_of_segment: list[group_policy.Domain] = []
        # The domain with the most members comes first: members that were
        # adopted may be elsewhere.
        for (number, text), size in (
                group.places.most_common() if group else ()):
            domain = levels.split_domain(text)
            if number is not None and number == request.segment:
                domains_of_segment.append(domain)
            elif levels.inner_by is None:
                members[domain[0]] += size
            elif (number, domain[0]) not in others:
                others.add((number, domain[0]))
                members[domain[0]] += 1
        segment_domain = next((domain for domain in domains_of_segment
                               if domain[1] is not None), None)
        room = {}
        if group_policy.needs_room(levels, members, segment_domain):
            room = {domain: capacity.free for domain, capacity in
                    domains.get_domains(matcher, fleet, levels)
                    .count_room().items()}
        return dataclasses.replace(matcher, policy=group_policy.Policy(
            levels, tuple(members.items()), room, segment_domain))

    def join(self, tx: transaction.Transaction,
             request_digest: str | None = None) -> int | None:
        """Write the group's row, before the rows of its new members.

        :param request_digest: equal for equal requests for the group.
        :returns: the id of the group's row; None without a group.
        :raises: ConcurrentChange if the group has changed since it was read;
            DBDuplicateEntry if a concurrent request has created it.
        """
        if self._request is None:
            return None
        group = self._find_group_with_members()
        if group is not None:
            tx.write_one(group_rows.GROW, group_rows.bind_group(group))
            return group.id
        if self._group is not None:
            tx.write_one(group_rows.DELETE_UNCHANGED_GROUP,
                         group_rows.bind_group(self._group))
        columns = {**vars(self._request), 'request_digest': request_digest}
        del columns['segment']
        return tx.insert(group_rows.INSERT_GROUP, columns)

    def make_columns(self, group_id: int | None, node: matching.Node,
                     segment: int | None = None) -> dict[str, Any]:
        """Return the columns of a new member's row.

        :param group_id: the result of ``join``.
        :param segment: number of its segment in a new group.
        """
        request, levels = self._request, self._levels
        return {} if request is None else {
            'group_id': group_id,
            'segment': request.segment if segment is None else segment,
            'domain': levels.join_domain(levels.find_domain(node))}

    def find_domain_traits(self, node: matching.Node
                           ) -> dict[str, str | None]:
        """Return ``Levels.find_domain_traits`` of the group."""
        return self._levels.find_domain_traits(node)

    def describe_group(self) -> dict[str, Any]:
        """Return the attributes of a Reservation that describe its group."""
        group = self._find_group_with_members() or self._request
        return {} if group is None else {
            f'group_{name}': getattr(group, name)
            for name in GROUP_ATTRIBUTES}
