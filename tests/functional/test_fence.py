# SPDX-License-Identifier: Apache-2.0
"""The fence at the door of a real Ironic, in front of its servers."""

import http.client
import io
import json
import pathlib
import re

import pytest

from tests.common import answers
from tests.common import service
from tools import services

POOL = [{}] * 2
NAME = 'X-OpenStack-Ironic-Reservation'
FENCE = f'{NAME}s-Fence'
MIB = 2 ** 20


@pytest.fixture
def held(ironic, pool, node_class):
    yield ironic.create(resource_class=node_class, host='compute-1')
    ironic.execute('DELETE FROM volume_targets')


def of(held, host='compute-1', **more):
    said = {'instance': held['instance_uuid'], 'host': host, **more}
    return {NAME: '; '.join(f'{name}={value}'
                            for name, value in said.items())}


def node_of(ironic, held, **wanted):
    return ironic.settle([ironic.baremetal.get_node(held['node_uuid'])],
                         **wanted)[0]


def test_power(ironic, held):
    """What is let in is done; what is not, Ironic knows nothing of."""
    def put(target, **said):
        return ironic.http.put(
            f'/v1/nodes/{held["node_uuid"]}/states/power',
            json={'target': target}, headers=of(held, **said))

    response = put('power on')
    assert (response.status_code, response.headers[FENCE]) == (202, '1')
    assert answers.OWN_HEADER not in response.headers
    node_of(ironic, held, power_state='power on', reservation=None)
    response = put('power off', host='compute-2')
    answers.check(response, 412)
    assert response.headers[FENCE] == '1'
    node = node_of(ironic, held)
    assert (node.power_state, node.target_power_state) == ('power on', None)
    path = f'PUT /v1/nodes/{held["node_uuid"]}/states/power'
    lines = [line for line in pathlib.Path(ironic.log).read_text(
        ).splitlines() if path in line]
    assert [re.search(r' - (\d+) \(', line)[1] for line in lines] == [
        '202', '412']


def test_volume_targets(ironic, held, pool):
    url, node = '/v1/volume/targets', held['node_uuid']
    headers = of(held, node=node)
    response = ironic.http.post(url, headers=headers, json={
        'node_uuid': node, 'volume_type': 'iscsi', 'volume_id': 'v',
        'boot_index': 0})
    assert (response.status_code, response.headers[FENCE]) == (201, '1')
    own = f'{url}/{response.json()["uuid"]}'
    answers.check(ironic.http.delete(own, headers=of(
        held, 'compute-2', node=node)), 412)
    # Ironic's framework would delete it.
    answers.check(ironic.http.delete(url, headers=headers, json={
        'target_uuid': response.json()['uuid']}), 400)
    assert ironic.http.delete(own, headers=headers).status_code == 204
    assert ironic.http.delete(own, headers=headers).status_code == 404


#: Larger than any that is no config drive.
DRIVE = json.dumps({'target': 'nonsense', 'configdrive': 'x' * 5 * MIB}
                   ).encode()


def provide(url, held, body, host='compute-1', twice=True, **headers):
    """PUT a config drive by a client that first sends, and then reads.

    :returns: the statuses of this request and of one after it on the same
        connection, and the error's text.
    """
    connection = http.client.HTTPConnection(
        url.removeprefix('http://'), timeout=60)
    path = f'/v1/nodes/{held["node_uuid"]}/states/provision'
    connection.request('PUT', path, body, {
        **of(held, host), 'Content-Type': 'application/json',
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
def test_config_drive(ironic, held, body, headers):
    for host, status, words in (
            ('compute-1', 400, 'nonsense'), ('x', 412, 'does not hold node')):
        found, text = provide(ironic.url, held, body(), host, **headers)
        assert (found, words in text) == (status, True), text


@pytest.mark.long
def test_config_drive_in_ironics_wsgi_application(start_ironic, start_uwsgi):
    json_rpc = {'host_ip': '127.0.0.1', 'port': services.free_port(),
                'auth_strategy': 'noauth'}
    with start_ironic(config={'DEFAULT': {'rpc_transport': 'json-rpc'},
                              'json_rpc': json_rpc}) as ironic, \
            start_uwsgi(ironic, 'ironic.wsgi:application',
                        buffer=False) as api, \
            api.fleet({'resource_class': 'gold'}):
        held = api.create(resource_class='gold', host='compute-1')
        for host, status in ('compute-1', 400), ('x', 412):
            assert provide(api.url, held, DRIVE, host, twice=False)[
                0] == status
