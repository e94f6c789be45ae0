# SPDX-License-Identifier: Apache-2.0
"""Database servers that may be killed: one alone, or a Galera cluster."""

import contextlib
import getpass
import glob
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

import pymysql
import pytest

from tools import mysql
from tools import services

GALERA = '/usr/lib/galera/libgalera_smm.so'
#: Seconds that a server has to start, with recovery and state transfer.
START_TIMEOUT = 120


def find(name):
    """Path of a program or a file; what needs it is skipped without it."""
    found = next(glob.iglob(name), None) or services.find(name)
    if not found:
        message = f'NOT TESTED, not installed: {name}'
        # Where all of it is owed.
        if os.environ.get('IRONIC_RESERVATIONS_REQUIRE_MARIADB') == '1':
            pytest.fail(message)
        pytest.skip(message)
    return found


def _user():
    """Who runs the servers: not root, with which they refuse to start."""
    return {'user': 'nobody', 'extra_groups': [],
            'group': pwd.getpwnam('nobody').pw_gid} if not os.getuid() else {}


def wait(condition, what, timeout=START_TIMEOUT):
    """Wait until something is so; what it is then."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, f'not within {timeout} s: {what}'
        time.sleep(0.1)
    return found


class Server:
    """mariadbd with its data in a directory, on a port of its own.

    :param env: of the process, beside ours.
    :param options: of the server, beside its defaults.
    """

    def __init__(self, directory, *options, env=None):
        self.directory = pathlib.Path(directory)
        self.port = services.free_port()
        self.log = self.directory / 'mariadbd.log'
        self.process = None
        self._env = env or {}
        self._options = [
            f'--datadir={self.directory / "data"}',
            f'--socket={self.directory / "socket"}',
            f'--pid-file={self.directory / "pid"}',
            f'--tmpdir={self.directory}',
            '--bind-address=127.0.0.1', f'--port={self.port}',
            '--skip-name-resolve', *options]

    @property
    def url(self):
        return f'mysql+pymysql://root@127.0.0.1:{self.port}/ironic'

    def install(self):
        subprocess.run(
            [find('mariadb-install-db'), '--no-defaults',
             f'--datadir={self.directory / "data"}', '--skip-test-db',
             # A server that starts clears away what others have in its own.
             f'--tmpdir={self.directory}',
             '--auth-root-authentication-method=normal'],
            check=True, stdout=subprocess.DEVNULL, **_user())

    def run(self, *options):
        """A process of the server's program."""
        return self._popen([find('mariadbd'), '--no-defaults', *self._options,
                            *options], **_user())

    def _popen(self, command, **kwargs):
        with open(self.log, 'ab') as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self._env}, start_new_session=True,
                **kwargs)

    def start(self, *options):
        assert self.process is None
        self.process = self.run(*options)

    def wait(self):
        """Wait until it answers; what it takes part in, too."""
        def ready():
            assert self.process.poll() is None, services.tail(self.log, 60)
            return self.is_ready()

        wait(ready, f'a server ready for work, see {self.log}')

    def is_ready(self):
        with contextlib.suppress(pymysql.MySQLError):
            return self.sql('SELECT 1', database=None)

    def sql(self, statement, *values, **kwargs):
        """The rows of a statement, committed."""
        with self.connect(autocommit=True, **kwargs) as connection:
            with connection.cursor() as cursor:
                cursor.execute(statement, values)
                return cursor.fetchall()

    @contextlib.contextmanager
    def connect(self, **kwargs):
        connection = pymysql.connect(
            host='127.0.0.1', port=self.port, user='root',
            **{'database': 'ironic', 'connect_timeout': 10,
               'read_timeout': 60, **kwargs})
        with contextlib.closing(connection):
            yield connection

    def stop(self):
        """In good order, so that its files have all that it has."""
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(START_TIMEOUT)
        self.process = None

    def kill(self):
        """As if the power went."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class MySQL(Server):
    """MySQL's mysqld, as the user who runs the tests.

    No other user may be able to read where it is unpacked.
    """

    #: Its own installation lets root in by the socket alone.
    ROOT = ("CREATE USER IF NOT EXISTS root@'127.0.0.1';\n"
            "GRANT ALL ON *.* TO root@'127.0.0.1';\n")

    def __init__(self, directory, *options, **kwargs):
        file = pathlib.Path(directory, 'root.sql')
        file.write_text(self.ROOT)
        super().__init__(
            directory, f'--user={getpass.getuser()}', '--mysqlx=0',
            '--disable-log-bin', f'--init-file={file}', *options, **kwargs)

    def install(self):
        status = self.run('--initialize-insecure').wait(START_TIMEOUT)
        assert status == 0, services.tail(self.log)

    def run(self, *options):
        program, needed = mysql.make_command()
        return self._popen([*program, '--no-defaults', *self._options,
                            *options, *needed])


class Member(Server):
    """A member of a Galera cluster. Its time-outs are Galera's defaults."""

    def __init__(self, directory):
        self.address = f'127.0.0.1:{services.free_port()}'
        super().__init__(
            directory, f'--wsrep-provider={GALERA}', '--wsrep-on=ON',
            f'--wsrep-node-name={directory.name}',
            '--wsrep-node-address=127.0.0.1',
            f'--wsrep-sst-receive-address=127.0.0.1:{services.free_port()}',
            '--binlog-format=ROW', '--innodb-autoinc-lock-mode=2',
            '--wsrep-provider-options=' + ';'.join((
                f'gmcast.listen_addr=tcp://{self.address}',
                f'ist.recv_addr=127.0.0.1:{services.free_port()}',
                'gcache.size=64M')))

    def join(self, members, *options):
        """Start as a member of the cluster, whatever it has died of."""
        addresses = ','.join(member.address for member in members)
        options += f'--wsrep-cluster-address=gcomm://{addresses}',
        state = self.directory / 'data' / 'grastate.dat'
        if state.exists() and 'seqno:   -1' in state.read_text():
            options += self._position(*options),
        self.start(*options)

    def forget(self):
        """Lose all data: another member is its donor when it joins."""
        shutil.rmtree(self.directory / 'data')
        _make_own(self.directory / 'data')

    def _position(self, *options):
        """Where it was when it died: what it has missed is enough then.

        It is what the service of a distribution (galera_recovery) does.
        """
        begin = self.log.stat().st_size
        status = self.run('--wsrep-recover', *options).wait(START_TIMEOUT)
        text = self.log.read_bytes()[begin:].decode(errors='replace')
        assert status == 0, text
        position = text.rpartition('Recovered position: ')[2].split()[0]
        return f'--wsrep-start-position={position}'

    def status(self, name):
        return self.sql('SHOW STATUS LIKE %s', f'wsrep_{name}',
                        database=None)[0][1]

    def is_ready(self):
        with contextlib.suppress(pymysql.MySQLError):
            return (self.status('local_state_comment') == 'Synced'
                    and self.status('cluster_status') == 'Primary')


