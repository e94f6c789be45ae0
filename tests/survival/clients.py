# SPDX-License-Identifier: Apache-2.0
"""Clients that keep book of what they were told, and hold us to it.

Every request whose answer is lost, or is a 503, is repeated as it was until
there is an answer. So a client knows at the end what must be there.
"""

import collections
import dataclasses
import datetime
import itertools
import random
import threading
import time
import uuid

import requests
import sqlalchemy as sa

from tests.functional import answers

OURS = '/v1/reservations'
HEADERS = {'X-OpenStack-Ironic-API-Version': 'latest'}
#: Seconds after which the last answer is owed, when all is well again.
PATIENCE = 90


@dataclasses.dataclass
class Hold:
    """A node that a client was told it has; times are time.time()."""

    instance_uuid: str
    body: dict
    node: str | None = None
    told: float | None = None
    ends: float = float('inf')
    #: How often the answer to the POST, to the DELETE was lost.
    lost: int = 0
    released: bool = False

    @property
    def lapses(self):
        return self.body['expires_in'] is not None

    def is_sure(self, margin=0.5):
        """Whether it is held for a moment yet."""
        return self.node is not None and time.time() + margin < self.ends


class Client(threading.Thread):
    """Holds, releases, looks and lists until it is told to stop."""

    #: How many nodes it has at most.
    HANDS = 4

    def __init__(self, urls, spec, *, may_fail=False,
                 leases=(None, None, 2)):
        """
        :param urls: of APIs on the same fleet, any of which may be asked.
        :param spec: what to ask for.
        :param may_fail: whether there may be no node left.
        :param leases: seconds to choose from; None for no end.
        """
        super().__init__()
        self.holds, self.seen = [], collections.Counter()
        self.error = None
        self._urls, self._spec = urls, spec
        self._may_fail, self._leases = may_fail, leases
        self._stop_asked = threading.Event()

    def stop(self):
        self._stop_asked.set()

    def run(self):
        try:
            while not self._stop_asked.is_set():
                self._act()
        except BaseException as error:
            self.error = error

    @property
    def mine(self):
        return [hold for hold in self.holds
                if hold.node and hold.ends > time.time()]

    def _act(self):
        mine = self.mine
        action = random.choices(
            [self.hold, self.release, self.look, self.list, self.repeat,
             self.count], [8, 6, 2, 1, 2, 1])[0]
        if len(mine) >= self.HANDS and action == self.hold:
            action = self.release
        if action in (self.release, self.look, self.repeat):
            if mine:
                action(random.choice(mine))
        else:
            action()

    def hold(self):
        hold = Hold(str(uuid.uuid4()), {
            **self._spec, 'expires_in': random.choice(self._leases)})
        self.holds.append(hold)
        self._post(hold)
        return hold

    def _post(self, hold):
        """Ask until it is known whether a node is held."""
        body = {**hold.body, 'instance_uuid': hold.instance_uuid}
        known = {200, 201, 422} if self._may_fail else {200, 201}
        first = hold.node is None
        answer, lost = self._ask('POST', OURS, known, json=body)
        hold.lost += lost
        if answer.status_code == 422:
            hold.ends = 0
            return
        # Nobody has it before it was asked for.
        assert answer.status_code == 201 or not first or lost, answer.text
        found = answer.json()
        if hold.node is not None and not hold.lapses:
            assert found['node_uuid'] == hold.node, (hold, found)
        assert found['instance_uuid'] == hold.instance_uuid
        hold.node, hold.told = found['node_uuid'], hold.told or time.time()
        if found['expires_at']:
            hold.ends = datetime.datetime.fromisoformat(
                found['expires_at']).timestamp()

    def repeat(self, hold):
        # What may lapse meanwhile could be another hold, of another node.
        if not hold.lapses:
            self._post(hold)

    def release(self, hold):
        # From here on it may be somebody else's.
        lapsing, hold.ends = hold.lapses, min(hold.ends, time.time())
        answer, lost = self._ask(
            'DELETE', f'{OURS}/{hold.instance_uuid}', {204, 404})
        assert answer.status_code == 204 or lost or lapsing, (hold, lost)
        hold.lost += lost
        hold.released = True

    def look(self, hold):
        if not hold.is_sure():
            return
        answer, _ = self._ask('GET', f'{OURS}/{hold.instance_uuid}',
                              {200, 404})
        if answer.status_code == 404:
            assert not hold.is_sure(0), hold
            return
        assert answer.json()['node_uuid'] == hold.node, (hold, answer.text)

    def list(self):
        sure = {hold.instance_uuid: hold.node for hold in self.mine}
        answer, _ = self._ask('GET', f'{OURS}?limit=1000', {200})
        listed = {each['instance_uuid']: each['node_uuid']
                  for each in answer.json()['reservations']}
        assert len(set(listed.values())) == len(listed), listed
        for hold in self.mine:
            if hold.is_sure(0) and hold.instance_uuid in sure:
                assert listed.get(hold.instance_uuid) == hold.node, hold

    def count(self):
        answer, _ = self._ask('GET', f'{OURS}/capacity', {200},
                              headers={'Cache-Control': 'no-cache'})
        free = total = 0
        for profile in answer.json()['capacity']:
            free += profile['free']
            total += profile['total']
        sure = [hold for hold in self.mine if hold.is_sure(0)]
        assert free <= total - len(sure), (free, total, sure)

    def _ask(self, method, path, known, headers=None, **kwargs):
        """Ask until the answer is one of these; how often it was lost."""
        lost, end = 0, None
        # What changes at the moment is refused; what is read is not.
        refused = {503} if method == 'GET' else {409, 503}
        while True:
            url = random.choice(self._urls)
            try:
                # No connection is kept: whom it reaches is to be random.
                answer = requests.request(
                    method, url + path, timeout=60,
                    headers={**HEADERS, **(headers or {})}, **kwargs)
            except requests.ConnectionError:
                self.seen['lost'] += 1
                lost += 1
            else:
                self.seen[answer.status_code] += 1
                answers.check(answer, (*known, *refused))
                if answer.status_code in known:
                    return answer, lost
                if answer.status_code == 503:
                    assert int(answer.headers['Retry-After']) > 0
                    lost += 1
            time.sleep(random.uniform(0, 0.2))
            if self._stop_asked.is_set():
                end = end or time.monotonic() + PATIENCE
                assert time.monotonic() < end, f'no answer from {url}'


