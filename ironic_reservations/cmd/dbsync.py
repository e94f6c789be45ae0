# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-dbsync: create and upgrade our table."""

import importlib.resources
import sys

from alembic import command
from alembic import config as alembic_config
from oslo_config import cfg
import sqlalchemy as sa

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.db import engine


def alembic(connection):
    """Return Alembic's configuration for our migrations on a connection."""
    config = alembic_config.Config()
    config.set_main_option('script_location', str(
        importlib.resources.files('ironic_reservations.db.migrations')))
    config.attributes['connection'] = connection
    return config


COMMANDS = {
    'upgrade': ('Upgrade the table to the newest revision, or to one.',
                lambda config, revision: command.upgrade(
                    config, revision or 'head')),
    'version': ('Show the revision of the database.',
                lambda config, revision: command.current(config)),
    'current': ('Show the revision of the database with its description.',
                lambda config, revision: command.current(
                    config, verbose=True)),
    'history': ('Show all revisions.',
                lambda config, revision: command.history(config)),
}


def _add_commands(subparsers):
    for name, (description, _) in COMMANDS.items():
        parser = subparsers.add_parser(name, help=description,
                                       description=description)
        if name == 'upgrade':
            parser.add_argument('--revision', help='the revision to reach')


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
        run(alembic(connection), getattr(conf.CONF.command, 'revision', None))


if __name__ == '__main__':
    sys.exit(main())
