# SPDX-License-Identifier: Apache-2.0
"""Create reservations

Revision ID: b2d81f6c4e07
Revises:
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ironic_reservations.db.migrations import steps

revision = 'b2d81f6c4e07'
down_revision = None

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
          'mysql_collate': 'utf8mb4_bin'}


def upgrade() -> None:
    _create_reservations()
    _create_groups()
    steps.create_table(
        'reservations_projects',
        sa.Column('project_id', sa.String(255), primary_key=True),
        sa.Column('serial', sa.BigInteger, nullable=False), **_MYSQL)
    steps.create_table(
        'reservations_hosts',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('holder', sa.String(36), nullable=False),
        sa.Column('expires_at', sa.DateTime, nullable=False),
        sa.Column('serial', sa.BigInteger, nullable=False),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime), **_MYSQL)
    steps.create_table(
        'reservations_standbys',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('holder', sa.String(36), primary_key=True),
        sa.Column('expires_at', sa.DateTime, nullable=False), **_MYSQL)


def _create_reservations() -> None:
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
        sa.Column('group_id', sa.Integer),
        sa.Column('domain', sa.Text),
        sa.UniqueConstraint('instance_uuid',
                            name='uniq_reservations0instance_uuid'),
        sa.UniqueConstraint('node_id', name='uniq_reservations0node_id'),
        sa.Index('reservations_node_uuid_idx', 'node_uuid'),
        sa.Index('reservations_host_idx', 'host'),
        sa.Index('reservations_project_id_idx', 'project_id'),
        sa.Index('reservations_expires_at_idx', 'expires_at'),
        sa.Index('reservations_group_id_idx', 'group_id'),
        sqlite_autoincrement=True, **_MYSQL)


def _create_groups() -> None:
    steps.create_table(
        'reservations_groups',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('policy', sa.String(16)),
        sa.Column('by', sa.String(300)),
        sa.Column('project_id', sa.String(255)),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('request_digest', sa.String(64)),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.UniqueConstraint('uuid', name='uniq_reservations_groups0uuid'),
        sa.Index('reservations_groups_project_id_idx', 'project_id'),
        sqlite_autoincrement=True, **_MYSQL)


def downgrade() -> None:
    for name in ('reservations_standbys', 'reservations_hosts',
                 'reservations_projects',
                 'reservations_groups', 'reservations'):
        op.drop_table(name)
