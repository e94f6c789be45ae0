# SPDX-License-Identifier: Apache-2.0
"""POST ?adopt=true: reservations of nodes that carry an instance."""

import datetime
import uuid

import pytest

from tests.common import contract
from tests.common import service
from tests.common import states

POOL = [{'properties': {'memory_mb': 1024}}] * 2
OURS = service.OURS
ADOPT = f'{OURS}?adopt=true'
SPEC = {'memory_mb': 2 ** 20, 'extra_specs': {'trait:CUSTOM_NO': 'required'}}

#: States without an operation in progress.
AT_REST = {'available', 'manageable', 'active', 'rescue', 'deploy failed',
           'error', 'adopt failed', 'rescue failed', 'unrescue failed',
           'service failed', 'clean failed', 'inspect failed'}


@pytest.fixture
def instance(ironic, pool):
    """An instance on a node, without a reservation."""
    instance_uuid = str(uuid.uuid4())
    ironic.set_node(pool[0].id, instance_uuid=instance_uuid,
                    provision_state='active')
    return instance_uuid


def adopt(ironic, instance_uuid, status=201, **body):
    """Return the reservation, or the text of the error."""
    response = ironic.http.post(ADOPT, json={
        'instance_uuid': instance_uuid, 'host': 'compute-1', **body})
    fault = contract.check(response, status)
    if fault is not None:
        return fault
    assert response.headers['Location'].endswith(f'{OURS}/{instance_uuid}')
    return response.json()


@pytest.mark.on('sqlite', 'server')
def test_reservation(ironic, pool, instance):
    before = ironic.execute('SELECT * FROM nodes')
    reservation = adopt(ironic, instance, **SPEC, project_id='p', user_id='u')
    assert reservation == {
        **reservation, 'instance_uuid': instance, 'node_uuid': pool[0].id,
        'host': 'compute-1', 'state': 'active', 'provision_state': 'active',
        'project_id': 'p', 'user_id': 'u', 'request_spec': SPEC,
        'expires_at': None, 'updated_at': None}
    assert reservation == ironic.show(instance)
    assert 0 <= (ironic.now() - datetime.datetime.fromisoformat(
        reservation['created_at'])).total_seconds() < 60
    # The node is not written, not even its time of update.
    assert ironic.execute('SELECT * FROM nodes') == before


def test_invalid_specs_are_accepted(ironic, instance):
    bad_specs = {'reservations:foo': 'a', 'resources:GOLD': '1',
                 'trait:CUSTOM_A': 'maybe', 'capabilities:x': '>= x'}
    spec = {'extra_specs': {**bad_specs, 'hw:x': 'y', 'capabilities': 'a'}}
    for status in 201, 200:
        reservation = adopt(ironic, instance, status, **spec)
        assert reservation.pop('ignored') == sorted([*bad_specs, 'hw:x'])
        assert reservation['request_spec'] == spec
    assert reservation == ironic.show(instance)
    contract.check(ironic.http.post(OURS, json=spec), 400)


def test_invalid_properties_of_the_image_are_accepted(ironic, instance):
    spec = {'image': {'properties': {
        'reservations:nonsense': 'x', 'reservations:trait:T': 'required',
        'hw_architecture': 'x86_64'}}}
    for status in 201, 200:
        reservation = adopt(ironic, instance, status, **spec)
        assert reservation['ignored'] == ['reservations:nonsense',
                                          'reservations:trait:T']
        assert reservation['request_spec'] == spec


def test_all_keys_but_the_instance_are_optional(ironic, instance):
    response = ironic.http.post(ADOPT, json={
        'instance_uuid': instance.upper()})
    contract.check(response, 201)
    reservation = response.json()
    assert reservation['request_spec'] == {}
    assert reservation['instance_uuid'] == instance
    assert reservation['host'] is reservation['project_id'] is None


@pytest.mark.parametrize('value', ['false', 'False'])
def test_without_adopt(ironic, instance, value):
    """The node that carries the instance is a conflict."""
    contract.check(ironic.http.post(f'{OURS}?adopt={value}', json={
        'instance_uuid': instance, 'memory_mb': 1}), 409)
    assert not ironic.rows()


@pytest.mark.parametrize('state', states.STATES)
def test_states(ironic, pool, instance, state):
    ironic.set_node(pool[0].id, provision_state=state)
    before = ironic.state()
    if state in AT_REST:
        assert adopt(ironic, instance)['state'] == states.STATES[state]
        assert ironic.state()[0] == before[0]
        assert adopt(ironic, instance, 200)['provision_state'] == state
    else:
        assert state in adopt(ironic, instance, 409)
        assert ironic.state() == before


