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
import json
import random

from oslo_db import exception as db_exc
from oslo_log import log

from ironic_reservations.db import engine
from ironic_reservations.db import models
from ironic_reservations.db import queries
from ironic_reservations import exception
from ironic_reservations import matching

LOG = log.getLogger(__name__)

#: How many nodes are weighed against each other, at first and at most.
PAGE, LARGEST_PAGE = 16, 1024

#: How often a search begins anew because all it found was taken meanwhile.
_SEARCHES = 10

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
    :param locked: whether a conductor has the node's lock.
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
    maintenance: bool
    locked: bool
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

    @classmethod
    def _from_row(cls, row):
        values = dict(row._mapping)
        values['locked'] = values.pop('lock') is not None
        values['maintenance'] = bool(values['maintenance'])
        del values['carrier_id']
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class Owner:
    """For whom a node is held; any of it may be None."""

    host: str | None = None
    project_id: str | None = None
    user_id: str | None = None


def hold(instance_uuid, spec, owner, limited_to=None):
    """Hold a node that satisfies a request spec, the best fit there is.

    Asking again for the same instance and the same spec gives the node that
    is held already, and moves it to another host if one is named.

    :param instance_uuid: canonical UUID of the instance.
    :param spec: RequestSpec.
    :param owner: Owner.
    :param limited_to: a project: only nodes that it owns or leases may be
        held, and only its own reservation is given again. None for any.
    :returns: the Reservation, and True when this call has made it.
    :raises: NoMatchingNode; Conflict when the instance holds a node for
        something else, or its node has gone too far to be moved.
    """
    tried = False

    @engine.retry
    def attempt():
        # Each round begins with reading: after a COMMIT whose outcome is
        # unknown, the reservation may be there.
        nonlocal tried
        db = engine.get_engine()
        while True:
            held = _held(db, instance_uuid)
            if held is not None:
                held = _again(db, held, spec, owner, limited_to)
                if held is not None:
                    return held, tried
                continue  # It moved on while we looked.
            for node in _search(db, spec, limited_to):
                tried = True
                try:
                    tried = _take(db, node, spec, owner, limited_to,
                                  instance_uuid)
                except db_exc.DBDuplicateEntry:
                    # Another request for the same instance was faster, or a
                    # row whose node has moved on is in the way of ours.
                    tried = False
                    _purge(db, instance_uuid, node.id)
                    break
                if tried:
                    break
            else:
                raise _none(db, spec, limited_to)

    reservation, created = attempt()
    if created:
        LOG.info('Node %(node)s is held for instance %(instance)s of host '
                 '%(host)s', {'node': reservation.node_uuid,
                              'instance': instance_uuid,
                              'host': reservation.host})
    return reservation, created


def _take(db, node, spec, owner, limited_to, instance_uuid):
    """One transaction; False when the node is no longer as it was read."""
    with db.begin() as connection:
        held = connection.execute(
            queries.hold(node, spec, limited_to, instance_uuid)).rowcount
        if held:
            connection.execute(queries.insert(
                instance_uuid=instance_uuid, node_id=node.id,
                node_uuid=node.uuid, request_spec=spec.canonical,
                **dataclasses.asdict(owner)))
    return bool(held)


def _held(db, instance_uuid):
    """The reservation of an instance, or None when no node carries it.

    :raises: Conflict when a node carries it without a reservation.
    """
    with db.connect() as connection:
        row = connection.execute(queries.holder(instance_uuid)).first()
    if row is None:
        return None
    if row.id is None:
        raise _in_use(instance_uuid)
    return Reservation._from_row(row)


def _in_use(instance_uuid):
    # The same words whoever holds it, and for whatever.
    return exception.Conflict(
        f'Instance {instance_uuid} already holds a node, for another request '
        f'or in a state that does not allow this one.')


def _again(db, held, spec, owner, limited_to):
    """Answer a repeated request; None when the reservation moved on.

    Nova builds an instance on one host at a time, so the later host is right
    as long as nothing has begun on the node.
    """
    same_host = owner.host in (None, held.host)
    if (held.request_spec != spec.canonical
            or limited_to not in (None, held.project_id)
            or held.state not in ('reserved', 'deploying', 'active')
            or not (same_host or held.state == 'reserved')):
        raise _in_use(held.instance_uuid)
    if same_host:
        return held
    with db.begin() as connection:
        if not connection.execute(queries.move(held.id, owner.host)).rowcount:
            return None
    LOG.info('Instance %(instance)s moves from host %(old)s to %(new)s and '
             'keeps node %(node)s',
             {'instance': held.instance_uuid, 'old': held.host,
              'new': owner.host, 'node': held.node_uuid})
    return _held(db, held.instance_uuid)


def _search(db, spec, limited_to, lock=queries.UNLOCKED):
    """Yield nodes that satisfy a request, page by page, the best fit first.

    Ends only when a whole scan has found nothing that was still to be had.
    Whoever takes a node ends the iteration; going on means it was lost.
    """
    asked = matching.constraints(spec)
    for _ in range(_SEARCHES):
        found = False
        for page in _scan(db, spec, limited_to, asked, lock):
            # Equals in random order, or every process would want the same.
            random.shuffle(page)
            page.sort(key=lambda node: matching.fit(spec, node))
            for node in page:
                found = True
                yield node
        if not found:
            return
    raise exception.NoMatchingNode(
        'The nodes that match the request are being taken or changed at the '
        'moment; try again.', locked=True)


