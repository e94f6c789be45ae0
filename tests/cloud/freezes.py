# SPDX-License-Identifier: Apache-2.0
"""What a process that was frozen still saves after it was replaced.

    python -m tests.cloud.freezes [--freezes N] [--minutes M] [--hosts N]
        [--servers N] [--process-1]

In a whole cloud whose hosts have a standby each, several servers of a host are
stopped, started, rebuilt or deleted at once, and the process that is the host
is stopped by SIGSTOP when a thread of each is before the same save; before
each save of each action in turn. Its standby is the host by then; the servers
are made what their users would have of them, and the process is told to go on.
It is counted how many processes and threads were frozen, how many of the
threads did go on, and how many servers have changed in Nova's database then.

With --process-1 it is not killed by the kernel, like the first process of a
container.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import itertools
import json
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

#: What is asked of a server, and its state before and after; None is deleted.
ACTIONS = {
    'stop': (lambda nova, server: nova.stop_server(server),
             'active', 'stopped'),
    'start': (lambda nova, server: nova.start_server(server),
              'stopped', 'active'),
    'rebuild': (lambda nova, server: nova.rebuild_server(
        server, image=nova.get_server(server).image.id), 'active', 'active'),
    'delete': (lambda nova, server: nova.delete_server(server),
               'active', None)}

#: A deletion needs new servers, which take far longer than all of the others.
ORDER = ('stop', 'start', 'rebuild', 'stop', 'start', 'delete')

#: Seconds until a busy machine has built the servers of all hosts.
BUILT = 300
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
                # Hosts that report less often leave the processors to what is
                # counted.
                conf.write(f'\n[reservations]\nstandby_ttl = {TTL}\n'
                           '[DEFAULT]\nupdate_resources_interval = 20\n')

    def programs(self):
        for name, command, environment in super().programs():
            if name in self.computes:
                command = [sys.executable, PROGRAM, *command[1:]]
                if self.process_1:
                    environment = {**environment, 'LIKE_PROCESS_1': '1'}
            yield name, command, environment


class Host:
    """One of them, its two processes and its servers.

    :param at_once: how many servers are acted upon at once.
    """

    def __init__(self, cloud, name, at_once):
        self.cloud = cloud
        self.name, self.at_once, self.servers = name, at_once, []
        self.processes = {each: cloud.folder / each for each, host
                          in cloud.computes.items() if host == name}
        self.operator = operator.Operator(cloud)
        self.nova = self.operator.connection.compute
        self.database = sa.create_engine(cloud.database_url('nova'))

    def sql(self, statement, server):
        with self.database.begin() as connection:
            return connection.execute(sa.text(statement), {'server': server})

    def rows(self, servers):
        """Those of the servers that have been given to the host."""
        return {server: row for server in servers
                if (row := self.sql(SEEN, server).one_or_none())}

    def holder(self):
        return {each['host']: each['holder'] for each in
                self.operator.system.baremetal.get(
                    '/reservations/hosts').json()['hosts']}[self.name]

    def ask(self):
        """For new servers of this host, which will be built."""
        for server, row in self.rows(self.servers).items():
            if not row.deleted:
                self.do(server, 'delete')
        self.servers = [self.nova.create_server(
            name='frozen', availability_zone=f'nova:{self.name}',
            **self.operator.wanted()).id for _ in range(self.at_once)]

    def do(self, server, action):
        ACTIONS[action][0](self.nova, server)

    def have(self, state):
        """Bring all servers, once they are built, into a state."""
        operator.eventually(lambda: self.expect('active', 'stopped'),
                            BUILT)
        for server, row in self.rows(self.servers).items():
            if {row.vm_state, state} == {'active', 'stopped'}:
                self.do(server, {'active': 'start', 'stopped': 'stop'}[state])
        operator.eventually(lambda: self.expect(state))

    def expect(self, *states):
        assert self.are_in(*states), self.rows(self.servers)

    def are_in(self, *states):
        """Whether each server is in one of them, and stays there."""
        rows = self.rows(self.servers).values()
        return len(rows) == self.at_once and all(
            (None if row.deleted else row.vm_state) in states
            and (row.deleted or row.task_state is None) for row in rows)

    def freeze(self, action, number):
        """Freeze the process before a save of an action.

        :returns: how many servers were at that save, whose threads went on,
            and that changed then; None if the action has no such save.
        """
        _, before, after = ACTIONS[action]
        if not self.servers:
            self.ask()
        self.have(before)
        holder = self.holder()
        pids = {each: self.cloud.pid(each) for each in self.processes}
        # It is the host that saves; its standby does nothing until then.
        for folder in self.processes.values():
            (folder / 'stop').write_text(json.dumps(
                {'save': number, 'servers': self.servers}))
        for server in self.servers:
            self.do(server, action)
        process = self.stopped(after)
        result = process and self.go_on(holder, process, pids[process])
        if action == 'delete':
            self.ask()
        return result

    def stopped(self, after):
        """The process that has stopped itself; None if none has."""
        try:
            while not self.are_in(after):
                for process, folder in self.processes.items():
                    # The process writes the one before it removes the other.
                    if (not (folder / 'stop').exists()
                            and (folder / 'stopped').exists()):
                        return process
                time.sleep(0.2)
            return None
        finally:
            for folder in self.processes.values():
                (folder / 'stop').unlink(missing_ok=True)

    def go_on(self, holder, process, pid):
        folder = self.processes[process]
        frozen = json.loads((folder / 'stopped').read_text())
        (folder / 'stopped').unlink()
        operator.eventually(lambda: self.replaced(holder))
        self.steady()
        # Also those whose threads had not come to the save: the end of the
        # process has cut their actions off as well.
        for server in self.servers:
            self.sql(USED, server)
        before = self.rows(frozen)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        operator.eventually(lambda: self.ended(pid))
        time.sleep(1)
        marks = {each: folder / f'went-on-{each}' for each in frozen}
        went_on = [each for each, mark in marks.items() if mark.exists()]
        after = self.rows(went_on)
        # The same servers are frozen again.
        for mark in marks.values():
            mark.unlink(missing_ok=True)
        self.cloud.control('start', process)
        return len(frozen), len(went_on), sum(
            after[each] != before[each] for each in went_on)

    def replaced(self, holder):
        assert self.holder() != holder, 'it has no successor'

    def steady(self):
        """Until the successor has done what it finds to be done."""
        before, since = None, time.monotonic()
        until = since + operator.SOON
        while time.monotonic() < min(since + STEADY, until):
            now = self.rows(self.servers)
            if now != before or any(row.task_state and not row.deleted
                                    for row in now.values()):
                before, since = now, time.monotonic()
            time.sleep(0.5)

    def ended(self, pid):
        assert not pathlib.Path(f'/proc/{pid}').exists(), 'it does not end'

    def begin_anew(self):
        """With other servers, where something took too long."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError, services.StartError):
                os.kill(self.cloud.pid(process), signal.SIGCONT)
        time.sleep(TTL)
        self.cloud.control('start', *self.processes)
        self.ask()


