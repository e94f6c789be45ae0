# SPDX-License-Identifier: Apache-2.0
"""Starts real services, for the quickstart, the tests and the benchmarks.

Each service is a context manager. It responds when the body runs, and it has
stopped when the context manager exits. All services listen on 127.0.0.1 or on
a socket in a temporary directory.
"""

import base64
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
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
from typing import Any
import uuid

import fixtures
import openstack
from pifpaf.drivers import mysql as pifpaf_mysql
import requests
import sqlalchemy
import tenacity

from tools import mysql_packages

#: A path, as text or as an object.
Path = str | os.PathLike[str]

#: Options by section. Values become text.
Config = Mapping[str, Mapping[str, Any]]

START_TIMEOUT = 60
STOP_TIMEOUT = 30

# Services listen on loopback, which a proxy of the environment would refuse.
os.environ['no_proxy'] = '127.0.0.1,localhost'


class NotInstalled(Exception):
    """A program that a service needs is not installed."""


class PortTaken(Exception):
    """Another process uses the port."""


class NotSettled(Exception):
    """Nodes did not reach the expected state in time."""


class StartError(Exception):
    """A service exited or did not respond in time while it was started."""


def program(name: str) -> str:
    """Return the path of a console script of this Python environment."""
    return os.path.join(sysconfig.get_path('scripts'), name)


def system_path(first: str) -> str:
    """Return a PATH that begins with a folder and includes servers.

    Debian installs servers in folders that only root's PATH contains.
    """
    return f'{first}:{os.environ["PATH"]}:/usr/sbin:/usr/libexec'


def find(name: str) -> str | None:
    """Return the path of a program of the system, or None."""
    # RabbitMQ's wrappers in /usr/sbin change the user; the programs do not.
    return shutil.which(name, path=system_path('/usr/lib/rabbitmq/bin'))


#: The claims of this process; they end when the process ends.
_claims: list[contextlib.ExitStack] = []


def free_port() -> int:
    """Claim a free port; see ``free_ports``."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Claim consecutive free ports, and return the first.

    A server takes seconds until it listens, and the last server of a cloud
    starts minutes after the first. Therefore no other process can claim the
    ports, and they are below those that the system uses for connections.
    """
    while True:
        first = random.randrange(20000, 32000)
        with contextlib.ExitStack() as claims, contextlib.suppress(PortTaken):
            for port in range(first, first + count):
                claims.enter_context(_claim(port))
                check_port(port)
            _claims.append(claims.pop_all())
            return first


def _claim(port: int) -> socket.socket:
    """Bind a name in Linux' abstract namespace, which ends with the process.

    :raises: PortTaken.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f'\0ironic-reservations.port.{port}')
    except OSError as e:
        claim.close()
        if e.errno != errno.EADDRINUSE:
            raise
        raise PortTaken(f'port {port} is claimed by another process') from e
    return claim


def check_port(port: int) -> None:
    """Check that a port is free, before other services are started.

    :raises: PortTaken.
    """
    with socket.socket() as sock:
        # Ignore connections in TIME_WAIT, as the servers do.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(('127.0.0.1', port))
        except OSError as e:
            raise PortTaken(
                f'port {port} of 127.0.0.1 cannot be used: {e.strerror}; '
                f'choose another, such as PORT={port + 10}')


def stop_on_signal() -> None:
    """Make SIGTERM unwind the stack as Ctrl-C does, and unwind it once.

    The terminal sends Ctrl-C to us and to our parent (make, tox), which
    forwards it to us. The second signal must not interrupt the cleanup.
    """
    def interrupt(signum: int, frame: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


# Processes

def tail(log: Path, lines: int = 30) -> str:
    """Return the last lines of a log."""
    return '\n'.join(
        pathlib.Path(log).read_text(errors='replace').splitlines()[-lines:])


def run(command: Sequence[str], log: Path) -> None:
    """Run a command, and append its output to a log.

    :raises: StartError with the end of the log if the command fails.
    """
    with open(log, 'ab') as out:
        # If we are killed, it must not interfere with the next run.
        status = subprocess.run(
            ['setpriv', '--pdeathsig', 'KILL', *command],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode
    if status:
        raise StartError(f'{os.path.basename(command[0])} ended with status '
                         f'{status}; the end of {log}:\n{tail(log)}')


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, url: str,
            env: Mapping[str, str] | None = None,
            kill: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server; yield its process when it responds at the URL.

    :param kill: stop it with SIGKILL, without a clean shutdown.
    """
    # In its own session, because Ironic signals its whole process group, and
    # because Ctrl-C must reach only us, who stop services in order.
    with open(log, 'ab') as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env={**os.environ, **(env or {})}, start_new_session=True)
    try:
        _wait_for_response(process, log, url)
        yield process
    finally:
        try:
            if not kill:
                process.terminate()
                process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # The workers, too, in case they have outlived their master.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for_response(process: subprocess.Popen[bytes], log: Path,
                       url: str) -> None:
    name = os.path.basename(process.args[0])  # type: ignore[index,arg-type]
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
        raise StartError(f'{name} did not respond at {url} within '
                         f'{START_TIMEOUT} s; the end of {log}:\n{tail(log)}')


