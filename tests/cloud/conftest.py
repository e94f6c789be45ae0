# SPDX-License-Identifier: Apache-2.0
"""A whole cloud, as "make cloud" starts it, shared by all tests."""

import contextlib
import io
import json
import os
import pathlib
import runpy
import sys

import pytest

from ironic_reservations import sdk
from tests.cloud import operator
from tests.cloud import standbys
from tools import services
from tools import trial_cloud

#: Scripts for NVIDIA's suite.
SCRIPTS = pathlib.Path(__file__).parents[2] / 'doc/source/examples/nvidia'

#: Nova 33 stops only after all of this time, even without operations.
STOP = {} if operator.COMPLETES else {'manager_shutdown_timeout': 1}


@pytest.fixture(scope='session')
def shared_cloud(tmp_path_factory):
    cloud = trial_cloud.Cloud(
        tmp_path_factory.mktemp('cloud') / 'run', services.free_ports(9),
        lease=operator.LEASE, deploy_delay=operator.DEPLOY_DELAY)
    cloud.concurrency = os.environ.get('CONCURRENCY')
    cloud.compute = STOP
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
    for name, *_ in shared_cloud.cloud.programs():
        shared_cloud.cloud.start(name)
    shared_cloud.empty()


@pytest.fixture(scope='session')
def reservations(shared_cloud):
    """The library's calls, as the operator."""
    sdk.add_to(shared_cloud.system)
    return shared_cloud.system.baremetal_reservations


@pytest.fixture
def no_notices(reservations):
    """Close all notices, before and after a test.

    Other tests let builds fail, which the driver records.
    """
    def close():
        for notice in reservations.notices():
            if notice.state != 'closed':
                reservations.close_notices(notice)
    close()
    yield
    close()


@pytest.fixture
def run_script(shared_cloud, monkeypatch):
    """Return a function that runs one of the scripts for NVIDIA's suite.

    It takes the name of a user of the cloud, and the arguments.
    """
    monkeypatch.syspath_prepend(SCRIPTS)
    for name in [name for name in os.environ if name.startswith('OS_')]:
        monkeypatch.delenv(name)
    monkeypatch.setenv('OS_CLIENT_CONFIG_FILE',
                       str(shared_cloud.cloud.folder / 'clouds.yaml'))

    def run_script(name, user, *args, status=0):
        monkeypatch.setattr(sys, 'argv', [name, '--cloud', user, *args])
        with contextlib.redirect_stdout(io.StringIO()) as output, \
                pytest.raises(SystemExit) as end:
            runpy.run_path(SCRIPTS / f'{name}.py')
        result = json.loads(output.getvalue())
        assert end.value.code == status, result
        assert result.pop('platform') == 'openstack'
        assert result.pop('success') == (status == 0)
        return result
    return run_script


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
