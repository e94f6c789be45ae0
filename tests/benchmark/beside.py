# SPDX-License-Identifier: Apache-2.0
"""The same fleet elsewhere: another driver, another database, with Keystone.

Each of these is measured in the rounds of the last fleet, one after the other.
"""

import contextlib
import getpass
import importlib.util
import pathlib
import socket
import subprocess
import tempfile

from keystoneauth1 import session as ks_session
from keystoneauth1.identity import v3
import tenacity

from tests.benchmark import fleet
from tests.common import keystone as keystones
from tools import services


@contextlib.contextmanager
def mysqlclient(ironic, size):
    """On the same database by mysqlclient."""
    if not importlib.util.find_spec('MySQLdb'):
        raise services.NotInstalled('mysqlclient is not installed')
    conf = services.read_conf(ironic.conf_file)
    conf['database']['connection'] = conf['database']['connection'].replace(
        'mysql+pymysql', 'mysql')
    yield _configured(ironic, conf, 'mysqlclient'), {}


@contextlib.contextmanager
def keystone(ironic, size):
    """On the same database, with tokens of a real Keystone.

    What Keystone has said of a token is kept in memcached, as installers have
    it.
    """
    if not services.find('memcached'):
        raise services.NotInstalled('memcached is not installed')
    conf = services.read_conf(ironic.conf_file)
    with tempfile.TemporaryDirectory() as folder, services.keystone(
            folder, services.free_port()) as auth, _memcached() as memcached:
        added = keystones.config(auth)
        conf['DEFAULT'] |= added['DEFAULT']
        conf['keystone_authtoken'] = {
            **added['keystone_authtoken'], 'memcached_servers': memcached}
        token = ks_session.Session(v3.Password(
            **auth, system_scope='all')).get_token()
        yield _configured(ironic, conf, 'keystone'), {'X-Auth-Token': token}


@contextlib.contextmanager
def mysql(ironic, size):
    """On another database: MySQL, with a fleet of the same size."""
    with services.mysql() as server, fleet.ironic(server, size) as other:
        fleet.end(other)
        yield other, {}


#: By what the names of the figures end with.
ALL = {'mysqlclient': mysqlclient, 'with Keystone': keystone, 'MySQL': mysql}


@contextlib.contextmanager
def _memcached():
    address = f'127.0.0.1:{services.free_port()}'
    host, port = address.split(':')
    with subprocess.Popen([
            services.find('memcached'), '-l', host, '-p', port,
            '-u', getpass.getuser()]) as process:
        try:
            tenacity.Retrying(stop=tenacity.stop_after_delay(10),
                              wait=tenacity.wait_fixed(0.1), reraise=True)(
                socket.create_connection, (host, int(port))).close()
            yield address
        finally:
            process.terminate()


def _configured(ironic, conf, name):
    """A service with another configuration: only its files are of use."""
    path = pathlib.Path(ironic.conf_file).with_suffix(f'.{name}')
    return services.Service(0, services.write_conf(path, conf),
                            ironic.database_url, '', None)
