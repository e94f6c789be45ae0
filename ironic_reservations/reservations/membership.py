# SPDX-License-Identifier: Apache-2.0
"""How a reservation becomes a member of a group.

A hold reads the group and its members, searches for a node that the group's
policy allows, and finds out when it writes, by the generation of the group,
whether another has become a member meanwhile. Then it begins again. So two
holds at the same moment break no policy, on two members of a Galera cluster
either, because both write the row of the group.
"""

import collections
import dataclasses
import datetime

from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import group_rows
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import values


@dataclasses.dataclass(frozen=True)
class Named:
    """The group that a request names.

    :param uuid: canonical UUID.
    :param policy: one of constants.POLICIES, or None.
    :param by: what its domains are (see group_policy.find_domain); None where
        the group has no policy.
    :param project_id: whose it is to be, or None.
    """

    uuid: str
    policy: str | None
    by: str | None
    project_id: str | None


@dataclasses.dataclass(frozen=True)
class Group:
    """A group as it is now.

    :param id: primary key, never used again.
    :param generation: grows whenever a member is added or taken out.
    :param request_digest: see models.Group.
    :param domains: how many live members are in each domain, where that was
        read.
    :param members: tuple of values.Reservation without their request specs,
        where they were read.
    """

    id: int
    uuid: str
    policy: str | None
    by: str | None
    project_id: str | None
    generation: int
    request_digest: str | None
    created_at: datetime.datetime
    domains: collections.Counter = dataclasses.field(
        default_factory=collections.Counter)
    members: tuple[values.Reservation, ...] = ()

    #: The policy rules ask for it, as they do of a reservation: the owner of
    #: a member's node has no say in the group.
    node_owner = None

    def is_named(self, named):
        """Whether it is the very group that a request names."""
        return (self.policy, self.by, self.project_id) == (
            named.policy, named.by, named.project_id)


def load(uuid, end=True):
    """A group with its live members.

    A lapsed or stale member would count again if its node were touched or
    were given its instance back; another member might be in its domain then.
    So such rows are deleted before a new member is chosen.

    :param end: whether to do so.
    :returns: Group with its ``domains``, which are empty where it has no live
        member; None where there is no row of it.
    """
    while True:
        domains = collections.Counter()
        facts, remains = None, False
        # One statement reads both, so that they are of the same moment.
        for row in engine.fetch_rows(group_rows.GROUP, {'uuid': uuid}):
            facts = dict(row._mapping)
            member, domain, live = map(facts.pop, ('member', 'domain', 'live'))
            if live:
                domains[domain] += 1
            elif member is not None:
                remains = True
        if not (remains and end):
            return facts and Group(**facts, domains=domains)
        expiry.end_remains(facts['id'])
        engine.check_deadline()


def in_use(uuid):
    """The error for a request that names another's group, or another group.

    It is one message for all cases, so that it reveals nothing.
    """
    return exception.Conflict(
        f'Group {uuid} is in use with another policy, domain, project or '
        f'request.')


class Place:
    """The place of new members in the group that a request names, or in none.

    :param named: Named; None where the request names no group.
    :param group: Group as it was read; None where it has no row.
    """

    def __init__(self, named=None, group=None):
        self.named, self.group = named, group

    @classmethod
    def find(cls, named, end=True):
        """The place in a group as it is now.

        :param end: see ``load``.
        :raises: Conflict when the group is another one than is named.
        """
        place = cls(named, named and load(named.uuid, end))
        if place._has_members() and not place.group.is_named(named):
            raise in_use(named.uuid)
        return place

    def _has_members(self):
        return self.group is not None and bool(self.group.domains)

    def narrow(self, matcher, counted):
        """The Matcher of those nodes that the policy allows.

        :param counted: profiles.Fleet; None where the request names its nodes.
        """
        named = self.named
        if named is None or named.policy is None:
            return matcher
        members = self.group.domains if self._has_members() else {}
        room = {}
        if counted and group_policy.needs_room(named.policy, members):
            room = {where: found.free for where, found in
                    group_policy.count_room(
                        matcher.find_profiles(counted, named.by), named.by,
                        matcher.fit).items()}
        return dataclasses.replace(matcher, policy=group_policy.Policy(
            named.policy, named.by, tuple(members.items()), room))

    def join(self, tx, request_digest=None):
        """Write the group's row, before its new members are written.

        :param tx: transaction.Transaction.
        :param request_digest: see models.Group.
        :returns: the id of the group's row; None without a group.
        :raises: Again when the group is no longer as it was read;
            DBDuplicateEntry when another request has just begun it.
        """
        if self.named is None:
            return None
        if self._has_members():
            tx.one(group_rows.GROW, group_rows.bind_group(self.group))
            return self.group.id
        if self.group is not None:
            tx.one(group_rows.DELETE_UNCHANGED_GROUP,
                   group_rows.bind_group(self.group))
        [group_id] = tx.execute(group_rows.INSERT_GROUP, {
            **vars(self.named), 'request_digest': request_digest,
        }).inserted_primary_key
        return group_id

    def columns(self, group_id, node):
        """The columns of a new member's row, as a dict.

        :param group_id: what ``join`` has returned.
        :param node: matching.Node.
        """
        return {} if self.named is None else {
            'group_id': group_id,
            'domain': group_policy.find_domain(node, self.named.by)}

    def shown(self):
        """What a Reservation shows of its group, as a dict."""
        return {} if self.named is None else {
            f'group_{name}': getattr(self.named, name)
            for name in ('uuid', 'policy', 'by')}
