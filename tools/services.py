# SPDX-License-Identifier: Apache-2.0
"""The real parts as processes of our own, for quickstart, tests, benchmarks.

Every service is a context manager: started when entered, answering when the
body runs, stopped and waited for when left, however it is left. All listen
on 127.0.0.1 or on a socket in a temporary directory.
"""

import configparser
import contextlib
import dataclasses
import errno
import os
import pathlib
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import uuid

import fixtures
import openstack
from pifpaf.drivers import mysql as pifpaf_mysql
import requests
import sqlalchemy
import tenacity

from tools import mysql as unpacked_mysql

START_TIMEOUT = 60
STOP_TIMEOUT = 30

# Everything here is on loopback: a proxy of the environment would refuse it.
os.environ['no_proxy'] = '127.0.0.1,localhost'


class NotInstalled(Exception):
    """A program that a service needs is not on this machine."""


class PortTaken(Exception):
    """Something else listens on the port."""


class NotSettled(Exception):
    """Nodes did not reach the state waited for."""


class StartError(Exception):
    """A service ended, or did not answer in time, while it was started."""


def program(name):
    """Path of a console script of this Python environment."""
    return os.path.join(sysconfig.get_path('scripts'), name)


def system_path(first):
    """A PATH with a folder in front, and with those of servers.

    Debian keeps these where only root's PATH looks.
    """
    return f'{first}:{os.environ["PATH"]}:/usr/sbin:/usr/libexec'


def find(name):
    """Path of a program of the system, or None."""
    # RabbitMQ's own programs stand behind wrappers that change the user.
    return shutil.which(name, path=system_path('/usr/lib/rabbitmq/bin'))


_claims = []


def free_port():
    """A port that nobody uses, and that nobody else who asks here is given."""
    return free_ports(1)


def free_ports(count):
    """The first of so many ports in a row, which are free_port's each.

    Below those that the system gives to connections: they are to stay free
    for a while. A server takes seconds until it listens, and a cloud's last
    one is started minutes after its first, in which another process that
    starts servers would find its port free.
    """
    while True:
        first = random.randrange(20000, 32000)
        with contextlib.ExitStack() as claims, contextlib.suppress(PortTaken):
            for port in range(first, first + count):
                claims.enter_context(_claim(port))
                check_port(port)
            _claims.append(claims.pop_all())
            return first


