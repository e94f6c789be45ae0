# SPDX-License-Identifier: Apache-2.0
"""What the calls of concurrent clients did to each node, and saw of it.

Each node is a register: free or held by an instance, with open cordons, and in
a pool or in none. Statuses 409, 422 and 503 say nothing. A call is unknown if
no repeat of it had a response: it may have happened at any time since. An
unknown hold of which nothing shows the node is left out, because it explains
nothing. Pools and notices must not expire, and only one client changes a pool.
"""

import collections
import dataclasses
import math
import typing

from tests.common import calls


class State(typing.NamedTuple):
    """A node. ``expires`` is when the lease of its holder does."""

    holder: str | None = None
    expires: float = math.inf
    cordons: frozenset = frozenset()
    pool: str | None = None

    def free(self):
        return self._replace(holder=None, expires=math.inf)


@dataclasses.dataclass(eq=False)
class Operation:
    """What a call did to a node, or saw of it.

    :ivar change: returns the next state, or None if it is not possible.
    :ivar is_sure: whether it has happened.
    """

    call: calls.Call
    text: str
    change: typing.Callable
    begin: float
    end: float
    is_read: bool
    is_sure: bool


def read(calls_, rows, nodes):
    """Return the operations on each node, as a list of lists.

    :param calls_: see ``calls.merge_repeats``.
    :param rows: all reservations, also those that have ended.
    :param nodes: UUIDs of the nodes, which were free at first.
    """
    return [*_Reader(calls_, rows, nodes).operations.values()]


