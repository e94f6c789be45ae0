# SPDX-License-Identifier: Apache-2.0
"""The real openstack command against a real Ironic, Nova and Glance.

Options and output are tested in tests/api/test_cli.py, test_options.py and
test_cli_failures.py, audits of pools in test_audit.py,
overridden flavors in tests/unit/test_flavors.py, and lookups in Keystone in
test_keystone.py here.
"""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import uuid

import pytest
import sqlalchemy as sa

from tests.common import command
from tests.common.command import get_data
from tests.common.command import get_error
from tests.common.command import get_output
from tools import services

CLASS = 'baremetal.cli'

NODE = {'resource_class': CLASS, 'traits': ['CUSTOM_NVME'],
        'properties': {'memory_mb': 4096, 'cpus': 8, 'local_gb': 100,
                       'cpu_arch': 'x86_64',
                       'capabilities': 'gpus:4,boot_mode:uefi,fast:true'}}

NAMES = [f'cli-{number}' for number in range(5)]


@pytest.fixture
def cli(ironic):
    """Return a function that runs openstack baremetal reservation."""
    def run(*args, **env):
        return command.run(ironic.url, 'baremetal', 'reservation', *args,
                           **env)
    return run


def start_command(ironic, *args, program='openstack', stderr=subprocess.PIPE):
    """Start the real command in a separate process."""
    return subprocess.Popen(
        [program, *args], text=True, stdout=subprocess.PIPE,
        stderr=stderr, env=services.cli_environment(ironic.url))


@pytest.fixture(scope='module')
def fleet(ironic):
    """Enrol five equal nodes."""
    with ironic.fleet(*({**NODE, 'name': name} for name in NAMES)) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def free_nodes(ironic):
    yield
    ironic.free_nodes(CLASS)


def find_instances(ironic):
    """Return the UUIDs of all instances that hold a node."""
    return {instance for instance, in ironic.execute(
        'SELECT instance_uuid FROM nodes WHERE instance_uuid IS NOT NULL '
        'AND resource_class = :c', c=CLASS)}


def test_output_of_the_programs(ironic, fleet):
    """Progress is shown on a terminal; otherwise nothing else is printed."""
    group = '99999999-2222-4333-8444-555555555555'
    for program, args in (
            ('openstack', ['baremetal', 'reservation', 'group', 'create',
                           '--resource-class', CLASS, '--members', '2',
                           '--uuid', group]),
            # The command of python-ironicclient.
            ('baremetal', ['reservation', 'list'])):
        with start_command(ironic, *args, '-f', 'json',
                           program=program) as process:
            stdout, stderr = process.communicate(timeout=120)
        assert (process.returncode, stderr) == (0, '')
    assert {row['Node'] for row in json.loads(stdout)} < {*NAMES}
    reader, writer = pty.openpty()
    output = b''
    with start_command(
            ironic, 'baremetal', 'reservation', 'group', 'delete', group,
            stderr=writer) as process:
        os.close(writer)
        try:
            while data := os.read(reader, 1024):
                output += data
        except OSError:
            pass  # The other end is closed.
        assert process.stdout.read() == f'Deleted group {group}\n', output
    os.close(reader)
    assert process.returncode == 0
    assert f'group {group}, 2 reservations' in output.decode()


def test_interrupt_names_the_instance(ironic, cli, fleet):
    args = 'create', '--resource-class', CLASS
    with ironic.engine.connect() as connection:
        # The server has to wait until it may write.
        connection.execute(sa.text('BEGIN IMMEDIATE'))
        with start_command(ironic, '--debug', 'baremetal', 'reservation',
                           *args) as process:
            for line in process.stderr:
                if 'REQ: curl' in line and '-X POST' in line:
                    break
            process.send_signal(signal.SIGINT)
            output = process.stderr.read()
    assert process.returncode == 130
    match = re.search(
        r'^No response: instance (.*) may or may not hold nodes\. '
        r'Check with "openstack baremetal reservation show \1"\.$', output,
        re.MULTILINE)
    # The server has it, and a repeated request returns it.
    again = get_data(cli(*args, '--instance-uuid', match[1], '-f', 'json'))
    assert get_data(cli('show', match[1], '-f', 'json')) == again
    assert find_instances(ironic) == {match[1]}


