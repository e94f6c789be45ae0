# SPDX-License-Identifier: Apache-2.0
"""Finds available nodes that cannot be held because of what they carry."""

import collections
import json
from typing import Any

from ironic_reservations.db import engine
from ironic_reservations.db import preparation_rows
from ironic_reservations.shared import leftovers


@engine.retry
def find_prepared() -> list[tuple[str, list[str]]]:
    """Return the nodes without an instance that carry something of a tenant.

    :returns: their UUIDs, each with the commands that remove it.
    """
    nodes = engine.fetch_rows(preparation_rows.SELECT_PREPARED)
    ids = [node.id for node in nodes]
    rows: dict[tuple[str, int], list[dict[str, Any]]] = (
        collections.defaultdict(list))
    for name, statement in preparation_rows.select_leftovers(ids).items():
        for row in engine.fetch_rows(statement):
            rows[name, row.node_id].append(
                {key: _parse(value) if key in ('internal_info', 'extra')
                 else value for key, value in row._mapping.items()})
    return [(node.uuid, list(leftovers.list_commands(
        node.uuid, _parse(node.instance_info), rows['ports', node.id],
        rows['portgroups', node.id],
        [row['uuid'] for row in rows['volume_targets', node.id]])))
        for node in nodes]


def _parse(json_text: str | None) -> dict[str, Any]:
    """Return the object in a JSON text; empty if there is none."""
    try:
        value = json.loads(json_text or '{}')
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


@engine.retry
def find_unknown_instances() -> list[tuple[str, str]]:
    """Return available nodes whose instance has no reservation or allocation.

    :returns: pairs of the UUIDs of node and instance.
    """
    return [(uuid, instance) for uuid, instance in engine.fetch_rows(
        preparation_rows.SELECT_UNKNOWN_INSTANCES)]
