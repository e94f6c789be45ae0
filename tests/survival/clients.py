# SPDX-License-Identifier: Apache-2.0
"""Clients that record all responses, and compare them with the database.

A request whose response is lost, or is a 503, is repeated unchanged until
there is a response. So a client knows at the end which nodes it holds.
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

from tests.common import contract
from tests.common import recording
from tests.common import servers
from tests.survival import limited

OURS = '/v1/reservations'
POOLS, NOTICES = f'{OURS}/pools', f'{OURS}/notices'
#: Without authentication the token is ignored.
HEADERS = {'X-OpenStack-Ironic-API-Version': 'latest',
           'X-Auth-Token': limited.TOKEN}
#: Maximum seconds until the last response after all faults are repaired.
PATIENCE = 90


@dataclasses.dataclass
class Hold:
    """A node that a client holds, by the responses; times are time.time()."""

    instance_uuid: str
    body: dict
    node: str | None = None
    confirmed_at: float | None = None
    ends: float = float('inf')
    #: Number of lost responses to its POST and DELETE.
    losses: int = 0
    is_released: bool = False
    #: Removed like a conductor does, which leaves the row.
    is_torn_down: bool = False
    #: UUID of the client's own group, and number of its segment.
    group: str | None = None
    segment: int | None = None

    @property
    def has_lease(self):
        return self.body['expires_in'] is not None

    def is_sure(self, margin=0.5):
        """Return whether it does not expire within some seconds."""
        return self.node is not None and time.time() + margin < self.ends


class Client(threading.Thread):
    """Holds, releases, shows and lists reservations until it is stopped."""

    #: Maximum number of nodes.
    HANDS = 4

    #: Actions with their weights: of any kind, and on one of its holds.
    ACTIONS = {'hold': 8, 'list': 2, 'list_notices': 2, 'count': 1}
    WITH_HOLD = {'release': 6, 'look': 2, 'repeat': 2}

    #: Actions that hold further nodes.
    GROWING = 'hold',

    #: Status of the response if no node is left.
    REFUSED = 422

    def __init__(self, apis, recorder, spec, *, may_fail=False,
                 leases=(None, None, 2)):
        """
        :param apis: APIs on the same fleet; one is chosen at random.
        :param spec: the request spec.
        :param may_fail: whether there may be no node left.
        :param leases: seconds to choose from; None for no expiry.
        """
        super().__init__()
        self.holds, self.seen = [], collections.Counter()
        self.error = None
        #: Seconds until the slowest response.
        self.slowest = 0
        self._apis, self._recorder, self._spec = apis, recorder, spec
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
        """Return holds to request, which differ only in their UUIDs."""
        body = {**self._spec, 'expires_in': random.choice(self._leases),
                **more}
        holds = [Hold(str(uuid.uuid4()), body) for _ in range(number)]
        self.holds += holds
        return holds

    def _post(self, hold, refusals=frozenset()):
        """Send the request until it is known whether a node is held.

        :param refusals: further statuses that mean that no node is held.
        """
        body = {**hold.body, 'instance_uuid': hold.instance_uuid}
        refusals = {*[self.REFUSED] * self._may_fail, *refusals}
        response, losses = self._ask('POST', OURS, {200, 201, *refusals},
                                     json=body)
        hold.losses += losses
        if response.status_code in refusals:
            hold.ends = 0
            return
        self._confirm(hold, response.json())

    @staticmethod
    def _confirm(hold, reservation):
        if hold.node is not None and not hold.has_lease:
            assert reservation['node_uuid'] == hold.node, (hold, reservation)
        assert reservation['instance_uuid'] == hold.instance_uuid
        hold.node = reservation['node_uuid']
        hold.confirmed_at = hold.confirmed_at or time.time()
        if reservation['expires_at']:
            hold.ends = datetime.datetime.fromisoformat(
                reservation['expires_at']).timestamp()

    def repeat(self, hold):
        # A hold that has expired would get another node.
        if not hold.has_lease:
            self._post(hold)

    def release(self, hold):
        # From here on another client can hold the node.
        hold.ends = min(hold.ends, time.time())
        response, losses = self._ask(
            'DELETE', f'{OURS}/{hold.instance_uuid}', {204, 404})
        assert response.status_code == 204 or losses or hold.has_lease, (
            hold, losses)
        hold.losses += losses
        hold.is_released = True

    def look(self, hold):
        if not hold.is_sure():
            return
        response, _ = self._ask('GET', f'{OURS}/{hold.instance_uuid}',
                                {200, 404})
        if response.status_code == 404:
            assert not hold.is_sure(0), hold
            return
        assert response.json()['node_uuid'] == hold.node, (hold, response.text)

    def list(self):
        sure = {hold.instance_uuid: hold.node for hold in self.mine}
        response, _ = self._ask('GET', f'{OURS}?limit=1000', {200})
        nodes = {row['instance_uuid']: row['node_uuid']
                 for row in response.json()['reservations']}
        assert len(set(nodes.values())) == len(nodes), nodes
        for hold in self.mine:
            if hold.is_sure(0) and hold.instance_uuid in sure:
                assert nodes.get(hold.instance_uuid) == hold.node, hold
        return nodes

    def list_notices(self):
        self._ask('GET', f'{NOTICES}?state=open&limit=1000', {200})

    def count(self):
        response, _ = self._ask('GET', f'{OURS}/capacity', {200},
                                headers={'Cache-Control': 'no-cache'})
        free = total = 0
        for profile in response.json()['capacity']:
            free += profile['free']
            total += profile['total']
        sure = [hold for hold in self.mine if hold.is_sure(0)]
        assert free <= total - len(sure), (free, total, sure)

    def _claim(self, claimable, refusals=frozenset(), **more):
        """Claim a hold, or one of the holds of a group."""
        [claim] = self._new(1, expires_in=None, host='compute-1', claim=(
            claimable[0].group if len(claimable) > 1
            else claimable[0].instance_uuid), **more)
        now = time.time()
        self._post(claim, refusals)
        for source in claimable if claim.node else ():
            if source.node == claim.node:
                source.ends, source.is_released = now, True
                claim.group, claim.segment = source.group, source.segment

    def _ask(self, method, path, statuses, headers=None, **kwargs):
        """Repeat a request until the response has one of some statuses.

        :returns: the response, and the number of lost responses.
        """
        losses, end = 0, None
        # Writes can be refused because of a concurrent change, reads cannot.
        refusals = {503} if method == 'GET' else {409, 503}
        while True:
            url = random.choice(self._apis).url
            try:
                # A new connection each time, so that the worker is random.
                response = self._recorder.request(
                    method, url + path, timeout=60,
                    headers={**HEADERS, **(headers or {})}, **kwargs)
            except requests.ConnectionError:
                self.seen['lost'] += 1
                losses += 1
            else:
                self.seen[response.status_code] += 1
                self.slowest = max(self.slowest,
                                   response.elapsed.total_seconds())
                contract.check(response, (*statuses, *refusals))
                if response.status_code in statuses:
                    return response, losses
                if response.status_code == 503:
                    assert int(response.headers['Retry-After']) > 0
                    losses += 1
            time.sleep(random.uniform(0, 0.2))
            if self._stop_asked.is_set():
                end = end or time.monotonic() + PATIENCE
                assert time.monotonic() < end, f'no response from {url}'


#: The domains of groups.
BY, POD = 'capability:rack', 'capability:pod'


class GroupClient(Client):
    """Also holds groups, and members of groups that clients share.

    :param fleet: Fleet, whose nodes it tears down like a conductor.
    :param policies: policies by the UUIDs of the groups that clients share.
    """

    HANDS = 8
    ACTIONS = Client.ACTIONS | {'create': 5, 'enter': 6, 'end': 2,
                                'mend': 6}
    WITH_HOLD = Client.WITH_HOLD | {'claim': 2, 'tear_down': 2}
    GROWING = 'hold', 'create', 'enter', 'mend'

    #: Members of a group that is held at once, and of a segment.
    SIZE, SEGMENT = 4, 2

    def __init__(self, *args, fleet, policies, **kwargs):
        super().__init__(*args, may_fail=True, **kwargs)
        self.refusals = []
        self._fleet, self._policies = fleet, policies

    def create(self):
        """Hold all members of a group at once, or none."""
        group, policy = str(uuid.uuid4()), random.choice(
            (None, 'spread', 'pack', 'soft-spread', 'soft-pack'))
        members = {hold.instance_uuid: hold for hold in self._new(self.SIZE)}
        body = {'uuid': group, 'members': [*members], 'request': self._spec,
                'expires_in': [*members.values()][0].body['expires_in']}
        has_segments = random.random() < 0.4
        if has_segments:
            body['levels'] = [{'by': POD, 'policy': policy or 'pack'}, {
                'by': BY, 'policy': 'pack', 'segment': self.SEGMENT}]
        elif policy:
            body |= {'policy': policy, 'by': BY}
        response, losses = self._ask('POST', f'{OURS}/groups', {
            200, 201, self.REFUSED}, json=body)
        if response.status_code == self.REFUSED:
            self.check_refusal(response.json())
            self.refusals.append(group)
        else:
            rows = {row['instance_uuid']: row
                    for row in response.json()['reservations']}
            assert set(rows) == set(members), (members, rows)
        for hold in members.values():
            hold.losses, hold.group = losses, group
            if response.status_code == self.REFUSED:
                hold.ends = 0
            else:
                self._confirm(hold, rows[hold.instance_uuid])
                if has_segments:
                    hold.segment = rows[hold.instance_uuid]['group']['segment']

    def mend(self):
        """Replace a released member of a segment."""
        members = collections.Counter(
            (hold.group, hold.segment) for hold in self.holds
            if hold.node and not hold.is_released)
        places = [(group, segment) for (group, segment), number
                  in members.items() for segment in (
                      () if segment is None else (segment, 1 - segment))
                  if members[group, segment] < self.SEGMENT]
        if not places:
            return
        group, segment = random.choice(places)
        [hold] = self._new(1, group={'uuid': group, 'segment': segment})
        hold.group, hold.segment = group, segment
        # The group no longer exists if its last member has expired.
        self._post(hold, {404})
        if hold.node is None:
            hold.is_released = True

    def check_refusal(self, body):
        assert body['members']['available'] < self.SIZE

    def enter(self):
        """Join a group that other clients join at the same time."""
        group, policy = random.choice([*self._policies.items()])
        self.hold(group={'uuid': group, 'policy': policy, 'by': BY})

    def end(self):
        """Release the remaining members of a group."""
        groups = [hold.group for hold in self.mine if hold.group]
        if not groups:
            return
        group = random.choice(groups)
        members = [hold for hold in self.mine if hold.group == group]
        now = time.time()
        for hold in members:
            hold.ends = min(hold.ends, now)
        response, losses = self._ask('DELETE', f'{OURS}/groups/{group}',
                                     {204, 404})
        assert response.status_code == 204 or losses or all(
            hold.has_lease for hold in members), members
        for hold in members:
            hold.is_released = True

    def claim(self, hold):
        """Claim a hold, or any member of its group."""
        if hold.has_lease or 'host' in hold.body:
            return
        claimable = [hold]
        if hold.group and random.random() < 0.5:
            claimable = [member for member in self.mine
                         if member.group == hold.group
                         and 'host' not in member.body]
        self._claim(claimable)

    def tear_down(self, hold):
        """Tear a node down like a conductor, which leaves the row."""
        if hold.has_lease:
            return
        hold.ends = time.time()
        hold.is_released = hold.is_torn_down = True
        with self._recorder.release(hold.instance_uuid):
            for values in (
                    "provision_state = 'active', reservation = 'c'",
                    "provision_state = 'deleting', instance_uuid = NULL",
                    "provision_state = 'available', reservation = NULL"):
                self._fleet.persist(
                    f'UPDATE nodes SET {values} WHERE uuid = :n',
                    {'n': hold.node})


class PoolClient(Client):
    """Also changes pools of its project, cordons nodes, and claims holds.

    :param projects: iterator, whose next item is the project.
    """

    ACTIONS = Client.ACTIONS | {
        'create': 4, 'replace': 4, 'extend': 2, 'end': 3, 'show_pool': 2,
        'cordon': 4, 'uncordon': 4}
    WITH_HOLD = Client.WITH_HOLD | {'claim': 2}

    def __init__(self, *args, projects, **kwargs):
        super().__init__(*args, may_fail=True, leases=[None], **kwargs)
        #: Nodes and, also of pools that do not exist, sizes by UUID.
        self.pools, self.sizes = {}, {}
        self.refusals = []
        #: UUIDs of notices that are open.
        self._cordons = []
        #: Statuses of changes of pools.
        self.results = collections.Counter()
        self._project = next(projects)

    def hold(self):
        super().hold(project_id=self._project)

    def claim(self, hold):
        if 'host' not in hold.body:
            # A cordoned node cannot be claimed.
            self._claim([hold], {409}, project_id=self._project)

    def cordon(self):
        nodes = sorted({hold.node for hold in self.holds if hold.node})
        if nodes:
            self._cordons.append(str(uuid.uuid4()))
            self._ask('POST', NOTICES, {200, 201}, json={
                'uuid': self._cordons[-1], 'kind': 'maintenance',
                'nodes': random.sample(nodes, min(2, len(nodes)))})
            # A hold of what is still free would now break the cordon.
            self.list()

    def uncordon(self):
        if self._cordons:
            # A repeat is refused if the notice is closed.
            response, losses = self._ask(
                'PATCH', f'{NOTICES}/{self._cordons.pop(0)}', {200, 409},
                json=[{'op': 'add', 'path': '/ends_at', 'value': 'now'}])
            assert response.status_code == 200 or losses, response.text

    def show_pool(self):
        """Show a pool of any project, which its client may delete."""
        response, _ = self._ask('GET', POOLS, {200})
        pools = response.json()['pools']
        for pool in random.sample(pools, min(1, len(pools))):
            self._ask('GET', f'{POOLS}/{pool["uuid"]}', {200, 404})

    def create(self):
        """Create a pool of all nodes that it requests, or none."""
        pool = str(uuid.uuid4())
        self.sizes[pool] = random.randint(2, 24)
        response, _ = self._change('create', 'POST', '', {200, 201, 422}, {
            'uuid': pool, 'project_id': self._project, 'request': self._spec,
            'members': self.sizes[pool]})
        if response.status_code == 422:
            self.refusals.append(pool)
        else:
            self.pools[pool] = read_nodes(response)
            self.list()

    def replace(self):
        for pool, nodes in self._choose():
            node = random.choice([*nodes])
            response, losses = self._change(
                'replace', 'POST', f'/{pool}/nodes', {200, 404, 422},
                {'replaces': node})
            if response.status_code == 404:
                assert losses, response.text
                response, _ = self._ask('GET', f'{POOLS}/{pool}', {200})
            if response.status_code == 200:
                self.pools[pool] = read_nodes(response)
                assert nodes - self.pools[pool] == {node}, response.text

    def extend(self):
        for pool, nodes in self._choose():
            response, _ = self._change('extend', 'PATCH', f'/{pool}', {200}, [
                random.choice(({'op': 'remove'}, {
                    'op': 'add', 'value': '2999-01-01T00:00:00Z'}))
                | {'path': '/expires_at'}])
            assert read_nodes(response) == nodes

    def end(self):
        for pool, _ in self._choose():
            response, losses = self._change(
                'end', 'DELETE', f'/{pool}', {204, 404})
            assert response.status_code == 204 or losses, response.text
            del self.pools[pool]

    def _choose(self):
        """Return one of its pools with its nodes, or none."""
        return random.sample([*self.pools.items()], min(1, len(self.pools)))

    def _change(self, action, method, path, statuses, body=None):
        response, losses = self._ask(method, POOLS + path, statuses, json=body)
        self.results[action, response.status_code] += 1
        return response, losses


def read_nodes(response):
    """Return the nodes of the pool in a response."""
    return {node['uuid'] for node in response.json()['nodes']}


class Crowd:
    """Clients that are active while the body of the ``with`` runs.

    At its end all of them have stopped and know which nodes they hold.
    """

    def __init__(self, apis, spec, size=8, kind=Client, **kwargs):
        self.apis, self.recorder = apis, recording.Recorder()
        self.clients = [kind(apis, self.recorder, spec, **kwargs)
                        for _ in range(size)]

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
        """Wait while they work, call ``act`` repeatedly, and check errors."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check()
            act()
            time.sleep(0.2)

    def work_during(self, function):
        """Work while a function runs, and until ten more nodes are held."""
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


