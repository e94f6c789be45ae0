# SPDX-License-Identifier: Apache-2.0
"""The driver's client of ``/v1/reservations``, without the rest of Nova."""

from nova.virt.ironic_reservations import client
import testtools

from tests.nova import ironic


class Pages:
    """An adapter for Ironic that reads short pages.

    :param release: called with each page except the last.
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
        self.ironic = ironic.get_shared(True)
        nodes = self.ironic.enrol([{'resource_class': 'gold'}] * 5)
        self.addCleanup(self.ironic.remove, nodes)
        self.uuids = [self.ironic.create(
            resource_class='gold', host='compute-1')['instance_uuid']
            for _ in nodes]
        for uuid in self.uuids:
            # Only changed reservations have updated_at.
            self.ironic.http.patch(
                f'/v1/reservations/{uuid}', json=[{
                    'op': 'add', 'path': '/expires_in', 'value': 600}]
                ).raise_for_status()
            self.addCleanup(self.ironic.http.delete,
                            f'/v1/reservations/{uuid}')

    def test_row_of_the_marker_is_released(self):
        for read in (lambda driver: [reservation['instance_uuid']
                                     for reservation in
                                     driver.list_by_host('compute-1', [])],
                     lambda driver: [uuid for uuid, _ in
                                     driver.list_changes('compute-1')]):
            releases = []

            def release(page, releases=releases):
                # The next page begins after the last row of this page.
                if not releases:
                    releases.append(page[-1]['instance_uuid'])
                    self.ironic.delete(*releases)

            pages = Pages(self.ironic.baremetal, release)
            uuids = read(client.Client(lambda pages=pages: pages))
            self.assertEqual(sorted(self.uuids), sorted(uuids))
            self.uuids.remove(*releases)

    def test_uuids_are_spelled_as_nova_spells_them(self):
        """Ironic may have the UUID of an adopted instance in capitals."""
        self.ironic.execute(
            'UPDATE nodes SET instance_uuid = UPPER(instance_uuid)')
        driver = client.Client(lambda: self.ironic.baremetal)
        self.assertEqual(sorted(self.uuids), sorted(
            reservation['instance_uuid']
            for reservation in driver.list_by_host('compute-1', [])))
        self.assertEqual(sorted(self.uuids), sorted(
            uuid for uuid, _ in driver.list_changes('compute-1')))

    def test_reason_of_several_lines(self):
        node = self.ironic.show(self.uuids[0])['node_uuid']
        client.Client(lambda: self.ironic.baremetal).record_failed_build(
            node, 'power: no\nanswer' + 300 * '.')
        [notice] = self.ironic.http.get(
            '/v1/reservations/notices', params={'node': node}
            ).json()['notices']
        self.assertEqual('power: no\\nanswer' + 238 * '.',
                         notice['description'])

    def test_unchanged_reservations_are_not_read(self):
        nodes = self.ironic.enrol([{'resource_class': 'silver'}] * 4)
        self.addCleanup(self.ironic.remove, nodes)
        for _ in nodes:
            reservation = self.ironic.create(
                resource_class='silver', host='h')
            self.addCleanup(self.ironic.delete, reservation['instance_uuid'])
        pages = Pages(self.ironic.baremetal, lambda page: None)
        self.assertEqual([], client.Client(lambda: pages).list_changes('h'))
        self.assertEqual(1, pages.requests)
