# SPDX-License-Identifier: Apache-2.0
"""Servers near or apart, and servers on what was reserved before."""

from openstack import exceptions as sdk_exc
import pytest

from tests.cloud.operator import eventually
from tools import cloud as tools_cloud

pytestmark = pytest.mark.timeout(900)


def boot_in(cloud, policy, count):
    """Create a server group and boot servers in it.

    :returns: the options of another member, and the racks of the servers.
    """
    group = cloud.openstack('server', 'group', 'create', '--policy', policy,
                            policy, user='demo')['id']
    member = {'by': cloud.demo, 'scheduler_hints': {'group': group}}
    cloud.built(count, **member)
    return member, [rack(node) for node in cloud.nodes() if node.instance_id]


def rack(node):
    return node.properties['capabilities'].partition(':')[2]


def test_apart(cloud):
    # More servers than hosts, so it is not hosts that are counted.
    count = tools_cloud.RACKS
    assert count > len(cloud.cloud.hosts)
    member, racks = boot_in(cloud, 'anti-affinity', count)
    assert len(set(racks)) == len(racks) == count
    eventually(cloud.agree)

    assert ('no free node matches group:spread=capability:rack'
            in cloud.fault(**member))


def test_together(cloud):
    count = cloud.cloud.nodes // tools_cloud.RACKS
    member, racks = boot_in(cloud, 'affinity', count)
    assert len(racks) == count and len(set(racks)) == 1
    # The weigher has spread them, which Nova's own filter does not allow.
    assert len({each['host'] for each in cloud.reservations()}) > 1

    assert ('no free node matches group:pack=capability:rack'
            in cloud.fault(**member))


def test_claim(cloud):
    project = cloud.demo.current_project_id
    sdk_exc.raise_from_response(cloud.system.baremetal.post(
        '/reservations', json={'resource_class': 'baremetal.gold',
                               'project_id': project}))
    [held] = cloud.reservations()
    claim = {'metadata': {'reservations:claim': held['instance_uuid']}}

    # Not another project's.
    assert 'could be found' in cloud.fault(**claim)
    assert cloud.reservations() == [held]

    [server] = cloud.built(1, by=cloud.demo, **claim)
    [now] = cloud.reservations()
    assert now['instance_uuid'] == server
    assert now['node_uuid'] == held['node_uuid']
    eventually(cloud.agree)
