# SPDX-License-Identifier: Apache-2.0
"""What RPC threads share: no cloud is needed."""

import concurrent.futures
import itertools
import threading
import time

import fixtures
from nova import exception
from nova.virt.ironic_reservations import client
from nova.virt.ironic_reservations import placement
from nova.virt.ironic_reservations import report
import testtools

THREADS = 16


def profile(free):
    return {'resource_class': 'gold', 'memory_mb': 1, 'vcpus': 1,
            'local_gb': 1, 'cpu_arch': None, 'traits': [], 'total': 100,
            'free': free, 'held': 0}


class Ironic:
    """The client's answers; each is one node less than the one before."""

    def __init__(self, pause=0):
        self._pause, self._left = pause, itertools.count(100, -1)
        self.calls, self.rows = 0, None
        self._lock = threading.Lock()

    def capacity(self, host, fresh, **partition):
        with self._lock:
            self.calls += 1
            free = next(self._left)
        time.sleep(self._pause)
        if self.rows is not None:
            return self.rows, 0
        return [profile(free)], 0


def offered(known):
    [inventory] = known.inventory({}).values()
    return inventory['total'] - inventory['reserved']


class TestReport(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())

    def look_at_once(self, known, how_many=THREADS):
        with concurrent.futures.ThreadPoolExecutor(how_many) as pool:
            for each in [pool.submit(known.refresh, set())
                         for _ in range(how_many)]:
                each.result()

    def test_older_answer_replaces_no_newer_one(self):
        """Each thread waits for the ones before; few of them look again."""
        ironic = Ironic(pause=0.05)
        known = report.Report('compute-1', ironic)
        self.look_at_once(known)
        self.assertEqual(101 - ironic.calls, offered(known))
        self.assertLess(ironic.calls, THREADS)

    def test_a_look_that_began_before_does_not_do(self):
        """What was released before is known after."""
        ironic = Ironic()
        known = report.Report('compute-1', ironic)
        for number in range(3):
            known.refresh(set())
            self.assertEqual(100 - number, offered(known))

    def test_releases_while_others_look(self):
        known = report.Report('compute-1', Ironic())
        held = {'resource_class': 'gold', 'request_spec': {}}
        known.refresh(set())
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            work = [pool.submit(each) for _ in range(200) for each in (
                lambda: known.note_release(held), lambda: known.refresh(set()),
                lambda: known.inventory({}))]
            for each in work:
                each.result()
        # The age of a count is known to the second only, so all are counted.
        self.assertEqual(0, offered(known))

    def test_before_the_first_look(self):
        known = report.Report('compute-1', Ironic())
        self.assertIsNone(known.partition)
        for each in known.resources, lambda: known.traits(set()):
            self.assertRaises(exception.VirtDriverNotReady, each)

    def test_traits_of_others_stay(self):
        """Only what this process has reported goes, once no node has it."""
        ironic = Ironic()
        known = report.Report('compute-1', ironic)
        traits = {'CUSTOM_OPERATOR', 'CUSTOM_BEFORE', 'OWNER_NOVA'}
        for fleet in ['CUSTOM_A', 'CUSTOM_BEFORE'], ['CUSTOM_B'], []:
            ironic.rows = [{**profile(1), 'traits': fleet}]
            known.refresh(set())
            traits = known.traits(traits)
            self.assertLessEqual(set(fleet), traits)
        # It has reported what was there before it, too.
        self.assertEqual({'CUSTOM_OPERATOR', 'OWNER_NOVA'}, traits)

    def test_unreachable(self):
        ironic = Ironic()
        known = report.Report('compute-1', ironic)
        known.refresh(set())

        def capacity(host, fresh, **partition):
            raise client.Unavailable('it is away')

        ironic.capacity = capacity
        self.assertRaises(exception.VirtDriverNotReady, known.refresh, set())
        self.assertEqual(100, offered(known))

    def test_class_that_has_gone(self):
        """It stays as long as it is allocated, or may be."""
        was = {'total': 3, 'reserved': 1}
        for allocated, stays in (({'CUSTOM_OLD'}, True), (set(), False),
                                 (None, True)):
            known = report.Report('compute-1', Ironic())
            known.refresh(allocated)
            self.assertEqual(
                {'total': 3, 'reserved': 3} if stays else None,
                known.inventory({'CUSTOM_OLD': was}).get('CUSTOM_OLD'))

    def test_host_that_is_shown_no_node(self):
        ironic = Ironic()
        known = report.Report('compute-1', ironic)
        known.refresh(set())
        self.assertNotIn('no node at all', self.log.output)
        ironic.rows = []
        known.refresh(set())
        for word in ('compute-1', 'system_scope = all', 'conductor_group any',
                     'shard any'):
            self.assertIn(word, self.log.output)


class TestClasses(testtools.TestCase):

    def test_names(self):
        self.assertIsNone(placement.get_resource_classes(None))
        self.assertFalse(placement.get_resource_classes({}))
        self.assertEqual({'CUSTOM_A', 'VCPU'}, placement.get_resource_classes({
            'a': {'resources': {'CUSTOM_A': 1}},
            'b': {'resources': {'CUSTOM_A': 1, 'VCPU': 2}}}))
