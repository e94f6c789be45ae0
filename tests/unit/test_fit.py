# SPDX-License-Identifier: Apache-2.0
"""Which of several nodes fits a request best."""

import itertools
import random

import pytest

from tests.unit import tables

ASKED = {'memory_mb': 1000, 'vcpus': 10, 'root_gb': 100,
         'extra_specs': {'trait:CUSTOM_A': 'required',
                         'capabilities': 'gpu'}}


def sized(memory_mb, cpus, local_gb, capabilities='gpu:1', traits='A'):
    return tables.make_node(
        {'memory_mb': memory_mb, 'cpus': cpus, 'local_gb': local_gb,
         'capabilities': capabilities},
        traits=frozenset(f'CUSTOM_{name}' for name in traits))


@pytest.mark.parametrize('best_first', [
    # The sum of what each has too much, relative to what was asked for:
    # 0; 0.1 + 0.1; 0.5; 1.
    [sized(1000, 10, 100), sized(1100, 11, 100), sized(1000, 15, 100),
     sized(2000, 10, 100)],
    # Relative: 500 MiB more are less than 10 CPUs more.
    [sized(1500, 10, 100), sized(1000, 20, 100)],
    # Then what was not asked for, traits and capabilities alike.
    [sized(1000, 10, 100), sized(1000, 10, 100, traits='AB'),
     sized(1000, 10, 100, 'gpu:1,x:1', traits='AB'),
     sized(1000, 10, 100, traits='ABCD')],
    # Size before traits.
    [sized(1000, 10, 100, traits='ABCD'), sized(1001, 10, 100)],
    # Then memory, CPUs, disk: 1 CPU more weighs as 100 MiB or 10 GiB more.
    [sized(1000, 10, 110), sized(1000, 11, 100), sized(1100, 10, 100)],
], ids=['oversize', 'relative', 'unasked', 'size-first', 'absolute'])
def test_best_fit(best_first):
    matcher = tables.make_matcher(ASKED)
    for order in itertools.islice(itertools.permutations(best_first), 24):
        found = sorted(order, key=matcher.fit)
        assert found == best_first


def test_best_fit_of_sizes_that_nobody_asked_for():
    """Nothing to divide by; memory, CPUs, disk decide."""
    matcher = tables.make_matcher({'resource_class': 'gold', 'memory_mb': 0})
    best_first = [tables.make_node({'memory_mb': memory_mb, 'cpus': cpus})
                  for memory_mb, cpus in ((0, 9), (1, 0), (1, 2), (5, 1))]
    shuffled = random.sample(best_first, len(best_first))
    assert sorted(shuffled, key=matcher.fit) == best_first


def test_boot_mode_of_the_image_is_asked_for():
    matcher = tables.make_matcher(tables.image(hw_firmware_type='uefi'))
    plain, uefi, more = (tables.make_node({'capabilities': text})
                         for text in ('', 'boot_mode:uefi', 'other:1'))
    assert matcher.fit(plain) == matcher.fit(uefi)
    assert matcher.fit(plain) < matcher.fit(more)


def test_equals_fit_equally():
    """Which of them it is, is left to chance."""
    matcher = tables.make_matcher(ASKED)
    assert (matcher.fit(sized(1100, 10, 100))
            == matcher.fit(sized('1100', '10.0', 100)))
