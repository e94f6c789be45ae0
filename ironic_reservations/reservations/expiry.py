# SPDX-License-Identifier: Apache-2.0
"""The end of reservations: leases that are over, and nodes that have moved on.

A reservation has *lapsed* when its lease is over and nothing has begun on its
node: it is gone from every read, and its node is to be given back. It is
*stale* when its node carries its instance no longer: its row is to be
deleted. It is *overdue* when its lease is over and something has begun on its
node, which therefore is kept.
"""

from ironic_reservations import constants
from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import group_rows
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import transaction


def sweep():
    """Give back every node whose lease is over, and purge stale rows.

    It may take longer than a request. Therefore each of its steps is a
    request of its own, which the database may abort and which has the whole
    deadline to be tried again; what was done before is neither lost nor done
    again.

    :returns: numbers of nodes given back and of rows purged.
    """
    numbers = give_back_lapsed(check=lambda: None), purge()
    for group in _empty_groups():
        # The statement leaves a group that has members again.
        _execute(group_rows.DELETE_UNCHANGED_GROUP,
                 group_rows.bind_group(group))
    return numbers


def give_back_lapsed(limit=None, check=engine.check_deadline):
    """Free nodes whose leases are over.

    :param limit: how many reservations to look at; None for all.
    :param check: called before each, to end what takes too long.
    :returns: how many nodes are free again.
    """
    expired = _read(reservation_rows.select_past_lease(limit))
    if any(each.state == 'active' for each in expired):
        # What is deployed needs its lease no more. Without this, a search for
        # lapsed leases would read every instance that there is.
        _execute(
            reservation_rows.clear_leases(
                constants.PROVISION_STATES['active']))
    given_back = 0
    for each in expired:
        if each.is_expired:
            check()
            given_back += _give_back(each)
    return given_back


def purge(*instance_uuids, node_ids=()):
    """Delete reservations whose nodes carry their instances no longer.

    :param instance_uuids: only those of these instances,
    :param node_ids: or of these nodes; none of both for all.
    :returns: how many were deleted.
    """
    stale = _read(reservation_rows.select_stale(instance_uuids, node_ids))
    return sum(_end(each, events.PURGED, reservation_rows.delete_stale_row)
               for each in stale)


def get_or_purge(instance_uuid, authorize=lambda reservation: None, end=purge):
    """Return the reservation of an instance, or delete its stale row.

    After a response of 404 a reservation must not reappear, as it would when
    somebody gave the instance back to the node by hand. The row is also
    looked for where the caller may not see the reservation, because otherwise
    the time that the response takes would reveal that there is one.

    :param authorize: see lookup.get.
    :param end: function of the instance's UUID, called before NotFound is
        raised.
    :raises: NotFound; what ``authorize`` raises.
    """
    try:
        return lookup.get(instance_uuid, authorize)
    except exception.NotFound:
        end(instance_uuid)
        raise


def forget(*instance_uuids, node_ids=()):
    """End what is left of instances' reservations, lapsed or stale.

    :param node_ids: also what is left on these nodes.
    """
    for carried in _read(reservation_rows.select_carriers(*instance_uuids)):
        if carried.is_expired:
            _give_back(carried)
    purge(*instance_uuids, node_ids=node_ids)


def end_remains(group_id):
    """Delete the lapsed and stale reservations of a group."""
    for each in _read(reservation_rows.select_group_rows(group_id)):
        if each.is_expired:
            _give_back(each)
        purge(each.instance_uuid)


@engine.retry
def overdue():
    """Reservations past their lease that are kept: their nodes are touched.

    Nodes that Ironic or an instance is at work on are not among them. Those
    whose deployment has failed are: their host may be dead.

    :returns: list of Reservation, the longest overdue first.
    """
    return _read(reservation_rows.select_overdue(
        [each for state in ('deploying', 'active', 'releasing')
         for each in constants.PROVISION_STATES[state]]))


def _give_back(held):
    """Free the node of a lapsed reservation; False when it has not lapsed.

    The node must still be untouched, and the lease must not have been renewed
    meanwhile.
    """
    return _end(held, events.EXPIRED, reservation_rows.delete_expired_row,
                node_rows.release_untouched_node)


def _end(held, event, delete, free=None):
    """End one reservation, in one transaction.

    :param delete: function of the Reservation that returns the statement
        which deletes its row.
    :param free: function of the Reservation that returns the statement which
        frees its node, with its values; None to leave the node alone.
    :returns: whether it was ended: it was not if it is no longer as it was
        read.
    """
    def attempt(run):
        try:
            with transaction.write(run) as tx:
                if free:
                    tx.one(*free(held), error=transaction.NodeLost)
                delete_rows(tx, delete(held), [held], transaction.NodeLost)
                tx.emits(event, held)
        except transaction.NodeLost:
            return False
        return True

    return transaction.attempts(attempt)


def delete_rows(tx, statement, held, error=transaction.Again):
    """Delete reservations' rows, and with a group's last member the group.

    The group's row is written before, so that of two requests which delete
    its last members at the same moment the second waits for the first, or is
    aborted, also where they meet on two members of a Galera cluster.
    Otherwise each would still see the member that the other deletes, and
    leave the group.

    :param tx: transaction.Transaction.
    :param statement: that deletes the rows.
    :param held: list of Reservation, all of one group or of none.
    :param error: the class of what is raised where one of the rows is gone or
        is no longer as it was read.
    """
    of_group = {'of_group': held[0].group_id}
    grouped = held[0].group_id is not None
    if grouped:
        tx.execute(group_rows.SHRINK, of_group)
    if tx.execute(statement).rowcount != len(held):
        raise error()
    if grouped:
        tx.execute(group_rows.DELETE_EMPTY_GROUP, of_group)


@engine.retry
def _read(query):
    return transaction.read(query)


@engine.retry
def _empty_groups():
    return engine.fetch_rows(group_rows.EMPTY_GROUPS)


@engine.retry
def _execute(statement, parameters=None):
    """Run a statement in a transaction of its own."""
    with engine.transaction() as connection:
        connection.execute(statement, parameters)
