# SPDX-License-Identifier: Apache-2.0
"""Steps of migrations, which skip work that is already done.

MariaDB and MySQL commit every statement that changes a schema, so an
interrupted migration is partly done. Operators may also have dropped some of
our tables by hand. An upgrade continues in both cases, because "already
exists" would leave tables that no command can upgrade.
"""

from typing import Any

from alembic import op
import sqlalchemy as sa

from ironic_reservations import exception


def create_table(name: str, *items: sa.schema.SchemaItem,
                 **options: Any) -> None:
    """Create a table with its indexes; see Alembic's op.create_table.

    :raises: DatabaseNotReady if the table exists, but lacks columns. An
        interrupted upgrade does not leave such a table.
    """
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table(name):
        op.create_table(name, *items, **options)
        return
    table = sa.Table(name, sa.MetaData(), *items)
    present = {column['name'] for column in inspector.get_columns(name)}
    missing = [column.name for column in table.columns
               if column.name not in present]
    if missing:
        raise exception.DatabaseNotReady(
            f'The table {name} lacks {", ".join(missing)}, so it was not '
            f'created by an upgrade. Run "ironic-reservations-dbsync drop", '
            f'which drops all our tables, and then "upgrade" again.')
    # Separate statements create the indexes, after the table.
    indexes = {index['name'] for index in inspector.get_indexes(name)}
    for index in table.indexes:
        if index.name not in indexes:
            op.create_index(index.name, name,
                            [column.name for column in index.columns])


def add_columns(table: str, *columns: sa.Column[Any]) -> None:
    """Add the columns that a table does not have yet."""
    present = {column['name'] for column
               in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in present:
            op.add_column(table, column)
