# SPDX-License-Identifier: Apache-2.0
"""Records calls of concurrent clients, and checks them and notifications."""

import collections
import contextlib
import json
import pathlib
import re
import threading
import time
import urllib.parse

import requests

from tests.common import calls
from tests.common import histories

#: Seconds until all notifications have been sent.
PATIENCE = 60


class Recorder:
    """Sends requests for clients in threads, and records the calls."""

    def __init__(self):
        self._calls = []

    def request(self, method, url, **kwargs):
        """Send a request, as ``requests.request`` does."""
        call = self._begin(method, url, kwargs.get('json'))
        response = requests.request(method, url, **kwargs)
        self._end(call, response.status_code)
        call.request_id = response.headers.get('x-openstack-request-id')
        if response.content:
            call.content = response.json()
        return response

    @contextlib.contextmanager
    def release(self, instance):
        """Record that a conductor takes an instance from its node."""
        call = self._begin('DELETE', f'{calls.OURS}/{instance}')
        yield
        self._end(call, 204)

    def _begin(self, method, url, body=None):
        path = urllib.parse.urlunsplit(
            ('', '', *urllib.parse.urlsplit(url)[2:]))
        call = calls.Call(threading.get_ident(), method, path, body,
                          time.monotonic_ns())
        self._calls.append(call)
        return call

    def clear(self):
        self._calls.clear()

    @staticmethod
    def _end(call, status):
        call.status, call.end = status, time.monotonic_ns()
        call.offset = time.time_ns() - call.end

    @property
    def calls(self):
        """The calls; one instead of a request and its repeats."""
        return calls.merge_repeats(self._calls)

    def check(self, execute, nodes, logs=()):
        """Check the calls, and the notifications of them.

        :param execute: function that runs SQL in the database.
        :param nodes: UUIDs of the nodes, which were free at first.
        :param logs: of the processes, which send with the driver ``log``.
        """
        began = time.monotonic()
        rows = [calls.Row(*row) for row in execute(
            'SELECT instance_uuid, node_uuid FROM reservations UNION ALL '
            'SELECT instance_uuid, node_uuid FROM reservations_history')]
        histories.check(self.calls, rows, nodes)
        print(f'{len(self.calls)} calls on {len(nodes)} nodes were checked in '
              f'{time.monotonic() - began:.1f} s')
        while logs:
            # A thread sends them after the response.
            notifications = Notifications(logs)
            missing = notifications.find_missing(self.calls)
            if not missing or time.monotonic() > began + PATIENCE:
                assert not missing, missing
                duplicates = notifications.find_duplicates(self.calls, rows)
                assert not duplicates, duplicates
                break
            time.sleep(0.2)


# Notifications

#: An item of oslo.log's default format. Requests have an id.
_LINE = re.compile(r'\S+ \S+ (\d+) [A-Z]+ (\S+) '
                   r'\[(?:\S+ (req-\S+))?[^]]*\] (.*)')
#: uWSGI's own line on a worker that was killed.
_DEATH = re.compile(r'worker \d+ \(pid: (\d+)\) died')
_PREFIX = 'oslo.messaging.notification.baremetal.reservation.'


class Notifications:
    """What the processes of some logs have sent, with the driver ``log``."""

    def __init__(self, logs):
        #: How often each was sent, by its action and its name.
        self.counts = collections.Counter()
        #: Processes by request, those that may have lost some, and requests
        #: that do not know what they have committed.
        self._processes, self._exceptions = {}, set()
        for log in logs:
            for line in pathlib.Path(log).read_text(
                    errors='replace').splitlines():
                self._read(line)

    def _read(self, line):
        if match := _LINE.match(line):
            process, logger, request, message = match.groups()
            if request:
                self._processes[request] = process
            if logger.startswith(_PREFIX):
                event = logger.removeprefix(_PREFIX).removesuffix('.end')
                self.counts[event, _find_name(event, json.loads(message)[
                    'payload']['ironic_object.data'])] += 1
            elif message.startswith('Dropped notification'):
                self._exceptions.add(process)
            elif message.startswith('The response to a COMMIT was lost'):
                self._exceptions.add(request)
        elif match := _DEATH.search(line):
            self._exceptions.add(match[1])

    def find_missing(self, calls_):
        """Return what calls have caused and nobody has sent."""
        return [event for call in calls_
                if call.request_id and not call.is_repeat
                and not self._exceptions & {
                    call.request_id, self._processes[call.request_id]}
                for event in _find_events(call) if not self.counts[event]]

    def find_duplicates(self, calls_, rows):
        """Return what was sent more often than it has happened.

        Pools and notices are created and deleted once.

        :param rows: all reservations, also those that have ended.
        """
        numbers = dict.fromkeys([call.name for call in calls_], 1) | (
            collections.Counter(row.instance for row in rows))
        # The logs also have what others have caused.
        return [(action, name) for (action, name), count in self.counts.items()
                if not action.endswith('update')
                and count > numbers.get(name.partition(' ')[0], count)]


def _find_name(event, data):
    if event.startswith('notice.'):
        return f'{data["uuid"]} {data["node_uuid"]}'
    return data['uuid' if event.startswith('pool.') else 'instance_uuid']


def _find_events(call):
    """Return the notifications that a call causes, by its response."""
    match call.status, call.kind:
        case 204, 'reservations':
            return [('delete', call.name)]
        case 204, 'pools':
            return [('pool.delete', call.name)]
        case 201, 'pools':
            return [('pool.create', call.name)]
        case 201, 'notices':
            return [('notice.create', f'{name} {node}')
                    for node, name, _ in call.cordons]
        case 201, _:
            return [('create', row.instance) for row in call.rows]
    return []
