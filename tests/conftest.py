# SPDX-License-Identifier: Apache-2.0

import contextlib
import os
import uuid

import pytest

from tools import services


def pytest_configure():
    services.stop_on_signal()


@pytest.fixture(scope='session')
def mariadb_url():
    """A private MariaDB server, for services.database()."""
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(services.mariadb())
        except services.NotInstalled as e:
            if os.environ.get('IRONIC_RESERVATIONS_REQUIRE_MARIADB') == '1':
                raise
            pytest.skip(f'NOT TESTED ON MARIADB: {e}')
        yield url


@pytest.fixture(scope='session')
def shared_directory(tmp_path_factory, worker_id):
    """A directory of all workers of this run, for tests.common.databases."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == 'master' else own.parent


# Nodes, for the tests of a service. Each "ironic" has a method fleet().

@pytest.fixture
def resource_class():
    return f'test-{uuid.uuid4().hex}'


@pytest.fixture(scope='module')
def node_class():
    """The resource class of the nodes that a module has for its tests."""
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
    ironic.give_back(node_class)
