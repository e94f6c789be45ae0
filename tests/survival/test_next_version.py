# SPDX-License-Identifier: Apache-2.0
"""Workers of this release with the tables of the next release.

From 1.0 on a release adds tables, indexes, and nullable columns: see
``doc/source/how-to/upgrade.rst``. ``tests.common.next_version`` adds one of
each while clients hold and release nodes, and removes them.
"""

import contextlib
import functools

from alembic import command
import pytest
import sqlalchemy as sa

from ironic_reservations.db import models
from tests.common import next_version
from tests.survival import clients

SPEC = {'resource_class': 'gold', 'memory_mb': 512}


@pytest.fixture
def migrate(fleet):
    """Return a function that migrates the tables."""
    def run(direction, revision):
        with fleet.engine.begin() as connection:
            direction(next_version.make_config(connection), revision)
    return run


def columns(fleet):
    return {column['name'] for column in sa.inspect(
        fleet.engine).get_columns(models.reservations.name)}


@pytest.mark.parametrize('database_url', ['mariadb'], indirect=True)
def test_next_version(fleet, database_url, migrate, start_api):
    """No response is lost or a 503, by old and by new workers."""
    fleet.fill(100, racks=6)
    with contextlib.ExitStack() as stack:
        apis = []
        crowd = clients.Crowd(apis, SPEC, kind=clients.GroupClient,
                              size=4, fleet=fleet,
                              policies=clients.make_policies())

        def start():
            apis.append(stack.enter_context(start_api(database_url)))

        def migrate_under_load(*args):
            crowd.work_during(functools.partial(migrate, *args))

        start()
        with crowd:
            crowd.work(1)
            migrate_under_load(command.upgrade, 'next')
            assert 'note' in columns(fleet)
            # Restarted on the tables of the next release.
            start()
            migrate_under_load(command.downgrade, '-1')
            assert 'note' not in columns(fleet)
            migrate_under_load(command.upgrade, 'next')
            migrate_under_load(command.downgrade, '-1')
        fleet.check(crowd)
        fleet.check_groups(crowd)
    seen = crowd.seen
    assert not seen['lost'] and not seen[503] and seen[204], seen
