# SPDX-License-Identifier: Apache-2.0
"""Hold, adopt, renew, release: the only module that writes reservations.

A reservation is the row of our table and the node's ``instance_uuid``, both
written in one transaction whose first statement is the guarded update of the
node. What that statement's WHERE says, and the unique keys on
``nodes.instance_uuid``, ``reservations.instance_uuid`` and
``reservations.node_id``, is the whole of our locking: it holds among
threads, processes, hosts and the members of a Galera cluster alike.
"""

import dataclasses
import datetime
import json
import math
import time

from oslo_db import exception as db_exc
from oslo_log import log

from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import explanation
from ironic_reservations import fleet
from ironic_reservations import hosts
from ironic_reservations import interval
from ironic_reservations import matching
from ironic_reservations import membership
from ironic_reservations import metrics
from ironic_reservations import quota
from ironic_reservations import search
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import queries

LOG = log.getLogger(__name__)

#: When a hold looks for lapsed leases in passing.
PASSING = interval.Interval(0.25)

#: How many of them it ends then. All of them are ended before a request is
#: told that there is no node.
IN_PASSING = 10

#: After so many searches in vain, all by fresh counts with a matching node,
#: its properties are taken for something that Python reads otherwise than
#: the database does.
IN_VAIN = 3

# What Ironic's provision states mean for a reservation.
PROVISION_STATES = {
    'reserved': ('available',),
    'deploying': ('deploying', 'wait call-back', 'deploy hold',
                  'deploy complete', 'rebuild'),
    'active': ('active', 'adopting', 'rescue', 'rescuing', 'rescue wait',
               'rescue failed', 'unrescuing', 'unrescue failed', 'service',
               'servicing', 'service wait', 'service failed',
               'service hold'),
    'releasing': ('deleting', 'deleted', 'undeploy'),
    'error': ('deploy failed', 'error', 'adopt failed'),
}

#: A provision state that is none of these is one in which the operator has
#: moved the node elsewhere.
UNAVAILABLE = 'unavailable'

STATES = (*PROVISION_STATES, UNAVAILABLE)

#: What a list may be sorted by.
SORT_KEYS = ('id', 'instance_uuid', 'node_uuid', 'host', 'project_id',
             'user_id', 'expires_at', 'created_at', 'updated_at')

#: In these a node is at rest and bears no instance: it may be let go.
RELEASABLE = ('available', 'manageable', 'enroll', 'clean failed',
              'inspect failed')


#: In these it is at rest, whether or not it bears an instance.
AT_REST = ('available', 'manageable', 'active', 'rescue', 'deploy failed',
           'error', 'adopt failed', 'rescue failed', 'unrescue failed',
           'service failed', 'clean failed', 'inspect failed')


@dataclasses.dataclass(frozen=True)
class Reservation:
    """A node held for an instance, as it is now.

    What was not read of it is None, such as the request spec wherever more
    than one are read and none is compared or shown.

    :param id: primary key, never used again.
    :param provision_state: Ironic's word for where the node is.
    :param resource_class: of the node, as Ironic spells it.
    :param node_owner: the project that owns the node, or None.
    :param node_lessee: the project that leases the node, or None.
    :param request_spec: canonical JSON text of what was asked for.
    :param lock: the conductor that has the node's lock, or None.
    :param allocated: whether the node has an allocation of Ironic's.
    :param touched: whether something has begun on the node.
    :param lapsed: whether the lease is over and the node is free again.
    :param expires_at: what is stored: see ``ends_at``.
    :param group_id: the row of the group that it is a member of, or None.
    :param domain: of the node in that group: see placing.domain.
    """

    id: int
    instance_uuid: str
    node_id: int
    node_uuid: str
    node_name: str | None
    host: str | None
    project_id: str | None
    user_id: str | None
    request_spec: str
    provision_state: str
    resource_class: str | None
    node_owner: str | None
    node_lessee: str | None
    maintenance: bool | None
    lock: str | None
    allocated: bool
    touched: bool
    lapsed: bool
    expires_at: datetime.datetime | None
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    group_id: int | None = None
    domain: str | None = None
    group_uuid: str | None = None
    group_policy: str | None = None
    group_by: str | None = None

    @property
    def state(self):
        """One of ``STATES``."""
        return state_of(self.provision_state)

    @property
    def ends_at(self):
        """When its lease is over, which is told as ``expires_at``.

        It is None where the reservation does not end by itself. Of a node
        that is past ``reserved`` the time of the lease may still be stored,
        but nothing will be done when it comes.
        """
        return self.expires_at if self.state == 'reserved' else None


