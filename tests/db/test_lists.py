# SPDX-License-Identifier: Apache-2.0
"""Lists of reservations: order, pages, filters."""

import datetime
import random
import uuid

import pytest
import sqlalchemy as sa

from ironic_reservations import constants
from ironic_reservations.db import models
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import values

pytestmark = pytest.mark.on('sqlite', 'server')

@pytest.fixture
def listed(fleet):
    """Seven reservations, with nulls and equals among their columns."""
    hosts = ['b', None, 'a', 'b', None, '', 'A']
    nodes = [{'uuid': str(uuid.uuid4()), 'name': f'node-{n}',
              'instance_uuid': str(uuid.uuid4()),
              'resource_class': 'gold' if n % 2 else 'silver'}
             for n in range(7)]
    ids = fleet.add(*nodes)
    fleet.execute(sa.insert(models.reservations), [{
        'instance_uuid': nodes[n]['instance_uuid'], 'node_id': ids[n],
        'node_uuid': nodes[n]['uuid'], 'host': hosts[n],
        'project_id': 'p' if n % 3 else None,
        'user_id': 'u' if n % 2 else None, 'request_spec': '{}',
        'created_at': datetime.datetime(2025, 1, 1 + n % 3),
        'expires_at': None if n % 3 else datetime.datetime(2100, 1, n + 1),
        'updated_at': None if n % 2 else datetime.datetime(2026, 1, 1)}
        for n in random.sample(range(7), 7)])
    return fleet


def pages(limit, **query):
    """All pages, one after the other."""
    found, marker = [], None
    while True:
        page = lookup.find(limit=limit, marker=marker, **query)
        assert len(page) <= limit
        found += page
        if len(page) < limit:
            return found
        marker = page[-1].instance_uuid


@pytest.mark.parametrize('sort_dir', ['asc', 'desc'])
@pytest.mark.parametrize('sort_key', constants.SORT_KEYS)
def test_sorted(listed, sort_key, sort_dir):
    """NULL is the least; equals by id."""
    def order(found):
        value = getattr(found, sort_key)
        return (value not in (None, ''), value or 0, found.id)

    everything = lookup.find()
    expected = sorted(everything, key=order, reverse=sort_dir == 'desc')
    query = {sort_key: sort_dir}
    assert len(expected) == 7
    assert lookup.find(order=query) == expected
    for limit in (1, 3, 7):
        assert pages(limit, order=query) == expected


@pytest.mark.parametrize('order', [
    {'project_id': 'desc', 'host': 'asc'},
    {'host': 'asc', 'project_id': 'desc'},
    {'project_id': 'asc', 'host': 'desc', 'id': 'desc'},
    {'host': 'desc', 'id': 'asc'}], ids=str)
def test_sorted_by_several(listed, order):
    expected = lookup.find()
    for name, direction in reversed(
            [*order.items(), ('id', [*order.values()][-1])]):
        expected.sort(key=lambda found: (getattr(found, name) or '')
                      if name != 'id' else found.id,
                      reverse=direction == 'desc')
    assert lookup.find(order=order) == expected
    for limit in (1, 2, 3):
        assert pages(limit, order=order) == expected


def test_pages_while_rows_come_and_go(listed):
    """What was there all the time is seen once."""
    first = lookup.find(limit=3, order={'host': 'asc'})
    releases.release(first[0].instance_uuid)
    listed.node(resource_class='bronze')
    new, _ = listed.hold(resource_class='bronze',
                         owner=values.Owner('zz'))
    rest = lookup.find(marker=first[-1].instance_uuid,
                             order={'host': 'asc'})
    assert len(rest) == 5 and rest[-1].id == new.id
    assert not {each.id for each in first} & {each.id for each in rest}
