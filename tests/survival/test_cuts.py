# SPDX-License-Identifier: Apache-2.0
"""Connections to the database that are cut and delayed, at every statement."""

import functools
import itertools
import os
import random
import time
import uuid

import pytest
import requests
import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations.db import engine
from tests.common import contract
from tests.common import proxies
from tests.survival import clients
from tools import services

SPEC = {'resource_class': 'gold', 'memory_mb': 512}
#: [reservations] deadline, and two seconds more.
PATIENCE = 10 + 2


@pytest.fixture(scope='module', params=[
    'mariadb', pytest.param('mysql', marks=pytest.mark.long)])
def server(request, create_schema):
    """The URL of a database, and the fleet in it."""
    start = getattr(services, request.param)
    # The machine does not crash, so it need not wait for the disk.
    with start('--innodb-flush-log-at-trx-commit=0') as server_url, \
            services.database(server_url) as url:
        fleet = create_schema(url)
        # The connection of the test is not cut, and can be kept.
        fleet.engine = sa.create_engine(url)
        yield url, fleet
        fleet.engine.dispose()


@pytest.fixture(scope='module')
def fleet(server):
    return server[1]


@pytest.fixture(scope='module')
def proxy(server):
    with proxies.proxy(server[0]) as proxy:
        yield proxy


@pytest.fixture(scope='module')
def api(proxy, start_api):
    """One worker, and so one connection."""
    with start_api(proxy.url, 1) as api:
        yield api


class Cuts:
    """Cuts the connection at one statement, or from it on."""

    def __init__(self, number, kinds, on):
        self.remaining, self.kinds, self.on = number, kinds, on
        self.statements = []

    def __call__(self, statement):
        self.remaining -= 1
        if self.remaining == -1 or self.on and self.remaining < 0:
            self.statements.append(statement)
            return self.kinds[len(self.statements) > 1]
        return None


def post(api, path, body):
    answer = requests.post(api.url + clients.OURS + path, json=body,
                           headers=clients.HEADERS, timeout=60)
    assert answer.elapsed.total_seconds() < PATIENCE
    contract.check(answer, (200, 201, 503))
    return answer


# Each prepares a request, and returns its path, its body, and the instances
# that it holds nodes for.

def hold(api, fleet):
    body = {**SPEC, 'instance_uuid': str(uuid.uuid4()), 'expires_in': 600}
    return '', body, [body['instance_uuid']]


def group(api, fleet):
    members = [str(uuid.uuid4()) for _ in range(3)]
    return '/groups', {'uuid': str(uuid.uuid4()), 'members': members,
                       'policy': 'spread', 'by': clients.BY,
                       'request': SPEC}, members


def claim(api, fleet):
    source = post(api, '', SPEC).json()['instance_uuid']
    path, body, instances = hold(api, fleet)
    return path, {**body, 'claim': source, 'host': 'compute-1'}, instances


def adoption(api, fleet):
    instance = str(uuid.uuid4())
    fleet.execute("UPDATE nodes SET provision_state = 'active', "
                  'instance_uuid = :i LIMIT 1', {'i': instance})
    return '?adopt=true', {**SPEC, 'instance_uuid': instance,
                           'host': 'compute-1'}, [instance]


def nodes(answer):
    """Return the nodes of a response, by instance."""
    body = answer.json()
    return {row['instance_uuid']: row['node_uuid']
            for row in body.get('reservations', [body])}


OPERATIONS = hold, group, claim, adoption
#: The faults of the first statement and of the others, and whether others are
#: cut.
UNHEARD = (proxies.UNHEARD,), False
UNANSWERED = (proxies.UNANSWERED,), False
AWAY = (proxies.UNANSWERED, proxies.UNHEARD), True


@pytest.mark.parametrize('prepare, how', [
    *itertools.product(OPERATIONS, (UNHEARD, UNANSWERED)), (claim, AWAY)],
    ids=lambda value: {UNHEARD: 'unheard', UNANSWERED: 'unanswered',
                       AWAY: 'away'}.get(value) or value.__name__)
def test_cut_at_every_statement(api, proxy, fleet, prepare, how):
    """One cut is not visible to clients, an outage is a 503.

    In each case a repeated request returns the same nodes.
    """
    (kinds, on), seen, number = how, set(), 0
    # A few more statements if the fleet is counted again.
    while number < 100:
        fleet.fill(4, racks=4)
        path, body, instances = prepare(api, fleet)
        # The count has these nodes and none of them was read, so that the same
        # statements follow each time.
        capacity = requests.get(
            api.url + clients.OURS + '/capacity', timeout=60,
            headers={**clients.HEADERS, 'Cache-Control': 'no-cache'})
        contract.check(capacity, 200)
        proxy.decide = cuts = Cuts(number, kinds, on)
        answer = post(api, path, body)
        proxy.decide = lambda statement: None
        number += 1
        if not cuts.statements:
            if b'COMMIT' in seen:
                break
            number = 0
            continue
        seen.add(cuts.statements[0].split()[0])
        # The retry finds what was committed.
        assert answer.status_code in (
            {503} if on else {200, 201} if b'COMMIT' in cuts.statements
            else {201}), cuts.statements
        if on:
            assert int(answer.headers['Retry-After'])
        names = {name for name, in fleet.execute(
            'SELECT instance_uuid FROM reservations')} & {*instances}
        assert names in (set(), {*instances}), cuts.statements
        again = post(api, path, body)
        assert again.status_code == (200 if names else 201), cuts.statements
        assert on or nodes(again) == nodes(answer)
        assert fleet.holds() == nodes(again)
        assert {*nodes(again)} == {*instances}
    assert answer.status_code == 201
    assert {b'SELECT', b'INSERT', b'COMMIT', b'ROLLBACK'} <= seen