def state_of(provision_state):
    """The state of a reservation whose node is there: one of ``STATES``."""
    for state, provision_states in PROVISION_STATES.items():
        if provision_state in provision_states:
            return state
    return UNAVAILABLE


@dataclasses.dataclass(frozen=True)
class Owner:
    """For whom a node is held; any of it may be None."""

    host: str | None = None
    project_id: str | None = None
    user_id: str | None = None


@dataclasses.dataclass(frozen=True)
class Request:
    """For whom a node is to be held, and how far that is.

    :param instance_uuid: canonical UUID of the instance.
    :param lease: seconds after which the reservation is over if nothing has
        begun on the node; None for no end.
    :param project_id: the project that the caller has named. A reservation
        that the instance has already must be that project's.
    :param holder: when given, only while the owner's host is this holder's.
    :param group: membership.Wanted of which the reservation is to be a
        member, or None.
    :param quota: quota.Quota, by which a new reservation is limited.
    :param written: the ids of the rows that it has written. Where the
        connection was lost at a COMMIT, nobody knows what became of it; a
        row with such an id is this request's own.
    :param moved: the ids of the rows that it has moved to its host.
    """

    instance_uuid: str
    owner: Owner
    lease: int | None = None
    project_id: str | None = None
    holder: str | None = None
    group: membership.Wanted | None = None
    quota: 'quota.Quota' = dataclasses.field(default_factory=quota.Quota)
    written: set = dataclasses.field(default_factory=set)
    moved: set = dataclasses.field(default_factory=set)


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
    reservation, created = _hold(matcher, request)
    if created:
        metrics.held(time.monotonic() - began)
        events.tell(events.HELD, reservation)
    return reservation, created


@engine.retry
def _hold(matcher, request):
    """``hold``, run again where the database has aborted it."""
    if not request.written:
        # What was committed unnoticed, before a takeover, is told as done.
        hosts.check(request.owner.host, request.holder)
    if PASSING.due() and give_back_lapsed(IN_PASSING) == IN_PASSING:
        PASSING.again()
    began = time.monotonic()
    answer = repeat(matcher, request) if request.written else None
    # Nodes that a request names are looked up without a count.
    counted = None if matcher.spec.candidate_nodes else fleet.recent()
    fresh, in_vain = False, 0
    while answer is None:
        place = membership.Place(request.group, read_group)
        placed = place.narrow(request.quota.narrow(matcher), counted)
        held, tried = _take_best(placed, request, counted, fresh, place)
        # That the instance is not a new one is told by the unique keys, or
        # by a search that has found no node: so it is asked only here.
        answer = (held, True) if held else repeat(matcher, request)
        if answer is None:
            engine.check_deadline()
            request.quota.check_choice(matcher.spec)
            if tried is None:
                in_vain += fresh
                counted = _recount(placed, in_vain, None if fresh else began,
                                   request.quota)
                fresh = True
    return answer


def _recount(matcher, in_vain, since, limited):
    """Count the fleet, because a search has found no node.

    Only a count that is younger than the request may say that there is none,
    and only after all that has lapsed was given back. Where such a count has
    a node that a search then does not find, it was locked, changed or given
    back in between, and is counted again.

    :param in_vain: how many searches have gone by such counts and have found
        nothing at all.
    :param since: see fleet.fresh.
    :param limited: the request's quota.Quota.
    :returns: fleet.Fleet that has matching nodes.
    :raises: NoMatchingNode; QuotaExceeded where a node was passed over.
    """
    give_back_lapsed()
    counted = fleet.fresh(matcher.spec.candidate_nodes, since)
    verdict = explanation.verdict(matcher, counted)
    if not verdict['matching_nodes'] or in_vain >= IN_VAIN:
        raise limited.refusal or explanation.refusal(verdict,
                                                     matcher.restricted_to)
    return counted