# Calls of the tests

#: Statuses of responses of an API with faults.
STATUSES = 200, 201, 204, 403, 404, 409, 412, 422, 503


def call(method, api, path='', body=None, timeout=60):
    response = requests.request(method, f'{api.url}{OURS}{path}', json=body,
                                headers=HEADERS, timeout=timeout)
    contract.check(response, STATUSES)
    return response


def healthy(api):
    response = requests.get(f'{api.url}/healthcheck', timeout=15)
    assert response.status_code in (200, 503)
    return response.status_code == 200


# Concurrent requests for groups

def make_policies():
    """Return the groups that a crowd shares: policies by their UUIDs."""
    return {str(uuid.uuid4()): policy for policy in
            ('spread', 'pack', 'soft-spread', 'soft-pack')}


def work_with_groups(crowd, fleet, seconds, act=lambda: None):
    """Run a crowd of GroupClients, and check the result."""
    def look():
        fleet.check_groups(crowd)
        act()

    with crowd:
        crowd.work(seconds, look)
        # Wait until there were too few nodes, also on a slow machine.
        servers.wait(lambda: crowd.check() or all(
            crowd.seen[status] for status in (201, 204, 422)), 'all statuses')
    fleet.check(crowd)
    fleet.check_groups(crowd)


#: Lists of all reservations and notices.
LISTS = f'{OURS}?limit=1000', f'{NOTICES}?state=open&limit=1000'


