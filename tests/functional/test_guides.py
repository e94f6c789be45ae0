# SPDX-License-Identifier: Apache-2.0
"""The commands of guides on an Ironic without Nova, on fake hardware."""

import itertools
import json
import pathlib
import re
import shlex

from ironicclient.v1 import utils
import pytest

from tests.common import command
from tools import services

PAGES = pathlib.Path(__file__).parents[2] / 'doc/source/how-to'
NODE = {'resource_class': 'baremetal.gold',
        'properties': {'memory_mb': 131072}}
BMC = 'https://bmc-17.example'


@pytest.fixture
def follow(request, ironic, tmp_path, monkeypatch):
    """Return a function that runs the command on the page with a prefix.

    Words in capitals, such as NODE, are replaced by its keyword arguments. The
    commands use an openrc file and clouds.yaml in turn.
    """
    # By default, --wait polls every ten seconds.
    for action in filter(None, utils.PROVISION_ACTIONS.values()):
        monkeypatch.setitem(action, 'poll_interval', 0.2)
    openrc = services.cli_environment(ironic.url)
    logins = itertools.cycle((openrc, command.use_cloud(
        openrc, tmp_path / 'clouds.yaml')))
    text = (PAGES / f'{request.param}.rst').read_text().replace('\\\n', '')
    # A page may show one twice.
    commands = {tuple(shlex.split(line)) for line in re.findall(
        r'^ +\$ openstack (.*)$', text, re.MULTILINE)}

    def follow(prefix, *more, status=0, **names):
        words = tuple(prefix.split())
        args, = (args for args in commands if args[:len(words)] == words)
        result = command.run_in(next(logins), *(
            names.get(arg, arg) for arg in args), *more)
        assert result.returncode == status, result.stderr
        return result.stdout
    return follow


@pytest.mark.parametrize('follow', ['without-nova'], indirect=True)
def test_machine_without_nova(ironic, follow):
    with ironic.fleet(NODE):
        hold = json.loads(follow('baremetal reservation create', '-f', 'json'))
        names = {'INSTANCE': hold['instance_uuid'],
                 'NODE': hold['node_uuid']}
        # It can be renewed until the deployment begins.
        follow('baremetal reservation set', **names)
        follow('baremetal node set NODE --lessee', PROJECT_ID='p', **names)
        follow('baremetal node set NODE --instance-info', **names)
        follow('baremetal node deploy', **names)
        assert json.loads(follow(
            'baremetal reservation show', '-f', 'json', **names)) == {
                'expires_at': None, 'state': 'active'}
        follow('baremetal node undeploy', **names)
        assert not follow('baremetal reservation list').strip()
        assert ironic.find_instance(names['NODE']) is None
        follow('baremetal node unset', **names)
        hold = json.loads(follow('baremetal reservation create', '-f', 'json'))
        follow('baremetal reservation delete', INSTANCE=hold['instance_uuid'])
        ironic.show(hold['instance_uuid'], 404)


@pytest.fixture
def machine(ironic):
    """The names of a page: a deployed machine of a pool, and a free one."""
    with ironic.fleet(NODE, NODE) as nodes:
        pool = ironic.http.post('/v1/reservations/pools', json={
            'project_id': 'p', 'members': 1,
            'request': {'resource_class': NODE['resource_class']}}).json()
        hold = ironic.create(resource_class=NODE['resource_class'],
                             project_id='p')
        node, = (node for node in nodes if node.id == hold['node_uuid'])
        assert [row['uuid'] for row in pool['nodes']] == [node.id]
        ironic.baremetal.set_node_provision_state(node, 'active', wait=True)
        other, = (other.id for other in nodes if other != node)
        yield {'NODE': node.id, 'POOL': pool['uuid'], 'NEW_NODE': other}
        ironic.http.delete(f'/v1/reservations/pools/{pool["uuid"]}')
        ironic.execute('DELETE FROM reservations_notices')


