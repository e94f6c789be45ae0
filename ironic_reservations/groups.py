# SPDX-License-Identifier: Apache-2.0
"""Groups as a whole: all members held at once or none, shown, released.

All nodes of a new group are held in one transaction, in the order of their
ids, in which every such transaction locks them. What it goes by was read
before; if one node was lost to another meanwhile, none is held, and the
search begins again.
"""

import collections
import dataclasses
import datetime
import math
import time

from oslo_db import exception as db_exc
from oslo_log import log
import sqlalchemy as sa

from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import explanation
from ironic_reservations import fleet
from ironic_reservations import matching
from ironic_reservations import membership
from ironic_reservations import metrics
from ironic_reservations import placing
from ironic_reservations import quota
from ironic_reservations import reservations
from ironic_reservations import search
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import queries

LOG = log.getLogger(__name__)

#: Of how many groups the members are counted at once.
AT_ONCE = 100

#: How many members of a group are released in one transaction.
PAGE = 64


@dataclasses.dataclass(frozen=True)
class Group:
    """A group and its live members.

    :param id: primary key, never used again.
    :param generation: grows whenever a member is added or taken out.
    :param members: tuple of reservations.Reservation, without their request
        specs.
    """

    id: int
    uuid: str
    policy: str | None
    by: str | None
    project_id: str | None
    generation: int
    created_at: datetime.datetime
    members: tuple

    #: The policy asks for it, as it does of a reservation: the owner of a
    #: member's node has no say in the group.
    node_owner = None


@dataclasses.dataclass(frozen=True)
class Request:
    """A new group.

    :param wanted: membership.Wanted.
    :param instances: canonical UUIDs, one for each member.
    :param asked: a digest of what is asked for, to tell a repeated request.
    :param owner: reservations.Owner.
    :param lease: seconds, or None for no end.
    :param quota: quota.Quota, by which its members are limited.
    :param written: the ids of the groups that this request has written: see
        reservations.Request.
    """

    wanted: membership.Wanted
    instances: tuple[str, ...]
    asked: str
    owner: reservations.Owner
    lease: int | None
    quota: 'quota.Quota' = dataclasses.field(default_factory=quota.Quota)
    written: set = dataclasses.field(default_factory=set)


def create(matcher, request):
    """Hold a node for each member of a new group, or for none.

    Asking again for the same begins the leases of its members anew.

    :param matcher: matching.Matcher that each node must satisfy.
    :param request: Request.
    :returns: the Group, and True when this call has made it.
    :raises: NoMatchingNode; QuotaExceeded when there were enough nodes;
        Conflict when there is another group of this UUID, or a member holds
        a node already, or one that the project may use no longer;
        DeadlineExceeded.
    """
    group, created = _create(matcher, request)
    if created:
        for member in group.members:
            events.tell(events.HELD, member)
    return group, created


@engine.retry
def _create(matcher, request):
    """``create``, run again where the database has aborted it."""
    candidates = matcher.spec.candidate_nodes
    began = time.monotonic()
    counted = fleet.fresh(candidates) if candidates else fleet.recent()
    fresh, in_vain = bool(candidates), 0
    while True:
        before = reservations.read_group(request.wanted.uuid)
        if before is not None and not before.is_empty:
            try:
                return _repeat(before, matcher, request)
            except membership.Changed:
                engine.check_deadline()
                continue
        nodes = _choose(matcher, counted, request, fresh)
        held = nodes and _take(matcher, request, nodes, before)
        if held:
            return held, True
        engine.check_deadline()
        request.quota.check_choice(matcher.spec)
        if not nodes:
            rooms = fresh and _rooms(matcher, counted, request)
            counted = _recount(matcher, request, in_vain,
                               None if fresh else began)
            # Whoever takes and gives back nodes while they are searched for
            # is no reason to say that there are none.
            alike = rooms == _rooms(matcher, counted, request)
            fresh, in_vain = True, (in_vain + 1 if alike
                                    or request.quota.refusal else 0)


