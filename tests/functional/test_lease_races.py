# SPDX-License-Identifier: Apache-2.0
"""Races of expiry with renewal, release, deployment and locks."""

import concurrent.futures
import datetime
import random
import threading
import time
import uuid

import pytest

from tests.common import servers
from tests.common import service

OURS = service.OURS

INSTANCE_INFO = [{'op': 'add', 'path': '/instance_info/image_source',
                  'value': 'http://127.0.0.1/image'}]

NO_INSTANCE_INFO = [{'op': 'remove', 'path': '/instance_info'}]
#: Duration of the race, in seconds.
SECONDS = 10
#: Events without which the race goes on, for at most EXTRA_SECONDS: on a busy
#: machine, deployments are often too late.
EVENTS = {'renew', 'release', 'prepare', 'deploy', 'lock', 'kept'}
EXTRA_SECONDS = 60


class Race:
    """The clients of the race, and their results."""

    def __init__(self, ironic, alone, node_class):
        self.ironic, self.node_class = ironic, node_class
        self.urls = [ironic.url, alone.url]
        self.end = time.monotonic() + SECONDS
        self.stop = threading.Event()
        self.torn_down = set()
        self.stale = set()
        self.rounds = {}

    def ours(self, method, path='', body=None):
        response = service.send(
            method, random.choice(self.urls) + OURS + path, body)
        # No conflict may result in a 5xx.
        assert response.status_code < 500, response.text
        return response

    def run_until_the_end(self):
        """Yield until the race ends."""
        while not self.stop.is_set() and time.monotonic() < self.end + (
                0 if self.rounds.keys() >= EVENTS else EXTRA_SECONDS):
            yield

    def query(self, sql, **values):
        return self.ironic.execute(sql, **values)

    def read_node(self, node_uuid, expires_at):
        """Return whether a time is in the future, and the node's instance."""
        expiry = datetime.datetime.fromisoformat(expires_at)
        (before, instance_uuid), = self.query(
            f'SELECT {self.ironic.clock()} < :at, instance_uuid '
            'FROM nodes WHERE uuid = :u', u=node_uuid,
            at=f'{expiry:%Y-%m-%d %H:%M:%S}.000000')
        return before, instance_uuid

    # Functions of clients, which run in threads

    def observe(self):
        """Check that nodes and reservations agree at all times."""
        for _ in self.run_until_the_end():
            alone = self.query(
                'SELECT nodes.uuid, nodes.instance_uuid FROM nodes '
                'LEFT JOIN reservations ON node_id = nodes.id AND '
                'reservations.instance_uuid = nodes.instance_uuid '
                'WHERE resource_class = :c AND nodes.instance_uuid '
                'IS NOT NULL AND reservations.id IS NULL', c=self.node_class)
            assert not alone, f'held without a reservation: {alone}'
            self.stale.update(row[0] for row in self.query(
                'SELECT reservations.instance_uuid FROM reservations '
                'LEFT JOIN nodes ON node_id = nodes.id AND '
                'reservations.instance_uuid = nodes.instance_uuid '
                'WHERE nodes.id IS NULL'))
            time.sleep(0.01)

    def sweep(self):
        for _ in self.run_until_the_end():
            swept = self.ironic.manage('sweep')
            assert swept.returncode == 0, swept.stderr

    def request_unknown_class(self):
        """Request an unknown class: leases expire before the refusal."""
        for _ in self.run_until_the_end():
            assert self.ours('POST', body={
                'resource_class': 'unknown'}).status_code == 422
            time.sleep(0.02)

    def steal(self):
        """Hold and release free nodes."""
        for _ in self.run_until_the_end():
            response = self.ours('POST', body={
                'resource_class': self.node_class, 'expires_in': 1})
            if response.status_code == 201:
                reservation = response.json()
                before, instance_uuid = self.read_node(
                    reservation['node_uuid'], reservation['expires_at'])
                if before and instance_uuid != reservation['instance_uuid']:
                    # Only a tear-down may have removed it.
                    assert reservation['instance_uuid'] in self.torn_down
                self.ours('DELETE', f'/{reservation["instance_uuid"]}')
            time.sleep(random.uniform(0.1, 0.4))

    def build(self, node_uuid):
        """Hold one node, and act on it when the lease is about to expire."""
        url = f'{self.ironic.url}/v1/nodes/{node_uuid}'
        for _ in self.run_until_the_end():
            body = {'candidate_nodes': [node_uuid], 'expires_in': 1,
                    'instance_uuid': str(uuid.uuid4()), 'host': 'compute-1'}
            response = self.ours('POST', body=body)
            if response.status_code != 201:
                assert response.status_code == 422, response.text
                time.sleep(0.05)
                continue
            reservation = response.json()
            assert reservation['node_uuid'] == node_uuid
            act = random.choice([self.renew, self.renew, self.release,
                                 self.prepare, self.deploy, self.lock])
            # The database has the clock of this machine.
            seconds = service.get_expiry(reservation).timestamp() - time.time()
            time.sleep(max(0, seconds + random.uniform(-0.6, 0.05)))
            self.rounds[act.__name__] = self.rounds.get(act.__name__, 0) + 1
            act(body, reservation, url)
            self.clean(body['instance_uuid'], url)

    def renew(self, body, reservation, url):
        response = self.ours('POST', body={**body, 'expires_in': 2})
        if response.status_code == 422:
            return  # Another client has the node.
        assert response.status_code in (200, 201), response.text
        reservation = response.json()
        self.rounds['renewed'] = self.rounds.get('renewed', 0) + (
            response.status_code == 200)
        while True:
            before, instance_uuid = self.read_node(
                reservation['node_uuid'], reservation['expires_at'])
            if not before:
                return
            assert instance_uuid == body['instance_uuid'], (
                'a confirmed lease was not kept', reservation)
            time.sleep(0.02)

    def release(self, body, reservation, url):
        response = self.ours('DELETE', f'/{body["instance_uuid"]}')
        assert response.status_code in (204, 404, 409), response.text
        if response.status_code != 409:
            assert self.ours('GET', f'/{body["instance_uuid"]}'
                             ).status_code == 404
            (count,), = self.query('SELECT COUNT(*) FROM nodes '
                                   'WHERE instance_uuid = :i',
                                   i=body['instance_uuid'])
            assert count == 0

    def prepare(self, body, reservation, url):
        response = service.send('PATCH', url, INSTANCE_INFO)
        if response.status_code == 200:
            self.check_that_it_stays(body, reservation, url)

    def deploy(self, body, reservation, url):
        response = service.send('PUT', f'{url}/states/provision',
                                {'target': 'active'})
        if response.status_code == 202:
            self.check_that_it_stays(body, reservation, url)

    def lock(self, body, reservation, url):
        service.send('PUT', f'{url}/states/power', {
            'target': random.choice(['power on', 'power off'])})

    def check_that_it_stays(self, body, reservation, url):
        """Check that a touched node stays held after its lease."""
        ident = body['instance_uuid']
        before, instance_uuid = self.read_node(
            reservation['node_uuid'], reservation['expires_at'])
        if not before and instance_uuid != ident:
            return  # The lease expired before the request arrived.
        assert instance_uuid == ident
        self.rounds['kept'] = self.rounds.get('kept', 0) + 1
        while self.read_node(reservation['node_uuid'],
                             reservation['expires_at'])[0]:
            time.sleep(0.05)
        for _ in range(10):
            instance = self.ironic.find_instance(reservation['node_uuid'])
            assert instance == ident, 'freed although it was touched'
            assert self.ours('GET', f'/{ident}').status_code == 200
            time.sleep(0.05)

    def clean(self, ident, url):
        """Release the node as a host would, in any state."""
        for _ in range(600):
            node = service.send('GET', url).json()
            if node.get('reservation') or 'provision_state' not in node:
                pass
            elif node['provision_state'] in ('active', 'deploy failed',
                                             'error'):
                # Ironic frees the node, regardless of its holder.
                self.torn_down.add(node['instance_uuid'])
                service.send('PUT', f'{url}/states/provision',
                             {'target': 'deleted'})
            elif node['provision_state'] != 'available':
                pass
            elif node['instance_info']:
                service.send('PATCH', url, NO_INSTANCE_INFO)
            else:
                status = self.ours('DELETE', f'/{ident}').status_code
                assert status in (204, 404, 409)
                if status != 409:
                    return
            time.sleep(0.05)
        raise AssertionError(f'the node stays in transition: {node}')