@contextlib.contextmanager
def _directories(*names):
    with tempfile.TemporaryDirectory(prefix='survival-') as root:
        os.chmod(root, 0o755)
        found = [pathlib.Path(root, name) for name in names]
        for path in found:
            for directory in path, path / 'data':
                _make_own(directory)
        yield found


def _make_own(directory):
    """Make a directory that belongs to the user of the servers."""
    directory.mkdir()
    if not os.getuid():
        shutil.chown(directory, 'nobody')


@contextlib.contextmanager
def alone(*options, kind=Server, env=None):
    """A server alone, with an empty database ``ironic``."""
    with _directories('alone') as (directory,):
        server = kind(directory, *options, env=env)
        server.install()
        try:
            server.start()
            server.wait()
            _create_database(server)
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def copied(original, *options):
    """A second server, with options of its own and the data of another."""
    with _directories('copy') as (directory,):
        server = type(original)(directory, *options)
        original.stop()
        subprocess.run(['cp', '-a', f'{original.directory / "data"}/.',
                        directory / 'data'], check=True)
        try:
            for each in original, server:
                each.start()
            for each in original, server:
                each.wait()
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def galera(size=3):
    """A cluster with an empty database ``ironic``; yields its members."""
    for name in GALERA, 'mariadbd', 'wsrep_sst_rsync', 'rsync':
        find(name)
    names = [f'member-{number + 1}' for number in range(size)]
    with _directories(*names) as directories, contextlib.ExitStack() as stack:
        members = [Member(directory) for directory in directories]
        first, *others = members
        first.install()
        for member in members:
            stack.callback(member.kill)
        first.join(members, '--wsrep-new-cluster')
        first.wait()
        _create_database(first)
        for member in others:
            member.join(members)
        for member in others:
            member.wait()
        yield members


def _create_database(server):
    server.sql('CREATE DATABASE ironic CHARACTER SET utf8mb4',
               database=None)
