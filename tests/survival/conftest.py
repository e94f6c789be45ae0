# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests that kill processes, so nothing is shared by modules.

IRONIC_RESERVATIONS_SURVIVAL_SECONDS is the duration of each test's load, which
distinguishes the shortened run from the full one.
"""

import contextlib
import os
import types

import pytest
import sqlalchemy as sa

from tests.common import databases
from tests.common import servers
from tests.survival import clients
from tools import services

APPLICATION = 'ironic_reservations.wsgi:application'


@pytest.fixture(scope='session')
def seconds():
    return float(os.environ.get('IRONIC_RESERVATIONS_SURVIVAL_SECONDS', 3))


@pytest.fixture(scope='session')
def conf_file(tmp_path_factory):
    """Return a function that writes an ironic.conf and returns its path."""
    def write(database_url, auth_strategy='noauth', config=None, **options):
        return services.write_conf(
            tmp_path_factory.mktemp('api') / 'ironic.conf', {
                'DEFAULT': {**services.FAKE_HARDWARE,
                            'auth_strategy': auth_strategy,
                            'notification_level': 'info'},
                'oslo_messaging_notifications': {'driver': 'log'},
                'healthcheck': {'enabled': True, 'backends': 'reservations'},
                'database': {'connection': database_url, **options},
                **(config or {})})
    return write


@pytest.fixture(scope='session')
def create_schema(shared_directory):
    """Return a function that creates the tables and returns the Fleet."""
    def create(database_url):
        url = sa.make_url(database_url)
        if url.get_backend_name() == 'sqlite':
            databases.create_sqlite(shared_directory, url.database)
        else:
            databases.create(shared_directory, database_url)
        return clients.Fleet(database_url)
    return create


@pytest.fixture(scope='session')
def start_api(conf_file):
    """Return a context manager that starts our application."""
    @contextlib.contextmanager
    def start(database_url, processes=2, application=APPLICATION, **options):
        with services.uwsgi(application, conf_file(database_url, **options),
                            services.free_port(), processes) as service:
            yield service
    return start


@pytest.fixture(scope='module')
def start_mariadb():
    """Return a context manager that starts a private MariaDB."""
    @contextlib.contextmanager
    def start(*options, **kwargs):
        with servers.alone(*options, **kwargs) as server:
            yield server
    return start


@pytest.fixture(scope='module')
def mariadb(start_mariadb):
    with start_mariadb() as server:
        yield server


@pytest.fixture(scope='module', params=['sqlite', 'mariadb'])
def database_url(request, start_mariadb, tmp_path_factory):
    if request.param == 'sqlite':
        yield f'sqlite:///{tmp_path_factory.mktemp("db")}/ironic.sqlite'
    elif request.param == 'mariadb':
        yield request.getfixturevalue('mariadb').url
    else:
        # MariaDB's default from 11.8 on: a write fails if the row has changed
        # since the transaction began to read.
        with start_mariadb('--loose-innodb-snapshot-isolation=ON') as server:
            yield server.url


@pytest.fixture(scope='module')
def fleet(create_schema, database_url):
    return create_schema(database_url)


@pytest.fixture(scope='module')
def galera(create_schema):
    """The members of a cluster of three, and the fleet in it."""
    with servers.galera() as members:
        create_schema(members[0].url)
        # Reads wait for the writes of all members.
        fleets = [clients.Fleet(f'{member.url}?init_command='
                                'SET SESSION wsrep_sync_wait=7')
                  for member in members]
        yield types.SimpleNamespace(members=members, fleets=fleets)
