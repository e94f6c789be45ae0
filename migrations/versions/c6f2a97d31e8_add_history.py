# SPDX-License-Identifier: Apache-2.0
"""Add the history of reservations

Revision ID: c6f2a97d31e8
Revises: a3c85e17b9d4
"""

from alembic import op
import sqlalchemy as sa

from ironic_reservations.db.migrations import steps

revision = 'c6f2a97d31e8'
down_revision = 'a3c85e17b9d4'


def upgrade() -> None:
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
        mysql_engine='InnoDB', mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin')


def downgrade() -> None:
    op.drop_table('reservations_history')
