# SPDX-License-Identifier: Apache-2.0
"""The guides that can be pasted, as an operator and as a project."""

import datetime
import itertools
import os
import pathlib
import re
import shlex
import subprocess
import textwrap

import pytest

from tests.cloud.operator import eventually
from tests.common import command

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PAGES = pathlib.Path(__file__).parents[2] / 'doc/source'
BLOCK = re.compile(r'^ *\.\. code-block:: bash\n\n((?: {6}.*\n|\n)+)', re.M)
#: Commands that are meant only for some clouds, such as the trial cloud.
OPTIONAL = re.compile(r'^ {6}\$ ((?:.*\\\n)*.*\n)', re.M)
END, COMMAND = 'END-OF-OUTPUT', 'OPENSTACK '

#: Sends the words of a command to the test, and prints what it returns.
FUNCTION = f'''
exec 3>&1
openstack() {{
    printf '{COMMAND}%s\\n' "$(printf '%q ' "$OS_CLOUD" "$@")" >&3
    {{ read -r status; cat; }} <result
    return $status
}}
'''


class Shell:
    """A bash into which the blocks of a page are pasted.

    Its ``openstack`` runs in this process, and must succeed. It uses
    clouds.yaml and the openrc file of the cloud in turn.
    """

    def __init__(self, folder, process, cloud):
        self._result = folder / 'result'
        self._clouds = cloud.folder / 'clouds.yaml'
        self._environment = cloud.environment
        self._uses_openrc = itertools.cycle((False, True))
        self._process = process
        self.paste(FUNCTION)

    def paste(self, block):
        """Paste a block, and return what it prints."""
        self._process.stdin.write(f'{block}\necho {END}\n')
        self._process.stdin.flush()
        output = []
        for line in self._process.stdout:
            if line.startswith(COMMAND):
                self._run(*shlex.split(line.removeprefix(COMMAND)))
            elif line == f'{END}\n':
                return ''.join(output)
            else:
                output.append(line)
        raise AssertionError(f'bash has exited: {"".join(output)}')

    def _run(self, cloud, *args):
        result = command.run_in(
            self._environment(cloud) if cloud and next(self._uses_openrc)
            else {'OS_CLIENT_CONFIG_FILE': str(self._clouds),
                  **({'OS_CLOUD': cloud} if cloud else {})}, *args)
        self._result.write_text(f'{result.returncode}\n{result.stdout}',
                                encoding='utf-8')
        assert result.returncode == 0, (args, result.stderr)


@pytest.fixture
def follow(shared_cloud, tmp_path, reservations, no_notices):
    """Return a function that pastes the steps of a page into a shell.

    It yields the output of each. All reservations are released, and all
    pools deleted, at the end.
    """
    os.mkfifo(tmp_path / 'result')
    with subprocess.Popen(
            ['bash'], cwd=tmp_path, env={'PATH': os.environ['PATH']},
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT) as process:
        shell = Shell(tmp_path, process, shared_cloud.cloud)

        def follow(page):
            text = (PAGES / f'{page}.rst').read_text()
            for step in text.split('\n#. ')[1:]:
                blocks = BLOCK.findall(step)
                if 'trial cloud' in step:
                    blocks += OPTIONAL.findall(step)
                yield shell.paste(''.join(map(textwrap.dedent, blocks)))

        yield follow
        process.kill()
    for pool in reservations.pools():
        reservations.delete_pool(pool)
    for reservation in reservations.list(state='reserved'):
        reservations.release(reservation)


def assert_no_servers(cloud):
    assert not cloud.servers()


def test_repair(cloud, reservations, follow, run_script):
    steps = follow('how-to/repair')
    next(steps)
    machine, = reservations.list(state='active')
    # Its server is one that NVIDIA's suite needs.
    assert run_script('cordon_node', 'system', '--machine-id',
                      machine.node_name)['operation'] == {
        'node_id': machine.node_uuid, 'cordoned': True,
        'new_workloads_blocked': True, 'existing_workloads_running': True}
    # The report, and the cordon.
    assert machine.node_name in next(steps)
    next(steps)
    notices = list(reservations.notices(state='open'))
    assert [(row.kind, row.node_uuid, row.ticket) for row in notices] == [
        ('fault', machine.node_uuid, None),
        ('maintenance', machine.node_uuid, 'RMA-4711')]
    # The project sees both notices, and deletes the server.
    output = next(steps)
    assert 'fault' in output and 'RMA-4711' in output
    eventually(lambda: assert_no_servers(cloud))

    def explain():
        """Return why the machine cannot be reserved."""
        return {row['by'] for row in reservations.dry_run(
            candidate_nodes=[machine.node_uuid])['explanation']['eliminated']}

    assert 'cordoned' in explain()
    # The segment has two machines of the same rack again.
    next(steps)
    machines = {row.node_uuid: row.group for row in reservations.list(
        group=machine.group['uuid'])}
    assert len(machines) == 2 and machine.node_uuid not in machines
    assert list(machines.values()) == [machine.group] * 2
    next(steps)
    # The broken machine is out of service, and returns.
    next(steps)
    assert 'not available' in explain()
    next(steps)
    assert explain() == {'candidate_nodes'}
    for notice in notices:
        notice, = reservations.notices(uuid=notice.uuid)
        assert (notice.state, notice.action) == ('closed', 'GPU 3 replaced')
    assert not list(steps)
    server, = cloud.servers()
    assert cloud.settle([server.id]) == {server.id: 'ACTIVE'}
    assert reservations.show(server.id).group == machine.group
    assert reservations.show(server.id).node_uuid in machines


