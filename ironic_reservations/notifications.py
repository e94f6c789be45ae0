# SPDX-License-Identifier: Apache-2.0
"""Sends notifications to the message bus, as configured for Ironic's own.

``baremetal.reservation.{create,update,delete,expire}.end`` have the format
and the topics of Ironic's versioned notifications. Sending does not delay the
response to a request: each process has a queue and a thread that sends from
it, and new notifications are dropped while the queue is full.
"""

import atexit
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import datetime
import itertools
import queue
import threading
import typing
from typing import Any

from oslo_context import context
from oslo_log import log
from oslo_utils import timeutils

from ironic_reservations import conf

if typing.TYPE_CHECKING:
    import oslo_messaging

LOG = log.getLogger(__name__)

#: Values of ``notification_level`` that include our level, "info".
LEVELS = ('debug', 'info')

#: Size of the queue: two groups with the maximum number of members.
MAX_QUEUE = 2 * conf.MOST_MEMBERS

#: Seconds that a process waits at its exit until its queue is empty, and
#: seconds that a command waits.
EXIT_WAIT, COMMAND_WAIT = 2, 60

# Caller's context, event type and payload.
_Notification = tuple[dict[str, Any], str, dict[str, Any]]


def send(action: str, name: str, values: dict[str, Any]) -> None:
    """Queue a notification if the configuration enables them.

    :param action: the part of its name that tells what has happened.
    :param name: name of the payload.
    :param values: its attributes.
    """
    if conf.CONF.notification_level not in LEVELS:
        return
    caller = context.get_current()
    try:
        OUTBOX.put(
            # A reader of the bus must not be able to act as the caller.
            {**caller.to_dict(), 'auth_token': None}  # nosec B105
            if caller else {},
            f'baremetal.reservation.{action}.end', _make_payload(name, values))
    except Exception:
        # The operation has succeeded even if the notification fails.
        LOG.exception('Cannot create the notification of %s for %s', action,
                      values.get('instance_uuid') or values['uuid'])


@contextlib.contextmanager
def send_all() -> Iterator[None]:
    """Drop no notification of a command, and wait until all are sent."""
    if conf.CONF.notification_level not in LEVELS:
        yield
        return
    OUTBOX.keep_all()
    yield
    OUTBOX.wait(COMMAND_WAIT)


def _make_payload(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return values in the format of Ironic's versioned objects."""
    return {'ironic_object.name': name,
            'ironic_object.namespace': 'ironic_reservations',
            'ironic_object.version': '1.0',
            'ironic_object.data': {
                name: value.replace(tzinfo=datetime.UTC).isoformat()
                if isinstance(value, datetime.datetime) else value
                for name, value in {
                    **values, 'occurred_at': timeutils.utcnow()}.items()}}


def _make_notifier() -> 'oslo_messaging.Notifier':
    # Imported here because it takes long, and notifications are optional.
    import oslo_messaging

    # Use Ironic's exchange even in a process without Ironic.
    oslo_messaging.set_transport_defaults('ironic')
    return oslo_messaging.Notifier(
        oslo_messaging.get_notification_transport(conf.CONF),
        publisher_id=f'ironic-api.{conf.CONF.host}',
        topics=conf.CONF.versioned_notifications_topics)


class Outbox:
    """A queue of notifications, and the thread that sends them.

    The first notification starts the thread, because a server may load the
    application before it forks, and threads do not survive a fork.

    :param make_notifier: called in the thread, for each notification until it
        returns a notifier.
    """

    def __init__(
            self, make_notifier: Callable[[], 'oslo_messaging.Notifier']
            = _make_notifier) -> None:
        self._make_notifier = make_notifier
        self._queue: queue.Queue[_Notification] = queue.Queue(MAX_QUEUE)
        self._lock = threading.Lock()
        self._is_running = False
        self._drops = itertools.count(1)

    def put(self, caller: dict[str, Any], event: str,
            payload: dict[str, Any]) -> None:
        """Queue a notification, or drop it if the queue is full.

        :param caller: the caller's request context.
        """
        self._start_once()
        try:
            self._queue.put_nowait((caller, event, payload))
        except queue.Full:
            LOG.warning('Dropped notification %s, because %d notifications '
                        'are waiting to be sent; %d dropped so far',
                        event, MAX_QUEUE, next(self._drops))

    def keep_all(self) -> None:
        """Drop nothing from now on."""
        self._queue.maxsize = 0

    def wait(self, seconds: float) -> None:
        """Wait until the queue is empty, at most this time."""
        with self._queue.all_tasks_done:
            self._queue.all_tasks_done.wait_for(
                lambda: not self._queue.unfinished_tasks, seconds)

    def _start_once(self) -> None:
        with self._lock:
            if not self._is_running:
                threading.Thread(target=self._send_all, daemon=True).start()
                atexit.register(self.wait, EXIT_WAIT)
                self._is_running = True

    def _send_all(self) -> None:
        notifier = None
        while True:
            notification = self._queue.get()
            try:
                notifier = notifier or self._make_notifier()
                notifier.info(*notification)
            except Exception:
                LOG.exception('Cannot send notification %s', notification[1])
            self._queue.task_done()


#: The queue of this process.
OUTBOX = Outbox()
