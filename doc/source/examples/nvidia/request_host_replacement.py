# SPDX-License-Identifier: Apache-2.0
"""BFX01-05: replace a broken machine of a group by another one."""

import datetime

import _common


def replace(conn, args):
    """Cordon a reserved machine, and reserve another one in its place.

    This is for an operator. A project deletes its server first, and then
    replaces the machine. The cordon ends at the end; the group keeps the other
    machine.
    """
    reservations = conn.baremetal_reservations
    machine = reservations.show(
        _common.find_reservation(conn, args.machine_id))
    if machine.group is None:
        raise ValueError(f'{args.machine_id} is in no group')
    group = {name: value for name, value in machine.group.items()
             if name not in ('domain', 'levels')}
    spec = {name: value for name, value in machine.request_spec.items()
            if name != 'group'}
    with _common.create_notices(
            conn, 'maintenance', nodes=[machine.node_uuid]):
        reservations.release(machine)
        replacement = reservations.create(
            **spec, project_id=machine.project_id,
            group=group, expires_in=seconds_until(machine.expires_at))
        return {'operation': {
            'requested': True,
            'node_removed_from_pool': not reservations.dry_run(
                candidate_nodes=[args.machine_id])['matching_nodes'],
            'machine_id': machine.node_uuid,
            'replacement_id': replacement.node_uuid}}


def seconds_until(moment):
    """Return the seconds until a time, or None without one."""
    if moment is None:
        return None
    now = datetime.datetime.now(datetime.UTC)
    return int((datetime.datetime.fromisoformat(moment)
                - now).total_seconds())


_common.run(replace, 'machine-id')
