# SPDX-License-Identifier: Apache-2.0
"""Holds the nodes of a request: of an instance, of a group, or of a claim."""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import datetime
from typing import Any

from oslo_db import exception as db_exc

from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.fleet import counts
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import values

# Columns of a claimed reservation that the new reservation keeps.
_GROUP_COLUMNS = ('group_id', 'domain', 'segment', *(
    f'group_{name}' for name in membership.GROUP_ATTRIBUTES))


@dataclasses.dataclass(frozen=True)
class Pick:
    """A node for an instance.

    :param source: reservation whose node a claim takes over; None for a free
        node.
    :param segment: number of its segment in a new group, or None.
    """

    instance_uuid: str
    node: matching.Node
    source: values.Reservation | None = None
    segment: int | None = None


@dataclasses.dataclass(frozen=True)
class Request:
    """A request to hold nodes, apart from the requirements on each node.

    :param instances: canonical UUIDs, one for each node.
    :param assignment: for whom the nodes are held.
    :param lease: seconds until the reservations expire, unless work on their
        nodes has begun; None for no expiry.
    :param project_id: project that the request names. A reservation that the
        instance already has must belong to it.
    :param holder: process that must hold the lease of the assignment's host;
        None if the request does not name one.
    :param group: group that the reservations join, or None.
    :param digest: see ``models.Group``; only of a request for a whole group.
    :param quota: limits of new reservations.
    """

    instances: tuple[str, ...]
    assignment: values.Assignment
    lease: int | None = None
    project_id: str | None = None
    holder: str | None = None
    group: membership.GroupRequest | None = None
    digest: str | None = None
    quota: quotas.Quota = dataclasses.field(default_factory=quotas.Quota)

    @property
    def actor(self) -> values.Actor:
        """The compute host that sends the request."""
        return values.Actor(self.assignment.host, self.holder)


class Operation:
    """The differences between a hold, a group and a claim.

    :param matcher: each node must satisfy it.
    :cvar checks_repeat_first: whether to look for the result of an earlier
        request before the first search. False: only after a failed attempt,
        because a duplicate key shows that the instance holds a node.
    :ivar place: where the new reservations go, after ``list_picks`` has
        yielded.
    """

    checks_repeat_first = False

    def __init__(self, matcher: matching.Matcher, request: Request) -> None:
        self.matcher, self.request = matcher, request
        self.place = membership.Place()

    def find_result(self, run: transaction.Run) -> tuple[Any, bool] | None:
        """Return the result of a repeated request, or None.

        :returns: as ``obtain_nodes``.
        """
        raise NotImplementedError()

    def list_picks(self) -> Iterator[list[Pick]]:
        """Yield alternatives, the best first.

        All picks of an alternative are held, or none. Only reads.
        """
        raise NotImplementedError()

    def make_result(self, tx: transaction.Transaction,
                    reservations: list[values.Reservation],
                    picks: Sequence[Pick]) -> Any:
        """Return the result of new reservations, and emit their events.

        :param picks: the pick of each reservation.
        """
        raise NotImplementedError()


def obtain_nodes(operation: Operation) -> tuple[Any, bool]:
    """Hold nodes, or find those that a repeated request already holds.

    :returns: the result, and whether this call has made it.
    :raises: what the operation raises; PreconditionFailed if the actor does
        not hold the host's lease; DeadlineExceeded.
    """
    def attempt(run: transaction.Run) -> tuple[Any, bool]:
        if operation.checks_repeat_first or run.tries:
            result = operation.find_result(run)
            if result:
                return result
        for picks in operation.list_picks():
            try:
                result = _hold_picks(run, operation, picks)
            except transaction.NodeLost:
                engine.check_deadline()
                continue
            counts.record_holds(pick.node for pick in picks
                                if pick.source is None)
            return result, True
        raise transaction.ConcurrentChange()

    return transaction.run_request(attempt, operation.request.actor)


def _hold_picks(run: transaction.Run, operation: Operation,
                picks: Sequence[Pick]) -> Any:
    """Hold nodes in one transaction, which locks in the common order.

    See ``transaction``.

    :param picks: sorted by the ids of their nodes.
    :raises: NodeLost, ConcurrentChange.
    """
    request = operation.request
    try:
        with transaction.begin(run) as tx:
            request.quota.lock(tx)
            for number, pick in enumerate(picks):
                if number:
                    # The statement may have to wait for each of them.
                    engine.check_deadline()
                statement, parameters = node_rows.hold_node(
                    pick.node, operation.matcher, pick.instance_uuid,
                    pick.source.id if pick.source else None,
                    {} if pick.source
                    else operation.place.find_domain_traits(pick.node))
                result = tx.write_one(statement, parameters,
                                      transaction.NodeLost)
            now = functions.read_utcnow(tx.connection, result)
            group_id = operation.place.join(tx, request.digest)
            for pick in picks:
                if pick.source:
                    tx.write_one(
                        reservation_rows.delete_unmoved_rows(pick.source))
            reservations = _insert(tx, [
                _make_reservation(operation, pick, now, group_id)
                for pick in picks])
            request.quota.verify(tx, [pick.node for pick in picks],
                                 operation.matcher.spec)
            return operation.make_result(tx, reservations, picks)
    except db_exc.DBDuplicateEntry:
        # An instance already holds a node, a concurrent request has created
        # the group, or there is an expired or stale row.
        expiry.expire_or_purge([pick.instance_uuid for pick in picks],
                               [pick.node.id for pick in picks])
        raise transaction.ConcurrentChange()


def _make_reservation(operation: Operation, pick: Pick, now: datetime.datetime,
                      group_id: int | None) -> values.Reservation:
    """Return the reservation of a pick, with the node as the guard saw it."""
    node, source, lease = pick.node, pick.source, operation.request.lease
    group = ({name: getattr(source, name) for name in _GROUP_COLUMNS} if source
             else {**operation.place.make_columns(group_id, node,
                                                  pick.segment),
                   **operation.place.describe_group()})
    return values.Reservation(
        instance_uuid=pick.instance_uuid, node_id=node.id,
        node_uuid=node.uuid, request_spec=operation.matcher.spec.canonical,
        created_at=now,
        expires_at=now + datetime.timedelta(0, lease) if lease else None,
        **vars(operation.request.assignment), **group,
        node_name=node.name, resource_class=node.resource_class,
        node_owner=node.owner, node_lessee=node.lessee,
        provision_state='available', maintenance=False, is_allocated=False,
        is_touched=False, is_expired=False)


def _insert(tx: transaction.Transaction,
            reservations: list[values.Reservation]
            ) -> list[values.Reservation]:
    """Insert the rows of reservations.

    :returns: the reservations; a single one with its id. No database returns
        the ids of several rows.
    """
    rows = [{name: getattr(reservation, name)
             for name in reservation_rows.COLUMNS}
            for reservation in reservations]
    if len(rows) > 1:
        tx.execute(reservation_rows.INSERT, rows)
        return reservations
    row_id = tx.insert(reservation_rows.INSERT, rows[0])
    return [dataclasses.replace(reservations[0], id=row_id)]
