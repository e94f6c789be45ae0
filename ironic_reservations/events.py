# SPDX-License-Identifier: Apache-2.0
"""Reports changes of reservations to the log and to the message bus.

The process that commits a transaction reports each of its events once, after
the commit. If it is killed in between, the event is lost, so only the
database shows for certain which nodes are held.
"""

import typing

from oslo_log import log

from ironic_reservations import notifications
from ironic_reservations import text

if typing.TYPE_CHECKING:
    from ironic_reservations.reservations import values

LOG = log.getLogger(__name__)

#: An action, and a line of the log.
Event = tuple[str, str]


def _event(action: str, words: str) -> Event:
    return action, (words + ' (host %(host)s, project %(project)s, expires at '
                    '%(expires_at)s)')


#: The events. The action is part of the name of the notification.
HELD = _event('create', 'Node %(node)s is held for instance %(instance)s')
ADOPTED = _event('create', 'Node %(node)s is adopted with instance '
                           '%(instance)s')
CHANGED = _event('update', 'The reservation of node %(node)s for instance '
                           '%(instance)s is changed')
RENEWED = _event('update', 'The lease of instance %(instance)s on node '
                           '%(node)s is renewed')
MOVED = _event('update', 'Instance %(instance)s moves to another host and '
                         'keeps node %(node)s')
RELEASED = _event('delete', 'Node %(node)s of instance %(instance)s is '
                            'released')
CLAIMED = _event('delete', 'Node %(node)s of instance %(instance)s is '
                           'claimed by another instance')
EXPIRED = _event('expire', 'The lease of instance %(instance)s has expired; '
                           'node %(node)s is free')
PURGED = _event('delete', 'The stale reservation of instance %(instance)s on '
                          'node %(node)s is purged')


def emit(event: Event, reservation: 'values.Reservation') -> None:
    """Report an event to the log and to the message bus.

    :param reservation: as it is after the event, or as it was before an event
        that ended it.
    """
    action, line = event
    LOG.info(line, {
        'instance': reservation.instance_uuid, 'node': reservation.node_uuid,
        'host': text.escape_controls(str(reservation.host)),
        'project': text.escape_controls(str(reservation.project_id)),
        'expires_at': reservation.effective_expiry})
    notifications.send(action, reservation)