def _claim(port):
    """A name in Linux' abstract namespace, which ends with this process."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f'\0ironic-reservations.port.{port}')
    except OSError as e:
        claim.close()
        if e.errno != errno.EADDRINUSE:
            raise
        raise PortTaken(f'port {port} is promised to another process') from e
    return claim


def check_port(port):
    """Raise PortTaken now, not after half of the services are started."""
    with socket.socket() as sock:
        # As the servers do: connections in TIME_WAIT do not count.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(('127.0.0.1', port))
        except OSError as e:
            raise PortTaken(
                f'port {port} of 127.0.0.1 cannot be used: {e.strerror}; '
                f'choose another, such as PORT={port + 10}')


def stop_on_signal():
    """Let SIGTERM unwind the stack as Ctrl-C does, and unwind it once.

    What runs us (make, tox) hands on a Ctrl-C that the terminal has sent us
    already; the second one must not end the stopping.
    """
    def interrupt(signum, frame):
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, interrupt)


# Processes

def tail(log, lines=30):
    return '\n'.join(
        pathlib.Path(log).read_text(errors='replace').splitlines()[-lines:])


def run(command, log):
    """Run a command to its end, or raise StartError with what it said."""
    with open(log, 'ab') as out:
        # It must not work on what the next run sets up, should we be killed.
        status = subprocess.run(
            ['setpriv', '--pdeathsig', 'KILL', *command],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode
    if status:
        raise StartError(f'{os.path.basename(command[0])} ended with status '
                         f'{status}; the end of {log}:\n{tail(log)}')


@contextlib.contextmanager
def running(command, log, url, env=None, kill=False):
    """A server process in its own session, once it answers at the URL.

    :param kill: let it not take its leave when it is stopped.
    """
    # A session of its own, because Ironic signals its whole process group,
    # and because Ctrl-C must reach us alone: we stop things in order.
    with open(log, 'ab') as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env={**os.environ, **(env or {})}, start_new_session=True)
    try:
        _wait_until_answering(process, log, url)
        yield process
    finally:
        try:
            if not kill:
                process.terminate()
                process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Workers too, should they have outlived their master.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_answering(process, log, url):
    name = os.path.basename(process.args[0])
    try:
        for attempt in tenacity.Retrying(
                retry=tenacity.retry_if_exception_type(
                    requests.RequestException),
                wait=tenacity.wait_fixed(0.1),
                stop=tenacity.stop_after_delay(START_TIMEOUT)):
            with attempt:
                if process.poll() is not None:
                    raise StartError(
                        f'{name} ended with status {process.returncode}; '
                        f'the end of {log}:\n{tail(log)}')
                requests.get(url, timeout=5)
    except tenacity.RetryError:
        raise StartError(f'{name} does not answer at {url} after '
                         f'{START_TIMEOUT} s; the end of {log}:\n{tail(log)}')


# Databases

@contextlib.contextmanager
def mariadb(*options):
    """A private MariaDB server; yields its URL, for database().

    :param options: more of the server's own.
    """
    names = 'mariadbd', 'mariadb', 'mariadb-install-db'
    if missing := [name for name in names if not find(name)]:
        raise NotInstalled('MariaDB is not installed: no '
                           + ', '.join(missing))
    # Without its configuration files its default is latin1.
    with _database_server([find('mariadbd')], (
            '--character-set-server=utf8mb4', *options)) as url:
        yield url


@contextlib.contextmanager
def mysql(*options):
    """The same of MySQL."""
    try:
        program, needed = unpacked_mysql.command()
    except unpacked_mysql.NotToBeHad as e:
        raise NotInstalled(str(e))
    # Without a binary log, as MariaDB, and without the X protocol's port.
    with _database_server(program, (*needed, '--disable-log-bin',
                                    '--mysqlx=0', *options)) as url:
        yield url


@contextlib.contextmanager
def _database_server(program, options):
    # pifpaf calls the programs by names that MariaDB 11 no longer installs,
    # waits for a line that begins with such a name, and knows no options.
    with tempfile.TemporaryDirectory() as directory:
        for name, words in {
                'mysqld': (*program, '"$@"', *options),
                'mysql': (find('mariadb'), '"$@"'),
                'mysql_install_db': (find('mariadb-install-db'), '"$@"')
        }.items():
            script = pathlib.Path(directory, name)
            script.write_text(f'#!/bin/bash\nexec -a {name} ' + ' '.join(
                word if word == '"$@"' else shlex.quote(word)
                for word in words if word) + '\n')
            script.chmod(0o755)
        with fixtures.EnvironmentVariable('PATH', system_path(directory)), \
                pifpaf_mysql.MySQLDriver() as server:
            yield ('mysql+pymysql://root@localhost/?unix_socket='
                   + server.socket)


@contextlib.contextmanager
def database(server_url, name=None):
    """A new database on the server; yields its URL, drops it at the end."""
    name = name or f'test_{uuid.uuid4().hex}'
    engine = sqlalchemy.create_engine(
        server_url, isolation_level='AUTOCOMMIT',
        poolclass=sqlalchemy.NullPool)

    def execute(statement):
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)

    execute(f'CREATE DATABASE {name}')
    try:
        yield engine.url.set(database=name).render_as_string(
            hide_password=False)
    finally:
        execute(f'DROP DATABASE {name}')


# Ironic

@dataclasses.dataclass(frozen=True)
class Service:
    """A running API."""
    port: int
    conf_file: str
    database_url: str
    log: str
    process: subprocess.Popen = dataclasses.field(repr=False)

    @property
    def url(self):
        return f'http://127.0.0.1:{self.port}'


@contextlib.contextmanager
def ironic(directory, database_url, port, config=None, plugin=True,
           kill=False, empty=True):
    """The all-in-one Ironic, API and conductor, on a database.

    :param directory: for ironic.conf, ironic.log and locks
    :param config: options over our own, ``{section: {option: value}}``
    :param plugin: False is a stock Ironic, without our table and middleware
    :param kill: its database is not needed afterwards: to stop takes it six
        seconds otherwise
    :param empty: the database has no schema yet: to make it takes ten seconds
    """
    check_port(port)
    directory = pathlib.Path(directory)
    log = str(directory / 'ironic.log')
    conf_file = _write_conf(directory, database_url, port,
                            config or {}, plugin)
    if empty:
        create_schema(conf_file, log, plugin)
    with running([program('ironic'), '--config-file', conf_file], log,
                 f'http://127.0.0.1:{port}/v1', kill=kill) as process:
        yield Service(port, conf_file, database_url, log, process)


def create_schema(conf_file, log, plugin=True):
    """Ironic's own schema in an empty database, and our table."""
    run([program('ironic-dbsync'), '--config-file', conf_file,
         'create_schema'], log)
    if plugin:
        run([program('ironic-reservations-dbsync'), '--config-file',
             conf_file, 'upgrade'], log)


