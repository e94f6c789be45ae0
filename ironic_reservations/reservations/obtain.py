# SPDX-License-Identifier: Apache-2.0
"""Holds nodes: for an instance, for all members of a group, or by a claim."""

import dataclasses
import datetime

from oslo_db import exception as db_exc

from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.matching import Node
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import quota as quotas
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import values

# What a claimed reservation leaves to the one that takes its place.
_OF_GROUP = ('group_id', 'domain', 'group_uuid', 'group_policy', 'group_by')


@dataclasses.dataclass(frozen=True)
class Pick:
    """A node for an instance.

    :param claimed: the Reservation that the node is taken over from; None
        for a free node.
    """

    instance_uuid: str
    node: Node
    claimed: values.Reservation | None = None


@dataclasses.dataclass(frozen=True)
class Request:
    """For whom nodes are to be held, and for how long.

    :param instances: canonical UUIDs, one for each node.
    :param assignment: values.Assignment.
    :param lease: seconds after which the reservations expire if nothing has
        begun on their nodes; None for no expiry.
    :param project_id: the project that the caller has named. A reservation
        that the instance has already must belong to it.
    :param holder: when given, only while this process holds the lease of the
        assignment's host.
    :param group: membership.Named that the reservations join, or None.
    :param digest: see models.Group; None unless a whole group is requested.
    :param quota: quota.Quota, by which new reservations are limited.
    """

    instances: tuple[str, ...]
    assignment: values.Assignment
    lease: int | None = None
    project_id: str | None = None
    holder: str | None = None
    group: membership.Named | None = None
    digest: str | None = None
    quota: quotas.Quota = dataclasses.field(default_factory=quotas.Quota)

    @property
    def actor(self):
        return values.Actor(self.assignment.host, self.holder)


class Ask:
    """What a hold, a group and a claim do differently.

    :param matcher: matching.Matcher that each node must satisfy.
    :param request: Request.
    :cvar asks_first: True: ``known`` is asked before the first search. False:
        only after an attempt has failed, because a duplicate key shows that
        the instance holds a node.
    :ivar place: membership.Place of the new reservations, once ``sets`` has
        yielded.
    """

    asks_first = False

    def __init__(self, matcher, request):
        self.matcher, self.request = matcher, request
        self.place = membership.Place()

    def known(self, run):
        """Return the answer to a repeated request, or None.

        :param run: transaction.Run.
        """
        raise NotImplementedError()

    def sets(self):
        """Yield alternatives, the best first.

        Each is a list of Picks, which are held together or not at all. It
        reads, and decides nothing.
        """
        raise NotImplementedError()

    def answer(self, tx, reservations, picks):
        """Return the answer to a request that has made reservations.

        :param tx: transaction.Transaction, whose events it adds.
        :param reservations: list of values.Reservation.
        :param picks: the Pick of each.
        """
        raise NotImplementedError()


def obtain(ask):
    """Hold nodes, or find those that a repeated request holds already.

    :param ask: Ask.
    :returns: the answer, and True when this call has made it.
    :raises: what the ask raises; PreconditionFailed when the actor is not the
        host; DeadlineExceeded.
    """
    def attempt(run):
        if ask.asks_first or run.tries:
            answer = ask.known(run)
            if answer:
                return answer
        for picks in ask.sets():
            try:
                return _take(run, ask, picks), True
            except transaction.NodeLost:
                engine.check_deadline()
        raise transaction.Again()

    return transaction.attempts(attempt, ask.request.actor)


def _take(run, ask, picks):
    """Hold some nodes in one transaction: the order of all writes.

    :param picks: list of Pick, in the order of their nodes' ids.
    :raises: NodeLost, Again.
    """
    try:
        with transaction.write(run) as tx:
            ask.request.quota.lock(tx)
            for number, pick in enumerate(picks):
                if number:
                    # Each of them may be waited for.
                    engine.check_deadline()
                updated = tx.one(*node_rows.hold_node(
                    pick.node, ask.matcher, pick.instance_uuid,
                    pick.claimed and pick.claimed.id),
                    error=transaction.NodeLost)
            now = functions.read_utcnow(tx.connection, updated)
            group_id = ask.place.join(tx, ask.request.digest)
            for pick in picks:
                if pick.claimed:
                    tx.one(reservation_rows.delete_unmoved_rows(pick.claimed))
            reservations = _insert(tx, [
                _new_reservation(ask, pick, now, group_id) for pick in picks])
            ask.request.quota.verify(tx, [pick.node for pick in picks],
                                     ask.matcher.spec)
            return ask.answer(tx, reservations, picks)
    except db_exc.DBDuplicateEntry:
        # An instance holds a node already, another request has just begun the
        # group, or a lapsed or stale row stands in the way.
        expiry.forget(*(pick.instance_uuid for pick in picks),
                      node_ids=[pick.node.id for pick in picks])
        raise transaction.Again()


def _new_reservation(ask, pick, now, group_id):
    """The Reservation of a pick, as the guard has seen its node."""
    node, claimed, lease = pick.node, pick.claimed, ask.request.lease
    group = ({name: getattr(claimed, name) for name in _OF_GROUP} if claimed
             else {**ask.place.columns(group_id, node), **ask.place.shown()})
    return values.Reservation(
        instance_uuid=pick.instance_uuid, node_id=node.id,
        node_uuid=node.uuid, request_spec=ask.matcher.spec.canonical,
        created_at=now,
        expires_at=lease and now + datetime.timedelta(0, lease),
        **vars(ask.request.assignment), **group,
        node_name=node.name, resource_class=node.resource_class,
        node_owner=node.owner, node_lessee=node.lessee,
        provision_state='available', maintenance=False, is_allocated=False,
        is_touched=False, is_expired=False)


def _insert(tx, reservations):
    """Insert the rows of reservations, and return these with their ids.

    Of several the ids are not read, because no database tells them all.
    """
    columns = [{name: getattr(each, name) for name in reservation_rows.COLUMNS}
               for each in reservations]
    if len(reservations) > 1:
        tx.execute(reservation_rows.INSERT, columns)
        return reservations
    [row_id] = tx.execute(
        reservation_rows.INSERT, columns[0]).inserted_primary_key
    return [dataclasses.replace(reservations[0], id=row_id)]
