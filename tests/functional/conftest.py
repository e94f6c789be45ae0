# SPDX-License-Identifier: Apache-2.0
"""A real Ironic with the plugin for each database, shared by all tests.

A test uses nodes and a resource class of its own, so that it sees nothing
of another's, and leaves none behind.
"""

import contextlib
import subprocess

import pytest

from tests.common import service
from tools import services


@pytest.fixture(scope='session')
def start_ironic(tmp_path_factory):
    """Starts an Ironic of a test's own: a context manager."""
    @contextlib.contextmanager
    def start(database_url=None, **kwargs):
        directory = tmp_path_factory.mktemp('ironic')
        with services.ironic(
                directory,
                database_url or f'sqlite:///{directory}/ironic.sqlite',
                services.free_port(), kill=True, **kwargs) as running:
            yield service.Ironic(running)
    return start


@pytest.fixture(scope='session')
def stock_ironic(start_ironic):
    """Without the plugin."""
    with start_ironic(plugin=False) as ironic:
        yield ironic


@pytest.fixture(scope='session')
def ironic_sqlite(start_ironic):
    with start_ironic() as ironic:
        yield ironic


@pytest.fixture(scope='session')
def ironic_mariadb(start_ironic, mariadb_url):
    with services.database(mariadb_url) as url, \
            start_ironic(url) as ironic:
        yield ironic


@pytest.fixture(scope='session', params=['sqlite', 'mariadb'])
def ironic(request):
    return request.getfixturevalue(f'ironic_{request.param}')


@pytest.fixture(scope='session')
def start_uwsgi():
    """Starts an application beside an Ironic: a context manager."""
    @contextlib.contextmanager
    def start(ironic, application='ironic_reservations.wsgi:application',
              **kwargs):
        with services.uwsgi(application, ironic.conf_file,
                            services.free_port(), **kwargs) as running:
            yield service.Ironic(running)
    return start


@pytest.fixture
def openstack(ironic):
    """Runs the real openstack command: openstack('baremetal', ...)."""
    def run(*args, check=False):
        return subprocess.run(
            ['openstack', *args], capture_output=True, text=True,
            timeout=120, check=check,
            env=services.cli_environment(ironic.url))
    return run


@pytest.fixture(scope='session')
def nova(tmp_path_factory):
    with services.nova(tmp_path_factory.mktemp('nova'),
                       services.free_port()) as url:
        yield url


@pytest.fixture(scope='session')
def glance(tmp_path_factory):
    with services.glance(tmp_path_factory.mktemp('glance'),
                         services.free_port()) as url:
        yield url
