# SPDX-License-Identifier: Apache-2.0
"""The least oversized node of the whole fleet is held."""

import pytest


def release(ironic, reservation):
    ironic.delete(reservation['instance_uuid'])


def node(resource_class, memory=2048, cpus=8, disk=100, capabilities='',
         traits=()):
    return {'resource_class': resource_class, 'traits': list(traits),
            'properties': {'memory_mb': memory, 'cpus': cpus,
                           'local_gb': disk, 'capabilities': capabilities}}


def test_rare_good_fit_among_many_oversized(ironic, resource_class):
    """More of them than any page has."""
    with ironic.fleet(node(resource_class, 65536), node(resource_class, 2048),
                      node(resource_class, 4096),
                      *[node(resource_class, 65536)] * 1200) as nodes:
        _, good, second, *_ = nodes
        ironic.capacity()
        for body in ({'resource_class': resource_class, 'memory_mb': 2000},
                     {'memory_mb': 2048, 'vcpus': 8, 'root_gb': 100,
                      'resource_class': resource_class.upper()}):
            first, next_best, third = (ironic.create(**body)
                                       for _ in range(3))
            assert first['node_uuid'] == good.id
            assert next_best['node_uuid'] == second.id
            assert third['node_uuid'] not in (good.id, second.id)
            for each in first, next_best, third:
                release(ironic, each)
            ironic.capacity()


def test_best_fit_again_as_soon_as_it_is_free(ironic, resource_class):
    """Old counts make a search slower; what is held is the best as it is."""
    with ironic.fleet(node(resource_class, 2048), node(resource_class, 65536),
                      node(resource_class, 65536)) as (good, *_):
        for _ in range(3):
            ironic.capacity()
            held = ironic.create(resource_class=resource_class,
                                 memory_mb=2000)
            assert held['node_uuid'] == good.id
            ironic.capacity()
            release(ironic, held)
            again = ironic.create(resource_class=resource_class,
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
        ironic.capacity()
        held = [ironic.create(resource_class=resource_class,
                              **ASKED)['node_uuid'] for _ in range(2)]
        assert held == [each.id for each in (
            nodes if not first else nodes[::-1])]


def test_sizes_that_nobody_asked_for_break_a_tie(ironic, resource_class):
    """By memory, then CPUs, then disk."""
    sizes = [(2048, 4, 900), (1024, 8, 900), (1024, 4, 50), (1024, 4, 40),
             (4096, 1, 1)]
    with ironic.fleet(*(node(resource_class, *each)
                        for each in sizes)) as nodes:
        ironic.capacity()
        held = [ironic.create(resource_class=resource_class)['node_uuid']
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
        ironic.capacity()
        for body, expected in (
                ({'extra_specs': {'trait:CUSTOM_A': 'required',
                                  'trait:CUSTOM_B': 'required'}}, one),
                ({'extra_specs': {'trait:CUSTOM_A': 'required',
                                  'capabilities': 'gpu:1,x'},
                  'image': {'properties': {'hw_firmware_type': 'uefi'}}},
                 two)):
            held = ironic.create(resource_class=resource_class, **body)
            assert held['node_uuid'] == expected.id
            release(ironic, held)


def test_equals_at_random(ironic, resource_class):
    with ironic.fleet(*[node(resource_class)] * 64) as nodes:
        order = [each.id for each in nodes]
        held = [ironic.create(resource_class=resource_class)['node_uuid']
                for _ in range(32)]
        assert len(set(held)) == 32
        places = [order.index(node_uuid) for node_uuid in held]
        assert places != sorted(places)
        # Not from one end.
        assert set(places) != set(range(32))
        assert set(places) != set(range(32, 64))


def test_equals_of_several_profiles_at_random(ironic, resource_class):
    """No request asks for a shard, so it makes no difference."""
    with ironic.fleet(*[node(resource_class)] * 40):
        ironic.execute("UPDATE nodes SET shard = 'b' "
                       'WHERE resource_class = :c AND id % 2 = 0',
                       c=resource_class)
        ironic.capacity()
        held = [ironic.create(resource_class=resource_class)['node_uuid']
                for _ in range(20)]
        in_shard = {row[0] for row in ironic.execute(
            "SELECT uuid FROM nodes WHERE shard = 'b'")}
        assert 0 < len(in_shard.intersection(held)) < 20
