# SPDX-License-Identifier: Apache-2.0
"""Add due times of notices

Revision ID: 5f0c2e8d7b16
Revises: c6f2a97d31e8
"""

from alembic import op
import sqlalchemy as sa

from ironic_reservations.db.migrations import steps

revision = '5f0c2e8d7b16'
down_revision = 'c6f2a97d31e8'

_NOTICES, _NODES = 'reservations_notices', 'reservations_pool_nodes'
_TIMES = ('due_at', 'latest_start', 'scheduled_at')


def upgrade() -> None:
    steps.add_columns(_NOTICES, *(
        sa.Column(name, sa.DateTime) for name in _TIMES))
    steps.add_columns(_NODES, sa.Column('reason', sa.String(16)),
                      sa.Column('replaces', sa.String(36)))


def downgrade() -> None:
    for table, *names in ((_NOTICES, *_TIMES),
                          (_NODES, 'reason', 'replaces')):
        for name in names:
            op.drop_column(table, name)
