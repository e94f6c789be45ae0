# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-dbsync: create, upgrade and drop our tables."""

import importlib.resources
import sys

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
from ironic_reservations.db import reservations


def alembic(connection):
    """Return Alembic's configuration for our migrations on a connection."""
    # Alembic's default is what stdout was when Alembic was imported.
    config = alembic_config.Config(stdout=sys.stdout)
    config.set_main_option('script_location', str(
        importlib.resources.files('ironic_reservations.db.migrations')))
    config.attributes['connection'] = connection
    return config


_IN_ORDER = (sa.Table(models.VERSION_TABLE, sa.MetaData()),
             models.reservations,
             *(table for table in models.Base.metadata.sorted_tables
               if table is not models.reservations))


def drop(connection, options):
    """Drop our tables, and forget the revision that they were at.

    The revision goes first. Should the command be interrupted, whether it is
    run again or ``upgrade`` is, no table is missed: a revision without the
    tables would tell ``upgrade`` that there is nothing to do. Next go the
    reservations, without whose table nothing can be held.

    :returns: the exit status.
    :raises: Conflict when nodes are held.
    """
    inspector = sa.inspect(connection)
    present = set(inspector.get_table_names())
    tables = [table for table in _IN_ORDER if table.name in present]
    held = 0
    # One without these columns is no table of ours, and holds nothing.
    if models.reservations in tables and {'node_id', 'instance_uuid'} <= {
            each['name'] for each in inspector.get_columns('reservations')}:
        held = connection.scalar(reservations.COUNT_CARRIED)
    # Nobody is to wait for this transaction while the operator thinks.
    connection.rollback()
    if held and not options.force:
        raise exception.Conflict(
            f'{held} reservations are live. Release them, and give back with '
            f'"ironic-reservations-manage sweep" those whose lease is over. '
            f'With --force the tables are dropped all the same, and the nodes '
            f'keep their instance_uuid until they are torn down.')
    if not tables:
        print('There is nothing to drop.')
        return 0
    if not options.yes and not _is_sure(
            f'Drop the tables {", ".join(each.name for each in tables)}'
            + (f' with {held} live reservations' if held else '')):
        print('Nothing is dropped.')
        return 1
    for table in tables:
        connection.execute(schema.DropTable(table, if_exists=True))
        connection.commit()
    print(f'{len(tables)} tables dropped')
    return 0


def _tell(step, **kwargs):
    """Say which revision was reached on the way: Alembic calls it."""
    print(f'{step.up_revision.revision}: {step.up_revision.doc}',
          file=sys.stderr, flush=True)


def upgrade(connection, options):
    """Bring the tables to a revision, and say at which one they are."""
    config = alembic(connection)
    # The tables of a large fleet take a while.
    if sys.stderr.isatty():
        config.attributes['tell'] = _tell
    command.upgrade(config, options.revision or 'head')
    reached = runtime.migration.MigrationContext.configure(
        connection, opts={'version_table': models.VERSION_TABLE}
    ).get_current_revision()
    print(f'done, at {reached}')


def _is_sure(question):
    try:
        return input(f'{question}? [y/N] ').strip().lower() in ('y', 'yes')
    except EOFError:
        # There is nobody to ask.
        return False


COMMANDS = {
    'upgrade': ('Upgrade our tables to the newest or the given revision.',
                upgrade),
    'version': ('Show the revision of the database.',
                lambda connection, options: command.current(
                    alembic(connection))),
    'current': ('Show the revision of the database with its description.',
                lambda connection, options: command.current(
                    alembic(connection), verbose=True)),
    'history': ('Show all revisions.',
                lambda connection, options: command.history(
                    alembic(connection))),
    'drop': ('Drop all our tables, so that the plugin can be taken out.',
             drop),
}


def _add_commands(subparsers):
    for name, (description, _) in COMMANDS.items():
        parser = subparsers.add_parser(name, help=description,
                                       description=description)
        if name == 'upgrade':
            parser.add_argument('--revision', help='the revision to reach')
        if name == 'drop':
            parser.add_argument('--yes', action='store_true',
                                help='do not ask')
            parser.add_argument('--force', action='store_true',
                                help='even while reservations are live')


@cmd.command
def main():
    conf.CONF.register_cli_opt(cfg.SubCommandOpt(
        'command', title='Commands', handler=_add_commands))
    conf.load(sys.argv[1:], prog='ironic-reservations-dbsync')
    _, run = COMMANDS[conf.CONF.command.name]
    database = engine.connect()
    if not sa.inspect(database).has_table('nodes'):
        raise exception.DatabaseNotReady(
            "[database] connection does not lead to Ironic's database: it "
            'has no table nodes.')
    with database.connect() as connection:
        return run(connection, conf.CONF.command)


if __name__ == '__main__':
    sys.exit(main())
