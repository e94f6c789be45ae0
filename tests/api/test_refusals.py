# SPDX-License-Identifier: Apache-2.0
"""Refusals name the key, and change nothing."""

import json
import uuid

import bcrypt
from ironicclient.common import http as ironicclient_http
import pytest

from ironic_reservations.api import routes
from tests.common import bad_requests
from tests.common import contract
from tests.common import request_keys

OURS, ITEM = bad_requests.OURS, bad_requests.ITEM
MAX_INT, body_with = bad_requests.MAX_INT, bad_requests.body_with


@pytest.fixture(scope='module')
def fleet(ironic):
    with bad_requests.fleet(ironic) as nodes:
        yield nodes


@pytest.fixture
def same_state(ironic, fleet):
    """Check after the test that it has changed nothing."""
    before = ironic.state()
    yield
    assert ironic.state() == before


@pytest.mark.parametrize('row', [pytest.param(row, id=ascii(row.id)[1:-1])
                                 for row in bad_requests.ROWS])
def test_refusal(ironic, same_state, row):
    response = bad_requests.send(ironic.http, row)
    fault = contract.check(response, row.status)
    if row.field is not None:
        assert row.field in fault
    if row.id in bad_requests.AT_FAULT:
        assert fault.startswith(row.field), fault
    if response.status_code == 405:
        methods = set(response.headers['Allow'].split(', '))
        assert methods & {'GET', 'PUT', 'PATCH', 'POST', 'DELETE'}
        assert row.method not in methods
    # ironicclient reads the same error.
    assert ironicclient_http._extract_error_json(
        response.content)['error_message'] == fault


@pytest.mark.parametrize('content_type', [
    'multipart/form-data', 'multipart/form-data; boundary=x',
    'application/x-www-form-urlencoded', 'nonsense'])
def test_type_of_no_body(ironic, same_state, content_type):
    for method, path in ('DELETE', f'{OURS}/{bad_requests.UNKNOWN}'), (
            'GET', f'{OURS}/{bad_requests.UNKNOWN}'):
        response = ironic.http.request(
            method, path, headers={'Content-Type': content_type})
        contract.check(response, 404)


# Requests without a body

@pytest.mark.parametrize('method, path', [
    (method, path) for path, handlers in routes.ROUTES.items()
    for method in handlers if method in ('GET', 'DELETE')])
def test_body_of_no_use(ironic, same_state, method, path):
    """A condition in it would not count."""
    def request(instance_uuid, body, content_type='application/json'):
        return ironic.http.request(
            method, path.format(instance_uuid=instance_uuid, host='compute-9',
                                uuid=bad_requests.UNKNOWN, node='node-9'),
            data=body, headers={'Content-Type': content_type})

    for body, content_type in (
            (b'{"host": "other"}', 'application/json'),
            (b'host=other', 'application/x-www-form-urlencoded'),
            (b'[0]', 'text/plain'), (b'false', ''), (b'\xff', 'x'),
            (b'[' * 50000, 'application/json')):
        fault = contract.check(
            request(bad_requests.HELD, body, content_type), 400)
        assert fault.startswith(f'body: must be empty with {method}')
    # Ansible's module uri sends null where no body is given.
    for body in b' \n', b'{ }', b'[]', b'""', b'null\n':
        contract.check(request(bad_requests.UNKNOWN, body), (200, 404))


@pytest.mark.parametrize('method, path, body, end', [
    ('DELETE', ITEM, {'host': 'other', 'x': 1}, '; put host in the query'),
    ('DELETE', ITEM, [['other']], '; put host, holder in the query'),
    ('DELETE', bad_requests.HOST, {'holder': 1}, '; put holder in the query'),
    ('DELETE', f'{OURS}/groups/{bad_requests.UNKNOWN}', {'host': 'x'}, ''),
    ('GET', f'{OURS}/notices', [{'node': 'a', 'kind': 'fault'}],
     '; put node, kind in the query')])
def test_parameter_in_the_body(ironic, same_state, method, path, body, end):
    fault = contract.check(ironic.http.request(method, path, json=body), 400)
    assert fault == f'body: must be empty with {method}{end}'


@pytest.mark.parametrize('method, path', [
    ('GET', OURS), ('POST', OURS), ('DELETE', ITEM), ('GET', f'{OURS}/x/y'),
    ('PUT', bad_requests.HOST)])
def test_chunks_that_the_server_does_not_pass_on(start, same_state, tmp_path,
                                                 method, path):
    users = tmp_path / 'htpasswd'
    users.write_text('ann:' + bcrypt.hashpw(
        b'secret', bcrypt.gensalt(4)).decode() + '\n')
    with start({'DEFAULT': {'auth_strategy': 'http_basic',
                            'http_basic_auth_user_file': str(users)}}) as api:
        for auth, status in (None, 401), (('ann', 'secret'), 411):
            fault = contract.check(api.http.request(
                method, path, auth=auth, headers={
                    'Transfer-Encoding': 'chunked',
                    'Content-Type': 'application/json'}), status)
        assert fault.startswith('Transfer-Encoding: ')


