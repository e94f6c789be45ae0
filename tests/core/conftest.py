# SPDX-License-Identifier: Apache-2.0
"""Fixtures for Ironic's real schema with our tables.

The mark ``on`` says whether a test runs on SQLite or on a private MariaDB; see
``tests.common.databases``.
"""

import concurrent.futures
import contextlib

import pytest
import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.fleet import counts
from tests.common import databases
from tests.common import fleets
from tests.core import interleaving
from tools import services


def pytest_generate_tests(metafunc):
    databases.choose(metafunc, 'new_database', 'session')


@pytest.fixture(scope='session')
def new_database(request, tmp_path_factory, shared_directory):
    """A context manager that creates a Database, empty or complete."""
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
            database = fleets.Database(url, directory)
            stack.callback(database.engine.dispose)
            yield database
    return create


@pytest.fixture(scope='session')
def database(new_database):
    """Ironic's schema and our tables, shared by all tests."""
    with new_database(complete=True) as database:
        yield database


@pytest.fixture
def fleet(database, monkeypatch):
    """A database without nodes, which the product's functions use."""
    monkeypatch.setattr(engine, 'get_engine', lambda: database.engine)

    # Every request sees the fleet as it is and releases expired reservations.
    monkeypatch.setattr(counts, 'get_recent_fleet', fleets.recount)
    fleet = fleets.Fleet(database.engine)
    yield fleet
    fleet.clear()


@pytest.fixture(params=['REPEATABLE READ', 'READ COMMITTED'])
def isolation(request, fleet, monkeypatch):
    """The fleet, whose transactions have this isolation."""
    database = engine.get_engine().execution_options(
        isolation_level=request.param)
    monkeypatch.setattr(engine, 'get_engine', lambda: database)
    with database.connect() as connection:
        assert connection.get_isolation_level() == request.param
    return fleet


@pytest.fixture(scope='module')
def simulator(tmp_path_factory, shared_directory):
    """A database of SQLite on which pairs of writes run."""
    directory = tmp_path_factory.mktemp('pairs')
    database = fleets.Database(databases.create_sqlite(
        shared_directory, directory / 'sqlite'), directory)
    with interleaving.Simulator(database.engine) as simulator:
        yield simulator
    database.engine.dispose()


@pytest.fixture
def executor():
    with concurrent.futures.ThreadPoolExecutor() as executor:
        yield executor


@pytest.fixture
def use_count(monkeypatch):
    """Let all searches use a count: use_count(counts.get_fresh_fleet())."""
    def set_(count):
        monkeypatch.setattr(counts, 'get_recent_fleet',
                            lambda *_: (count, False))
    return set_


@pytest.fixture
def busy_fleet(fleet):
    """A node that compute-1 holds, and one that is free."""
    fleet.node_id = fleet.add_node()
    fleet.hold(fleets.INSTANCE, owner=values.Assignment(host='compute-1'),
               resource_class='gold', memory_mb=1000)
    fleet.add_node()
    return fleet


@pytest.fixture
def option():
    """Set options of [reservations]: option(deadline=1)."""
    with contextlib.ExitStack() as stack:
        def set_(**options):
            for name, value in options.items():
                conf.CONF.set_override(name, value, group='reservations')
                stack.callback(conf.CONF.clear_override, name,
                               group='reservations')
        yield set_


@pytest.fixture
def set_clock(fleet):
    """Return a function that sets the clock of further connections ahead."""
    def set_clock(connection, *args):
        with connection.cursor() as cursor:
            cursor.execute('SET timestamp = UNIX_TIMESTAMP() + 7200')

    with contextlib.ExitStack() as stack:
        # Otherwise other tests would use these connections.
        stack.callback(fleet.engine.dispose)

        def start():
            sa.event.listen(fleet.engine, 'checkout', set_clock)
            stack.callback(sa.event.remove, fleet.engine, 'checkout',
                           set_clock)
        yield start
