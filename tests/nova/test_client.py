# SPDX-License-Identifier: Apache-2.0
"""The driver's client of ``/v1/reservations``, without the rest of Nova."""

import uuid

import fixtures
from nova.virt.ironic_reservations import client
import testtools

from tests.nova import ironic


class Pages:
    """Ironic, whose lists have short pages and which releases meanwhile.

    :param release: called with each page that has another one behind it.
    :param marker: what is sent as the marker, None for what is asked.
    """

    def __init__(self, adapter, release, marker=None):
        self._adapter, self._release = adapter, release
        self._marker = marker
        self.requests = 0

    def request(self, path, method, params, **kwargs):
        self.requests += 1
        if self._marker and 'marker' in params:
            params = {**params, 'marker': self._marker}
        response = self._adapter.request(
            path, method, params={**params, 'limit': 2}, **kwargs)
        page = response.json()
        if 'next' in page:
            self._release(page['reservations'])
        return response


class TestLists(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.client.PAUSE', 0))
        self.ironic = ironic.shared(True)
        nodes = self.ironic.enrol([{'resource_class': 'gold'}] * 5)
        self.addCleanup(self.ironic.remove, nodes)
        self.held = [self.ironic.create(
            resource_class='gold', host='compute-1')['instance_uuid']
            for _ in nodes]
        for each in self.held:
            # A reservation that was changed once has a time of that.
            self.ironic.http.patch(
                f'/v1/reservations/{each}', json=[{
                    'op': 'add', 'path': '/expires_in', 'value': 600}]
                ).raise_for_status()
            self.addCleanup(self.ironic.http.delete,
                            f'/v1/reservations/{each}')

    def test_marker_is_released_meanwhile(self):
        for read in (lambda driver: [each['instance_uuid'] for each in
                                     driver.held_by('compute-1', [])],
                     lambda driver: [each for each, _ in
                                     driver.changed('compute-1')]):
            gone = []

            def release(page, gone=gone):
                # The next page is asked for by the last one of this page.
                if not gone:
                    gone.append(page[-1]['instance_uuid'])
                    self.ironic.delete(*gone)

            pages = Pages(self.ironic.baremetal, release)
            found = read(client.Client(lambda pages=pages: pages))
            self.assertEqual(sorted(self.held), sorted(found))
            self.held.remove(*gone)

    def test_what_has_never_changed_is_not_read(self):
        nodes = self.ironic.enrol([{'resource_class': 'silver'}] * 4)
        self.addCleanup(self.ironic.remove, nodes)
        for _ in nodes:
            held = self.ironic.create(resource_class='silver', host='h')
            self.addCleanup(self.ironic.delete, held['instance_uuid'])
        pages = Pages(self.ironic.baremetal, lambda page: None)
        self.assertEqual([], client.Client(lambda: pages).changed('h'))
        self.assertEqual(1, pages.requests)

    def test_markers_are_refused_for_ever(self):
        pages = Pages(self.ironic.baremetal, lambda page: None,
                      marker=str(uuid.uuid4()))
        with testtools.ExpectedException(client.Unavailable,
                                         '.*faster than it can be read'):
            client.Client(lambda: pages).held_by('compute-1', [])
        # The first page and the refused second one, each time.
        self.assertEqual(2 * (client.RESTARTS + 1), pages.requests)
