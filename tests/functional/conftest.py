# SPDX-License-Identifier: Apache-2.0
"""A real Ironic with the plugin for each database, shared by all tests.

Each test enrols its own nodes with its own resource class, and removes them.
"""

import contextlib

import pytest

from tests.common import databases
from tests.common import service
from tools import services

#: Options of Ironic's middleware that also apply to the plugin, and one of the
#: plugin. Notifications go to the log.
CONFIG = {'DEFAULT': {'notification_level': 'info'},
          'oslo_messaging_notifications': {'driver': 'log'},
          'cors': {'allowed_origin': 'http://dashboard.example'},
          'oslo_middleware': {'enable_proxy_headers_parsing': 'true'},
          'reservations': {'dedicated_traits': 'CUSTOM_DEDICATED_*'}}


@pytest.fixture(scope='session')
def start_ironic(tmp_path_factory, shared_directory):
    """Return a context manager that starts an Ironic.

    :param database_url: of a database with the schema; None for a new one.
    """
    @contextlib.contextmanager
    def start(database_url=None, plugin=True, **kwargs):
        directory = tmp_path_factory.mktemp('ironic')
        path = directory / 'ironic.sqlite'
        if plugin and not database_url:
            database_url = databases.create_sqlite(shared_directory, path)
        with services.ironic(
                directory, database_url or f'sqlite:///{path}',
                services.free_port(), plugin=plugin, kill=True,
                empty=not database_url, **kwargs) as running:
            yield service.Ironic(running)
    return start


@pytest.fixture(scope='session')
def stock_ironic(start_ironic):
    """Start an Ironic without the plugin."""
    with start_ironic(plugin=False, config=CONFIG) as ironic:
        yield ironic


@pytest.fixture(scope='session')
def ironic_sqlite(start_ironic):
    with start_ironic(config=CONFIG) as ironic:
        yield ironic


@pytest.fixture(scope='session')
def ironic_server(start_ironic, shared_directory, server_url):
    with databases.on_server(shared_directory, server_url) as url, \
            start_ironic(url, config=CONFIG) as ironic:
        yield ironic


@pytest.fixture(scope='session')
def ironic(request):
    """Return the Ironic on the database that a test names, or on SQLite."""
    return request.getfixturevalue(
        f'ironic_{getattr(request, "param", "sqlite")}')


@pytest.fixture(scope='session')
def start_uwsgi(tmp_path_factory):
    """Return a context manager that starts an application next to an Ironic.

    :param changes: of Ironic's configuration, {section: {option: value}}.
    """
    @contextlib.contextmanager
    def start(ironic, application='ironic_reservations.wsgi:application',
              changes=None, **kwargs):
        conf_file = ironic.conf_file
        if changes:
            conf = services.read_conf(conf_file)
            for section, values in changes.items():
                conf.setdefault(section, {}).update(values)
            conf_file = services.write_conf(
                tmp_path_factory.mktemp('alone') / 'ironic.conf', conf)
        with services.uwsgi(application, conf_file, services.free_port(),
                            **kwargs) as running:
            yield service.Ironic(running)
    return start


@pytest.fixture(scope='session')
def alone(ironic, start_uwsgi):
    """Start the standalone application, in four processes."""
    with start_uwsgi(ironic) as alone:
        yield alone


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
