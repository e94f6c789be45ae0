# SPDX-License-Identifier: Apache-2.0
"""What callers are told of the limits that their project has in Keystone.

What is counted, and when, is in tests/db/test_quota.py; a real Keystone is in
tests/functional/test_keystone.py.
"""

from unittest import mock
import uuid

from keystoneauth1 import exceptions as ks_exc
import pytest

from tests.common import answers
from tests.common import application
from tests.common import command
from tests.common import keystone as keystones
from tests.common import personas

OURS, ANY = personas.OURS, personas.ANY
GROUPS = f'{OURS}/groups'
TOTAL = keystones.TOTAL


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
    with application.set_options({
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


def test_limits_cannot_be_read(cloud, keystone, limit, post):
    before = cloud.ironic.state()
    with mock.patch.object(keystone.mock_conn, 'registered_limits',
                           side_effect=ks_exc.ConnectFailure):
        for path in OURS, f'{OURS}?dry_run=true':
            assert post(503, path).headers['Retry-After']
        assert cloud.ironic.state() == before
        # Those do not need them.
        post(201, caller='system-service', **ANY)


def test_what_nobody_owns_counts_too(limit, post, refused, policy):
    policy({'baremetal:reservation:create_unowned': 'role:member'})
    limit({TOTAL: 1})
    unowned = {**ANY, 'ownership': 'project_or_none'}
    post(201, **unowned, candidate_nodes=['free-2'])
    assert refused(**unowned) == (TOTAL, 1, 1, 1)
