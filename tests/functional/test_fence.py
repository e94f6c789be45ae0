# SPDX-License-Identifier: Apache-2.0
"""The fence in front of a real Ironic, on its own server and on uWSGI."""

import concurrent.futures
import contextlib
import http.client
import io
import json
import pathlib
import re
import signal

import psutil
import pytest

from tests.common import contract
from tests.common import servers
from tests.common import service
from tools import services

POOL = [{}] * 2
NAME = 'X-OpenStack-Ironic-Reservation'
FENCE = f'{NAME}s-Fence'
MIB = 2 ** 20


@pytest.fixture
def hold(ironic, pool, node_class):
    yield ironic.create(resource_class=node_class, host='compute-1')
    ironic.execute('DELETE FROM volume_targets')


def make_header(hold, host='compute-1', **more):
    keys = {'instance': hold['instance_uuid'], 'host': host, **more}
    return {NAME: '; '.join(f'{name}={value}'
                            for name, value in keys.items())}


def settle_node(ironic, hold, **params):
    return ironic.settle([ironic.baremetal.get_node(hold['node_uuid'])],
                         **params)[0]


def test_power(ironic, hold):
    """Requests that pass reach Ironic; refused requests do not."""
    def put(target, **keys):
        return ironic.http.put(
            f'/v1/nodes/{hold["node_uuid"]}/states/power',
            json={'target': target}, headers=make_header(hold, **keys))

    response = put('power on')
    assert (response.status_code, response.headers[FENCE]) == (202, '1')
    assert contract.OWN_HEADER not in response.headers
    settle_node(ironic, hold, power_state='power on', reservation=None)
    response = put('power off', host='compute-2')
    contract.check(response, 412)
    assert response.headers[FENCE] == '1'
    node = settle_node(ironic, hold)
    assert (node.power_state, node.target_power_state) == ('power on', None)
    path = f'PUT /v1/nodes/{hold["node_uuid"]}/states/power'
    lines = [line for line in pathlib.Path(ironic.log).read_text(
        ).splitlines() if path in line]
    assert [re.search(r' - (\d+) \(', line)[1] for line in lines] == [
        '202', '412']


def test_volume_targets(ironic, hold, pool):
    url, node = '/v1/volume/targets', hold['node_uuid']
    headers = make_header(hold, node=node)
    response = ironic.http.post(url, headers=headers, json={
        'node_uuid': node, 'volume_type': 'iscsi', 'volume_id': 'v',
        'boot_index': 0})
    assert (response.status_code, response.headers[FENCE]) == (201, '1')
    own = f'{url}/{response.json()["uuid"]}'
    contract.check(ironic.http.delete(own, headers=make_header(
        hold, 'compute-2', node=node)), 412)
    # Ironic's framework accepts the target in the body, and would delete it.
    contract.check(ironic.http.delete(url, headers=headers, json={
        'target_uuid': response.json()['uuid']}), 400)
    assert ironic.http.delete(own, headers=headers).status_code == 204
    assert ironic.http.delete(own, headers=headers).status_code == 404


#: Exceeds every body except a config drive.
DRIVE = json.dumps({'target': 'nonsense', 'configdrive': 'x' * 5 * MIB}
                   ).encode()


def provide(url, hold, body, host='compute-1', reuse=True, **headers):
    """PUT a config drive with a client that sends all of it before it reads.

    :param reuse: whether to send another request on the same connection.
    :returns: the status of the response, and its text.
    """
    connection = http.client.HTTPConnection(
        url.removeprefix('http://'), timeout=60)
    path = f'/v1/nodes/{hold["node_uuid"]}/states/provision'
    connection.request('PUT', path, body, {
        **make_header(hold, host), 'Content-Type': 'application/json',
        service.API_VERSION: '1.115', **headers})
    response = connection.getresponse()
    text = response.read().decode()
    assert response.headers[FENCE] == '1'
    if not reuse:
        return response.status, text
    connection.request('GET', '/v1/')
    assert connection.getresponse().status == 200
    return response.status, text


