# SPDX-License-Identifier: Apache-2.0
"""Ironic's database is restored as doc/source/restore.rst says it."""

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

from tests.nova import base
from tests.nova import faults
from tests.nova import ironic
from tests.nova import networking
from tests.nova import test_audit
from tools import services

DOC = pathlib.Path(__file__).parents[2] / 'doc' / 'source'
PAGE = re.sub(r' *\\\n +', ' ', (DOC / 'restore.rst').read_text())

FIRST, SECOND = base.HOSTS[:2]


class TestRestore(test_audit.Command, networking.Networks, faults.TestCase):
    """Two hosts, and a backup in the middle of their life."""

    fleet = [{**faults.NODE, 'name': f'node-{number}',
              'network_interface': 'flat'} for number in range(1, 10)]

    def setUp(self):
        super().setUp()
        # It is killed, and what is started instead ends with this class.
        self.addClassCleanup(ironic.forget)
        for host in FIRST, SECOND:
            self.start_compute(host)

    # Ironic's database

    @property
    def _path(self):
        return self.ironic.database_url.removeprefix('sqlite:///')

    def back_up(self, unfinished):
        """Copy the database.

        :param unfinished: a server that was being built at that moment.
        """
        self.backup = sqlite3.connect(':memory:')
        self.addCleanup(self.backup.close)
        with contextlib.closing(sqlite3.connect(self._path)) as now:
            now.backup(self.backup)
        self.backup.execute(
            "UPDATE nodes SET provision_state = 'deploying' "
            'WHERE instance_uuid = ?', [unfinished['id']])
        self.backup.commit()

    def restore(self, lapsed):
        """Do what the page says, until Ironic is there again.

        :param lapsed: a reservation whose lease is over by then.
        """
        os.killpg(self.ironic.process.pid, signal.SIGKILL)
        self.ironic.process.wait()
        with contextlib.closing(sqlite3.connect(self._path)) as now:
            self.backup.backup(now)
        self.lapse(lapsed['instance_uuid'])
        for name in 'ironic-dbsync', 'ironic-reservations-dbsync':
            self.do_on_the_host(name)
        for statement in re.findall(r'^   +(UPDATE .*);$', PAGE, re.M):
            # Ironic may keep more of it than this column.
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
        self.do_on_the_host('ironic-reservations-manage')
        # Until then no power state is known.
        self.ironic.create(422, resource_class='gold')
        list_nodes = ('openstack baremetal node list --limit 0 '
                      '--no-maintenance --fields uuid -f value')
        for node in self.do(list_nodes):
            self.do('openstack baremetal node maintenance set --reason '
                    'restored NODE', NODE=node)
        self.assertEqual([], self.do(list_nodes))
        # As a conductor might that is too quick.
        self.read_power_states()

    def read_power_states(self):
        """Do what a conductor does, but cannot with fake hardware."""
        self.sql("UPDATE nodes SET power_state = CASE WHEN instance_uuid "
                 "IS NULL THEN 'power off' ELSE 'power on' END")

    # What the page says

    def do_on_the_host(self, name):
        [command] = re.findall(rf'^ +# ({name} .*)$', PAGE, re.M)
        services.run([services.program(name), *(
            self.ironic.conf_file if word == '/etc/ironic/ironic.conf'
            else word for word in command.split()[1:])], self.ironic.log)

    def do(self, command, status=0, **words):
        """Run a command of the page; its lines of output.

        :param words: what stands for the words in capitals.
        """
        self.assertRegex(PAGE, rf'(?m)^ +\$ {re.escape(command)}$')
        return self.run_as_said(' '.join(
            words.get(word, word) for word in command.split(' ')), status)

    def run_as_said(self, command, status=0):
        # What is printed goes to a file for the reader.
        done = self.openstack(*shlex.split(command.partition(' > ')[0])[1:])
        self.assertEqual(status, done.returncode, done.stderr)
        return done.stdout.splitlines()

    def openstack(self, *args, **env):
        return super().openstack(*args, **{
            'OS_NETWORK_ENDPOINT_OVERRIDE': self.network.url, **env})

    def elsewhere(self):
        """What the page's script prints: pairs of a node and a server."""
        nodes = '\n'.join(self.do(
            'openstack baremetal node list --limit 0 --fields uuid name '
            'instance_uuid -f value > nodes'))
        script, = re.findall(r'^   \$ python3 (\S+) < nodes$', PAGE, re.M)
        return {tuple(line.split()) for line in subprocess.run(
            [sys.executable, DOC / script], input=nodes, text=True,
            stdout=subprocess.PIPE, check=True, env={
                'OS_AUTH_TYPE': 'none', 'OS_ENDPOINT': self.network.url}
        ).stdout.splitlines()}

    def found(self):
        """What the audit finds: what to do by kind, instance and node."""
        done = self.command('audit')
        self.assertTrue(done.stdout, done.stderr)
        return {(each['Kind'], each['Instance'], each['Node']):
                each['What to Do'] for each in json.loads(done.stdout)}

    def give_back(self, server, node):
        """Give a server its machine back; returns its ports, as MAC by ID."""
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

    def open(self):
        for line in self.do(
                'openstack baremetal node list --limit 0 --maintenance '
                '--fields uuid maintenance_reason -f value'):
            node, reason = line.split()
            if reason == 'restored':
                self.do('openstack baremetal node maintenance unset NODE',
                        NODE=node)
        self.read_power_states()

    # What goes on meanwhile

    def boot_on(self, node, host=FIRST, port=None):
        return self.boot(
            self.flavor(**{'reservations:candidate_nodes': node}), host=host,
            networks=[{'port': port or self.port()}])

    def nodes_of(self, *servers):
        return [self.ironic.node_of(server).name for server in servers]

    def bound(self):
        """The MAC address of each port, and the node that it is bound to."""
        return {port['id']: (port['mac_address'], port['binding:host_id'])
                for port in self.neutron.list_ports(True)['ports']
                if port.get('device_id')}

    def test_as_the_page_says(self):
        port = self.port()
        deleted = self.boot_on('node-2', port=port)
        alone, replaced, moved, unfinished = [
            self.boot_on(f'node-{number}') for number in (1, 3, 4, 9)]
        leased = self.hold(candidate_nodes=['node-5'], expires_in=600)
        released = self.hold(candidate_nodes=['node-6'])
        self.ironic.baremetal.set_node_maintenance('node-8', 'broken')
        self.back_up(unfinished)

        self.delete(deleted, replaced)
        for held in leased, released:
            self.ironic.delete(held['instance_uuid'])
        newer = self.boot_on('node-5', SECOND, port)
        successor = self.boot_on('node-3', SECOND)
        late = self.hold(candidate_nodes=['node-7'])
        self.die(FIRST)
        self.give(moved, SECOND, FIRST)
        self.work(SECOND)
        self.assertEqual(SECOND, self.instance(moved).host)
        living = alone, moved, unfinished, newer, successor
        nodes, bound = self.nodes_of(*living), self.bound()
        self.die(SECOND)

        self.restore(leased)
        self.assertIn('| matching_nodes | 0 ', ''.join(self.do(
            'openstack baremetal reservation create --resource-class CLASS '
            '--dry-run', status=1, CLASS='gold')))
        self.ironic.create(422, resource_class='gold')
        wrong = {('node-5', newer['id']), ('node-3', successor['id'])}
        self.assertEqual(wrong, self.elsewhere())
        others = {('no-server', deleted['id'], 'node-2'),
                  ('wrong-host', moved['id'], 'node-4')}
        ports = {node: self.give_back({'id': server}, node)
                 for node, server in wrong}
        self.assertEqual(set(), self.elsewhere())
        [statement] = re.findall(r"^   (UPDATE .*\n.*'SERVER');$", PAGE, re.M)
        self.sql(statement.replace('SERVER', unfinished['id']))
        self.assertEqual(
            others | {('no-reservation', server, node)
                      for node, server in wrong}, set(self.found()))
        self.do('openstack baremetal reservation audit --repair', status=1)
        found = self.found()
        self.assertEqual(others, set(found))
        for what in found.values():
            self.run_as_said(what[what.index('openstack'):])
        self.ironic.settle([self.ironic.baremetal.get_node('node-2')],
                           provision_state='available')
        self.do('openstack baremetal reservation delete --all-projects '
                'INSTANCE', INSTANCE=released['instance_uuid'])
        for node, its in ports.items():
            self.attach(node, its)
        self.ironic.create(422, resource_class='gold')
        self.open()
        self.assert_found()
        self.do('openstack baremetal reservation create --candidate-node NODE '
                '--project PROJECT --instance-uuid INSTANCE', NODE='node-7',
                PROJECT=uuid.uuid4().hex, INSTANCE=late['instance_uuid'])
        self.assertEqual((nodes, bound), (self.nodes_of(*living),
                                          self.bound()))

        for host in FIRST, SECOND:
            self.come_back(host)
        for task in ('update_available_resource', '_sync_power_states',
                     '_cleanup_running_deleted_instances'):
            self.run_periodic(task=task)
        self.assert_found()
        self.assertEqual((nodes, bound), (self.nodes_of(*living),
                                          self.bound()))
        for server in living:
            self.act(server, 'reboot', 'ACTIVE', type='HARD')
            self.delete(server)
        self.ironic.delete(late['instance_uuid'])
        self.assert_nothing_left()