def test_nodes_that_do_not_exist(ironic, cli, fleet):
    for args, status in (
            (['create', '--candidate-node', 'cli-1'], 0),
            (['group', 'create', '--members', '2', '--candidate-node',
              'cli-2'], 1),
            (['create', '--dry-run'], 1), (['explain'], 1)):
        result = cli(*args, '--candidate-node', 'cly-3', '--candidate-node',
                     'elsewhere')
        assert result.returncode == status
        lines = result.stderr.splitlines()
        assert 'No node cly-3 was found. Did you mean cli-3?' in lines
        assert 'No node elsewhere was found. Known: ' in result.stderr
    missing = 'No node cly-3 was found. Did you mean cli-3?\n'
    for args, message in (
            (['show', 'cly-3'], missing),
            (['delete', 'cly-3'], f'cly-3: {missing}'),
            (['show', 'elsewhere'], 'No node elsewhere was found.\n'),
            (['explain', 'web'], 'Cannot look up server "web": there is no '
                                 'compute service here\n'),
            (['set', 'cli-3', '--no-expiry'],
             'No reservation of node cli-3 could be found.\n')):
        assert get_error(cli(*args)) == message
    notice = '99999999-2222-4333-8444-555555555555'
    for args, hint, message in (
            (['report', 'cly-3'], '', missing),
            (['uncordon', 'cly-3'], '', f'cly-3: {missing}'),
            (['uncordon', 'cli-3'], '', 'cli-3: It has no open cordon.\n'),
            (['cordon', 'cli-3', 'cly-3'],
             'No node cly-3 was found. Did you mean cli-3?\n', 'nodes.1: '),
            (['notice', 'set', notice, '--node', 'cly-3', '--no-end'],
             'No node cly-3 was found. Did you mean cli-3?\n',
             f'No notice {notice} of node cly-3 could be found.')):
        assert get_error(cli(*args)).startswith(hint + message)
    assert cli('notice', 'list', '--node', 'cly-3').stderr == missing
    pool = ironic.http.post('/v1/reservations/pools', json={
        'project_id': 'east', 'members': 1,
        'request': {'candidate_nodes': ['cli-3']}}).json()['uuid']
    for verb in 'add', 'remove', 'replace':
        assert missing in get_error(cli('pool', verb, pool, 'cly-3'))
    assert get_error(cli('pool', 'add', pool, 'cli-3')).count('\n') == 1
    get_output(cli('pool', 'delete', pool))
    for node, message in (
            ('cly-3', missing),
            ('cli-3', 'No reservations found with node cli-3.\n')):
        result = cli('list', '--node', node)
        assert (result.returncode, result.stderr) == (0, message)
    # No other test holds this node: which one of equal nodes they get is
    # left to chance.
    with ironic.fleet({**NODE, 'name': 'never', 'resource_class': 'never'}):
        for node, status in ('cly-3', 1), ('never', 0):
            result = cli('history', node)
            assert (result.returncode, result.stdout) == (status, '\n')


# create --flavor --image


SPECS = {'trait:CUSTOM_NVME': 'required', 'resources:VCPU': '0',
         'resources:CUSTOM_BAREMETAL_CLI': '1', 'capabilities:gpus': '>= 2',
         'hw:boot_menu': 'true'}


@pytest.fixture(scope='module')
def flavors(nova):
    """Create flavors in Nova; return them by name."""
    compute = services.connect(nova, 'compute')

    def create(name, specs, **attributes):
        flavor = compute.create_flavor(name=name, **attributes)
        if specs:
            compute.create_flavor_extra_specs(flavor, specs)
        return flavor

    return {flavor.name: flavor for flavor in (
        create('bm.cli', SPECS, ram=2048, vcpus=16, disk=20, ephemeral=10,
               swap=1024, rxtx_factor=1.5),
        # Nova shows no swap as an empty text.
        create('bm.plain', {}, ram=1024, vcpus=1, disk=0))}


@pytest.fixture(scope='module')
def images(glance):
    """Create images in Glance; return them by name."""
    service = services.connect(glance, 'image')

    def create(name, **body):
        # The SDK would add further properties.
        response = service.post('/images', json={'name': name, **body})
        assert response.status_code == 201, response.text
        return response.json()

    return {image['name']: image for image in (
        create('debian', min_ram=512, min_disk=5, hw_architecture='amd64',
               hw_firmware_type='uefi', img_hv_type='baremetal',
               os_distro='debian', description='x' * 2000,
               **{'trait:CUSTOM_NVME': 'required'}),
        create('old', architecture='x86_64', hypervisor_type='ironic'),
        create('both', architecture='i686', hw_architecture='x86_64'),
        create('bare'),
        create('twice'), create('twice'))}


@pytest.fixture
def cloud(cli, nova, glance):
    """Return a function that runs the command with Nova and Glance."""
    def run(*args, **env):
        return cli(*args, **{'OS_COMPUTE_ENDPOINT_OVERRIDE': nova,
                             'OS_IMAGE_ENDPOINT_OVERRIDE': glance, **env})
    return run