def at_once(urls, *calls, request=requests.request):
    """Make calls at the same moment, and return the responses.

    :param calls: arguments of requests.request, with a path.
    :param request: what sends them.
    """
    barrier = threading.Barrier(len(calls))

    def call(number, method, path, **kwargs):
        barrier.wait(60)
        response = request(
            method, urls[number % len(urls)] + path, headers=HEADERS,
            timeout=60, **kwargs)
        contract.check(response, (200, 201, 204, 404, 409, 422, 503))
        return response

    with concurrent.futures.ThreadPoolExecutor(len(calls)) as executor:
        return [future.result() for future in [
            executor.submit(call, number, method, path, **kwargs)
            for number, (method, path, kwargs) in enumerate(calls)]]


def join_one_by_one(urls, fleet, spec, seconds, racks=6, rack=5):
    """Join groups concurrently: the policy limits the members."""
    end, turn = time.monotonic() + seconds, 0
    while turn < 2 or time.monotonic() < end:
        policy, room = (('spread', racks), ('pack', rack))[turn % 2]
        turn += 1
        group = {'uuid': str(uuid.uuid4()), 'policy': policy, 'by': BY}
        seen = at_once(urls, *[('POST', OURS, {
            'json': {**spec, 'group': group}})] * 8)
        assert collections.Counter(
            response.status_code for response in seen) == {
                201: room, 422: 8 - room}, [response.text for response in seen]
        [domains] = fleet.groups().values()
        assert len(fleet.holds()) == domains.total() == room
        [response] = at_once(urls, ('DELETE', f'{OURS}/groups/{group["uuid"]}',
                                    {}))
        assert response.status_code == 204
        assert not fleet.holds()
        assert not fleet.execute('SELECT uuid FROM reservations_groups')


