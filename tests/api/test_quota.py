# SPDX-License-Identifier: Apache-2.0
"""Responses when a limit in Keystone is exceeded.

tests/core/test_quota.py tests the counts, tests/functional/test_keystone.py a
real Keystone.
"""

from unittest import mock
import uuid

from keystoneauth1 import exceptions as ks_exc
import pytest

from tests.common import application
from tests.common import command
from tests.common import contract
from tests.common import keystones
from tests.common import personas

OURS, ANY = personas.OURS, personas.ANY
GROUPS = f'{OURS}/groups'
TOTAL = keystones.TOTAL


@pytest.fixture
def limit(cloud, keystone):
    """Sets limits for all projects, and for projects by name.

    Project A has no reservation, and may reserve four nodes.
    """
    cloud.request('system-admin', 'DELETE', f'{OURS}/{{a}}')

    def limit(limits, **project_limits):
        keystone.reglimits = limits
        keystone.projlimits = {cloud.projects[name]: theirs
                               for name, theirs in project_limits.items()}
    with application.set_options({
            'reservations': {'quota': 'unified_limits'},
            'oslo_limit': {'endpoint_service_type': 'baremetal'}}):
        yield limit


@pytest.fixture
def post(cloud):
    def post(status, path=OURS, caller='a-member', **body):
        response = cloud.request(caller, 'POST', path, json=body or ANY)
        contract.check(response, status)
        return response
    return post


@pytest.fixture
def refuse(post):
    def refuse(*args, **kwargs):
        """Check a 403; return the values of its quota."""
        response = post(403, *args, **kwargs)
        quota = response.json()['quota']
        assert set(quota) == {'resource', 'limit', 'used', 'requested'}
        for value in quota.values():
            assert str(value) in contract.fault(response)
        return tuple(quota.values())
    return refuse


def test_group(limit, post, refuse):
    limit({TOTAL: 3})
    assert refuse(GROUPS, members=4, request=ANY) == (TOTAL, 3, 0, 4)
    body = {'uuid': str(uuid.uuid4()), 'members': 2, 'request': ANY}
    post(201, GROUPS, **body)
    limit({TOTAL: 1})
    post(200, GROUPS, **body)
    assert refuse() == (TOTAL, 1, 2, 1)


def test_dry_run(limit, post):
    limit({TOTAL: 0})
    assert post(200, f'{OURS}?dry_run=true').json()['quota'] == {
        'resource': TOTAL, 'limit': 0, 'used': 0, 'requested': 1}
    limit({TOTAL: 1})
    dry_run = post(200, f'{OURS}?dry_run=true').json()
    assert 'quota' not in dry_run
    assert dry_run['matching_nodes'] == 4


def test_compute_service_is_not_limited(cloud, limit, post,
                                        refuse):
    limit({TOTAL: 1})
    for _ in range(2):
        post(201, caller='system-service', host='compute-1',
             project_id=cloud.projects['a'], **ANY)
    assert refuse() == (TOTAL, 1, 2, 1)


def test_claim_and_repeat_are_not_limited(limit, post):
    limit({TOTAL: 1})
    body = {**ANY, 'instance_uuid': str(uuid.uuid4())}
    post(201, **body)
    limit({TOTAL: 0})
    post(200, **body)
    post(201, **ANY, claim=body['instance_uuid'])
    post(403, **body)


def test_error_of_the_openstack_command(cloud, limit):
    limit({TOTAL: 0})
    caller = cloud.callers['a-member']
    result = command.run(
        caller.url, 'baremetal', 'reservation', 'create', '--ram', '1',
        OS_AUTH_TYPE='admin_token',
        OS_TOKEN=caller.headers['X-Auth-Token'])
    assert (result.returncode, result.stdout) == (1, '')
    error, = result.stderr.strip().splitlines()
    assert f'{TOTAL} is limited to 0' in error


def test_keystone_failure(cloud, keystone, limit, post):
    before = cloud.ironic.state()
    with mock.patch.object(keystone.mock_conn, 'registered_limits',
                           side_effect=ks_exc.ConnectFailure):
        for path in OURS, f'{OURS}?dry_run=true':
            assert post(503, path).headers['Retry-After']
        assert cloud.ironic.state() == before
        # Compute services do not need limits.
        post(201, caller='system-service', **ANY)


def test_unowned_nodes_count(limit, post, refuse, policy):
    policy({'baremetal:reservation:create_unowned': 'role:member'})
    limit({TOTAL: 1})
    unowned = {**ANY, 'ownership': 'project_or_none'}
    post(201, **unowned, candidate_nodes=['free-2'])
    assert refuse(**unowned) == (TOTAL, 1, 1, 1)
