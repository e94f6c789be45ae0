# SPDX-License-Identifier: Apache-2.0
"""Database servers that tests can kill: a single one, or a cluster."""

import contextlib
import getpass
import glob
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pymysql
import pytest

from tools import mysql_packages
from tools import services

GALERA = '/usr/lib/galera/libgalera_smm.so'
#: Name of a group of MySQL.
GROUP = 'aaaaaaaa-0000-4000-8000-000000000001'
#: Time limit in seconds for a start, with recovery and state transfer.
START_TIMEOUT = 120


def find_program(name):
    """Return the path of a program or file; skip the test without it."""
    path = next(glob.iglob(name), None) or services.find(name)
    if not path:
        message = f'NOT TESTED, not installed: {name}'
        # CI must not skip it.
        if os.environ.get('IRONIC_RESERVATIONS_REQUIRE_MARIADB') == '1':
            pytest.fail(message)
        pytest.skip(message)
    return path


def _user():
    """Return the user of the servers, which refuse to run as root."""
    return {'user': 'nobody', 'extra_groups': [],
            'group': pwd.getpwnam('nobody').pw_gid} if not os.getuid() else {}


def wait(condition, what, timeout=START_TIMEOUT):
    """Wait until a function returns a true value, and return that."""
    end = time.monotonic() + timeout
    while not (result := condition()):
        assert time.monotonic() < end, f'not within {timeout} s: {what}'
        time.sleep(0.1)
    return result


class Server:
    """A mariadbd with its own directory and port.

    :param env: additional environment variables.
    :param options: additional options of the server.
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
            [find_program('mariadb-install-db'), '--no-defaults',
             f'--datadir={self.directory / "data"}', '--skip-test-db',
             # A starting server deletes the files of other servers there.
             f'--tmpdir={self.directory}',
             '--auth-root-authentication-method=normal'],
            check=True, stdout=subprocess.DEVNULL, **_user())

    def run(self, *options):
        """Start a process of the server's program."""
        return self._popen([find_program('mariadbd'), '--no-defaults',
                            *self._options, *options], **_user())

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
        """Wait until it is ready, also as a member of its cluster."""
        def ready():
            assert self.process.poll() is None, services.tail(self.log, 60)
            return self.is_ready()

        wait(ready, f'a server is ready, see {self.log}')

    def is_ready(self):
        with contextlib.suppress(pymysql.MySQLError):
            return self.sql('SELECT 1', database=None)

    def sql(self, statement, *values, **kwargs):
        """Run a statement, commit, and return the rows."""
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
        """Shut the server down, so that its files are complete."""
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(START_TIMEOUT)
        self.process = None

    def kill(self):
        """Kill the server, as a power failure would."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class MySQL(Server):
    """A mysqld, run by the user of the tests.

    Other users may be unable to read its files.
    """

    #: A new installation accepts root only on the socket.
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
        program, more = mysql_packages.make_command()
        return self._popen([*program, '--no-defaults', *self._options,
                            *options, *more])


class GroupMember(MySQL):
    """A member of a group of MySQL, with MySQL's default timeouts."""

    #: What is logged here, the group does not have.
    ROOT = 'SET sql_log_bin = 0;\n' + MySQL.ROOT

    def __init__(self, directory):
        self.address = f'127.0.0.1:{services.free_port()}'
        super().__init__(
            directory, '--log-bin=binlog', '--gtid-mode=ON',
            '--enforce-gtid-consistency=ON', '--report-host=127.0.0.1',
            # The group demands a primary key when a row is written.
            '--sql-require-primary-key=ON')
        self._options.append(f'--server-id={self.port}')

    def join(self, members, bootstrap=False):
        """Start, and wait until it is an active member, also after a crash."""
        seeds = ','.join(member.address for member in members)
        self.start(
            '--plugin-load-add=group_replication.so',
            f'--group-replication-group-name={GROUP}',
            '--group-replication-start-on-boot=OFF',
            f'--group-replication-bootstrap-group={int(bootstrap)}',
            f'--group-replication-local-address={self.address}',
            f'--group-replication-group-seeds={seeds}')
        self.wait()
        self.sql("START GROUP_REPLICATION USER = 'root'", database=None)
        wait(lambda: self.port in self.active(), f'a member, see {self.log}')

    def active(self):
        """Return the role of each active member, by its port."""
        return dict(self.sql(
            'SELECT member_port, member_role '
            'FROM performance_schema.replication_group_members '
            "WHERE member_state = 'ONLINE'", database=None))