def chunks():
    """Return an iterator of the parts of a body."""
    stream = io.BytesIO(DRIVE)
    return iter(lambda: stream.read(100_000), b'')


@pytest.mark.parametrize('body, headers', [
    (lambda: DRIVE, {}), (lambda: DRIVE, {'Connection': 'close'}),
    (lambda: DRIVE, {'Expect': '100-continue'}), (chunks, {})],
    ids=['whole', 'close', 'expect', 'chunked'])
def test_config_drive(ironic, hold, body, headers):
    for host, expected, words in (
            ('compute-1', 400, 'nonsense'), ('x', 412, 'does not hold node')):
        status, text = provide(ironic.url, hold, body(), host, **headers)
        assert (status, words in text) == (expected, True), text


@contextlib.contextmanager
def separate_api(start_ironic, start_uwsgi,
                 application='ironic.wsgi:application', changes=None,
                 **kwargs):
    """Yield an Ironic, a separate process of its API, and a node."""
    json_rpc = {'host_ip': '127.0.0.1', 'port': services.free_port(),
                'auth_strategy': 'noauth'}
    with start_ironic(config={
            'DEFAULT': {'rpc_transport': 'json-rpc', **(changes or {})},
            'json_rpc': json_rpc}) as ironic, \
            start_uwsgi(ironic, application, **kwargs) as api, \
            ironic.fleet({'resource_class': 'gold'}) as (node,):
        yield ironic, api, node


@pytest.mark.long
def test_config_drive_in_ironics_wsgi_application(start_ironic, start_uwsgi):
    with separate_api(start_ironic, start_uwsgi, buffer=False) as (_, api, _):
        hold = api.create(resource_class='gold', host='compute-1')
        for host, status in ('compute-1', 400), ('x', 412):
            # uWSGI does not pass on chunks.
            for body in DRIVE, iter([b'{"target": "nonsense"}']):
                assert provide(api.url, hold, body, host, reuse=False)[
                    0] == status
        log = pathlib.Path(api.log).read_text()
        assert 'Traceback' not in log


# A process of Ironic's API that is stopped and resumed

PROVISION, POWER, VIFS = '/states/provision', '/states/power', '/vifs'
CONSOLE, TARGETS = '/states/console', '/v1/volume/targets'
VIF = '0a4c5c0e-4a3d-4f0e-8d0c-0f3f8a5b6c7d'
#: Ironic 39 fails to rebuild without it.
IMAGE = '{"image_source": "http://127.0.0.1/image"}'
TARGET = {'volume_type': 'iscsi', 'volume_id': 'v', 'boot_index': 0}

#: Requests of the driver: a name, the node's provision state, the method, the
#: path below the node or else the whole path, the body, and Ironic's status.
REQUESTS = [
    ('undeploy', 'active', 'PUT', PROVISION, {'target': 'deleted'}, 202),
    ('deploy', 'available', 'PUT', PROVISION, {'target': 'active'}, 202),
    ('config drive', 'available', 'PUT', PROVISION, {
        'target': 'active', 'configdrive': 'A' * 60 * MIB}, 202),
    ('rebuild', 'active', 'PUT', PROVISION, {'target': 'rebuild'}, 202),
    ('rescue', 'active', 'PUT', PROVISION, {
        'target': 'rescue', 'rescue_password': 'secret'}, 202),
    ('unrescue', 'rescue', 'PUT', PROVISION, {'target': 'unrescue'}, 202),
    ('power on', 'active', 'PUT', POWER, {'target': 'power on'}, 202),
    ('power off', 'active', 'PUT', POWER, {'target': 'power off'}, 202),
    ('soft power off', 'active', 'PUT', POWER, {
        'target': 'soft power off'}, 202),
    ('reboot', 'active', 'PUT', POWER, {'target': 'rebooting'}, 202),
    ('attach', 'active', 'POST', VIFS, {'id': VIF}, 204),
    ('detach', 'active', 'DELETE', f'{VIFS}/{VIF}', None, 204),
    ('create target', 'active', 'POST', TARGETS, TARGET, 201),
    ('delete target', 'active', 'DELETE', TARGETS, None, 204),
    ('start console', 'active', 'PUT', CONSOLE, {'enabled': True}, 202),
    ('stop console', 'active', 'PUT', CONSOLE, {'enabled': False}, 202),
    ('show console', 'active', 'GET', CONSOLE, None, 200),
    # The fake hardware does not support it.
    ('crash dump', 'active', 'PUT', '/management/inject_nmi', {}, 400),
    ('instance info', 'active', 'PATCH', '', [
        {'op': 'add', 'path': '/instance_info/x', 'value': 1}], 200)]


