# SPDX-License-Identifier: Apache-2.0
"""Add what a release may add: a table, a column and an index

Revision ID: next
Revises: 1c8a40f7e2d6
"""

from alembic import op
import sqlalchemy as sa

from ironic_reservations.db.migrations import steps

revision = 'next'
# The newest revision of the product.
down_revision = '1c8a40f7e2d6'


def upgrade():
    steps.create_table('reservations_next',
                       sa.Column('id', sa.Integer, primary_key=True))
    steps.add_columns('reservations', sa.Column('note', sa.String(255)))
    steps.create_index('reservations_note_idx', 'reservations', 'note')


def downgrade():
    op.drop_index('reservations_note_idx', 'reservations')
    op.drop_column('reservations', 'note')
    op.drop_table('reservations_next')