@pytest.mark.long
@pytest.mark.parametrize('ironic', ['server'], indirect=True)
def test_expiry_races(ironic, alone, resource_class):
    with ironic.fleet(*[{'resource_class': resource_class}] * 6) as nodes:
        race = Race(ironic, alone, resource_class)
        jobs = [(race.observe,), (race.sweep,),
                (race.request_unknown_class,), (race.steal,),
                *((race.build, node.id) for node in nodes)]
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as executor:
            futures = [executor.submit(*job) for job in jobs]
            concurrent.futures.wait(
                futures, return_when=concurrent.futures.FIRST_EXCEPTION)
            race.stop.set()
        for future in futures:
            future.result()
        # All stale reservations are due to tear-downs.
        assert race.stale <= race.torn_down
        ironic.settle(nodes, provision_state='available')
        # All other reservations expire.
        servers.wait(
            lambda: not ironic.list(resource_class=resource_class),
            'the expiry of all leases', 30)
        assert ironic.manage('sweep').returncode == 0
        assert ironic.execute(
            'SELECT uuid FROM nodes WHERE resource_class = :c '
            'AND instance_uuid IS NOT NULL', c=resource_class) == []
        assert ironic.rows() == []
        taken = {ironic.create(resource_class=resource_class)['node_uuid']
                 for _ in nodes}
        assert taken == {node.id for node in nodes}
        ironic.execute('DELETE FROM reservations')
        # All clients had success.
        assert race.rounds.keys() >= EVENTS