#: ``[DEFAULT]`` of an Ironic whose nodes do all that they are told at once.
FAKE_HARDWARE = {
    'enabled_hardware_types': 'fake-hardware',
    'enabled_bios_interfaces': 'no-bios',
    'enabled_boot_interfaces': 'fake',
    'enabled_console_interfaces': 'no-console',
    'enabled_deploy_interfaces': 'fake',
    'enabled_firmware_interfaces': 'no-firmware',
    'enabled_inspect_interfaces': 'no-inspect',
    'enabled_management_interfaces': 'fake',
    'enabled_network_interfaces': 'noop',
    'enabled_power_interfaces': 'fake',
    'enabled_raid_interfaces': 'no-raid',
    'enabled_rescue_interfaces': 'no-rescue',
    'enabled_storage_interfaces': 'noop',
    'enabled_vendor_interfaces': 'no-vendor',
    'default_network_interface': 'noop',
}


def _write_conf(directory, database_url, port, config, plugin):
    conf = configparser.RawConfigParser()
    conf.read_dict({
        'DEFAULT': {**FAKE_HARDWARE, 'auth_strategy': 'noauth',
                    'rpc_transport': 'none', 'my_ip': '127.0.0.1'},
        'api': {'host_ip': '127.0.0.1', 'port': port},
        'conductor': {'automated_clean': 'false'},
        'database': {'connection': database_url},
        'oslo_concurrency': {'lock_path': directory / 'lock'},
    })
    if plugin:
        conf['api']['middleware'] = 'reservations'
    conf.read_dict(config)
    return write_conf(directory / 'ironic.conf', conf)


def read_conf(path):
    """The sections and options of a file, a dict of dicts of text."""
    conf = configparser.RawConfigParser(default_section='')
    with open(path) as f:
        conf.read_file(f)
    return {section: dict(conf[section]) for section in conf.sections()}


def write_conf(path, config):
    conf = configparser.RawConfigParser()
    conf.read_dict(config)
    with open(path, 'w') as f:
        conf.write(f)
    return str(path)


@contextlib.contextmanager
def uwsgi(application, conf_file, port, processes=4, keepalive=False,
          buffer=True):
    """A WSGI application in processes of its own, beside an ironic().

    :param application: ``ironic_reservations.wsgi:application``, ours alone,
        or ``ironic.wsgi:application``, Ironic's API with us in it, if that
        ironic() has ``rpc_transport = json-rpc``
    :param keepalive: let clients keep their connections, which uWSGI's router
        holds in front of the workers
    :param buffer: let uWSGI read a body before the application does; else it
        resets the connection when a body was not read
    """
    check_port(port)
    log = os.path.join(os.path.dirname(conf_file), f'uwsgi-{port}.log')
    with _uwsgi(application, log, port, '/v1/reservations', processes,
                {'OS_IRONIC_RESERVATIONS_CONFIG_FILES': conf_file},
                '--pyargv', f'--config-file {conf_file}',
                *(['--post-buffering', '65536'] if buffer else []),
                keepalive=keepalive) as process:
        yield Service(port, conf_file,
                      read_conf(conf_file)['database']['connection'], log,
                      process)


def _uwsgi(application, log, port, path, processes, env, *more, **kwargs):
    return running(uwsgi_command(application, port, processes, *more,
                                 **kwargs),
                   log, f'http://127.0.0.1:{port}{path}', env)


