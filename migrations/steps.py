# SPDX-License-Identifier: Apache-2.0
"""Steps of migrations, which skip work that is already done.

MariaDB and MySQL commit every statement that changes a schema, so an
interrupted migration is partly done. Operators may also have dropped some of
our tables by hand. An upgrade continues in both cases, because "already
exists" would leave tables that no command can upgrade. A concurrent upgrade
may also do the work between the check and the statement.
"""

from collections.abc import Callable
from collections.abc import Collection
import functools
from typing import Any

from alembic import op
from oslo_db import exception as db_exc
import sqlalchemy as sa

from ironic_reservations import exception


def _create(name: Any, list_names: Callable[[], Collection[str]],
            create: Callable[[], Any]) -> None:
    """Create something unless it exists, maybe made by another process."""
    if name in list_names():
        return
    try:
        create()
    except (db_exc.DBError, sa.exc.SQLAlchemyError):
        if name not in list_names():
            raise


def create_table(name: str, *items: sa.schema.SchemaItem,
                 **options: Any) -> None:
    """Create a table with its indexes; see Alembic's op.create_table.

    :raises: DatabaseNotReady if the table exists, but lacks columns. An
        interrupted upgrade does not leave such a table.
    """
    connection = op.get_bind()
    table = sa.Table(name, sa.MetaData(), *items, **options)
    _create(name, lambda: sa.inspect(connection).get_table_names(),
            lambda: table.create(connection))
    present = _list_columns(name)
    missing = [column.name for column in table.columns
               if column.name not in present]
    if missing:
        raise exception.DatabaseNotReady(
            f'The table {name} lacks {", ".join(missing)}, so it was not '
            f'created by an upgrade. Run "ironic-reservations-dbsync drop", '
            f'which drops all our tables, and then "upgrade" again.')
    # Separate statements create the indexes, after the table.
    for index in table.indexes:
        _create(index.name, lambda: _list_indexes(name),
                functools.partial(index.create, connection))


def create_index(name: str, table: str, *columns: str, **options: Any) -> None:
    """Create an index unless it exists; see Alembic's op.create_index."""
    _create(name, lambda: _list_indexes(table),
            lambda: op.create_index(name, table, [*columns], **options))


def add_columns(table: str, *columns: sa.Column[Any]) -> None:
    """Add the columns that a table does not have yet."""
    for column in columns:
        _create(column.name, lambda: _list_columns(table),
                functools.partial(op.add_column, table, column))


def _list_indexes(table: str) -> list[str]:
    return [str(index['name']) for index
            in sa.inspect(op.get_bind()).get_indexes(table)]


def _list_columns(table: str) -> list[str]:
    return [column['name'] for column
            in sa.inspect(op.get_bind()).get_columns(table)]
