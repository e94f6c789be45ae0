# SPDX-License-Identifier: Apache-2.0
"""Reports changes of reservations to the log and to the message bus.

The process that commits a transaction reports each of its events once, after
the commit. If it is killed in between, the event is lost, so only the
database shows for certain which nodes are held.
"""

from collections.abc import Collection
import logging

from oslo_log import log

from ironic_reservations import notifications
from ironic_reservations import values
from ironic_reservations.shared import text

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
#: The events of notices.
NOTICE_CREATED, NOTICE_CHANGED = (
    (f'notice.{action}', f'Notice %(notice)s of node %(node)s is {word} '
                         '(%(kind)s, cordon %(cordon)s, from %(starts_at)s to '
                         '%(ends_at)s, project %(project)s, instance '
                         '%(instance)s)')
    for action, word in (('create', 'created'), ('update', 'changed')))


def emit(event: Event, reservation: values.Reservation) -> None:
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


# What has happened to a pool, by action.
_PAST = {'create': 'created', 'update': 'changed', 'delete': 'deleted'}


def emit_pool(action: str, pool: values.Pool,
              arrivals: Collection[str] = (),
              departures: Collection[str] = (), losses: Collection[str] = ()
              ) -> None:
    """Report a change of a pool to the log and to the message bus.

    :param action: ``create``, ``update`` or ``delete``.
    :param arrivals: UUIDs of the nodes that have joined it,
    :param departures: and of those that have left it,
    :param losses: among them those that no longer exist.
    """
    arguments = {'pool': pool.uuid, 'expires_at': pool.expires_at,
                 'project': text.escape_controls(str(pool.project_id))}
    for verb, nodes in ('joins', arrivals), ('leaves', departures):
        for node in nodes:
            is_lost = node in losses
            LOG.log(logging.WARNING if is_lost else logging.INFO,
                    'Node %(node)s %(verb)s pool %(pool)s (project '
                    '%(project)s, expires at %(expires_at)s)',
                    {**arguments, 'node': node, 'verb':
                     f'no longer exists, and {verb}' if is_lost else verb})
    if not (arrivals or departures):
        LOG.info('Pool %(pool)s is %(verb)s (project %(project)s, expires at '
                 '%(expires_at)s)', {**arguments, 'verb': _PAST[action]})
    notifications.send_pool(
        action, pool, [*departures] if action == 'delete'
        else [node.uuid for node in pool.nodes])


def emit_notice(event: Event, notice: values.Notice,
                project_id: str | None, instance_uuid: str | None) -> None:
    """Report an event of a notice to the log and to the message bus.

    :param project_id: project that has reserved the node, or None.
    :param instance_uuid: instance for which it is reserved, or None.
    """
    action, line = event
    LOG.info(line, {
        'notice': notice.uuid, 'node': notice.node_uuid, 'kind': notice.kind,
        'cordon': notice.cordon, 'starts_at': notice.starts_at,
        'ends_at': notice.ends_at,
        'project': text.escape_controls(str(project_id)),
        'instance': instance_uuid})
    notifications.send_notice(action, notice, project_id, instance_uuid)
