# SPDX-License-Identifier: Apache-2.0
"""Calls of concurrent clients, and what their responses say."""

import dataclasses
import datetime
import functools
import math
import re
import typing

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
        return self.content or {} if self.status in (
            200, 201) and self.kind != 'other' else {}

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


def merge_repeats(calls):
    """Make one call of a request and its repeats by the same client."""
    result, latest = {}, {}
    for call in sorted(calls, key=lambda call: call.begin):
        before = latest.get(call.client)
        if (before and call.method != 'GET'
                and before.status in (None, 409, 503)
                and (before.is_unknown or before.is_repeat)
                and (before.method, before.path, before.body)
                == (call.method, call.path, call.body)):
            del result[id(before)]
            call = dataclasses.replace(call, begin=before.begin,
                                       is_repeat=True)
        latest[call.client] = result[id(call)] = call
    return [*result.values()]