def make_request(ironic, hold, method, below, body):
    """Return the path, the body and the header of one of these requests."""
    node, keys = hold['node_uuid'], {}
    path = f'/v1/nodes/{node}{below}'
    if below == TARGETS:
        path, keys = TARGETS, {'node': node}
        if method == 'POST':
            body = {**body, 'node_uuid': node}
        else:
            response = ironic.http.post(TARGETS, json={
                **TARGET, 'node_uuid': node})
            path += f'/{response.json()["uuid"]}'
    return path, body, make_header(hold, **keys)


def find_stopped_worker(api):
    workers = [worker for worker in map(psutil.Process, api.workers())
               if worker.status() == psutil.STATUS_STOPPED]
    return workers[0] if workers else None


def read_state(ironic, node):
    """Return the parts of a node that a request could have changed."""
    return (ironic.execute('SELECT * FROM nodes WHERE uuid = :u', u=node),
            ironic.execute('SELECT uuid FROM volume_targets'),
            ironic.execute('SELECT COUNT(*) FROM node_history'))


def send_across_move(ironic, api, hold, where, method, path, body, headers):
    """Change a reservation's host while the process of a request is stopped.

    :returns: the response, and whether the request has changed anything.
    """
    file = pathlib.Path(api.conf_file).with_name('stop')
    file.write_text(where)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        future = pool.submit(api.http.request, method, path, json=body,
                             headers=headers)
        worker = servers.wait(
            lambda: find_stopped_worker(api), f'stopped {where}', 60)
        assert not file.exists() and not future.done()
        try:
            contract.check(ironic.http.patch(
                f'{service.OURS}/{hold["instance_uuid"]}', json=[
                    {'op': 'replace', 'path': '/host', 'value': 'compute-2'}],
                params={'host': 'compute-1'}), 200)
            before = read_state(ironic, hold['node_uuid'])
        finally:
            worker.send_signal(signal.SIGCONT)
        response = future.result()
    return response, read_state(ironic, hold['node_uuid']) != before


@pytest.mark.long
@pytest.mark.timeout(900)
def test_process_that_is_stopped(start_ironic, start_uwsgi):
    """A request that is stopped before the fence's check ends is refused."""
    with separate_api(
            start_ironic, start_uwsgi,
            'tests.functional.stops_itself:application', changes={
                'enabled_rescue_interfaces': 'fake',
                'default_rescue_interface': 'fake',
                'enabled_console_interfaces': 'fake-graphical'},
            processes=1) as (ironic, api, node):
        for name, state, method, below, body, status in REQUESTS:
            for where in 'before', 'inside', 'after':
                hold = ironic.create(
                    candidate_nodes=[node.id], host='compute-1')
                ironic.set_node(node.id, provision_state=state,
                                instance_info=IMAGE)
                path, content, headers = make_request(
                    ironic, hold, method, below, body)
                response, has_changed = send_across_move(
                    ironic, api, hold, where, method, path, content, headers)
                if where == 'after':
                    # The request has passed the fence: Ironic decides.
                    assert response.status_code == status, (
                        name, response.text)
                    assert response.headers[FENCE] == '1'
                else:
                    contract.check(response, 412)
                    assert not has_changed, (name, where)
                print(name, where, response.status_code)
                ironic.settle([node], reservation=None)
                ironic.free_nodes('gold')
                ironic.execute('DELETE FROM volume_targets')
