# SPDX-License-Identifier: Apache-2.0
"""The real openstack command against a real Ironic, Nova and Glance.

What it asks for and tells is in tests/api/test_cli.py, test_options.py and
test_cli_failures.py; what it looks up in Keystone, in test_keystone.py here.
"""

import json
import os
import pty
import re
import signal
import subprocess

import pytest
import sqlalchemy as sa

from tests.common import command
from tests.common.command import get_data
from tests.common.command import get_error
from tools import services

CLASS = 'baremetal.cli'

NODE = {'resource_class': CLASS, 'traits': ['CUSTOM_NVME'],
        'properties': {'memory_mb': 4096, 'cpus': 8, 'local_gb': 100,
                       'cpu_arch': 'x86_64',
                       'capabilities': 'gpus:4,boot_mode:uefi,fast:true'}}

NAMES = [f'cli-{number}' for number in range(5)]


@pytest.fixture
def cli(ironic):
    """Runs openstack baremetal reservation, with more of environment."""
    def run(*args, **env):
        return command.run(ironic.url, 'baremetal', 'reservation', *args,
                           **env)
    return run


def real(ironic, *args, stderr=subprocess.PIPE):
    """Starts the real command, a process of its own."""
    return subprocess.Popen(
        ['openstack', *args], text=True, stdout=subprocess.PIPE,
        stderr=stderr, env=services.cli_environment(ironic.url))


@pytest.fixture(scope='module')
def fleet(ironic):
    """Five equal nodes."""
    with ironic.fleet(*({**NODE, 'name': name} for name in NAMES)) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def given_back(ironic):
    yield
    ironic.free_nodes(CLASS)


def instances(ironic):
    """Return the UUIDs of all instances that hold a node."""
    return {instance for instance, in ironic.execute(
        'SELECT instance_uuid FROM nodes WHERE instance_uuid IS NOT NULL '
        'AND resource_class = :c', c=CLASS)}


def test_progress(ironic, fleet):
    """Progress is shown if standard error is a terminal."""
    group = '99999999-2222-4333-8444-555555555555'
    with real(ironic, 'baremetal', 'reservation', 'group', 'create',
              '--resource-class', CLASS, '--members', '2', '--uuid', group,
              '-f', 'json') as process:
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, '')
    assert len(json.loads(stdout)['reservations']) == 2
    ours, theirs = pty.openpty()
    output = b''
    with real(ironic, 'baremetal', 'reservation', 'group', 'delete', group,
              stderr=theirs) as process:
        os.close(theirs)
        try:
            while data := os.read(ours, 1024):
                output += data
        except OSError:
            pass  # The other end is closed.
        assert process.stdout.read() == f'Deleted group {group}\n', output
    os.close(ours)
    assert process.returncode == 0
    assert f'group {group}, 2 reservations' in output.decode()


# Without a response


@pytest.mark.parametrize(('args', 'option', 'show'), [
    (['create'], '--instance-uuid', 'show'),
    pytest.param(['group', 'create', '--members', '2'], '--uuid',
                 'group show', marks=pytest.mark.long)])
def test_interrupt_names_what_is_held(ironic, cli, fleet, args, option, show):
    command = 'baremetal', 'reservation', *args, '--resource-class', CLASS
    with ironic.engine.connect() as connection:
        # The server waits for its turn to write.
        connection.execute(sa.text('BEGIN IMMEDIATE'))
        with real(ironic, '--debug', *command) as process:
            for line in process.stderr:
                if 'REQ: curl' in line and '-X POST' in line:
                    break
            process.send_signal(signal.SIGINT)
            output = process.stderr.read()
    assert process.returncode == 130
    match = re.search(
        r'^No response: (?:instance|group) (.*) may or may not hold nodes\. '
        rf'Check with "openstack baremetal reservation {show} \1"\.$', output,
        re.MULTILINE)
    # The server has this one, and a repeated request returns it.
    again = get_data(cli(*command[2:], option, match[1], '-f', 'json'))
    assert get_data(cli(*show.split(), match[1], '-f', 'json')) == again
    assert len(instances(ironic)) == (2 if args[0] == 'group' else 1)


def run_all(cli, commands):
    return [cli(*args) for args in commands]


