# SPDX-License-Identifier: Apache-2.0
"""Group reservations, and limit those of a project

Revision ID: e5a18c3d7042
Revises: c7e4b9d21f68
"""

from alembic import op
import sqlalchemy as sa

from ironic_reservations.db.migrations import steps

revision = 'e5a18c3d7042'
down_revision = 'c7e4b9d21f68'

_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
          'mysql_collate': 'utf8mb4_bin'}


def upgrade():
    steps.create_table(
        'reservations_groups',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('policy', sa.String(16)),
        sa.Column('by', sa.String(300)),
        sa.Column('project_id', sa.String(255)),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('asked', sa.String(64)),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.UniqueConstraint('uuid', name='uniq_reservations_groups0uuid'),
        sa.Index('reservations_groups_project_id_idx', 'project_id'),
        sqlite_autoincrement=True, **_MYSQL)
    steps.create_table(
        'reservations_projects',
        sa.Column('project_id', sa.String(255), primary_key=True),
        sa.Column('serial', sa.BigInteger, nullable=False), **_MYSQL)
    steps.add_column('reservations', sa.Column('group_id', sa.Integer))
    steps.add_column('reservations', sa.Column('domain', sa.Text))
    steps.create_index('reservations_group_id_idx', 'reservations',
                       ['group_id'])


def downgrade():
    op.drop_index('reservations_group_id_idx', 'reservations')
    op.drop_column('reservations', 'domain')
    op.drop_column('reservations', 'group_id')
    op.drop_table('reservations_projects')
    op.drop_table('reservations_groups')
