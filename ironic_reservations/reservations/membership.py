# SPDX-License-Identifier: Apache-2.0
"""Adds a reservation to a group.

A hold reads the group and its members, and searches for a node that the
group's policy allows. When it writes, the generation of the group shows
whether a concurrent request has added a member; the hold then starts over.
Concurrent holds break no policy, not even on two members of a Galera cluster,
because each writes the row of the group.
"""

import collections
from collections.abc import Collection
import dataclasses
import datetime
from typing import Any

from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import group_rows
from ironic_reservations.fleet import profiles
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import values


@dataclasses.dataclass(frozen=True)
class GroupRequest:
    """The group that a request names.

    :param uuid: canonical UUID.
    :param policy: one of ``constants.POLICIES``, or None.
    :param by: see ``group_policy.find_domain``; None without a policy.
    :param project_id: project that the group belongs to, or None.
    """

    uuid: str
    policy: str | None
    by: str | None
    project_id: str | None


@dataclasses.dataclass(frozen=True)
class Group:
    """A group as it was read.

    :param id: primary key, never used again.
    :param generation: incremented whenever a member joins or leaves.
    :param request_digest: see ``models.Group``.
    :param domains: number of live members by domain, if it was read.
    :param members: the live members without their request specs, if they were
        read.
    """

    id: int
    uuid: str
    policy: str | None
    by: str | None
    project_id: str | None
    generation: int
    request_digest: str | None
    created_at: datetime.datetime
    domains: collections.Counter[str | None] = dataclasses.field(
        default_factory=collections.Counter)
    members: tuple[values.Reservation, ...] = ()

    #: For the policy rules, which read it of reservations: the owner of a
    #: member's node has no rights on the group.
    node_owner = None

    def satisfies(self, request: GroupRequest | None) -> bool:
        """Return whether it is the group that a request names."""
        return request is not None and (
            self.policy, self.by, self.project_id) == (
            request.policy, request.by, request.project_id)


def load_group(uuid: str, remove: bool = True) -> Group | None:
    """Return a group with the ``domains`` of its live members.

    An expired or stale member would count again if something began on its
    node, or if the node got its instance back, and another member could be in
    its domain by then. Therefore the rows of such members are deleted before
    a new member is chosen.

    :param remove: whether to do so.
    :returns: None if the group has no row. Without a live member, the
        ``domains`` are empty.
    """
    while True:
        domains: collections.Counter[str | None] = collections.Counter()
        columns: dict[str, Any] = {}
        has_dead = False
        # One statement reads both, so that they are of the same time.
        for row in engine.fetch_rows(group_rows.GROUP, {'uuid': uuid}):
            columns = dict(row._mapping)
            member, domain, live = map(
                columns.pop, ('member', 'domain', 'live'))
            if live:
                domains[domain] += 1
            elif member is not None:
                has_dead = True
        if not (has_dead and remove):
            return Group(**columns, domains=domains) if columns else None
        expiry.expire_or_purge_members(columns['id'])
        engine.check_deadline()


def make_conflict(uuid: str) -> exception.Conflict:
    """Return the error for a request that does not fit the group it names.

    The message is the same in all cases, so that it reveals nothing.
    """
    return exception.Conflict(
        f'Group {uuid} already exists with another policy, domain, project '
        f'or request.')


class Place:
    """Where new members go: the group that a request names, or no group.

    :param request: None if the request names no group.
    :param group: the group as it was read; None if it has no row.
    """

    def __init__(self, request: GroupRequest | None = None,
                 group: Group | None = None) -> None:
        self._request, self._group = request, group

    @classmethod
    def load(cls, request: GroupRequest | None, remove: bool = True
             ) -> 'Place':
        """Return the place in a group as it is now.

        :param remove: see ``load_group``.
        :raises: Conflict if the request names another policy or project than
            the group has.
        """
        if request is None:
            return cls()
        place = cls(request, load_group(request.uuid, remove))
        members = place._find_group_with_members()
        if members is not None and not members.satisfies(request):
            raise make_conflict(request.uuid)
        return place

    def _find_group_with_members(self) -> Group | None:
        return self._group if self._group and self._group.domains else None

    def narrow(self, matcher: matching.Matcher, fleet: profiles.Fleet | None
               ) -> matching.Matcher:
        """Return the matcher of those nodes that the policy allows.

        :param fleet: None if the request names its nodes.
        """
        request = self._request
        if request is None or request.policy is None or request.by is None:
            return matcher
        group = self._find_group_with_members()
        domains: Collection[str | None] = group.domains if group else {}
        room = {}
        if fleet and group_policy.needs_room(request.policy, domains):
            room = {domain: free.free for domain, free in
                    group_policy.count_room(
                        matcher.find_profiles(fleet, request.by), request.by,
                        matcher.fit).items()}
        return dataclasses.replace(matcher, policy=group_policy.Policy(
            request.policy, request.by,
            tuple(group.domains.items() if group else ()), room))

    def join(self, tx: transaction.Transaction,
             request_digest: str | None = None) -> int | None:
        """Write the group's row, before the rows of its new members.

        :param request_digest: see ``models.Group``.
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
        return tx.insert(group_rows.INSERT_GROUP, {
            **vars(self._request), 'request_digest': request_digest})

    def make_columns(self, group_id: int | None, node: matching.Node
                     ) -> dict[str, Any]:
        """Return the columns of a new member's row.

        :param group_id: the result of ``join``.
        """
        return {} if self._request is None else {
            'group_id': group_id,
            'domain': group_policy.find_domain(node, self._request.by)}

    def describe_group(self) -> dict[str, Any]:
        """Return the attributes of a Reservation that describe its group."""
        return {} if self._request is None else {
            f'group_{name}': getattr(self._request, name)
            for name in ('uuid', 'policy', 'by')}
