# SPDX-License-Identifier: Apache-2.0
"""Ironic's real schema with our table, on SQLite or on a private MariaDB.

On which of them a test runs, its mark ``on`` says; see
``tests.common.databases``.
"""

import concurrent.futures
import contextlib
import json
import subprocess
import uuid

import pytest
import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations.db import engine as db_engine
from ironic_reservations.db import models
from ironic_reservations.db import tables
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import count as counts
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import claims
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import values
from tests.common import databases
from tools import services

conf.register_opts()

#: The instance of the fixture ``held``.
INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'

#: The group that ``Fleet.group`` makes.
GROUP = '11111111-2222-4333-8444-555555555555'

INTERFACES = {'boot': 'fake', 'deploy': 'fake', 'management': 'fake',
              'network': 'noop', 'power': 'fake', 'vendor': 'no-vendor'}


class Database:
    """A database, and the commands that administer it."""

    def __init__(self, url, directory):
        self.url = url
        self.conf_file = str(directory / 'ironic.conf')
        with open(self.conf_file, 'w') as f:
            # Ironic's own checks want the programs of its default hardware.
            f.write('[DEFAULT]\nenabled_hardware_types = fake-hardware\n')
            for interface, name in INTERFACES.items():
                f.write(f'enabled_{interface}_interfaces = {name}\n')
            f.write(f'[database]\nconnection = {url}\n')
        self.engine = connect(url)

    def run(self, program, *args, status=0):
        """Run a command to its end, a good one; what it said."""
        done = subprocess.run(
            [services.program(program), '--config-file', self.conf_file,
             *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == status, done.stdout
        return done.stdout


def connect(url):
    """An engine as the service has it."""
    conf.CONF.set_override('connection', url, group='database')
    try:
        engine = db_engine.connect()
    finally:
        conf.CONF.clear_override('connection', group='database')
    databases.hurry(engine)
    # An empty database is not ready yet.
    with contextlib.suppress(exception.DatabaseNotReady):
        tables.check(engine)
    return engine


def pytest_generate_tests(metafunc):
    databases.choose(metafunc, 'new_database', 'session')


@pytest.fixture(scope='session')
def new_database(request, tmp_path_factory, shared_directory):
    """Creates a Database, empty or complete: a context manager."""
    if request.param != 'sqlite':
        server = request.getfixturevalue('server_url')

    @contextlib.contextmanager
    def create(complete=False):
        directory = tmp_path_factory.mktemp('db')
        path = directory / 'sqlite'
        with contextlib.ExitStack() as stack:
            if request.param != 'sqlite':
                url = stack.enter_context(
                    databases.on_server(shared_directory, server) if complete
                    else services.database(server))
            else:
                url = (databases.create_sqlite(shared_directory, path)
                       if complete else f'sqlite:///{path}')
            database = Database(url, directory)
            stack.callback(database.engine.dispose)
            yield database
    return create


@pytest.fixture(scope='session')
def database(new_database):
    """Ironic's schema and our table, shared by all tests."""
    with new_database(complete=True) as database:
        yield database


def count_again():
    """Count the fleet for a request alone, whatever was counted already."""
    return counts.Latest().at_most(0)[0], True


@pytest.fixture
def fleet(database, monkeypatch):
    """No nodes at first; the service works on its database."""
    monkeypatch.setattr(db_engine, 'get_engine', lambda: database.engine)

    # Every request sees the fleet as it is and gives back what has lapsed.
    monkeypatch.setattr(counts, 'recent', count_again)
    fleet = Fleet(database.engine)
    yield fleet
    fleet.clear()


@pytest.fixture
def go_by(monkeypatch):
    """Lets all searches go by a count: go_by(counts.fresh())."""
    def set_(counted):
        monkeypatch.setattr(counts, 'recent', lambda: (counted, False))
    return set_


@pytest.fixture
def held(fleet):
    """A node that compute-1 holds, and one that is free."""
    fleet.node_id = fleet.node()
    fleet.hold(INSTANCE, owner=values.Assignment(host='compute-1'),
               resource_class='gold', memory_mb=1000)
    fleet.node()
    return fleet


@pytest.fixture
def option():
    """Sets options of [reservations]: option(deadline=1)."""
    with contextlib.ExitStack() as stack:
        def set_(**options):
            for name, value in options.items():
                conf.CONF.set_override(name, value, group='reservations')
                stack.callback(conf.CONF.clear_override, name,
                               group='reservations')
        yield set_


class Fleet:
    """Nodes as Ironic has them, and what became of them."""

    # Of Ironic's, for nodes that have an allocation.
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
                          models.groups,
                          models.volume_targets, models.reservations,
                          models.nodes, self.allocations):
                connection.execute(sa.delete(table))

    def free(self):
        """Let all nodes go."""
        self.execute(sa.delete(models.reservations))
        self.execute(sa.update(models.nodes).values(instance_uuid=None))

    def add(self, *nodes):
        """Add many nodes at once, each a dict of columns and traits."""
        rows = [{**self._free(), **node} for node in nodes]
        traits = [row.pop('traits', ()) for row in rows]
        with self.engine.begin() as connection:
            connection.execute(sa.insert(models.nodes), [
                {**row, 'properties': _text(row['properties'])}
                for row in rows])
            ids = dict(connection.execute(sa.select(
                models.nodes.c.uuid, models.nodes.c.id)).all())
            ids = [ids[row['uuid']] for row in rows]
            of_traits = [{'node_id': node_id, 'trait': trait}
                         for node_id, names in zip(ids, traits, strict=True)
                         for trait in names]
            if of_traits:
                connection.execute(sa.insert(models.node_traits), of_traits)
        return ids

    @staticmethod
    def _free():
        return {'uuid': str(uuid.uuid4()), 'name': None,
                'provision_state': 'available', 'power_state': 'power off',
                'instance_uuid': None, 'allocation_id': None,
                'maintenance': False, 'retired': False, 'reservation': None,
                'parent_node': None, 'resource_class': 'gold',
                'conductor_group': '', 'shard': None, 'owner': None,
                'lessee': None, 'health': None,
                'properties': {'memory_mb': 1024}}

    def node(self, **fields):
        """Add one node; its id."""
        return self.add(fields)[0]

    def allocation(self):
        """An allocation of Ironic's; its id."""
        ident = str(uuid.uuid4())
        self.execute(sa.insert(self.allocations).values(
            uuid=ident, name=ident, state='active', resource_class='gold'))
        return self.execute(sa.select(self.allocations.c.id).where(
            self.allocations.c.uuid == ident))[0].id

    def edit(self, node_id, **fields):
        if 'properties' in fields:
            fields['properties'] = _text(fields['properties'])
        self.execute(sa.update(models.nodes).where(
            models.nodes.c.id == node_id).values(**fields))

    def set_traits(self, node_id, *traits):
        table = models.node_traits
        self.execute(sa.delete(table).where(table.c.node_id == node_id))
        for trait in traits:
            self.execute(sa.insert(table).values(node_id=node_id,
                                                 trait=trait))

    def insert(self, table, node_id, **values):
        """A row of one of Ironic's tables that belongs to a node."""
        values.update(uuid=str(uuid.uuid4()), node_id=node_id)
        self.execute(sa.insert(sa.table(
            table, *map(sa.column, values))).values(**values))

    def delete(self, node_id):
        self.execute(sa.delete(models.nodes).where(
            models.nodes.c.id == node_id))

    def __getitem__(self, node_id):
        """A node's row."""
        return self.execute(sa.select(models.nodes).where(
            models.nodes.c.id == node_id))[0]

    @property
    def rows(self):
        """The rows of our table, also those that no longer count."""
        return self.execute(sa.select(models.reservations).order_by(
            models.reservations.c.id))

    @property
    def carried(self):
        """Which instance each held node carries."""
        return {row.id: row.instance_uuid for row in self.execute(sa.select(
            models.nodes.c.id, models.nodes.c.instance_uuid).where(
                models.nodes.c.instance_uuid.is_not(None)))}

    @property
    def held(self):
        """The same, where our table agrees with it; and it must."""
        agreed = {row.node_id: row.instance_uuid for row in self.rows}
        assert agreed == self.carried
        return agreed

    def stale(self, **fields):
        """Add a row of our table, as a release by Ironic leaves it."""
        self.execute(sa.insert(models.reservations).values(**{
            'instance_uuid': str(uuid.uuid4()), 'node_id': 0,
            'node_uuid': str(uuid.uuid4()), 'request_spec': '{}',
            'created_at': sa.func.current_timestamp(), **fields}))

    def lapse(self):
        """Let all leases be over for a second."""
        self._end_leases(
            "strftime('%Y-%m-%d %H:%M:%S.000000', 'now', '-1 second')"
            if self.engine.name == 'sqlite' else
            'DATE_SUB(UTC_TIMESTAMP(), INTERVAL 1 SECOND)')

    def renew(self, reservation=None):
        """Let no lease be over for long, or the one of a reservation."""
        self._end_leases("'2999-01-01 00:00:00.000000'", reservation)

    def _end_leases(self, time, reservation=None):
        statement = sa.update(models.reservations).values(
            expires_at=sa.text(time))
        self.execute(statement.where(
            models.reservations.c.id == reservation.id)
            if reservation else statement)

    @contextlib.contextmanager
    def before(self, statement, action, times=1, containing=''):
        """Do something right before the service's next such statement.

        :param statement: how it begins.
        """
        done = []

        def act(connection, cursor, text, *args):
            if (_unhinted(text).startswith(statement) and containing in text
                    and len(done) < times):
                done.append(text)
                _as_another(action)

        sa.event.listen(self.engine, 'before_cursor_execute', act)
        try:
            yield done
        finally:
            sa.event.remove(self.engine, 'before_cursor_execute', act)
        assert done, f'there was no {statement}'

    @contextlib.contextmanager
    def counted(self, statement):
        """How many rows each such statement of the service touches."""
        touched = []

        def count(connection, cursor, text, *args):
            if _unhinted(text).startswith(statement):
                touched.append(cursor.rowcount)

        sa.event.listen(self.engine, 'after_cursor_execute', count)
        try:
            yield touched
        finally:
            sa.event.remove(self.engine, 'after_cursor_execute', count)

    @contextlib.contextmanager
    def statements(self, containing=''):
        """The service's statements that contain a text, as they come."""
        found = []

        def note(connection, cursor, text, *args):
            if containing in text and text != 'BEGIN':
                found.append(text)

        sa.event.listen(self.engine, 'before_cursor_execute', note)
        try:
            yield found
        finally:
            sa.event.remove(self.engine, 'before_cursor_execute', note)

    @contextlib.contextmanager
    def commit_fails(self, error, after=False, then=lambda: None):
        """Let the next COMMIT fail, maybe after it has gone through.

        :param then: what another does before the client sees it fail.
        """
        dialect, done = self.engine.dialect, []
        commit = dialect.do_commit

        def do_commit(connection):
            if not done:
                done.append(True)
                if after:
                    commit(connection)
                _as_another(then)
                raise error
            commit(connection)

        dialect.do_commit = do_commit
        try:
            yield
        finally:
            dialect.do_commit = commit
        assert done, 'there was no COMMIT'

    def hold(self, instance_uuid=None, restricted_to=None, owner=None,
             lease=None, group=None, **body):
        """What a POST does: the reservation, and whether it is new."""
        return holds.hold_node(
            matcher(restricted_to, **body or {'resource_class': 'gold'}),
            obtain.Request(
                (instance_uuid or str(uuid.uuid4()),),
                owner or values.Assignment('compute-1', restricted_to),
                lease, group=group))

    def group(self, members, lease=None):
        """Hold so many nodes for a group without a policy; the group."""
        return groups.create_group(
            matcher(resource_class='gold'), obtain.Request(
                tuple(str(uuid.uuid4()) for _ in range(members)),
                values.Assignment(), lease, digest='digest',
                group=membership.GroupRequest(GROUP, None, None, None)))[0]

    @property
    def groups(self):
        """The rows of groups."""
        return self.execute(sa.select(models.groups))

    def claim(self, ident, instance_uuid=INSTANCE):
        """Have compute-1 claim a reservation, or a group's member."""
        return claims.claim_reservation(
            ident, matcher(resource_class='gold'),
            obtain.Request((instance_uuid,), values.Assignment('compute-1')),
            lambda reservation: None)

    @staticmethod
    def capacity(**query):
        """All nodes, those that are free, those that are held; as of now."""
        found, _ = capacity.capacity(0, capacity.Filter(**query))
        rows = [row.shown for row in found]
        return tuple(sum(row.get(name, 0) for row in rows)
                     for name in ('total', 'free', 'held'))


def matcher(restricted_to=None, unowned=False, **body):
    """What a request with this body asks for."""
    return matching.Matcher(
        request_spec.RequestSpec.from_dict(body, required=False),
        restricted_to, unowned)


def failing(error):
    """What fails so, to be done before a statement."""
    def fail():
        raise error
    return fail


def _unhinted(text):
    """A statement without the words that are for MariaDB alone."""
    return text.replace(' USE INDEX (PRIMARY)', '')


def _as_another(action):
    """Do something in a thread, and thereby on a connection, of its own."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        executor.submit(action).result()


def _text(properties):
    return (json.dumps(properties) if isinstance(properties, dict)
            else properties)
