# SPDX-License-Identifier: Apache-2.0
"""The least oversized node of the whole fleet is held, by a real Ironic."""

import contextlib
import uuid

import pytest
import sqlalchemy as sa

from tests.functional import answers

OURS = '/v1/reservations'


@pytest.fixture(autouse=True)
def given_back(ironic):
    yield
    answers.execute(ironic, 'DELETE FROM reservations')


def hold(ironic, status=201, **body):
    response = ironic.http.post(OURS, json=body)
    answers.check(response, status)
    return response.json()


def release(ironic, reservation):
    answers.check(ironic.http.delete(
        f'{OURS}/{reservation["instance_uuid"]}'), 204)


def count(ironic):
    """Let the server know of all nodes, and of what is free."""
    answers.check(ironic.http.get(f'{OURS}/capacity', headers={
        'Cache-Control': 'no-cache'}), 200)


@contextlib.contextmanager
def copies(ironic, node, number):
    """Nodes like one, faster than Ironic's API enrols them."""
    engine = answers.database(ironic.database_url)
    table = sa.Table('nodes', sa.MetaData(), autoload_with=engine)
    with engine.begin() as connection:
        row = dict(connection.execute(sa.select(table).where(
            table.c.uuid == node.id)).one()._mapping)
        del row['id']
        rows = [{**row, 'uuid': str(uuid.uuid4()), 'name': None}
                for _ in range(number)]
        connection.execute(sa.insert(table), rows)
    try:
        yield [row['uuid'] for row in rows]
    finally:
        with engine.begin() as connection:
            connection.execute(sa.delete(table).where(
                table.c.uuid.in_([row['uuid'] for row in rows])))


def node(resource_class, memory=2048, cpus=8, disk=100, capabilities='',
         traits=()):
    return {'resource_class': resource_class, 'traits': list(traits),
            'properties': {'memory_mb': memory, 'cpus': cpus,
                           'local_gb': disk, 'capabilities': capabilities}}


@pytest.mark.long
def test_rare_good_fit_among_many_oversized(ironic, resource_class):
    """More of them than any page has."""
    with ironic.fleet(node(resource_class, 65536), node(resource_class, 2048),
                      node(resource_class, 4096)) as (large, good, second), \
            copies(ironic, large, 1200):
        count(ironic)
        for body in ({'resource_class': resource_class, 'memory_mb': 2000},
                     {'memory_mb': 2048, 'vcpus': 8, 'root_gb': 100,
                      'resource_class': resource_class.upper()}):
            first, next_best, third = (hold(ironic, **body)
                                       for _ in range(3))
            assert first['node_uuid'] == good.id
            assert next_best['node_uuid'] == second.id
            assert third['node_uuid'] not in (good.id, second.id)
            for each in first, next_best, third:
                release(ironic, each)
            count(ironic)


@pytest.mark.long
def test_best_fit_again_as_soon_as_it_is_free(ironic, resource_class):
    """Old counts make a search slower; what is held is the best as it is."""
    with ironic.fleet(node(resource_class, 2048), node(resource_class, 65536),
                      node(resource_class, 65536)) as (good, *_):
        for _ in range(3):
            count(ironic)
            held = hold(ironic, resource_class=resource_class,
                        memory_mb=2000)
            assert held['node_uuid'] == good.id
            count(ironic)
            release(ironic, held)
            again = hold(ironic, resource_class=resource_class,
                         memory_mb=2000)
            assert again['node_uuid'] == good.id
            release(ironic, again)


ASKED = {'memory_mb': 2048, 'vcpus': 8, 'root_gb': 100}

#: The better one first.
PAIRS = {
    'oversize': ({'memory': 4096}, {'memory': 2048, 'cpus': 24}),
    'all sizes together': ({'memory': 3072, 'cpus': 8},
                           {'memory': 2560, 'cpus': 12}),
    'traits': ({'traits': ['CUSTOM_A']},
               {'traits': ['CUSTOM_A', 'CUSTOM_B']}),
    'no trait': ({}, {'traits': ['CUSTOM_A']}),
    'capabilities': ({'capabilities': 'a'}, {'capabilities': 'a,b:c'}),
    'size before traits': ({'traits': ['CUSTOM_A', 'CUSTOM_B']},
                           {'memory': 2049}),
}


@pytest.mark.parametrize('pair', PAIRS)
@pytest.mark.parametrize('first', [0, 1])
def test_better_of_two(ironic, resource_class, pair, first):
    pair = [node(resource_class, **fields) for fields in PAIRS[pair]]
    with ironic.fleet(*(pair if not first else pair[::-1])) as nodes:
        count(ironic)
        held = [hold(ironic, resource_class=resource_class,
                     **ASKED)['node_uuid'] for _ in range(2)]
        assert held == [each.id for each in (
            nodes if not first else nodes[::-1])]


def test_sizes_that_nobody_asked_for_break_a_tie(ironic, resource_class):
    """By memory, then CPUs, then disk."""
    sizes = [(2048, 4, 900), (1024, 8, 900), (1024, 4, 50), (1024, 4, 40),
             (4096, 1, 1)]
    with ironic.fleet(*(node(resource_class, *each)
                        for each in sizes)) as nodes:
        count(ironic)
        held = [hold(ironic, resource_class=resource_class)['node_uuid']
                for _ in nodes]
        assert [sizes[[each.id for each in nodes].index(node_uuid)]
                for node_uuid in held] == sorted(sizes)


def test_asked_for_traits_and_capabilities_do_not_count(ironic,
                                                        resource_class):
    with ironic.fleet(
            node(resource_class, traits=['CUSTOM_A', 'CUSTOM_B'],
                 capabilities='gpu:1,boot_mode:uefi'),
            node(resource_class, traits=['CUSTOM_A'],
                 capabilities='gpu:1,boot_mode:uefi,x')) as (one, two):
        count(ironic)
        for body, expected in (
                ({'extra_specs': {'trait:CUSTOM_A': 'required',
                                  'trait:CUSTOM_B': 'required'}}, one),
                ({'extra_specs': {'trait:CUSTOM_A': 'required',
                                  'capabilities': 'gpu:1,x'},
                  'image': {'properties': {'hw_firmware_type': 'uefi'}}},
                 two)):
            held = hold(ironic, resource_class=resource_class, **body)
            assert held['node_uuid'] == expected.id
            release(ironic, held)


def test_equals_at_random(ironic, resource_class):
    with ironic.fleet(node(resource_class)) as (one,), \
            copies(ironic, one, 63) as more:
        order = [one.id, *more]
        held = [hold(ironic, resource_class=resource_class)['node_uuid']
                for _ in range(32)]
        assert len(set(held)) == 32
        places = [order.index(node_uuid) for node_uuid in held]
        assert places != sorted(places)
        # Not from one end.
        assert set(places) != set(range(32))
        assert set(places) != set(range(32, 64))


def test_equals_of_several_profiles_at_random(ironic, resource_class):
    """No request asks for a shard, so it makes no difference."""
    with ironic.fleet(node(resource_class)) as (one,), \
            copies(ironic, one, 39) as more:
        answers.execute(
            ironic, "UPDATE nodes SET shard = 'b' WHERE resource_class = :c "
            'AND id % 2 = 0', c=resource_class)
        count(ironic)
        held = [hold(ironic, resource_class=resource_class)['node_uuid']
                for _ in range(20)]
        in_shard = {row[0] for row in answers.execute(
            ironic, "SELECT uuid FROM nodes WHERE shard = 'b'")}
        assert 0 < len(in_shard.intersection(held)) < 20
        assert len(more) == 39
