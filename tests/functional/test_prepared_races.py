# SPDX-License-Identifier: Apache-2.0
"""Races of a hold with a VIF and a volume target, on a real Ironic."""

import concurrent.futures
import random
import time
import uuid

import pytest

from ironic_reservations.db import engine
from ironic_reservations.reservations import expiry
from tests.common import fleets
from tests.common import service

#: Rounds of each race.
ROUNDS = 8


def call(ironic, method, path, expected, body=None):
    response = service.send(method, ironic.url + path, body)
    assert response.status_code in expected, response.text
    return response


def add_vif(ironic, node_uuid, port):
    """Attach a VIF; return a function that detaches it."""
    path = f'/v1/ports/{port}'
    call(ironic, 'PATCH', path, [200], [{
        'op': 'add', 'path': '/extra/vif_port_id', 'value': 'x'}])
    return lambda: ironic.execute(
        "UPDATE ports SET extra = '{}', internal_info = '{}' "
        'WHERE uuid = :u', u=port)


def add_target(ironic, node_uuid, port):
    target = call(ironic, 'POST', '/v1/volume/targets', [201], {
        'node_uuid': node_uuid, 'volume_type': 'iscsi', 'boot_index': 0,
        'volume_id': 'x'}).json()['uuid']
    return lambda: call(ironic, 'DELETE', f'/v1/volume/targets/{target}',
                        [204])


@pytest.fixture
def sweep(ironic, monkeypatch):
    """Return what the command "sweep" does with reservations."""
    database = fleets.connect(ironic.database_url)
    monkeypatch.setattr(engine, 'get_engine', lambda: database)
    yield expiry.sweep
    database.dispose()


@pytest.mark.parametrize('ironic', ['server'], indirect=True)
@pytest.mark.parametrize('add', [add_vif, add_target])
def test_hold_races_with_vif_and_volume(ironic, resource_class, sweep, add):
    """Resources on the node keep it from being held or released."""
    with ironic.fleet({'resource_class': resource_class}) as (node,), \
            concurrent.futures.ThreadPoolExecutor(2) as executor:
        port = call(ironic, 'POST', '/v1/ports', [201], {
            'node_uuid': node.id, 'address': '52:54:00:12:34:56'}
        ).json()['uuid']
        holds = 0
        for number in range(ROUNDS):
            ident = str(uuid.uuid4())

            def hold(ident=ident):
                time.sleep(random.uniform(0, 0.1))
                return call(ironic, 'POST', service.OURS, [201, 422], {
                    'candidate_nodes': [node.id], 'instance_uuid': ident,
                    'expires_in': 3600})

            # The hold comes first in some rounds, and last in others.
            if number % 4:
                answer = executor.submit(hold)
                if number % 4 == 1:
                    answer.result()
            remove = executor.submit(add, ironic, node.id, port).result()
            if not number % 4:
                answer = executor.submit(hold)
            is_held = answer.result().status_code == 201
            holds += is_held
            if is_held:
                ironic.expire(ident)
            sweep()
            for body in {'candidate_nodes': [node.id]}, {
                    'resource_class': resource_class}:
                call(ironic, 'POST', service.OURS, [422], body)
            assert ironic.find_instance(node.id) == (
                ident if is_held else None)
            remove()
            sweep()
            assert ironic.find_instance(node.id) is None
        assert 0 < holds < ROUNDS
        call(ironic, 'DELETE', f'/v1/ports/{port}', [204])