def _take_best(matcher, request, counted, fresh, place):
    """Hold the first node of a search that can be had.

    :param counted: fleet.Fleet by which to search.
    :param fresh: whether it was counted for this request.
    :param place: membership.Place.
    :returns: the Reservation or None, and the last node that was tried.
    """
    node = None
    try:
        for node in search.search(matcher, counted, thorough=fresh):
            held = take(matcher, request, node, place)
            if held is not None:
                return held, node
            LOG.debug('Node %s was lost to another', node.uuid)
            engine.check_deadline()
    except db_exc.DBDuplicateEntry:
        # The instance holds a node already, or a row whose node has moved on
        # stands in the way of the new one.
        purge(request.instance_uuid, node.id)
    except membership.Changed:
        metrics.conflict()
        LOG.debug('Group %s has changed', request.group.uuid)
    except quota.Exceeded:
        LOG.debug('Node %s is passed over: %s', node.uuid,
                  request.quota.refusal)
    return None, node


def take(matcher, request, node, place):
    """One transaction; None when the node is no longer as it was read.

    :param place: membership.Place, or what is like it.
    :returns: Reservation: what the guard has seen and what was written.
    :raises: membership.Changed, quota.Exceeded.
    """
    with engine.transaction() as connection:
        request.quota.enter(connection)
        updated = connection.execute(*queries.hold(
            node, matcher, request.instance_uuid, place.claimed_id))
        if not updated.rowcount:
            metrics.conflict()
            return None
        values = {
            **row(matcher, request.instance_uuid, request.owner, node,
                  functions.time_of(connection, updated), request.lease),
            **place.enter(connection, node)}
        [row_id] = connection.execute(
            queries.INSERT, values).inserted_primary_key
        request.written.add(row_id)
        place.confirm(connection)
        hosts.fence(connection, request.owner.host, request.holder)
        request.quota.check(connection, [node])
    return made(node, id=row_id, **values, **place.shown())


def made(node, **values):
    """A Reservation that was just made.

    :param node: matching.Node, which the guard has seen to be so.
    """
    return Reservation(
        node_name=node.name, resource_class=node.resource_class,
        node_owner=node.owner, node_lessee=node.lessee,
        provision_state='available', maintenance=False, lock=None,
        allocated=False, touched=False, lapsed=False, updated_at=None,
        **values)


def row(matcher, instance_uuid, owner, node, now, lease):
    """The row of a reservation that is no group's, as a dict."""
    return {
        'instance_uuid': instance_uuid, 'node_id': node.id,
        'node_uuid': node.uuid, 'request_spec': matcher.spec.canonical,
        'created_at': now,
        'expires_at': lease and now + datetime.timedelta(0, lease),
        **vars(owner)}


def read_group(uuid):
    """A group, after what is left of its former members was ended.

    A node whose lease is over, or which has lost its instance, counts again
    when something begins on it, or somebody gives it the instance back. By
    then another member may be where it was.

    :returns: membership.Group, or None.
    """
    while True:
        found = membership.read(uuid)
        if found is None or not found.remains:
            return found
        for left in _reservations(queries.of_group(found.id)):
            if left.lapsed:
                _give_back(left)
            purge(left.instance_uuid)
        engine.check_deadline()


def repeat(matcher, request):
    """The answer to a request whose instance holds a node already.

    Nova builds an instance on one host at a time, so the later host is right
    as long as nothing has begun on the node. A caller who is bound to its
    project changes nothing of what a host holds: neither does it end a build
    with a short lease, nor does it keep the machine with one that never ends.

    :returns: None when it holds none, or has just lost it.
    :raises: Conflict when it holds one that this request may not have.
    """
    held, owner = _held(request.instance_uuid), request.owner
    if held is None:
        return None
    same_host = owner.host in (None, held.host)
    if (held.request_spec != matcher.spec.canonical
            or matcher.restricted_to not in (None, held.project_id)
            or request.project_id not in (None, held.project_id)
            or not matching.visible(held.node_owner, held.node_lessee,
                                    matcher.restricted_to)
            or held.state not in ('reserved', 'deploying', 'active')
            or not (same_host or held.state == 'reserved')):
        raise _in_use(held.instance_uuid)
    if held.id in request.written and owner == Owner(
            held.host, held.project_id, held.user_id):
        return held, True
    bound = matcher.restricted_to is not None
    if not same_host:
        request.moved.add(held.id)
    moved = held.id in request.moved
    if held.state != 'reserved' or bound and held.host is not None or (
            not moved and request.lease is None and held.expires_at is None):
        return held, False
    changes = {'lease': request.lease}
    if owner.host is not None:
        changes['host'] = owner.host
    with engine.transaction() as connection:
        if not connection.execute(queries.update(
                held.id, PROVISION_STATES['reserved'], changes,
                None if bound else queries.ANY_HOST)).rowcount:
            return None
        hosts.fence(connection, owner.host, request.holder)
    renewed = _held(held.instance_uuid)
    if renewed is None or renewed.id != held.id:
        return None
    events.tell(events.MOVED if moved else events.RENEWED, renewed)
    return renewed, False


