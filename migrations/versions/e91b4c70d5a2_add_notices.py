# SPDX-License-Identifier: Apache-2.0
"""Add notices

Revision ID: e91b4c70d5a2
Revises: 4d1b8f60a9c3
"""

from alembic import op
import sqlalchemy as sa

from ironic_reservations.db.migrations import steps

revision = 'e91b4c70d5a2'
down_revision = '4d1b8f60a9c3'

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
          'mysql_collate': 'utf8mb4_bin'}


def upgrade() -> None:
    steps.create_table(
        'reservations_notices',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('number', sa.Integer, nullable=False),
        sa.Column('node_id', sa.Integer, nullable=False),
        sa.Column('node_uuid', sa.String(36), nullable=False),
        sa.Column('node_name', sa.String(255)),
        sa.Column('kind', sa.String(16), nullable=False),
        sa.Column('cordon', sa.Boolean, nullable=False),
        sa.Column('starts_at', sa.DateTime, nullable=False),
        sa.Column('ends_at', sa.DateTime),
        sa.Column('category', sa.String(64)),
        sa.Column('description', sa.String(255)),
        sa.Column('ticket', sa.String(255)),
        sa.Column('action', sa.String(255)),
        sa.Column('project_id', sa.String(255)),
        sa.Column('is_failed_build', sa.Boolean, nullable=False),
        sa.Column('created_by', sa.String(255)),
        sa.Column('request_digest', sa.String(64), nullable=False),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime),
        sa.UniqueConstraint('uuid', 'number',
                            name='uniq_reservations_notices0uuid0number'),
        sa.Index('reservations_notices_node_id_idx', 'node_id'),
        sa.Index('reservations_notices_node_uuid_idx', 'node_uuid'),
        sa.Index('reservations_notices_project_id_idx', 'project_id'),
        sa.Index('reservations_notices_ends_at_idx', 'ends_at'),
        sqlite_autoincrement=True, **_MYSQL)


def downgrade() -> None:
    op.drop_table('reservations_notices')
