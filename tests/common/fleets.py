# SPDX-License-Identifier: Apache-2.0
"""A database with nodes, and calls of our functions that work on it."""

import concurrent.futures
import contextlib
import datetime
import json
import time
import uuid

import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.api import responses
from ironic_reservations.db import engine as db_engine
from ironic_reservations.db import functions
from ironic_reservations.db import models
from ironic_reservations.db import tables
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import counts
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import claims
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import obtain
from tests.common import databases
from tests.common import programs
from tools import services

conf.register_opts()

#: The instance of the hold in the fixture ``busy_fleet``.
INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'

#: The group that ``Fleet.hold_group`` creates.
GROUP = '11111111-2222-4333-8444-555555555555'

#: A request for any free node of a Fleet.
GOLD = {'resource_class': 'gold', 'memory_mb': 1000}

#: The beginning of the statement that holds or releases a node.
HOLD = 'UPDATE nodes SET instance_uuid'


def from_now(seconds):
    """Return a time as our tables store it, some seconds from now."""
    return datetime.datetime.now(datetime.UTC).replace(
        tzinfo=None, microsecond=0) + datetime.timedelta(0, seconds)


class Database:
    """A database, and the commands that administer it."""

    def __init__(self, url, directory):
        self.url = url
        self.conf_file = services.write_conf(directory / 'ironic.conf', {
            'DEFAULT': services.FAKE_HARDWARE,
            'database': {'connection': url}})
        self.engine = connect(url)

    def run(self, program, *args, status=0):
        """Run a command to its end, and return its output."""
        return programs.run(
            services.program(program), '--config-file', self.conf_file,
            *args, status=status)


def connect(url):
    """Return an engine with the settings of the service."""
    conf.CONF.set_override('connection', url, group='database')
    try:
        with databases.keep_connections():
            engine = db_engine.create_engine()
    finally:
        conf.CONF.clear_override('connection', group='database')
    databases.skip_fsync(engine)
    # An empty database is not ready yet.
    with contextlib.suppress(exception.DatabaseNotReady):
        tables.check_tables(engine)
    return engine


def recount():
    """Count the fleet on each request instead of using the cache."""
    return counts.Latest().get_fleet(0)[0], True


