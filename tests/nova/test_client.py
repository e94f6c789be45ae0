# SPDX-License-Identifier: Apache-2.0
"""The driver's client of ``/v1/reservations``, without the rest of Nova."""

from nova.virt.ironic_reservations import client
import testtools

from tests.nova import ironic


class Pages:
    """An adapter of Ironic's that reads short pages.

    :param release: called with each page that is not the last.
    """

    def __init__(self, adapter, release):
        self._adapter, self._release = adapter, release
        self.requests = 0

    def request(self, path, method, params, **kwargs):
        self.requests += 1
        response = self._adapter.request(
            path, method, params={**params, 'limit': 2}, **kwargs)
        page = response.json()
        if 'next' in page:
            self._release(page['reservations'])
        return response


class TestLists(testtools.TestCase):

    def setUp(self):
        super().setUp()
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

    def test_row_of_the_marker_is_released(self):
        for read in (lambda driver: [each['instance_uuid'] for each in
                                     driver.list_by_host('compute-1', [])],
                     lambda driver: [each for each, _ in
                                     driver.list_changes('compute-1')]):
            gone = []

            def release(page, gone=gone):
                # The next page begins after the last row of this page.
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
        self.assertEqual([], client.Client(lambda: pages).list_changes('h'))
        self.assertEqual(1, pages.requests)
