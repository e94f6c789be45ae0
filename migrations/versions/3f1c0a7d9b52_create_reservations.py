# SPDX-License-Identifier: Apache-2.0
"""Create reservations

Revision ID: 3f1c0a7d9b52
Revises:
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ironic_reservations.db.migrations import steps

revision = '3f1c0a7d9b52'
down_revision = None


def upgrade():
    steps.create_table(
        'reservations',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('instance_uuid', sa.String(36), nullable=False),
        sa.Column('node_id', sa.Integer, nullable=False),
        sa.Column('node_uuid', sa.String(36), nullable=False),
        sa.Column('host', sa.String(255)),
        sa.Column('project_id', sa.String(255)),
        sa.Column('user_id', sa.String(255)),
        sa.Column('request_spec',
                  sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql',
                                         'mariadb'),
                  nullable=False),
        sa.Column('expires_at', sa.DateTime),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime),
        sa.UniqueConstraint('instance_uuid',
                            name='uniq_reservations0instance_uuid'),
        sa.UniqueConstraint('node_id', name='uniq_reservations0node_id'),
        sa.Index('reservations_node_uuid_idx', 'node_uuid'),
        sa.Index('reservations_host_idx', 'host'),
        sa.Index('reservations_project_id_idx', 'project_id'),
        sa.Index('reservations_expires_at_idx', 'expires_at'),
        sqlite_autoincrement=True,
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin',
    )


def downgrade():
    op.drop_table('reservations')
