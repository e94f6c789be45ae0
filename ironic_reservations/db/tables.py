# SPDX-License-Identifier: Apache-2.0
"""Checks that the database has the tables and columns that we use."""

from collections.abc import Iterator
from typing import Any

from oslo_log import log
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.db import functions
from ironic_reservations.db import models

LOG = log.getLogger(__name__)


def check_tables(engine: sa.Engine) -> None:
    """Check that the database has the columns that we use.

    :raises: DatabaseNotReady, after logging the remedy.
    """
    for problem in find_problems(engine):
        LOG.error('/v1/reservations cannot be served: %s', problem)
        raise exception.DatabaseNotReady(
            'The reservations service is not ready: its database schema is '
            'not up to date.')
    inspector = sa.inspect(engine)
    functions.set_missing_columns(engine, (
        str(column) for table in models.ironic.sorted_tables
        for column in _list_missing(inspector, table, optional=True)))


def find_problems(engine: sa.Engine) -> Iterator[str]:
    """Yield sentences that tell an operator what the database lacks."""
    inspector = sa.inspect(engine)
    ours = models.Base.metadata.sorted_tables
    for table in (*models.ironic.sorted_tables, *ours):
        remedy = ('run "ironic-reservations-dbsync upgrade"'
                  if table in ours else
                  'this is not the database of a supported Ironic, or '
                  '"ironic-dbsync upgrade" is due')
        if not inspector.has_table(table.name):
            if table.info.get(models.OPTIONAL):
                continue
            yield f'table {table.name} is missing; {remedy}'
            continue
        missing = [column.name for column in _list_missing(inspector, table)]
        if missing:
            yield f'table {table.name} lacks {", ".join(missing)}; {remedy}'


def _list_missing(inspector: sa.Inspector, table: sa.Table,
                  optional: bool = False) -> list[sa.Column[Any]]:
    """Return the columns of a table that the database lacks.

    :param optional: whether to return optional or required columns.
    """
    present = {column['name'] for column in (
        inspector.get_columns(table.name)
        if inspector.has_table(table.name) else ())}
    return [column for column in table.columns
            if column.name not in present and optional == (
                column.info.get(models.OPTIONAL, False)
                or table.info.get(models.OPTIONAL, False))]
