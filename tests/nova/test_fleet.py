# SPDX-License-Identifier: Apache-2.0
"""What a host reports, and what it tells users: no cloud is needed."""

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

from ironic_reservations import resources

# On a busy machine anything may be slow.
unhurried = settings(deadline=None,
                     suppress_health_check=[HealthCheck.too_slow])

MAX_INT = 2 ** 31 - 1
SIZES = ('memory_mb', 'vcpus', 'local_gb')


def row(resource_class='gold', memory_mb=4096, vcpus=4, local_gb=100,
        cpu_arch='x86_64', traits=(), total=1, free=0, held=0, claimable=0):
    return {'resource_class': resource_class, 'memory_mb': memory_mb,
            'vcpus': vcpus, 'local_gb': local_gb, 'cpu_arch': cpu_arch,
            'traits': list(traits), 'total': total, 'free': free,
            'held': held, 'claimable': claimable}


def offered(inventory):
    return {name: each['total'] - each['reserved']
            for name, each in inventory.items()}


rows = st.lists(st.builds(
    lambda free, held, claimable, other, **facts: row(
        free=free, held=held, claimable=claimable,
        total=free + held + claimable + other, **facts),
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
        # Nova warns of each amount that it skips.
        self.useFixture(fixtures.FakeLogger())

    def test_offers_what_is_free_and_what_the_host_holds(self):
        known = fleet.Fleet([row(total=10, free=3, held=2),
                             row('baremetal.silver', total=4, free=4)])
        self.assertEqual({
            'CUSTOM_GOLD': {
                'total': 10, 'reserved': 5, 'min_unit': 1, 'max_unit': 1,
                'step_size': 1, 'allocation_ratio': 1.0},
            'CUSTOM_BAREMETAL_SILVER': {
                'total': 4, 'reserved': 0, 'min_unit': 1, 'max_unit': 1,
                'step_size': 1, 'allocation_ratio': 1.0},
        }, known.inventory(collections.Counter()))

    def test_offers_what_can_be_claimed(self):
        claimable = row(total=10, free=3, held=2, claimable=4)
        for taken, offers in (
                (None, {'CUSTOM_GOLD': 9}),
                (collections.Counter(CUSTOM_GOLD=2, VCPU=8), {
                    'CUSTOM_GOLD': 9, 'VCPU': 36, 'MEMORY_MB': 28672,
                    'DISK_GB': 700})):
            self.assertEqual(offers, offered(fleet.Fleet(
                [claimable], taken).inventory(collections.Counter())))

    def test_ironic_that_does_not_know_of_claims(self):
        before = row(total=10, free=3, held=2)
        del before['claimable']
        self.assertEqual({'CUSTOM_GOLD': 5}, offered(
            fleet.Fleet([before]).inventory(collections.Counter())))

    def test_profiles_of_one_class_are_one_inventory(self):
        known = fleet.Fleet([row('baremetal.gold', total=2, free=1),
                             row('baremetal_gold', total=3, free=3)])
        self.assertEqual({'CUSTOM_BAREMETAL_GOLD': 4},
                         offered(known.inventory(collections.Counter())))

    def test_classes_that_placement_refuses(self):
        known = fleet.Fleet([row(name, total=2, free=2) for name in (
            'gold', 'CUSTOM_gold', 'CUSTOM_A.B', '', None, 'VCPU')])
        self.assertEqual({'CUSTOM_GOLD': 2},
                         offered(known.inventory(collections.Counter())))

    def test_traits_that_placement_does_not_know(self):
        known = fleet.Fleet([row(traits=[
            'CUSTOM_A', 'HW_CPU_X86_VMX', 'HW_OF_A_LATER_RELEASE'])])
        self.assertEqual({'CUSTOM_A', 'HW_CPU_X86_VMX'}, known.traits())

    def test_what_was_let_go_is_not_offered(self):
        known = fleet.Fleet([row(total=10, free=3, held=2)])
        self.assertEqual({'CUSTOM_GOLD': 4}, offered(
            known.inventory(collections.Counter(CUSTOM_GOLD=1))))

    def test_standard_classes(self):
        known = fleet.Fleet(
            [row(total=3, free=2, held=1),
             row(memory_mb=8192, total=1, free=0)],
            taken=collections.Counter(VCPU=2, MEMORY_MB=1024, DISK_GB=10,
                                      CUSTOM_GOLD=1))
        inventory = known.inventory(collections.Counter())
        self.assertEqual(
            {'total': 3 * 4096 + 8192, 'reserved': 3 * 4096 - 1024,
             'min_unit': 1, 'max_unit': 8192, 'step_size': 1,
             'allocation_ratio': 1.0}, inventory['MEMORY_MB'])
        self.assertEqual({'CUSTOM_GOLD': 3, 'VCPU': 10, 'MEMORY_MB': 9216,
                          'DISK_GB': 210}, offered(inventory))

    def test_node_without_an_allocation_of_its_class(self):
        known = fleet.Fleet(
            [row(total=2, free=1, held=1)],
            taken=collections.Counter(VCPU=4, MEMORY_MB=4096, DISK_GB=100))
        self.assertEqual({'CUSTOM_GOLD': 1, 'VCPU': 8, 'MEMORY_MB': 8192,
                          'DISK_GB': 200},
                         offered(known.inventory(collections.Counter())))

    @unhurried
    @given(st.dictionaries(
        st.builds(''.join, st.tuples(
            st.sampled_from(['resources', 'resources1', 'resources_NET',
                             'trait', 'hw', 'resources!']), st.just(':'),
            st.sampled_from(['VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_GOLD',
                             'VGPU', 'memory_mb', '']))),
        st.sampled_from(['0', '1', '131072', ' 7', '1_000', '-1', '1.5', 'x',
                         ''])), *(st.integers(0, 5000),) * 5)
    def test_what_nova_allocates(self, extra_specs, vcpus, memory_mb,
                                 root_gb, ephemeral_gb, swap):
        """Nova's scheduler decides that, without and with a root disk."""
        sizes = {'vcpus': vcpus, 'memory_mb': memory_mb, 'root_gb': root_gb,
                 'ephemeral_gb': ephemeral_gb, 'swap': swap,
                 'extra_specs': extra_specs}
        for is_bfv in False, True:
            allocated = utils.ResourceRequest.from_request_spec(
                objects.RequestSpec(flavor=objects.Flavor(**sizes),
                                    is_bfv=is_bfv)).merged_resources()
            request = {**sizes, 'root_gb': 0} if is_bfv else sizes
            self.assertEqual(allocated, {
                name: amount for name, amount
                in resources.sum_amounts(request).items() if amount})

    def test_architectures(self):
        known = fleet.Fleet([row(cpu_arch=name) for name in
                             ('amd64', 'x86_64', None, 'no such', 'aarch64')])
        self.assertEqual(
            [('aarch64', 'baremetal', 'hvm'), ('x86_64', 'baremetal', 'hvm')],
            known.resources()['supported_instances'])

    def test_traits_are_those_of_all(self):
        known = fleet.Fleet([row(traits=['CUSTOM_A', 'CUSTOM_B']), row(),
                             row(traits=['CUSTOM_B', 'HW_CPU_X86_VMX'])])
        self.assertEqual({'CUSTOM_A', 'CUSTOM_B', 'HW_CPU_X86_VMX'},
                         known.traits())
        self.assertEqual(set(), fleet.Fleet([]).traits())

    @unhurried
    @given(rows, st.none() | counters, counters)
    def test_placement_and_nova_take_it(self, rows, taken, released):
        known = fleet.Fleet(rows, taken)
        for each in known.inventory(released).values():
            self.assertTrue(0 < each['total'] <= MAX_INT)
            self.assertTrue(0 <= each['reserved'] <= each['total'])
            self.assertTrue(1 <= each['max_unit'] <= MAX_INT)
        resources = known.resources()
        self.assertIsNone(resources['disk_available_least'])
        for size in SIZES:
            self.assertTrue(0 <= resources[size] <= MAX_INT)
            self.assertEqual(min(MAX_INT, sum(
                each['total'] * each[size] for each in rows)),
                resources[size])


class TestNoNode(testtools.TestCase):

    def assert_tells(self, reason, *eliminated, nearest=None):
        failure = client.NoNode('', {
            'considered': 16,
            'eliminated': [{'by': by, 'nodes': 4} for by in eliminated],
            'nearest': nearest and {'by': nearest, 'nodes': 4}}, busy=False)
        self.assertEqual(reason, failure.reason)

    def test_names_what_is_nearest(self):
        self.assert_tells('no free node matches trait:CUSTOM_A=required',
                          'resource_class=CUSTOM_GOLD',
                          'trait:CUSTOM_A=required', 'reserved',
                          nearest='trait:CUSTOM_A=required')

    def test_names_all_if_none_is(self):
        self.assert_tells('no free node matches memory_mb>=4096, vcpus>=8',
                          'memory_mb>=4096', 'vcpus>=8')

    def test_those_that_match_are_taken(self):
        self.assert_tells('no matching node is free (reserved, maintenance)',
                          'resource_class=CUSTOM_GOLD', 'reserved',
                          'maintenance')

    def test_tells_nothing_of_how_the_fleet_is_split(self):
        self.assert_tells('no matching node is free', 'shard=rack-7',
                          'conductor_group=rack-7')
        self.assert_tells('no matching node is free', 'shard=rack-7',
                          'vcpus>=8', nearest='shard=rack-7')
        self.assert_tells('no matching node is free')