class Fleet:
    """The nodes in a database, and the reservations of them."""

    # Ironic's table, for nodes that have an allocation.
    allocations = sa.table('allocations', *map(
        sa.column, ('id', 'uuid', 'name', 'state', 'resource_class')))

    def __init__(self, engine):
        self.engine = engine

    def execute(self, statement, *args):
        with self.engine.begin() as connection:
            result = connection.execute(statement, *args)
            return result.all() if result.returns_rows else result

    def clear(self):
        with self.engine.begin() as connection:
            for table in (models.node_traits, models.ports, models.portgroups,
                          models.groups, models.notices,
                          models.pools, models.pool_nodes,
                          models.volume_targets, models.reservations,
                          models.history, models.nodes, self.allocations):
                connection.execute(sa.delete(table))

    def release_all(self):
        self.execute(sa.delete(models.reservations))
        self.execute(sa.update(models.nodes).values(instance_uuid=None))

    def add(self, *nodes):
        """Add nodes, as dicts of columns and traits; return their IDs."""
        rows = [{**self._make_free_node(), **node} for node in nodes]
        traits = [row.pop('traits', ()) for row in rows]
        with self.engine.begin() as connection:
            connection.execute(sa.insert(models.nodes), [
                {**row, 'properties': _to_text(row['properties'])}
                for row in rows])
            ids = dict(connection.execute(sa.select(
                models.nodes.c.uuid, models.nodes.c.id)).all())
            ids = [ids[row['uuid']] for row in rows]
            trait_rows = [{'node_id': node_id, 'trait': trait}
                          for node_id, names in zip(ids, traits, strict=True)
                          for trait in names]
            if trait_rows:
                connection.execute(sa.insert(models.node_traits), trait_rows)
        return ids

    @staticmethod
    def _make_free_node():
        return {'uuid': str(uuid.uuid4()), 'name': None,
                'provision_state': 'available', 'power_state': 'power off',
                'instance_uuid': None, 'allocation_id': None,
                'maintenance': False, 'retired': False, 'reservation': None,
                'parent_node': None, 'resource_class': 'gold',
                'conductor_group': '', 'shard': None, 'owner': None,
                'lessee': None, 'health': None,
                'properties': {'memory_mb': 1024}}

    def add_node(self, **fields):
        """Add one node, and return its ID."""
        return self.add(fields)[0]

    def add_allocation(self):
        """Add an allocation of Ironic's, and return its ID."""
        ident = str(uuid.uuid4())
        self.execute(sa.insert(self.allocations).values(
            uuid=ident, name=ident, state='active', resource_class='gold'))
        return self.execute(sa.select(self.allocations.c.id).where(
            self.allocations.c.uuid == ident))[0].id

    def set_node(self, node_id, **fields):
        if 'properties' in fields:
            fields['properties'] = _to_text(fields['properties'])
        self.execute(sa.update(models.nodes).where(
            models.nodes.c.id == node_id).values(**fields))

    def set_traits(self, node_id, *traits):
        table = models.node_traits
        self.execute(sa.delete(table).where(table.c.node_id == node_id))
        for trait in traits:
            self.execute(sa.insert(table).values(node_id=node_id,
                                                 trait=trait))

    def add_notice(self, node_id, **columns):
        """Add a notice that has begun, and does not end."""
        self.execute(sa.insert(models.notices).values(**{
            'uuid': str(uuid.uuid4()), 'number': 0, 'kind': 'fault',
            'cordon': False, 'node_id': node_id,
            'node_uuid': self[node_id].uuid,
            'starts_at': datetime.datetime(2001, 1, 1), 'request_digest': '',
            'is_failed_build': False,
            'created_at': datetime.datetime(2001, 1, 1), **columns}))

    def cordon(self, node_id):
        """Add an open notice that keeps new reservations off a node."""
        self.add_notice(node_id, cordon=True)

    def add_pool(self, project_id, *node_ids, seconds=None, node_uuid=None):
        """Add a pool, and return its UUID.

        :param seconds: from now until it expires.
        :param node_uuid: of its nodes, if not their own.
        """
        name, now = str(uuid.uuid4()), functions.utcnow()
        self.execute(sa.insert(models.pools).values(
            uuid=name, project_id=project_id, request_spec='{}',
            request_digest='', generation=0, created_at=now,
            expires_at=None if seconds is None
            else functions.seconds_from_now(seconds)))
        [(pool_id,)] = self.execute(sa.select(models.pools.c.id).where(
            models.pools.c.uuid == name))
        for node_id in node_ids:
            self.execute(sa.insert(models.pool_nodes).values(
                node_id=node_id, node_uuid=node_uuid or self[node_id].uuid,
                pool_id=pool_id, created_at=now))
        return name

    def delete_pools(self):
        self.execute(sa.delete(models.pool_nodes))
        self.execute(sa.delete(models.pools))

    def insert_row(self, table, node_id, **values):
        """Add a row to one of Ironic's tables that refer to nodes."""
        values.update(uuid=str(uuid.uuid4()), node_id=node_id)
        self.execute(sa.insert(sa.table(
            table, *map(sa.column, values))).values(**values))

    def delete_node(self, node_id):
        self.execute(sa.delete(models.nodes).where(
            models.nodes.c.id == node_id))

    def __getitem__(self, node_id):
        """Return the row of a node."""
        return self.execute(sa.select(models.nodes).where(
            models.nodes.c.id == node_id))[0]

    @property
    def rows(self):
        """The rows of reservations, including stale rows."""
        return self.execute(sa.select(models.reservations).order_by(
            models.reservations.c.id))

    @property
    def history(self):
        """The rows of reservations that have ended."""
        return self.execute(sa.select(models.history).order_by(
            models.history.c.id))

    @property
    def group_rows(self):
        return self.execute(sa.select(models.groups))

    @property
    def instances(self):
        """The instances that nodes carry, by the node's ID."""
        return {row.id: row.instance_uuid for row in self.execute(sa.select(
            models.nodes.c.id, models.nodes.c.instance_uuid).where(
                models.nodes.c.instance_uuid.is_not(None)))}

    @property
    def holds(self):
        """The same, after checking that the reservations agree."""
        instances = {row.node_id: row.instance_uuid for row in self.rows}
        assert instances == self.instances
        return instances

    def add_stale_row(self, **fields):
        """Add a reservation, as a release by Ironic leaves it."""
        self.execute(sa.insert(models.reservations).values(**{
            'instance_uuid': str(uuid.uuid4()), 'node_id': 0,
            'node_uuid': str(uuid.uuid4()), 'request_spec': '{}',
            'created_at': sa.func.current_timestamp(), **fields}))

    def expire_leases(self):
        """Let all leases expire, as of a second ago."""
        self._set_expiry(
            "strftime('%Y-%m-%d %H:%M:%S.000000', 'now', '-1 second')"
            if self.engine.name == 'sqlite' else
            'DATE_SUB(UTC_TIMESTAMP(), INTERVAL 1 SECOND)')

    def renew_leases(self, reservation=None):
        """Extend all leases, or that of a reservation, by centuries."""
        self._set_expiry("'2999-01-01 00:00:00.000000'", reservation)

    def _set_expiry(self, time, reservation=None):
        statement = sa.update(models.reservations).values(
            expires_at=sa.text(time))
        self.execute(statement.where(
            models.reservations.c.id == reservation.id)
            if reservation else statement)

    @contextlib.contextmanager
    def before(self, statement, action, times=1, containing=''):
        """Run an action right before the next such statement.

        :param statement: prefix of the statement.
        """
        statements = []

        def act(connection, cursor, text, *args):
            if (_strip_hint(text).startswith(statement) and containing in text
                    and len(statements) < times):
                statements.append(text)
                _run_in_thread(action)

        with self._listening('before_cursor_execute', act):
            yield statements
        assert statements, f'there was no {statement}'

    def wait_for_lock(self, future):
        """Wait until a statement waits for a lock, or a call is complete."""
        while not future.done() and not self.execute(sa.text(
                'SELECT trx_id FROM information_schema.innodb_trx '
                "WHERE trx_state = 'LOCK WAIT'")):
            # More often, InnoDB would not read the table again.
            time.sleep(0.2)

    @contextlib.contextmanager
    def row_counts(self, statement):
        """Collect the number of rows that each such statement changes."""
        counts = []

        def count(connection, cursor, text, *args):
            if _strip_hint(text).startswith(statement):
                counts.append(cursor.rowcount)

        with self._listening('after_cursor_execute', count):
            yield counts

    @contextlib.contextmanager
    def statements(self, containing=''):
        """Collect the statements that contain a text."""
        statements = []

        def note(connection, cursor, text, *args):
            if containing in text and text != 'BEGIN':
                statements.append(text)

        with self._listening('before_cursor_execute', note):
            yield statements

    @contextlib.contextmanager
    def _listening(self, event, function):
        sa.event.listen(self.engine, event, function)
        try:
            yield
        finally:
            sa.event.remove(self.engine, event, function)

    @contextlib.contextmanager
    def fail_commit(self, error, after=False, then=lambda: None):
        """Let the next COMMIT raise an error.

        :param after: whether the transaction is committed nevertheless.
        :param then: action before the error is raised.
        """
        dialect, calls = self.engine.dialect, []
        commit = dialect.do_commit

        def do_commit(connection):
            if not calls:
                calls.append(True)
                if after:
                    commit(connection)
                _run_in_thread(then)
                raise error
            commit(connection)

        dialect.do_commit = do_commit
        try:
            yield
        finally:
            dialect.do_commit = commit
        assert calls, 'there was no COMMIT'

    def hold(self, instance_uuid=None, project=None, owner=None,
             lease=None, group=None, unowned=False, ownership=None, **body):
        """Hold a node like a POST.

        :param project: of a project-scoped caller.
        :param ownership: of the request; None for the caller's.

        :returns: the reservation, and whether it is new.
        """
        return holds.hold_node(
            matcher(project, unowned, ownership,
                    **body or {'resource_class': 'gold'}),
            obtain.Request(
                (instance_uuid or str(uuid.uuid4()),),
                owner or values.Assignment(
                    'compute-1', project_id=project),
                lease, group=group))

    def hold_group(self, members, lease=None):
        """Hold nodes for a new group without a policy; return the group.

        :param members: number of nodes.
        """
        return groups.create_group(
            matcher(resource_class='gold'), obtain.Request(
                tuple(str(uuid.uuid4()) for _ in range(members)),
                values.Assignment(), lease, digest='digest',
                group=values.GroupRequest(GROUP)))[0]

    def claim(self, ident, instance_uuid=INSTANCE, project=None, **body):
        """Let compute-1 claim a project's reservation, or a group's member.
        """
        return claims.claim_reservation(
            ident, matcher(use=matching.TO_CLAIM,
                           **body or {'resource_class': 'gold'}),
            obtain.Request((instance_uuid,), values.Assignment(
                'compute-1', project_id=project)),
            lambda reservation: None)

    @staticmethod
    def count_nodes(**query):
        """Return the current numbers of all, free and held nodes."""
        rows, _ = capacity.list_rows(0, capacity.Filter(**query))
        return tuple(sum(row.content.get(name, 0) for row in rows)
                     for name in ('total', 'free', 'held'))


