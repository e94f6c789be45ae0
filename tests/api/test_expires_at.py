# SPDX-License-Identifier: Apache-2.0
"""In which states an answer says when a reservation ends, and in which not."""

import itertools
import uuid

import pytest

from tests.common import answers
from tests.common import service
from tests.common import states

OURS = service.OURS
POOL = [{'properties': {'memory_mb': 1024}}] * 4


@pytest.fixture
def held(ironic, pool, node_class):
    """The only member of a group, with a lease."""
    return ironic.create(resource_class=node_class, host='compute-1',
                         expires_in=600, group={'uuid': str(uuid.uuid4())},
                         instance_uuid=str(uuid.uuid4()))


def shown(ironic, held):
    """The same reservation in the answers of all calls that only read."""
    instance_uuid = held['instance_uuid']
    member, = ironic.show(f'groups/{held["group"]["uuid"]}')['reservations']
    listed, = ironic.list(host=held['host'])
    field, = ironic.list(host=held['host'], fields='expires_at')
    return [ironic.show(instance_uuid), listed, member, field]


def written(ironic, held, host):
    """And in the answer of one that moves it to a host."""
    response = ironic.http.patch(f'{OURS}/{held["instance_uuid"]}', json=[
        {'op': 'replace', 'path': '/host', 'value': host}])
    answers.check(response, 200)
    return response.json()


@pytest.mark.parametrize('state', states.STATES)
def test_states(ironic, held, state):
    """The time of a lease that can end nothing any more is not shown."""
    ironic.set_node(held['node_uuid'], provision_state=state)
    expected = (held['expires_at'] if states.STATES[state] == 'reserved'
                else None)
    found = shown(ironic, held)
    found.append(written(ironic, held, 'compute-2'))
    assert [each['expires_at'] for each in found] == [expected] * 5
    # It is stored all the same, and counts again.
    ironic.set_node(held['node_uuid'], provision_state='available')
    assert (written(ironic, held, 'compute-1')['expires_at']
            == held['expires_at'])


@pytest.mark.parametrize('state', ['deploying', 'active'])
def test_repeat(ironic, held, state, node_class):
    ironic.set_node(held['node_uuid'], provision_state=state)
    body = {**held['request_spec'], 'instance_uuid': held['instance_uuid'],
            'host': 'compute-1', 'expires_in': 600}
    again = ironic.create(200, **body)
    assert again['state'] == state and again['expires_at'] is None


def test_touched_node_keeps_its_time(ironic, held):
    """The audit tells by it what was left behind."""
    ironic.set_node(held['node_uuid'], instance_info='{"a": "b"}')
    ironic.expire(held['instance_uuid'])
    found = shown(ironic, held)
    assert {each['expires_at'] for each in found} == {
        found[0]['expires_at']} != {None}
    assert service.get_expiry(found[0]) <= ironic.now()


def test_list_is_sorted_by_what_it_shows(ironic, pool, node_class):
    """What has no end comes first, on the pages behind a marker, too."""
    held = [ironic.create(resource_class=node_class, expires_in=seconds)
            for seconds in (900, 300, 600, 100)]
    for each in held[1], held[2]:
        ironic.set_node(each['node_uuid'], provision_state='active')
    ascending = [held[number]['instance_uuid'] for number in (1, 2, 3, 0)]
    for sort_dir, limit in itertools.product(('asc', 'desc'), (1, 2, 3, 4)):
        found = sum(ironic.pages(
            OURS, 'reservations', sort_key='expires_at', sort_dir=sort_dir,
            limit=limit), [])
        assert [each['instance_uuid'] for each in found] == ascending[
            ::1 if sort_dir == 'asc' else -1]