def _rooms(matcher, counted, request):
    """placing.Room by domain."""
    return placing.rooms(matcher.matching(counted),
                         request.wanted.by, matcher.fit)


def _recount(matcher, request, in_vain, since):
    """Count the fleet, because it had not enough: see reservations.

    :param in_vain: how many searches before this one have found less than
        was counted both before and after them.
    :raises: NoMatchingNode.
    """
    reservations.give_back_lapsed()
    counted = fleet.fresh(matcher.spec.candidate_nodes, since)
    verdict = explanation.verdict_on_group(
        matcher, counted, request.wanted, len(request.instances))
    if (verdict['members']['available'] < len(request.instances)
            or in_vain >= reservations.IN_VAIN):
        raise request.quota.refusal or explanation.refusal(
            verdict, matcher.restricted_to)
    return counted


def _choose(matcher, counted, request, fresh):
    """The nodes to hold, in the order of their ids.

    :param counted: fleet.Fleet.
    :param fresh: whether it was counted for this request.
    :returns: list of matching.Node; empty where there are not enough.
    """
    by, policy = request.wanted.by, request.wanted.policy
    matcher, left = request.quota.narrow(matcher), request.quota.left
    by_domain, taken = collections.defaultdict(list), collections.Counter()
    matches = matcher.matching(counted)
    for profile in matches:
        by_domain[placing.domain(profile.node, by)].append(profile)
    plan = placing.plan(
        policy, placing.rooms(matches, by, matcher.fit, left),
        len(request.instances)) or {}
    chosen = []
    for where, members in plan.items():
        found = {}
        for node in search.search(
                matcher, fleet.Fleet(tuple(by_domain[where])), fresh):
            # Where a statement reads more profiles than it can tell apart,
            # there are nodes of other domains among those that it finds.
            counts_as = matching.limited(node.resource_class)
            if (placing.domain(node, by) == where and node.id not in found
                    and taken[counts_as] < left(node.resource_class)):
                found[node.id] = node
                taken[counts_as] += 1
            if len(found) == members:
                break
        else:
            return []
        chosen += found.values()
    return sorted(chosen, key=lambda node: node.id)


def _take(matcher, request, nodes, before):
    """One transaction; None when a node is no longer as it was read.

    :param before: membership.Group without members that this one replaces.
    :returns: Group.
    """
    try:
        with engine.transaction() as connection:
            request.quota.enter(connection)
            rows = []
            for instance_uuid, node in zip(request.instances, nodes,
                                           strict=True):
                updated = connection.execute(*queries.hold(
                    node, matcher, instance_uuid))
                if not updated.rowcount:
                    metrics.conflict()
                    LOG.debug('Node %s was lost to another', node.uuid)
                    connection.rollback()
                    return None
                rows.append(reservations.row(
                    matcher, instance_uuid, request.owner, node,
                    functions.time_of(connection, updated), request.lease)
                    | {'domain': placing.domain(node, request.wanted.by)})
            group_id = membership.begin(connection, request.wanted, before,
                                        request.asked)
            request.written.add(group_id)
            rows = [{**row, 'group_id': group_id} for row in rows]
            connection.execute(queries.INSERT, rows)
            group = connection.execute(
                queries.group(request.wanted.uuid)).one()
            request.quota.check(connection, nodes)
        return _group(group, (
            reservations.made(node, id=None, **row, **request.wanted.shown())
            for node, row in zip(nodes, rows, strict=True)))
    except membership.Changed:
        metrics.conflict()
        LOG.debug('Group %s has changed', request.wanted.uuid)
    except quota.Exceeded:
        LOG.debug('%s', request.quota.refusal)
    except db_exc.DBDuplicateEntry:
        # Another has begun the group; or an instance holds a node already,
        # or a row whose node has moved on stands in the way.
        for instance_uuid, node in zip(request.instances, nodes, strict=True):
            reservations.purge(instance_uuid, node.id)
            reservations.check_unused(instance_uuid)
    return None