@pytest.mark.parametrize(('change', 'word'), [
    ({'reservation': 'conductor'}, 'locked'),
    ({'provision_state': 'cleaning'}, 'cleaning'),
    ({}, 'allocation'),
])
@pytest.mark.parametrize('again', [False, True])
def test_busy_node(ironic, pool, instance, change, word, again):
    if again:
        adopt(ironic, instance)
    if not change:
        ironic.allocate(pool[0])
        change = {'instance_uuid': instance}
    ironic.set_node(pool[0].id, **change)
    before = ironic.state()
    assert word in adopt(ironic, instance, 409, memory_mb=5)
    assert ironic.state() == before


def test_unknown_instance(ironic, pool):
    before = ironic.state()
    adopt(ironic, str(uuid.uuid4()), 404)
    assert ironic.state() == before


def test_repeat(ironic, instance):
    """A repeat replaces the request, which a rebuild may have changed."""
    first = adopt(ironic, instance, **SPEC, project_id='p', user_id='u',
                  description='d')
    assert first['description'] == 'd'
    second = adopt(ironic, instance, 200, vcpus=3, project_id='q', user_id='v',
                   description='e')
    assert second['updated_at'] is not None
    assert second == {**first, 'request_spec': {'vcpus': 3}, 'project_id': 'q',
                      'user_id': 'v', 'updated_at': second['updated_at']}
    # Keys that are left out keep their values, and so does the description.
    assert adopt(ironic, instance, 200)['project_id'] == 'q'
    assert len(ironic.rows()) == 1


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize(('holder', 'adopter'), [
    ('compute-2', 'compute-1'), ('Compute-1', 'compute-1')])
def test_reservation_of_another_host(ironic, instance, holder, adopter):
    adopt(ironic, instance, host=holder)
    before = ironic.state()
    for project in None, 'p':
        fault = adopt(ironic, instance, 409, host=adopter, project_id=project)
        assert 'compute-2' not in fault
    assert ironic.state() == before


def test_reservation_without_a_host(ironic, instance):
    """The first host that adopts it keeps it."""
    adopt(ironic, instance, host=None)
    assert adopt(ironic, instance, 200)['host'] == 'compute-1'
    assert adopt(ironic, instance, 200, host=None)['host'] == 'compute-1'


def test_existing_hold(ironic, pool, node_class):
    """A hold of the same host keeps its node and loses its lease."""
    hold = ironic.create(resource_class=node_class, host='compute-1',
                         expires_in=100)
    reservation = adopt(ironic, hold['instance_uuid'], 200)
    assert reservation['expires_at'] is None
    assert reservation['node_uuid'] == hold['node_uuid']


def test_expired_hold(ironic, pool, node_class):
    hold = ironic.create(resource_class=node_class, host='compute-1',
                         expires_in=100)
    ironic.expire(hold['instance_uuid'])
    adopt(ironic, hold['instance_uuid'], 404)
    assert not ironic.rows()
    assert ironic.find_instance(hold['node_uuid']) is None


@pytest.mark.parametrize('stale', ['instance', 'node', 'both'])
def test_stale_rows(ironic, pool, instance, stale):
    """Stale rows of the instance or of the node are replaced."""
    others = []
    if stale in ('instance', 'both'):
        others.append((instance, pool[1].id))
    if stale in ('node', 'both'):
        others.append((str(uuid.uuid4()), pool[0].id))
    for instance_uuid, node in others:
        ironic.execute(
            'INSERT INTO reservations (instance_uuid, node_id, node_uuid, '
            f'request_spec, created_at) SELECT :i, id, uuid, :s, '
            f'{ironic.clock()} FROM nodes WHERE uuid = :n',
            i=instance_uuid, n=node, s='{}')
    assert adopt(ironic, instance)['node_uuid'] == pool[0].id
    assert len(ironic.rows()) == 1


def test_release(ironic, pool, instance):
    adopt(ironic, instance)
    ironic.delete(instance, 409)
    ironic.set_node(pool[0].id, provision_state='available')
    ironic.delete(instance, 404, host='compute-2')
    ironic.delete(instance, host='compute-1')
    assert ironic.find_instance(pool[0].id) is None
    adopt(ironic, instance, 404)


def test_callers(cloud):
    """Project-scoped callers are refused, even owners of the node."""
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
        contract.check(response, status)
        if status == 201:
            # The caller's own project is not stored.
            assert response.json()['project_id'] is None
