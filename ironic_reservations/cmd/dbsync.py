# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-dbsync: create, upgrade and drop our tables."""

import importlib.resources
import sys
from typing import Any

from alembic import command
from alembic import config as alembic_config
from alembic import runtime
from oslo_config import cfg
import sqlalchemy as sa
from sqlalchemy import schema

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import models
from ironic_reservations.db import reservation_rows


def make_config(connection: sa.Connection | None) -> alembic_config.Config:
    """Return Alembic's configuration for our migrations on a connection."""
    # Alembic's default is the stdout at the time when it was imported.
    config = alembic_config.Config(stdout=sys.stdout)
    config.set_main_option('script_location', str(
        importlib.resources.files('ironic_reservations.db.migrations')))
    config.attributes['connection'] = connection
    return config


#: All tables, in the order in which they are dropped.
_TABLES = (sa.Table(models.VERSION_TABLE, sa.MetaData()),
             models.reservations,
             *(table for table in models.Base.metadata.sorted_tables
               if table is not models.reservations))


def drop(connection: sa.Connection, options: Any) -> int:
    """Drop our tables and their revision.

    The table of the revision is dropped first. If the command is interrupted,
    both ``drop`` and ``upgrade`` can then continue, whereas a revision
    without tables would make ``upgrade`` do nothing. The table of
    reservations is next, because without it no node can be held.

    :param options: see ``_add_commands``.
    :returns: the exit status.
    :raises: Conflict if nodes are held.
    """
    inspector = sa.inspect(connection)
    present = set(inspector.get_table_names())
    tables = [table for table in _TABLES if table.name in present]
    number = 0
    # A table without these columns is not ours, and holds no nodes.
    if models.reservations in tables and {'node_id', 'instance_uuid'} <= {
            column['name']
            for column in inspector.get_columns('reservations')}:
        number = connection.scalar(reservation_rows.COUNT_CARRIED) or 0
    # Requests must not wait for this transaction while the operator thinks.
    connection.rollback()
    if number and not options.force:
        raise exception.Conflict(
            f'{number} reservations are live. Release them; for those whose '
            f'lease has expired, run "ironic-reservations-manage sweep". '
            f'--force drops the tables anyway; the nodes then keep their '
            f'instance_uuid until they are torn down.')
    if not tables:
        print('There is nothing to drop.')
        return 0
    if not options.yes and not _confirm(
            f'Drop the tables {", ".join(table.name for table in tables)}'
            + (f' with {number} live reservations' if number else '')):
        print('Nothing was dropped.')
        return 1
    for table in tables:
        connection.execute(schema.DropTable(table, if_exists=True))
        connection.commit()
    print(f'{len(tables)} tables dropped')
    return 0


def _report_step(step: Any, **_kwargs: Any) -> None:
    """Print the revision that a migration has reached."""
    print(f'{step.up_revision.revision}: {step.up_revision.doc}',
          file=sys.stderr, flush=True)


def upgrade(connection: sa.Connection, options: Any) -> None:
    """Upgrade the tables to a revision, and print the one they are at."""
    config = make_config(connection)
    # Show progress, because the tables of a large fleet take a while.
    if sys.stderr.isatty():
        config.attributes['on_version_apply'] = _report_step
    command.upgrade(config, options.revision or 'head')
    revision = runtime.migration.MigrationContext.configure(
        connection, opts={'version_table': models.VERSION_TABLE}
    ).get_current_revision()
    print(f'done, at {revision}')


def _confirm(question: str) -> bool:
    try:
        return input(f'{question}? [y/N] ').strip().lower() in ('y', 'yes')
    except EOFError:
        return False  # standard input is closed


COMMANDS = {
    'upgrade': ('Upgrade our tables to the newest or another revision.',
                upgrade),
    'version': ('Show the revision of the database.',
                lambda connection, options: command.current(
                    make_config(connection))),
    'current': ('Show the revision of the database with its description.',
                lambda connection, options: command.current(
                    make_config(connection), verbose=True)),
    'history': ('Show all revisions.',
                lambda connection, options: command.history(
                    make_config(connection))),
    'drop': ('Drop all our tables before the plugin is uninstalled.',
             drop),
}


def _add_commands(subparsers: Any) -> None:
    for name, (description, _) in COMMANDS.items():
        parser = subparsers.add_parser(name, help=description,
                                       description=description)
        if name == 'upgrade':
            parser.add_argument('--revision',
                                help='the revision to upgrade to')
        if name == 'drop':
            parser.add_argument('--yes', action='store_true',
                                help='do not ask for confirmation')
            parser.add_argument('--force', action='store_true',
                                help='drop them even if reservations are '
                                     'live')


@cmd.command
def main() -> int | None:
    conf.CONF.register_cli_opt(cfg.SubCommandOpt(
        'command', title='Commands', handler=_add_commands))
    conf.load(sys.argv[1:], prog='ironic-reservations-dbsync')
    _, run = COMMANDS[conf.CONF.command.name]
    database = engine.create_engine()
    if not sa.inspect(database).has_table('nodes'):
        raise exception.DatabaseNotReady(
            "[database] connection is not Ironic's database: it has no table "
            'nodes.')
    with database.connect() as connection:
        return run(connection, conf.CONF.command)


if __name__ == '__main__':
    sys.exit(main())