def claim_at_once(urls, fleet, spec):
    """Claim members for more instances than there are members."""
    for _ in range(3):
        group = str(uuid.uuid4())
        [response] = at_once(urls, ('POST', f'{OURS}/groups', {'json': {
            'uuid': group, 'members': 4, 'policy': 'pack', 'by': BY,
            'request': spec}}))
        assert response.status_code == 201
        seen = at_once(urls, *(('POST', OURS, {'json': {
            **spec, 'claim': group, 'host': f'compute-{number}'}})
            for number in range(8)))
        assert collections.Counter(
            response.status_code for response in seen) == {201: 4, 409: 4}, [
                response.text for response in seen]
        assert fleet.holds().items() >= {
            (body['instance_uuid'], body['node_uuid'])
            for body in (response.json() for response in seen)
            if 'node_uuid' in body}
        assert fleet.groups()[group].total() == 4


def cordon_racks(urls, fleet, spec, seconds):
    """Cordon a rack while clients hold nodes of it, for themselves and groups.

    Others claim the members of a group that spreads over all racks. A round
    takes less than a second, so most changes of a node are in the same second.
    No instance gets a node of the rack after the response to the cordon.

    :returns: numbers of nodes that were taken before a cordon, and kept.
    """
    results, end = collections.Counter(), time.monotonic() + seconds
    while not (results['taken'] and results['kept']) or time.monotonic() < end:
        recorder = recording.Recorder()
        fleet.fill(36, racks=6)
        rack = f'r{random.randrange(6)}'
        group = str(uuid.uuid4())
        [response] = at_once(urls, ('POST', f'{OURS}/groups', {'json': {
            'uuid': group, 'members': 6, 'policy': 'spread', 'by': BY,
            'request': spec}}), request=recorder.request)
        assert response.status_code == 201, response.text
        before = fleet.takings(rack)
        requests_ = [
            *(('POST', OURS, {'json': spec}) for _ in range(24)),
            *(('POST', f'{OURS}/groups', {'json': {
                'members': 3, 'policy': 'soft-spread', 'by': BY,
                'uuid': str(uuid.uuid4()), 'request': spec}})
              for _ in range(4)),
            *(('POST', OURS, {'json': {
                **spec, 'claim': group, 'host': f'compute-{number}'}})
              for number in range(6)),
            *(('GET', path, {}) for path in LISTS)]
        random.shuffle(requests_)

        def cordon(rack=rack, recorder=recorder):
            """Return the takings of the rack after the response."""
            time.sleep(random.uniform(0, 0.3))
            [response] = at_once(
                random.sample(urls, 1), ('POST', NOTICES, {'json': {
                    'uuid': str(uuid.uuid4()), 'kind': 'maintenance',
                    'by': {BY: rack}}}), request=recorder.request)
            assert response.status_code == 201, response.text
            at_once(urls, ('GET', LISTS[0], {}), request=recorder.request)
            return fleet.takings(rack)

        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            cordoning = executor.submit(cordon)
            at_once(urls, *requests_, request=recorder.request)
            takings = cordoning.result()
        at_once(urls, *(('GET', path, {}) for path in LISTS),
                request=recorder.request)
        fleet.check_history(recorder)
        assert fleet.takings(rack) == takings
        taken = len(takings - before)
        results['taken'] += taken
        results['kept'] += 6 - taken
    return results