def _scan(db, spec, limited_to, asked, lock):
    """Yield lists of matching nodes, each node of the fleet looked at once.

    From a random id on and round, so that many processes do not meet; the
    pages grow while nothing matches.
    """
    where = [*queries.FREE, lock, *queries.visible_to(limited_to),
             *queries.narrow(
                 spec,
                 _spellings(db, models.nodes.c.resource_class,
                            spec.resource_class, matching.has_class),
                 _spellings(db, models.nodes.c.conductor_group,
                            spec.conductor_group,
                            lambda group, asked: group.lower() == asked))]
    with db.connect() as connection:
        low, high = connection.execute(queries.id_range()).one()
    if low is None:
        return
    start = random.randint(low, high)
    ranges = [(start, high), (low, start - 1)]
    size, rows = PAGE, []
    while ranges:
        first, last = ranges[0]
        with db.connect() as connection:
            got = connection.execute(queries.page(
                where, first, last, size - len(rows))).all()
        if len(got) < size - len(rows):
            ranges.pop(0)
        else:
            ranges[0] = got[-1].id + 1, last
        rows += got
        if rows and (len(rows) == size or not ranges):
            matching_nodes = [node for node in _facts(db, rows)
                              if matching.matches(asked, node)]
            if matching_nodes:
                yield matching_nodes
            else:
                size = min(size * 4, LARGEST_PAGE)
            rows = []


def _spellings(db, column, wanted, equal):
    """How the database spells a class or a group; None when any will do."""
    if wanted is None:
        return None
    with db.connect() as connection:
        known = connection.execute(queries.spellings(column)).scalars().all()
    return [value for value in known if equal(value, wanted)]


def _facts(db, rows):
    """The nodes of a page with their traits."""
    traits = {row.id: set() for row in rows}
    with db.connect() as connection:
        for node_id, trait in connection.execute(queries.traits_of(traits)):
            traits[node_id].add(trait)
    return [matching.Node(**row._mapping, traits=frozenset(traits[row.id]))
            for row in rows]


def _none(db, spec, limited_to):
    locked = next(_search(db, spec, limited_to, ~queries.UNLOCKED), None)
    if locked is not None:
        return exception.NoMatchingNode(
            'The nodes that match the request are locked by conductors at '
            'the moment; try again.', locked=True)
    return exception.NoMatchingNode('No free node matches the request.')


def _purge(db, instance_uuid, node_id=None):
    with db.begin() as connection:
        purged = connection.execute(
            queries.purge(instance_uuid, node_id)).rowcount
    if purged:
        LOG.info('Purged %d reservations whose nodes have moved on', purged)


def get(instance_uuid, limited_to=None):
    """The reservation of an instance.

    :param limited_to: when given, only this project's.
    :raises: NotFound.
    """
    found = find(limited_to, instance_uuid=instance_uuid)
    if not found:
        raise not_found(instance_uuid)
    return found[0]


def not_found(instance_uuid):
    return exception.NotFound(
        f'No reservation of instance {instance_uuid} could be found.')


@engine.retry
def find(limited_to=None, state=None, node=None, limit=None, marker=None,
         sort_key='id', sort_dir='asc', **equal):
    """Reservations, in order.

    :param limited_to: when given, only this project's.
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
    query = queries.live(limited_to)
    if state is not None:
        query = query.where(queries.in_states(
            PROVISION_STATES.get(state), PROVISION_STATES))
    if node is not None:
        query = query.where(queries.is_node(node))
    for name, value in equal.items():
        query = query.where(queries.column(name) == value)
    with engine.get_engine().connect() as connection:
        after = None
        if marker is not None:
            after = connection.execute(queries.live(limited_to).where(
                queries.column('instance_uuid') == marker)).first()
            if after is None:
                raise exception.InvalidInput(
                    'marker', 'must be the instance UUID of a reservation')
        found = connection.execute(queries.ordered(
            query, sort_key, sort_dir, after).limit(limit))
        return [Reservation._from_row(row) for row in found]


def release(instance_uuid, host=None, limited_to=None, forced=False):
    """Let a node go that nothing is deployed to.

    :param host: when given, only if this host holds it.
    :param limited_to: when given, only this project's.
    :param forced: whether a node in maintenance is let go in any state.
    :raises: NotFound; Conflict when the node's state or lock forbids it.
    """
    tried = False

    @engine.retry
    def attempt():
        nonlocal tried
        db = engine.get_engine()
        while True:
            try:
                held = get(instance_uuid, limited_to)
            except exception.NotFound:
                _purge(db, instance_uuid)
                if tried:
                    return  # Our own COMMIT went through unnoticed.
                raise
            if host not in (None, held.host):
                raise not_found(instance_uuid)
            _check_releasable(held, forced)
            tried = True
            tried = _let_go(db, held, host, forced)
            if tried:
                return

    attempt()
    LOG.info('Instance %s has released its node', instance_uuid)


def _check_releasable(held, forced):
    if held.locked:
        raise exception.Conflict(
            f'Node {held.node_uuid} is locked by a conductor; try again.')
    if not (held.provision_state in RELEASABLE
            or forced and held.maintenance):
        raise exception.Conflict(
            f'Node {held.node_uuid} is {held.provision_state}; a reservation '
            f'can be released while nothing is deployed to its node.')


def _let_go(db, held, host, forced):
    """One transaction; False when the reservation is no longer as read."""
    with db.connect() as connection, connection.begin() as transaction:
        if (connection.execute(queries.release(
                held.node_id, held.instance_uuid, RELEASABLE,
                forced)).rowcount
                and connection.execute(
                    queries.delete(held.id, host)).rowcount):
            return True
        transaction.rollback()
    return False
