# SPDX-License-Identifier: Apache-2.0
"""Notifications on the message bus, by Ironic's options for its own.

``baremetal.reservation.{create,update,delete,expire}.end`` are sent in the
form and to the topics of Ironic's versioned notifications. The message that is
sent does not hold up the answer to the request: a thread of each process sends
one after the other, and what it cannot send for long is dropped.
"""

import atexit
import contextlib
import datetime
import itertools
import queue
import threading

from oslo_context import context
from oslo_log import log
from oslo_utils import timeutils

from ironic_reservations import conf

LOG = log.getLogger(__name__)

#: The levels of ``notification_level`` at which ours, which are of the level
#: "info", are sent.
LEVELS = ('debug', 'info')

#: How many notifications a process keeps while the broker is away. Half of
#: them are as many as one request makes at most, for each member of a group.
WAITING = 2 * conf.MOST_MEMBERS

#: Seconds for which a process that ends goes on sending; and a command.
AT_EXIT, UNHURRIED = 2, 60

#: What a notification tells of a reservation: all but the request spec, which
#: is as long as the client likes.
FIELDS = ('instance_uuid', 'node_uuid', 'node_name', 'host', 'project_id',
          'user_id', 'resource_class', 'provision_state', 'expires_at',
          'created_at', 'updated_at')


def send(action, reservation):
    """Send a notification, if the configuration wants any.

    :param action: ``create``, ``update``, ``delete`` or ``expire``.
    :param reservation: values.Reservation.
    """
    if conf.CONF.notification_level not in LEVELS:
        return
    caller = context.get_current()
    try:
        OUTBOX.put(
            # A reader of the bus must not be able to act as the caller.
            {**caller.to_dict(), 'auth_token': None}  # nosec B105
            if caller else {},
            f'baremetal.reservation.{action}.end', _payload(reservation))
    except Exception:
        # What it tells of is done, whether or not anybody is told.
        LOG.exception('A notification could not be made')


@contextlib.contextmanager
def unhurried():
    """Drop nothing, and wait in the end, where nobody waits for an answer."""
    if conf.CONF.notification_level not in LEVELS:
        yield
        return
    OUTBOX.keep_all()
    yield
    OUTBOX.wait(UNHURRIED)


def _payload(reservation):
    """In the form of Ironic's versioned objects."""
    data = {name: getattr(reservation, name) for name in FIELDS}
    data['expires_at'] = reservation.ends_at
    data['occurred_at'] = timeutils.utcnow()
    return {'ironic_object.name': 'ReservationPayload',
            'ironic_object.namespace': 'ironic_reservations',
            'ironic_object.version': '1.0',
            'ironic_object.data': {
                name: value.replace(tzinfo=datetime.UTC).isoformat()
                if isinstance(value, datetime.datetime) else value
                for name, value in data.items()}}


def _make_notifier():
    # Only those who want notifications need it, and it takes long to import.
    import oslo_messaging

    # Ironic's own exchange, also in a process without Ironic.
    oslo_messaging.set_transport_defaults('ironic')
    return oslo_messaging.Notifier(
        oslo_messaging.get_notification_transport(conf.CONF),
        publisher_id=f'ironic-api.{conf.CONF.host}',
        topics=conf.CONF.versioned_notifications_topics)


class Outbox:
    """Sends notifications, one after the other, from a thread of its own.

    The first notification starts the thread, because a server may fork after
    it has loaded the application, and threads do not survive a fork.

    :param make_notifier: function that returns an oslo_messaging.Notifier.
        It is called in the thread, again for each notification until it
        returns one.
    """

    def __init__(self, make_notifier=_make_notifier):
        self._make_notifier = make_notifier
        self._waiting = queue.Queue(WAITING)
        self._lock = threading.Lock()
        self._started = False
        self._dropped = itertools.count(1)

    def put(self, *notification):
        """Send a notification soon; drop it if too many are waiting.

        :param notification: context, event type and payload.
        """
        self._start_once()
        try:
            self._waiting.put_nowait(notification)
        except queue.Full:
            LOG.warning('%s is dropped: %d notifications wait to be sent, %d '
                        'were dropped so far', notification[1], WAITING,
                        next(self._dropped))

    def keep_all(self):
        """Drop nothing from now on."""
        self._waiting.maxsize = 0

    def wait(self, seconds):
        """Wait until all is sent, for so many seconds at most."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(
                lambda: not self._waiting.unfinished_tasks, seconds)

    def _start_once(self):
        with self._lock:
            if not self._started:
                threading.Thread(target=self._send_all, daemon=True).start()
                atexit.register(self.wait, AT_EXIT)
                self._started = True

    def _send_all(self):
        notifier = None
        while True:
            notification = self._waiting.get()
            try:
                notifier = notifier or self._make_notifier()
                notifier.info(*notification)
            except Exception:
                LOG.exception('%s could not be sent', notification[1])
            self._waiting.task_done()


#: Where this process puts what is to be sent.
OUTBOX = Outbox()
