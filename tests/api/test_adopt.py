# SPDX-License-Identifier: Apache-2.0
"""POST ?adopt=true: a reservation of what a node carries already."""

import datetime
import uuid

import pytest

from tests.common import answers
from tests.common import service
from tests.common import states

POOL = [{'properties': {'memory_mb': 1024}}] * 2
OURS = service.OURS
ADOPT = f'{OURS}?adopt=true'
SPEC = {'memory_mb': 2 ** 20, 'extra_specs': {'trait:CUSTOM_NO': 'required'}}

#: Neither at work nor waiting for anybody.
AT_REST = {'available', 'manageable', 'active', 'rescue', 'deploy failed',
           'error', 'adopt failed', 'rescue failed', 'unrescue failed',
           'service failed', 'clean failed', 'inspect failed'}


@pytest.fixture
def carried(ironic, pool):
    """An instance that a node carries, with nothing of ours."""
    instance_uuid = str(uuid.uuid4())
    ironic.set_node(pool[0].id, instance_uuid=instance_uuid,
                    provision_state='active')
    return instance_uuid


def adopt(ironic, instance_uuid, status=201, **body):
    """The reservation, or an error's text."""
    response = ironic.http.post(ADOPT, json={
        'instance_uuid': instance_uuid, 'host': 'compute-1', **body})
    fault = answers.check(response, status)
    if fault is not None:
        return fault
    assert response.headers['Location'].endswith(f'{OURS}/{instance_uuid}')
    return response.json()


@pytest.mark.on('sqlite', 'server')
def test_what_is_made(ironic, pool, carried):
    before = ironic.execute('SELECT * FROM nodes')
    made = adopt(ironic, carried, **SPEC, project_id='p', user_id='u')
    assert made == {
        **made, 'instance_uuid': carried, 'node_uuid': pool[0].id,
        'host': 'compute-1', 'state': 'active', 'provision_state': 'active',
        'project_id': 'p', 'user_id': 'u', 'request_spec': SPEC,
        'expires_at': None, 'updated_at': None}
    assert made == ironic.show(carried)
    assert 0 <= (ironic.now() - datetime.datetime.fromisoformat(
        made['created_at'])).total_seconds() < 60
    # Nothing of the node is written, not even when.
    assert ironic.execute('SELECT * FROM nodes') == before


def test_specs_that_a_hold_would_refuse(ironic, carried):
    refused = {'reservations:foo': 'a', 'resources:GOLD': '1',
               'trait:CUSTOM_A': 'maybe', 'capabilities:x': '>= x'}
    spec = {'extra_specs': {**refused, 'hw:x': 'y', 'capabilities': 'a'}}
    for status in 201, 200:
        made = adopt(ironic, carried, status, **spec)
        assert made.pop('ignored') == sorted([*refused, 'hw:x'])
        assert made['request_spec'] == spec
    assert made == ironic.show(carried)
    answers.check(ironic.http.post(OURS, json=spec), 400)


def test_nothing_need_be_said(ironic, carried):
    response = ironic.http.post(ADOPT, json={'instance_uuid': carried.upper()})
    answers.check(response, 201)
    made = response.json()
    assert made['request_spec'] == {} and made['instance_uuid'] == carried
    assert made['host'] is made['project_id'] is None


@pytest.mark.parametrize('value', ['false', 'False'])
def test_not_adopted(ironic, carried, value):
    """Without it, a node that carries the instance is in the way."""
    answers.check(ironic.http.post(f'{OURS}?adopt={value}', json={
        'instance_uuid': carried, 'memory_mb': 1}), 409)
    assert not ironic.rows()


@pytest.mark.parametrize('state', states.STATES)
def test_states(ironic, pool, carried, state):
    ironic.set_node(pool[0].id, provision_state=state)
    before = ironic.state()
    if state in AT_REST:
        assert adopt(ironic, carried)['state'] == states.STATES[state]
        assert ironic.state()[0] == before[0]
        assert adopt(ironic, carried, 200)['provision_state'] == state
    else:
        assert state in adopt(ironic, carried, 409)
        assert ironic.state() == before


@pytest.mark.parametrize(('change', 'word'), [
    ({'reservation': 'conductor'}, 'locked'),
    ({'provision_state': 'cleaning'}, 'cleaning'),
    ({}, 'allocation'),
])
@pytest.mark.parametrize('again', [False, True])
def test_node_at_work(ironic, pool, carried, change, word, again):
    if again:
        adopt(ironic, carried)
    if not change:
        ironic.allocate(pool[0])
        change = {'instance_uuid': carried}
    ironic.set_node(pool[0].id, **change)
    before = ironic.state()
    assert word in adopt(ironic, carried, 409, memory_mb=5)
    assert ironic.state() == before


