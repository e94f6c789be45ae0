# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-dbsync: create, upgrade and drop our tables."""

from collections.abc import Sequence
import importlib.resources
import random
import sys
import time
from typing import Any

from alembic import command
from alembic import config as alembic_config
from alembic import script
import alembic.util
from oslo_config import cfg
from oslo_db import exception as db_exc
import sqlalchemy as sa
from sqlalchemy import schema

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import models
from ironic_reservations.db import notice_rows
from ironic_reservations.db import pool_rows
from ironic_reservations.db import reservation_rows


def make_config(connection: sa.Connection | None) -> alembic_config.Config:
    """Return Alembic's configuration for our migrations on a connection."""
    # Alembic's default is the stdout at the time when it was imported.
    config = alembic_config.Config(stdout=sys.stdout)
    config.set_main_option('script_location', str(
        importlib.resources.files('ironic_reservations.db.migrations')))
    config.attributes['connection'] = connection
    return config


# The rows of Alembic's table: one, or none before the first upgrade.
_REVISIONS = sa.select(sa.table(models.VERSION_TABLE,
                                sa.column('version_num', sa.String)))

# Newest revisions before 1.0.0.
_UNRELEASED = frozenset((
    '3f1c0a7d9b52', '8c2d5e7f1a34', 'c7e4b9d21f68', 'e5a18c3d7042',
    'b2d81f6c4e07', '7c3e9a5d2f81', '4d1b8f60a9c3', 'e91b4c70d5a2',
    'a3c85e17b9d4', 'c6f2a97d31e8', '5f0c2e8d7b16'))

# Seconds for which an upgrade waits for concurrent upgrades.
_PATIENCE = 30

#: All tables, in the order in which they are dropped.
_TABLES = (sa.Table(models.VERSION_TABLE, sa.MetaData()),
           models.reservations,
           *(table for table in models.Base.metadata.sorted_tables
             if table is not models.reservations))

# Maximum number of nodes that are named.
_MAX_NAMES = 20


def drop(connection: sa.Connection, options: Any) -> int:
    """Drop our tables and their revision.

    The table of the revision is dropped first. If the command is interrupted,
    both ``drop`` and ``upgrade`` can then continue, whereas a revision
    without tables would make ``upgrade`` do nothing. The table of
    reservations is next, because without it no node can be held.

    :param options: see ``_add_commands``.
    :returns: the exit status.
    :raises: Conflict if nodes are held, or a pool exists.
    """
    inspector = sa.inspect(connection)
    present = set(inspector.get_table_names())
    tables = [table for table in _TABLES if table.name in present]

    def has_columns(table: sa.Table, *names: str) -> bool:
        # Without these columns, a table is not ours.
        return table in tables and {*names} <= {
            column['name'] for column in inspector.get_columns(table.name)}

    number = pools = 0
    cordons: Sequence[str] = ()
    if has_columns(models.reservations, 'node_id', 'instance_uuid'):
        number = connection.scalar(reservation_rows.COUNT_CARRIED) or 0
    if has_columns(models.notices, 'node_id', 'node_uuid', 'cordon',
                   'starts_at', 'ends_at'):
        cordons = connection.scalars(notice_rows.CORDONED_NODES).all()
    if has_columns(models.pools, 'id', 'expires_at'):
        pools = connection.scalar(pool_rows.COUNT) or 0
    # Requests must not wait for this transaction while the operator thinks.
    connection.rollback()
    if number and not options.force:
        raise exception.Conflict(
            f'{number} reservations are live. Release them; for those whose '
            f'lease has expired, run "ironic-reservations-manage sweep". '
            f'--force drops the tables anyway; the nodes then keep their '
            f'instance_uuid until they are torn down.')
    if pools and not options.force:
        raise exception.Conflict(
            f'{pools} pools exist: their nodes would be free for all '
            f'projects. Delete them with "openstack baremetal reservation '
            f'pool delete"; --force drops the tables anyway.')
    if not tables:
        print('There is nothing to drop.')
        return 0
    if cordons:
        print(f'The open cordons of {len(cordons)} nodes end: '
              + ', '.join(cordons[:_MAX_NAMES])
              + (' ...' if cordons[_MAX_NAMES:] else ''))
    if not options.yes and not _confirm(
            f'Drop the tables {", ".join(table.name for table in tables)}'
            + (f' with {number} live reservations' if number else '')
            + (f' and {pools} pools' if pools else '')):
        print('Nothing was dropped.')
        return 1
    for table in tables:
        connection.execute(schema.DropTable(table, if_exists=True))
        connection.commit()
    print(f'{len(tables)} tables dropped')
    return 0