class _Reader:
    """Reads from calls what happened on each node."""

    def __init__(self, calls_, rows, nodes):
        self.operations = {node: [] for node in nodes}
        self._rows = {row.instance for row in rows}
        #: Nodes of instances, and how often no response explains them.
        self._nodes = collections.defaultdict(collections.Counter)
        #: Instances of groups, nodes of notices, and calls that show a pool.
        self._groups, self._notices, self._pools = (
            collections.defaultdict(kind) for kind in (set, set, list))
        #: Instances for which a response was a 201.
        self._grants = set()
        for row in rows:
            self._nodes[row.instance][row.node] += 1
        attempts = {}
        for act in self._learn, self._read:
            for call in calls_:
                act(call)
                if call.is_unknown or call.is_repeat:
                    attempts |= dict.fromkeys(call.members, call)
        for instance, call in attempts.items():
            for node in self._nodes[instance].elements():
                # When its lease expires is not known.
                self._take(call, calls.Row(
                    instance, node, -math.inf if call.body.get('expires_in')
                    else math.inf))

    def _learn(self, call):
        """Collect what the calls of others are read with."""
        for row in call.rows:
            nodes = self._nodes[row.instance]
            nodes[row.node] = max(1, nodes[row.node])
            self._grants |= {row.instance} if call.status == 201 else set()
            self._groups[row.group].add(row.instance)
        for node, name, _ in call.cordons:
            self._notices[name].add(node)
        if call.kind == 'groups':
            self._groups[call.name] |= call.members
            assert not self._rows or call.members & self._rows in (
                set(), call.members), f'Only some members have nodes: {call}'
        if call.pool is not None:
            self._pools[call.name].append(call)

    def _add(self, call, node, text, change, is_sure=True, is_read=False):
        if node in self.operations:
            self.operations[node].append(Operation(
                call, text, change, call.begin,
                math.inf if call.is_unknown else call.end, is_read, is_sure))

    def _expect(self, call, node, key, value, is_equal=True):
        self._add(call, node, f'{key} {"is" if is_equal else "is not"} '
                  f'{value or None}', lambda state: state if (
                      getattr(state, key) == value) == is_equal else None,
                  is_read=True)

    def _read(self, call):
        match call.method, call.kind:
            case 'DELETE', 'reservations' | 'groups':
                self._read_release(call)
            case 'GET', 'reservations' if call.is_list:
                holders = {row.node: row.instance for row in call.rows}
                for node in self.operations:
                    self._expect(call, node, 'holder', holders.get(node))
            case _, 'reservations' | 'groups':
                self._read_rows(call)
            case 'GET' | 'PATCH', 'pools':
                if call.status in (200, 404):
                    for node in self._list_nodes(call.name):
                        self._expect(call, node, 'pool', call.name,
                                     node in (call.pool or ()))
            case _, 'pools':
                self._read_pool(call)
            case 'GET', 'notices':
                if call.is_list:
                    for node in self.operations:
                        self._expect(call, node, 'cordons', frozenset(
                            name for other, name, is_open in call.cordons
                            if other == node and is_open))
            case _, 'notices':
                self._read_notice(call)

    def _list_nodes(self, pool):
        """Return all nodes that have been in a pool."""
        return set().union(*(call.pool for call in self._pools[pool]))

    def _read_rows(self, call):
        for row in call.rows:
            # The API repeats a hold that has lost its database connection.
            if call.method == 'POST' and (
                    call.status == 201 or call.is_repeat
                    or row.instance not in self._grants):
                self._nodes[row.instance][row.node] -= 1
                self._take(call, row)
            elif call.method == 'GET':
                self._expect(call, row.node, 'holder', row.instance)
            else:
                self._add(call, row.node, f'{row.instance} has it',
                          lambda state, row=row: state._replace(
                              expires=row.expires)
                          if state.holder == row.instance else None)
        if (call.method, call.status) == ('GET', 404):
            for node in self._nodes[call.name]:
                self._expect(call, node, 'holder', call.name, False)

    def _take(self, call, row):
        project, claim = map(call.body.get, ('project_id', 'claim'))
        sources = self._groups.get(claim, {claim}) if claim else {None}

        def change(state):
            is_free = not state.cordons and state.holder in sources and (
                claim or not state.pool
                or project == self._pools[state.pool][0].answer['project_id'])
            return state._replace(
                holder=row.instance, expires=row.expires) if (
                    is_free
                    or call.status == 200 and state.holder == row.instance
                ) else None

        self._add(call, row.node, f'{row.instance} of project {project} '
                  f'takes it{f" from {claim}" if claim else ""}', change)

    def _read_release(self, call):
        is_group, is_done = call.kind == 'groups', call.status == 204 or (
            call.status == 404 and call.is_repeat)
        for instance in self._groups[call.name] if is_group else [call.name]:
            nodes = self._nodes[instance]
            is_here = call.status == 204 and len(nodes) == 1 and not is_group

            def leave(state, instance=instance, is_here=is_here):
                return state.free() if state.holder == instance else (
                    None if is_here else state)

            for node in nodes:
                if is_done or call.is_unknown or call.is_repeat or (
                        is_group and call.status == 409):
                    self._add(call, node, f'{instance} leaves it', leave,
                              is_done)
                elif call.status == 404 and not is_group and not call.query:
                    self._expect(call, node, 'holder', instance, False)

    def _read_pool(self, call):
        """Read a call that changes the nodes of a pool.

        Its client has seen them before it, and sees them after it.
        """
        views = self._pools[call.name]
        own = [other for other in views if other.client == call.client]
        before = [set(), *(other.pool for other in own
                           if other.begin < call.begin)][-1]
        after = [other.pool for other in own if other.begin >= call.begin][:1]
        is_sure = call.status in (200, 201, 204) or (
            call.status == 404 and call.is_repeat)
        if call.is_unknown:
            after = [other.pool for other in views
                     if other.begin > call.begin and other.pool != before][-1:]
        if call.method == 'DELETE':
            after = [set()]
        elif not after:
            after = [before - {call.body.get('replaces')}]
        for node in before ^ after[0] if is_sure or call.is_unknown else ():
            verb = 'joins' if node in after[0] else 'leaves'

            def change(state, verb=verb):
                if verb == 'joins':
                    return state._replace(pool=call.name) if state[::2] == (
                        None, frozenset()) and not state.pool else None
                return state._replace(
                    pool=None) if state.pool == call.name else None

            self._add(call, node, f'{verb} pool {call.name}', change, is_sure)

    def _read_notice(self, call):
        cordons, is_sure = call.cordons, True
        if call.is_unknown or call.is_repeat and not cordons:
            is_sure = False
            nodes = self._notices[call.name]
            if call.method == 'POST':
                nodes = nodes.union(call.body.get('nodes', ()))
            cordons = [(node, call.name, call.method == 'POST')
                       for node in nodes]
        for node, name, is_open in cordons:
            def change(state, cordon=frozenset([name]), is_open=is_open):
                return state._replace(cordons=state.cordons | cordon
                                      if is_open else state.cordons - cordon)

            self._add(call, node, f'{"opens" if is_open else "closes"} cordon '
                      f'{name}', change, is_sure)