def uwsgi_command(application, port, processes, *more, keepalive=False):
    address = f'127.0.0.1:{port}'
    # An answer that is longer than the router's buffer, a page by default,
    # waits 40 ms for the client to acknowledge the first part.
    listen = (['--http', address, '--http-keepalive=60',
               '--http-buffer-size', '65536'] if keepalive else
              # It closes every connection, and clients must know.
              ['--http-socket', address, '--add-header', 'Connection: close'])
    # Nova asks Neutron for the ports of all servers of a list in one URL, for
    # which a page, the default, is too short.
    return [program('uwsgi'), *listen, '--buffer-size', '65535',
            '--module', application, '--need-app', *more,
            '--master', '--processes', str(processes), '--enable-threads',
            '--die-on-term', '--no-orphans', '--disable-logging']


# Nova and Glance, for flavors and images

@contextlib.contextmanager
def nova(directory, port):
    """Nova's API alone: everyone is an admin, and there are flavors."""
    directory = pathlib.Path(directory)
    conf_file = write_conf(directory / 'nova.conf', {
        'DEFAULT': {'transport_url': 'fake://', 'state_path': directory},
        'api_database': {'connection': f'sqlite:///{directory}/api.sqlite'},
        'database': {'connection': f'sqlite:///{directory}/nova.sqlite'},
        'oslo_concurrency': {'lock_path': directory / 'lock'},
    })
    _write_paste(directory, 'nova/api-paste.ini')
    log = str(directory / 'nova.log')
    for sync in (['api_db', 'sync'], ['db', 'sync', '--local_cell']):
        run([program('nova-manage'), '--config-file', conf_file, *sync], log)
    with _uwsgi('nova.wsgi.osapi_compute:application', log, port, '/v2.1/', 1,
                {'OS_NOVA_CONFIG_DIR': str(directory)}, *_ADMIN):
        yield f'http://127.0.0.1:{port}/v2.1'


@contextlib.contextmanager
def glance(directory, port):
    """Glance's API, where everyone is an admin; images are files."""
    directory = pathlib.Path(directory)
    conf_file = write_conf(directory / 'glance-api.conf', {
        'DEFAULT': {'enabled_backends': 'file:file',
                    'worker_self_reference_url': f'http://127.0.0.1:{port}'},
        'glance_store': {'default_backend': 'file'},
        **{store: {'filesystem_store_datadir': directory / store} for store in
           ('file', 'os_glance_staging_store', 'os_glance_tasks_store')},
        'database': {'connection': f'sqlite:///{directory}/glance.sqlite'},
        'paste_deploy': {
            'flavor': 'keystone',
            'config_file': _write_paste(directory,
                                        'glance/glance-api-paste.ini')},
        'oslo_concurrency': {'lock_path': directory / 'lock'},
    })
    log = str(directory / 'glance.log')
    run([program('glance-manage'), '--config-file', conf_file, 'db_sync'],
        log)
    with _uwsgi('glance.wsgi.api:application', log, port, '/', 1,
                {'OS_GLANCE_CONFIG_DIR': str(directory)}, *_ADMIN):
        yield f'http://127.0.0.1:{port}'


# Neither knows a "noauth" any more that may do anything: instead of
# keystonemiddleware, uWSGI says who calls.
_ADMIN = [word for name, value in (
              ('IDENTITY_STATUS', 'Confirmed'), ('USER_ID', 'admin'),
              ('PROJECT_ID', 'admin'), ('ROLES', 'admin'))
          for word in ('--route-run', f'addvar:HTTP_X_{name}={value}')]


def _write_paste(directory, installed):
    """The service's own paste file, without the check of tokens."""
    installed = pathlib.Path(sys.prefix, 'etc', installed)
    paste = pathlib.Path(directory, installed.name)
    paste.write_text(installed.read_text().replace(' authtoken ', ' '))
    return str(paste)


# Keystone

