# SPDX-License-Identifier: Apache-2.0
"""What callers are told of the limits that their project has in Keystone.

What is counted, and when, is in tests/db/test_quota.py; a real Keystone is in
tests/functional/test_keystone.py.
"""

import uuid

from keystoneauth1 import exceptions as ks_exc
from oslo_limit import fixture
import pytest

from ironic_reservations.cmd import status
from tests.api import conftest
from tests.common import answers
from tests.common import command
from tests.common import personas

OURS, ANY = personas.OURS, personas.ANY
GROUPS = f'{OURS}/groups'
TOTAL = 'baremetal_reservations'
GOLD = f'{TOTAL}:CUSTOM_GOLD'


@pytest.fixture(scope='module')
def keystone():
    """The limits in it; one for all, because a process looks it up once."""
    with fixture.LimitFixture({}, {}) as keystone:
        yield keystone


@pytest.fixture
def limit(cloud, keystone):
    """Sets limits: of all projects, and of projects by name.

    Project A, who calls, has nothing reserved, and four nodes to be had.
    """
    cloud.request('system-admin', 'DELETE', f'{OURS}/{{a}}')

    def limit(limits, **of_projects):
        keystone.reglimits = limits
        keystone.projlimits = {cloud.projects[name]: theirs
                               for name, theirs in of_projects.items()}
    with conftest.options({
            'reservations': {'quota': 'unified_limits'},
            'oslo_limit': {'endpoint_service_type': 'baremetal'}}):
        yield limit


@pytest.fixture
def post(cloud):
    def post(status, path=OURS, caller='a-member', **body):
        response = cloud.request(caller, 'POST', path, json=body or ANY)
        answers.check(response, status)
        return response
    return post


@pytest.fixture
def refused(post):
    def refused(*args, **kwargs):
        """What a 403 says of the quota."""
        response = post(403, *args, **kwargs)
        quota = response.json()['quota']
        assert set(quota) == {'resource', 'limit', 'used', 'requested'}
        for each in quota.values():
            assert str(each) in answers.fault(response)
        return tuple(quota.values())
    return refused


def test_limits_are_read_for_each_request(limit, post, refused):
    limit({TOTAL: 1})
    post(201)
    assert refused() == (TOTAL, 1, 1, 1)
    limit({TOTAL: 1}, b={TOTAL: 9})
    assert refused() == (TOTAL, 1, 1, 1)
    limit({TOTAL: 1}, a={TOTAL: 2})
    post(201)
    assert refused() == (TOTAL, 2, 2, 1)
    limit({TOTAL: -1})
    post(201)


def test_class(cloud, limit, post, refused):
    cloud.set_node('of-a-2', resource_class='silver')
    limit({TOTAL: 9, GOLD: 0}, a={GOLD: 1})
    try:
        held = [post(201).json()['resource_class'] for _ in range(2)]
        assert sorted(held) == ['gold', 'silver']
        assert refused(resource_class='gold') == (GOLD, 1, 1, 1)
    finally:
        cloud.set_node('of-a-2', resource_class='gold')


def test_nothing_is_registered(limit, refused):
    limit({})
    assert refused() == (TOTAL, 0, 0, 1)


def test_group(limit, post, refused):
    limit({TOTAL: 3})
    assert refused(GROUPS, members=4, request=ANY) == (TOTAL, 3, 0, 4)
    body = {'uuid': str(uuid.uuid4()), 'members': 2, 'request': ANY}
    post(201, GROUPS, **body)
    limit({TOTAL: 1})
    post(200, GROUPS, **body)
    assert refused() == (TOTAL, 1, 2, 1)


def test_dry_run(limit, post):
    limit({TOTAL: 0})
    assert post(200, f'{OURS}?dry_run=true').json()['quota'] == {
        'resource': TOTAL, 'limit': 0, 'used': 0, 'requested': 1}
    limit({TOTAL: 1})
    dry_run = post(200, f'{OURS}?dry_run=true').json()
    assert 'quota' not in dry_run
    assert dry_run['matching_nodes'] == 4


def test_compute_service_is_counted_and_not_limited(cloud, limit, post,
                                                    refused):
    limit({TOTAL: 1})
    for _ in range(2):
        post(201, caller='system-service', host='compute-1',
             project_id=cloud.projects['a'], **ANY)
    assert refused() == (TOTAL, 1, 2, 1)


def test_claim_and_repeat_are_not_limited(limit, post):
    limit({TOTAL: 1})
    body = {**ANY, 'instance_uuid': str(uuid.uuid4())}
    post(201, **body)
    limit({TOTAL: 0})
    post(200, **body)
    post(201, **ANY, claim=body['instance_uuid'])
    post(403, **body)


def test_openstack_command_says_it_in_one_sentence(cloud, limit):
    limit({TOTAL: 0})
    caller = cloud.callers['a-member']
    done = command.run(
        caller.url, 'baremetal', 'reservation', 'create', '--ram', '1',
        OS_AUTH_TYPE='admin_token',
        OS_TOKEN=caller.headers['X-Auth-Token'])
    assert (done.returncode, done.stdout) == (1, '')
    told, = done.stderr.strip().splitlines()
    assert f'{TOTAL} is limited to 0' in told


@pytest.fixture
def keystone_is_away(keystone, limit):
    registered = keystone.mock_conn.registered_limits
    before = registered.side_effect
    registered.side_effect = ks_exc.ConnectFailure('Unable to connect')
    yield
    registered.side_effect = before


def test_limits_cannot_be_read(cloud, keystone_is_away, post):
    before = cloud.ironic.state()
    for path in OURS, f'{OURS}?dry_run=true':
        assert post(503, path).headers['Retry-After']
    assert cloud.ironic.state() == before
    # Those do not need them.
    post(201, caller='system-service', **ANY)


@pytest.fixture
def checked(cloud, capsys):
    """What ironic-reservations-status says of the quota."""
    def check():
        with conftest.options({
                'database': {'connection': cloud.ironic.database_url}}):
            code = status.Checks().check()
        lines = capsys.readouterr().out.splitlines()
        at = next(number for number, line in enumerate(lines)
                  if 'Check: Quota' in line)
        return code, ' '.join(lines[at + 1:at + 6])
    return check


def test_upgrade_check(limit, checked):
    limit({TOTAL: 1})
    assert 'Result: Success' in checked()[1]
    limit({GOLD: 1})
    _, told = checked()
    assert 'Result: Warning' in told and 'no registered limit' in told


def test_upgrade_check_where_limits_cannot_be_read(keystone_is_away, checked):
    code, told = checked()
    assert code == 2
    assert 'Result: Failure' in told


def test_what_nobody_owns_counts_too(limit, post, refused, policy):
    policy({'baremetal:reservation:create_unowned': 'role:member'})
    limit({TOTAL: 1})
    unowned = {**ANY, 'ownership': 'project_or_none'}
    post(201, **unowned, candidate_nodes=['free-2'])
    assert refused(**unowned) == (TOTAL, 1, 1, 1)
