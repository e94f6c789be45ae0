# SPDX-License-Identifier: Apache-2.0
"""Add descriptions of reservations and groups

Revision ID: 4d1b8f60a9c3
Revises: 7c3e9a5d2f81
"""

from alembic import op
import sqlalchemy as sa

from ironic_reservations.db.migrations import steps

revision = '4d1b8f60a9c3'
down_revision = '7c3e9a5d2f81'

_TABLES = ('reservations', 'reservations_groups')


def upgrade() -> None:
    for table in _TABLES:
        steps.add_columns(table, sa.Column('description', sa.String(255)))


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_column(table, 'description')