@pytest.mark.parametrize('path, status', [
    (OURS, 200), (ITEM, 200), (f'{OURS}/hosts', 200),
    (f'{OURS}/capacity', 200), (f'{OURS}/{bad_requests.UNKNOWN}', 404),
    (f'{OURS}/x', 400), (f'{OURS}?foo=1', 400), (f'{ITEM}/more', 404)])
def test_head(ironic, same_state, path, status):
    head = ironic.http.head(path)
    contract.check(head, status)
    get = ironic.http.get(path)
    assert get.status_code == status
    for name in 'Content-Type', 'Content-Length':
        assert head.headers[name] == get.headers[name]
    assert ('Age' in head.headers) == path.endswith('/capacity')


@pytest.mark.parametrize('accept', [
    'text/html', 'text/html,application/xhtml+xml;q=0.9', 'application/xml',
    'image/png', '*/*', '', 'nonsense', 'application/json;q=0', ';;q=,'])
@pytest.mark.parametrize('method, path, status', [
    ('GET', OURS, 200), ('GET', ITEM, 200), ('GET', f'{OURS}/x', 400),
    ('GET', f'{ITEM}/more', 404), ('PUT', ITEM, 405)])
def test_any_accept_header(
        ironic, same_state, accept, method, path, status):
    response = ironic.http.request(method, path, headers={'Accept': accept})
    contract.check(response, status)
    assert response.json()


@pytest.mark.parametrize('headers, version', [
    ({}, '1.1'),
    ({'X-OpenStack-Ironic-API-Version': '1.1'}, '1.1'),
    ({'X-OpenStack-Ironic-API-Version': '1.90'}, '1.90'),
    ({'X-OpenStack-Ironic-API-Version': 'latest'}, None),
    ({'OpenStack-API-Version': 'baremetal 1.90'}, '1.90'),
    ({'OpenStack-API-Version': 'baremetal latest'}, None),
    ({'OpenStack-API-Version': 'compute 2.1'}, '1.1'),
])
@pytest.mark.parametrize('path', [
    OURS, ITEM, f'{OURS}/{bad_requests.UNKNOWN}'])
def test_version_headers(ironic, same_state, headers, version, path):
    headers = {'X-OpenStack-Ironic-API-Version': None, **headers}
    response = ironic.http.get(path, headers=headers)
    contract.check(response)
    least, most = '1.1', '1.115'
    assert [response.headers[name] for name in contract.VERSION_HEADERS] == [
        version or most, least, most]


def test_request_id_of_the_caller(ironic, same_state):
    id = f'req-{uuid.uuid4()}'
    response = ironic.http.get(OURS, headers={'X-Openstack-Request-Id': id})
    contract.check(response, 200)
    request_id = response.headers['x-openstack-request-id']
    assert request_id.startswith('req-') and request_id != id
    assert request_id == response.headers['openstack-request-id']


@pytest.mark.parametrize('headers', [
    {'Content-Type': 'application/json; charset=utf-8'},
    {'Content-Type': 'application/JSON'},
    {'Content-Type': 'application/json', 'Accept': 'text/html'},
], ids=str)
def test_accepted_content_types(ironic, fleet, headers):
    response = ironic.http.post(OURS, data=json.dumps(body_with()),
                                headers=headers)
    contract.check(response, 201)
    ironic.delete(response.json()['instance_uuid'])


def test_largest_body(ironic, fleet):
    response = ironic.http.post(
        OURS, data=json.dumps(body_with()).encode().ljust(bad_requests.LIMIT),
        headers={'Content-Type': 'application/json'})
    contract.check(response, 201)
    ironic.delete(response.json()['instance_uuid'])


def test_largest_values(ironic, fleet):
    response = ironic.http.post(OURS, json=body_with(
        rxtx_factor=MAX_INT,
        **{key: MAX_INT if key in request_keys.NUMBERS else 'n' * 255
           for key in request_keys.values(is_compared=False,
                                          is_in_spec=True)},
        extra_specs={'k' * 255: 'v' * 1024},
        image={'properties': {'k' * 255: 'v' * 1024}, 'min_ram': 0}))
    contract.check(response, 201)
    ironic.delete(response.json()['instance_uuid'])
    response = ironic.http.post(OURS, json=body_with(
        **dict.fromkeys(request_keys.SIZES, MAX_INT)))
    contract.check(response, 422)