def test_maintenance(cloud, reservations, follow):
    steps = follow('how-to/maintenance')
    next(steps)
    assert next(steps).count('CHG-1208') == 3
    holder, = reservations.list()
    uuid = next(reservations.notices(state='planned')).uuid

    def read_states():
        return {row.state for row in reservations.notices(uuid=uuid)}
    # The operator sees who has a machine there.
    output = next(steps)
    assert len(re.findall(r'\| demo +\|', output)) == 1
    assert holder.instance_uuid in output
    # The project sees the notice of its machine only.
    output = next(steps)
    assert output.count('CHG-1208') == output.count(holder.node_name) == 1

    def count():
        """Return the numbers of free and other machines of the rack."""
        row, = (row for row in reservations.capacity(by='capability:rack')
                if row['capability:rack'] == 'r3')
        return row.free, row.reserved, row.out_of_service

    def assert_begun():
        assert read_states() == {'open'}
        assert count() == (0, 1, 2)

    next(steps)
    eventually(assert_begun)
    next(steps)

    def assert_overdue():
        assert len(list(reservations.notices(overdue=True))) == 3

    # It takes longer than planned, so nothing ends.
    eventually(assert_overdue)
    assert next(steps).count('CHG-1208') == 3
    assert_begun()
    assert not list(reservations.notices(overdue=True))
    # The work is done.
    assert next(steps).count('Firmware 3.2 installed') >= 3
    assert read_states() == {'closed'}
    # The project chooses when the work on its server's machine begins.
    next(steps)
    next(steps)
    notice, = reservations.notices(state='planned')
    uuid = notice.uuid
    assert uuid in next(steps)
    change, = reservations.notices(uuid=uuid)
    for name in 'starts_at', 'due_at':
        days = datetime.timedelta(days=3)
        assert abs(read_time(change, name) - read_time(notice, name) - days
                   ) < datetime.timedelta(minutes=5)
    assert change.scheduled_at
    next(steps)
    assert read_states() == {'open'}
    next(steps)
    assert read_states() == {'closed'}
    [server] = cloud.servers()
    assert server.status == 'ACTIVE'
    assert not list(steps)


def read_time(notice, name):
    return datetime.datetime.fromisoformat(notice[name])


def test_give_back(cloud, reservations, follow):
    steps = follow('how-to/give-back')
    next(steps)
    machine, = reservations.list(state='active')

    def explain():
        """Return why the machine cannot be reserved."""
        return {row['by'] for row in reservations.dry_run(
            candidate_nodes=[machine.node_uuid])['explanation']['eliminated']}

    next(steps)
    report, = reservations.notices(state='open')
    assert (report.kind, report.cordon, report.node_uuid,
            report.project_id) == (
                'fault', True, machine.node_uuid, machine.project_id)
    # The project has another machine, and nobody gets the broken one.
    next(steps)
    other, = reservations.list(state='active')
    assert other.node_uuid != machine.node_uuid

    def assert_only_cordoned():
        assert explain() == {'candidate_nodes', 'cordoned'}

    eventually(assert_only_cordoned)
    # The operator finds it, in the list and by the audit.
    output = next(steps)
    assert report.uuid in output and '| demo ' in output
    assert cloud.audit() == {('project-cordon', None)}
    next(steps)
    report, = reservations.notices(uuid=report.uuid)
    assert (report.ticket, bool(report.due_at)) == ('RMA-4711', True)
    # It is repaired, and checked.
    next(steps)
    assert explain() == {'candidate_nodes', 'not available'}
    next(steps)
    assert_only_cordoned()
    next(steps)
    assert explain() == {'candidate_nodes'}
    # The project sees what was done.
    assert 'GPU 3 replaced' in next(steps)
    assert not list(steps)
    cloud.assert_no_findings()


def test_pool(cloud, reservations, follow):
    steps = follow('how-to/pool')
    next(steps)
    next(steps)
    pool, = reservations.pools()

    def read_nodes():
        return {row['uuid'] for row in reservations.show_pool(pool).nodes}

    def get_machine(name):
        server, = cloud.connection.compute.servers(
            all_projects=True, name=name)
        return reservations.show(server.id).node_uuid

    rack = read_nodes()
    assert len(rack) == 2
    next(steps)
    assert get_machine('worker-0') in rack
    next(steps)
    # Another project can reserve all other machines, and no more.
    others = reservations.create_group(
        10, {'resource_class': 'baremetal.gold'}, project_id='other')
    assert '(pool)' in cloud.fail_to_boot()
    reservations.release_group(others)
    next(steps)
    old = get_machine('worker-1')
    assert old in rack
    # The server keeps the machine that was replaced.
    next(steps)
    assert old not in read_nodes()
    assert len(read_nodes()) == 2
    assert get_machine('worker-1') == old
    next(steps)
    machine = get_machine('worker-1')
    assert machine in read_nodes()
    expiry = pool.expires_at
    next(steps)
    assert reservations.show_pool(pool).expires_at > expiry
    free, = read_nodes() - {machine}
    next(steps)

    def assert_free():
        assert reservations.dry_run(
            candidate_nodes=[free], project_id='other')['matching_nodes']

    eventually(assert_free)
    assert not list(reservations.pools())
    assert get_machine('worker-1') == machine
    assert not list(steps)