def renew(held, lease, bound):
    """Begin the lease of a reservation anew if nothing has begun on its node.

    :param lease: seconds, or None for no end.
    :param bound: see ``update``.
    :returns: whether it was done.
    """
    if held.state != 'reserved' or bound and held.host is not None or (
            lease is None and held.expires_at is None):
        return False
    with engine.transaction() as connection:
        return connection.execute(queries.update(
            held.id, PROVISION_STATES['reserved'], {'lease': lease},
            held.host)).rowcount > 0


def check_unused(instance_uuid):
    """Raise Conflict when an instance holds a node."""
    if _held(instance_uuid) is not None:
        raise _in_use(instance_uuid)


def adopt(instance_uuid, spec, owner, holder=None, group=None):
    """Make a reservation of the node that carries an instance already.

    Nothing of the node is written. Adopting again for the same host stores
    the request spec anew, and the project and user if they are named: a
    rebuild may have changed them.

    :param spec: request_spec.RequestSpec, with which the node is not
        compared.
    :param owner: Owner.
    :param holder: when given, only while the owner's host is this holder's.
    :param group: membership.Wanted of which the reservation is a member from
        now on, whatever the group's policy says of the node, unless it is a
        member of one already; or None.
    :returns: the Reservation, and True when this call has made it.
    :raises: NotFound when no node carries the instance; Conflict when another
        host holds it, or the node is at work or has an allocation, or the
        group is another one; PreconditionFailed when the host is not the
        holder's; DeadlineExceeded.
    """
    reservation, created = _adopt(instance_uuid, {
        **vars(owner), 'request_spec': spec.canonical}, holder, group)
    events.tell(events.ADOPTED if created else events.REFRESHED, reservation)
    return reservation, created


@engine.retry
def _adopt(instance_uuid, values, holder, group):
    hosts.check(values['host'], holder)
    while True:
        place = membership.Place(group, read_group)
        if _adopt_new(instance_uuid, values, holder, place):
            return get(instance_uuid), True
        for row in engine.rows(queries.carrier(instance_uuid)):
            carried = _reservation(row)
            if carried.lapsed:
                _give_back(carried)
                raise not_found(instance_uuid)
            _check_adoptable(instance_uuid, carried, values['host'])
            # Whatever is a member of a group stays so, and where it was.
            stays = membership.Place(None) if carried.group_uuid else place
            if carried.id is not None and _adopt_again(
                    carried, values, holder, stays):
                return get(instance_uuid), False
            break
        else:
            raise exception.NotFound(
                f'No node carries instance {instance_uuid}.')
        engine.check_deadline()


def _carrying(instance_uuid):
    """The matching.Node that carries an instance, in a list."""
    return [search.node_of(row._mapping)
            for row in engine.rows(queries.carrying(instance_uuid))]


def _adopt_new(instance_uuid, values, holder, place):
    """One transaction; False when the instance cannot be adopted so."""
    for node in _carrying(instance_uuid):
        try:
            with engine.transaction() as connection:
                adopted = connection.execute(queries.adopt(
                    node.id, instance_uuid, AT_REST,
                    {**values, **place.enter(connection, node)})).rowcount
                if adopted:
                    place.confirm(connection)
                    hosts.fence(connection, values['host'], holder)
                else:
                    connection.rollback()
                return adopted
        except db_exc.DBDuplicateEntry:
            # It may be a row whose node has moved on that stands in the way.
            purge(instance_uuid, node.id)
        except membership.Changed:
            LOG.debug('The group of %s has changed', instance_uuid)
    return False