def set_up_keystone(directory, database_url, url, password):
    """Configuration, schema, keys, administrator; returns the log's path."""
    conf_file = write_conf(directory / 'keystone.conf', {
        'database': {'connection': database_url},
        **{kind: {'key_repository': directory / 'fernet-keys'}
           for kind in ('fernet_tokens', 'fernet_receipts')},
        # Nobody has the time for good hashes here.
        'identity': {'password_hash_rounds': 4},
        # Each service asks about each token. Whoever starts Keystone starts
        # one process alone, as it does not notice what another one changes.
        'cache': {'enabled': 'true', 'backend': 'dogpile.cache.memory'},
    })
    log = str(directory / 'keystone.log')
    for command in (['db_sync'],
                    ['fernet_setup', '--keystone-user', str(os.getuid()),
                     '--keystone-group', str(os.getgid())],
                    ['bootstrap', '--bootstrap-password', password,
                     '--bootstrap-public-url', url,
                     '--bootstrap-internal-url', url,
                     '--bootstrap-region-id', 'RegionOne']):
        run([program('keystone-manage'), '--config-file', conf_file,
             *command], log)
    return log


@contextlib.contextmanager
def keystone(directory, port):
    """Keystone's API; yields what its administrator logs in with.

    A dict for ``openstack.connect(auth=...)``, without a scope; ``admin`` has
    the role of that name on the project ``admin`` and on the system.
    """
    check_port(port)
    directory = pathlib.Path(directory)
    url = f'http://127.0.0.1:{port}/v3'
    password = uuid.uuid4().hex
    log = set_up_keystone(
        directory, f'sqlite:///{directory}/keystone.sqlite', url, password)
    with _uwsgi('keystone.wsgi.api:application', log, port, '/v3', 1,
                {'OS_KEYSTONE_CONFIG_DIR': str(directory)}):
        yield {'auth_url': url, 'username': 'admin', 'password': password,
               'user_domain_id': 'default'}


# Clients

def connect(url, service='baremetal'):
    """The SDK's proxy for a service without authentication.

    It keeps no connection: Ironic's server closes one after ten idle seconds,
    and a request that goes out in that moment has no answer.
    """
    connection = openstack.connect(
        load_envvars=False, load_yaml_config=False, auth_type='none',
        endpoint=url)
    connection.session.additional_headers['Connection'] = 'close'
    return getattr(connection, service)


def cli_environment(url):
    """What the openstack command needs, and nothing of the caller's cloud."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith('OS_')},
        'PATH': os.pathsep.join([sysconfig.get_path('scripts'),
                                 os.environ['PATH']]),
        'OS_AUTH_TYPE': 'none',
        'OS_ENDPOINT': url,
    }


# Fleets

def enrol(baremetal, nodes, progress=iter):
    """Create nodes that are available, unlocked, and powered off.

    One after the other: Ironic's API is the bottleneck, and on SQLite it
    answers 500 when traits are set while a conductor writes.

    :param nodes: dicts of Ironic's node fields, and ``traits``
    :param progress: wraps the nodes while they are created
    :returns: the nodes, in the order given
    """
    created = [_create(baremetal, **fields) for fields in progress(nodes)]
    # Ironic knows no power state of fake hardware until it is told one.
    for node in created:
        baremetal.set_node_power_state(node, 'power off')
    return settle(baremetal, created, power_state='power off')


def _create(baremetal, traits=None, **fields):
    # The first API versions create nodes as available: no waiting for
    # manage and provide, but all newer fields are a matter of an update.
    node = baremetal.create_node(driver='fake-hardware',
                                 provision_state='available')
    baremetal.update_node(node, **fields)
    if traits:
        baremetal.set_node_traits(node, traits)
    return node


@tenacity.retry(wait=tenacity.wait_fixed(0.1),
                stop=tenacity.stop_after_delay(60),
                retry=tenacity.retry_if_exception_type(NotSettled),
                reraise=True)
def settle(baremetal, nodes, **wanted):
    """Wait until the nodes are as wanted and no conductor has them locked.

    The SDK's own waits poll every two seconds and see a node before its
    lock is gone.

    :returns: the nodes as they are then
    """
    found = {node.id: node for node in baremetal.nodes(
        details=True, include_children=True)}
    nodes = [found[node.id] for node in nodes]
    for node in nodes:
        state = {field: node[field] for field in wanted}
        if node.reservation or state != wanted:
            raise NotSettled(f'node {node.id}: {state}, wanted {wanted}, lock '
                             f'{node.reservation}, error {node.last_error}')
    return nodes


def remove(baremetal, nodes):
    """Delete nodes, whatever became of them."""
    for node in nodes:
        # Ironic deletes any node in maintenance, held and deployed ones too.
        baremetal.set_node_maintenance(node)
        baremetal.delete_node(node)
