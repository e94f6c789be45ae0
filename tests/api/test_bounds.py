# SPDX-License-Identifier: Apache-2.0
"""What is stored of a request, and shown of it, has a bound."""

import uuid

import pytest

from tests.common import answers
from tests.common import service

OURS = service.OURS
GROUPS = f'{OURS}/groups'

#: Twelve that differ in nothing.
POOL = [{'properties': {'memory_mb': 1024}}] * 12

#: With it a request is as long as it may be.
LONG = {f'quota:{number}': 'x' * 1000 for number in range(60)}


@pytest.fixture(autouse=True)
def no_groups(ironic):
    yield
    ironic.execute('DELETE FROM reservations_groups')


def create(ironic, node_class, members, status=201, **more):
    response = ironic.http.post(GROUPS, json={
        'members': members, **more,
        'request': {'resource_class': node_class, 'extra_specs': LONG}})
    answers.check(response, status)
    return response.json()


def test_little_is_stored_of_a_group(ironic, pool, node_class):
    """Enough to tell the same request from another one."""
    group = str(uuid.uuid4())
    create(ironic, node_class, 1, uuid=group)
    (asked,), = ironic.execute('SELECT asked FROM reservations_groups')
    assert len(asked) == 64
    create(ironic, node_class, 1, 200, uuid=group)
    response = ironic.http.post(GROUPS, json={
        'uuid': group, 'members': 1, 'request': {
            'resource_class': node_class,
            'extra_specs': {**LONG, 'quota:0': 'y'}}})
    answers.check(response, 409)
