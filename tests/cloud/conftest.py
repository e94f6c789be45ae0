# SPDX-License-Identifier: Apache-2.0
"""A whole cloud, as "make cloud" starts it, shared by all tests."""

import pytest

from tests.cloud import operator
from tests.cloud import standbys
from tools import services
from tools import trial_cloud


@pytest.fixture(scope='session')
def shared_cloud(tmp_path_factory):
    cloud = trial_cloud.Cloud(
        tmp_path_factory.mktemp('cloud') / 'run', services.free_ports(9),
        lease=operator.LEASE, deploy_delay=operator.DEPLOY_DELAY)
    cloud.up()
    try:
        yield operator.Operator(cloud)
    finally:
        cloud.down()


@pytest.fixture
def cloud(shared_cloud):
    """The cloud; each test starts and ends without servers."""
    yield shared_cloud
    # A failed test may have killed something.
    shared_cloud.cloud.control('start', 'all')
    shared_cloud.empty()


@pytest.fixture
def patient_cloud(cloud):
    """The cloud with Nova's default intervals, which delay its reactions."""
    cloud.reconfigure(quick=False)
    yield cloud
    cloud.reconfigure(quick=True)


@pytest.fixture
def standby(cloud):
    """A cloud whose first host has two processes; the first has the lease."""
    cloud.reconfigure(standby=True)
    standbys.wait_for_host(cloud)
    standbys.start_standby(cloud, standbys.SECOND)
    yield cloud
    cloud.reconfigure(standby=None)
    operator.eventually(cloud.assert_hosts_up)
