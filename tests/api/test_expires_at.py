# SPDX-License-Identifier: Apache-2.0
"""The states in which a response has expires_at."""

import itertools
import uuid

import pytest

from tests.common import contract
from tests.common import service
from tests.common import states

OURS = service.OURS
POOL = [{'properties': {'memory_mb': 1024}}] * 4


@pytest.fixture
def hold(ironic, pool, node_class):
    """The only member of a group, with a lease."""
    return ironic.create(resource_class=node_class, host='compute-1',
                         expires_in=600, group={'uuid': str(uuid.uuid4())},
                         instance_uuid=str(uuid.uuid4()))


def read_all(ironic, hold):
    """Return the reservation as all calls show it that only read."""
    instance_uuid = hold['instance_uuid']
    member, = ironic.show(f'groups/{hold["group"]["uuid"]}')['reservations']
    row, = ironic.list(host=hold['host'])
    fields_row, = ironic.list(host=hold['host'], fields='expires_at')
    return [ironic.show(instance_uuid), row, member, fields_row]


def move(ironic, hold, host):
    """Return the reservation from the response of a move to a host."""
    response = ironic.http.patch(f'{OURS}/{hold["instance_uuid"]}', json=[
        {'op': 'replace', 'path': '/host', 'value': host}])
    contract.check(response, 200)
    return response.json()


@pytest.mark.parametrize('state', states.STATES)
def test_states(ironic, hold, state):
    """The lease is shown only while it can end the reservation."""
    ironic.set_node(hold['node_uuid'], provision_state=state)
    expected = (hold['expires_at'] if states.STATES[state] == 'reserved'
                else None)
    reservations = read_all(ironic, hold)
    reservations.append(move(ironic, hold, 'compute-2'))
    assert [reservation['expires_at']
            for reservation in reservations] == [expected] * 5
    # It is stored in every state, and counts again.
    ironic.set_node(hold['node_uuid'], provision_state='available')
    assert (move(ironic, hold, 'compute-1')['expires_at']
            == hold['expires_at'])


@pytest.mark.parametrize('state', ['deploying', 'active'])
def test_repeat(ironic, hold, state, node_class):
    ironic.set_node(hold['node_uuid'], provision_state=state)
    body = {**hold['request_spec'], 'instance_uuid': hold['instance_uuid'],
            'host': 'compute-1', 'expires_in': 600}
    repeat = ironic.create(200, **body)
    assert repeat['state'] == state and repeat['expires_at'] is None


def test_touched_node_keeps_its_lease(ironic, hold):
    """The audit uses it to detect what was left behind."""
    ironic.set_node(hold['node_uuid'], instance_info='{"a": "b"}')
    ironic.expire(hold['instance_uuid'])
    reservations = read_all(ironic, hold)
    assert {reservation['expires_at'] for reservation in reservations} == {
        reservations[0]['expires_at']} != {None}
    assert service.get_expiry(reservations[0]) <= ironic.now()


def test_list_is_sorted_by_the_shown_value(ironic, pool, node_class):
    """Reservations without a lease come first, on every page."""
    holds = [ironic.create(resource_class=node_class, expires_in=seconds)
             for seconds in (900, 300, 600, 100)]
    for hold in holds[1:3]:
        ironic.set_node(hold['node_uuid'], provision_state='active')
    ascending = [holds[number]['instance_uuid'] for number in (1, 2, 3, 0)]
    for sort_dir, limit in itertools.product(('asc', 'desc'), (1, 2, 3, 4)):
        rows = sum(ironic.pages(
            OURS, 'reservations', sort_key='expires_at', sort_dir=sort_dir,
            limit=limit), [])
        assert [row['instance_uuid'] for row in rows] == ascending[
            ::1 if sort_dir == 'asc' else -1]