# Names of nodes


@pytest.mark.parametrize(('args', 'status'), [
    (['create', '--candidate-node', 'cli-1'], 0),
    (['create', '--candidate-node', 'cli-1', '--dry-run'], 0),
    (['group', 'create', '--members', '1', '--candidate-node', 'cli-1'], 0),
    (['group', 'create', '--members', '2', '--candidate-node', 'cli-1'], 1),
    (['create', '--trait', 'CUSTOM_NVME'], 1),
    (['create', '--dry-run'], 1),
    (['explain'], 1)])
def test_candidates_that_do_not_exist(cli, fleet, args, status):
    result = cli(*args, '--candidate-node', 'cly-3', '--candidate-node',
               'elsewhere')
    assert result.returncode == status
    lines = result.stderr.splitlines()
    assert 'No node cly-3 was found. Did you mean cli-3?' in lines
    assert 'No node elsewhere was found. Known: ' in result.stderr


def test_names_that_have_no_reservation(cli, fleet):
    missing = 'There is no node cly-3. Did you mean cli-3?\n'
    for args, message in (
            (['show', 'cly-3'], missing),
            (['delete', 'cly-3'], f'cly-3: {missing}'),
            (['show', 'elsewhere'], 'There is no node elsewhere.\n'),
            (['set', 'cli-3', '--no-expiry'],
             'No reservation of node cli-3 could be found.\n')):
        assert get_error(cli(*args)) == message
    for node, message in (
            ('cly-3', missing),
            ('cli-3', 'No reservations found with node cli-3.\n')):
        result = cli('list', '--node', node)
        assert (result.returncode, result.stderr) == (0, message)


# create --flavor --image


SPECS = {'trait:CUSTOM_NVME': 'required', 'resources:VCPU': '0',
         'resources:CUSTOM_BAREMETAL_CLI': '1', 'capabilities:gpus': '>= 2',
         'hw:boot_menu': 'true'}


@pytest.fixture(scope='module')
def flavors(nova):
    """The flavors in Nova, by name."""
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
        create('bm.plain', {}, ram=1024, vcpus=1, disk=0),
        create('bm.wrong', {
            'resources:MEMORY_MB': '0', 'resources1:VCPU': '0',
            'resources:DISK_GB': '0', 'resources:CUSTOM_OTHER': '1',
            'trait1:CUSTOM_NVME': 'forbidden',
            'reservations:trait:CUSTOM_GPU': 'required',
            'trait:HW_CPU_X86_AVX': 'forbidden',
            'capabilities': 'fast:false,gpus:9,boot_mode:uefi',
            'capabilities:gpus': '9', 'cpu_arch': 'aarch64',
            'reservations:candidate_nodes': 'elsewhere',
            'reservations:match': 'exact'},
            ram=64, vcpus=64, disk=64, ephemeral=64, swap=64))}


@pytest.fixture(scope='module')
def images(glance):
    """The images in Glance, by name."""
    service = services.connect(glance, 'image')

    def create(name, **body):
        # The SDK adds properties of its own.
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
    """The command with access to Nova and Glance."""
    def run(*args, **env):
        return cli(*args, **{'OS_COMPUTE_ENDPOINT_OVERRIDE': nova,
                             'OS_IMAGE_ENDPOINT_OVERRIDE': glance, **env})
    return run


def test_flavor_and_image(fleet, cloud, flavors, images):
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
    for result in run_all(cloud, [
            ['create', '-f', 'json', '--flavor', 'bm.cli',
             '--image', 'debian'],
            ['create', '-f', 'json', '--flavor', flavor.id,
             '--image', image['id']]]):
        reservation = json.loads(result.stdout)
        assert reservation['node_name'] in NAMES
        assert reservation['request_spec'] == expected
        assert result.stderr == 'Not compared with nodes: hw:boot_menu\n'