def check_release(connection: sa.Connection) -> str | None:
    """Check that our tables, if there are any, are not older than 1.0.0.

    :returns: their revision, if a later release has made them. This one works
        with them, see "Go back" in the upgrade guide.
    :raises: Conflict if they are older.
    """
    _, revisions = _read_state(connection)
    if not _UNRELEASED.isdisjoint(revisions):
        raise exception.Conflict(
            f'Our tables, at {", ".join(revisions)}, are older than 1.0.0 and '
            f'cannot be upgraded. Stop Ironic\'s API and nova-compute. Run '
            f'"ironic-reservations-dbsync drop" (with --force if servers, '
            f'reservations or pools exist: machines keep running), then '
            f'"ironic-reservations-dbsync upgrade". Start both again, and run '
            f'"openstack baremetal reservation audit --repair", which '
            f'reserves the machines of servers again. Groups, pools, notices '
            f'and history are lost.')
    ours = {item.revision for item in script.ScriptDirectory.from_config(
        make_config(connection)).walk_revisions()}
    return next((item for item in revisions if item not in ours), None)


def _report_step(step: Any, **_kwargs: Any) -> None:
    """Print the revision that a migration has reached."""
    print(f'{step.up_revision.revision}: {step.up_revision.doc}',
          file=sys.stderr, flush=True)


def _check_step(ctx: Any, **_kwargs: Any) -> None:
    """Check that no concurrent upgrade has recorded a later revision.

    If this one has inserted its first revision after that, the table would
    have two. The statement also reads rows that were committed after this
    transaction began. It is rolled back by the exception.
    """
    if len(ctx.connection.scalars(_REVISIONS.with_for_update()).all()) > 1:
        raise alembic.util.CommandError('The tables have two revisions.')


def upgrade(connection: sa.Connection, options: Any) -> None:
    """Upgrade the tables to a revision, and print the current one.

    Several processes may upgrade at once, also on different members of a
    Galera cluster, where no lock of the database excludes the others. One of
    them records each revision. The other processes fail and try again: steps
    skip the work that is already done.

    :raises: Conflict if other processes are still upgrading in the end, or
        if the tables are older than 1.0.0.
    """
    if later := check_release(connection):
        print('nothing to do: a later release has made our tables, at '
              + later)
        return
    config = make_config(connection)
    config.attributes['on_version_apply'] = [_check_step]
    # Show progress, because the tables of a large fleet take a while.
    if sys.stderr.isatty():
        config.attributes['on_version_apply'].append(_report_step)
    give_up = time.monotonic() + _PATIENCE
    while True:
        before = _read_state(connection)
        try:
            command.upgrade(config, options.revision or 'head')
            break
        except (db_exc.DBError, sa.exc.SQLAlchemyError,
                alembic.util.CommandError) as error:
            connection.rollback()
            if not (engine.is_conflict(error)
                    or _read_state(connection) != before):
                raise
            if time.monotonic() > give_up:
                raise exception.Conflict(
                    'Another process is upgrading the tables; run the command '
                    'again when it has ended.')
            time.sleep(random.uniform(0.1, 0.5))
    _, revisions = _read_state(connection)
    print(f'done, at {", ".join(revisions)}')


def _read_state(connection: sa.Connection) -> tuple[set[str], Sequence[str]]:
    """Return the names of our tables, and their revision, if there is one."""
    names = {table.name for table in _TABLES} & {
        *sa.inspect(connection).get_table_names()}
    revisions = (connection.scalars(_REVISIONS).all()
                 if models.VERSION_TABLE in names else ())
    # Other processes must not wait for this transaction.
    connection.rollback()
    return names, revisions


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
                                     'live, or pools exist')


@cmd.command
def main() -> int | None:
    conf.CONF.register_cli_opt(cfg.SubCommandOpt(
        'command', title='Commands', handler=_add_commands))
    conf.load(sys.argv[1:], prog='ironic-reservations-dbsync')
    _, run = COMMANDS[conf.CONF.command.name]
    # A migration has to wait for open transactions.
    database = engine.create_engine(waits_for_tables=True)
    if not sa.inspect(database).has_table('nodes'):
        raise exception.DatabaseNotReady(
            "[database] connection is not Ironic's database: it has no table "
            'nodes.')
    with database.connect() as connection:
        return run(connection, conf.CONF.command)


if __name__ == '__main__':
    sys.exit(main())