def _group(row, members):
    """A Group of its row."""
    facts = dict(row._mapping)
    del facts['asked']
    return Group(**facts, members=tuple(members))


def _repeat(before, matcher, request):
    """The answer where the group has members already.

    :raises: Conflict when they are not this request's, or the project may
        use the node of one no longer; Changed when the last of them has just
        gone.
    """
    own = before.id in request.written
    if not own and not (
            before.is_wanted(request.wanted)
            and before.asked == request.asked
            and before.domains.total() >= len(request.instances)
            and matcher.restricted_to in (None, before.project_id)):
        raise membership.in_use(request.wanted.uuid)
    group = _same(before)
    if own:
        return group, True
    if matcher.restricted_to is not None:
        # All are judged before the first is renewed, because a refused
        # request changes nothing.
        for member in group.members:
            reservations.check_usable(member)
    # What a compute host has claimed has a lease of that host's own.
    renewed = {member.id for member in group.members
               if member.host in (None, request.owner.host)
               and reservations.renew(member, request.lease,
                                      matcher.restricted_to is not None)}
    group = _same(before)
    for member in group.members:
        if member.id in renewed:
            events.tell(events.RENEWED, member)
    return group, False


def _same(before):
    """The Group that a membership.Group was.

    :raises: Changed when it is gone, or another has its UUID by now.
    """
    for row in engine.rows(queries.group(before.uuid)):
        members = reservations.of_group(row.id)
        if row.id == before.id and members:
            return _group(row, members)
    raise membership.Changed()


@engine.retry
def get(uuid, authorize=lambda group: None):
    """A group with its members.

    :param authorize: called with the Group, without its members, before they
        are read, because the time that they take would tell the caller of a
        group that it may not see. It raises when the caller may not do this
        to the group.
    :returns: Group.
    :raises: NotFound when there is none, or none of its members is left; what
        ``authorize`` raises.
    """
    for row in engine.rows(queries.group(uuid)):
        authorize(_group(row, ()))
        members = reservations.of_group(row.id)
        if members:
            return _group(row, members)
    raise not_found(uuid)


def not_found(uuid):
    return exception.NotFound(f'No group {uuid} could be found.')


@engine.retry
def find(limit, restricted_to=None, marker=None, room=math.inf):
    """Groups that have members, in the order in which they were begun.

    :param limit: how many at most.
    :param restricted_to: when given, only this project's.
    :param marker: UUID of the last group of the page before.
    :param room: how many characters of the names of domains are of use; no
        more are read once there are as many.
    :returns: list of membership.Group, whose ``remains`` is not known.
    :raises: InvalidInput when there is no such marker.
    """
    after = None
    if marker is not None:
        found = engine.rows(queries.group(marker))
        if not found or restricted_to not in (None, found[0].project_id):
            raise exception.InvalidInput('marker',
                                         'must be the UUID of a group')
        after = found[0].id
    found, length = [], 0
    while True:
        wanted = min(limit - len(found), AT_ONCE)
        rows = engine.rows(queries.live_groups(restricted_to, after, wanted))
        # Members may go between the two statements; a page that is not full
        # would be taken for the last one.
        for each in _counted(rows):
            found.append(each)
            length += sum(len(name or '') for name in each.domains)
        if len(rows) < wanted or len(found) == limit or length > room:
            return found
        after = rows[-1].id


def _counted(rows):
    """membership.Group of each of those rows that have members."""
    domains = collections.defaultdict(collections.Counter)
    for group_id, domain, number in rows and engine.rows(
            queries.domains([row.id for row in rows])):
        domains[group_id][domain] = number
    return [membership.Group(**row._mapping, domains=domains[row.id],
                             remains=False)
            for row in rows if row.id in domains]


