# SPDX-License-Identifier: Apache-2.0
"""Runs the migrations on the connection that it is given.

``ironic-reservations-dbsync`` passes it in; ``alembic`` alone, as developers
use it, takes sqlalchemy.url.
"""

from alembic import context
import sqlalchemy as sa

from ironic_reservations.db import models


def _ours(name, type_, parent_names):
    """Leave Ironic's tables alone when a revision is generated."""
    return type_ != 'table' or name in models.Base.metadata.tables


def run(connection):
    context.configure(
        connection=connection, target_metadata=models.Base.metadata,
        version_table=models.VERSION_TABLE, include_name=_ours,
        on_version_apply=context.config.attributes.get('tell', ()),
        # SQLite can alter little in place.
        render_as_batch=connection.dialect.name == 'sqlite')
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get('connection')
if given is not None:
    run(given)
else:
    with sa.create_engine(
            context.config.get_main_option('sqlalchemy.url')
    ).connect() as connection:
        run(connection)
