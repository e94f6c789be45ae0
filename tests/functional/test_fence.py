# SPDX-License-Identifier: Apache-2.0
"""The fence at the door of a real Ironic, in front of its servers."""

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

from tests.common import answers
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


def of(hold, host='compute-1', **more):
    keys = {'instance': hold['instance_uuid'], 'host': host, **more}
    return {NAME: '; '.join(f'{name}={value}'
                            for name, value in keys.items())}


def node_of(ironic, hold, **params):
    return ironic.settle([ironic.baremetal.get_node(hold['node_uuid'])],
                         **params)[0]


def test_power(ironic, hold):
    """What is let in is done; what is not, Ironic knows nothing of."""
    def put(target, **keys):
        return ironic.http.put(
            f'/v1/nodes/{hold["node_uuid"]}/states/power',
            json={'target': target}, headers=of(hold, **keys))

    response = put('power on')
    assert (response.status_code, response.headers[FENCE]) == (202, '1')
    assert answers.OWN_HEADER not in response.headers
    node_of(ironic, hold, power_state='power on', reservation=None)
    response = put('power off', host='compute-2')
    answers.check(response, 412)
    assert response.headers[FENCE] == '1'
    node = node_of(ironic, hold)
    assert (node.power_state, node.target_power_state) == ('power on', None)
    path = f'PUT /v1/nodes/{hold["node_uuid"]}/states/power'
    lines = [line for line in pathlib.Path(ironic.log).read_text(
        ).splitlines() if path in line]
    assert [re.search(r' - (\d+) \(', line)[1] for line in lines] == [
        '202', '412']


def test_volume_targets(ironic, hold, pool):
    url, node = '/v1/volume/targets', hold['node_uuid']
    headers = of(hold, node=node)
    response = ironic.http.post(url, headers=headers, json={
        'node_uuid': node, 'volume_type': 'iscsi', 'volume_id': 'v',
        'boot_index': 0})
    assert (response.status_code, response.headers[FENCE]) == (201, '1')
    own = f'{url}/{response.json()["uuid"]}'
    answers.check(ironic.http.delete(own, headers=of(
        hold, 'compute-2', node=node)), 412)
    # Ironic's framework would delete it.
    answers.check(ironic.http.delete(url, headers=headers, json={
        'target_uuid': response.json()['uuid']}), 400)
    assert ironic.http.delete(own, headers=headers).status_code == 204
    assert ironic.http.delete(own, headers=headers).status_code == 404


#: Larger than any that is no config drive.
DRIVE = json.dumps({'target': 'nonsense', 'configdrive': 'x' * 5 * MIB}
                   ).encode()


