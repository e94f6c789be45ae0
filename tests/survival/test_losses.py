# SPDX-License-Identifier: Apache-2.0
"""Acknowledged requests that a Galera cluster loses when all members fail.

The most advanced member then begins a new cluster. The output has a table of
the losses. A proxy in front of each member records whether the member has
acknowledged the COMMIT of a request; the test fails if it has not.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import random
import signal
import threading
import time
import types
import uuid

import pytest
import requests

from tests.common import proxies
from tests.survival import clients

pytestmark = pytest.mark.long

SPEC = {'resource_class': 'gold', 'memory_mb': 512}
NODES, WRITERS = 90, 6
#: Number of nodes of each pool.
POOL = 2
#: Seconds of work before a failure, and from the isolation of a member until
#: the others are killed. After about six seconds, these continue without it.
WORK, DELAYS = 4, (0, 2, 5, 8, 11)
#: Kinds of acknowledged requests.
KINDS = 'hold', 'claim', 'release', 'pool', 'unpool', 'cordon', 'uncordon'


@dataclasses.dataclass(frozen=True)
class Operation:
    """An acknowledged request; times are time.monotonic().

    :param name: UUID that its transaction contains.
    """

    kind: str
    name: str
    begin: float
    end: float


class Writer(threading.Thread):
    """Writes on all members, and records what was acknowledged.

    Requests without an acknowledgement may have been executed, so it forgets
    what they would have changed.

    :ivar states: by the UUID of an instance, pool or notice, whether it
        exists, and the operation since when.
    """

    def __init__(self, apis, nodes):
        super().__init__()
        self.operations, self.states, self.error = [], {}, None
        self.stopping = threading.Event()
        self._apis, self._nodes = apis, nodes

    def run(self):
        try:
            while not self.stopping.is_set():
                self._act()
        except BaseException as error:
            self.error = error

    def _act(self):
        kind, name = random.choice(KINDS), str(uuid.uuid4())
        if kind == 'hold' and len(self._find('hold', 'claim')) < 4:
            self._call(kind, 'POST', '', {**SPEC, 'instance_uuid': name},
                       name, {name: True})
        elif kind == 'pool' and not self._find('pool'):
            self._call(kind, 'POST', '/pools', {
                'uuid': name, 'members': POOL, 'project_id': 'east',
                'request': SPEC}, name, {name: True})
        elif kind == 'cordon' and len(self._find('cordon')) < 2:
            self._call(kind, 'POST', '/notices', {
                'uuid': name, 'kind': 'maintenance',
                'nodes': random.sample(self._nodes, 1)}, name, {name: True})
        elif kind == 'claim' and (holds := self._find('hold')):
            self._call(kind, 'POST', '', {
                **SPEC, 'instance_uuid': name, 'claim': holds[0],
                'host': 'compute-1'}, name, {name: True, holds[0]: False})
        elif kind == 'release' and (holds := self._find('hold', 'claim')):
            self._end(kind, 'DELETE', f'/{holds[0]}', None, holds[0])
        elif kind == 'unpool' and (pools := self._find('pool')):
            self._end(kind, 'DELETE', f'/pools/{pools[0]}', None, pools[0])
        elif kind == 'uncordon' and (notices := self._find('cordon')):
            self._end(kind, 'PATCH', f'/notices/{notices[0]}', [
                {'op': 'add', 'path': '/ends_at', 'value': 'now'}],
                notices[0])

    def _find(self, *kinds):
        return [name for name, (exists, operation) in self.states.items()
                if exists and operation.kind in kinds]

    def _end(self, kind, method, path, body, name):
        self._call(kind, method, path, body, name, {name: False})

    def _call(self, kind, method, path, body, name, results):
        for result in results:
            self.states.pop(result, None)
        begin = time.monotonic()
        try:
            response = clients.call(method, random.choice(self._apis), path,
                                    body)
        except requests.ConnectionError:
            return
        if response.status_code < 300:
            operation = Operation(kind, name, begin, time.monotonic())
            self.operations.append(operation)
            self.states.update({result: (exists, operation)
                               for result, exists in results.items()})


# Failures of all members, in trials by number; each returns the time of the
# last kill

def kill_at_once(members, number):
    for member in members:
        os.killpg(member.process.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    for member in members:
        member.kill()
    return killed_at


def kill_in_turn(members, number):
    for member in members:
        killed_at = time.monotonic()
        member.kill()
        time.sleep(1)
    return killed_at


def isolate(members, number):
    """Kill the others while a member is isolated, which is then stopped."""
    survivor, *others = members
    survivor.sql("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'",
                 database=None)
    time.sleep(DELAYS[number])
    return kill_at_once(others, number)


WAYS = {'at once': kill_at_once, 'in turn': kill_in_turn, 'isolated': isolate}


@pytest.fixture(scope='module')
def cluster(galera, start_api):
    """The members with a proxy and an API for each, and the fleets."""
    with contextlib.ExitStack() as stack:
        proxies_ = [stack.enter_context(proxies.proxy(member.url))
                    for member in galera.members]
        apis = [stack.enter_context(start_api(
            proxy.url, mysql_wsrep_sync_wait=1)) for proxy in proxies_]
        yield types.SimpleNamespace(
            members=galera.members, fleets=galera.fleets, proxies=proxies_,
            apis=apis)


@pytest.fixture(scope='module')
def table(cluster):
    """Counters by setting and way; printed at the end."""
    table = collections.defaultdict(collections.Counter)
    version, = cluster.members[0].sql('SELECT @@version')[0]
    provider = cluster.members[0].status('provider_version')
    yield table
    print(f'\nMariaDB {version}, Galera {provider}')
    print('flush  failure   acknowledged  lost  oldest  lost by kind')
    for (setting, way), row in table.items():
        losses = {kind: row[kind] for kind in KINDS if row[kind]}
        print(f'{setting:5}  {way:8}  {row["acknowledged"]:12}'
              f'  {sum(losses.values()):4}  {row["oldest"]:4.1f} s  {losses}')


@pytest.mark.parametrize('number', range(len(DELAYS)))
@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('setting', [0, 1, 2])
def test_all_members_fail(cluster, table, setting, way, number):
    fleet = cluster.fleets[0]
    fleet.execute('DELETE FROM reservations_notices')
    fleet.fill(NODES)
    nodes = [node for node, in fleet.execute('SELECT uuid FROM nodes')]
    for member, proxy in zip(cluster.members, cluster.proxies, strict=True):
        member.sql('SET GLOBAL innodb_flush_log_at_trx_commit = %s', setting)
        proxy.commits.clear()
    writers = [Writer(cluster.apis, nodes) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        time.sleep(WORK)
        killed_at = WAYS[way](random.sample(cluster.members, 3), number)
    finally:
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.join()
    for writer in writers:
        if writer.error:
            raise writer.error
    restart(cluster.members)
    check_acknowledged(cluster.proxies, writers)
    names = check_consistent(cluster.fleets)

    row = table[setting, way]
    row['acknowledged'] += sum(len(writer.operations) for writer in writers)
    for operation in {
            operation for writer in writers
            for name, (exists, operation) in writer.states.items()
            if exists != (name in names)}:
        row[operation.kind] += 1
        row['oldest'] = max(row['oldest'], killed_at - operation.end)
    print(setting, way, number, dict(row), flush=True)


def restart(members):
    """Begin a new cluster with the most advanced member."""
    for member in members:
        if member.process:
            member.stop()
    with concurrent.futures.ThreadPoolExecutor(len(members)) as executor:
        positions = [position.split(':') for position in executor.map(
            lambda member: member.position(), members)]
    assert len({cluster for cluster, _ in positions}) == 1
    _, first = max(zip((int(number) for _, number in positions), members,
                       strict=True), key=lambda pair: pair[0])
    others = [member for member in members if member is not first]
    first.bootstrap(members)
    first.wait()
    for member in others:
        member.join(members)
    for member in others:
        member.wait()


def check_acknowledged(proxies_, writers):
    """Check that a member has acknowledged what the API has acknowledged."""
    commits = [commit for proxy in proxies_ for commit in proxy.commits]
    for writer in writers:
        for operation in writer.operations:
            name = operation.name.encode()
            assert any(operation.begin < time_ < operation.end
                       and name in uuids
                       for time_, uuids in commits), operation


def check_consistent(fleets):
    """Check that all members have the same rows, and nothing twice.

    :returns: UUIDs of instances, pools and open notices.
    """
    states = []
    for fleet in fleets:
        holds, pools = fleet.holds(), fleet.pools()
        rows = fleet.execute('SELECT instance_uuid, node_id FROM reservations')
        for column in zip(*rows, strict=True):
            assert len(column) == len({*column}), rows
        assert {len(nodes) for nodes in pools.values()} <= {POOL}, pools
        states.append((holds, pools, {name for name, in fleet.execute(
            'SELECT uuid FROM reservations_notices WHERE ends_at IS NULL')}))
    assert states[1:] == states[:1] * 2
    return {name for state in states[:1] for names in state for name in names}