def _adopt_again(held, values, holder, place):
    """One transaction; False when the reservation is no longer as read."""
    named = {name: value for name, value in values.items()
             if value is not None}
    try:
        for node in _carrying(held.instance_uuid):
            with engine.transaction() as connection:
                updated = connection.execute(queries.update(
                    held.id, AT_REST,
                    {**named, 'lease': None,
                     **place.enter(connection, node)}, held.host)).rowcount
                if updated:
                    place.confirm(connection)
                    # That is the reservation's host from now on, also where
                    # it had none.
                    hosts.fence(connection, values['host'], holder)
                else:
                    connection.rollback()
            return updated
    except (db_exc.DBDuplicateEntry, membership.Changed):
        # Another has begun the group, or has joined it.
        LOG.debug('The group of %s has changed', held.instance_uuid)
    return False


def _check_adoptable(instance_uuid, carried, host):
    """Raise unless a host may adopt an instance.

    :param carried: Reservation, with the node alone where there is none yet.
    :raises: Conflict.
    """
    if None not in (carried.id, carried.host, host) and carried.host != host:
        raise _in_use(instance_uuid)
    if carried.lock is not None:
        raise exception.Conflict(
            f'The node of instance {instance_uuid} is locked by a conductor; '
            f'try again.')
    if carried.provision_state not in AT_REST:
        raise exception.Conflict(
            f'The node of instance {instance_uuid} is '
            f'{carried.provision_state}; it can be adopted while the node is '
            f'at rest.')
    if carried.allocated:
        raise exception.Conflict(
            f'The node of instance {instance_uuid} has an allocation of '
            f'Ironic\'s, which holds it.')


_UNREAD = {field.name: None for field in dataclasses.fields(Reservation)}


def _reservation(row):
    return Reservation(**{**_UNREAD, **row._mapping})


@engine.retry
def _reservations(query):
    return list(map(_reservation, engine.rows(query)))


def _held(instance_uuid):
    """The live reservation of an instance, or None when no node carries it.

    :raises: Conflict when a node carries it without a reservation.
    """
    for row in engine.rows(queries.carrier(instance_uuid)):
        if row.id is None:
            raise _in_use(instance_uuid)
        held = _reservation(row)
        if not held.lapsed:
            return held
        _give_back(held)
    return None


def _in_use(instance_uuid):
    # The same words whoever holds it, and for whatever.
    return exception.Conflict(
        f'Instance {instance_uuid} already holds a node, for another request '
        f'or in a state that does not allow this one.')


@engine.retry
def _give_back(held):
    """Free the node of a lapsed reservation; False when it lapsed no more.

    One transaction: the node must still be untouched, and the lease must not
    have been renewed meanwhile.
    """
    with engine.transaction() as connection:
        given_back = (
            connection.execute(*queries.give_back(held)).rowcount
            and delete(connection, queries.delete_expired(held), held))
        if not given_back:
            connection.rollback()
    if given_back:
        events.tell(events.EXPIRED, held)
    return bool(given_back)


def delete(connection, statement, held):
    """Delete reservations' rows, and with a group's last member the group.

    The group's row is written before, so that of two who delete its last
    members at the same moment the second waits for the first, or is aborted,
    also where they meet on two members of a Galera cluster. Otherwise each
    would still see the member that the other deletes, and leave the group.

    :param connection: in whose transaction this is.
    :param statement: that deletes the rows.
    :param held: Reservation, as it was read; of several, which are of one
        group, any.
    :returns: how many rows it has deleted. For too few the caller rolls back.
    """
    if held.group_id is None:
        return connection.execute(statement).rowcount
    of_group = {'of_group': held.group_id}
    connection.execute(queries.SHRINK, of_group)
    deleted = connection.execute(statement).rowcount
    connection.execute(queries.END_GROUP, of_group)
    return deleted


def give_back_lapsed(limit=None, check=engine.check_deadline):
    """Free nodes whose leases are over.

    :param limit: how many reservations to look at; None for all.
    :param check: called before each, to end what takes too long.
    :returns: how many nodes are free again.
    """
    expired = _reservations(queries.expired(limit))
    if any(each.state == 'active' for each in expired):
        # What is deployed needs its lease no more. Without this, whoever
        # looks for lapsed leases would read every instance that there is.
        _end_leases_of_active()
    given_back = 0
    for each in expired:
        if each.lapsed:
            check()
            given_back += _give_back(each)
    return given_back


