# SPDX-License-Identifier: Apache-2.0
"""Notifications as the documentation has them, and which are dropped."""

import pathlib
import re
import subprocess
import sys
import threading
import time

from ironic_reservations import conf
from ironic_reservations import notifications

PAGE = pathlib.Path(__file__).parents[2] / 'doc' / 'source' / 'security.rst'

#: Prints the event type of the one notification that comes.
PROGRAM = """
import sys
import threading
import types

import oslo_messaging

from ironic_reservations import conf
from ironic_reservations import notifications

conf.load(['--config-file', sys.argv[1]])
oslo_messaging.set_transport_defaults('ironic')
came = threading.Event()

class Endpoint:
    def info(self, context, publisher, event_type, payload, metadata):
        print(event_type)
        came.set()

listener = oslo_messaging.get_notification_listener(
    oslo_messaging.get_notification_transport(conf.CONF),
    [oslo_messaging.Target(topic='ironic_versioned_notifications')],
    [Endpoint()], executor='threading')
listener.start()
notifications.send('create', types.SimpleNamespace(
    **dict.fromkeys((*notifications.FIELDS, "effective_expiry"))))
came.wait(10)
listener.stop()
"""


def test_who_follows_the_page_is_notified(tmp_path):
    section = PAGE.read_text().split('\nNotifications\n===')[1]
    block = re.search(r'code-block:: ini\n\n((?:   .*\n|\n)+)', section)[1]
    configured = re.sub(r'(?m)^   ', '', block)
    # The bus is in the process.
    configured, replaced = re.subn('rabbit://.*', 'fake://', configured)
    assert replaced == 1
    path = tmp_path / 'ironic.conf'
    path.write_text(configured)
    done = subprocess.run(
        [sys.executable, '-c', PROGRAM, path], capture_output=True,
        text=True, check=True)
    assert done.stdout == 'baremetal.reservation.create.end\n'


def test_full_queue_drops_and_counts(caplog):
    """While the broker is away."""
    back, sent = threading.Event(), []

    class Away:
        def info(self, context, event, payload):
            back.wait(60)
            sent.append(event)

    outbox = notifications.Outbox(Away)
    outbox.put({}, 'first', {})
    for number in range(notifications.MAX_QUEUE + 2):
        outbox.put({}, str(number), {})
    # Nobody has been delayed, and a process that ends waits for so long.
    outbox.wait(0.01)
    assert not sent
    # The thread may have taken the first out of the queue, or not yet.
    assert '2 dropped so far' in caplog.text
    assert len(caplog.records) in (2, 3)
    outbox.keep_all()
    outbox.put({}, 'kept', {})
    back.set()
    outbox.wait(60)
    assert sent[0] == 'first' and sent[-1] == 'kept'
    assert len(sent) == notifications.MAX_QUEUE + 4 - len(caplog.records)


def test_broker_that_is_there_loses_nothing():
    """All that one request may do, which is told at once."""
    sent = []

    class There:
        def info(self, context, event, payload):
            time.sleep(0.001)
            sent.append(event)

    outbox = notifications.Outbox(There)
    for number in range(conf.MOST_MEMBERS):
        outbox.put({}, str(number), {})
    outbox.wait(60)
    assert sent == [str(number) for number in range(conf.MOST_MEMBERS)]
