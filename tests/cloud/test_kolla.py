# SPDX-License-Identifier: Apache-2.0
"""Two nova-compute with the files that "tox -e kolla" has rendered."""

import signal
import time

import pytest

from tests.cloud import operator
from tests.cloud import standbys
from tests.functional import test_kolla
from tools import services
from tools import trial_cloud

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

HOST = 'controller-1-ironic'
#: The queues of all of Nova's services must have the same properties.
QUEUES = ('rabbit_quorum_queue', 'rabbit_stream_fanout',
          'rabbit_transient_quorum_queue', 'rabbit_qos_prefetch_count')


class Cloud(trial_cloud.Cloud):
    """A cloud with one host, which two controllers serve."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.hosts, self.standby = [HOST], True

    def files(self):
        """Return the file of each controller by the name of its process."""
        return {process: test_kolla.RECORD / path for process, path in zip(
            self.computes, test_kolla.COMPUTES, strict=True)}

    def configure(self):
        super().configure()
        for process, path in self.files().items():
            conf = services.read_conf(path)
            self.write_addresses(process, conf)
        path = self.folder / 'nova/nova.conf'
        services.write_conf(path, {
            **services.read_conf(path), 'oslo_messaging_rabbit': {
                name: conf['oslo_messaging_rabbit'][name]
                for name in QUEUES}})

    def write_addresses(self, process, conf):
        """Write a second file, with what differs in the trial cloud."""
        path = self.folder / process / 'nova.conf'
        ours = services.read_conf(path)
        login = {'auth_url': self.url('keystone'),
                 'password': trial_cloud.PASSWORD}
        logins = {section: {**login, 'valid_interfaces': 'public'}
                  for section in ('neutron', 'placement', 'service_user')}
        assert conf['DEFAULT']['host'] == ours['DEFAULT'].pop('host')
        services.write_conf(path, {
            **logins, 'DEFAULT': {
                # Its paths, and what fake machines need.
                **{name: ours['DEFAULT'][name] for name in (
                    *trial_cloud.QUICK, 'my_ip', 'transport_url',
                    'state_path', 'mkisofs_cmd',
                    'sync_power_state_interval')},
                'log_dir': '', 'log_file': ''},
            'glance': ours['glance'],
            'ironic': {**login,
                       'endpoint_override': self.url('ironic', '/v1')},
            'oslo_concurrency': ours['oslo_concurrency']})

    def programs(self):
        files = self.files()
        for name, command, environment in super().programs():
            if name in files:
                command[1:1] = ['--config-file', files[name]]
            yield name, command, environment


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path / 'run', services.free_ports(9))
    cloud.up()
    try:
        yield operator.Operator(cloud)
    finally:
        cloud.down()


def test_two_controllers(cloud):
    """One works; when it dies, the other one takes over."""
    def check_standby():
        lease = standbys.get_lease(cloud, HOST)
        assert lease['standbys'] == 1
        return lease['holder']

    holder = operator.eventually(check_standby)
    [server] = cloud.boot_on(HOST, 1)
    start = time.monotonic()
    cloud.cloud.signal(HOST, signal.SIGKILL)
    standbys.wait_for_takeover(cloud, holder, start, HOST)
    cloud.reboot([server], start)
    [other] = cloud.boot_on(HOST, 1)
    assert {server.compute_host for server in cloud.servers()} == {HOST}
    assert {server, other} == {
        node.instance_id for node in cloud.nodes() if node.instance_id}
    operator.eventually(cloud.assert_consistent)
    cloud.empty()
