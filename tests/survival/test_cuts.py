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
from tests.common import answers
from tests.common import proxies
from tests.survival import clients
from tools import services

SPEC = {'resource_class': 'gold', 'memory_mb': 512}
#: [reservations] deadline, and what may come on top of it.
PATIENCE = 10 + 2


@pytest.fixture(scope='module', params=['mariadb', 'mysql'])
def server(request, create_schema):
    """A database's URL, and the fleet in it."""
    start = getattr(services, request.param)
    # Nobody pulls the plug, so that it need not wait for the disk.
    with start('--innodb-flush-log-at-trx-commit=0') as server_url, \
            services.database(server_url) as url:
        fleet = create_schema(url)
        # Nobody cuts its own connection: it may be kept.
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
    """One worker, which therefore has one connection."""
    with start_api(proxy.url, 1) as api:
        yield api


class Cuts:
    """Cuts the connection at the statement of a number, or from it on."""

    def __init__(self, number, kinds, on):
        self.left, self.kinds, self.on = number, kinds, on
        self.statements = []

    def __call__(self, statement):
        self.left -= 1
        if self.left == -1 or self.on and self.left < 0:
            self.statements.append(statement)
            return self.kinds[len(self.statements) > 1]
        return None


def post(api, path, body):
    answer = requests.post(api.url + clients.OURS + path, json=body,
                           headers=clients.HEADERS, timeout=60)
    assert answer.elapsed.total_seconds() < PATIENCE
    answers.check(answer, (200, 201, 503))
    return answer


# Each makes ready what a request needs, and returns its path, its body, and
# the instances that it is to give a node to.

def hold(api, fleet):
    body = {**SPEC, 'instance_uuid': str(uuid.uuid4()), 'expires_in': 600}
    return '', body, [body['instance_uuid']]


def group(api, fleet):
    members = [str(uuid.uuid4()) for _ in range(3)]
    return '/groups', {'uuid': str(uuid.uuid4()), 'members': members,
                       'policy': 'spread', 'by': clients.BY,
                       'request': SPEC}, members


def claim(api, fleet):
    found = post(api, '', SPEC).json()['instance_uuid']
    path, body, instances = hold(api, fleet)
    return path, {**body, 'claim': found, 'host': 'compute-1'}, instances


def adoption(api, fleet):
    instance = str(uuid.uuid4())
    fleet.execute("UPDATE nodes SET provision_state = 'active', "
                  'instance_uuid = :i LIMIT 1', {'i': instance})
    return '?adopt=true', {**SPEC, 'instance_uuid': instance,
                           'host': 'compute-1'}, [instance]


def nodes(answer):
    """Node by instance in an answer."""
    found = answer.json()
    return {each['instance_uuid']: each['node_uuid']
            for each in found.get('reservations', [found])}


OPERATIONS = hold, group, claim, adoption
#: What befalls the first statement that is cut, the others; and whether there
#: are others.
UNHEARD = (proxies.UNHEARD,), False
UNANSWERED = (proxies.UNANSWERED,), False
AWAY = (proxies.UNANSWERED, proxies.UNHEARD), True


@pytest.mark.parametrize('prepare, how', [
    *itertools.product(OPERATIONS, (UNHEARD, UNANSWERED)), (claim, AWAY)],
    ids=lambda each: {UNHEARD: 'unheard', UNANSWERED: 'unanswered',
                      AWAY: 'away'}.get(each) or each.__name__)
def test_cut_at_every_statement(api, proxy, fleet, prepare, how):
    """One cut is not noticed; while the database is away, it is a 503.

    Whatever has become of it, the same request gives the same nodes again.
    """
    (kinds, on), seen, number = how, set(), 0
    # It takes a few statements more where the fleet is counted anew.
    while number < 100:
        fleet.fill(4, racks=4)
        path, body, instances = prepare(api, fleet)
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
        # What was committed unnoticed is found by the retry.
        assert answer.status_code in (
            {503} if on else {200, 201} if b'COMMIT' in cuts.statements
            else {201}), cuts.statements
        if on:
            assert int(answer.headers['Retry-After'])
        made = {name for name, in fleet.execute(
            'SELECT instance_uuid FROM reservations')} & {*instances}
        assert made in (set(), {*instances}), cuts.statements
        again = post(api, path, body)
        assert again.status_code == (200 if made else 201), cuts.statements
        assert on or nodes(again) == nodes(answer)
        assert fleet.held() == nodes(again)
        assert {*nodes(again)} == {*instances}
    assert answer.status_code == 201
    assert {b'SELECT', b'INSERT', b'COMMIT', b'ROLLBACK'} <= seen


def test_first_connection_is_cut(server, monkeypatch):
    """Also there, where SQLAlchemy asks what server it is."""
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
    """It also adopts what it has, for a host."""

    WITH_HOLD = clients.GroupClient.WITH_HOLD | {'adopt': 2}

    def adopt(self, hold):
        if not hold.lapses:
            hold.body.update(host='compute-1')
            # It is for the same request, and may be repeated as that.
            body = {**hold.body, 'instance_uuid': hold.instance_uuid}
            del body['expires_in']
            body.pop('claim', None)
            answer, _ = self._ask('POST', f'{clients.OURS}?adopt=true', {200},
                                  json=body)
            self._told(hold, answer.json())


# However long a slow machine takes to cut so often.
@pytest.mark.timeout(3600)
def test_a_thousand_cuts(server, start_api, seconds):
    """At full length; and statements of others overtake what is delayed."""
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
        crowd = clients.Crowd([api.url], SPEC, kind=Adopter, fleet=fleet,
                              shared=clients.shared())

        def look():
            while proxy.cuts < min(seconds, 60) / 60 * 1000:
                crowd.check()
                time.sleep(0.1)

        clients.work_with_groups(crowd, fleet, seconds, look)
    assert proxy.seen[proxies.UNHEARD] and proxy.seen[proxies.UNANSWERED]
    assert proxy.seen[float]
    assert not crowd.seen['lost'], crowd.seen
    assert crowd.slowest < PATIENCE
