# SPDX-License-Identifier: Apache-2.0
"""Changes a group as a whole: its description, and leases of its members."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import group_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import updates
from ironic_reservations.shared import constants


def update_group(uuid: str, changes: Mapping[str, Any],
                 authorize: Callable[[values.Group], None],
                 reach: values.Ownership = values.ALL) -> values.Group:
    """Change the description of a group, or leases of its members.

    A new lease applies to all members that are reserved and that no compute
    host holds, or to none of them.

    :param changes: ``description``, and ``lease`` in seconds from now, None
        for no expiry.
    :param authorize: raises if the caller may not do this.
    :param reach: that of the caller.
    :returns: the group with its members after the change.
    :raises: NotFound; Conflict if a lease is to change and there is no such
        member, or if the project may no longer use the node of a member;
        DeadlineExceeded; what ``authorize`` raises.
    """
    def attempt(run: transaction.Run) -> values.Group:
        group = groups.get_group(uuid, authorize)
        members = (_find_members(group, reach)
                   if 'lease' in changes else [])
        with transaction.begin(run) as tx:
            if 'description' in changes:
                tx.write_one(group_rows.DESCRIBE, {
                    'group': group.id, 'text': changes['description']})
            if members:
                _write_lease(tx, members, changes['lease'])
            return _read_group(tx, group, {member.id for member in members})

    return transaction.run_request(attempt)


def _find_members(group: values.Group, reach: values.Ownership
                  ) -> list[values.Reservation]:
    """Return the members whose lease changes.

    :raises: Conflict if there are none, or if the lease of one may not change.
    """
    # The request spec decides whether a project may still use the node.
    all_members = transaction.read_reservations(
        reservation_rows.select_members(group.id, names=reservation_rows.VIEW)
    ) if reach.is_limited else group.members
    members = [member for member in all_members
               if member.state == 'reserved' and member.host is None]
    if not members:
        raise exception.Conflict(
            f'No member of group {group.uuid} is reserved without a compute '
            f'host; only the lease of such a member can be changed.')
    for member in members:
        updates.check_lease(member, reach)
    return members


def _write_lease(tx: transaction.Transaction,
                 members: list[values.Reservation], lease: int | None) -> None:
    """Change the lease of all members.

    :raises: ConcurrentChange if one of them has changed since it was read.
    """
    result = tx.write_one(reservation_rows.update_rows(
        [member.id for member in members],
        constants.PROVISION_STATES['reserved'], {'lease': lease}, host=None))
    if result.rowcount < len(members):
        raise transaction.ConcurrentChange()


def _read_group(tx: transaction.Transaction, group: values.Group,
                renewed_ids: set[int | None]) -> values.Group:
    """Return a group as it is in the transaction, and emit events.

    :param renewed_ids: ids of the members whose lease has changed.
    :raises: ConcurrentChange if no member is left.
    """
    members = tuple(
        values.Reservation(**member._mapping) for member in
        tx.execute(reservation_rows.select_members(group.id)))
    if not members:
        raise transaction.ConcurrentChange()
    row = tx.execute(group_rows.select_group(group.uuid)).one()
    for member in members:
        if member.id in renewed_ids:
            tx.emit(events.OfReservation(events.RENEWED, member))
    return dataclasses.replace(values.Group(**row._mapping),
                               members=members)
