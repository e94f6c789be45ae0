# SPDX-License-Identifier: Apache-2.0
"""What has happened to reservations: told to the log and to the message bus.

Each event is told once, after its transaction has been committed, by the
process that has committed it. A process that is killed between the two has
told nobody: the database, not the trail, says what is held.
"""

from oslo_log import log

from ironic_reservations import notifications
from ironic_reservations import text

LOG = log.getLogger(__name__)


def _event(action, words):
    return action, (words + ' (host %(host)s, project %(project)s, expires at '
                    '%(expires_at)s)')


#: What can happen: the action in the name of the notification, and the line
#: of the log.
HELD = _event('create', 'Node %(node)s is held for instance %(instance)s')
ADOPTED = _event('create', 'Node %(node)s, which carries instance '
                           '%(instance)s, is adopted')
REFRESHED = _event('update', 'The request spec of instance %(instance)s on '
                             'node %(node)s is stored anew')
RENEWED = _event('update', 'The lease of instance %(instance)s on node '
                           '%(node)s is renewed')
MOVED = _event('update', 'Instance %(instance)s moves to another host and '
                         'keeps node %(node)s')
RELEASED = _event('delete', 'Instance %(instance)s has released node '
                            '%(node)s')
CLAIMED = _event('delete', 'Instance %(instance)s gives node %(node)s to the '
                           'instance that has claimed it')
EXPIRED = _event('expire', 'The lease of instance %(instance)s is over; node '
                           '%(node)s is free again')
LOST = _event('delete', 'Instance %(instance)s is no longer on node %(node)s; '
                        'its reservation is deleted')


def emit(event, reservation):
    """Tell the log and the message bus of an event.

    The log's line has the request's id, as every line of a request has.

    :param event: one of the above.
    :param reservation: values.Reservation, after the event; before it
        where the event has ended the reservation.
    """
    action, line = event
    LOG.info(line, {
        'instance': reservation.instance_uuid, 'node': reservation.node_uuid,
        'host': text.printable(str(reservation.host)),
        'project': text.printable(str(reservation.project_id)),
        'expires_at': reservation.ends_at})
    notifications.send(action, reservation)
