# SPDX-License-Identifier: Apache-2.0
"""The same instance again, and rows that no longer count."""

import uuid

import pytest

from tests.common import answers
from tests.common import service

NODE = {'properties': {'memory_mb': 1024, 'cpus': 8, 'local_gb': 100,
                       'cpu_arch': 'x86_64', 'capabilities': 'gpus:4,uefi'},
        'traits': ['CUSTOM_NVME']}
POOL = [{**NODE, 'name': f'pool-{number}'} for number in range(5)]
OURS = service.OURS
SPEC = {'memory_mb': 512, 'extra_specs': {'capabilities': 'uefi'}}


# Of each kind one: tests/unit/test_request_spec.py has all spellings.
@pytest.mark.parametrize('spelling', [
    {}, {'memory_mb': 512.0, 'swap': 0, 'shard': None, 'image': {}},
    {'project_id': None}, {'user_id': 'other'}], ids=str)
def test_repeat_is_the_same_reservation(ironic, pool, node_class, spelling):
    body = {**SPEC, 'resource_class': node_class, 'host': 'compute-1',
            'instance_uuid': str(uuid.uuid4()), 'project_id': 'p',
            'user_id': 'u'}
    held = ironic.create(**body)
    response = ironic.http.post(OURS, json={**body, **spelling})
    answers.check(response, 200)
    assert response.json() == held
    assert len(ironic.listed(resource_class=node_class)) == 1


def test_repeat_moves_to_the_host_named_last(ironic, pool, node_class):
    body = {**SPEC, 'resource_class': node_class,
            'instance_uuid': str(uuid.uuid4())}
    held = ironic.create(**body, host='compute-1')
    moved = ironic.create(200, **body, host='compute-2')
    assert moved['host'] == 'compute-2'
    assert moved['node_uuid'] == held['node_uuid']
    assert moved['created_at'] == held['created_at']
    assert moved['updated_at'] is not None
    assert ironic.show(body['instance_uuid']) == moved
    # Whoever does not say a host leaves the one that there is.
    for more in {}, {'host': None}, {'expires_in': 60}, {'expires_in': None}:
        assert ironic.create(200, **body, **more)['host'] == 'compute-2'
    # The late clean-up of the first host finds nothing of its own.
    ironic.delete(body['instance_uuid'], 404, host='compute-1')
    assert ironic.show(body['instance_uuid'])['host'] == 'compute-2'
    ironic.delete(body['instance_uuid'], host='compute-2')
    assert len(ironic.rows()) == 0


def test_delete_for_a_host_of_what_has_none(ironic, pool, node_class):
    held = ironic.create(resource_class=node_class)
    ironic.delete(held['instance_uuid'], 404, host='compute-1')
    ironic.delete(held['instance_uuid'])


@pytest.mark.parametrize('change', [
    {'name': 'other'}, {'memory_mb': None}, {'memory_mb': 9999999}], ids=str)
def test_another_spec_of_the_same_instance(ironic, pool, node_class, change):
    body = {**SPEC, 'resource_class': node_class, 'host': 'compute-1',
            'instance_uuid': str(uuid.uuid4()), 'expires_in': 3600}
    held = ironic.create(**body)
    # It does not renew the lease either.
    ironic.create(409, **{**body, **change, 'expires_in': 9})
    assert ironic.show(body['instance_uuid']) == held


def test_conflicts_do_not_tell_why(ironic, pool, node_class):
    instance_uuid = str(uuid.uuid4())
    body = {'resource_class': node_class, 'instance_uuid': instance_uuid,
            'host': 'secret-host', 'project_id': 'secret-project'}
    held = ironic.create(**body)
    texts = {ironic.create(409, **{**body, 'name': 'other'}),
             ironic.create(409, **{**body, 'project_id': 'other'})}
    for state in ('deploying', 'active'):
        ironic.set_node(held['node_uuid'], provision_state=state)
        ironic.create(200, **body)
        ironic.create(200, **{**body, 'host': None})
        texts.add(ironic.create(409, **{**body, 'host': 'compute-2'}))
    for state in ('deleting', 'deploy failed', 'manageable', 'cleaning'):
        ironic.set_node(held['node_uuid'], provision_state=state)
        texts.add(ironic.create(409, **body))
    # Held by somebody who did not come through us.
    delete_row = 'DELETE FROM reservations WHERE instance_uuid = :i'
    ironic.set_node(held['node_uuid'], provision_state='available')
    ironic.execute(delete_row, i=instance_uuid)
    texts.add(ironic.create(409, **body))
    assert len(texts) == 1, texts
    text, = texts
    for secret in ('secret', held['node_uuid'], held['node_name'],
                   node_class):
        assert secret not in text


def test_after_a_release_all_is_new(ironic, pool, node_class):
    body = {'resource_class': node_class, 'instance_uuid': str(uuid.uuid4())}
    ironic.create(**body)
    ironic.delete(body['instance_uuid'])
    ironic.create(**body, memory_mb=1)


# Stale rows


def test_what_was_seen_gone_does_not_come_back(ironic, pool, node_class):
    """Also where somebody puts the instance back onto its node by hand."""
    held = ironic.create(resource_class=node_class)
    instance_uuid, node_uuid = held['instance_uuid'], held['node_uuid']
    ironic.set_node(node_uuid, instance_uuid=None)
    ironic.show(instance_uuid, 404)
    ironic.set_node(node_uuid, instance_uuid=instance_uuid)
    ironic.show(instance_uuid, 404)
    ironic.delete(instance_uuid, 404)
    assert not ironic.listed(resource_class=node_class)
    assert ironic.carried(node_uuid) == instance_uuid
