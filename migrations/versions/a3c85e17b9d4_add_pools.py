# SPDX-License-Identifier: Apache-2.0
"""Add pools

Revision ID: a3c85e17b9d4
Revises: e91b4c70d5a2
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ironic_reservations.db.migrations import steps

revision = 'a3c85e17b9d4'
down_revision = 'e91b4c70d5a2'

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
          'mysql_collate': 'utf8mb4_bin'}


def upgrade() -> None:
    steps.create_table(
        'reservations_pools',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('policy', sa.String(16)),
        sa.Column('by', sa.String(300)),
        sa.Column('segment_levels', sa.Text),
        sa.Column('description', sa.String(255)),
        sa.Column('request_spec', sa.Text().with_variant(
            mysql.MEDIUMTEXT(), 'mysql', 'mariadb'), nullable=False),
        sa.Column('request_digest', sa.String(64), nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('expires_at', sa.DateTime),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime),
        sa.UniqueConstraint('uuid', name='uniq_reservations_pools0uuid'),
        sa.Index('reservations_pools_project_id_idx', 'project_id'),
        sa.Index('reservations_pools_expires_at_idx', 'expires_at'),
        sqlite_autoincrement=True, **_MYSQL)
    steps.create_table(
        'reservations_pool_nodes',
        sa.Column('node_id', sa.Integer, primary_key=True,
                  autoincrement=False),
        sa.Column('node_uuid', sa.String(36), nullable=False),
        sa.Column('pool_id', sa.Integer, nullable=False),
        sa.Column('domain', sa.Text),
        sa.Column('segment', sa.Integer),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Index('reservations_pool_nodes_pool_id_idx', 'pool_id'),
        **_MYSQL)


def downgrade() -> None:
    op.drop_table('reservations_pool_nodes')
    op.drop_table('reservations_pools')
