# SPDX-License-Identifier: Apache-2.0
"""A whole cloud, as "make cloud" starts it, shared by all tests.

A test begins and ends with a cloud that has no servers.
"""

import pytest

from tests.cloud import operator
from tools import cloud as tools_cloud
from tools import services

#: Seconds. Several times [DEFAULT] update_resources_interval.
LEASE = 25
#: Seconds that each half of a deploy takes: long enough to kill something.
DEPLOY = 4


@pytest.fixture(scope='session')
def shared_cloud(tmp_path_factory):
    cloud = tools_cloud.Cloud(
        tmp_path_factory.mktemp('cloud') / 'run', services.free_ports(9),
        lease=LEASE, deploy_delay=DEPLOY)
    cloud.up()
    try:
        yield operator.Operator(cloud)
    finally:
        cloud.down()


@pytest.fixture
def cloud(shared_cloud):
    """The cloud without servers, and again so at the end."""
    yield shared_cloud
    # Should a test have left something killed.
    shared_cloud.cloud.control('start', 'all')
    shared_cloud.empty()


@pytest.fixture
def patient_cloud(cloud):
    """The cloud, with Nova's own intervals, which decide when it is late."""
    cloud.reconfigure(quick=False)
    yield cloud
    cloud.reconfigure(quick=True)
