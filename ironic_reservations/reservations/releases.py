# SPDX-License-Identifier: Apache-2.0
"""How a reservation is released: while nothing is deployed to its node."""

from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import values


def release(instance_uuid, authorize=lambda reservation: None,
            actor=values.NOBODY, restricted=False):
    """Let a node go that nothing is deployed to.

    :param authorize: called with the Reservation before anything is done;
        it raises when the caller may not release it.
    :param actor: values.Actor. When it names a host, only if that holds it.
    :param restricted: whether the caller is bound to its project. It then does
        not release an available node on which a build may be on its way,
        because a host holds it or something has begun on it. Others do, and
        they release a node in maintenance whatever its state.
    :raises: NotFound; Conflict when the node's state, lock or allocation
        forbids it; PreconditionFailed when the actor is not the host; what
        ``authorize`` raises.
    """
    def attempt(run):
        try:
            held = expiry.get_or_purge(instance_uuid, authorize,
                                       expiry.forget)
        except exception.NotFound:
            if run.unsure:
                return  # It is released.
            raise
        if actor.host not in (None, held.host):
            raise lookup.not_found(instance_uuid)
        check(held, restricted)
        let_go(run, [held], restricted)

    transaction.attempts(attempt, actor)


def check(held, restricted):
    """Refuse to release what may not be released.

    :param restricted: see ``release``.
    :raises: Conflict.
    """
    if held.lock is not None:
        raise exception.Conflict(
            f'Node {held.node_uuid} is locked by a conductor; try again.')
    if not (held.provision_state in values.RELEASABLE
            or held.maintenance and not restricted):
        raise exception.Conflict(
            f'Node {held.node_uuid} is {held.provision_state}; a reservation '
            f'can be released while nothing is deployed to its node.')
    if held.is_allocated:
        raise exception.Conflict(
            f'Node {held.node_uuid} has an allocation; delete that.')
    if (restricted and held.provision_state == 'available'
            and (held.is_touched or held.host is not None)):
        raise exception.Conflict(
            f'Node {held.node_uuid} is held by a compute host, or something '
            f'has begun on it: a server may be about to be built there.')


def let_go(run, held, restricted):
    """Release reservations in one transaction.

    :param run: transaction.Run.
    :param held: list of Reservation, all of one group or of none, in the
        order of their nodes' ids.
    :param restricted: see ``release``.
    :raises: Again when one of them is no longer as it was read;
        DeadlineExceeded, between two of them.
    """
    statement, parameters = node_rows.release_nodes(
        held, values.RELEASABLE, restricted)
    with transaction.write(run) as tx:
        for number, each in enumerate(parameters):
            if number:
                # Each of them may be waited for.
                engine.check_deadline()
            tx.one(statement, each)
        expiry.delete_rows(
            tx, reservation_rows.delete_unmoved_rows(*held), held)
        for each in held:
            tx.emits(events.RELEASED, each)