def present(error):
    """Return the items of the response to a refusal for lack of a node.

    :param error: result of ``pytest.raises``.
    """
    return responses.present_verdict(error.value.verdict)


def reach(project=None, unowned=False):
    """Return the reach of a project-scoped caller; None for others."""
    return values.ALL if project is None else values.Ownership(
        project, 'project_or_none' if unowned else 'project')


def matcher(project=None, unowned=False, ownership=None, use=matching.TO_HOLD,
            avoid=(), **body):
    """Return the matcher of a request with this body.

    :param project: of a project-scoped caller.
    :param ownership: of the request; None for the caller's.
    :param use: what the nodes are for.
    :param avoid: UUIDs of nodes in lower case.
    """
    caller = reach(project, unowned)
    return matching.Matcher(
        request_spec.RequestSpec.from_dict(body, required=False),
        caller, ownership or caller, use=use,
        avoid=frozenset(avoid))


def raising(error):
    """Return a function that raises an error."""
    def fail(*args):
        raise error
    return fail


def _strip_hint(text):
    """Return a statement without the index hint for MariaDB."""
    return text.replace(' USE INDEX (PRIMARY)', '')


def _run_in_thread(action):
    """Run an action on another database connection."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        executor.submit(action).result()


def _to_text(properties):
    return (json.dumps(properties) if isinstance(properties, dict)
            else properties)
