# SPDX-License-Identifier: Apache-2.0
"""The steps of migrations. Each goes on where it finds its work done.

MariaDB and MySQL commit every statement that changes a schema at once, so
that a migration which was interrupted has done a part of its work. Tables may
also be left where an operator has dropped some of ours by hand. An upgrade
goes on from both, because an "already exists" would leave the operator with
tables that no command can bring up to date.
"""

from alembic import op
import sqlalchemy as sa

from ironic_reservations import exception


def create_table(name, *items, **options):
    """Create a table with its indexes: see alembic's op.create_table.

    :raises: DatabaseNotReady when there is a table of this name that lacks
        columns, which no interrupted upgrade leaves.
    """
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table(name):
        op.create_table(name, *items, **options)
        return
    wanted = sa.Table(name, sa.MetaData(), *items)
    present = {each['name'] for each in inspector.get_columns(name)}
    missing = [each.name for each in wanted.columns
               if each.name not in present]
    if missing:
        raise exception.DatabaseNotReady(
            f'The table {name} lacks {", ".join(missing)}: it is not what an '
            f'upgrade has left. "ironic-reservations-dbsync drop" drops it '
            f'with all others of ours; then run "upgrade" again.')
    # The indexes come after the table, by statements of their own.
    indexes = {each['name'] for each in inspector.get_indexes(name)}
    for index in wanted.indexes:
        if index.name not in indexes:
            op.create_index(index.name, name,
                            [each.name for each in index.columns])
