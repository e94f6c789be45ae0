# SPDX-License-Identifier: Apache-2.0
"""The inventory that a host reports, and its reasons for failures."""

import collections

import fixtures
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from nova import objects
from nova.scheduler import utils
from nova.virt.ironic_reservations import client
from nova.virt.ironic_reservations import fleet
import testtools

from ironic_reservations.shared import resources

# A busy machine may be slow.
patient = settings(deadline=None,
                   suppress_health_check=[HealthCheck.too_slow])

MAX_INT = 2 ** 31 - 1
SIZES = ('memory_mb', 'vcpus', 'local_gb')


def row(resource_class='gold', **values):
    return {'resource_class': resource_class, 'memory_mb': 4096, 'vcpus': 4,
            'local_gb': 100, 'cpu_arch': 'x86_64', 'traits': [], 'total': 1,
            'free': 0, 'held': 0, 'claimable': 0, **values}


def count_free(fleet, releases=()):
    """Return the amounts that the fleet's inventory offers."""
    return {name: inventory['total'] - inventory['reserved']
            for name, inventory in fleet.inventory(
                collections.Counter(releases)).items()}


rows = st.lists(st.builds(
    lambda free, ours, claimable, others, **facts: row(
        free=free, held=ours, claimable=claimable,
        total=free + ours + claimable + others, **facts),
    *(st.integers(0, 10 ** 5),) * 4,
    resource_class=st.sampled_from(['gold', 'baremetal.gold', 'CUSTOM_GOLD',
                                    None]),
    memory_mb=st.integers(0, 10 ** 7), vcpus=st.integers(0, 10 ** 4),
    local_gb=st.integers(0, 10 ** 6),
    cpu_arch=st.sampled_from(['x86_64', 'amd64', 'aarch64', 'nonsense',
                              None])), max_size=6)
counters = st.builds(collections.Counter, st.dictionaries(
    st.sampled_from(['CUSTOM_GOLD', 'CUSTOM_BAREMETAL_GOLD', 'VCPU',
                     'MEMORY_MB', 'DISK_GB']), st.integers(0, 10 ** 7)))