@engine.retry
def _end_leases_of_active():
    with engine.transaction() as connection:
        connection.execute(queries.end_leases(PROVISION_STATES['active']))


def sweep():
    """Give back every node whose lease is over, and purge finished rows.

    It may take longer than a request. Therefore each of its steps is a run of
    its own, which the database may abort and which has the whole deadline to
    be tried again; what was done before is neither lost nor done again.

    :returns: numbers of nodes given back and rows purged.
    """
    numbers = give_back_lapsed(check=lambda: None), purge()
    for group in _empty_groups():
        end_group(group)
    return numbers


@engine.retry
def _empty_groups():
    return engine.rows(queries.EMPTY_GROUPS)


@engine.retry
def end_group(group):
    """Delete a group's row unless it has members.

    :param group: membership.Group, or what has its id and generation.
    """
    with engine.transaction() as connection:
        connection.execute(queries.DELETE_GROUP, queries.as_read(group))


@engine.retry
def overdue():
    """Reservations past their lease that are kept: their nodes are touched.

    Nodes that Ironic or an instance is at work on are not among them. Those
    whose deployment has failed are: their host may be dead.

    :returns: list of Reservation, the longest overdue first.
    """
    return _reservations(queries.overdue(
        [each for state in ('deploying', 'active', 'releasing')
         for each in PROVISION_STATES[state]]))


def purge(instance_uuid=None, node_id=None):
    """Delete reservations whose nodes carry their instances no longer.

    :param instance_uuid: only this instance's,
    :param node_id: or this node's; None and None for all.
    :returns: how many were deleted.
    """
    purged = 0
    for stale in _reservations(queries.stale(instance_uuid, node_id)):
        deleted = _delete_stale(stale)
        if deleted:
            events.tell(events.LOST, stale)
        purged += deleted
    return purged


@engine.retry
def _delete_stale(held):
    with engine.transaction() as connection:
        deleted = delete(connection, queries.delete_stale(held), held)
        if not deleted:
            connection.rollback()
    return deleted


@engine.retry
def get(instance_uuid, authorize=lambda reservation: None):
    """The reservation of an instance.

    Whoever is told that there is none does not see it come back: a row whose
    node has lost the instance is deleted, lest somebody gives it back to the
    node by hand. That is looked for, too, where the caller may not see the
    reservation, because otherwise the time that the answer takes would tell
    that there is one.

    :param authorize: called with the Reservation; it raises when the caller
        may not do this to it, NotFound when the caller may not see it.
    :raises: NotFound; what ``authorize`` raises.
    """
    try:
        held = _get(instance_uuid)
        authorize(held)
        return held
    except exception.NotFound:
        purge(instance_uuid)
        raise


def _get(instance_uuid, restricted_to=None):
    for held in _reservations(queries.live(restricted_to, queries.VIEW).where(
            queries.column_is('instance_uuid', instance_uuid))):
        return held
    raise not_found(instance_uuid)


@engine.retry
def named(uuid, project_id):
    """The live reservations of a project's instance, or else of its group.

    Those of other projects are left out before it is decided which of the
    two the UUID names, because nobody keeps another project from calling an
    instance by the UUID of this project's group.

    :param project_id: None for the reservations that are no project's.
    :returns: list of Reservation, without their request specs.
    """
    own = queries.live().where(queries.of_project(project_id))
    return (_reservations(own.where(
                queries.column_is('instance_uuid', uuid)))
            or _reservations(own.where(
                queries.column_is('group_uuid', uuid))))


@engine.retry
def of_group(group_id):
    """The live reservations that are members of a group.

    :returns: list of Reservation, without their request specs.
    """
    return _reservations(queries.members(group_id))


def some_of_group(group_id, behind, limit):
    """Some of a group's live reservations, in order of their nodes' ids.

    :param behind: only those behind a node of this id.
    :param limit: how many at most.
    """
    return _reservations(queries.some_members(group_id, behind, limit))


def not_found(instance_uuid):
    return exception.NotFound(
        f'No reservation of instance {instance_uuid} could be found.')


