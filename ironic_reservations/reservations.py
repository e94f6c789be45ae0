# SPDX-License-Identifier: Apache-2.0
"""Hold, renew, release: the only module that writes.

A reservation is the row of our table and the node's ``instance_uuid``, both
written in one transaction whose first statement is the guarded update of the
node. What that statement's WHERE says, and the unique keys on
``nodes.instance_uuid``, ``reservations.instance_uuid`` and
``reservations.node_id``, is the whole of our locking: it holds among
threads, processes, hosts and the members of a Galera cluster alike.
"""

import dataclasses
import datetime

from oslo_db import exception as db_exc
from oslo_log import log

from ironic_reservations import exception
from ironic_reservations import explanation
from ironic_reservations import fleet
from ironic_reservations import interval
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


@dataclasses.dataclass(frozen=True)
class Reservation:
    """A node held for an instance, as it is now.

    :param id: primary key, never used again.
    :param provision_state: Ironic's word for where the node is.
    :param resource_class: of the node, as Ironic spells it.
    :param request_spec: canonical JSON text of what was asked for.
    :param lock: the conductor that has the node's lock, or None.
    :param lapsed: whether the lease is over and the node is free again.
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
    maintenance: bool | None
    lock: str | None
    lapsed: bool
    expires_at: datetime.datetime | None
    created_at: datetime.datetime
    updated_at: datetime.datetime | None

    @property
    def state(self):
        """One of ``STATES``."""
        for state, provision_states in PROVISION_STATES.items():
            if self.provision_state in provision_states:
                return state
        return UNAVAILABLE


@dataclasses.dataclass(frozen=True)
class Owner:
    """For whom a node is held; any of it may be None."""

    host: str | None = None
    project_id: str | None = None
    user_id: str | None = None


@dataclasses.dataclass(frozen=True)
class _Request:
    """For whom a node is to be held, and how far that is; see ``hold``.

    :param written: the ids of the rows that it has written. Where the
        connection was lost at a COMMIT, nobody knows what became of it; a
        row with such an id is this request's own.
    """

    instance_uuid: str
    owner: Owner
    lease: int | None
    written: set = dataclasses.field(default_factory=set)


def hold(instance_uuid, matcher, owner, lease=None):
    """Hold a node that satisfies a request, the best fit there is.

    Asking again for the same instance and the same request spec gives the
    node that is held already, begins its lease anew, and moves it to another
    host if one is named.

    :param instance_uuid: canonical UUID of the instance.
    :param matcher: matching.Matcher of the request. A caller who is bound to
        a project is given only that project's reservation again.
    :param owner: Owner.
    :param lease: seconds after which the reservation is over if nothing has
        begun on the node; None for no end.
    :returns: the Reservation, and True when this call has made it.
    :raises: NoMatchingNode when the fleet, counted after the request came,
        has none; Conflict when the instance holds a node for something else,
        or its node has gone too far to be moved; DeadlineExceeded.
    """
    reservation, created = _hold(
        matcher, _Request(instance_uuid, owner, lease))
    if created:
        LOG.info('Node %(node)s is held for instance %(instance)s of host '
                 '%(host)s', {'node': reservation.node_uuid,
                              'instance': instance_uuid,
                              'host': reservation.host})
    return reservation, created


@engine.retry
def _hold(matcher, request):
    """``hold``, run again where the database has aborted it."""
    if PASSING.due() and _give_back_lapsed(IN_PASSING) == IN_PASSING:
        PASSING.again()
    answer = _repeat(matcher, request) if request.written else None
    # Nodes that a request names are looked up without a count.
    counted = None if matcher.spec.candidate_nodes else fleet.recent()
    fresh, in_vain = False, 0
    while answer is None:
        held, tried = _take_best(matcher, request, counted, fresh)
        # That the instance is not a new one is told by the unique keys, or
        # by a search that has found no node: so it is asked only here.
        answer = (held, True) if held else _repeat(matcher, request)
        if answer is None:
            engine.check_deadline()
            if tried is None:
                in_vain += fresh
                counted, fresh = _recount(matcher, in_vain), True
    return answer


def _recount(matcher, in_vain):
    """Count the fleet, because a search has found no node.

    Only a count that is younger than the request may say that there is none,
    and only after all that has lapsed was given back. Where such a count has
    a node that a search then does not find, it was locked, changed or given
    back in between, and is counted again.

    :param in_vain: how many searches have gone by such counts and have found
        nothing at all.
    :returns: fleet.Fleet that has matching nodes.
    :raises: NoMatchingNode.
    """
    _give_back_lapsed()
    counted = fleet.fresh(matcher.spec.candidate_nodes)
    verdict = explanation.verdict(matcher, counted)
    if not verdict['matching_nodes'] or in_vain >= IN_VAIN:
        raise explanation.refusal(verdict)
    return counted


def _take_best(matcher, request, counted, fresh):
    """Hold the first node of a search that can be had.

    :param counted: fleet.Fleet by which to search.
    :param fresh: whether it was counted for this request.
    :returns: the Reservation or None, and the last node that was tried.
    """
    node = None
    try:
        for node in search.search(matcher, counted, thorough=fresh):
            held = _take(matcher, request, node)
            if held is not None:
                return held, node
            LOG.debug('Node %s was lost to another', node.uuid)
            engine.check_deadline()
    except db_exc.DBDuplicateEntry:
        # The instance holds a node already, or a row whose node has moved on
        # stands in the way of the new one.
        _purge(request.instance_uuid, node.id)
    return None, node


def _take(matcher, request, node):
    """One transaction; None when the node is no longer as it was read.

    :returns: Reservation: what the guard has seen and what was written.
    """
    with engine.transaction() as connection:
        updated = connection.execute(*queries.hold(
            node, matcher, request.instance_uuid))
        if not updated.rowcount:
            return None
        now = functions.time_of(connection, updated)
        values = {
            'instance_uuid': request.instance_uuid, 'node_id': node.id,
            'node_uuid': node.uuid, 'request_spec': matcher.spec.canonical,
            'created_at': now,
            'expires_at': (request.lease and
                           now + datetime.timedelta(0, request.lease)),
            **vars(request.owner)}
        [row_id] = connection.execute(
            queries.INSERT, values).inserted_primary_key
        request.written.add(row_id)
    return Reservation(
        id=row_id, node_name=node.name, resource_class=node.resource_class,
        provision_state='available', maintenance=False, lock=None,
        lapsed=False, updated_at=None, **values)


def _repeat(matcher, request):
    """The answer of ``hold`` when the instance holds a node already.

    Nova builds an instance on one host at a time, so the later host is right
    as long as nothing has begun on the node.

    :returns: None when it holds none, or has just lost it.
    :raises: Conflict when it holds one that this request may not have.
    """
    held, owner = _held(request.instance_uuid), request.owner
    if held is None:
        return None
    same_host = owner.host in (None, held.host)
    if (held.request_spec != matcher.spec.canonical
            or matcher.restricted_to not in (None, held.project_id)
            or held.state not in ('reserved', 'deploying', 'active')
            or not (same_host or held.state == 'reserved')):
        raise _in_use(held.instance_uuid)
    if held.id in request.written and owner == Owner(
            held.host, held.project_id, held.user_id):
        return held, True
    if held.state != 'reserved' or (
            same_host and request.lease is None and held.expires_at is None):
        return held, False
    with engine.transaction() as connection:
        if not connection.execute(queries.renew(
                held.id, owner.host or held.host, request.lease)).rowcount:
            return None
    if not same_host:
        LOG.info('Instance %(instance)s moves from host %(old)s to %(new)s '
                 'and keeps node %(node)s',
                 {'instance': held.instance_uuid, 'old': held.host,
                  'new': owner.host, 'node': held.node_uuid})
    renewed = _held(held.instance_uuid)
    return (renewed, False) if renewed and renewed.id == held.id else None


def _reservation(row):
    return Reservation(**row._mapping)


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


def _give_back(held):
    """Free the node of a lapsed reservation; False when it lapsed no more.

    One transaction: the node must still be untouched, and the lease must not
    have been renewed meanwhile.
    """
    with engine.transaction() as connection:
        given_back = (
            connection.execute(queries.give_back(
                held.node_id, held.instance_uuid)).rowcount
            and connection.execute(queries.delete_expired(held.id)).rowcount)
        if not given_back:
            connection.rollback()
    if given_back:
        LOG.warning('The lease of instance %(instance)s on node %(node)s '
                    'for host %(host)s is over; the node is free again',
                    {'instance': held.instance_uuid, 'node': held.node_uuid,
                     'host': held.host})
    return bool(given_back)


def _give_back_lapsed(limit=None, check=engine.check_deadline):
    """Free nodes whose leases are over.

    :param limit: how many reservations to look at; None for all.
    :param check: called before each, to end what takes too long.
    :returns: how many nodes are free again.
    """
    expired = _reservations(queries.expired(limit))
    if any(each.state == 'active' for each in expired):
        # What is deployed needs its lease no more. Without this, whoever
        # looks for lapsed leases would read every instance that there is.
        with engine.transaction() as connection:
            connection.execute(
                queries.end_leases(PROVISION_STATES['active']))
    given_back = 0
    for each in expired:
        if each.lapsed:
            check()
            given_back += _give_back(each)
    return given_back


@engine.retry
def sweep():
    """Give back every node whose lease is over, and purge finished rows.

    :returns: numbers of nodes given back and rows purged.
    """
    return _give_back_lapsed(check=lambda: None), _purge()


@engine.retry
def overdue():
    """Reservations past their lease that are kept: their nodes are touched.

    :returns: list of Reservation.
    """
    return _reservations(queries.overdue())


def _purge(instance_uuid=None, node_id=None):
    with engine.transaction() as connection:
        purged = connection.execute(
            queries.purge(instance_uuid, node_id)).rowcount
    if purged:
        LOG.info('Purged %d reservations whose nodes have moved on', purged)
    return purged


@engine.retry
def get(instance_uuid):
    """The reservation of an instance.

    :raises: NotFound.
    """
    return _get(instance_uuid)


def _get(instance_uuid, restricted_to=None):
    for held in _reservations(queries.live(restricted_to).where(
            queries.column_is('instance_uuid', instance_uuid))):
        return held
    raise not_found(instance_uuid)


def not_found(instance_uuid):
    return exception.NotFound(
        f'No reservation of instance {instance_uuid} could be found.')


@engine.retry
def find(restricted_to=None, state=None, node=None, limit=None, marker=None,
         sort_key='id', sort_dir='asc', **equal):
    """Reservations, in order.

    :param restricted_to: when given, only this project's.
    :param state: one of ``STATES``.
    :param node: UUID or name of a node.
    :param limit: how many at most.
    :param marker: instance UUID of the last one of the page before.
    :param sort_key: a stored column.
    :param sort_dir: ``asc`` or ``desc``.
    :param equal: columns, ``resource_class`` among them, and their values.
    :returns: list of Reservation.
    :raises: InvalidInput when there is no such marker.
    """
    query = queries.live(restricted_to)
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
    return _reservations(queries.ordered(
        query, sort_key, sort_dir, after).limit(limit))


def release(instance_uuid, authorize=lambda reservation: None, host=None,
            forced=False):
    """Let a node go that nothing is deployed to.

    :param authorize: called with the Reservation before anything is done;
        it raises when the caller may not release it.
    :param host: when given, only if this host holds it.
    :param forced: whether a node in maintenance is let go in any state.
    :raises: NotFound; Conflict when the node's state or lock forbids it;
        what ``authorize`` raises.
    """
    tried = None

    @engine.retry
    def attempt():
        nonlocal tried
        while True:
            try:
                held = _get(instance_uuid)
            except exception.NotFound:
                _delete_remains(instance_uuid)
                if tried is not None:
                    return  # Our own COMMIT went through unnoticed.
                raise
            if tried not in (None, held.id):
                return  # It did, and the instance has a new one already.
            authorize(held)
            if host not in (None, held.host):
                raise not_found(instance_uuid)
            _check_releasable(held, forced)
            tried = held.id
            if _let_go(held, host, forced):
                return
            tried = None
            engine.check_deadline()

    attempt()
    LOG.info('Instance %s has released its node', instance_uuid)


def _delete_remains(instance_uuid):
    """Delete an instance's lapsed or stale reservation."""
    for row in engine.rows(queries.carrier(instance_uuid)):
        if row.lapsed:
            _give_back(_reservation(row))
    _purge(instance_uuid)


def _check_releasable(held, forced):
    if held.lock is not None:
        raise exception.Conflict(
            f'Node {held.node_uuid} is locked by a conductor; try again.')
    if not (held.provision_state in RELEASABLE
            or forced and held.maintenance):
        raise exception.Conflict(
            f'Node {held.node_uuid} is {held.provision_state}; a reservation '
            f'can be released while nothing is deployed to its node.')


def _let_go(held, host, forced):
    """One transaction; False when the reservation is no longer as read."""
    with engine.transaction() as connection:
        let_go = (
            connection.execute(queries.release(
                held.node_id, held.instance_uuid, RELEASABLE,
                forced)).rowcount
            and connection.execute(queries.delete(held.id, host)).rowcount)
        if not let_go:
            connection.rollback()
    return bool(let_go)