def provide(url, hold, body, host='compute-1', twice=True, **headers):
    """PUT a config drive by a client that first sends, and then reads.

    :returns: the statuses of this request and of one after it on the same
        connection, and the error's text.
    """
    connection = http.client.HTTPConnection(
        url.removeprefix('http://'), timeout=60)
    path = f'/v1/nodes/{hold["node_uuid"]}/states/provision'
    connection.request('PUT', path, body, {
        **of(hold, host), 'Content-Type': 'application/json',
        service.API_VERSION: '1.115', **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.headers[FENCE] == '1'
    if not twice:
        return answer.status, text
    connection.request('GET', '/v1/')
    assert connection.getresponse().status == 200
    return answer.status, text


def chunks():
    stream = io.BytesIO(DRIVE)
    return iter(lambda: stream.read(100_000), b'')


@pytest.mark.parametrize('body, headers', [
    (lambda: DRIVE, {}), (lambda: DRIVE, {'Connection': 'close'}),
    (lambda: DRIVE, {'Expect': '100-continue'}), (chunks, {})],
    ids=['whole', 'closed', 'expect', 'chunked'])
def test_config_drive(ironic, hold, body, headers):
    for host, status, words in (
            ('compute-1', 400, 'nonsense'), ('x', 412, 'does not hold node')):
        status, text = provide(ironic.url, hold, body(), host, **headers)
        assert (status, words in text) == (status, True), text


@contextlib.contextmanager
def apart(start_ironic, start_uwsgi, application='ironic.wsgi:application',
          changes=None, **kwargs):
    """An Ironic whose API is another process, and a node: both, and it."""
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
    with apart(start_ironic, start_uwsgi, buffer=False) as (_, api, _):
        hold = api.create(resource_class='gold', host='compute-1')
        for host, status in ('compute-1', 400), ('x', 412):
            assert provide(api.url, hold, DRIVE, host, twice=False)[
                0] == status


# A process of Ironic's API that is stopped, and goes on later

PROVISION, POWER, VIFS = '/states/provision', '/states/power', '/vifs'
CONSOLE, TARGETS = '/states/console', '/v1/volume/targets'
VIF = '0a4c5c0e-4a3d-4f0e-8d0c-0f3f8a5b6c7d'
#: Without it Ironic 39 fails to rebuild.
IMAGE = '{"image_source": "http://127.0.0.1/image"}'
TARGET = {'volume_type': 'iscsi', 'volume_id': 'v', 'boot_index': 0}

#: What the driver writes: a name, the node's state, a method, what follows
#: the node in the path, or the whole path, the body, and Ironic's answer.
CROSSINGS = [
    ('undeploy', 'active', 'PUT', PROVISION, {'target': 'deleted'}, 202),
    ('deploy', 'available', 'PUT', PROVISION, {'target': 'active'}, 202),
    ('config drive', 'available', 'PUT', PROVISION, {
        'target': 'active', 'configdrive': 'A' * 60 * MIB}, 202),
    ('rebuild', 'active', 'PUT', PROVISION, {'target': 'rebuild'}, 202),
    ('rescue', 'active', 'PUT', PROVISION, {
        'target': 'rescue', 'rescue_password': 'secret'}, 202),
    ('unrescue', 'rescue', 'PUT', PROVISION, {'target': 'unrescue'}, 202),
    ('on', 'active', 'PUT', POWER, {'target': 'power on'}, 202),
    ('off', 'active', 'PUT', POWER, {'target': 'power off'}, 202),
    ('soft', 'active', 'PUT', POWER, {'target': 'soft power off'}, 202),
    ('reboot', 'active', 'PUT', POWER, {'target': 'rebooting'}, 202),
    ('attach', 'active', 'POST', VIFS, {'id': VIF}, 204),
    ('detach', 'active', 'DELETE', f'{VIFS}/{VIF}', None, 204),
    ('target', 'active', 'POST', TARGETS, TARGET, 201),
    ('no target', 'active', 'DELETE', TARGETS, None, 204),
    ('console', 'active', 'PUT', CONSOLE, {'enabled': True}, 202),
    ('no console', 'active', 'PUT', CONSOLE, {'enabled': False}, 202),
    ('look at console', 'active', 'GET', CONSOLE, None, 200),
    # The fake hardware has none.
    ('crash dump', 'active', 'PUT', '/management/inject_nmi', {}, 400),
    ('what it is', 'active', 'PATCH', '', [
        {'op': 'add', 'path': '/instance_info/x', 'value': 1}], 200)]


def crossing(ironic, hold, method, below, body):
    """The path and the body of one of them, and the request's header."""
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
    return path, body, of(hold, **keys)


def find_stopped(api):
    workers = [worker for worker in map(psutil.Process, api.workers())
             if worker.status() == psutil.STATUS_STOPPED]
    return workers[0] if workers else None


def traces(ironic, node):
    """Return the parts of a node that a request could have changed."""
    return (ironic.execute('SELECT * FROM nodes WHERE uuid = :u', u=node),
            ironic.execute('SELECT uuid FROM volume_targets'),
            ironic.execute('SELECT COUNT(*) FROM node_history'))


def freeze(ironic, api, hold, where, method, path, body, headers):
    """Send a request whose process stops, and move the machine then.

    :returns: the response, and whether the request has changed anything.
    """
    file = pathlib.Path(api.conf_file).with_name('stop')
    file.write_text(where)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        future = pool.submit(api.http.request, method, path, json=body,
                             headers=headers)
        worker = servers.wait(
            lambda: find_stopped(api), f'stopped {where}', 60)
        assert not file.exists() and not future.done()
        try:
            answers.check(ironic.http.patch(
                f'{service.OURS}/{hold["instance_uuid"]}', json=[
                    {'op': 'replace', 'path': '/host', 'value': 'compute-2'}],
                params={'host': 'compute-1'}), 200)
            before = traces(ironic, hold['node_uuid'])
        finally:
            worker.send_signal(signal.SIGCONT)
        answer = future.result()
    return answer, traces(ironic, hold['node_uuid']) != before


@pytest.mark.long
@pytest.mark.timeout(900)
def test_process_that_is_stopped(start_ironic, start_uwsgi):
    """A request passes the fence only before the process is stopped."""
    with apart(start_ironic, start_uwsgi,
               'tests.functional.stops_itself:application', changes={
                   'enabled_rescue_interfaces': 'fake',
                   'default_rescue_interface': 'fake',
                   'enabled_console_interfaces': 'fake-graphical'},
               processes=1) as (ironic, api, node):
        for name, state, method, below, body, status in CROSSINGS:
            for where in 'before', 'inside', 'after':
                hold = ironic.create(
                    candidate_nodes=[node.id], host='compute-1')
                ironic.set_node(node.id, provision_state=state,
                                instance_info=IMAGE)
                path, content, headers = crossing(
                    ironic, hold, method, below, body)
                answer, has_changed = freeze(
                    ironic, api, hold, where, method, path, content, headers)
                if where == 'after':
                    # It has passed the fence, and Ironic decides.
                    assert answer.status_code == status, (name, answer.text)
                    assert answer.headers[FENCE] == '1'
                else:
                    answers.check(answer, 412)
                    assert not has_changed, (name, where)
                print(name, where, answer.status_code)
                ironic.settle([node], reservation=None)
                ironic.free_nodes('gold')
                ironic.execute('DELETE FROM volume_targets')