class Count:
    """Of what all hosts together have seen."""

    KINDS = 'processes', 'frozen', 'went on', 'saved', 'given up'

    def __init__(self, freezes, minutes):
        self._left, self._until = freezes, time.monotonic() + 60 * minutes
        self._lock = threading.Lock()
        self._seen = collections.Counter()

    def end(self):
        self._left = 0

    def wants_more(self):
        return (sum(self._seen[action, 'frozen'] for action in ACTIONS)
                < self._left and time.monotonic() < self._until)

    def go(self, host, order):
        for action in itertools.cycle(order):
            for number in itertools.count(1):
                if not self.wants_more():
                    return
                try:
                    result = host.freeze(action, number)
                except (AssertionError, services.StartError) as e:
                    # On a busy machine a process may end by itself.
                    print(action, number, 'given up:', repr(e), flush=True)
                    with self._lock:
                        self._seen[action, 'given up'] += 1
                    host.begin_anew()
                    break
                if result is None:
                    break
                with self._lock:
                    for kind, seen in zip(self.KINDS[:4], (1, *result),
                                          strict=True):
                        self._seen[action, kind] += seen
                print(time.strftime('%X'), host.name, action, number, *result,
                      flush=True)

    def show(self):
        shown = table.Table('in', *self.KINDS)
        for action in ACTIONS:
            shown.add_row(action, *(str(self._seen[action, kind])
                                    for kind in self.KINDS))
        console.Console().print(shown)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--freezes', type=int, default=1000)
    parser.add_argument('--minutes', type=float, default=600)
    parser.add_argument('--hosts', type=int, default=4)
    parser.add_argument('--servers', type=int, default=8)
    parser.add_argument('--process-1', action='store_true')
    args = parser.parse_args()
    services.stop_on_signal()
    with tempfile.TemporaryDirectory() as folder:
        cloud = Cloud(f'{folder}/run', services.free_ports(9), args.hosts,
                      nodes=4 * args.hosts * args.servers)
        cloud.standby, cloud.process_1 = True, args.process_1
        cloud.up()
        count = Count(args.freezes, args.minutes)
        try:
            with concurrent.futures.ThreadPoolExecutor(args.hosts) as pool:
                tasks = [pool.submit(
                    count.go, Host(cloud, host, args.servers),
                    ORDER[number:] + ORDER[:number])
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