@pytest.mark.parametrize('follow', ['retire'], indirect=True)
def test_machine_out_of_service(ironic, follow, machine):
    node, pool = machine['NODE'], machine['POOL']

    def read_node(field='provision_state'):
        return ironic.baremetal.get_node(node)[field]

    assert 'CHG-1208' in follow('baremetal reservation cordon NODE --ticket',
                                **machine)
    assert read_node('instance_uuid') in follow(
        'baremetal reservation list', **machine)
    assert pool in follow('baremetal reservation pool list', **machine)
    follow('baremetal reservation pool replace', **machine)
    nodes = ironic.http.get(f'/v1/reservations/pools/{pool}').json()['nodes']
    assert [row['uuid'] for row in nodes] == [machine['NEW_NODE']]
    ironic.baremetal.set_node_provision_state(node, 'deleted', wait=True)
    follow('baremetal node manage', **machine)
    # A part was exchanged.
    port = ironic.baremetal.create_port(node_id=node,
                                        address='52:54:00:00:00:01')
    follow('baremetal node set NODE --driver-info', **machine)
    assert read_node('driver_info')['redfish_address'] == BMC
    assert port.address in follow('baremetal port list', **machine)
    follow('baremetal port set', PORT=port.id)
    assert ironic.baremetal.get_port(
        port.id).address == '52:54:00:ab:cd:ef'
    # The cordon is the only reason why it cannot be reserved.
    follow('baremetal node provide', **machine)
    assert re.findall(r'\| (\w+) +\| +1 \|', follow(
        'baremetal reservation create --candidate-node', status=1,
        **machine)) == ['candidate_nodes', 'cordoned']
    follow('baremetal reservation uncordon NODE --action', **machine)
    follow('baremetal reservation pool add POOL NEW_NODE', NEW_NODE=node,
           POOL=pool)
    assert ironic.create(resource_class=NODE['resource_class'],
                         candidate_nodes=[node], project_id='p')


@pytest.mark.parametrize('follow', ['retire'], indirect=True)
def test_machine_is_retired(ironic, follow, machine):
    node, other = machine['NODE'], machine['NEW_NODE']

    def undeploy(state):
        ironic.http.put(f'/v1/nodes/{node}/states/provision',
                        json={'target': 'deleted'}).raise_for_status()
        ironic.settle([ironic.baremetal.get_node(node)],
                      provision_state=state)

    # Ironic retires no machine that is available.
    response = ironic.http.patch(f'/v1/nodes/{other}', json=[
        {'op': 'add', 'path': '/retired', 'value': True}])
    assert response.status_code == 409
    message = "can not have 'retired' set in provision state 'available'"
    assert message in response.text
    assert message in (PAGES / 'retire.rst').read_text()
    # Without cleaning, it is available, but only to Ironic's allocations.
    follow('baremetal node set NODE --retired', **machine)
    undeploy('available')
    eliminated = ironic.http.post('/v1/reservations?dry_run=true', json={
        'project_id': 'p', 'resource_class': NODE['resource_class'],
        'candidate_nodes': [node]}).json()['explanation']['eliminated']
    assert {'by': 'retired', 'nodes': 1} in eliminated
    allocation = ironic.baremetal.create_allocation(
        resource_class=NODE['resource_class'], candidate_nodes=[node])
    ironic.baremetal.wait_for_allocation(allocation)
    ironic.baremetal.delete_allocation(allocation)
    ironic.set_node(node, instance_info='{}')
    follow('baremetal node manage', **machine)
    # It is kept after all.
    follow('baremetal node unset NODE --retired', **machine)
    follow('baremetal node provide', **machine)
    # It is retired while it has a server, and cleaned.
    ironic.create(project_id='p', resource_class=NODE['resource_class'],
                  candidate_nodes=[node])
    ironic.baremetal.set_node_provision_state(node, 'active', wait=True)
    ironic.baremetal.update_node(node, is_automated_clean_enabled=True)
    follow('baremetal node set NODE --retired', **machine)
    undeploy('manageable')
    follow('baremetal node power off', **machine)
    follow('baremetal node delete', **machine)
    assert ironic.baremetal.find_node(node) is None
    # Ironic lets a reserved machine become manageable.
    ironic.create(resource_class=NODE['resource_class'],
                  candidate_nodes=[other])
    ironic.baremetal.set_node_provision_state(other, 'manage', wait=True)
