# SPDX-License-Identifier: Apache-2.0
"""Records calls of concurrent clients, and the notifications of them."""

import collections
import contextlib
import dataclasses
import datetime
import functools
import json
import math
import pathlib
import re
import threading
import time
import typing
import urllib.parse

import requests

OURS = '/v1/reservations'
SECOND = 10 ** 9

_PATH = re.compile(OURS + r'(?:/(groups|pools|notices))?'
                   r'(?:/([0-9a-f-]{36}))?(?:/nodes)?(?:\?(.*))?')
#: Queries of lists that show all there is.
_WHOLE = re.compile(r'(limit=1000|state=open|&)*')


class Row(typing.NamedTuple):
    """A reservation; ``expires`` is of ``time.monotonic_ns()``."""

    instance: str
    node: str
    expires: float = math.inf
    group: str | None = None


@dataclasses.dataclass(eq=False)
class Call:
    """A request and its response.

    :ivar client: clients send one request at a time.
    :ivar begin: with ``end``, of ``time.monotonic_ns()``.
    :ivar offset: nanoseconds of the wall clock when that is 0.
    :ivar status: None if the response was lost.
    :ivar is_repeat: whether the response to the same request was lost before.
    """

    client: int
    method: str
    path: str
    body: typing.Any
    begin: float
    end: float = math.inf
    offset: int = 0
    status: int | None = None
    content: typing.Any = None
    request_id: str | None = None
    is_repeat: bool = False

    def __str__(self):
        return f'{self.method} {self.path} {self.status}'

    @functools.cached_property
    def _parts(self):
        match = _PATH.fullmatch(self.path)
        return match.groups() if match else ('other', None, None)

    @property
    def kind(self):
        """The kind of things that it is about."""
        return self._parts[0] or 'reservations'

    @property
    def query(self):
        return self._parts[2]

    @property
    def answer(self):
        """The content of the response to a call that succeeded."""
        return self.content or {} if self.status in (200, 201) else {}

    @property
    def name(self):
        """The UUID in its path, in its body, or of what it has created."""
        body = self.body if isinstance(self.body, dict) else {}
        return (self._parts[1] or body.get('uuid') or self.answer.get('uuid')
                or body.get('instance_uuid'))

    @property
    def is_unknown(self):
        return self.status in (None, 503)

    @property
    def is_list(self):
        """Whether it shows all reservations, or all open notices."""
        return (self.method == 'GET' and not self._parts[1]
                and self.status == 200 and 'next' not in self.answer
                and _WHOLE.fullmatch(self.query or '') is not None)

    @functools.cached_property
    def rows(self):
        """The reservations that the response shows."""
        rows = self.answer.get('reservations', [self.answer] * (
            'instance_uuid' in self.answer))
        return [Row(row['instance_uuid'], row['node_uuid'],
                    self._find_expiry(row['expires_at']),
                    (row.get('group') or {}).get('uuid')) for row in rows]

    def _find_expiry(self, text):
        return math.inf if text is None else datetime.datetime.fromisoformat(
            text).timestamp() * SECOND - self.offset

    @property
    def members(self):
        """The instances that a POST requests nodes for, if it names them."""
        if self.method != 'POST' or self.kind not in (
                'reservations', 'groups'):
            return set()
        members = self.body.get('members', [self.body.get('instance_uuid')])
        return {row.instance for row in self.rows} | (
            {*members} if isinstance(members, list) else set()) - {None}

    @property
    def pool(self):
        """The UUIDs of a pool's nodes, if the response shows them."""
        if self.kind != 'pools' or 'nodes' not in self.answer:
            return None
        return {node['uuid'] for node in self.answer['nodes']}

    @property
    def cordons(self):
        """What the response says of nodes: whether a cordon is open."""
        return [(row['node_uuid'], row['uuid'],
                 row['cordon'] and row['state'] == 'open')
                for row in self.answer['notices']] if (
                    self.kind == 'notices' and self.answer) else []


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
        call = self._begin('DELETE', f'{OURS}/{instance}')
        yield
        self._end(call, 204)

    def _begin(self, method, url, body=None):
        call = Call(threading.get_ident(), method, urllib.parse.urlunsplit((
            '', '', *urllib.parse.urlsplit(url)[2:])), body,
            time.monotonic_ns())
        self._calls.append(call)
        return call

    @staticmethod
    def _end(call, status):
        call.status, call.end = status, time.monotonic_ns()
        call.offset = time.time_ns() - call.end

    @property
    def calls(self):
        """The calls; one instead of a request and its repeats."""
        return merge_repeats(self._calls)


def merge_repeats(calls):
    """Make one call of a request and its repeats by the same client."""
    merged, last = {}, {}
    for call in sorted(calls, key=lambda call: call.begin):
        before = last.get(call.client)
        if (before and call.method != 'GET'
                and before.status in (None, 409, 503)
                and (before.is_unknown or before.is_repeat)
                and (before.method, before.path, before.body)
                == (call.method, call.path, call.body)):
            del merged[id(before)]
            call = dataclasses.replace(call, begin=before.begin,
                                       is_repeat=True)
        last[call.client] = merged[id(call)] = call
    return [*merged.values()]


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

    def find_missing(self, calls):
        """Return what calls have caused and nobody has sent."""
        return [event for call in calls
                if call.request_id and not call.is_repeat
                and not self._exceptions & {
                    call.request_id, self._processes[call.request_id]}
                for event in _find_events(call) if not self.counts[event]]

    def find_doubled(self, rows):
        """Return what was sent more often than it has happened.

        :param rows: all reservations, also those that have ended.
        """
        numbers = collections.Counter(row.instance for row in rows)
        return [(action, name) for (action, name), count in self.counts.items()
                if count > max(1, numbers[name])
                and not action.endswith('update')]


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