class Crowd:
    """Clients at work while the body of the ``with`` runs.

    At its end all of them have stopped and know what they have.
    """

    def __init__(self, urls, spec, size=8, **kwargs):
        self.clients = [Client(urls, spec, **kwargs) for _ in range(size)]

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *error):
        for client in self.clients:
            client.stop()
        for client in self.clients:
            client.join()
        if error == (None, None, None):
            self.check()

    def work(self, seconds, act=lambda: None):
        """Let them work, as long as no error is found; act now and then."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check()
            act()
            time.sleep(0.2)

    def check(self):
        for client in self.clients:
            if client.error is not None:
                raise client.error

    @property
    def holds(self):
        return [hold for client in self.clients for hold in client.holds]

    @property
    def seen(self):
        return sum((client.seen for client in self.clients),
                   collections.Counter())


# What the database says

#: Every change of who has a node, in the transaction that makes it.
_AUDIT = {
    'mysql': ('''
        CREATE TABLE audit (
            id INTEGER PRIMARY KEY AUTO_INCREMENT, node_uuid VARCHAR(36),
            held_before VARCHAR(36), held VARCHAR(36), properties TEXT)''', '''
        CREATE TRIGGER audit_nodes AFTER UPDATE ON nodes FOR EACH ROW
        IF NOT (OLD.instance_uuid <=> NEW.instance_uuid) THEN
            INSERT INTO audit (node_uuid, held_before, held, properties)
            VALUES (NEW.uuid, OLD.instance_uuid, NEW.instance_uuid,
                    NEW.properties);
        END IF'''),
    'sqlite': ('''
        CREATE TABLE audit (
            id INTEGER PRIMARY KEY AUTOINCREMENT, node_uuid VARCHAR(36),
            held_before VARCHAR(36), held VARCHAR(36), properties TEXT)''', '''
        CREATE TRIGGER audit_nodes AFTER UPDATE ON nodes
        WHEN OLD.instance_uuid IS NOT NEW.instance_uuid BEGIN
            INSERT INTO audit (node_uuid, held_before, held, properties)
            VALUES (NEW.uuid, OLD.instance_uuid, NEW.instance_uuid,
                    NEW.properties);
        END'''),
}


class Fleet:
    """Nodes in a database, who has them, and who has had them.

    :param url: of a database with Ironic's schema and our table.
    """

    def __init__(self, url):
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)

    def execute(self, statement, *args):
        with self.engine.begin() as connection:
            result = connection.execute(sa.text(statement), *args)
            return result.all() if result.returns_rows else None

    def fill(self, size, **columns):
        """Begin anew with nodes that are free."""
        for table in 'reservations', 'nodes':
            self.execute(f'DELETE FROM {table}')
        if not sa.inspect(self.engine).has_table('audit'):
            for statement in _AUDIT[self.engine.dialect.name]:
                self.execute(statement)
        self.execute('DELETE FROM audit')
        nodes = [{'uuid': str(uuid.uuid4()), 'resource_class': 'gold',
                  'provision_state': 'available', 'maintenance': False,
                  'power_state': 'power off', 'conductor_group': '',
                  'properties': '{"memory_mb": 1024}', **columns}
                 for _ in range(size)]
        self.execute(
            f'INSERT INTO nodes ({", ".join(nodes[0])}) VALUES '
            f'({", ".join(f":{name}" for name in nodes[0])})', nodes)

    def held(self):
        """Node by instance; the nodes and our table say the same."""
        # One statement, so that both are of one moment.
        rows = self.execute(
            'SELECT 0 AS ours, id, uuid, instance_uuid FROM nodes '
            'WHERE instance_uuid IS NOT NULL UNION ALL '
            'SELECT 1, node_id, node_uuid, instance_uuid FROM reservations')
        nodes, ours = (sorted(tuple(row[1:]) for row in rows
                              if row.ours == which) for which in (0, 1))
        assert nodes == ours
        return {instance: node for _, node, instance in nodes}

    def check(self, holds):
        """Hold all that was told to clients against what there is.

        :param holds: all that was ever asked for.
        """
        held, now = self.held(), time.time()
        events = self.execute('SELECT * FROM audit ORDER BY id')
        taken, left = collections.defaultdict(list), collections.Counter()
        for event in events:
            # Nobody takes what somebody has.
            assert None in (event.held_before, event.held), event
            if event.held is not None:
                taken[event.held].append(event.node_uuid)
            else:
                left[event.held_before] += 1
        known = {hold.instance_uuid: hold for hold in holds}
        assert set(taken) <= set(known)
        for hold in holds:
            name = hold.instance_uuid
            if hold.node is None:
                # Told that there was none: it has left no trace.
                assert hold.lapses or name not in taken, hold
            elif not hold.lapses:
                # One hold, however often it was asked for.
                assert taken[name] == [hold.node], (hold, taken[name])
                assert left[name] == hold.released, (hold, left[name])
                assert held.get(name) == (
                    None if hold.released else hold.node), hold
            elif hold.ends > now and not hold.released:
                assert held.get(name) == hold.node, hold
        self._check_apart(holds)
        return held

    @staticmethod
    def _check_apart(holds):
        """No node was somebody's while it was somebody else's."""
        by_node = collections.defaultdict(list)
        for hold in holds:
            if hold.node is not None:
                by_node[hold.node].append(hold)
        for of_node in by_node.values():
            of_node.sort(key=lambda hold: hold.told)
            for before, after in itertools.pairwise(of_node):
                assert before.ends <= after.told, (before, after)
