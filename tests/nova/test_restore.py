# SPDX-License-Identifier: Apache-2.0
"""The steps of doc/source/how-to/restore.rst restore Ironic's database."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import uuid

from tests.nova import audits
from tests.nova import base
from tests.nova import faults
from tests.nova import ironic
from tests.nova import networking
from tools import services

DOC = pathlib.Path(__file__).parents[2] / 'doc' / 'source'
PAGE = re.sub(r' *\\\n +', ' ', (DOC / 'how-to/restore.rst').read_text())

FIRST, SECOND = base.HOSTS[:2]


class TestRestore(audits.Command, networking.Networks, faults.TestCase):
    """Two hosts that work before and after a backup."""

    fleet = [{**faults.NODE, 'name': f'node-{number}',
              'network_interface': 'flat'} for number in range(1, 10)]

    def setUp(self):
        super().setUp()
        # It is killed, and its replacement is stopped after this class.
        self.addClassCleanup(ironic.discard)
        for host in FIRST, SECOND:
            self.start_compute(host)

    # Ironic's database

    @property
    def _path(self):
        return self.ironic.database_url.removeprefix('sqlite:///')

    def back_up(self, build):
        """Copy the database.

        :param build: a server that is being built in the backup.
        """
        self.backup = sqlite3.connect(':memory:')
        self.addCleanup(self.backup.close)
        with contextlib.closing(sqlite3.connect(self._path)) as database:
            database.backup(self.backup)
        self.backup.execute(
            "UPDATE nodes SET provision_state = 'deploying' "
            'WHERE instance_uuid = ?', [build['id']])
        self.backup.commit()

    def restore(self, lease):
        """Execute the page up to the start of Ironic.

        :param lease: a reservation whose lease has expired by then.
        """
        os.killpg(self.ironic.process.pid, signal.SIGKILL)
        self.ironic.process.wait()
        with contextlib.closing(sqlite3.connect(self._path)) as database:
            self.backup.backup(database)
        self.expire(lease['instance_uuid'])
        for name in 'ironic-dbsync', 'ironic-reservations-dbsync':
            self.run_on_host(name)
        for statement in re.findall(r'^   +(UPDATE [^;]*);$', PAGE, re.M):
            # Maintenance may be more than this column.
            self.assertNotIn('maintenance', statement)
            self.sql(statement)
        config = services.read_conf(self.ironic.conf_file)
        [options] = re.findall(r'^ +\[conductor\]\n((?: +\w+ = .*\n)+)', PAGE,
                               re.M)
        config['conductor'].update(
            re.findall(r'^ +(\w+) = (.*)$', options, re.M))
        services.write_conf(self.ironic.conf_file, config)
        self.ironic.process = type(self).enterClassContext(services.running(
            [services.program('ironic'), '--config-file',
             self.ironic.conf_file], self.ironic.log,
            f'{self.ironic.url}/v1', kill=True))
        self.run_on_host('ironic-reservations-manage')
        # Power states are unknown until conductors have read them.
        self.ironic.create(422, resource_class='gold')
        list_nodes = ('openstack baremetal node list --limit 0 '
                      '--no-maintenance --fields uuid -f value > nodes')
        self.do_to_each('openstack baremetal node maintenance set --reason '
                        'restored', self.do(list_nodes))
        self.assertEqual([], self.do(list_nodes))
        # A quick conductor may read them now.
        self.read_power_states()

    def read_power_states(self):
        """Set the power states, because fake hardware loses them."""
        self.sql("UPDATE nodes SET power_state = CASE WHEN instance_uuid "
                 "IS NULL THEN 'power off' ELSE 'power on' END")

    # The commands of the page

    def run_on_host(self, name):
        [command] = re.findall(rf'^ +# ({name} .*)$', PAGE, re.M)
        services.run([services.program(name), *(
            self.ironic.conf_file if word == '/etc/ironic/ironic.conf'
            else word for word in command.split()[1:])], self.ironic.log)

    def do(self, command, status=0, **words):
        """Run a command of the page and return its lines of output.

        :param words: values of the words in capitals.
        """
        self.assertRegex(PAGE, rf'(?m)^ +\$ {re.escape(command)}$')
        return self.run_command(' '.join(
            words.get(word, word) for word in command.split(' ')), status)

    def do_to_each(self, command, nodes):
        """Run a command of the page with all nodes, as xargs does."""
        self.assertIn(f' $ xargs -P 4 -n 250 {command} < nodes\n', PAGE)
        self.run_command(' '.join([command, *nodes]))

    def run_command(self, command, status=0):
        # On the page the output goes to a file.
        command, _, pipe = command.partition(' > ')[0].partition(' | ')
        result = self.openstack(*shlex.split(command)[1:])
        self.assertEqual(status, result.returncode, result.stderr)
        return subprocess.run(
            shlex.split(pipe or 'cat'), input=result.stdout, text=True,
            stdout=subprocess.PIPE, check=True).stdout.splitlines()

    def openstack(self, *args, **env):
        return super().openstack(*args, **{
            'OS_NETWORK_ENDPOINT_OVERRIDE': self.network.url, **env})

    def find_misplaced(self):
        """Return the output of the page's script: nodes and servers."""
        nodes = '\n'.join(self.do(
            'openstack baremetal node list --limit 0 --fields uuid name '
            'instance_uuid -f value > nodes'))
        script, = re.findall(r'^ +\$ python3 (\S+) < nodes$', PAGE, re.M)
        return {tuple(line.split()) for line in subprocess.run(
            [sys.executable, DOC / 'examples' / script], input=nodes,
            text=True, stdout=subprocess.PIPE, check=True, env={
                'OS_AUTH_TYPE': 'none', 'OS_ENDPOINT': self.network.url}
        ).stdout.splitlines()}

    def findings(self):
        """Return the audit's advice by kind, instance and node."""
        result = self.command('audit')
        self.assertTrue(result.stdout, result.stderr)
        return {(row['Kind'], row['Instance'], row['Node']):
                row['What to Do'] for row in json.loads(result.stdout)}

    def assign_node(self, server, node):
        """Assign its node to a server; return its ports, as MAC by ID."""
        ports = dict(line.split() for line in self.do(
            'openstack port list --device-id SERVER -c ID -c "MAC Address" '
            '-f value', SERVER=server['id']))
        node = self.ironic.baremetal.get_node(node)
        if node.instance_id:
            self.do('openstack baremetal reservation delete --all-projects '
                    'NODE', NODE=node.name)
        self.do('openstack baremetal node set NODE --instance-uuid SERVER',
                NODE=node.name, SERVER=server['id'])
        if node.provision_state == 'available':
            for verb in 'manage', 'adopt':
                self.do(f'openstack baremetal node {verb} NODE --wait',
                        NODE=node.name)
        return ports

    def attach(self, node, ports):
        for vif in self.do('openstack baremetal node vif list NODE -f value',
                           NODE=node):
            if vif not in ports:
                self.do('openstack baremetal node vif detach NODE VIF',
                        NODE=node, VIF=vif)
        nics = {mac: nic for nic, mac in (line.split() for line in self.do(
            'openstack baremetal port list --node NODE -f value', NODE=node))}
        for port, mac in ports.items():
            self.do('openstack baremetal node vif attach NODE PORT '
                    '--port-uuid NIC', NODE=node, PORT=port, NIC=nics[mac])

    def end_maintenance(self):
        self.do_to_each('openstack baremetal node maintenance unset', self.do(
            'openstack baremetal node list --limit 0 --maintenance --fields '
            'uuid maintenance_reason -f value | awk \'$2 == "restored" '
            '{print $1}\' > nodes'))
        self.read_power_states()

    def boot_on(self, node, host=FIRST, port=None):
        return self.boot(
            self.flavor(**{'reservations:candidate_nodes': node}), host=host,
            networks=[{'port': port or self.port()}])

    def nodes_of(self, *servers):
        return [self.ironic.node_of(server).name for server in servers]

    def port_bindings(self):
        """Return MAC address and node of all ports."""
        return {port['id']: (port['mac_address'], port['binding:host_id'])
                for port in self.neutron.list_ports(True)['ports']
                if port.get('device_id')}

    def test_restore(self):
        port = self.port()
        # The names are those of events after the backup.
        deletion = self.boot_on('node-2', port=port)
        same, replacement, move, build = [
            self.boot_on(f'node-{number}') for number in (1, 3, 4, 9)]
        lease = self.hold(candidate_nodes=['node-5'], expires_in=600)
        release = self.hold(candidate_nodes=['node-6'])
        self.ironic.baremetal.set_node_maintenance('node-8', 'broken')
        self.back_up(build)

        self.delete(deletion, replacement)
        for reservation in lease, release:
            self.ironic.delete(reservation['instance_uuid'])
        newer = self.boot_on('node-5', SECOND, port)
        successor = self.boot_on('node-3', SECOND)
        late = self.hold(candidate_nodes=['node-7'])
        self.take_down(FIRST)
        self.assign(move, SECOND, FIRST)
        self.work(SECOND)
        self.assertEqual(SECOND, self.instance(move).host)
        servers = same, move, build, newer, successor
        before = self.nodes_of(*servers), self.port_bindings()
        self.take_down(SECOND)

        self.restore(lease)
        self.assertIn('| matching_nodes | 0 ', ''.join(self.do(
            'openstack baremetal reservation create --resource-class CLASS '
            '--dry-run', status=1, CLASS='gold')))
        self.ironic.create(422, resource_class='gold')
        wrong = {('node-5', newer['id']), ('node-3', successor['id'])}
        self.assertEqual(wrong, self.find_misplaced())
        others = {('no-server', deletion['id'], 'node-2'),
                  ('wrong-host', move['id'], 'node-4')}
        ports = {node: self.assign_node({'id': server}, node)
                 for node, server in wrong}
        self.assertEqual(set(), self.find_misplaced())
        [statement] = re.findall(r"^ +(UPDATE .*\n.*'SERVER');$", PAGE, re.M)
        self.sql(statement.replace('SERVER', build['id']))
        self.assertEqual(
            others | {('no-reservation', server, node)
                      for node, server in wrong}, set(self.findings()))
        self.do('openstack baremetal reservation audit --repair', status=1)
        findings = self.findings()
        self.assertEqual(others, set(findings))
        for advice in findings.values():
            self.run_command(advice[advice.index('openstack'):])
        self.ironic.settle([self.ironic.baremetal.get_node('node-2')],
                           provision_state='available')
        self.do('openstack baremetal reservation delete --all-projects '
                'INSTANCE', INSTANCE=release['instance_uuid'])
        for node, node_ports in ports.items():
            self.attach(node, node_ports)
        self.ironic.create(422, resource_class='gold')
        self.end_maintenance()
        self.assert_findings()
        self.do('openstack baremetal reservation create --candidate-node NODE '
                '--project PROJECT --instance-uuid INSTANCE', NODE='node-7',
                PROJECT=uuid.uuid4().hex, INSTANCE=late['instance_uuid'])
        self.assertEqual(
            before, (self.nodes_of(*servers), self.port_bindings()))

        for host in FIRST, SECOND:
            self.bring_back(host)
        for task in ('update_available_resource', '_sync_power_states',
                     '_cleanup_running_deleted_instances'):
            self.run_periodic(task=task)
        self.assert_findings()
        self.assertEqual(
            before, (self.nodes_of(*servers), self.port_bindings()))
        for server in servers:
            self.act(server, 'reboot', 'ACTIVE', type='HARD')
            self.delete(server)
        self.ironic.delete(late['instance_uuid'])
        self.assert_nothing_left()