def release(uuid, authorize, bound):
    """Release those members of a group that may be released.

    Many go in one transaction. What is released stays so if others are left.

    :param authorize: called with the Group; it raises when the caller may
        not release it.
    :param bound: see reservations.release.
    :raises: NotFound; Conflict and DeadlineExceeded, which say how many are
        left, also where the database fails after some were released; what
        ``authorize`` raises.
    """
    done = _Release(uuid, authorize, bound)
    try:
        done.run()
    except (exception.DeadlineExceeded, db_exc.DBDeadlock) as e:
        if not done.left:
            raise
        raise done.unfinished('the time of the request is over') from e
    except (db_exc.DBConnectionError, sa.exc.OperationalError,
            sa.exc.TimeoutError) as e:
        if not done.left < done.seen:
            raise
        LOG.error('The database fails while group %s is released', uuid,
                  exc_info=e)
        raise done.unfinished('the database cannot be used') from e
    if done.refused:
        raise exception.Conflict(
            f'{len(done.refused)} of {len(done.seen)} members of group '
            f'{uuid} cannot be released: {next(iter(done.refused.values()))}')


class _Release:
    """How far the release of a group is.

    Members are told by the ids of their rows: what an instance claims
    meanwhile is another member.

    :ivar seen: all that there are and were, once the caller has turned out
        to be one who may release them.
    :ivar left: those of them that are not known to be released.
    :ivar refused: those that may not be released, and the Conflict of each.
    """

    def __init__(self, uuid, authorize, bound):
        self._uuid, self._authorize, self._bound = uuid, authorize, bound
        self._group = None
        self.seen, self.left, self.refused = set(), set(), {}
        #: The Reservations of a transaction whose outcome is not known,
        #: because the answer to its COMMIT may have been lost.
        self._tried = []

    def unfinished(self, why):
        """The error that says how far it came.

        :returns: exception.DeadlineExceeded.
        """
        return exception.DeadlineExceeded(
            f'{len(self.left)} of {len(self.seen)} members of group '
            f'{self._uuid} are left, and {why}; try again.')

    @engine.retry
    def run(self):
        """Release page by page, until a round through them finds no more."""
        if self._group is None:
            self._group = get(self._uuid, self._authorize)
            self._meet(self._group.members)
        elif self._tried:
            # They went together or not at all, if it was here. A row may be
            # there that does not count any more, and one that is gone may
            # have been deleted by another.
            there = {row.id for row in
                     engine.rows(queries.of_group(self._group.id, ['id']))}
            tried, self._tried = self._tried, []
            if not any(each.id in there for each in tried):
                self._has_released(tried)
        while self._round():
            engine.check_deadline()

    def _round(self):
        """Whether there were members that had not been refused before."""
        behind, found = 0, False
        while True:
            page = reservations.some_of_group(self._group.id, behind, PAGE)
            self._meet(page)
            untried = [each for each in page if each.id not in self.refused]
            if untried:
                found = True
                engine.check_deadline()
                self._release(untried)
            if len(page) < PAGE:
                return found
            behind = page[-1].node_id

    def _meet(self, members):
        new = {each.id for each in members} - self.seen
        self.seen |= new
        self.left |= new

    def _release(self, page):
        """Release those of a page that may be released."""
        for each in page:
            try:
                reservations.check_releasable(each, self._bound)
            except exception.Conflict as refused:
                self.refused[each.id] = refused
        tried = [each for each in page if each.id not in self.refused]
        try:
            released = tried and reservations.let_go(tried, self._bound)
        except db_exc.DBConnectionError:
            self._tried = tried
            raise
        # Otherwise one of them is no longer as it was read. The next round
        # reads all of them again.
        if released:
            self._has_released(tried)

    def _has_released(self, members):
        self.left -= {each.id for each in members}
        for each in members:
            events.tell(events.RELEASED, each)
