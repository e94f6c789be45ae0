# SPDX-License-Identifier: Apache-2.0
"""Whatever comes in: refused by name, and without a trace."""

import json
import uuid

from ironicclient.common import http as ironicclient_http
import pytest

from tests.common import answers
from tests.common import bad_requests

OURS, ITEM = bad_requests.OURS, bad_requests.ITEM
MAX_INT, wanted = bad_requests.MAX_INT, bad_requests.body_with


@pytest.fixture(scope='module')
def fleet(ironic):
    with bad_requests.fleet(ironic) as nodes:
        yield nodes


@pytest.fixture
def untouched(ironic, fleet):
    """Nothing has changed when a test is over."""
    before = ironic.state()
    yield
    assert ironic.state() == before


@pytest.mark.parametrize('row', [pytest.param(row, id=ascii(row.id)[1:-1])
                                 for row in bad_requests.ROWS])
def test_refused(ironic, untouched, row):
    response = bad_requests.send(ironic.http, row)
    fault = answers.check(response, row.status)
    if row.field is not None:
        assert row.field in fault
    if row.id in bad_requests.AT_FAULT:
        assert fault.startswith(row.field), fault
    if response.status_code == 405:
        assert {'GET', 'PUT'}.intersection(
            response.headers['Allow'].split(', '))
        assert row.method not in response.headers['Allow'].split(', ')
    # As ironicclient reads it.
    assert ironicclient_http._extract_error_json(
        response.content)['error_message'] == fault


@pytest.mark.parametrize('path, status', [
    (OURS, 200), (ITEM, 200), (f'{OURS}/hosts', 200),
    (f'{OURS}/capacity', 200), (f'{OURS}/{bad_requests.UNKNOWN}', 404),
    (f'{OURS}/x', 400), (f'{OURS}?foo=1', 400), (f'{ITEM}/more', 404)])
def test_head_is_get_without_body(ironic, untouched, path, status):
    head = ironic.http.head(path)
    answers.check(head, status)
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
def test_answers_are_json_whatever_is_accepted(
        ironic, untouched, accept, method, path, status):
    response = ironic.http.request(method, path, headers={'Accept': accept})
    answers.check(response, status)
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
def test_versions_are_told(ironic, untouched, headers, version, path):
    headers = {'X-OpenStack-Ironic-API-Version': None, **headers}
    response = ironic.http.get(path, headers=headers)
    answers.check(response)
    least, most = '1.1', '1.115'
    assert [response.headers[name] for name in answers.VERSION_HEADERS] == [
        version or most, least, most]


def test_own_request_id_is_kept_in_the_log_only(ironic, untouched):
    mine = f'req-{uuid.uuid4()}'
    response = ironic.http.get(OURS, headers={'X-Openstack-Request-Id': mine})
    answers.check(response, 200)
    given = response.headers['x-openstack-request-id']
    assert given.startswith('req-') and given != mine
    assert given == response.headers['openstack-request-id']


@pytest.mark.parametrize('headers', [
    {'Content-Type': 'application/json; charset=utf-8'},
    {'Content-Type': 'application/JSON'},
    {'Content-Type': 'application/json', 'Accept': 'text/html'},
], ids=str)
def test_accepted_and_given_back(ironic, fleet, headers):
    response = ironic.http.post(OURS, data=json.dumps(wanted()),
                                headers=headers)
    answers.check(response, 201)
    ironic.delete(response.json()['instance_uuid'])


def test_body_of_just_the_limit(ironic, fleet):
    response = ironic.http.post(
        OURS, data=json.dumps(wanted()).encode().ljust(bad_requests.LIMIT),
        headers={'Content-Type': 'application/json'})
    answers.check(response, 201)
    ironic.delete(response.json()['instance_uuid'])


def test_largest_values(ironic, fleet):
    response = ironic.http.post(OURS, json=wanted(
        vcpu_weight=MAX_INT, rxtx_factor=MAX_INT, name='n' * 255,
        extra_specs={'k' * 255: 'v' * 1024},
        image={'properties': {'k' * 255: 'v' * 1024}, 'min_ram': 0}))
    answers.check(response, 201)
    ironic.delete(response.json()['instance_uuid'])
    response = ironic.http.post(OURS, json=wanted(
        memory_mb=MAX_INT, vcpus=MAX_INT, root_gb=MAX_INT,
        ephemeral_gb=MAX_INT, swap=MAX_INT))
    answers.check(response, 422)
