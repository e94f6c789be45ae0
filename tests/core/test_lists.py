# SPDX-License-Identifier: Apache-2.0
"""Lists of reservations: order, pages, filters."""

import datetime
import random
import uuid

import pytest
import sqlalchemy as sa

from ironic_reservations import values
from ironic_reservations.api import markers
from ironic_reservations.db import expressions
from ironic_reservations.db import models
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import releases
from ironic_reservations.shared import constants

pytestmark = pytest.mark.on('sqlite', 'server')


@pytest.fixture
def sorted_fleet(fleet):
    """Seven reservations; columns contain nulls and equal values."""
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


def read_pages(limit, order):
    """Yield all pages, one after the other."""
    after, types = None, [type(lookup.NULL_VALUES[name]) for name in order]
    while True:
        page = lookup.find_reservations(order=order, after=after, limit=limit)
        assert len(page) <= limit
        yield page
        if len(page) < limit:
            return
        after = markers.decode(markers.encode(
            order, lookup.get_position(page[-1], order)), order, types)


@pytest.mark.parametrize('sort_dir', ['asc', 'desc'])
@pytest.mark.parametrize('sort_key', constants.SORT_KEYS)
def test_sort_order(sorted_fleet, sort_key, sort_dir):
    """NULL is less than any value; equal rows are ordered by ID."""
    def order(reservation):
        value = getattr(reservation, sort_key)
        return (value not in (None, ''), value or 0, reservation.id)

    everything = lookup.find_reservations()
    expected = sorted(everything, key=order, reverse=sort_dir == 'desc')
    query = {sort_key: sort_dir, 'id': sort_dir}
    assert len(expected) == 7
    assert lookup.find_reservations(order=query) == expected
    for limit in (1, 3, 7):
        assert sum(read_pages(limit, query), []) == expected


@pytest.mark.parametrize('order', [
    {'project_id': 'desc', 'host': 'asc', 'id': 'asc'},
    {'host': 'asc', 'project_id': 'desc', 'id': 'desc'},
    {'project_id': 'asc', 'host': 'desc', 'id': 'desc'},
    {'host': 'desc', 'id': 'asc'}], ids=str)
def test_order_by_several_keys(sorted_fleet, order):
    expected = lookup.find_reservations()
    for name, direction in reversed(order.items()):
        expected.sort(
            key=lambda row: row.id if name == 'id' else
            getattr(row, name) or '', reverse=direction == 'desc')
    assert lookup.find_reservations(order=order) == expected
    for limit in (1, 2, 3):
        assert sum(read_pages(limit, order), []) == expected


def test_pages_while_rows_are_added_and_deleted(sorted_fleet):
    """A row that exists all the time is listed once."""
    order = {'host': 'asc', 'id': 'asc'}
    first = lookup.find_reservations(limit=3, order=order)
    releases.release_reservation(first[0].instance_uuid)
    sorted_fleet.add_node(resource_class='bronze')
    new, _ = sorted_fleet.hold(resource_class='bronze',
                               owner=values.Assignment('zz'))
    rest = lookup.find_reservations(
        after=lookup.get_position(first[-1], order), order=order)
    assert len(rest) == 5 and rest[-1].id == new.id
    assert not {row.id for row in first} & {row.id for row in rest}


@pytest.mark.parametrize('seed', range(20))
def test_pages_while_rows_are_deleted(sorted_fleet, seed):
    """Each row is listed once, in any order, unless it was deleted before.

    The row of the marker may be deleted, too.
    """
    chance = random.Random(seed)
    names = chance.sample(constants.SORT_KEYS, chance.randint(1, 3))
    order = {name: chance.choice(('asc', 'desc')) for name in names}
    order.setdefault('id', order[names[-1]])
    rows, rest = [], [row.id for row in lookup.find_reservations(order=order)]
    for page in read_pages(chance.randint(1, 3), order):
        rows += (page_ids := [row.id for row in page])
        assert page_ids == rest[:len(page)]
        rest = rest[len(page):]
        victims = chance.sample(rows + rest, min(1, len(rest)))
        victims += rows[-1:] * chance.randint(0, 1)
        sorted_fleet.execute(sa.delete(models.reservations).where(
            models.reservations.c.id.in_(victims)))
        rest = [row_id for row_id in rest if row_id not in victims]
    assert not rest


@pytest.mark.parametrize('text, time, number', [
    ('', datetime.datetime.min, 0),
    ('\U0001F600\n%\\\'"' * 200, datetime.datetime.max, 2 ** 63 - 1)])
def test_any_marker_position(sorted_fleet, text, time, number):
    """The database accepts every position that a marker may carry."""
    values_by_type = {str: text, datetime.datetime: time, int: number}
    for name in constants.SORT_KEYS:
        order = {name: 'asc', 'id': 'asc'}
        after = [values_by_type[type(lookup.NULL_VALUES[key])]
                 for key in order]
        assert len(lookup.find_reservations(
            order=order, after=after)) in (0, 7)


@pytest.mark.on('server')
@pytest.mark.parametrize('statement', [
    lambda ident: reservation_rows.select_carriers(ident),
    lambda ident: node_rows.select_candidates([{ident}], 0)[0],
    lambda ident: reservation_rows.select_live().where(
        expressions.is_node(ident)),
    lambda ident: reservation_rows.select_live().where(
        reservation_rows.is_instance(ident)),
], ids=['carriers', 'candidates', 'node', 'instance'])
@pytest.mark.parametrize('ident', [
    str(uuid.uuid4()), str(uuid.uuid4()).upper(), 'a-name'],
    ids=['lower', 'upper', 'name'])
def test_unknown_identifier_is_found_by_an_index(fleet, statement, ident):
    """No statement reads all nodes, or all reservations."""
    nodes = [{'name': f'node-{number}', 'instance_uuid': str(uuid.uuid4())}
             for number in range(500)]
    ids = fleet.add(*nodes)
    for node_id, node in zip(ids, nodes, strict=True):
        fleet.add_stale_row(node_id=node_id,
                            instance_uuid=node['instance_uuid'])
    with fleet.engine.connect() as connection:
        def count_reads():
            return sum(int(number) for _, number in connection.execute(sa.text(
                "SHOW SESSION STATUS LIKE 'Handler_read_%next'")))

        def read():
            assert connection.execute(statement(ident), {
                'failed_since': 0}).all() == []

        read()  # MariaDB reads its statistics.
        before = count_reads()
        baseline = count_reads() - before
        before = count_reads()
        read()
        assert count_reads() - before - baseline < 50
