# SPDX-License-Identifier: Apache-2.0
"""A real Ironic with the plugin for each database, shared by all tests.

A test uses nodes and a resource class of its own, so that it sees nothing
of another's, and leaves none behind.
"""

import contextlib
import functools
import subprocess
import urllib.parse
import uuid

import pytest
import requests

from tests.functional import answers
from tools import services

API_VERSION = 'X-OpenStack-Ironic-API-Version'


class Http(requests.Session):
    """A session that takes paths: no retries, nothing hidden."""

    def __init__(self, url):
        super().__init__()
        self.url = url
        self.headers[API_VERSION] = 'latest'

    def request(self, method, url, **kwargs):
        return super().request(
            method, urllib.parse.urljoin(self.url, url),
            **{'timeout': 60, **kwargs})


class Ironic:
    """What tests do with a running service."""

    def __init__(self, service):
        self.service = service
        self.url = service.url
        self.port = service.port
        self.conf_file = service.conf_file
        self.database_url = service.database_url
        self.log = service.log
        self.http = Http(service.url)

    @functools.cached_property
    def baremetal(self):
        return services.connect(self.url)

    def enrol(self, nodes):
        return services.enrol(self.baremetal, nodes)

    def settle(self, nodes, **wanted):
        return services.settle(self.baremetal, nodes, **wanted)

    def remove(self, nodes):
        services.remove(self.baremetal, nodes)

    @contextlib.contextmanager
    def fleet(self, *nodes):
        """Enrolled nodes, deleted at the end with what is held of them."""
        created = self.enrol(nodes)
        try:
            yield created
        finally:
            self.remove(created)
            answers.execute(self, 'DELETE FROM reservations WHERE node_uuid '
                                  'NOT IN (SELECT uuid FROM nodes)')


@pytest.fixture(scope='session')
def start_ironic(tmp_path_factory):
    """Starts an Ironic of a test's own: a context manager."""
    @contextlib.contextmanager
    def start(database_url=None, **kwargs):
        directory = tmp_path_factory.mktemp('ironic')
        with services.ironic(
                directory,
                database_url or f'sqlite:///{directory}/ironic.sqlite',
                services.free_port(), **kwargs) as service:
            yield Ironic(service)
    return start


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
                            services.free_port(), **kwargs) as service:
            yield Ironic(service)
    return start


@pytest.fixture
def resource_class():
    return f'test-{uuid.uuid4().hex}'


@pytest.fixture
def openstack(ironic):
    """Runs the real openstack command: openstack('baremetal', ...)."""
    def run(*args, check=False):
        return subprocess.run(
            ['openstack', *args], capture_output=True, text=True,
            timeout=120, check=check,
            env=services.cli_environment(ironic.url))
    return run