@engine.retry
def find(restricted_to=None, state=None, node=None, limit=None, marker=None,
         order=None, names=frozenset(queries.VIEW), room=math.inf, **equal):
    """Reservations, in order.

    :param restricted_to: when given, only this project's.
    :param state: one of ``STATES``.
    :param node: UUID or name of a node.
    :param limit: how many at most.
    :param marker: instance UUID of the last one of the page before.
    :param order: dict of ``asc`` or ``desc`` by stored columns, the one that
        decides first first; None for the order in which they were made.
    :param names: the attributes of a Reservation to read, a set.
    :param room: how many bytes of request specs are of use; no more are read
        once there are as many.
    :param equal: columns, ``resource_class`` among them, and their values.
    :returns: list of Reservation.
    :raises: InvalidInput when there is no such marker.
    """
    query = queries.live(restricted_to, [
        name for name in queries.VIEW
        if name in ({'id', 'instance_uuid'} | names) - {'request_spec'}])
    if state is not None:
        query = query.where(queries.in_states(
            PROVISION_STATES.get(state), PROVISION_STATES))
    if node is not None:
        query = query.where(queries.is_node(node))
    for name, value in equal.items():
        query = query.where(queries.column_is(name, value))
    after = None
    if marker is not None:
        try:
            after = _get(marker, restricted_to)
        except exception.NotFound:
            raise exception.InvalidInput(
                'marker', 'must be the instance UUID of a reservation')
    query = queries.ordered(query, order or {'id': 'asc'}, after).limit(limit)
    return (_with_request_specs(query, room) if 'request_spec' in names
            else _reservations(query))


def _with_request_specs(query, room):
    """Reservations, the length of whose request specs was known before.

    :param room: see ``find``.
    """
    while True:
        found, length = {}, 0
        for row in engine.rows(query.add_columns(queries.SPEC_LENGTH)):
            facts = found[row.id] = {**_UNREAD, **row._mapping}
            length += facts.pop('spec_length')
            if length > room:
                break
        specs = engine.rows(queries.request_specs(found))
        if len(specs) == len(found):
            for row in specs:
                found[row.id] |= row._mapping
            return [Reservation(**facts) for facts in found.values()]
        # One of them has gone meanwhile.
        engine.check_deadline()


def update(instance_uuid, changes, authorize=lambda reservation: None,
           host=None, bound=False, holder=None):
    """Give a reservation to another host, or its lease another end.

    The node stays the same, and nothing of Ironic's is written.

    :param changes: dict of ``host``, which may change in any state, and of
        ``lease``: seconds from now, None for no end.
    :param authorize: see ``release``.
    :param host: when given, only if this host holds it.
    :param bound: whether the caller is bound to its project. It then does
        not change the lease of what a host holds, nor of a node that the
        project may use no longer.
    :param holder: when given, only while the host is this holder's.
    :returns: the Reservation as it is then.
    :raises: NotFound; Conflict when a lease is to change and something has
        begun on the node, or the project may use the node no longer;
        PreconditionFailed when the host is not the holder's; what
        ``authorize`` raises.
    """
    tried = None

    @engine.retry
    def attempt():
        nonlocal tried
        hosts.check(host, holder)
        while True:
            held = get(instance_uuid, authorize)
            # A COMMIT that went through unnoticed has changed the host.
            changed = held.id == tried and held.host == changes.get('host')
            if host not in (None, held.host) and not changed:
                raise not_found(instance_uuid)
            if 'lease' in changes:
                _check_lease(held, bound)
            tried = held.id
            with engine.transaction() as connection:
                updated = connection.execute(queries.update(
                    held.id, PROVISION_STATES['reserved']
                    if 'lease' in changes else None, changes,
                    held.host)).rowcount
                if updated:
                    hosts.fence(connection, host, holder)
            if updated:
                return get(instance_uuid)
            tried = None
            engine.check_deadline()

    updated = attempt()
    events.tell(events.MOVED if 'host' in changes else events.RENEWED,
                updated)
    return updated


def _check_lease(held, bound):
    if held.state != 'reserved':
        raise exception.Conflict(
            f'Node {held.node_uuid} is {held.provision_state}; a lease '
            f'changes only while nothing has begun on the node.')
    if bound and held.host is not None:
        raise exception.Conflict(
            f'Node {held.node_uuid} is held by a compute host, which keeps '
            f'its lease.')
    if bound:
        check_usable(held, json.loads(held.request_spec).get('ownership'))


