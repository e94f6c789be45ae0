# SPDX-License-Identifier: Apache-2.0
"""Lists the commands that remove what a tenant has left on a free node."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import shlex
from typing import Any

from ironic_reservations.shared import text


def list_commands(node: str, instance_info: Iterable[str],
                  ports: Iterable[Mapping[str, Any]],
                  port_groups: Iterable[Mapping[str, Any]],
                  volume_targets: Iterable[str]) -> Iterator[str]:
    """Yield the commands that make a free node eligible again.

    :param node: its UUID or name.
    :param instance_info: keys.
    :param ports: all of the node, with ``uuid``, ``internal_info`` and
        ``extra``; like ``port_groups``.
    :param volume_targets: UUIDs.
    """
    keys = ' '.join(f'--instance-info {_quote(key)}' for key in instance_info)
    if keys:
        yield f'openstack baremetal node unset {node} {keys}'
    for name, rows in ('port', ports), ('port group', port_groups):
        for row in rows:
            vif = row['internal_info'].get('tenant_vif_port_id')
            if vif and isinstance(vif, str):
                yield (f'openstack baremetal node vif detach {node} '
                       f'{_quote(vif)}')
            # Ironic does not detach a VIF that only this key names.
            elif row['extra'].get('vif_port_id'):
                yield (f'openstack baremetal {name} unset {row["uuid"]} '
                       f'--extra vif_port_id')
    for uuid in volume_targets:
        yield f'openstack baremetal volume target delete {uuid}'


def _quote(value: str) -> str:
    """Quote a tenant's text for a shell and a terminal."""
    return shlex.quote(text.escape_controls(value))
