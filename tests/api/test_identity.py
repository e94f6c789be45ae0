# SPDX-License-Identifier: Apache-2.0
"""Requests without a valid token, and with forged headers."""

import contextlib
import logging
import uuid

import bcrypt
from oslo_context import context
import pytest
import webob

from ironic_reservations import events
from ironic_reservations.api import access
from tests.common import contract
from tests.common import personas

OURS, ANY = personas.OURS, personas.ANY

ORIGIN = personas.ORIGIN
PAGE = {'Origin': ORIGIN}


@pytest.mark.parametrize('persona', ['no-token', 'bad-token'])
@pytest.mark.parametrize('method, path', [
    ('GET', OURS), ('HEAD', OURS), ('POST', OURS), ('PUT', OURS),
    ('GET', f'{OURS}/'), ('GET', f'{OURS}/not-a-uuid'),
    ('GET', f'{OURS}/capacity'), ('DELETE', f'{OURS}/{{a}}'),
    ('GET', f'{OURS}/{{a}}/more'), ('GET', f'{OURS}?foo=bar')])
def test_without_a_valid_token(cloud, persona, method, path):
    response = cloud.request(persona, method, path, headers=PAGE)
    contract.check(response, 401)
    assert response.headers['WWW-Authenticate'] == (
        f'Keystone uri="{personas.KEYSTONE}"')
    # A page of another origin can read it.
    assert response.headers['Access-Control-Allow-Origin'] == ORIGIN
    assert response.headers['X-OpenStack-Ironic-API-Version'] != '1.1'


def test_body_is_not_read(cloud):
    cloud.call('no-token', 401, 'POST', OURS, data=b'[' * 60000)


def test_preflight_needs_no_token(cloud):
    response = cloud.request('no-token', 'OPTIONS', OURS, headers={
        **PAGE, 'Access-Control-Request-Method': 'POST',
        'Access-Control-Request-Headers': 'X-Auth-Token'})
    assert response.status_code == 200
    assert response.headers['Access-Control-Allow-Origin'] == ORIGIN


FORGED = personas.FORGED


def test_forged_headers(cloud):
    cloud.call('no-token', 401, 'GET', OURS, headers=FORGED)
    cloud.call('a-reader', 403, 'POST', OURS, headers=FORGED, json=ANY)
    cloud.call('a-member', 404, 'GET', f'{OURS}/{{b}}', headers=FORGED)
    response = cloud.request('a-member', 'POST', OURS, headers=FORGED,
                             json=ANY)
    contract.check(response, 201)
    assert response.json()['project_id'] == cloud.projects['a']
    assert response.json()['user_id'] == cloud.users['a-member']


def test_forged_headers_with_noauth(cloud, start):
    with start({'DEFAULT': {'auth_strategy': 'noauth'}}) as noauth:
        for headers in {}, FORGED, {**FORGED, 'X-Auth-Token': 'nonsense',
                                    'X-Roles': '', 'X-User': 'forged',
                                    'Authorization': 'Basic nonsense'}:
            response = noauth.http.post(OURS, headers=headers, json=ANY)
            contract.check(response, 201)
            assert response.json()['project_id'] is None
            assert response.json()['user_id'] is None
            # Every caller is an admin.
            assert len(noauth.http.get(OURS, headers=headers).json()
                       ['reservations']) > 3


@pytest.fixture
def basic(start, tmp_path):
    users = tmp_path / 'htpasswd'
    users.write_text('nova:' + bcrypt.hashpw(
        b'secret', bcrypt.gensalt(4)).decode() + '\n')
    with start({'DEFAULT': {
            'auth_strategy': 'http_basic',
            'http_basic_auth_user_file': str(users)}}) as basic:
        yield basic


def test_http_basic(cloud, basic):
    for auth in None, ('nova', 'wrong'), ('other', 'secret'):
        response = basic.http.post(OURS, auth=auth, json=ANY)
        contract.check(response, 401)
    challenge = response.headers.get('WWW-Authenticate')
    response = basic.http.post(
        OURS, auth=('nova', 'secret'), headers=FORGED,
        json={**ANY, 'host': 'h'})
    contract.check(response, 201)
    assert response.json()['host'] == 'h'
    assert response.json()['project_id'] is None
    assert response.json()['user_id'] != 'forged'
    response = basic.http.get(OURS, auth=('nova', 'secret'))
    contract.check(response, 200)
    assert len(response.json()['reservations']) == 4
    # Ironic sends the same.
    assert challenge == 'Basic realm="Baremetal API"'


@pytest.mark.parametrize('auth', [None, ('nova', 'wrong'), ('x', 'secret')])
@pytest.mark.parametrize('method, path', [
    ('GET', OURS), ('POST', OURS), ('GET', f'{OURS}/{uuid.UUID(int=1)}'),
    ('DELETE', f'{OURS}/{uuid.UUID(int=1)}'), ('PUT', OURS)])
def test_http_basic_without_a_user(basic, auth, method, path):
    response = basic.http.request(
        method, path, auth=auth, json={'resource_class': 'x'})
    contract.check(response, 401)


def test_http_basic_does_not_read_the_body(basic):
    response = basic.http.post(
        OURS, data=b'[' * 60000, headers={'Content-Type': 'text/plain'})
    contract.check(response, 401)


@contextlib.contextmanager
def record_callers():
    """Record the callers for which requests and holds are logged."""
    callers = []

    class Handler(logging.Handler):
        def emit(self, record):
            callers.append(context.get_current())

    handler = Handler()
    with contextlib.ExitStack() as stack:
        for logger in map(logging.getLogger, (
                access.__name__, events.__name__)):
            logger.addHandler(handler)
            stack.callback(logger.removeHandler, handler)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.INFO)
        yield callers


def test_caller_in_the_log(cloud):
    """A thread serves many callers; no line names an earlier one."""
    with record_callers() as callers:
        cloud.get('a-member', OURS)
        response = cloud.request('bad-token', 'GET', OURS)
    contract.check(response, 401)
    first, second = callers
    assert first.user_id == cloud.users['a-member']
    assert second.user_id is None
    assert second.request_id == response.headers['x-openstack-request-id']


def test_caller_of_the_first_request(cloud, start):
    """Ironic leaves its own context to the thread that asks its version."""
    def ironic_app(environ, start_response):
        context.RequestContext(user_id='of Ironic')
        return webob.Response()(environ, start_response)

    with start({'DEFAULT': {'auth_strategy': 'noauth'}},
               ironic_app) as first, record_callers() as callers:
        response = first.http.post(OURS, json=ANY)
    contract.check(response, 201)
    event, line = callers
    assert event is line
    assert event.request_id == response.headers['x-openstack-request-id']
