# SPDX-License-Identifier: Apache-2.0
"""Runs the migrations.

``ironic-reservations-dbsync`` passes a connection. When developers run
``alembic`` itself, the option sqlalchemy.url names the database.
"""

from typing import Any

from alembic import context
import sqlalchemy as sa

from ironic_reservations.db import models


def _is_ours(name: str | None, type_: str, _parent_names: Any) -> bool:
    """Exclude Ironic's tables when a revision is generated."""
    return type_ != 'table' or name in models.Base.metadata.tables


def run(connection: sa.Connection) -> None:
    context.configure(
        connection=connection, target_metadata=models.Base.metadata,
        version_table=models.VERSION_TABLE, include_name=_is_ours,
        on_version_apply=context.config.attributes.get(
            'on_version_apply', ()),
        # SQLite cannot alter most things in place.
        render_as_batch=connection.dialect.name == 'sqlite')
    with context.begin_transaction():
        context.run_migrations()


connection = context.config.attributes.get('connection')
if connection is not None:
    run(connection)
else:
    with sa.create_engine(
            context.config.get_main_option('sqlalchemy.url', '')
    ).connect() as connection:
        run(connection)
