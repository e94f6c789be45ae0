# SPDX-License-Identifier: Apache-2.0
"""A group of three members of MySQL, of which the primary accepts writes."""

import collections
import concurrent.futures
import contextlib
import time
import types

import pymysql
import pytest
import sqlalchemy as sa

from tests.common import proxies
from tests.common import servers
from tests.survival import clients
from tests.survival.clients import call
from tools import services

# Three servers of MySQL take a minute to start.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

SPEC = {'resource_class': 'gold', 'memory_mb': 512}
NODES = 40
#: [reservations] deadline, and what may come on top of it.
PATIENCE = 10 + 2


@pytest.fixture(scope='module')
def group(conf_file, tmp_path_factory):
    """The members, a proxy like MySQL Router, and the fleet."""
    with servers.group() as members, \
            proxies.proxy(members[0].url) as proxy:
        services.create_schema(conf_file(proxy.url),
                               tmp_path_factory.mktemp('schema') / 'log')
        # Reads wait for the writes of all members.
        fleets = [clients.Fleet(
            f'{member.url}?init_command=SET SESSION '
            "group_replication_consistency = 'BEFORE'") for member in members]
        yield types.SimpleNamespace(
            members=members, proxy=proxy, fleets=fleets,
            fleet=clients.Fleet(proxy.url))


@pytest.fixture(scope='module')
def api(group, start_api):
    with start_api(group.proxy.url) as api:
        yield api


@pytest.fixture(autouse=True)
def fleet(group):
    """Free nodes in six racks, in a group whose members all work."""
    for member in group.members:
        if member.process is None:
            member.join(group.members)
    follow_primary(group)
    group.fleet.fill(NODES, racks=6)
    return group.fleet


def find_primary(group):
    """Return the primary, or None while the group elects one."""
    alive = {member.port: member for member in group.members
             if member.process is not None}
    with contextlib.suppress(pymysql.MySQLError):
        for member in alive.values():
            for port, role in member.active().items():
                if role == 'PRIMARY':
                    return alive.get(port)


def follow_primary(group):
    """Let the proxy connect to the primary, and return that."""
    primary = servers.wait(lambda: find_primary(group), 'a primary')
    group.proxy.database = sa.make_url(primary.url)
    return primary


def agree(group, crowd):
    nodes, *others = [fleet.check_holds(crowd.holds)
                      for fleet in group.fleets]
    group.fleets[0].check(crowd)
    assert others == [nodes] * len(others)


def test_primary_is_killed(group, api, seconds):
    """What clients were granted is on the new primary, once."""
    crowd = clients.Crowd([api], SPEC)
    with crowd:
        for _ in range(2):
            crowd.work(seconds)
            victim, start = follow_primary(group), time.monotonic()
            victim.kill()
            response = call('POST', api, body=SPEC, timeout=PATIENCE)
            assert response.status_code == 503
            assert int(response.headers['Retry-After'])
            primary = follow_primary(group)
            print(f'New primary after {time.monotonic() - start:.0f} s')
            assert primary is not victim
            before = crowd.seen[201]
            servers.wait(lambda before=before: crowd.seen[201] > before,
                         'a hold')
            crowd.check()
            print(f'Hold after {time.monotonic() - start:.0f} s')
            victim.join(group.members)
            crowd.work(seconds)
    agree(group, crowd)
    assert crowd.seen[204] and not crowd.seen['lost'], crowd.seen


def test_primary_is_changed(group, api, seconds):
    """Workers reconnect, because the former primary refuses to write."""
    crowd = clients.Crowd([api], SPEC)
    with crowd:
        for member in group.members * 2:
            uuid, = member.sql('SELECT @@server_uuid')[0]
            member.sql('SELECT group_replication_set_as_primary(%s)', uuid)
            assert follow_primary(group) is member
            before = crowd.seen[201]
            crowd.work(seconds)
            assert crowd.seen[201] > before
    agree(group, crowd)


def test_holds_race(group, api):
    """Concurrent requests for more nodes than there are."""
    with concurrent.futures.ThreadPoolExecutor(16) as executor:
        responses = [*executor.map(
            lambda number: call('POST', api, body=SPEC), range(2 * NODES))]
    assert collections.Counter(
        response.status_code for response in responses) == {
            201: NODES, 422: NODES}
    holds = {reservation['instance_uuid']: reservation['node_uuid']
             for reservation in (response.json() for response in responses)
             if 'node_uuid' in reservation}
    assert len({*holds.values()}) == NODES
    assert [fleet.holds() for fleet in group.fleets] == [holds] * 3


def test_group_is_claimed_at_once(api, fleet):
    clients.claim_at_once([api.url], fleet, SPEC)


def test_majority_is_lost(group, api, fleet):
    """Without its option, a COMMIT would wait for the others indefinitely."""
    reservation = call('POST', api, body=SPEC).json()
    primary = follow_primary(group)
    primary.sql('SET GLOBAL group_replication_unreachable_majority_timeout'
                ' = 1')
    for member in group.members:
        if member is not primary:
            member.kill()
    response = call('POST', api, body=SPEC)
    assert response.status_code == 503
    assert int(response.headers['Retry-After'])
    print(f'503 after {response.elapsed.total_seconds():.0f} s')
    primary.kill()
    primary.join(group.members, bootstrap=True)
    follow_primary(group)
    assert fleet.holds() == {
        reservation['instance_uuid']: reservation['node_uuid']}
    assert call('POST', api, body=SPEC).status_code == 201