# Databases

@contextlib.contextmanager
def mariadb(*options: str) -> Iterator[str]:
    """Run a private MariaDB server; yield its URL for ``database``.

    :param options: additional options of the server.
    """
    names = 'mariadbd', 'mariadb', 'mariadb-install-db'
    if missing := [name for name in names if not find(name)]:
        raise NotInstalled('MariaDB is not installed: no '
                           + ', '.join(missing))
    # The server's default without configuration files is latin1.
    with _database_server([find('mariadbd') or ''], (
            '--character-set-server=utf8mb4', *options)) as url:
        yield url


@contextlib.contextmanager
def mysql(*options: str) -> Iterator[str]:
    """Run a private MySQL server; see ``mariadb``."""
    try:
        program, last_options = mysql_packages.make_command()
    except mysql_packages.Unavailable as e:
        raise NotInstalled(str(e))
    # Without a binary log, like MariaDB, and without the X protocol's port.
    with _database_server(program, (*last_options, '--disable-log-bin',
                                    '--mysqlx=0', *options)) as url:
        yield url


@contextlib.contextmanager
def _database_server(program: Sequence[str],
                     options: Sequence[str]) -> Iterator[str]:
    # pifpaf calls the programs by names that MariaDB 11 no longer installs,
    # waits for a line that begins with such a name, and takes no options.
    client, install_db = find('mariadb'), find('mariadb-install-db')
    with tempfile.TemporaryDirectory() as directory:
        for name, words in {
                'mysqld': (*program, '"$@"', *options),
                'mysql': (client, '"$@"'),
                'mysql_install_db': (install_db, '"$@"')
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
def database(server_url: str, name: str | None = None) -> Iterator[str]:
    """Create a database, yield its URL, and drop it at the end."""
    name = name or f'test_{uuid.uuid4().hex}'
    engine = sqlalchemy.create_engine(
        server_url, isolation_level='AUTOCOMMIT',
        poolclass=sqlalchemy.NullPool)

    def execute(statement: str) -> None:
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
    process: subprocess.Popen[bytes] = dataclasses.field(repr=False)

    @property
    def url(self) -> str:
        """Return the URL of the API."""
        return f'http://127.0.0.1:{self.port}'


@contextlib.contextmanager
def ironic(directory: Path, database_url: str, port: int,
           config: Config | None = None, plugin: bool = True,
           kill: bool = False, empty: bool = True) -> Iterator[Service]:
    """Run Ironic's API and conductor in one process.

    :param directory: for ironic.conf, ironic.log and locks.
    :param config: options that override ours.
    :param plugin: false for an Ironic without our tables and middleware.
    :param kill: stop it with SIGKILL if the database is not needed
        afterwards, because a clean shutdown takes six seconds.
    :param empty: whether the database needs a schema, which takes ten seconds.
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


def create_schema(conf_file: str, log: Path, plugin: bool = True) -> None:
    """Create Ironic's schema in an empty database, and our tables."""
    run([program('ironic-dbsync'), '--config-file', conf_file,
         'create_schema'], log)
    if plugin:
        run([program('ironic-reservations-dbsync'), '--config-file',
             conf_file, 'upgrade'], log)


#: ``[DEFAULT]`` of an Ironic whose nodes complete each operation at once.
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


def _write_conf(directory: pathlib.Path, database_url: str, port: int,
                config: Config, plugin: bool) -> str:
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


def read_conf(path: Path) -> dict[str, dict[str, str]]:
    """Read the sections and options of a configuration file."""
    conf = configparser.RawConfigParser(default_section='')
    with open(path) as f:
        conf.read_file(f)
    return {section: dict(conf[section]) for section in conf.sections()}


def write_conf(path: Path, config: Config) -> str:
    """Write a configuration file; return its path."""
    conf = configparser.RawConfigParser()
    conf.read_dict(config)
    with open(path, 'w') as f:
        conf.write(f)
    return str(path)


@contextlib.contextmanager
def uwsgi(application: str, conf_file: str, port: int, processes: int = 4,
          keepalive: bool = False, buffer: bool = True,
          chunks: bool = False) -> Iterator[Service]:
    """Run a WSGI application in uWSGI, in addition to an ``ironic``.

    :param application: ``ironic_reservations.wsgi:application`` for our
        application on its own, or ``ironic.wsgi:application`` for Ironic's API
        with our plugin, if the ``ironic`` has ``rpc_transport = json-rpc``.
    :param keepalive: keep the connections of clients open, by means of uWSGI's
        router in front of the workers.
    :param buffer: let uWSGI read bodies before the application. Otherwise it
        resets a connection if the application has not read the body.
    :param chunks: use uWSGI's router as Kolla-Ansible does; it accepts chunks.
        Otherwise and without ``keepalive``, use no router, as openstack-helm.
    """
    check_port(port)
    log = os.path.join(os.path.dirname(conf_file), f'uwsgi-{port}.log')
    with _uwsgi(application, log, port, '/v1/reservations', processes,
                {'OS_IRONIC_RESERVATIONS_CONFIG_FILES': conf_file},
                '--pyargv', f'--config-file {conf_file}',
                *(['--post-buffering', '65536'] if buffer else []),
                keepalive=keepalive, chunks=chunks) as process:
        yield Service(port, conf_file,
                      read_conf(conf_file)['database']['connection'], log,
                      process)


def _uwsgi(application: str, log: Path, port: int, path: str, processes: int,
           env: Mapping[str, str], *more: str, **kwargs: Any
           ) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    return running(uwsgi_command(application, port, processes, *more,
                                 **kwargs),
                   log, f'http://127.0.0.1:{port}{path}', env)


def uwsgi_command(application: str, port: int, processes: int, *more: str,
                  keepalive: bool = False, chunks: bool = False) -> list[str]:
    """Return the command that runs an application in uWSGI.

    :param more: additional options.
    """
    address = f'127.0.0.1:{port}'
    # A response that exceeds the router's buffer, which is 4 KiB by default,
    # waits 40 ms for the client to acknowledge the first part.
    options = (['--http', address, '--http-keepalive=60',
                '--http-buffer-size', '65536'] if keepalive else
               # uWSGI closes every connection, and must say so to clients.
               ['--add-header', 'Connection: close', *(
                   ['--http', address, '--http-chunked-input',
                    '--http-raw-body'] if chunks
                   else ['--http-socket', address])])
    # Nova requests the ports of all servers in a list with one URL, which may
    # exceed the default of 4 KiB.
    return [program('uwsgi'), *options, '--buffer-size', '65535',
            '--module', application, '--need-app', *more,
            '--master', '--processes', str(processes), '--enable-threads',
            '--die-on-term', '--no-orphans', '--disable-logging']


# Nova and Glance, for flavors and images

@contextlib.contextmanager
def nova(directory: Path, port: int) -> Iterator[str]:
    """Run Nova's API, for flavors; yield its URL.

    Every caller is an admin.
    """
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
def glance(directory: Path, port: int) -> Iterator[str]:
    """Run Glance's API; yield its URL.

    Every caller is an admin, and images are files.
    """
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


# Nova and Glance no longer have a "noauth" that allows everything. Instead of
# keystonemiddleware, uWSGI sets the headers that identify the caller.
_ADMIN = [word for name, value in (
              ('IDENTITY_STATUS', 'Confirmed'), ('USER_ID', 'admin'),
              ('PROJECT_ID', 'admin'), ('ROLES', 'admin'))
          for word in ('--route-run', f'addvar:HTTP_X_{name}={value}')]


def _write_paste(directory: Path, name: str) -> str:
    """Write a service's paste file without the check of tokens.

    :returns: its path.
    """
    original = pathlib.Path(sys.prefix, 'etc', name)
    paste = pathlib.Path(directory, original.name)
    paste.write_text(original.read_text().replace(' authtoken ', ' '))
    return str(paste)


# Keystone

def set_up_keystone(directory: pathlib.Path, database_url: str, url: str,
                    password: str) -> str:
    """Create Keystone's configuration, schema, keys and administrator.

    :returns: the path of the log.
    """
    conf_file = write_conf(directory / 'keystone.conf', {
        'database': {'connection': database_url},
        **{kind: {'key_repository': directory / 'fernet-keys'}
           for kind in ('fernet_tokens', 'fernet_receipts')},
        # Good hashes would take long, and protect nothing here.
        'identity': {'password_hash_rounds': 4},
        # Cached, because each service validates each token. Run only one
        # process, because it does not see changes by another process.
        'cache': {'enabled': 'true', 'backend': 'dogpile.cache.memory'},
    })
    log = str(directory / 'keystone.log')
    # As fernet_setup does, which takes three seconds to start.
    keys = directory / 'fernet-keys'
    keys.mkdir(mode=0o700)
    for name in '0', '1':
        (keys / name).write_bytes(base64.urlsafe_b64encode(os.urandom(32)))
    for command in (['db_sync'],
                    ['bootstrap', '--bootstrap-password', password,
                     '--bootstrap-public-url', url,
                     '--bootstrap-internal-url', url,
                     '--bootstrap-region-id', 'RegionOne']):
        run([program('keystone-manage'), '--config-file', conf_file,
             *command], log)
    return log


@contextlib.contextmanager
def keystone(directory: Path, port: int) -> Iterator[dict[str, str]]:
    """Run Keystone's API; yield the credentials of its administrator.

    They are for ``openstack.connect(auth=...)``, and have no scope. ``admin``
    has the role of that name in the project ``admin`` and in the system.
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

def connect(url: str, service: str = 'baremetal') -> Any:
    """Return the SDK's proxy for a service without authentication.

    It closes each connection. Ironic's server closes idle connections after
    ten seconds, and a request at that moment would get no response.
    """
    connection = openstack.connect(
        load_envvars=False, load_yaml_config=False, auth_type='none',
        endpoint=url)
    connection.session.additional_headers['Connection'] = 'close'
    return getattr(connection, service)


def cli_environment(url: str) -> dict[str, str]:
    """Return an environment for the openstack command.

    It contains no variables of the caller's cloud.
    """
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith('OS_')},
        'PATH': os.pathsep.join([sysconfig.get_path('scripts'),
                                 os.environ['PATH']]),
        'OS_AUTH_TYPE': 'none',
        'OS_ENDPOINT': url,
    }


# Fleets

def enrol(baremetal: Any, specs: Sequence[dict[str, Any]],
          progress: Callable[[Any], Iterable[Any]] = iter) -> list[Any]:
    """Create nodes that are available, unlocked, and powered off.

    The nodes are created one after the other, because Ironic's API is the
    bottleneck, and because on SQLite it returns 500 when traits are set while
    a conductor writes.

    :param specs: Ironic's fields of each node, and ``traits``.
    :param progress: wraps the specs while nodes are created.
    :returns: the nodes, in the order of the specs.
    """
    nodes = [_create_node(baremetal, **spec) for spec in progress(specs)]
    # The power state of fake hardware is unknown until it is set.
    for node in nodes:
        baremetal.set_node_power_state(node, 'power off')
    return settle(baremetal, nodes, power_state='power off')


def _create_node(baremetal: Any, traits: Sequence[str] | None = None,
                 **fields: Any) -> Any:
    # The first API versions create nodes as available, which saves "manage"
    # and "provide". Newer fields have to be set by an update.
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
def settle(baremetal: Any, nodes: Sequence[Any], **fields: Any) -> list[Any]:
    """Wait until the nodes have the values of fields and no lock.

    The SDK's own functions poll every two seconds, and ignore locks.

    :returns: the nodes as they are then.
    """
    by_id = {node.id: node for node in baremetal.nodes(
        details=True, include_children=True)}
    nodes = [by_id[node.id] for node in nodes]
    for node in nodes:
        state = {field: node[field] for field in fields}
        if node.reservation or state != fields:
            raise NotSettled(
                f'node {node.id}: {state}, expected {fields}, lock '
                f'{node.reservation}, error {node.last_error}')
    return nodes


def remove(baremetal: Any, nodes: Iterable[Any]) -> None:
    """Delete nodes in any state."""
    for node in nodes:
        # In maintenance, Ironic deletes even held and deployed nodes.
        baremetal.set_node_maintenance(node)
        baremetal.delete_node(node)