def hold_groups_at_once(urls, fleet, spec):
    """Hold groups for 16 clients, which need all nodes of a fleet.

    :param fleet: 20 racks of 8 nodes, in two pods.
    """
    levels = [{'by': POD, 'policy': 'pack'},
              {'by': BY, 'policy': 'pack', 'segment': 4}]
    for body, size in (({'policy': 'pack', 'by': BY}, 8),
                       ({'levels': levels}, 8)):
        groups = [str(uuid.uuid4()) for _ in range(24)]
        responses = []
        for part in groups[:16], groups[16:]:
            responses += at_once(urls, *(('POST', f'{OURS}/groups', {'json': {
                **body, 'uuid': group, 'members': size, 'request': spec}})
                for group in part))
        assert collections.Counter(
            response.status_code for response in responses) == {
                201: 20, 422: 4}, [response.text for response in responses]
        members = fleet.groups()
        assert len(fleet.holds()) == 20 * size == sum(
            domains.total() for domains in members.values())
        for group in members:
            [response] = at_once(
                urls, ('DELETE', f'{OURS}/groups/{group}', {}))
            assert response.status_code == 204


# Pools of one rack

def work_with_pools(apis, fleet, spec, seconds, act=lambda: None):
    """Let 16 clients of three projects hold nodes, and change pools.

    :returns: the crowd.
    """
    fleet.fill(72)
    crowd = Crowd(apis, spec, 16, PoolClient,
                  projects=itertools.cycle(('east', 'west', 'north')))

    def look():
        fleet.check_pools(crowd)
        act()

    def count(action, status):
        return sum(client.results[action, status] for client in crowd.clients)

    with crowd:
        crowd.work(seconds, look)
        servers.wait(lambda: crowd.check() or all(
            count(*result) for result in (
                ('create', 201), ('create', 422), ('replace', 200),
                ('extend', 200), ('end', 204))), 'all results')
    fleet.check(crowd)
    fleet.check_pools(crowd)
    assert fleet.pools() == {pool: nodes for client in crowd.clients
                             for pool, nodes in client.pools.items()}
    return crowd


