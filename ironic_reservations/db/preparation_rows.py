# SPDX-License-Identifier: Apache-2.0
"""Statements on what is left on nodes that nobody uses."""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from ironic_reservations.db import expressions
from ironic_reservations.db import models

nodes = models.nodes

#: Select available nodes without an instance that carry something of a tenant.
SELECT_PREPARED = sa.select(
    nodes.c.id, nodes.c.uuid, nodes.c.instance_info
).where(
    nodes.c.instance_uuid.is_(None), nodes.c.provision_state == 'available',
    expressions.PREPARED).order_by(nodes.c.id)

#: Select available nodes whose instance has no reservation, not even an
#: expired one, and no allocation of Ironic's.
SELECT_UNKNOWN_INSTANCES = sa.select(
    nodes.c.uuid, nodes.c.instance_uuid
).outerjoin_from(nodes, models.reservations, expressions.CARRIED).where(
    nodes.c.instance_uuid.is_not(None), nodes.c.provision_state == 'available',
    nodes.c.allocation_id.is_(None), models.reservations.c.id.is_(None)
).order_by(nodes.c.id)


def select_leftovers(ids: Collection[int]) -> dict[str, sa.Select[Any]]:
    """Select the rows that prepare nodes for a tenant, by their table."""
    return {table.name: sa.select(table).where(
        table.c.node_id.in_(ids), condition)
        for table, condition in expressions.PREPARATIONS.items()}
