# SPDX-License-Identifier: Apache-2.0
"""A reservation goes to another host, or its lease gets another end."""

import json

from ironic_reservations import constants
from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations.db import reservation_rows
from ironic_reservations.matching import Ownership
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import values


def update(instance_uuid, changes, authorize=lambda reservation: None,
           actor=values.NOBODY, restricted=False):
    """Give a reservation to another host, or its lease another end.

    The node stays the same, and nothing of Ironic's is written.

    :param changes: dict of ``host``, which may change in any state, and of
        ``lease``: seconds from now, None for no end.
    :param authorize: see ``release``.
    :param actor: values.Actor. When it names a host, only if that holds it.
    :param restricted: whether the caller is bound to its project. It then does
        not change the lease of what a host holds, nor of a node that the
        project may use no longer.
    :returns: the Reservation as it is then.
    :raises: NotFound; Conflict when a lease is to change and something has
        begun on the node, or the project may use the node no longer;
        PreconditionFailed when the actor is not the host; what ``authorize``
        raises.
    """
    def attempt(run):
        held = expiry.get_or_purge(instance_uuid, authorize)
        if run.unsure and changes == {'host': held.host}:
            return held
        if actor.host not in (None, held.host) and not (
                run.unsure and changes.get('host') == held.host):
            raise lookup.not_found(instance_uuid)
        if 'lease' in changes:
            _check_lease(held, restricted)
        return change(run, held, changes,
                      events.MOVED if 'host' in changes else events.RENEWED,
                      held.host)

    return transaction.attempts(attempt, actor)


def change(run, held, changes, event, host=reservation_rows.ANY_HOST):
    """Change a reservation that counts, in one transaction.

    :param run: transaction.Run.
    :param host: that must still hold it.
    :returns: the Reservation as it is then.
    :raises: Again.
    """
    with transaction.write(run) as tx:
        tx.one(reservation_rows.update_row(
            held.id, constants.PROVISION_STATES['reserved']
            if 'lease' in changes else None, changes, host))
        changed = tx.read('id', held.id)
        tx.emits(event, changed)
    return changed


def is_renewable(held, lease, restricted):
    """Whether the lease of a reservation is to begin anew when it is repeated.

    :param lease: seconds, or None for no end.
    :param restricted: whether the caller is bound to its project. It then
        changes nothing of what a host holds: neither does it end a build with
        a short lease, nor does it keep the machine with one that never ends.
    """
    return (held.state == 'reserved'
            and not (restricted and held.host is not None)
            and (lease is not None or held.expires_at is not None))


def _check_lease(held, restricted):
    if held.state != 'reserved':
        raise exception.Conflict(
            f'Node {held.node_uuid} is {held.provision_state}; a lease '
            f'changes only while nothing has begun on the node.')
    if restricted and held.host is not None:
        raise exception.Conflict(
            f'Node {held.node_uuid} is held by a compute host, which keeps '
            f'its lease.')
    if restricted:
        check_usable(held, json.loads(held.request_spec).get('ownership')
                     == 'project_or_none')


def check_usable(held, unowned):
    """Refuse to let a project keep a node that it may use no longer.

    A former lessee of a machine is not to hold it for ever by beginning the
    lease of the reservation anew.

    :param unowned: whether the reservation was asked for with the ownership
        ``project_or_none``, so that a node that nobody owns or leases is
        enough.
    :raises: Conflict when the reservation's project is neither the owner nor
        the lessee of its node.
    """
    usable = Ownership(held.project_id, unowned)
    if not usable.covers(held.node_owner, held.node_lessee):
        raise exception.Conflict(
            f'Project {held.project_id} may no longer use node '
            f'{held.node_uuid}; the reservation can be released, but not '
            f'renewed.')
