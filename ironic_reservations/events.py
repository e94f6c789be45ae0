# SPDX-License-Identifier: Apache-2.0
"""Reports changes of reservations to the log and to the message bus.

The process that commits a transaction reports each of its events once, after
the commit. If it is killed in between, the event is lost, so only the
database shows for certain which nodes are held.
"""

from collections.abc import Sequence
import dataclasses
import logging

from oslo_log import log

from ironic_reservations import notifications
from ironic_reservations import values
from ironic_reservations.shared import text

LOG = log.getLogger(__name__)

#: Attributes of a reservation in a notification. The request spec is left out
#: because it may be long.
FIELDS = ('instance_uuid', 'node_uuid', 'node_name', 'host', 'project_id',
          'user_id', 'resource_class', 'provision_state', 'expires_at',
          'created_at', 'updated_at')

#: Attributes of a notice in a notification, which also has the project and the
#: instance for which the node is reserved, and whether the project sees it.
NOTICE_FIELDS = ('uuid', 'kind', 'cordon', 'state', 'overdue', 'node_uuid',
                 'node_name', 'scheduled_at', 'created_by', 'created_at',
                 'updated_at',
                 *(field.name for type_ in (
                     values.NoticeTimes, values.NoticeTexts)
                   for field in dataclasses.fields(type_)))

#: Attributes of a pool in a notification, which also has the UUIDs of its
#: nodes.
POOL_FIELDS = ('uuid', 'project_id', 'policy', 'by', 'description',
               'expires_at', 'created_at', 'updated_at')

#: What has happened: an action, and a line of the log.
Kind = tuple[str, str]


def _kind(action: str, words: str) -> Kind:
    return action, (words + ' (host %(host)s, project %(project)s, expires at '
                    '%(expires_at)s)')


#: The kinds of events. The action is part of the name of the notification.
HELD = _kind('create', 'Node %(node)s is held for instance %(instance)s')
ADOPTED = _kind('create', 'Node %(node)s is adopted with instance '
                          '%(instance)s')
CHANGED = _kind('update', 'The reservation of node %(node)s for instance '
                          '%(instance)s is changed')
RENEWED = _kind('update', 'The lease of instance %(instance)s on node '
                          '%(node)s is renewed')
MOVED = _kind('update', 'Instance %(instance)s moves to another host and '
                        'keeps node %(node)s')
RELEASED = _kind('delete', 'Node %(node)s of instance %(instance)s is '
                           'released')
CLAIMED = _kind('delete', 'Node %(node)s of instance %(instance)s is '
                          'claimed by another instance')
EXPIRED = _kind('expire', 'The lease of instance %(instance)s has expired; '
                          'node %(node)s is free')
PURGED = _kind('delete', 'The stale reservation of instance %(instance)s on '
                         'node %(node)s is purged')
#: The kinds of events of notices.
NOTICE_CREATED, NOTICE_CHANGED = (
    (f'notice.{action}', f'Notice %(notice)s of node %(node)s is {word} '
                         '(%(kind)s, cordon %(cordon)s, from %(starts_at)s to '
                         '%(ends_at)s, project %(project)s, instance '
                         '%(instance)s)')
    for action, word in (('create', 'created'), ('update', 'changed')))


@dataclasses.dataclass(frozen=True)
class OfReservation:
    """An event of a reservation.

    :param reservation: as it is after the event, or as it was before an event
        that ended it.
    """

    kind: Kind
    reservation: values.Reservation

    @property
    def subject(self) -> str:
        """What it changes, for the log."""
        return f'instance {self.reservation.instance_uuid}'

    def emit(self) -> None:
        """Report it to the log and to the message bus."""
        (action, line), reservation = self.kind, self.reservation
        LOG.info(line, {
            'instance': reservation.instance_uuid,
            'node': reservation.node_uuid,
            'host': text.escape_controls(str(reservation.host)),
            'project': text.escape_controls(str(reservation.project_id)),
            'expires_at': reservation.effective_expiry})
        notifications.send(action, 'ReservationPayload', {
            **{name: getattr(reservation, name) for name in FIELDS},
            'expires_at': reservation.effective_expiry})


@dataclasses.dataclass(frozen=True)
class OfNotice:
    """An event of a notice.

    :param project_id: project that has reserved the node, or None.
    :param instance_uuid: instance for which it is reserved, or None.
    """

    kind: Kind
    notice: values.Notice
    project_id: str | None
    instance_uuid: str | None

    @property
    def subject(self) -> str:
        """What it changes, for the log."""
        return f'notice {self.notice.uuid}'

    def emit(self) -> None:
        """Report it to the log and to the message bus."""
        (action, line), notice = self.kind, self.notice
        LOG.info(line, {
            'notice': notice.uuid, 'node': notice.node_uuid,
            'kind': notice.kind, 'cordon': notice.cordon,
            'starts_at': notice.starts_at, 'ends_at': notice.ends_at,
            'project': text.escape_controls(str(self.project_id)),
            'instance': self.instance_uuid})
        notifications.send(action, 'ReservationNoticePayload', {
            **{name: getattr(notice, name) for name in NOTICE_FIELDS},
            'project_id': self.project_id,
            'instance_uuid': self.instance_uuid,
            'is_shown_to_project': notice.is_shown_to(self.project_id)})


# What has happened to a pool, by action.
_PAST = {'create': 'created', 'update': 'changed', 'delete': 'deleted'}


@dataclasses.dataclass(frozen=True)
class OfPool:
    """A change of a pool.

    :param action: ``create``, ``update`` or ``delete``.
    :param arrivals: UUIDs of the nodes that have joined it,
    :param departures: and of those that have left it,
    :param losses: among them those that no longer exist.
    """

    action: str
    pool: values.Pool
    arrivals: Sequence[str] = ()
    departures: Sequence[str] = ()
    losses: Sequence[str] = ()

    @property
    def subject(self) -> str:
        """What it changes, for the log."""
        return self.pool.title

    def emit(self) -> None:
        """Report it to the log and to the message bus."""
        pool = self.pool
        arguments = {'pool': pool.uuid, 'expires_at': pool.expires_at,
                     'project': text.escape_controls(str(pool.project_id))}
        for verb, nodes in (('joins', self.arrivals),
                            ('leaves', self.departures)):
            for node in nodes:
                is_lost = node in self.losses
                LOG.log(logging.WARNING if is_lost else logging.INFO,
                        'Node %(node)s %(verb)s pool %(pool)s (project '
                        '%(project)s, expires at %(expires_at)s)',
                        {**arguments, 'node': node, 'verb':
                         f'no longer exists, and {verb}' if is_lost else verb})
        if not (self.arrivals or self.departures):
            LOG.info('Pool %(pool)s is %(verb)s (project %(project)s, expires '
                     'at %(expires_at)s)',
                     {**arguments, 'verb': _PAST[self.action]})
        notifications.send(f'pool.{self.action}', 'ReservationPoolPayload', {
            **{name: getattr(pool, name) for name in POOL_FIELDS},
            'node_uuids': [*self.departures] if self.action == 'delete'
            else [node.uuid for node in pool.nodes]})


Event = OfReservation | OfNotice | OfPool
