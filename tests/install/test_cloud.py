# SPDX-License-Identifier: Apache-2.0
"""A whole cloud with Nova and Ironic of OpenStack 2025.1.

Our application runs next to Ironic, behind the proxy of the guide
"deploying". The other services are those of the tests.
"""

import pytest

from ironic_reservations import conf as our_conf
from tests.cloud import operator
from tests.cloud import test_lost_host
from tests.install import environments
from tools import services
from tools import trial_cloud

#: Prefixes of the programs of 2025.1.
OLDER = 'ironic-conductor', 'ironic-dbsync', 'nova-'


class Cloud(trial_cloud.Cloud):
    """A cloud whose proxy has Ironic's port.

    :param environment: with the programs of 2025.1.
    """

    def __init__(self, environment, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.older = environment
        self.ironic_port = services.free_ports(2)
        self.our_port = self.ironic_port + 1

    def configure(self):
        super().configure()
        path = self.folder / 'ironic' / 'ironic.conf'
        conf = services.read_conf(path)
        del conf['api']
        conf['reservations']['max_api_version'] = '1.96'
        services.write_conf(path, conf)
        text = (trial_cloud.EXAMPLES / 'haproxy.cfg').read_text()
        for port, new in ((6380, self.port['ironic']),
                          (6385, self.ironic_port), (6386, self.our_port)):
            text = text.replace(f'127.0.0.1:{port}', f'127.0.0.1:{new}')
        (self.folder / 'haproxy.cfg').write_text(text)

    def programs(self):
        for name, command, environment in super().programs():
            if name in ('ironic', 'nova'):
                command[0] = str(self.older.bin / 'uwsgi')
            if name == 'ironic':
                address = f'127.0.0.1:{self.port[name]}'
                command[command.index(address)] = (
                    f'127.0.0.1:{self.ironic_port}')
                yield 'proxy', [services.find('haproxy'), '-db', '-f',
                                self.folder / 'haproxy.cfg'], {}
                yield 'application', services.uwsgi_command(
                    'ironic_reservations.wsgi:application', self.our_port,
                    2), {our_conf.FILES_VARIABLE:
                         self.folder / 'ironic' / 'ironic.conf'}
            yield name, command, environment

    def start(self, *names):
        super().start(*(['proxy', 'application'] if 'ironic' in names
                        else []), *names)


@pytest.fixture
def cloud(environment, wheel, tmp_path, monkeypatch):
    environment.install(
        '-c', environments.CONSTRAINTS / '2025.1.txt', 'ironic==29.1.0',
        'nova==31.3.1', 'pyuwsgi', f'{wheel}[mysql,nova]')
    program = services.program
    monkeypatch.setattr(services, 'program', lambda name: (
        str(environment.bin / name) if name.startswith(OLDER)
        else program(name)))
    cloud = Cloud(environment, tmp_path / 'run', services.free_ports(9),
                  lease=operator.LEASE)
    cloud.up()
    try:
        yield operator.Operator(cloud)
    finally:
        cloud.down()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_servers(cloud):
    """Servers are built, moved from a dead host to another, and deleted."""
    test_lost_host.test_move(cloud)
    # The test has removed the dead host.
    cloud.cloud.start(*cloud.cloud.hosts)
    cloud.empty()