def pool_against_holds(urls, fleet, spec, seconds, size=72):
    """Create a pool of all nodes while others hold them, one by one.

    The holds begin later after each pool that was refused, and earlier after
    each that was created, so that they meet.
    """
    results, delay = collections.Counter(), 0.1
    end = time.monotonic() + seconds
    while not (results[201] and results[422]) or time.monotonic() < end:
        fleet.fill(size)
        recorder = recording.Recorder()
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            creation = executor.submit(at_once, urls, ('POST', POOLS, {
                'json': {'project_id': 'east', 'members': size,
                         'request': spec}}), request=recorder.request)
            time.sleep(delay)
            holds = at_once(urls, *(('POST', OURS, {'json': {
                **spec, 'project_id': 'west'}}) for _ in range(size)),
                ('GET', LISTS[0], {}), request=recorder.request)
            [pool] = creation.result()
        fleet.check_history(recorder)
        results[pool.status_code] += 1
        delay *= 0.7 if pool.status_code == 201 else 1.4
        assert [len(nodes) for nodes in fleet.pools().values()] == (
            [size] if pool.status_code == 201 else []), pool.text
        number = [hold.status_code for hold in holds].count(201)
        assert len(fleet.holds()) == number
        assert number == 0 or pool.status_code != 201


# The database

