# SPDX-License-Identifier: Apache-2.0
"""The credentials and the lock of the trial cloud, without its services."""

import contextlib
import os
import pathlib
import subprocess
import sys

from openstack import config as openstack_config
import pytest

from tests.common import programs
from tools import services
from tools import trial_cloud

ROOT = pathlib.Path(__file__).parents[2]
#: "make cloud", whose services never complete their start.
START = """
import time

from tools import trial_cloud


def start(cloud):
    print('starting', flush=True)
    time.sleep(600)


trial_cloud.Cloud._up = start
trial_cloud.main()
"""


@pytest.fixture
def cloud(tmp_path):
    cloud = trial_cloud.Cloud(tmp_path)
    cloud.write_credentials()
    return cloud


@pytest.mark.parametrize('user', trial_cloud.USERS)
def test_openrc_replaces_other_credentials(cloud, user):
    """Also those that "make serve" prints."""
    others = {'OS_AUTH_TYPE': 'none', 'OS_ENDPOINT': 'http://127.0.0.1:1',
              'OS_CLOUD': 'prod', 'OS_USER_DOMAIN_ID': 'default',
              **cloud.environment('admin'), **cloud.environment('system')}
    output = programs.run(
        'sh', '-euc', f'. {cloud.folder}/{user}-openrc; env | grep ^OS_',
        env={'PATH': os.environ['PATH'], **others})
    assert set(output.splitlines()) == {
        f'{name}={value}' for name, value in cloud.environment(user).items()}


def test_openrc_in_a_new_shell(cloud):
    output = programs.run(
        'sh', '-euc', f'. {cloud.folder}/demo-openrc; command -v openstack',
        env={'PATH': '/usr/bin:/bin'})
    assert output == f'{services.program("openstack")}\n'


def test_path_in_the_guides(cloud):
    """The commands may be those of another environment than py3."""
    cloud.write_credentials()
    line, = {line.strip() for path in (ROOT / 'doc/source').rglob('*.rst')
             for line in path.read_text().splitlines()
             if '$ export PATH=' in line}
    assert programs.run(
        'sh', '-euc', line.removeprefix('$ ').replace(
            f'$PWD/{trial_cloud.FOLDER}', str(cloud.folder))
        + '; command -v openstack', env={'PATH': '/usr/bin:/bin'}
    ) == f'{cloud.folder}/bin/openstack\n'


@pytest.mark.parametrize(('user', 'scope'), [
    ('admin', {'project_name': 'admin'}), ('system', {'system_scope': 'all'}),
    ('demo', {'project_name': 'demo'})])
def test_clouds(cloud, user, scope):
    region = openstack_config.OpenStackConfig(
        config_files=[str(cloud.folder / 'clouds.yaml')],
        load_envvars=False).get_one(user)
    auth = region.get_auth()
    for name in 'project_name', 'system_scope':
        assert getattr(auth, f'_{name}') == scope.get(name)


@pytest.mark.parametrize(('concurrency', 'value'), [
    (None, None), ('eventlet', 'false'), ('threading', 'true')])
def test_concurrency(tmp_path, concurrency, value):
    """Nova's services but its API run with eventlet, or with threads."""
    cloud = trial_cloud.Cloud(tmp_path)
    cloud.concurrency = concurrency
    assert {name: environment[trial_cloud.DISABLE_EVENTLET]
            for name, _, environment in cloud.programs()
            if trial_cloud.DISABLE_EVENTLET in environment
            } == (dict.fromkeys(('nova-conductor', 'nova-scheduler',
                                 *cloud.hosts), value) if value else {})


@pytest.mark.parametrize(('setting', 'error'), [
    ('RELEASE=2026.3', 'RELEASE must be 2026.2 or 2026.1, not 2026.3'),
    ('CONCURRENCY=threads',
     "CONCURRENCY must be eventlet or threading, not 'threads'")])
def test_unknown_setting(tmp_path, setting, error):
    assert error in programs.run(
        'make', '-C', ROOT, '-o', 'environment', 'cloud', setting,
        f'DIR={tmp_path}', status=2)


@contextlib.contextmanager
def starting(*args):
    """Run "make cloud" until its services start; yield the process."""
    with subprocess.Popen([sys.executable, '-c', START, 'up', *args],
                          stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == 'starting\n'
            yield process
        finally:
            process.kill()


def test_one_command_at_a_time(tmp_path):
    args = '--dir', str(tmp_path), '--port', str(services.free_ports(9))
    for _ in range(2):
        with starting(*args) as process:
            for command in 'down', 'up':
                output = programs.run(
                    sys.executable, '-m', 'tools.trial_cloud', command, *args,
                    status=1)
                assert output == (
                    f'make cloud is still running (pid {process.pid}); '
                    f'wait for its end, or stop it with Ctrl-C\n')
    # The lock ended with the process, which was killed.
    output = programs.run(sys.executable, '-m', 'tools.trial_cloud', 'down',
                          *args, status=1)
    assert output == f'No cloud is running in {tmp_path}\n'
