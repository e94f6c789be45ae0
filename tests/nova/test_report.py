# SPDX-License-Identifier: Apache-2.0
"""The report of a host, which RPC threads share."""

import concurrent.futures
import itertools
import pathlib
import threading
import time

import fixtures
from nova import exception
from nova.virt.ironic_reservations import client
from nova.virt.ironic_reservations import placement
from nova.virt.ironic_reservations import report
from oslo_config import fixture as config_fixture
import testtools

THREADS = 16


def profile(free):
    return {'resource_class': 'gold', 'memory_mb': 1, 'vcpus': 1,
            'local_gb': 1, 'cpu_arch': None, 'traits': [], 'total': 100,
            'free': free, 'held': 0, 'claimable': 0}


class Ironic:
    """Replaces the client; each response has one free node less."""

    def __init__(self):
        self.pause, self._numbers = 0, itertools.count(100, -1)
        self.calls, self.rows = 0, None
        self._lock = threading.Lock()

    def capacity(self, host, fresh, **partition):
        with self._lock:
            self.calls += 1
            free = next(self._numbers)
        time.sleep(self.pause)
        if self.rows is not None:
            return self.rows, 0
        return [profile(free)], 0


def use_state_path(case):
    """Set [DEFAULT] state_path to an empty directory, and return it."""
    directory = case.useFixture(fixtures.TempDir()).path
    case.useFixture(config_fixture.Config(report.CONF)).config(
        state_path=directory)
    return directory


def count_free(report):
    [inventory] = report.inventory({}).values()
    return inventory['total'] - inventory['reserved']


class TestReport(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.directory = use_state_path(self)
        self.ironic = Ironic()
        self.report = report.Report('compute-1', self.ironic)

    def test_older_response_replaces_no_newer_one(self):
        """Threads wait for earlier ones, and few of them query again."""
        self.ironic.pause = 0.05
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            for query in [pool.submit(self.report.refresh, set())
                          for _ in range(THREADS)]:
                query.result()
        self.assertEqual(101 - self.ironic.calls, count_free(self.report))
        self.assertLess(self.ironic.calls, THREADS)

    def test_earlier_query_is_not_reused(self):
        """A query sees all nodes that were released before it."""
        for number in range(3):
            self.report.refresh(set())
            self.assertEqual(100 - number, count_free(self.report))

    def test_releases_during_queries(self):
        uuids = itertools.count()
        self.report.refresh(set())
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            calls = [pool.submit(call) for _ in range(200) for call in (
                lambda: self.report.note_release({
                    'instance_uuid': next(uuids), 'resource_class': 'gold',
                    'request_spec': {}}),
                lambda: self.report.refresh(set()),
                lambda: self.report.inventory({}))]
            for call in calls:
                call.result()
        # The age of a count is in whole seconds, so all are counted.
        self.assertEqual(0, count_free(self.report))

    def test_release_is_noted_twice(self):
        self.report.refresh(set())
        for _ in range(2):
            self.report.note_release({
                'instance_uuid': 'x', 'resource_class': 'gold',
                'request_spec': {}})
        self.assertEqual(99, count_free(self.report))

    def test_before_the_first_query(self):
        self.assertIsNone(self.report.partition)
        for call in self.report.resources, lambda: self.report.traits(set()):
            self.assertRaises(exception.VirtDriverNotReady, call)

    def test_other_traits_are_kept(self):
        """Only reported traits are removed, when no node has them."""
        traits = {'CUSTOM_OPERATOR', 'CUSTOM_BEFORE', 'OWNER_NOVA'}
        for fleet in ['CUSTOM_A', 'CUSTOM_BEFORE'], ['CUSTOM_B'], []:
            self.ironic.rows = [{**profile(1), 'traits': fleet}]
            self.report.refresh(set())
            traits = self.report.traits(traits)
            self.assertLessEqual(set(fleet), traits)
        # A trait that existed before was also reported.
        self.assertEqual({'CUSTOM_OPERATOR', 'OWNER_NOVA'}, traits)

    def report_traits(self, fleet, before):
        self.ironic.rows = [{**profile(1), 'traits': fleet}]
        self.report.refresh(set())
        return self.report.traits(before)

    def test_traits_after_a_restart(self):
        before = self.report_traits(['CUSTOM_A', 'CUSTOM_B'], {'CUSTOM_C'})
        self.report = report.Report('compute-1', self.ironic)
        self.assertEqual({'CUSTOM_A', 'CUSTOM_C'},
                         self.report_traits(['CUSTOM_A'], before))
        # Then an operator sets the trait.
        before = self.report_traits(['CUSTOM_A'], {'CUSTOM_A', 'CUSTOM_C'})
        self.assertEqual(
            {*before, 'CUSTOM_B'},
            self.report_traits(['CUSTOM_A'], {*before, 'CUSTOM_B'}))

    def test_traits_are_removed_until_placement_has_removed_them(self):
        before = self.report_traits(['CUSTOM_A'], set())
        for _ in range(2):
            self.assertEqual(set(), self.report_traits([], before))
            self.report = report.Report('compute-1', self.ironic)

    def test_traits_without_a_file(self):
        """None are removed; a file that cannot be written is no error."""
        before = self.report_traits(['CUSTOM_A'], set())
        [path] = pathlib.Path(self.directory).iterdir()
        for content in None, '', '{"', '3':
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_text(content)
            self.report = report.Report('compute-1', self.ironic)
            self.assertEqual(before, self.report_traits([], before))
        path.unlink(missing_ok=True)
        path.mkdir()
        self.report = report.Report('compute-1', self.ironic)
        self.report_traits(['CUSTOM_A'], before)
        self.assertIn('Could not write', self.log.output)
        self.assertEqual(set(), self.report_traits([], before))

    def test_unavailable_ironic(self):
        self.report.refresh(set())

        def capacity(host, fresh, **partition):
            raise client.Unavailable('timeout')

        self.ironic.capacity = capacity
        self.assertRaises(exception.VirtDriverNotReady, self.report.refresh,
                          set())
        self.assertEqual(100, count_free(self.report))

    def test_class_without_nodes(self):
        """It is kept while it has, or may have, allocations."""
        for classes, is_kept in (({'CUSTOM_OLD'}, True), (set(), False),
                                 (None, True)):
            host_report = report.Report('compute-1', Ironic())
            host_report.refresh(classes)
            self.assertEqual(
                {'total': 3, 'reserved': 3} if is_kept else None,
                host_report.inventory({'CUSTOM_OLD': {
                    'total': 3, 'reserved': 1}}).get('CUSTOM_OLD'))

    def test_host_sees_no_node(self):
        self.report.refresh(set())
        self.assertNotIn('shows no nodes to host', self.log.output)
        self.ironic.rows = []
        self.report.refresh(set())
        for word in ('compute-1', 'system_scope = all', 'conductor_group any',
                     'shard any'):
            self.assertIn(word, self.log.output)


class TestClasses(testtools.TestCase):

    def test_resource_class_names(self):
        self.assertIsNone(placement.get_resource_classes(None))
        self.assertFalse(placement.get_resource_classes({}))
        self.assertEqual({'CUSTOM_A', 'VCPU'}, placement.get_resource_classes({
            'a': {'resources': {'CUSTOM_A': 1}},
            'b': {'resources': {'CUSTOM_A': 1, 'VCPU': 2}}}))
