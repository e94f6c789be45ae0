# SPDX-License-Identifier: Apache-2.0

import contextlib
import os
import uuid

import pytest

from tests.common import databases
from tools import services

SERVERS = {'mariadb': services.mariadb, 'mysql': services.mysql}


def pytest_addoption(parser):
    parser.addoption('--server', choices=SERVERS,
                     help='run the tests that need a database server, on this')
    parser.addoption('--server-option', action='append', default=[],
                     help='option of the database server')


def pytest_configure():
    services.stop_on_signal()


def pytest_collection_modifyitems(config, items):
    if config.getoption('server'):
        left_out = [item for item in items
                    if not databases.needs_server(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if databases.needs_server(item)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Divide the pairs of writes between the workers, and no other file."""
    from xdist import scheduler

    class Scheduling(scheduler.LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid if '::test_pairs' in nodeid else (
                super()._split_scope(nodeid))

    if config.getoption('dist') == 'loadfile':
        return Scheduling(config, log)


@pytest.fixture(scope='session')
def server_url(pytestconfig):
    """A private database server, for services.database()."""
    name = pytestconfig.getoption('server') or 'mariadb'
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(SERVERS[name](
                # Do not wait for the disk, because no database outlives its
                # tests. MySQL has no such option, and ignores it.
                '--loose-debug-no-sync',
                *pytestconfig.getoption('server_option')))
        except services.NotInstalled as e:
            if os.environ.get('IRONIC_RESERVATIONS_REQUIRE_MARIADB') == '1':
                raise
            pytest.skip(f'NOT TESTED ON {name.upper()}: {e}')
        yield url


@pytest.fixture(scope='session')
def shared_directory(tmp_path_factory, worker_id):
    """A directory of all workers of this run, for tests.common.databases."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == 'master' else own.parent


# Nodes for the tests of a service. Each fixture "ironic" has a method fleet().

@pytest.fixture
def resource_class():
    return f'test-{uuid.uuid4().hex}'


@pytest.fixture(scope='module')
def node_class():
    """The resource class of the nodes of a module."""
    return f'test.{uuid.uuid4().hex}'


@pytest.fixture(scope='module')
def nodes_of_module(request, ironic, node_class):
    with ironic.fleet(*({**node, 'resource_class': node_class}
                        for node in request.module.POOL)) as nodes:
        yield nodes


@pytest.fixture
def pool(ironic, nodes_of_module, node_class):
    """The nodes that the module's POOL describes, all of them free."""
    yield nodes_of_module
    ironic.free_nodes(node_class)
    # A kept count would lack the nodes that this test has held.
    ironic.capacity()
