# SPDX-License-Identifier: Apache-2.0
"""Expires reservations, and purges stale ones.

A reservation has *expired* if it is past its lease and no work on its node
has begun: no read shows it, and its node is about to be released. It is
*stale* if its node no longer carries its instance: its row is about to be
deleted. It is *overdue* if it is past its lease and work on its node has
begun, so that the node is kept.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NoReturn

import sqlalchemy as sa

from ironic_reservations import context
from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import group_rows
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import transaction
from ironic_reservations.shared import constants

# Maximum number of duplicate keys after which a request tries again.
_MAX_DUPLICATES = 8


def sweep() -> tuple[int, int]:
    """Expire all reservations that are past their leases, and purge all stale.

    It may exceed the deadline of a request. Therefore each step has its own
    deadline, and an error ends only the current step.

    :returns: numbers of expired and of purged reservations.
    """
    numbers = expire_leases(check=lambda: None), purge()
    for group in _find_empty_groups():
        # The statement keeps a group that has gained a member.
        _execute(group_rows.DELETE_UNCHANGED_GROUP,
                 group_rows.bind_group(group))
    return numbers


def expire_leases(limit: int | None = None,
                  check: Callable[[], None] = engine.check_deadline) -> int:
    """Expire reservations that are past their leases, and release their nodes.

    :param limit: maximum number to read; None for all.
    :param check: called before each; raises if there is no time left.
    :returns: number of expired reservations.
    """
    reservations = _read(reservation_rows.select_past_lease(limit))
    if any(reservation.state == 'active' for reservation in reservations):
        # Deployed nodes do not expire. Clear their leases; otherwise each
        # search for expired reservations would read all deployed instances.
        _execute(
            reservation_rows.clear_leases(constants.PROVISION_STATES['active']))
    number = 0
    for reservation in reservations:
        if reservation.is_expired:
            check()
            number += _expire(reservation, waits=False)
    return number


def purge(instance_uuids: Iterable[str] = (), node_ids: Iterable[int] = ()
          ) -> int:
    """Delete the rows of stale reservations.

    :param instance_uuids: only rows of these instances,
    :param node_ids: or of these nodes. All rows if both are empty.
    :returns: number of deleted rows.
    """
    return sum(_remove(reservation, 'purge', events.PURGED,
                       reservation_rows.delete_stale_row)
               for reservation in _read(reservation_rows.select_stale(
                   list(instance_uuids), list(node_ids))))


def get_or_purge(
        instance_uuid: str,
        authorize: Callable[[values.Reservation], None] = context.allow_all,
        remove: Callable[[list[str]], Any] = purge) -> values.Reservation:
    """Return the reservation of an instance, or delete its stale row.

    After a 404 a reservation must not reappear, which it would if an operator
    set the node's instance_uuid again. The row is also looked for if
    the caller must not see the reservation. Otherwise the duration of the
    response would reveal that there is one. The reservation is read again
    afterwards, because something that has begun on its node keeps it.

    :param authorize: raises if the caller may not do this.
    :param remove: called with the instance if there is no reservation.
    :raises: NotFound; what ``authorize`` raises.
    """
    try:
        return lookup.get_reservation(instance_uuid, authorize)
    except exception.NotFound:
        remove([instance_uuid])
    return lookup.get_reservation(instance_uuid, authorize)


def expire_or_purge(instance_uuids: Sequence[str],
                    node_ids: Iterable[int] = ()) -> None:
    """Remove the expired and stale reservations of instances.

    :param node_ids: also purge stale reservations of these nodes.
    """
    for reservation in _read(
            reservation_rows.select_carriers(*instance_uuids)):
        if reservation.is_expired:
            _expire(reservation)
    purge(instance_uuids, node_ids)


def clear_duplicate(run: transaction.Run, instance_uuids: Sequence[str],
                    node_ids: Iterable[int]) -> NoReturn:
    """Remove the expired and stale rows that may block an INSERT.

    If there are no such rows, a concurrent request has inserted its row, and
    the next attempt finds that reservation.

    :raises: ConcurrentChange; Conflict after too many attempts, because no
        row can be found that explains the duplicate key.
    """
    expire_or_purge(instance_uuids, node_ids)
    run.duplicates += 1
    if run.duplicates == _MAX_DUPLICATES:
        raise lookup.make_conflict(instance_uuids[0])
    raise transaction.ConcurrentChange()


def expire_or_purge_members(group_id: int) -> None:
    """Remove the expired and stale reservations of a group."""
    for reservation in _read(reservation_rows.select_group_rows(group_id)):
        if reservation.is_expired:
            _expire(reservation)
        purge([str(reservation.instance_uuid)])


@engine.retry
def find_overdue() -> list[values.Reservation]:
    """Return overdue reservations, the longest overdue first.

    Excludes nodes that are being deployed, in use or being torn down. Nodes
    whose deployment has failed are included, because their host may be down.
    """
    return _read(reservation_rows.select_overdue(
        [provision_state for state in ('deploying', 'active', 'releasing')
         for provision_state in constants.PROVISION_STATES[state]]))


def _expire(reservation: values.Reservation, waits: bool = True) -> bool:
    """Expire a reservation and release its node.

    :param waits: whether to wait for a locked node until the deadline.
    :returns: False if work on the node has begun, or if the lease was renewed;
        or if the request has lost the node: see ``row_locks``.
    """
    return _remove(reservation, 'expire', events.EXPIRED,
                   reservation_rows.delete_expired_row,
                   node_rows.release_untouched_node, waits)


def _remove(reservation: values.Reservation, ended_by: str,
            kind: events.Kind,
            delete: Callable[[values.Reservation], sa.Delete],
            release: Callable[[values.Reservation],
                              tuple[sa.Update, Any]] | None = None,
            waits: bool = True) -> bool:
    """Delete the row of a reservation, in one transaction.

    :param ended_by: one of ``constants.ENDS``.
    :param delete: returns the statement that deletes the row.
    :param release: returns the statement that releases the node, and its
        parameters; None to leave the node alone.
    :param waits: see ``_expire``.
    :returns: False if the reservation has changed since it was read.
    """
    def attempt(run: transaction.Run) -> bool:
        try:
            with transaction.begin(run) as tx:
                if release:
                    tx.write_node(*release(reservation), waits=waits)
                delete_rows(tx, delete(reservation), [reservation],
                            ended_by, transaction.NodeLost)
                tx.emit(events.OfReservation(kind, reservation))
        except transaction.NodeLost:
            return False
        return True

    return transaction.run_request(attempt)


def delete_rows(tx: transaction.Transaction, statement: sa.Delete,
                reservations: Sequence[values.Reservation], ended_by: str,
                error: type[Exception] = transaction.ConcurrentChange) -> None:
    """Delete rows of reservations, and the group of its last member.

    The row of the group is written first. If two requests delete the last
    members of a group at the same time, the second then waits for the first,
    or is aborted, also on two members of a Galera cluster. Otherwise each
    would still see the other's member and keep the group.

    :param statement: deletes the rows.
    :param reservations: all of one group, or of none.
    :param ended_by: one of ``constants.ENDS``.
    :param error: class of the exception to raise if one of the rows has
        changed since it was read.
    """
    group_id = reservations[0].group_id
    if group_id is not None:
        tx.execute(group_rows.SHRINK, {'group': group_id})
    tx.record_end(reservations, ended_by)
    if tx.execute(statement).rowcount != len(reservations):
        raise error()
    if group_id is not None:
        tx.execute(group_rows.DELETE_EMPTY_GROUP, {'group': group_id})


@engine.retry
def _read(query: sa.Select[Any]) -> list[values.Reservation]:
    return transaction.read_reservations(query)


@engine.retry
def _find_empty_groups() -> Sequence[sa.Row[Any]]:
    return engine.fetch_rows(group_rows.EMPTY_GROUPS)


@engine.retry
def _execute(statement: sa.Executable, parameters: Any = None) -> None:
    """Run a statement in a separate transaction."""
    with engine.transaction() as connection:
        connection.execute(statement, parameters)