def test_no_node_carries_it(ironic, pool):
    before = ironic.state()
    adopt(ironic, str(uuid.uuid4()), 404)
    assert ironic.state() == before


def test_again(ironic, carried):
    """It stores the request anew, as a rebuild may have changed it."""
    made = adopt(ironic, carried, **SPEC, project_id='p', user_id='u')
    now = adopt(ironic, carried, 200, vcpus=3, project_id='q', user_id='v')
    assert now['updated_at'] is not None
    assert now == {**made, 'request_spec': {'vcpus': 3}, 'project_id': 'q',
                   'user_id': 'v', 'updated_at': now['updated_at']}
    # What is not named stays.
    assert adopt(ironic, carried, 200)['project_id'] == 'q'
    assert len(ironic.rows()) == 1


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize(('holder', 'adopter'), [
    ('compute-2', 'compute-1'), ('Compute-1', 'compute-1')])
def test_of_another_host(ironic, carried, holder, adopter):
    adopt(ironic, carried, host=holder)
    before = ironic.state()
    for project in None, 'p':
        fault = adopt(ironic, carried, 409, host=adopter, project_id=project)
        assert 'compute-2' not in fault
    assert ironic.state() == before


def test_of_no_host(ironic, carried):
    """A host takes it; who names none leaves it to the host that has it."""
    adopt(ironic, carried, host=None)
    assert adopt(ironic, carried, 200)['host'] == 'compute-1'
    assert adopt(ironic, carried, 200, host=None)['host'] == 'compute-1'


def test_what_was_held(ironic, pool, node_class):
    """A hold of the same host stays held, without a lease."""
    held = ironic.create(resource_class=node_class, host='compute-1',
                         expires_in=100)
    now = adopt(ironic, held['instance_uuid'], 200)
    assert now['expires_at'] is None
    assert now['node_uuid'] == held['node_uuid']


def test_lapsed(ironic, pool, node_class):
    held = ironic.create(resource_class=node_class, host='compute-1',
                         expires_in=100)
    ironic.expire(held['instance_uuid'])
    adopt(ironic, held['instance_uuid'], 404)
    assert not ironic.rows()
    assert ironic.find_instance(held['node_uuid']) is None


@pytest.mark.parametrize('stale', ['instance', 'node', 'both'])
def test_stale_rows(ironic, pool, carried, stale):
    """Rows whose nodes have moved on stand in nobody's way."""
    others = []
    if stale in ('instance', 'both'):
        others.append((carried, pool[1].id))
    if stale in ('node', 'both'):
        others.append((str(uuid.uuid4()), pool[0].id))
    for instance_uuid, node in others:
        ironic.execute(
            'INSERT INTO reservations (instance_uuid, node_id, node_uuid, '
            f'request_spec, created_at) SELECT :i, id, uuid, :s, '
            f'{ironic.clock()} FROM nodes WHERE uuid = :n',
            i=instance_uuid, n=node, s='{}')
    assert adopt(ironic, carried)['node_uuid'] == pool[0].id
    assert len(ironic.rows()) == 1


def test_released(ironic, pool, carried):
    """It ends as every other does."""
    adopt(ironic, carried)
    ironic.delete(carried, 409)
    ironic.set_node(pool[0].id, provision_state='available')
    ironic.delete(carried, 404, host='compute-2')
    ironic.delete(carried, host='compute-1')
    assert ironic.find_instance(pool[0].id) is None
    adopt(ironic, carried, 404)


def test_who_may(cloud):
    """Nobody who is bound to a project, whoever owns the machine."""
    for persona, status in {
            'no-token': 401, 'a-admin': 403, 'a-member': 403,
            'service': 403, 'system-reader': 403, 'domain-admin': 403,
            'system-member': 201, 'system-service': 201,
            'elevated-service': 201}.items():
        instance_uuid = str(uuid.uuid4())
        cloud.set_node('of-a-2', instance_uuid=instance_uuid,
                       provision_state='active')
        response = cloud.request(persona, 'POST', ADOPT, json={
            'instance_uuid': instance_uuid})
        answers.check(response, status)
        if status == 201:
            # Whose it is, is not the caller's project to say.
            assert response.json()['project_id'] is None
