# SPDX-License-Identifier: Apache-2.0
"""Lease the names of compute hosts

Revision ID: c7e4b9d21f68
Revises: 3f1c0a7d9b52
"""

from alembic import op
import sqlalchemy as sa

from ironic_reservations.db.migrations import steps

revision = 'c7e4b9d21f68'
down_revision = '3f1c0a7d9b52'


def upgrade():
    steps.create_table(
        'reservations_hosts',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('holder', sa.String(36), nullable=False),
        sa.Column('expires_at', sa.DateTime, nullable=False),
        sa.Column('serial', sa.BigInteger, nullable=False),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin',
    )


def downgrade():
    op.drop_table('reservations_hosts')
