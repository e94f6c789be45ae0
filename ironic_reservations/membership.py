# SPDX-License-Identifier: Apache-2.0
"""How a reservation becomes a member of a group.

A hold reads the group and its members, searches for a node that the group's
policy allows, and finds out at its end, by the generation of the group,
whether anybody has become a member meanwhile. Then it begins again. So two
holds at the same moment break no policy, on two members of a Galera cluster
either, because both write the row of the group.
"""

import collections
import dataclasses
import datetime

from ironic_reservations import exception
from ironic_reservations import placing
from ironic_reservations.db import engine
from ironic_reservations.db import queries


class Changed(Exception):
    """What a request has read of a group or a reservation is true no more."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The group that a request names.

    :param uuid: canonical UUID.
    :param policy: one of placing.POLICIES, or None.
    :param by: what its domains are (see placing.domain); None as policy is.
    :param project_id: whose it is to be, or None.
    """

    uuid: str
    policy: str | None
    by: str | None
    project_id: str | None

    def shown(self):
        """What a Reservation shows of its group, as a dict."""
        return {f'group_{name}': getattr(self, name)
                for name in ('uuid', 'policy', 'by')}


@dataclasses.dataclass(frozen=True)
class Group:
    """A group as it is now.

    :param id: primary key, never used again.
    :param generation: grows whenever a member is added or taken out.
    :param asked: see models.Group.
    :param domains: how many live members are in each domain.
    :param remains: whether there are rows of members that are live no more.
    """

    id: int
    uuid: str
    policy: str | None
    by: str | None
    project_id: str | None
    generation: int
    asked: str | None
    created_at: datetime.datetime
    domains: collections.Counter
    remains: bool

    @property
    def is_empty(self):
        """Whether it has no live member, and so is gone."""
        return not self.domains

    def is_wanted(self, wanted):
        """Whether it is the very group that a request names."""
        return (self.policy, self.by, self.project_id) == (
            wanted.policy, wanted.by, wanted.project_id)


def read(uuid):
    """A group with its live members, or None where there is no row of it.

    One statement reads both, so that they are of the same moment.

    :returns: Group.
    """
    domains = collections.Counter()
    facts, remains = None, False
    for row in engine.rows(queries.GROUP, {'uuid': uuid}):
        facts = dict(row._mapping)
        member, domain, live = map(facts.pop, ('member', 'domain', 'live'))
        if live:
            domains[domain] += 1
        elif member is not None:
            remains = True
    return facts and Group(**facts, domains=domains, remains=remains)


def in_use(uuid):
    """The error for who names a group that is another's or another one.

    It says the same whoever has it, and for whatever.
    """
    return exception.Conflict(
        f'Group {uuid} is in use with another policy, domain, project or '
        f'request.')


class Place:
    """The place of a node in the group that a request names, or in none.

    :param wanted: Wanted; None where the request names no group.
    :param read: as the function of this name.
    :raises: Conflict when the group is another one than is wanted.
    """

    #: The reservation that the node is taken over from.
    claimed_id = None

    def __init__(self, wanted, read=read):
        self._wanted = wanted
        self.group = wanted and read(wanted.uuid)
        if self._has_members() and not self.group.is_wanted(wanted):
            raise in_use(wanted.uuid)

    def _has_members(self):
        return self.group is not None and not self.group.is_empty

    def narrow(self, matcher, counted):
        """The Matcher of those nodes that the policy allows.

        :param counted: fleet.Fleet; None where the request names its nodes.
        """
        wanted = self._wanted
        if wanted is None or wanted.policy is None:
            return matcher
        members = self.group.domains if self._has_members() else {}
        room = {}
        if counted and placing.asks_for_room(wanted.policy, members):
            room = placing.free(matcher.matching(counted), wanted.by)
        return dataclasses.replace(matcher, placing=placing.Placing(
            wanted.policy, wanted.by, tuple(members.items()), room))

    def enter(self, connection, node):
        """Have a group to be a member of, before the member is written.

        :param connection: in whose transaction this is.
        :param node: matching.Node.
        :returns: dict of the columns of the member's row.
        :raises: Changed, to be raised through the transaction.
        """
        if self._wanted is None:
            return {}
        group_id = (self.group.id if self._has_members()
                    else begin(connection, self._wanted, self.group))
        return {'group_id': group_id,
                'domain': placing.domain(node, self._wanted.by)}

    def confirm(self, connection):
        """Let the transaction go through only if the group is as it was read.

        It is the last statement about the group, because others who hold
        nodes for it wait from here on.

        :raises: Changed, to be raised through the transaction.
        """
        if self._has_members() and not connection.execute(
                queries.GROW, queries.as_read(self.group)).rowcount:
            raise Changed()

    def shown(self):
        """What a Reservation shows of its group, as a dict."""
        return self._wanted.shown() if self._wanted else {}


def begin(connection, wanted, empty, asked=None):
    """Insert the row of a group.

    Its unique key tells whether another has done so meanwhile.

    :param wanted: Wanted.
    :param empty: Group of the same UUID, as it was read without any members;
        None where there was none.
    :param asked: see models.Group.
    :returns: the row's id.
    :raises: Changed; DBDuplicateEntry.
    """
    if empty is not None and not connection.execute(
            queries.DELETE_GROUP, queries.as_read(empty)).rowcount:
        raise Changed()
    [group_id] = connection.execute(queries.INSERT_GROUP, {
        **vars(wanted), 'asked': asked}).inserted_primary_key
    return group_id
