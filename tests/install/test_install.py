# SPDX-License-Identifier: Apache-2.0
"""The documented removal, and the lowest versions of dependencies.

test_deployments.py checks that an installation upgrades no package.
"""

import json
import os
import re
import shutil

import pytest
import requests
import sqlalchemy as sa

from tests.common import contract
from tests.common import programs
from tests.common import service
from tests.install import environments
from tools import services

ROOT = environments.ROOT
OURS = '/v1/reservations'


def read_commands():
    """Return the commands on the page about the removal, as scripts."""
    page = (ROOT / 'doc/source/how-to/uninstall.rst').read_text()
    blocks = re.findall(r'\.\. code-block:: console\n\n((?: {6}.*\n)+)', page)
    return [re.sub(r'^ {6}(?:[$#] )?', '', block, flags=re.MULTILINE)
            for block in blocks]


def test_bill_of_materials(wheel, tmp_path):
    """It is reproducible, and lists only pinned versions."""
    shutil.copy(wheel, tmp_path)
    programs.run(ROOT / 'tools/sbom.sh', tmp_path, env={
        **os.environ, 'PATH': f'{ROOT}/.tox/dist/bin:{os.environ["PATH"]}'})
    bill, = tmp_path.glob('*.cdx.json')
    assert bill.read_bytes() == (wheel.parent / bill.name).read_bytes()
    components = {(item['name'].lower(), item['version'])
                  for item in json.loads(bill.read_text())['components']}
    assert ('ironic-reservations', wheel.name.split('-')[1]) in components
    pins = {tuple(line.lower().split('==')) for line in (
        ROOT / 'constraints.txt').read_text().splitlines()}
    others = {item for item in components if item[0] != 'ironic-reservations'}
    assert others <= pins and 80 < len(others) < 200
    programs.run('sha256sum', '--check', '--strict', 'SHA256SUMS',
                 cwd=wheel.parent)
    assert (wheel.parent / 'SHA256SUMS').read_text().count('\n') == 3


@pytest.mark.timeout(900)
def test_removal_and_new_installation(environment, wheel, tmp_path,
                                      monkeypatch):
    """Run the commands of the page."""
    environment.install(
        '-c', environments.constraints(tmp_path / 'constraints.txt', None),
        'ironic', f'{wheel}[osc]', 'pip')
    environment.programs(monkeypatch)
    database_url = f'sqlite:///{tmp_path}/ironic.sqlite'
    # There is no systemd here.
    systemctl = tmp_path / 'bin' / 'systemctl'
    systemctl.parent.mkdir()
    systemctl.write_text('#!/bin/sh\n')
    systemctl.chmod(0o755)

    def run(script, ironic, **names):
        for name, value in {'/etc/ironic/ironic.conf': ironic.conf_file,
                            **names}.items():
            script = script.replace(name, value)
        # All questions are answered with yes.
        return programs.run('bash', '-ec', f'({script}) <<<y', env={
            'PATH': f'{systemctl.parent}:{environment.bin}:/usr/bin:/bin',
            'HOME': str(tmp_path), 'OS_AUTH_TYPE': 'none',
            'OS_ENDPOINT': ironic.url})

    release, clear, delete_pool, sweep, drop, uninstall = read_commands()
    with services.ironic(tmp_path, database_url, services.free_port(),
                         config=environments.CONFIG,
                         kill=True) as ironic:
        for _ in range(2):
            service.Http(ironic.url).post('/v1/nodes', json={
                'driver': 'fake-hardware', 'resource_class': 'gold'}
            ).raise_for_status()
        with sa.create_engine(database_url).begin() as connection:
            connection.execute(sa.text(
                "UPDATE nodes SET provision_state = 'available', "
                "power_state = 'power off'"))
        one, two = (reserve(ironic) for _ in range(2))
        output = run(release, ironic, INSTANCE=one['instance_uuid'])
        assert two['instance_uuid'] in output
        run(clear, ironic, NODE=two['node_uuid'])
        pool = requests.post(
            f'{ironic.url}{OURS}/pools', timeout=60, json={
                'project_id': 'p', 'members': 1,
                'request': {'resource_class': 'gold'}})
        contract.check(pool, 201)
        output = run(delete_pool, ironic, POOL=pool.json()['uuid'])
        assert f'pool {pool.json()["uuid"]}' in output
        run(sweep, ironic)
    run(drop, ironic)
    run(uninstall, ironic)
    with restart(ironic, middleware=''):
        http = service.Http(ironic.url)
        nodes = http.get('/v1/nodes/detail').json()['nodes']
        assert [node['instance_uuid'] for node in nodes] == [None, None]
        assert http.get(OURS).status_code == 404
    assert not [name for name in sa.inspect(
        sa.create_engine(database_url)).get_table_names()
        if 'reservations' in name]
    environment.install(wheel)
    environment.run('ironic-reservations-dbsync', '--config-file',
                    ironic.conf_file, 'upgrade')
    with restart(ironic, middleware='reservations'):
        environment.check(ironic.conf_file)
        for _ in range(2):
            reserve(ironic)


