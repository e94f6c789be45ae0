# SPDX-License-Identifier: Apache-2.0
"""Render configuration with Kolla-Ansible, and images with Kolla.

The result is compared with the record. With ``IRONIC_RESERVATIONS_RECORD=1``
it replaces the record.
"""

import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tempfile

import yaml

HERE = pathlib.Path(__file__).parent
RECORD = HERE / 'record'
EXAMPLES = HERE.parents[1] / 'doc/source/examples'
PROGRAMS = pathlib.Path(sys.prefix, 'bin')
SHARE = pathlib.Path(sys.prefix, 'share')
KOLLA = SHARE / 'kolla-ansible'

#: What Kolla-Ansible itself writes into [ironic] of nova.conf.
LOGIN = ('auth_type', 'auth_url', 'username', 'password', 'user_domain_name',
         'system_scope')
#: The images that the guide "kolla" builds, and their parents with packages.
IMAGES = ('horizon', 'ironic/ironic-api', 'ironic/ironic-base',
          'nova/nova-base')


def write_configuration(folder):
    """Write an operator's files as the guides for Kolla describe them."""
    for name in 'horizon', 'nova', 'prometheus/prometheus.yml.d':
        (folder / name).mkdir(parents=True)
    compute = (EXAMPLES / 'nova-compute.conf').read_text().splitlines(True)
    texts = {
        'ironic.conf': '[api]\nmiddleware = reservations\n',
        'nova/nova-compute-ironic.conf': ''.join(
            line for line in compute if line.partition(' = ')[0] not in LOGIN
        ) + (EXAMPLES / 'kolla/nova-compute-ironic.conf').read_text(),
        'nova/nova-conductor.conf': '[scheduler]\nmax_attempts = 5\n'}
    for name, text in texts.items():
        (folder / name).write_text(text)
    prometheus = folder / 'prometheus'
    targets = prometheus / 'prometheus.yml.d/ironic-reservations.yml'
    for source, target in {
            'kolla/_9999-custom-settings.py': folder / 'horizon',
            'kolla/galera.cnf': folder,
            'kolla/prometheus.yml': targets,
            'nova-scheduler.conf': folder / 'nova',
            'placement.conf': folder,
            'prometheus-rules.yaml': prometheus / 'ironic-reservations.rules',
    }.items():
        shutil.copy(EXAMPLES / source, target)


def write_inventory(folder):
    shutil.copytree(KOLLA / 'ansible/group_vars', folder / 'group_vars')
    shutil.copy(HERE / 'inventory.yml', folder)
    text = (KOLLA / 'ansible/inventory/multinode').read_text()
    ours = (EXAMPLES / 'kolla/inventory.ini').read_text()
    for pattern, replacement in {
            r'^[a-z]+0(\d)$': r'controller-\1',
            r'^\[nova-compute-ironic:children\]\nnova$': ours}.items():
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        assert count
    (folder / 'multinode').write_text(text)
    passwords = yaml.safe_load(
        (KOLLA / 'etc_examples/kolla/passwords.yml').read_text())
    (folder / 'group_vars/all/passwords.yml').write_text(yaml.safe_dump(
        dict.fromkeys(passwords, 'secret')))


def render_configuration(folder, result, controllers, *files):
    """Write the files of controllers.

    :param folder: with the configuration and the inventory.
    :param files: with values of variables.
    """
    variables = {'kolla': KOLLA / 'ansible', 'rendered': result,
                 'configuration': folder / 'configuration',
                 'controllers': controllers,
                 'ansible_python_interpreter': sys.executable}
    subprocess.run(
        [PROGRAMS / 'ansible-playbook', '-i', folder / 'inventory',
         *(word for name, value in variables.items()
           for word in ('-e', f'{name}={value}')),
         *(word for path in files for word in ('-e', f'@{path}')),
         HERE / 'playbook.yml'],
        check=True, env={
            **os.environ, 'ANSIBLE_HOME': str(folder / 'home'),
            'ANSIBLE_ACTION_PLUGINS': str(KOLLA / 'ansible/action_plugins'),
            'ANSIBLE_FILTER_PLUGINS': str(KOLLA / 'ansible/filter_plugins')})
    check_prometheus(result / 'controller-1/prometheus-server')


def check_prometheus(folder):
    """Let promtool check the configuration and its rules."""
    path = folder / 'checked.yml'
    path.write_text((folder / 'prometheus.yml').read_text().replace(
        '/etc/prometheus/', f'{folder}/'))
    subprocess.run(['promtool', 'check', 'config', path], check=True)
    path.unlink()
    # They have tests of their own.
    (folder / 'ironic-reservations.rules').unlink()


def render_images(folder, result):
    """Write the Dockerfiles, and the start of the API's container."""
    subprocess.run(
        [PROGRAMS / 'kolla-build', '--template-only', '--work-dir', folder,
         '--base', 'debian', '--tag', '2026.1-COMMIT',
         '--registry', 'registry.example.com:5000', '--template-override',
         EXAMPLES / 'kolla/template-overrides.j2',
         '^ironic-api$', '^nova-compute-ironic$', '^nova-scheduler$',
         '^horizon$'], check=True)
    for image in IMAGES:
        text = (folder / 'docker' / image / 'Dockerfile').read_text()
        target = result / image
        target.mkdir(parents=True)
        # Without the day of the build, and with few empty lines.
        text = re.sub('^LABEL.*', '', text, flags=re.MULTILINE)
        (target / 'Dockerfile').write_text(re.sub(r'\n\s*\n', '\n\n', text))
    write_start(folder / 'docker/ironic/ironic-api', result)


def write_start(folder, result):
    """Change the script that starts the API's container, as its image does."""
    [command] = re.findall(r'^RUN (start=.*?[^\\])$',
                           (folder / 'Dockerfile').read_text(),
                           re.DOTALL | re.MULTILINE)
    path = result / 'ironic/ironic-api/kolla_ironic_extend_start'
    shutil.copy(folder / 'extend_start.sh', path)
    subprocess.run(['sh', '-c', command.replace(
        '/usr/local/bin/kolla_ironic_extend_start', str(path))], check=True)


def check_exporter():
    """Let the program that starts each container check the exporter's file."""
    start = runpy.run_path(str(SHARE / 'kolla/docker/base/set_configs.py'))
    start['validate_config'](json.loads(
        (EXAMPLES / 'kolla/exporter.json').read_text()))


def render(folder):
    """Write all files; return their folder."""
    write_configuration(folder / 'configuration')
    write_inventory(folder / 'inventory')
    result, values = folder / 'rendered', [
        HERE / 'globals.yml', EXAMPLES / 'kolla/globals.yml']
    render_configuration(folder, result / 'plain', 'baremetal', *values)
    render_configuration(folder, result / 'tls', 'controller-1', *values,
                         HERE / 'tls.yml')
    render_images(folder / 'kolla', result / 'images')
    check_exporter()
    return result


def main():
    with tempfile.TemporaryDirectory() as folder:
        result = render(pathlib.Path(folder))
        if os.environ.get('IRONIC_RESERVATIONS_RECORD'):
            shutil.rmtree(RECORD, ignore_errors=True)
            shutil.copytree(result, RECORD)
        return subprocess.run(['diff', '-r', RECORD, result]).returncode


if __name__ == '__main__':
    sys.exit(main())
