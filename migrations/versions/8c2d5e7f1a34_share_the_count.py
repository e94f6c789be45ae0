# SPDX-License-Identifier: Apache-2.0
"""Share the count of the fleet

Revision ID: 8c2d5e7f1a34
Revises: 3f1c0a7d9b52
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ironic_reservations.db.migrations import steps

revision = '8c2d5e7f1a34'
down_revision = '3f1c0a7d9b52'


def upgrade():
    steps.create_table(
        'reservations_fleet',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('counted_at', sa.Double, nullable=False),
        sa.Column('cost', sa.Double, nullable=False),
        sa.Column('counting_until', sa.Double, nullable=False),
        sa.Column('profiles',
                  sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql',
                                         'mariadb'),
                  nullable=False),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin',
    )


def downgrade():
    op.drop_table('reservations_fleet')