class TestFleet(testtools.TestCase):

    def setUp(self):
        super().setUp()
        # Nova logs a warning for each amount that it skips.
        self.useFixture(fixtures.FakeLogger())

    def test_offers_free_nodes_and_those_of_the_host(self):
        nodes = fleet.Fleet([row(total=10, free=3, held=2),
                             row('baremetal.silver', total=4, free=4)])
        self.assertEqual({
            'CUSTOM_GOLD': {
                'total': 10, 'reserved': 5, 'min_unit': 1, 'max_unit': 1,
                'step_size': 1, 'allocation_ratio': 1.0},
            'CUSTOM_BAREMETAL_SILVER': {
                'total': 4, 'reserved': 0, 'min_unit': 1, 'max_unit': 1,
                'step_size': 1, 'allocation_ratio': 1.0},
        }, nodes.inventory(collections.Counter()))

    def test_offers_claimable_nodes(self):
        claimable = row(total=10, free=3, held=2, claimable=4)
        for taken, expected in (
                (None, {'CUSTOM_GOLD': 9}),
                (collections.Counter(CUSTOM_GOLD=2, VCPU=8), {
                    'CUSTOM_GOLD': 9, 'VCPU': 36, 'MEMORY_MB': 28672,
                    'DISK_GB': 700})):
            self.assertEqual(
                expected, count_free(fleet.Fleet([claimable], taken)))

    def test_profiles_of_one_class_are_one_inventory(self):
        self.assertEqual({'CUSTOM_BAREMETAL_GOLD': 4}, count_free(fleet.Fleet([
            row('baremetal.gold', total=2, free=1),
            row('baremetal_gold', total=3, free=3)])))

    def test_classes_that_placement_refuses(self):
        self.assertEqual({'CUSTOM_GOLD': 2}, count_free(fleet.Fleet([
            row(name, total=2, free=2) for name in (
                'gold', 'CUSTOM_gold', 'CUSTOM_A.B', '', None, 'VCPU')])))

    def test_traits(self):
        """All traits of all rows, except those unknown to Placement."""
        nodes = fleet.Fleet([
            row(traits=['CUSTOM_A', 'CUSTOM_B']), row(),
            row(traits=['CUSTOM_B', 'HW_CPU_X86_VMX', 'HW_LATER_RELEASE'])])
        self.assertEqual({'CUSTOM_A', 'CUSTOM_B', 'HW_CPU_X86_VMX'},
                         nodes.traits())
        self.assertEqual(set(), fleet.Fleet([]).traits())

    def test_releases_are_not_offered(self):
        self.assertEqual({'CUSTOM_GOLD': 4}, count_free(
            fleet.Fleet([row(total=10, free=3, held=2)]), ['CUSTOM_GOLD']))

    def test_standard_classes(self):
        nodes = fleet.Fleet(
            [row(total=3, free=2, held=1),
             row(memory_mb=8192, total=1, free=0)],
            taken=collections.Counter(VCPU=2, MEMORY_MB=1024, DISK_GB=10,
                                      CUSTOM_GOLD=1))
        self.assertEqual(
            {'total': 3 * 4096 + 8192, 'reserved': 3 * 4096 - 1024,
             'min_unit': 1, 'max_unit': 8192, 'step_size': 1,
             'allocation_ratio': 1.0},
            nodes.inventory(collections.Counter())['MEMORY_MB'])
        self.assertEqual({'CUSTOM_GOLD': 3, 'VCPU': 10, 'MEMORY_MB': 9216,
                          'DISK_GB': 210}, count_free(nodes))

    def test_node_without_an_allocation_of_its_class(self):
        nodes = fleet.Fleet(
            [row(total=2, free=1, held=1)],
            taken=collections.Counter(VCPU=4, MEMORY_MB=4096, DISK_GB=100))
        self.assertEqual({'CUSTOM_GOLD': 1, 'VCPU': 8, 'MEMORY_MB': 8192,
                          'DISK_GB': 200}, count_free(nodes))

    @patient
    @given(st.dictionaries(
        st.builds(''.join, st.tuples(
            st.sampled_from(['resources', 'resources1', 'resources_NET',
                             'trait', 'hw', 'resources!']), st.just(':'),
            st.sampled_from(['VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_GOLD',
                             'VGPU', 'memory_mb', '']))),
        st.sampled_from(['0', '1', '131072', ' 7', '1_000', '-1', '1.5', 'x',
                         ''])), *(st.integers(0, 5000),) * 5)
    def test_sum_amounts(self, extra_specs, vcpus, memory_mb, root_gb,
                         ephemeral_gb, swap):
        """The same as in Nova's scheduler, with and without a root disk."""
        sizes = {'vcpus': vcpus, 'memory_mb': memory_mb, 'root_gb': root_gb,
                 'ephemeral_gb': ephemeral_gb, 'swap': swap,
                 'extra_specs': extra_specs}
        for is_bfv in False, True:
            allocation = utils.ResourceRequest.from_request_spec(
                objects.RequestSpec(flavor=objects.Flavor(**sizes),
                                    is_bfv=is_bfv)).merged_resources()
            request = {**sizes, 'root_gb': 0} if is_bfv else sizes
            self.assertEqual(allocation, {
                name: amount for name, amount
                in resources.sum_amounts(request).items() if amount})

    def test_architectures(self):
        nodes = fleet.Fleet([row(cpu_arch=name) for name in
                             ('amd64', 'x86_64', None, 'no such', 'aarch64')])
        self.assertEqual(
            [('aarch64', 'baremetal', 'hvm'), ('x86_64', 'baremetal', 'hvm')],
            nodes.resources()['supported_instances'])

    @patient
    @given(rows, st.none() | counters, counters)
    def test_valid_for_placement_and_nova(self, rows, taken, releases):
        nodes = fleet.Fleet(rows, taken)
        for inventory in nodes.inventory(releases).values():
            self.assertTrue(0 < inventory['total'] <= MAX_INT)
            self.assertTrue(0 <= inventory['reserved'] <= inventory['total'])
            self.assertTrue(1 <= inventory['max_unit'] <= MAX_INT)
        resources = nodes.resources()
        self.assertEqual(min(MAX_INT, sum(
            row['free'] * row['local_gb'] for row in rows)),
            resources['disk_available_least'])
        for size in SIZES:
            self.assertTrue(0 <= resources[size] <= MAX_INT)
            self.assertEqual(min(MAX_INT, sum(
                row['total'] * row[size] for row in rows)), resources[size])


class TestNoNode(testtools.TestCase):

    def assert_reason(self, reason, *eliminated, nearest=None):
        failure = client.NoNode('', {
            'considered': 16,
            'eliminated': [{'by': by, 'nodes': 4} for by in eliminated],
            'nearest': nearest and {'by': nearest, 'nodes': 4}}, busy=False)
        self.assertEqual(reason, failure.reason)

    def test_names_the_nearest_condition(self):
        self.assert_reason('no free node matches trait:CUSTOM_A=required',
                           'resource_class=CUSTOM_GOLD',
                           'trait:CUSTOM_A=required', 'reserved',
                           nearest='trait:CUSTOM_A=required')

    def test_names_all_conditions_if_none_is_nearest(self):
        self.assert_reason('no free node matches memory_mb>=4096, vcpus>=8',
                           'memory_mb>=4096', 'vcpus>=8')

    def test_no_matching_node_is_free(self):
        self.assert_reason('no matching node is free (reserved, maintenance)',
                           'resource_class=CUSTOM_GOLD', 'reserved',
                           'maintenance')

    def test_hides_the_partition_of_the_fleet(self):
        self.assert_reason('no matching node is free', 'shard=rack-7',
                           'conductor_group=rack-7')
        self.assert_reason('no matching node is free', 'shard=rack-7',
                           'vcpus>=8', nearest='shard=rack-7')
        self.assert_reason('no matching node is free')