@pytest.mark.long
def test_flavor_and_image(ironic, fleet, cloud, flavors, images):
    flavor, image = flavors['bm.cli'], images['debian']
    expected = {
        'memory_mb': 2048, 'vcpus': 16, 'root_gb': 20, 'ephemeral_gb': 10,
        'swap': 1024, 'rxtx_factor': 1.5, 'name': 'bm.cli',
        'flavorid': flavor.id, 'extra_specs': SPECS,
        'image': {'id': image['id'], 'min_ram': 512, 'min_disk': 5,
                  'properties': {'hw_architecture': 'amd64',
                                 'hw_firmware_type': 'uefi',
                                 'img_hv_type': 'baremetal',
                                 'trait:CUSTOM_NVME': 'required'}}}
    for names in ['bm.cli', 'debian'], [flavor.id, image['id']]:
        result = cloud('create', '-f', 'json', '--flavor', names[0],
                       '--image', names[1])
        reservation = json.loads(result.stdout)
        assert reservation['node_name'] in NAMES
        assert reservation['request_spec'] == expected
        assert result.stderr == 'Not compared with nodes: hw:boot_menu\n'
    group = get_data(cloud(
        'group', 'create', '-f', 'json', '--members', '1', '--flavor',
        'bm.plain', '--image', 'bare', '--resource-class', CLASS))
    for instance in (
            group['reservations'][0]['instance_uuid'], get_data(cloud(
                'create', '-f', 'json', '--resource-class', CLASS,
                '--image', 'bare', '--flavor', 'bm.plain'))['instance_uuid']):
        assert ironic.show(instance)['request_spec'] == {
            'memory_mb': 1024, 'vcpus': 1, 'root_gb': 0, 'name': 'bm.plain',
            'flavorid': flavors['bm.plain'].id, 'resource_class': CLASS,
            'image': {'id': images['bare']['id']}}
    assert json.loads(cloud('explain', '--flavor', 'bm.plain',
                            '-f', 'json').stdout)['matching_nodes'] == 1
    ironic.free_nodes(CLASS)
    for image, properties in (
            ('old', {'hw_architecture': 'x86_64', 'img_hv_type': 'ironic'}),
            ('both', {'hw_architecture': 'x86_64'})):
        reservation = get_data(cloud('create', '-f', 'json', '--image', image,
                                     '--resource-class', CLASS))
        assert reservation['request_spec']['image']['properties'] == (
            properties)
    url = f'http://127.0.0.1:{services.free_port()}'
    for kind, ident, env, message in (
            ('flavor', 'none', {}, 'No Flavor found for none'),
            ('image', 'none', {}, 'No Image found for none'),
            ('image', 'twice', {}, "More than one Image exists with the name "
             "'twice'."),
            ('flavor', 'x', {'OS_COMPUTE_ENDPOINT_OVERRIDE': url}, url),
            ('flavor', 'x', {'OS_COMPUTE_ENDPOINT_OVERRIDE': ''},
             'there is no compute service here')):
        error = get_error(cloud('create', '--resource-class', CLASS,
                                f'--{kind}', ident, **env))
        assert error.startswith(f'Cannot look up {kind} "{ident}": ')
        assert message in error and error.count('\n') == 1


def test_audit_without_nova(ironic, cli, fleet):
    """Only Ironic is checked; the shown commands make the nodes free again."""
    dirty, foreign, overdue, *_ = fleet
    ironic.http.patch(f'/v1/nodes/{dirty.id}', json=[
        {'op': 'add', 'path': f'/instance_info/{key}', 'value': 'x'}
        for key in ('image_source', 'a b')])
    ironic.http.post('/v1/volume/targets', json={
        'node_uuid': dirty.id, 'volume_type': 'iscsi', 'boot_index': 0,
        'volume_id': 'x'})
    for table, ident in ('ports', '52:54:00:00:00:01'), (
            'portgroups', '52:54:00:00:00:02'):
        response = ironic.http.post(f'/v1/{table}', json={
            'node_uuid': dirty.id, 'address': ident,
            'extra': {'vif_port_id': 'y'}})
        assert response.status_code == 201, response.text
    ironic.http.patch(f'/v1/nodes/{foreign.id}', json=[
        {'op': 'add', 'path': '/instance_uuid', 'value': str(uuid.uuid4())}])
    # No request has released it yet.
    hold = ironic.create(candidate_nodes=[overdue.id], expires_in=3600)
    ironic.expire(hold['instance_uuid'])
    rows = json.loads(cli('audit', '-f', 'json').stdout)
    assert [(row['Kind'], row['Node']) for row in rows] == [
        ('unknown-instance', foreign.name), ('prepared', dirty.name)]
    assert ironic.find_instance(overdue.id) == hold['instance_uuid']
    for row in rows:
        condition, _, commands = row['What to Do'].partition(': ')
        assert condition == 'unless somebody is about to deploy it'
        for words in map(shlex.split, commands.split('; ')):
            result = command.run(ironic.url, *words[1:])
            assert result.returncode == 0, result.stderr
    result = cli('audit')
    assert result.returncode == 0
    assert result.stdout.startswith('Nothing disagrees: ')
    assert result.stderr.startswith('There is no Nova here: ')
    hold = ironic.create(candidate_nodes=[dirty.id], host='host-1')
    ironic.set_node(hold['node_uuid'], provision_state='deploy failed')
    for options in [], ['--repair']:
        result = command.run_baremetal(ironic.url, 'reservation', 'audit',
                                       '-f', 'json', *options)
        assert result.returncode == 1
        row, = json.loads(result.stdout)
        assert (row['Kind'], row['Node']) == ('failed', dirty.name)
    for table in 'ports', 'portgroups':
        ironic.execute(f'DELETE FROM {table}')
