# SPDX-License-Identifier: Apache-2.0
"""Which of several nodes fits a request best."""

import itertools

import pytest

from tests.unit import tables

BODY = {'memory_mb': 1000, 'vcpus': 10, 'root_gb': 100,
        'extra_specs': {'trait:CUSTOM_A': 'required',
                        'capabilities': 'gpu'}}
SIZES = {'memory_mb': 1000, 'vcpus': 10}


def node(memory_mb, cpus, local_gb, capabilities='gpu:1', traits='A'):
    return tables.make_node(
        {'memory_mb': memory_mb, 'cpus': cpus, 'local_gb': local_gb,
         'capabilities': capabilities},
        traits=frozenset(f'CUSTOM_{name}' for name in traits))


@pytest.mark.parametrize('body, best_first', [
    # The sum of what exceeds the request, relative to the request:
    # 0; 0.1 + 0.1; 0.5; 1.
    (BODY, [node(1000, 10, 100), node(1100, 11, 100), node(1000, 15, 100),
            node(2000, 10, 100)]),
    # Relative: 500 MiB more are less than 10 CPUs more.
    (BODY, [node(1500, 10, 100), node(1000, 20, 100)]),
    # Then traits and capabilities that were not requested.
    (BODY, [node(1000, 10, 100), node(1000, 10, 100, traits='AB'),
            node(1000, 10, 100, 'gpu:1,x:1', traits='AB'),
            node(1000, 10, 100, traits='ABCD')]),
    # Size before traits.
    (BODY, [node(1000, 10, 100, traits='ABCD'), node(1001, 10, 100)]),
    # Then memory, CPUs, disk: 1 CPU more counts like 100 MiB or 10 GiB more.
    (BODY, [node(1000, 10, 110), node(1000, 11, 100), node(1100, 10, 100)]),
    # Sizes that are not requested come last.
    (SIZES, [node(1000, 10, 10), node(1000, 10, 11), node(1000, 10, 99999),
             node(1000, 10, 10, 'gpu:1,x:1'), node(1001, 10, 10)]),
    # There is nothing to divide by: memory, CPUs, disk decide.
    ({'resource_class': 'gold', 'memory_mb': 0},
     [node(0, 9, 9), node(1, 0, 9), node(1, 2, 0), node(1, 2, 1),
      node(5, 1, 0)]),
], ids=['oversize', 'relative', 'unrequested', 'size-first', 'absolute',
        'unrequested-sizes', 'no-sizes'])
def test_best_fit(body, best_first):
    matcher = tables.make_matcher(body)
    for order in itertools.permutations(best_first):
        assert sorted(order, key=matcher.fit) == best_first


def test_boot_mode_of_the_image_is_requested():
    matcher = tables.make_matcher(tables.image(hw_firmware_type='uefi'))
    plain, uefi, more = (tables.make_node({'capabilities': text})
                         for text in ('', 'boot_mode:uefi', 'other:1'))
    assert matcher.fit(plain) == matcher.fit(uefi)
    assert matcher.fit(plain) < matcher.fit(more)


def test_equal_nodes_fit_equally():
    """One of them is held at random."""
    matcher = tables.make_matcher(BODY)
    assert (matcher.fit(node(1100, 10, 100))
            == matcher.fit(node('1100', '10.0', 100)))
