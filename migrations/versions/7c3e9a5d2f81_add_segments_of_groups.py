# SPDX-License-Identifier: Apache-2.0
"""Add segments of groups

Revision ID: 7c3e9a5d2f81
Revises: b2d81f6c4e07
"""

from alembic import op
import sqlalchemy as sa

from ironic_reservations.db.migrations import steps

revision = '7c3e9a5d2f81'
down_revision = 'b2d81f6c4e07'


def upgrade() -> None:
    steps.add_columns('reservations', sa.Column('segment', sa.Integer))
    steps.add_columns('reservations_groups',
                      sa.Column('segment_levels', sa.Text),
                      sa.Column('segments', sa.Integer))


def downgrade() -> None:
    op.drop_column('reservations_groups', 'segments')
    op.drop_column('reservations_groups', 'segment_levels')
    op.drop_column('reservations', 'segment')