def test_flavor_and_images_of_few_words(fleet, cloud, flavors, images):
    group = get_data(cloud(
        'group', 'create', '-f', 'json', '--members', '1', '--flavor',
        'bm.plain', '--image', 'bare', '--resource-class', CLASS))
    plain, *others = run_all(cloud, [
        ['create', '-f', 'json', '--resource-class', CLASS,
         '--image', image, *more]
        for image, more in (('bare', ['--flavor', 'bm.plain']),
                            ('old', []), ('both', []))])
    assert get_data(plain)['request_spec'] == {
        'memory_mb': 1024, 'vcpus': 1, 'root_gb': 0, 'name': 'bm.plain',
        'flavorid': flavors['bm.plain'].id, 'resource_class': CLASS,
        'image': {'id': images['bare']['id']}}
    member = get_data(cloud('show', group['reservations'][0]['instance_uuid'],
                            '-f', 'json'))
    assert member['request_spec'] == get_data(plain)['request_spec']
    old, both = (get_data(result)['request_spec']['image']['properties']
                 for result in others)
    assert old == {'hw_architecture': 'x86_64', 'img_hv_type': 'ironic'}
    assert both == {'hw_architecture': 'x86_64'}


def test_options_override_the_flavor(fleet, cloud, flavors):
    reservation = get_data(cloud(
        'create', '-f', 'json', '--flavor', 'bm.wrong', '--ram', '2048',
        '--vcpus', '2', '--disk', '10', '--ephemeral', '0', '--swap', '0',
        '--resource-class', CLASS, '--trait', 'CUSTOM_NVME',
        '--forbidden-trait', 'CUSTOM_GPU', '--capability', 'fast',
        '--capability', 'gpus=4', '--capability', 'cpu_arch=x86_64',
        '--candidate-node', 'cli-3', '--match', 'at_least'))
    assert reservation['node_name'] == 'cli-3'
    assert reservation['request_spec'] == {
        'memory_mb': 2048, 'vcpus': 2, 'root_gb': 10, 'name': 'bm.wrong',
        'flavorid': flavors['bm.wrong'].id, 'resource_class': CLASS,
        'candidate_nodes': ['cli-3'],
        'extra_specs': {
            # Extra specs without an option remain.
            'trait:HW_CPU_X86_AVX': 'forbidden',
            'capabilities': 'boot_mode:uefi,fast',
            'capabilities:gpus': '4', 'capabilities:cpu_arch': 'x86_64',
            'trait:CUSTOM_NVME': 'required',
            'trait:CUSTOM_GPU': 'forbidden',
            'reservations:match': 'at_least'}}


def test_what_cannot_be_looked_up(ironic, fleet, cloud, images):
    away = f'http://127.0.0.1:{services.free_port()}'
    rows = [
        ('flavor', 'none', {}, 'No Flavor found for none'),
        ('image', 'none', {}, 'No Image found for none'),
        ('image', 'twice', {}, "More than one Image exists with the name "
         "'twice'."),
        ('flavor', 'x', {'OS_COMPUTE_ENDPOINT_OVERRIDE': away}, away),
        ('image', 'x', {'OS_IMAGE_ENDPOINT_OVERRIDE': away}, away),
        # There is no Nova: the command asks Ironic for flavors.
        ('flavor', 'x', {'OS_COMPUTE_ENDPOINT_OVERRIDE': ''}, '404'),
    ]
    for (kind, ident, _, expected), error in zip(rows, map(get_error, run_all(
            lambda kind, ident, env, _: cloud(
                'create', '--resource-class', CLASS, f'--{kind}', ident,
                **env), rows)), strict=True):
        assert error.startswith(f'Cannot look up {kind} "{ident}": ')
        assert expected in error
        assert error.count('\n') == 1
    assert not instances(ironic)


def test_audit_without_nova(ironic, cli, fleet):
    """Only Ironic is checked: a hold of a host needs no server here."""
    reservations = [ironic.create(resource_class=CLASS, host='host-1')
            for _ in range(2)]
    result = cli('audit')
    assert (result.returncode, result.stdout) == (
        0, 'Nothing disagrees: 2 reservations, 5 nodes.\n')
    assert result.stderr.startswith('There is no Nova here: ')
    ironic.set_node(reservations[0]['node_uuid'],
                    provision_state='deploy failed')
    for options in [], ['--repair']:
        result = cli('audit', '-f', 'json', *options)
        assert result.returncode == 1
        assert [(row['Kind'], row['Node'])
                for row in json.loads(result.stdout)] == [
                    ('failed', reservations[0]['node_name'])]
