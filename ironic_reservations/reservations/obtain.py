# SPDX-License-Identifier: Apache-2.0
"""Holds the nodes of a request: of an instance, of a group, or of a claim.

``holds``, ``groups`` and ``claims`` choose the nodes. A claim has no limits,
and keeps the group of the claimed reservation. Pools and adoptions have
transactions of their own.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import datetime
from typing import Any

from oslo_db import exception as db_exc

from ironic_reservations import events
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.fleet import counts
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import transaction

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
    :param digest: equal for equal requests for a whole group; otherwise None.
    :param limits: limits of new reservations.
    """

    instances: tuple[str, ...]
    assignment: values.Assignment
    lease: int | None = None
    project_id: str | None = None
    holder: str | None = None
    group: values.GroupRequest | None = None
    digest: str | None = None
    limits: quotas.Limits = quotas.Limits()

    def count_usage(self, run: transaction.Run) -> quotas.Usage:
        """Return the usage of the limits, from the second attempt on.

        A request that succeeds at once needs only the count at its end.
        """
        return self.limits.count_usage() if run.tries else quotas.Usage()

    @property
    def actor(self) -> values.Actor:
        """The compute host that sends the request."""
        return values.Actor(self.assignment.host, self.holder)


@contextlib.contextmanager
def hold_picks(run: transaction.Run, matcher: matching.Matcher,
               request: Request, picks: Sequence[Pick],
               place: membership.Place,
               waits: bool = False
               ) -> Iterator[tuple[transaction.Transaction,
                                   list[values.Reservation]]]:
    """Hold nodes in one transaction, which locks in the common order.

    See ``transaction``. The caller may read in it before it is committed.
    Then the events are sent, and the newest count stores the held nodes.

    :param matcher: each node must satisfy it.
    :param picks: sorted by the ids of their nodes. All are held, or none.
    :param place: the group that the reservations join, or the new group.
    :param waits: whether to wait for a locked node until the deadline, because
        there is no alternative.
    :raises: NodeLost, ConcurrentChange; QuotaExceeded; PreconditionFailed if
        the holder has lost its host; Conflict after too many duplicate keys;
        DeadlineExceeded.
    """
    try:
        with transaction.begin(run) as tx:
            request.limits.lock(tx)
            for number, pick in enumerate(picks):
                if number:
                    # The statement may have to wait for each of them.
                    engine.check_deadline()
                result = tx.write_node(*node_rows.hold_node(
                    pick.node, matcher, pick.instance_uuid,
                    pick.source.id if pick.source else None,
                    {} if pick.source
                    else place.find_domain_traits(pick.node)), waits=waits)
            now = functions.read_utcnow(tx.connection, result)
            group_id = place.join(tx, request.digest)
            for pick in picks:
                if pick.source:
                    tx.record_end([pick.source], 'claim')
                    tx.write_one(
                        reservation_rows.delete_unmoved_rows(pick.source))
                    tx.emit(events.OfReservation(events.CLAIMED, pick.source))
            reservations = _insert(tx, [_make_reservation(
                matcher, request, pick, now,
                {**place.make_columns(group_id, pick.node, pick.segment),
                 **place.describe_group()}) for pick in picks])
            request.limits.verify(tx, [pick.node for pick in picks],
                                  matcher.spec)
            tx.emit(*(events.OfReservation(events.HELD, reservation)
                      for reservation in reservations))
            yield tx, reservations
    except db_exc.DBDuplicateEntry:
        # An instance already holds a node, a concurrent request has created
        # the group, or there is an expired or stale row. This raises an error.
        expiry.clear_duplicate(run, [pick.instance_uuid for pick in picks],
                               [pick.node.id for pick in picks])
    counts.record_holds(pick.node for pick in picks if pick.source is None)


def _make_reservation(matcher: matching.Matcher, request: Request, pick: Pick,
                      now: datetime.datetime, group: Mapping[str, Any]
                      ) -> values.Reservation:
    """Return the reservation of a pick, with the node as the guard saw it.

    :param group: attributes that describe its group; a claimed reservation
        has its own.
    """
    node, source, lease = pick.node, pick.source, request.lease
    assignment = request.assignment
    if source:
        group = {name: getattr(source, name) for name in _GROUP_COLUMNS}
        if assignment.description is None:
            assignment = dataclasses.replace(
                assignment, description=source.description)
    return values.Reservation(
        instance_uuid=pick.instance_uuid, node_id=node.id,
        node_uuid=node.uuid, request_spec=matcher.spec.canonical,
        created_at=now,
        expires_at=now + datetime.timedelta(0, lease) if lease else None,
        **vars(assignment), **group,
        node_name=node.name, resource_class=node.resource_class,
        node_owner=node.owner, node_lessee=node.lessee,
        pool_project_id=node.pool_project_id, health=node.health,
        provision_state='available', maintenance=False, is_allocated=False,
        is_touched=False, is_expired=False,
        # The guard has checked it.
        has_notices=None if node.suspect else False)


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
