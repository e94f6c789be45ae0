# SPDX-License-Identifier: Apache-2.0
"""What a process that was frozen still saves after it was replaced.

    python -m tests.cloud.freezes [--freezes N] [--minutes M] [--hosts N]
        [--process-1]

In a whole cloud whose hosts have a standby each, the process that is a host is
stopped by SIGSTOP before each save of a stop, a start, a rebuild and a
deletion in turn. Its standby is the host by then; the server is made what its
user would have of it, and the process is told to go on. It is counted how
often the thread that was to save did go on, and what has changed in Nova's
database then.

With --process-1 it is not killed by the kernel, like the first process of a
container.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time

from rich import console
from rich import table
import sqlalchemy as sa

from tests.cloud import operator
from tools import cloud as tools_cloud
from tools import services

TTL = 10
#: Seconds for which a server does not change when nobody works on it.
STEADY = 3
PROGRAM = pathlib.Path(__file__).with_name('stops_itself.py')

#: What is asked of a server, and its status when that is done.
ACTIONS = {
    'stop': (lambda nova, server: nova.stop_server(server), 'SHUTOFF'),
    'start': (lambda nova, server: nova.start_server(server), 'ACTIVE'),
    'rebuild': (lambda nova, server: nova.rebuild_server(
        server, image=nova.get_server(server).image.id), 'ACTIVE'),
    'delete': (lambda nova, server: nova.delete_server(server), None)}

#: As a user has it who was served by the other process meanwhile.
USED = ("UPDATE instances SET vm_state = 'active', task_state = NULL, "
        "power_state = 1 WHERE uuid = :server AND deleted = 0")
SEEN = ('SELECT host, vm_state, task_state, power_state, deleted, updated_at '
        'FROM instances WHERE uuid = :server')


class Cloud(tools_cloud.Cloud):
    """Each host has a standby."""

    process_1 = False

    @property
    def computes(self):
        return {f'{host}{which}': host for host in self.hosts
                for which in ('', 'b')}

    def configure(self):
        super().configure()
        for name in self.computes:
            with open(self.folder / name / 'nova.conf', 'a') as conf:
                conf.write(f'\n[reservations]\nstandby_ttl = {TTL}\n')

    def programs(self):
        for name, command, environment in super().programs():
            if name in self.computes:
                command = [sys.executable, PROGRAM, *command[1:]]
                if self.process_1:
                    environment = {**environment, 'LIKE_PROCESS_1': '1'}
            yield name, command, environment


class Host:
    """One of them, and its two processes."""

    def __init__(self, cloud, name):
        self.cloud = cloud
        self.name, self.ahead = name, None
        self.processes = {each: cloud.folder / each for each, host
                          in cloud.computes.items() if host == name}
        self.operator = operator.Operator(cloud)
        self.nova = self.operator.connection.compute
        self.database = sa.create_engine(cloud.database_url('nova'))

    def sql(self, statement, server):
        with self.database.begin() as connection:
            return connection.execute(sa.text(statement), {'server': server})

    def row(self, server):
        return self.sql(SEEN, server).one()

    def holder(self):
        return {each['host']: each['holder'] for each in
                self.operator.system.baremetal.get(
                    '/reservations/hosts').json()['hosts']}[self.name]

    def ask(self):
        """For a server of this host, which will be built."""
        return self.nova.create_server(
            name='frozen', availability_zone=f'nova:{self.name}',
            **self.operator.wanted()).id

    def boot(self):
        """A server of this host, the one that was asked for ahead."""
        server, self.ahead = self.ahead or self.ask(), None
        assert self.operator.settled([server]) == {server: 'ACTIVE'}
        return server

    def do(self, server, action):
        ACTIONS[action][0](self.nova, server)

    def is_done(self, server, action):
        row, status = self.row(server), ACTIONS[action][1]
        return bool(row.deleted) if status is None else (
            row.task_state is None
            and row.vm_state == {'SHUTOFF': 'stopped'}.get(status, 'active'))

    def is_stopped(self, process):
        stat = pathlib.Path(f'/proc/{self.cloud.pid(process)}/stat')
        return stat.read_text().rpartition(')')[2].split()[0] == 'T'

    def freeze(self, action, number):
        """Freeze the process before a save of an action.

        :returns: whether it went on, and whether the server changed then;
            None if the action has no such save.
        """
        self.cloud.control('start', *self.processes)
        server = self.boot()
        try:
            if action == 'start':
                self.do(server, 'stop')
                operator.eventually(lambda: self.expect(server, 'stop'))
            holder = self.holder()
            # It is the host that saves; its standby does nothing until then.
            for folder in self.processes.values():
                (folder / 'stop').write_text(str(number))
            self.do(server, action)
            stopped = self.stopped(server, action)
            return stopped and self.go_on(server, holder, stopped)
        finally:
            if not self.row(server).deleted:
                self.do(server, 'delete')

    def stopped(self, server, action):
        """The process that has stopped itself; None if none has."""
        try:
            while not self.is_done(server, action):
                for process in self.processes:
                    if self.is_stopped(process):
                        return process
                time.sleep(0.1)
            return None
        finally:
            for folder in self.processes.values():
                (folder / 'stop').unlink(missing_ok=True)

    def expect(self, server, action):
        assert self.is_done(server, action)

    def go_on(self, server, holder, process):
        pid = self.cloud.pid(process)
        operator.eventually(lambda: self.replaced(holder))
        # The next one is built meanwhile.
        self.ahead = self.ask()
        self.steady(server)
        self.sql(USED, server)
        before = self.row(server)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        operator.eventually(lambda: self.ended(process))
        time.sleep(1)
        mark = self.processes[process] / 'went-on'
        went_on, changed = mark.exists(), self.row(server) != before
        mark.unlink(missing_ok=True)
        return went_on, went_on and changed

    def replaced(self, holder):
        assert self.holder() != holder

    def steady(self, server):
        """Until the successor has done what it finds to be done."""
        before, since = None, time.monotonic()
        until = since + operator.SOON
        while time.monotonic() < min(since + STEADY, until):
            now = self.row(server)
            if now != before or now.task_state and not now.deleted:
                before, since = now, time.monotonic()
            time.sleep(0.5)

    def ended(self, process):
        assert 'EXITED' in self.cloud.control('status', process).stdout


class Count:
    """Of what all hosts together have seen."""

    def __init__(self, freezes, minutes):
        self._left, self._until = freezes, time.monotonic() + 60 * minutes
        self._lock = threading.Lock()
        self._seen = collections.Counter()

    def end(self):
        self._left = 0

    def wants_more(self):
        return (sum(self._seen[action, 'frozen'] for action in ACTIONS)
                < self._left and time.monotonic() < self._until)

    def go(self, cloud, host, order):
        host = Host(cloud, host)
        for action in itertools.cycle(order):
            for number in itertools.count(1):
                if not self.wants_more():
                    return
                try:
                    result = host.freeze(action, number)
                except (AssertionError, services.StartError) as e:
                    # On a busy machine a process may end by itself.
                    print(action, number, 'given up:', e, flush=True)
                    with self._lock:
                        self._seen[action, 'given up'] += 1
                    host.ahead = None
                    break
                if result is None:
                    break
                with self._lock:
                    self._seen[action, 'frozen'] += 1
                    for what, seen in zip(('went on', 'saved'), result,
                                          strict=True):
                        self._seen[action, what] += seen
                print(action, number, *result, flush=True)

    def show(self):
        kinds = 'frozen', 'went on', 'saved', 'given up'
        shown = table.Table('in', *kinds)
        for action in ACTIONS:
            shown.add_row(action, *(str(self._seen[action, kind])
                                    for kind in kinds))
        console.Console().print(shown)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--freezes', type=int, default=1000)
    parser.add_argument('--minutes', type=float, default=600)
    parser.add_argument('--hosts', type=int, default=4)
    parser.add_argument('--process-1', action='store_true')
    args = parser.parse_args()
    services.stop_on_signal()
    with tempfile.TemporaryDirectory() as folder:
        cloud = Cloud(f'{folder}/run', services.free_ports(9), args.hosts,
                      nodes=4 * args.hosts)
        cloud.standby, cloud.process_1 = True, args.process_1
        cloud.up()
        count, names = Count(args.freezes, args.minutes), list(ACTIONS)
        try:
            with concurrent.futures.ThreadPoolExecutor(args.hosts) as pool:
                tasks = [pool.submit(
                    count.go, cloud, host, names[number:] + names[:number])
                    for number, host in enumerate(cloud.hosts)]
                try:
                    for task in tasks:
                        task.result()
                finally:
                    count.end()
        finally:
            count.show()
            cloud.down()


if __name__ == '__main__':
    main()
