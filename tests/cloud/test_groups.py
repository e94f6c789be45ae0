# SPDX-License-Identifier: Apache-2.0
"""A server group in a cloud whose hosts and racks are several.

The other policies, and claims, are in tests/nova/test_groups.py.
"""

import pytest

from tests.cloud.operator import eventually
from tools import cloud as tools_cloud

pytestmark = pytest.mark.timeout(900)


def rack(node):
    return node.properties['capabilities'].partition(':')[2]


def test_together(cloud):
    count = cloud.cloud.nodes // tools_cloud.RACKS
    group = cloud.openstack('server', 'group', 'create', '--policy',
                            'affinity', 'group', user='demo')['id']
    member = {'by': cloud.demo, 'scheduler_hints': {'group': group}}
    cloud.built(count, **member)
    racks = [rack(node) for node in cloud.nodes() if node.instance_id]
    assert len(racks) == count and len(set(racks)) == 1
    # The weigher has spread them, which Nova's own filter does not allow.
    assert len({each['host'] for each in cloud.reservations()}) > 1
    assert ('no free node matches group:pack=capability:rack'
            in cloud.fault(**member))
    eventually(cloud.agree)
