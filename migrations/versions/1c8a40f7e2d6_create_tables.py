# SPDX-License-Identifier: Apache-2.0
"""Create the tables of 1.0.0

Revision ID: 1c8a40f7e2d6
Revises:
"""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ironic_reservations.db.migrations import steps

revision = '1c8a40f7e2d6'
down_revision = None

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
          'mysql_collate': 'utf8mb4_bin'}

_REQUEST_SPEC = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade() -> None:
    _create_reservations()
    _create_host_leases()
    _create_notices()
    _create_pools()
    _create_history()


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
        sa.Column('request_spec', _REQUEST_SPEC, nullable=False),
        sa.Column('description', sa.String(255)),
        sa.Column('expires_at', sa.DateTime),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime),
        sa.Column('group_id', sa.Integer),
        sa.Column('domain', sa.Text),
        sa.Column('segment', sa.Integer),
        sa.UniqueConstraint('instance_uuid',
                            name='uniq_reservations0instance_uuid'),
        sa.UniqueConstraint('node_id', name='uniq_reservations0node_id'),
        sa.Index('reservations_node_uuid_idx', 'node_uuid'),
        sa.Index('reservations_host_idx', 'host'),
        sa.Index('reservations_project_id_idx', 'project_id'),
        sa.Index('reservations_expires_at_idx', 'expires_at'),
        sa.Index('reservations_group_id_idx', 'group_id'),
        sqlite_autoincrement=True, **_MYSQL)
    steps.create_table(
        'reservations_groups',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('policy', sa.String(16)),
        sa.Column('by', sa.String(300)),
        sa.Column('project_id', sa.String(255)),
        sa.Column('description', sa.String(255)),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('segment_levels', sa.Text),
        sa.Column('segments', sa.Integer),
        sa.Column('request_digest', sa.String(64)),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.UniqueConstraint('uuid', name='uniq_reservations_groups0uuid'),
        sa.Index('reservations_groups_project_id_idx', 'project_id'),
        sqlite_autoincrement=True, **_MYSQL)
    steps.create_table(
        'reservations_projects',
        sa.Column('project_id', sa.String(255), primary_key=True),
        sa.Column('serial', sa.BigInteger, nullable=False),
        **_MYSQL)


def _create_host_leases() -> None:
    steps.create_table(
        'reservations_hosts',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('holder', sa.String(36), nullable=False),
        sa.Column('expires_at', sa.DateTime, nullable=False),
        sa.Column('serial', sa.BigInteger, nullable=False),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime),
        **_MYSQL)
    steps.create_table(
        'reservations_standbys',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('holder', sa.String(36), primary_key=True),
        sa.Column('expires_at', sa.DateTime, nullable=False),
        **_MYSQL)


def _create_notices() -> None:
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
        sa.Column('due_at', sa.DateTime),
        sa.Column('latest_start', sa.DateTime),
        sa.Column('scheduled_at', sa.DateTime),
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


def _create_pools() -> None:
    steps.create_table(
        'reservations_pools',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('policy', sa.String(16)),
        sa.Column('by', sa.String(300)),
        sa.Column('segment_levels', sa.Text),
        sa.Column('description', sa.String(255)),
        sa.Column('request_spec', _REQUEST_SPEC, nullable=False),
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
        sa.Column('reason', sa.String(16)),
        sa.Column('replaces', sa.String(36)),
        sa.Index('reservations_pool_nodes_pool_id_idx', 'pool_id'),
        **_MYSQL)


def _create_history() -> None:
    steps.create_table(
        'reservations_history',
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=False),
        sa.Column('instance_uuid', sa.String(36), nullable=False),
        sa.Column('node_id', sa.Integer, nullable=False),
        sa.Column('node_uuid', sa.String(36), nullable=False),
        sa.Column('node_name', sa.String(255)),
        sa.Column('node_owner', sa.String(255)),
        sa.Column('host', sa.String(255)),
        sa.Column('project_id', sa.String(255)),
        sa.Column('user_id', sa.String(255)),
        sa.Column('description', sa.String(255)),
        sa.Column('group_uuid', sa.String(36)),
        sa.Column('group_policy', sa.String(16)),
        sa.Column('group_by', sa.String(300)),
        sa.Column('group_segment_levels', sa.Text),
        sa.Column('domain', sa.Text),
        sa.Column('segment', sa.Integer),
        sa.Column('expires_at', sa.DateTime),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime),
        sa.Column('ended_at', sa.DateTime, nullable=False),
        sa.Column('ended_by', sa.String(16), nullable=False),
        sa.Index('reservations_history_instance_uuid_idx', 'instance_uuid'),
        sa.Index('reservations_history_node_uuid_idx', 'node_uuid'),
        sa.Index('reservations_history_node_name_idx', 'node_name'),
        sa.Index('reservations_history_node_owner_idx', 'node_owner'),
        sa.Index('reservations_history_project_id_idx', 'project_id'),
        sa.Index('reservations_history_ended_at_idx', 'ended_at'),
        **_MYSQL)


def downgrade() -> None:
    for name in (
            'reservations_history',
            'reservations_pool_nodes',
            'reservations_pools',
            'reservations_notices',
            'reservations_standbys',
            'reservations_hosts',
            'reservations_projects',
            'reservations_groups',
            'reservations'):
        op.drop_table(name)