class Member(Server):
    """A member of a Galera cluster, with Galera's default timeouts."""

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
        """Start as a member of the cluster, also after a crash."""
        addresses = ','.join(member.address for member in members)
        options += f'--wsrep-cluster-address=gcomm://{addresses}',
        if position := self.position():
            options += f'--wsrep-start-position={position}',
        self.start(*options)

    def bootstrap(self, members):
        """Start a new cluster with the data of this member."""
        self._state.write_text(self._state.read_text().replace(
            'safe_to_bootstrap: 0', 'safe_to_bootstrap: 1'))
        self.join(members, '--wsrep-new-cluster')

    @property
    def _state(self):
        return self.directory / 'data' / 'grastate.dat'

    def forget(self):
        """Delete all data: another member is the donor when this joins."""
        shutil.rmtree(self.directory / 'data')
        _make_own(self.directory / 'data')

    def position(self):
        """Return the last transaction in its data, or None if there is none.

        It is recovered after a crash, for an incremental transfer. The
        service of a distribution (galera_recovery) does the same.

        :returns: UUID of the cluster and number, separated by a colon.
        """
        if not self._state.exists():
            return None
        values = dict(re.findall(r'^(uuid|seqno): +(.+)',
                                 self._state.read_text(), re.MULTILINE))
        if values['seqno'] != '-1':
            return '{uuid}:{seqno}'.format(**values)
        begin = self.log.stat().st_size
        status = self.run('--wsrep-recover', '--wsrep-cluster-address='
                          'gcomm://').wait(START_TIMEOUT)
        text = self.log.read_bytes()[begin:].decode(errors='replace')
        assert status == 0, text
        return text.rpartition('Recovered position: ')[2].split()[0]

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
        paths = [pathlib.Path(root, name) for name in names]
        for path in paths:
            for directory in path, path / 'data':
                _make_own(directory)
        yield paths


def _make_own(directory):
    """Create a directory that belongs to the user of the servers."""
    directory.mkdir()
    if not os.getuid():
        shutil.chown(directory, 'nobody')


@contextlib.contextmanager
def alone(*options, kind=Server, env=None):
    """Run a single server with an empty database ``ironic``."""
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
    """Run a second server with the data of another, and further options."""
    with _directories('copy') as (directory,):
        server = type(original)(directory, *options)
        original.stop()
        subprocess.run(['cp', '-a', f'{original.directory / "data"}/.',
                        directory / 'data'], check=True)
        try:
            for member in original, server:
                member.start()
            for member in original, server:
                member.wait()
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def galera(size=3):
    """Run a cluster with an empty database ``ironic``; yield its members."""
    for name in GALERA, 'mariadbd', 'wsrep_sst_rsync', 'rsync':
        find_program(name)
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


@contextlib.contextmanager
def group(size=3):
    """Run a group of MySQL, one of them primary, like ``galera``."""
    names = [f'member-{number + 1}' for number in range(size)]
    with _directories(*names) as directories, contextlib.ExitStack() as stack:
        members = [GroupMember(directory) for directory in directories]
        for member in members:
            member.install()
            stack.callback(member.kill)
            member.join(members, bootstrap=member is members[0])
        _create_database(members[0])
        yield members


def _create_database(server):
    server.sql('CREATE DATABASE ironic CHARACTER SET utf8mb4',
               database=None)