def reserve(ironic):
    response = requests.post(f'{ironic.url}{OURS}', timeout=60,
                             json={'resource_class': 'gold'})
    contract.check(response, 201)
    return response.json()


def restart(ironic, middleware):
    """Run the same Ironic with other middleware: a context manager."""
    config = services.read_conf(ironic.conf_file)
    config['api']['middleware'] = middleware
    services.write_conf(ironic.conf_file, config)
    return services.running(
        [services.program('ironic'), '--config-file', ironic.conf_file],
        ironic.log, f'{ironic.url}/v1', kill=True)


#: Runs with the lowest versions, without a server.
PROBE = """
import json
import sys

import webob

from ironic_reservations import wsgi


def ask(method, path, status, **body):
    request = webob.Request.blank(path, method=method)
    if body:
        request.content_type = 'application/json'
        request.json_body = body
    response = request.get_response(wsgi.application)
    assert response.status_int == status, (method, path, response)
    return response


OURS = '/v1/reservations'
spec = {'resource_class': 'gold', 'expires_in': 60,
        'extra_specs': {'capabilities:gpus': '>= 2'}}
reservation = ask('POST', OURS, 201, **spec).json
ask('POST', OURS, 200, **spec, instance_uuid=reservation['instance_uuid'])
ask('POST', OURS, 422, **spec)
ask('POST', OURS, 400, memory_mb=True)
ask('POST', f'{OURS}?dry_run=true', 200, **spec)
ask('GET', OURS, 200)
ask('GET', f'{OURS}/capacity', 200)
ask('GET', f'{OURS}/{reservation["instance_uuid"]}', 200)
ask('PUT', OURS, 405)
ask('GET', '/v1/nodes', 404)
ask('GET', '/healthcheck', 200)
ask('DELETE', f'{OURS}/{reservation["instance_uuid"]}', 204)
"""


@pytest.mark.timeout(600)
def test_lowest_versions(environment, wheel, tmp_path):
    """The application alone works with the lowest required versions."""
    lowest = re.findall(r'^([\w.-]+)>=([\w.]+)',
                        (ROOT / 'requirements.txt').read_text(), re.MULTILINE)
    path = tmp_path / 'lowest.txt'
    path.write_text('\n'.join(f'{name}=={version}'
                              for name, version in lowest))
    # The oldest keystonemiddleware imports setuptools without requiring it.
    environment.install('-c', path, wheel, 'setuptools<81')
    assert set(path.read_text().split('\n')) <= environment.freeze()
    database_url = f'sqlite:///{tmp_path}/ironic.sqlite'
    audit_map = tmp_path / 'audit_map.conf'
    audit_map.write_text('[path_keywords]\nreservations = instance_uuid\n')
    conf_file = services.write_conf(tmp_path / 'ironic.conf', {
        'DEFAULT': {**services.FAKE_HARDWARE, 'auth_strategy': 'noauth',
                    'notification_level': 'info'},
        'database': {'connection': database_url},
        'audit': {'enabled': True, 'audit_map_file': audit_map},
        'healthcheck': {'enabled': True, 'backends': 'reservations'},
        'oslo_messaging_notifications': {'driver': 'noop',
                                         'transport_url': 'fake://'}})
    services.create_schema(conf_file, tmp_path / 'dbsync.log', plugin=False)
    environment.run('ironic-reservations-dbsync', '--config-file', conf_file,
                    'upgrade')
    add_node(database_url)
    environment.run(
        'python', '-c', PROBE, cwd=tmp_path,
        env={'OS_IRONIC_RESERVATIONS_CONFIG_FILES': conf_file})


def add_node(database_url):
    with sa.create_engine(database_url).begin() as connection:
        connection.execute(sa.text(
            'INSERT INTO nodes (uuid, name, driver, provision_state, '
            'power_state, maintenance, resource_class, conductor_group, '
            'properties, instance_info) VALUES '
            "('5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e', 'node-1', "
            "'fake-hardware', 'available', 'power off', 0, 'gold', '', "
            """'{"memory_mb": 1024, "capabilities": "gpus:2"}', '{}')"""))
