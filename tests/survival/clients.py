# SPDX-License-Identifier: Apache-2.0
"""Clients that keep book of what they were told, and hold us to it.

Every request whose answer is lost, or is a 503, is repeated as it was until
there is an answer. So a client knows at the end what must be there.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import itertools
import json
import random
import threading
import time
import uuid

import requests
import sqlalchemy as sa

from tests.common import answers
from tests.common import servers
from tests.survival import limited

OURS = '/v1/reservations'
#: Without authentication nobody looks at the token.
HEADERS = {'X-OpenStack-Ironic-API-Version': 'latest',
           'X-Auth-Token': limited.TOKEN}
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
    #: Ended as a conductor does it, which leaves the row.
    torn_down: bool = False
    #: The UUID of the client's own group.
    group: str | None = None

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

    #: What it does, and how often: whatever it has; with one of its holds.
    ACTIONS = {'hold': 8, 'list': 1, 'count': 1}
    WITH_HOLD = {'release': 6, 'look': 2, 'repeat': 2}

    #: Those that hold more.
    GROWING = 'hold',

    #: What it is told where there is nothing left for it.
    REFUSED = 422

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
        #: Seconds that the slowest answer took.
        self.slowest = 0
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
        mine, weights = self.mine, self.ACTIONS | self.WITH_HOLD
        [action] = random.choices([*weights], weights.values())
        if len(mine) >= self.HANDS and action in self.GROWING:
            action = 'release'
        if action not in self.WITH_HOLD:
            getattr(self, action)()
        elif mine:
            getattr(self, action)(random.choice(mine))

    def hold(self, **more):
        [hold] = self._new(1, **more)
        self._post(hold)
        return hold

    def _new(self, number, **more):
        """Holds that are yet to be asked for, alike but for their UUIDs."""
        body = {**self._spec, 'expires_in': random.choice(self._leases),
                **more}
        found = [Hold(str(uuid.uuid4()), body) for _ in range(number)]
        self.holds += found
        return found

    def _post(self, hold):
        """Ask until it is known whether a node is held."""
        body = {**hold.body, 'instance_uuid': hold.instance_uuid}
        known = {200, 201, *[self.REFUSED] * self._may_fail}
        answer, lost = self._ask('POST', OURS, known, json=body)
        hold.lost += lost
        if answer.status_code == self.REFUSED:
            hold.ends = 0
            return
        self._told(hold, answer.json())

    @staticmethod
    def _told(hold, found):
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
        return listed

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
                self.slowest = max(self.slowest,
                                   answer.elapsed.total_seconds())
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


#: What the domains of a group are.
BY = 'capability:rack'

class GroupClient(Client):
    """Holds also groups, and members of groups that it shares with others.

    :param fleet: Fleet, to tear down in as a conductor does.
    :param shared: policies by the UUIDs of groups that others join, too.
    """

    HANDS = 8
    ACTIONS = Client.ACTIONS | {'create': 5, 'enter': 6, 'end': 2}
    WITH_HOLD = Client.WITH_HOLD | {'claim': 2, 'tear_down': 2}
    GROWING = 'hold', 'create', 'enter'

    #: Members of a group that is held at once.
    SIZE = 4

    def __init__(self, *args, fleet, shared, **kwargs):
        super().__init__(*args, may_fail=True, **kwargs)
        self.refused = []
        self._fleet, self._shared = fleet, shared

    def create(self):
        """Hold all members of a group at once, or none."""
        group, policy = str(uuid.uuid4()), random.choice(
            (None, 'spread', 'pack', 'soft-spread', 'soft-pack'))
        members = {each.instance_uuid: each for each in self._new(self.SIZE)}
        body = {'uuid': group, 'members': [*members], 'request': self._spec,
                'expires_in': [*members.values()][0].body['expires_in']}
        if policy:
            body |= {'policy': policy, 'by': BY}
        answer, lost = self._ask('POST', f'{OURS}/groups', {
            200, 201, self.REFUSED}, json=body)
        if answer.status_code == self.REFUSED:
            self.check_refusal(answer.json())
            self.refused.append(group)
        else:
            found = {each['instance_uuid']: each
                     for each in answer.json()['reservations']}
            assert set(found) == set(members), (members, found)
        for hold in members.values():
            hold.lost, hold.group = lost, group
            if answer.status_code == self.REFUSED:
                hold.ends = 0
            else:
                self._told(hold, found[hold.instance_uuid])

    def check_refusal(self, told):
        assert told['members']['available'] < self.SIZE

    def enter(self):
        """Become a member of a group that others enter at the same time."""
        group, policy = random.choice([*self._shared.items()])
        self.hold(group={'uuid': group, 'policy': policy, 'by': BY})

    def end(self):
        """Release all that is left of a group that was held at once."""
        groups = [hold.group for hold in self.mine if hold.group]
        if not groups:
            return
        group = random.choice(groups)
        members = [hold for hold in self.mine if hold.group == group]
        now = time.time()
        for hold in members:
            hold.ends = min(hold.ends, now)
        answer, lost = self._ask('DELETE', f'{OURS}/groups/{group}',
                                 {204, 404})
        assert answer.status_code == 204 or lost or all(
            hold.lapses for hold in members), members
        for hold in members:
            hold.released = True

    def claim(self, hold):
        """Claim it, or any of its group."""
        if hold.lapses or 'host' in hold.body:
            return
        claimable = [hold]
        if hold.group and random.random() < 0.5:
            claimable = [each for each in self.mine
                         if each.group == hold.group
                         and 'host' not in each.body]
        [claim] = self._new(1, expires_in=None, host='compute-1', claim=(
            hold.group if len(claimable) > 1 else hold.instance_uuid))
        claim.group = hold.group
        now = time.time()
        self._post(claim)
        [claimed] = [each for each in claimable if each.node == claim.node]
        claimed.ends, claimed.released = now, True

    def tear_down(self, hold):
        """What a conductor does; the row of the reservation stays."""
        if hold.lapses:
            return
        hold.ends, hold.released, hold.torn_down = time.time(), True, True
        for values in ("provision_state = 'active', reservation = 'c'",
                       "provision_state = 'deleting', instance_uuid = NULL",
                       "provision_state = 'available', reservation = NULL"):
            self._fleet.persist(f'UPDATE nodes SET {values} WHERE uuid = :n',
                                {'n': hold.node})


class Crowd:
    """Clients at work while the body of the ``with`` runs.

    At its end all of them have stopped and know what they have.
    """

    def __init__(self, urls, spec, size=8, kind=Client, **kwargs):
        self.clients = [kind(urls, spec, **kwargs) for _ in range(size)]

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

    def work_beside(self, function):
        """Work while a function runs, and until ten nodes more are held."""
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            future = executor.submit(function)
            while not future.done():
                self.work(0.2)
            future.result()
        before, until = self.seen[201], time.monotonic() + PATIENCE
        while self.seen[201] < before + 10:
            assert time.monotonic() < until, self.seen
            self.work(0.2)

    def check(self):
        for client in self.clients:
            if client.error is not None:
                raise client.error

    @property
    def holds(self):
        return [hold for client in self.clients for hold in client.holds]

    @property
    def slowest(self):
        return max(client.slowest for client in self.clients)

    @property
    def seen(self):
        return sum((client.seen for client in self.clients),
                   collections.Counter())


# Calls of a test itself

#: What any call may be answered with, by an API that has faults beside it.
STATUSES = 200, 201, 204, 403, 404, 409, 412, 422, 503


def call(method, api, path='', body=None, timeout=60):
    answer = requests.request(method, f'{api.url}{OURS}{path}', json=body,
                              headers=HEADERS, timeout=timeout)
    answers.check(answer, STATUSES)
    return answer


def healthy(api):
    answer = requests.get(f'{api.url}/healthcheck', timeout=15)
    assert answer.status_code in (200, 503)
    return answer.status_code == 200


# Groups, asked for by many at once

def shared():
    """Groups for a crowd to share: policies by their UUIDs."""
    return {str(uuid.uuid4()): policy for policy in
            ('spread', 'pack', 'soft-spread', 'soft-pack')}


def work_with_groups(crowd, fleet, seconds, act=lambda: None):
    """Have a crowd of GroupClient work, and check what has come of it."""
    def look():
        fleet.check_groups(crowd)
        act()

    with crowd:
        crowd.work(seconds, look)
        # However slow the machine is, there was too little for all.
        servers.wait(lambda: crowd.check() or all(
            crowd.seen[status] for status in (201, 204, 422)), 'all of it')
    fleet.check(crowd.holds)
    fleet.check_groups(crowd)


def at_once(urls, *calls):
    """Make calls at the same moment; their answers.

    :param calls: each the arguments of requests.request, with a path.
    """
    barrier = threading.Barrier(len(calls))

    def call(number, method, path, **kwargs):
        barrier.wait(60)
        answer = requests.request(
            method, urls[number % len(urls)] + path, headers=HEADERS,
            timeout=60, **kwargs)
        answers.check(answer, (200, 201, 204, 404, 409, 422, 503))
        return answer

    with concurrent.futures.ThreadPoolExecutor(len(calls)) as executor:
        return [future.result() for future in [
            executor.submit(call, number, method, path, **kwargs)
            for number, (method, path, kwargs) in enumerate(calls)]]


def join_one_by_one(urls, fleet, spec, seconds, racks=6, rack=5):
    """Many want to be members: as many are as the policy has room for."""
    end, turn = time.monotonic() + seconds, 0
    while turn < 2 or time.monotonic() < end:
        policy, room = (('spread', racks), ('pack', rack))[turn % 2]
        turn += 1
        group = {'uuid': str(uuid.uuid4()), 'policy': policy, 'by': BY}
        seen = at_once(urls, *[('POST', OURS, {
            'json': {**spec, 'group': group}})] * 8)
        assert collections.Counter(
            answer.status_code for answer in seen) == {
                201: room, 422: 8 - room}, [answer.text for answer in seen]
        [domains] = fleet.groups().values()
        assert len(fleet.held()) == domains.total() == room
        [answer] = at_once(urls, ('DELETE', f'{OURS}/groups/{group["uuid"]}',
                                  {}))
        assert answer.status_code == 204
        assert not fleet.held()
        assert not fleet.execute('SELECT uuid FROM reservations_groups')


def claim_at_once(urls, fleet, spec):
    """More instances than there are members: each member is one's."""
    for _ in range(3):
        group = str(uuid.uuid4())
        [answer] = at_once(urls, ('POST', f'{OURS}/groups', {'json': {
            'uuid': group, 'members': 4, 'policy': 'pack', 'by': BY,
            'request': spec}}))
        assert answer.status_code == 201
        seen = at_once(urls, *(('POST', OURS, {'json': {
            **spec, 'claim': group, 'host': f'compute-{number}'}})
            for number in range(8)))
        assert collections.Counter(
            answer.status_code for answer in seen) == {201: 4, 409: 4}, [
                answer.text for answer in seen]
        assert fleet.held().items() >= {
            (each['instance_uuid'], each['node_uuid'])
            for each in (answer.json() for answer in seen)
            if 'node_uuid' in each}
        assert fleet.groups()[group].total() == 4


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

    def persist(self, statement, *args):
        """Run it again and again where others are in the way."""
        for _ in range(100):
            with contextlib.suppress(sa.exc.OperationalError):
                return self.execute(statement, *args)
            time.sleep(0.05)
        return self.execute(statement, *args)

    def fill(self, size, racks=1, **columns):
        """Begin anew with nodes that are free, as many in each rack."""
        for table in 'reservations', 'reservations_groups', 'nodes':
            self.execute(f'DELETE FROM {table}')
        if not sa.inspect(self.engine).has_table('audit'):
            for statement in _AUDIT[self.engine.dialect.name]:
                self.execute(statement)
        self.execute('DELETE FROM audit')
        nodes = [{'uuid': str(uuid.uuid4()), 'resource_class': 'gold',
                  'provision_state': 'available', 'maintenance': False,
                  'power_state': 'power off', 'conductor_group': '',
                  'properties': json.dumps({
                      'memory_mb': 1024,
                      'capabilities': f'rack:r{number % racks}'}),
                  **columns}
                 for number in range(size)]
        self.execute(
            f'INSERT INTO nodes ({", ".join(nodes[0])}) VALUES '
            f'({", ".join(f":{name}" for name in nodes[0])})', nodes)

    def held(self, torn_down=set):
        """Node by instance; the nodes and our table say the same.

        :param torn_down: returns those instances whose rows may be left.
        """
        # One statement, so that both are of one moment.
        rows = self.execute(
            'SELECT 0 AS ours, id, uuid, instance_uuid FROM nodes '
            'WHERE instance_uuid IS NOT NULL UNION ALL '
            'SELECT 1, node_id, node_uuid, instance_uuid FROM reservations')
        nodes, ours = ({tuple(row[1:]) for row in rows if row.ours == which}
                       for which in (0, 1))
        assert nodes <= ours
        assert {row[2] for row in ours - nodes} <= torn_down()
        return {instance: node for _, node, instance in nodes}

    def groups(self):
        """Domains of the live members of each group, by its UUID.

        No policy is broken, and no member has no group. Whose lease ends
        this second may be a member or not.
        """
        now = {'mysql': 'TIMESTAMPADD(SECOND, 1, UTC_TIMESTAMP())',
               'sqlite': "strftime('%Y-%m-%d %H:%M:%S.000000', 'now', "
                         "'1 seconds')"}[self.engine.dialect.name]
        rows = self.execute(
            'SELECT reservations_groups.uuid, policy, domain, properties '
            'FROM reservations JOIN nodes ON nodes.id = node_id '
            'AND nodes.instance_uuid = reservations.instance_uuid '
            'LEFT JOIN reservations_groups '
            'ON reservations_groups.id = group_id '
            'WHERE group_id IS NOT NULL '
            f'AND (expires_at IS NULL OR expires_at > {now})')
        policies = {row.uuid: row.policy for row in rows}
        assert None not in policies
        domains = collections.defaultdict(collections.Counter)
        for row in rows:
            domains[row.uuid][row.domain] += 1
            assert row.domain == (None if row.policy is None else json.loads(
                row.properties)['capabilities'].removeprefix('rack:')), row
        for group, found in domains.items():
            assert (policies[group] != 'spread'
                    or set(found.values()) == {1}), (group, found)
            assert policies[group] != 'pack' or len(found) == 1, (group,
                                                                  found)
        return domains

    def check_groups(self, crowd):
        """The same of a crowd of GroupClient, at work or at its end.

        Of the groups that were refused nothing is left.
        """
        refused = {group for client in crowd.clients
                   for group in client.refused}
        assert not refused & {group for group, in self.execute(
            'SELECT uuid FROM reservations_groups')}
        self.groups()
        self.held(lambda: {hold.instance_uuid for hold in crowd.holds
                           if hold.torn_down})

    def check(self, holds):
        """Hold all that was told to clients against what there is.

        :param holds: all that was ever asked for.
        """
        known = {hold.instance_uuid: hold for hold in holds}
        held = self.held(lambda: {name for name, hold in known.items()
                                  if hold.torn_down})
        now = time.time()
        events = self.execute('SELECT * FROM audit ORDER BY id')
        taken, left = collections.defaultdict(list), collections.Counter()
        for event in events:
            # Nobody takes what somebody has, unless it is claimed.
            assert (None in (event.held_before, event.held)
                    or 'claim' in known[event.held].body), event
            if event.held is not None:
                taken[event.held].append(event.node_uuid)
            if event.held_before is not None:
                left[event.held_before] += 1
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
