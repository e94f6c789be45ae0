# SPDX-License-Identifier: Apache-2.0
"""Workers of this release with the tables of the next release.

From 1.0 on a release adds tables, indexes, and nullable columns: see
``doc/source/how-to/upgrade.rst``. The revision here adds one of each while
clients hold and release nodes, and removes them.
"""

import contextlib
import functools
import os

from alembic import command
from alembic import script
import pytest
import sqlalchemy as sa

from ironic_reservations.cmd import dbsync
from ironic_reservations.db import models
from tests.survival import clients

SPEC = {'resource_class': 'gold', 'memory_mb': 512}

NEXT = '''
from alembic import op
import sqlalchemy as sa

revision, down_revision = 'next', 'HEAD'


def upgrade():
    op.create_table('reservations_next',
                    sa.Column('id', sa.Integer, primary_key=True))
    op.add_column('reservations', sa.Column('note', sa.String(255)))
    op.create_index('reservations_note_idx', 'reservations', ['note'])


def downgrade():
    op.drop_index('reservations_note_idx', 'reservations')
    op.drop_column('reservations', 'note')
    op.drop_table('reservations_next')
'''


@pytest.fixture
def migrate(fleet, tmp_path):
    """Return a function that migrates the tables."""
    (tmp_path / 'next.py').write_text(NEXT.replace('HEAD', (
        script.ScriptDirectory.from_config(
            dbsync.make_config(None)).get_current_head())))

    def run(direction, revision):
        with fleet.engine.begin() as connection:
            config = dbsync.make_config(connection)
            ours = config.get_main_option('script_location')
            config.set_main_option('path_separator', 'os')
            config.set_main_option('version_locations', os.pathsep.join(
                (f'{ours}/versions', str(tmp_path))))
            direction(config, revision)
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
