# SPDX-License-Identifier: Apache-2.0
"""The steps of migrations. Each goes on where it finds its work done.

MariaDB and MySQL commit every statement that changes a schema at once, so
that a migration which was interrupted has done a part of its work, and tables
may be left of a plugin that was taken out by hand. Both are gone on from: to
say "already exists" would leave an operator with tables that no command can
bring up to date.
"""

from alembic import op
import sqlalchemy as sa

from ironic_reservations import exception


def create_table(name, *items, **options):
    """Create a table with its indexes: see alembic's op.create_table.

    :raises: DatabaseNotReady when there is one of this name that is another.
    """
    if not _inspect().has_table(name):
        op.create_table(name, *items, **options)
        return
    wanted = sa.Table(name, sa.MetaData(), *items)
    present = _columns(name)
    missing = [each.name for each in wanted.columns
               if each.name not in present]
    if missing:
        raise exception.DatabaseNotReady(
            f'The table {name} lacks {", ".join(missing)}: it is not what an '
            f'upgrade has left. "ironic-reservations-dbsync drop" drops it '
            f'with all others of ours; then run "upgrade" again.')
    # The indexes come after the table, by statements of their own.
    for index in wanted.indexes:
        create_index(index.name, name, [each.name for each in index.columns])


def add_column(table, column):
    if column.name not in _columns(table):
        op.add_column(table, column)


def create_index(name, table, columns):
    if name not in {each['name'] for each in _inspect().get_indexes(table)}:
        op.create_index(name, table, columns)


def _columns(table):
    return {each['name'] for each in _inspect().get_columns(table)}


def _inspect():
    # A new one each time, because an inspector remembers what it has seen.
    return sa.inspect(op.get_bind())