# Each prepares an end, and returns the request that causes it.

def release(api, fleet):
    instance = post(api, '', SPEC).json()['instance_uuid']
    return 'DELETE', f'/{instance}', None


def expiration(api, fleet):
    result = release(api, fleet)
    fleet.execute("UPDATE reservations SET expires_at = '2001-01-01'")
    return result


def purge(api, fleet):
    _, path, _ = release(api, fleet)
    fleet.execute('UPDATE nodes SET instance_uuid = NULL')
    return 'GET', path, None


def end_by_claim(api, fleet):
    return 'POST', *claim(api, fleet)[:2]


def release_group(api, fleet):
    _, body, _ = group(api, fleet)
    post(api, '/groups', body)
    return 'DELETE', f'/groups/{body["uuid"]}', None


@pytest.fixture(scope='module')
def impatient_api(proxy, start_api):
    with start_api(proxy.url, 1, config={
            'reservations': {'deadline': 1}}) as api:
        yield api


@pytest.mark.parametrize('how', [UNHEARD, UNANSWERED, AWAY], ids=[
    'unheard', 'unanswered', 'away'])
@pytest.mark.parametrize('prepare, end', [
    (release, 'release'), (expiration, 'expire'), (purge, 'purge'),
    (end_by_claim, 'claim'), (release_group, 'release')],
    ids=lambda value: getattr(value, '__name__', ''))
def test_end_is_cut_at_every_statement(impatient_api, proxy, fleet, prepare,
                                       end, how):
    """What has ended is in the history exactly once; the rest is there."""
    (kinds, on), copies = how, []
    for number in range(100):
        fleet.fill(4, racks=4)
        method, path, body = prepare(impatient_api, fleet)
        ids = fleet.execute('SELECT id FROM reservations ORDER BY id')

        def request(method=method, path=path, body=body):
            return requests.request(
                method, impatient_api.url + clients.OURS + path, json=body,
                headers=clients.HEADERS, timeout=60)

        proxy.decide = cuts = Cuts(number, kinds, on)
        request()
        proxy.decide = lambda statement: None
        rows = fleet.execute(
            'SELECT id FROM reservations WHERE id <= :last UNION ALL '
            'SELECT id FROM reservations_history ORDER BY id',
            {'last': ids[-1].id})
        assert rows == ids, cuts.statements
        request()
        assert fleet.execute(
            'SELECT id, ended_by FROM reservations_history ORDER BY id') == [
                (row.id, end) for row in ids], cuts.statements
        if not cuts.statements:
            break
        copies += [text for text in cuts.statements
                   if b'reservations_history' in text]
    assert copies and not cuts.statements


def test_first_connection_is_cut(server, monkeypatch):
    """A connection is cut while SQLAlchemy identifies the server."""
    conf.register_opts()
    with proxies.proxy(server[0]) as proxy:
        conf.CONF.set_override('connection', proxy.url, group='database')
        try:
            for number in range(1000):
                monkeypatch.setattr(
                    engine, 'get_engine',
                    functools.cache(engine.create_checked_engine))
                proxy.decide = cuts = Cuts(number, [proxies.UNHEARD], False)
                assert engine.retry(lambda: 'done')() == 'done'
                engine.get_engine().dispose()
                if not cuts.statements:
                    break
        finally:
            conf.CONF.clear_override('connection', group='database')
    assert number > 20


class Adopter(clients.GroupClient):
    """Also adopts its holds, for a host."""

    WITH_HOLD = clients.GroupClient.WITH_HOLD | {'adopt': 2}

    def adopt(self, hold):
        if not hold.has_lease:
            hold.body.update(host='compute-1')
            # The request is the same, so that a hold can repeat it.
            body = {**hold.body, 'instance_uuid': hold.instance_uuid}
            del body['expires_in']
            body.pop('claim', None)
            answer, _ = self._ask('POST', f'{clients.OURS}?adopt=true', {200},
                                  json=body)
            self._confirm(hold, answer.json())


# A slow machine takes long for this number of cuts.
@pytest.mark.timeout(3600)
def test_a_thousand_cuts(server, start_api, seconds):
    """A thousand cuts at full length, with delayed statements."""
    url, fleet = server
    seed = os.environ.get('IRONIC_RESERVATIONS_SURVIVAL_SEED',
                          str(time.time_ns()))
    print(f'IRONIC_RESERVATIONS_SURVIVAL_SEED={seed}')
    chance = random.Random(seed)

    def decide(statement):
        return chance.choices(
            (None, proxies.UNHEARD, proxies.UNANSWERED,
             chance.uniform(0, 0.3)), (96, 1, 1, 2))[0]

    fleet.fill(30, racks=6)
    with proxies.proxy(url, decide) as proxy, start_api(proxy.url, 8) as api:
        crowd = clients.Crowd([api], SPEC, kind=Adopter, fleet=fleet,
                              policies=clients.make_policies())

        def look():
            while proxy.cuts < min(seconds, 60) / 60 * 1000:
                crowd.check()
                time.sleep(0.1)

        clients.work_with_groups(crowd, fleet, seconds, look)
    assert proxy.seen[proxies.UNHEARD] and proxy.seen[proxies.UNANSWERED]
    assert proxy.seen[float]
    assert not crowd.seen['lost'], crowd.seen
    assert crowd.slowest < PATIENCE
