# SPDX-License-Identifier: Apache-2.0
"""The documented configuration of notifications, and drops of the queue."""

import pathlib
import re
import subprocess
import sys
import threading
import time

from ironic_reservations import conf
from ironic_reservations import notifications

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / 'doc/source/explanation/security.rst'

#: Prints the event type of the first notification.
PROGRAM = """
import sys
import threading

import oslo_messaging

from ironic_reservations import conf
from ironic_reservations import notifications

conf.load(['--config-file', sys.argv[1]])
oslo_messaging.set_transport_defaults('ironic')
arrived = threading.Event()

class Endpoint:
    def info(self, context, publisher, event_type, payload, metadata):
        print(event_type)
        arrived.set()

listener = oslo_messaging.get_notification_listener(
    oslo_messaging.get_notification_transport(conf.CONF),
    [oslo_messaging.Target(topic='ironic_versioned_notifications')],
    [Endpoint()], executor='threading')
listener.start()
notifications.send('create', 'ReservationPayload', {})
arrived.wait(10)
listener.stop()
"""


def test_configuration_on_the_page(tmp_path):
    section = PAGE.read_text().split('\nNotifications\n===')[1]
    block = re.search(r'code-block:: ini\n\n((?:   .*\n|\n)+)', section)[1]
    options = re.sub(r'(?m)^   ', '', block)
    # This bus is in the process.
    options, number = re.subn('rabbit://.*', 'fake://', options)
    assert number == 1
    path = tmp_path / 'ironic.conf'
    path.write_text(options)
    process = subprocess.run(
        [sys.executable, '-c', PROGRAM, path], capture_output=True,
        text=True, check=True)
    assert process.stdout == 'baremetal.reservation.create.end\n'


def test_full_queue_drops_and_counts(caplog):
    """The broker does not answer."""
    back, events = threading.Event(), []

    class Away:
        def info(self, context, event, payload):
            back.wait(60)
            events.append(event)

    outbox = notifications.Outbox(Away)
    outbox.put({}, 'first', {})
    for number in range(notifications.MAX_QUEUE + 2):
        outbox.put({}, str(number), {})
    # Requests do not wait, and a process that ends waits a limited time.
    outbox.wait(0.01)
    assert not events
    # The thread may have taken the first one from the queue, or not yet.
    assert '2 dropped so far' in caplog.text
    assert len(caplog.records) in (2, 3)
    outbox.keep_all()
    outbox.put({}, 'last', {})
    back.set()
    outbox.wait(60)
    assert events[0] == 'first' and events[-1] == 'last'
    assert len(events) == notifications.MAX_QUEUE + 4 - len(caplog.records)


def test_nothing_is_dropped_while_the_broker_answers():
    """One request may send the notifications of the largest group at once."""
    events = []

    class There:
        def info(self, context, event, payload):
            time.sleep(0.001)
            events.append(event)

    outbox = notifications.Outbox(There)
    for number in range(conf.MOST_MEMBERS):
        outbox.put({}, str(number), {})
    outbox.wait(60)
    assert events == [str(number) for number in range(conf.MOST_MEMBERS)]