def check_usable(held, ownership=None):
    """Refuse to let a project keep a node that it may use no longer.

    Whoever was the lessee of a machine is not to hold it for ever by
    beginning the lease of the reservation anew.

    :param ownership: which the reservation was asked for with. A caller who
        is bound to its project names none, or ``project``, which means the
        same.
    :raises: Conflict when the reservation's project is neither the owner nor
        the lessee of its node.
    """
    if not (matching.visible(held.node_owner, held.node_lessee,
                             held.project_id)
            or ownership == 'project_or_none'
            and held.node_owner is None and held.node_lessee is None):
        raise exception.Conflict(
            f'Project {held.project_id} may no longer use node '
            f'{held.node_uuid}; the reservation can be released, but not '
            f'renewed.')


def release(instance_uuid, authorize=lambda reservation: None, host=None,
            bound=False, holder=None):
    """Let a node go that nothing is deployed to.

    :param authorize: called with the Reservation before anything is done;
        it raises when the caller may not release it.
    :param host: when given, only if this host holds it.
    :param bound: whether the caller is bound to its project. It then does
        not release an available node on which a build may be on its way,
        because a host holds it or something has begun on it. Others do, and
        they release a node in maintenance whatever its state.
    :param holder: when given, only while the host is this holder's.
    :raises: NotFound; Conflict when the node's state, lock or allocation
        forbids it; PreconditionFailed when the host is not the holder's;
        what ``authorize`` raises.
    """
    tried = None

    @engine.retry
    def attempt():
        nonlocal tried
        if tried is None:
            hosts.check(host, holder)
        while True:
            try:
                held = _get(instance_uuid)
            except exception.NotFound:
                _delete_remains(instance_uuid)
                if tried is not None:
                    return  # Our own COMMIT went through unnoticed.
                raise
            if tried is not None and tried.id != held.id:
                return  # It did, and the instance has a new one already.
            try:
                authorize(held)
            except exception.NotFound:
                # It takes as long as where there is none: see ``get``.
                _delete_remains(instance_uuid)
                raise
            if host not in (None, held.host):
                raise not_found(instance_uuid)
            check_releasable(held, bound)
            tried = held
            if let_go([held], bound, holder):
                return
            tried = None
            engine.check_deadline()

    attempt()
    events.tell(events.RELEASED, tried)


def _delete_remains(instance_uuid):
    """Delete an instance's lapsed or stale reservation."""
    for row in engine.rows(queries.carrier(instance_uuid)):
        if row.lapsed:
            _give_back(_reservation(row))
    purge(instance_uuid)


def check_releasable(held, bound):
    """Refuse to release what may not be released.

    :param bound: see ``release``.
    :raises: Conflict.
    """
    if held.lock is not None:
        raise exception.Conflict(
            f'Node {held.node_uuid} is locked by a conductor; try again.')
    if not (held.provision_state in RELEASABLE
            or held.maintenance and not bound):
        raise exception.Conflict(
            f'Node {held.node_uuid} is {held.provision_state}; a reservation '
            f'can be released while nothing is deployed to its node.')
    if held.allocated:
        raise exception.Conflict(
            f'Node {held.node_uuid} has an allocation; delete that.')
    if (bound and held.provision_state == 'available'
            and (held.touched or held.host is not None)):
        raise exception.Conflict(
            f'Node {held.node_uuid} is held by a compute host, or something '
            f'has begun on it: a server may be about to be built there.')


def let_go(held, bound, holder=None):
    """One transaction; False when one of them is no longer as it was read.

    :param held: list of Reservations of one group, or of one of none, in the
        order of their nodes' ids, in which every transaction locks them.
    :param bound: see ``release``.
    :param holder: of the host that has them; None where nobody's is asked.
    :raises: DeadlineExceeded, between two of them.
    """
    with engine.transaction() as connection:
        gone = (
            _free(connection, held, bound)
            and delete(connection, queries.delete_of_hosts(*held),
                       held[0]) == len(held))
        if gone:
            hosts.fence(connection, held[0].host, holder)
        else:
            connection.rollback()
    return gone


def _free(connection, held, bound):
    """Take instances off nodes; False when one is no longer as it was read.

    :raises: DeadlineExceeded, when nothing of it is to be committed.
    """
    statement, values = queries.release(held, RELEASABLE, bound)
    for number, each in enumerate(values):
        if number:
            # Each of them may be waited for.
            engine.check_deadline()
        if not connection.execute(statement, each).rowcount:
            return False
    return True
