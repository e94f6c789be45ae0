# SPDX-License-Identifier: Apache-2.0
"""How nodes are held: for a hold, for all members of a group, for a claim.

The three differ in what they ask. An *ask* has these attributes:

``matcher``, ``owner``, ``lease``, ``quota``
    What is wanted, and for whom.
``asks_first``
    True: ``known`` is asked before the first search. False: only after an
    attempt has failed, because a duplicate key shows that the instance holds
    a node.
``known(run)``
    The answer to a request that is repeated, or None.
``sets()``
    Yields alternatives, the best first. Each is a list of Picks, which are
    held together or not at all. It reads, and decides nothing.
``place``
    membership.Place of the new reservations, once ``sets`` has yielded.
``request_digest``
    See models.Group; None where no group is begun.
``record_events(tx, group_id, reservations, picks)``
    Notes the events of what was made in the transaction, and returns the
    answer.
"""

import dataclasses
import datetime

from oslo_db import exception as db_exc

from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import nodes as node_rows
from ironic_reservations.db import reservations as reservation_rows
from ironic_reservations.matching import Node
from ironic_reservations.reservations import expiry
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


def obtain(ask, actor=values.NOBODY):
    """Hold nodes, or find those that a repeated request holds already.

    :param actor: values.Actor.
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

    return transaction.attempts(attempt, actor)


def _take(run, ask, picks):
    """Hold some nodes in one transaction: the order of all writes.

    :param picks: list of Pick, in the order of their nodes' ids.
    :raises: NodeLost, Again.
    """
    try:
        with transaction.write(run) as tx:
            ask.quota.lock(tx)
            for number, pick in enumerate(picks):
                if number:
                    # Each of them may be waited for.
                    engine.check_deadline()
                updated = tx.one(*node_rows.hold(
                    pick.node, ask.matcher, pick.instance_uuid,
                    pick.claimed and pick.claimed.id),
                    error=transaction.NodeLost)
            now = functions.time_of(tx.connection, updated)
            group_id = ask.place.join(tx, ask.request_digest)
            for pick in picks:
                if pick.claimed:
                    tx.one(reservation_rows.delete_of_hosts(pick.claimed))
            reservations = _insert(tx, [
                _new_reservation(ask, pick, now, group_id) for pick in picks])
            ask.quota.verify(tx, [pick.node for pick in picks])
            return ask.record_events(tx, group_id, reservations, picks)
    except db_exc.DBDuplicateEntry:
        # An instance holds a node already, another request has just begun the
        # group, or a lapsed or stale row stands in the way.
        expiry.forget(*(pick.instance_uuid for pick in picks),
                      node_ids=[pick.node.id for pick in picks])
        raise transaction.Again()


def _new_reservation(ask, pick, now, group_id):
    """The Reservation of a pick, as the guard has seen its node."""
    node, claimed = pick.node, pick.claimed
    group = ({name: getattr(claimed, name) for name in _OF_GROUP} if claimed
             else {**ask.place.columns(group_id, node), **ask.place.shown()})
    return values.Reservation(
        instance_uuid=pick.instance_uuid, node_id=node.id,
        node_uuid=node.uuid, request_spec=ask.matcher.spec.canonical,
        created_at=now,
        expires_at=ask.lease and now + datetime.timedelta(0, ask.lease),
        **vars(ask.owner), **group,
        node_name=node.name, resource_class=node.resource_class,
        node_owner=node.owner, node_lessee=node.lessee,
        provision_state='available', maintenance=False, allocated=False,
        touched=False, lapsed=False)


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
