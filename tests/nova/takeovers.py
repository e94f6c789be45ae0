# SPDX-License-Identifier: Apache-2.0
"""The base class of tests in which another host takes over servers."""

from nova import context
from nova import objects

from tests.nova import base
from tests.nova import faults

FIRST, SECOND, THIRD = base.HOSTS


class TestCase(faults.TestCase):
    """Two hosts, of which the first is taken down."""

    fleet = [faults.NODE] * 5

    def setUp(self):
        super().setUp()
        for host in FIRST, SECOND:
            self.start_compute(host)
        self.gold = self.flavor()

    def take_down(self, host=FIRST):
        super().take_down(host)

    def bring_back(self, host=FIRST):
        super().bring_back(host)

    def assign(self, server, to=SECOND, by=FIRST):
        super().assign(server, to, by)

    def work(self, host=SECOND):
        super().work(host)

    def work_until_status(self, server, status):
        def check():
            self.work()
            now = self.api.get_server(server['id'])
            self.assertEqual((status, None), (
                now['status'], now['OS-EXT-STS:task_state']))
        self.wait_for(check)

    def assert_on(self, host, *servers):
        provider = self.providers()[host]
        compute_node = objects.ComputeNode.get_by_host_and_nodename(
            context.get_admin_context(), host, host)
        for server in servers:
            instance = self.instance(server)
            self.assertEqual(
                (host, host, host, compute_node.id),
                (instance.host, instance.node, instance.launched_on,
                 instance.compute_id))
            self.assertEqual([provider], list(self.allocations(server)))
