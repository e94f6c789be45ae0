# SPDX-License-Identifier: Apache-2.0
"""Render configuration with Kolla-Ansible, and compare it with the record.

With ``IRONIC_RESERVATIONS_RECORD=1`` the result replaces the record.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import yaml

HERE = pathlib.Path(__file__).parent
RECORD = HERE / 'record'
EXAMPLES = HERE.parents[1] / 'doc/source/examples'
KOLLA = pathlib.Path(sys.prefix, 'share/kolla-ansible')

#: Groups of hosts that the templates list.
GROUPS = ('compute', 'glance-api', 'memcached', 'nova-compute-ironic',
          'rabbitmq')
#: What Kolla-Ansible itself writes into [ironic] of nova.conf.
LOGIN = ('auth_type', 'auth_url', 'username', 'password', 'user_domain_name',
         'system_scope')


def write_configuration(folder):
    """Write an operator's files as the guide "deploying" describes them."""
    (folder / 'nova').mkdir(parents=True)
    compute = (EXAMPLES / 'nova-compute.conf').read_text().splitlines(True)
    texts = {
        'nova-compute-ironic': ''.join([
            *(line for line in compute
              if line.partition(' = ')[0] not in LOGIN),
            '[DEFAULT]\nmanager_shutdown_timeout = 5\n'
            '[reservations]\nstandby = true\n'
            '[oslo_messaging_rabbit]\nuse_queue_manager = false\n'
            'heartbeat_timeout_threshold = 10\n'
            'rabbit_qos_prefetch_count = 1\n']),
        'nova-conductor': '[scheduler]\nmax_attempts = 5\n',
        'nova-scheduler': (EXAMPLES / 'nova-scheduler.conf').read_text()}
    for name, text in texts.items():
        (folder / f'nova/{name}.conf').write_text(text)
    (folder / 'ironic.conf').write_text('[api]\nmiddleware = reservations\n')
    shutil.copy(EXAMPLES / 'placement.conf', folder)


def write_inventory(folder):
    shutil.copytree(KOLLA / 'ansible/group_vars', folder / 'group_vars')
    shutil.copy(HERE / 'inventory.yml', folder)
    (folder / 'groups.yml').write_text(yaml.safe_dump({
        group: {'children': {'control': {}}} for group in GROUPS}))
    passwords = yaml.safe_load(
        (KOLLA / 'etc_examples/kolla/passwords.yml').read_text())
    (folder / 'group_vars/all/passwords.yml').write_text(yaml.safe_dump(
        dict.fromkeys(passwords, 'secret')))


def render(folder):
    """Write the files of both controllers; return their folder."""
    write_configuration(folder / 'configuration')
    write_inventory(folder / 'inventory')
    variables = {'kolla': KOLLA / 'ansible',
                 'configuration': folder / 'configuration',
                 'rendered': folder / 'rendered'}
    subprocess.run(
        [pathlib.Path(sys.prefix, 'bin/ansible-playbook'),
         '-i', folder / 'inventory',
         *(word for name, value in variables.items()
           for word in ('-e', f'{name}={value}')),
         '-e', f'@{HERE}/globals.yml', HERE / 'playbook.yml'],
        check=True, env={
            **os.environ, 'ANSIBLE_HOME': str(folder / 'home'),
            'ANSIBLE_ACTION_PLUGINS': str(KOLLA / 'ansible/action_plugins'),
            'ANSIBLE_FILTER_PLUGINS': str(KOLLA / 'ansible/filter_plugins')})
    return folder / 'rendered'


def main():
    with tempfile.TemporaryDirectory() as folder:
        result = render(pathlib.Path(folder))
        if os.environ.get('IRONIC_RESERVATIONS_RECORD'):
            shutil.rmtree(RECORD, ignore_errors=True)
            shutil.copytree(result, RECORD)
        return subprocess.run(['diff', '-r', RECORD, result]).returncode


if __name__ == '__main__':
    sys.exit(main())