#: Records each change of the instance of a node, in its transaction.
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
    """Nodes in a database, with their present and former instances.

    :param url: URL of a database with Ironic's schema and our table.
    """

    def __init__(self, url):
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)

    def execute(self, statement, *args):
        with self.engine.begin() as connection:
            result = connection.execute(sa.text(statement), *args)
            return result.all() if result.returns_rows else None

    def persist(self, statement, *args):
        """Run a statement, and retry it after conflicts."""
        for _ in range(100):
            with contextlib.suppress(sa.exc.OperationalError):
                return self.execute(statement, *args)
            time.sleep(0.05)
        return self.execute(statement, *args)

    def fill(self, size, racks=1, **columns):
        """Replace all nodes by free ones, evenly distributed over racks."""
        for table in ('reservations', 'reservations_groups',
                      'reservations_history', 'reservations_notices', 'nodes',
                      'reservations_pool_nodes', 'reservations_pools'):
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
                      'capabilities': f'rack:r{number % racks},'
                                      f'pod:p{number % racks % 2}'}),
                  **columns}
                 for number in range(size)]
        self.execute(
            f'INSERT INTO nodes ({", ".join(nodes[0])}) VALUES '
            f'({", ".join(f":{name}" for name in nodes[0])})', nodes)

    def holds(self, find_stale=set):
        """Return nodes by instance, and check that both tables agree.

        :param find_stale: returns the instances whose rows may be stale.
        """
        # One statement, so that both are of the same time.
        rows = self.execute(
            'SELECT 0 AS ours, id, uuid, instance_uuid FROM nodes '
            'WHERE instance_uuid IS NOT NULL UNION ALL '
            'SELECT 1, node_id, node_uuid, instance_uuid FROM reservations')
        nodes, ours = ({tuple(row[1:]) for row in rows if row.ours == which}
                       for which in (0, 1))
        assert nodes <= ours
        assert {row[2] for row in ours - nodes} <= find_stale()
        return {instance: node for _, node, instance in nodes}

    def takings(self, rack):
        """Return the changes in which nodes of a rack got an instance."""
        return {tuple(row) for row in self.execute(
            'SELECT id, node_uuid, held FROM audit '
            'WHERE held IS NOT NULL AND properties LIKE :rack',
            {'rack': f'%rack:{rack},%'})}

    def groups(self):
        """Return the domains of live members by the UUID of the group.

        Checks that no policy is broken, and that each member has a group. A
        member whose lease expires within this second may be missing.
        """
        now = {'mysql': 'TIMESTAMPADD(SECOND, 1, UTC_TIMESTAMP())',
               'sqlite': "strftime('%Y-%m-%d %H:%M:%S.000000', 'now', "
                         "'1 seconds')"}[self.engine.dialect.name]
        rows = self.execute(
            'SELECT reservations_groups.uuid, policy, domain, properties, '
            'segment, segment_levels '
            'FROM reservations JOIN nodes ON nodes.id = node_id '
            'AND nodes.instance_uuid = reservations.instance_uuid '
            'LEFT JOIN reservations_groups '
            'ON reservations_groups.id = group_id '
            'WHERE group_id IS NOT NULL '
            f'AND (expires_at IS NULL OR expires_at > {now})')
        policies = {row.uuid: row.policy for row in rows}
        assert None not in policies
        domains = collections.defaultdict(collections.Counter)
        segments = collections.defaultdict(list)
        for row in rows:
            domains[row.uuid][row.domain] += 1
            rack, pod = (item.partition(':')[2] for item in json.loads(
                row.properties)['capabilities'].split(','))
            if row.segment_levels is None:
                assert row.domain == (row.policy and rack), row
            else:
                assert json.loads(row.domain) == [pod, rack], row
                segments[row.uuid].append(row)
        for group in segments.values():
            self._check_segments(group)
        for group, members in domains.items():
            assert (policies[group] != 'spread'
                    or set(members.values()) == {1}), (group, members)
            assert policies[group] != 'pack' or len(members) == 1, (
                group, members)
        return domains

    @staticmethod
    def _check_segments(members):
        """Check the members of a group with segments."""
        outer, inner = json.loads(members[0].segment_levels)
        by_segment = collections.defaultdict(list)
        for member in members:
            by_segment[member.segment].append(member.domain)
        for number, domains in by_segment.items():
            assert number is not None and len(domains) <= inner['segment']
            assert len(set(domains)) == 1, members
        pods = [json.loads(domains[0])[0] for domains in by_segment.values()]
        assert outer['policy'] != 'pack' or len(set(pods)) == 1, members
        assert outer['policy'] != 'spread' or (
            len(set(pods)) == len(pods)), members

    def pools(self):
        """Return the nodes of pools by UUID; None for rows without a pool."""
        pools = collections.defaultdict(set)
        for pool, node in self.execute(
                'SELECT uuid, node_uuid FROM reservations_pool_nodes '
                'LEFT JOIN reservations_pools '
                'ON reservations_pools.id = pool_id'):
            pools[pool].add(node)
        return pools

    def check_pools(self, crowd):
        """Check the pools of a crowd of PoolClients, at any time.

        Each has all its nodes, which carry no instance of another project.
        """
        refusals = {pool for client in crowd.clients
                    for pool in [*client.refusals]}
        rows = self.execute(
            'SELECT pools.uuid, COUNT(members.node_id) AS number, SUM(CASE '
            'WHEN reservations.project_id <> pools.project_id THEN 1 ELSE 0 '
            'END) AS others FROM reservations_pools AS pools '
            'LEFT JOIN reservations_pool_nodes AS members '
            'ON members.pool_id = pools.id '
            'LEFT JOIN nodes ON nodes.id = members.node_id '
            'LEFT JOIN reservations ON reservations.node_id = nodes.id '
            'AND reservations.instance_uuid = nodes.instance_uuid '
            'GROUP BY pools.uuid')
        sizes = {pool: size for client in crowd.clients
                 for pool, size in {**client.sizes}.items()}
        for row in rows:
            assert row.uuid not in refusals, row
            assert (row.number, row.others) == (sizes[row.uuid], 0), row

    def count_deadlocks(self):
        """Return how many deadlocks the server has found."""
        if self.engine.dialect.name == 'sqlite':
            return 0
        [(number,)] = self.execute(
            'SELECT count FROM information_schema.innodb_metrics '
            "WHERE name = 'lock_deadlocks'")
        return number

    def check_groups(self, crowd):
        """Check the groups of a crowd of GroupClients, at any time.

        A refused group leaves no trace.
        """
        refusals = {group for client in crowd.clients
                    for group in client.refusals}
        assert not refusals & {group for group, in self.execute(
            'SELECT uuid FROM reservations_groups')}
        self.groups()
        self.holds(lambda: {hold.instance_uuid for hold in crowd.holds
                            if hold.is_torn_down})

    def check(self, crowd):
        """Compare all that a crowd knows with the database; return its nodes.
        """
        nodes = self.check_holds(crowd.holds)
        self.check_history(crowd.recorder, crowd.apis)
        return nodes

    def check_history(self, recorder, apis=()):
        """Check the calls on the nodes, and the notifications of APIs."""
        nodes = [node for node, in self.execute('SELECT uuid FROM nodes')]
        recorder.check(self.execute, nodes, [api.log for api in apis])

    def check_holds(self, holds):
        """Compare all holds of clients with the database.

        :param holds: all holds that were ever requested.
        """
        by_name = {hold.instance_uuid: hold for hold in holds}
        nodes = self.holds(lambda: {name for name, hold in by_name.items()
                                    if hold.is_torn_down})
        now = time.time()
        events = self.execute('SELECT * FROM audit ORDER BY id')
        history, frees = collections.defaultdict(list), collections.Counter()
        for event in events:
            # A node is taken from its holder only by a claim.
            assert (None in (event.held_before, event.held)
                    or 'claim' in by_name[event.held].body), event
            if event.held is not None:
                history[event.held].append(event.node_uuid)
            if event.held_before is not None:
                frees[event.held_before] += 1
        assert set(history) <= set(by_name)
        for hold in holds:
            name = hold.instance_uuid
            if hold.node is None:
                # A refused hold leaves no trace.
                assert hold.has_lease or name not in history, hold
            elif not hold.has_lease:
                # One hold, regardless of the number of requests.
                assert history[name] == [hold.node], (hold, history[name])
                assert frees[name] == hold.is_released, (hold, frees[name])
                assert nodes.get(name) == (
                    None if hold.is_released else hold.node), hold
            elif hold.ends > now and not hold.is_released:
                assert nodes.get(name) == hold.node, hold
        self._check_apart(holds)
        return nodes

    @staticmethod
    def _check_apart(holds):
        """Check that no node had two holders at the same time."""
        by_node = collections.defaultdict(list)
        for hold in holds:
            if hold.node is not None:
                by_node[hold.node].append(hold)
        for sequence in by_node.values():
            sequence.sort(key=lambda hold: hold.confirmed_at)
            for before, after in itertools.pairwise(sequence):
                assert before.ends <= after.confirmed_at, (before, after)
