# SPDX-License-Identifier: Apache-2.0
"""Nobody, strangers, and claims that nobody has checked."""

import contextlib
import logging
import uuid

import bcrypt
from oslo_context import context
import pytest
import webob

from ironic_reservations import events
from ironic_reservations.api import access
from tests.common import answers
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
def test_refusal(cloud, persona, method, path):
    response = cloud.request(persona, method, path, headers=PAGE)
    answers.check(response, 401)
    assert response.headers['WWW-Authenticate'] == (
        f'Keystone uri="{personas.KEYSTONE}"')
    # A page can read it.
    assert response.headers['Access-Control-Allow-Origin'] == ORIGIN
    assert response.headers['X-OpenStack-Ironic-API-Version'] != '1.1'


def test_body_of_a_stranger_is_not_read(cloud):
    cloud.call('no-token', 401, 'POST', OURS, data=b'[' * 60000)


def test_preflight_needs_no_token(cloud):
    response = cloud.request('no-token', 'OPTIONS', OURS, headers={
        **PAGE, 'Access-Control-Request-Method': 'POST',
        'Access-Control-Request-Headers': 'X-Auth-Token'})
    assert response.status_code == 200
    assert response.headers['Access-Control-Allow-Origin'] == ORIGIN


FORGED = personas.FORGED


def test_claims_are_not_believed(cloud):
    cloud.call('no-token', 401, 'GET', OURS, headers=FORGED)
    cloud.call('a-reader', 403, 'POST', OURS, headers=FORGED, json=ANY)
    cloud.call('a-member', 404, 'GET', f'{OURS}/{{b}}', headers=FORGED)
    held = cloud.request('a-member', 'POST', OURS, headers=FORGED, json=ANY)
    answers.check(held, 201)
    assert held.json()['project_id'] == cloud.projects['a']
    assert held.json()['user_id'] == cloud.users['a-member']


def test_noauth_does_not_believe_claims(cloud, start):
    with start({'DEFAULT': {'auth_strategy': 'noauth'}}) as noauth:
        for headers in {}, FORGED, {**FORGED, 'X-Auth-Token': 'nonsense',
                                    'X-Roles': '', 'X-User': 'forged',
                                    'Authorization': 'Basic nonsense'}:
            response = noauth.http.post(OURS, headers=headers, json=ANY)
            answers.check(response, 201)
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
        answers.check(response, 401)
    challenge = response.headers.get('WWW-Authenticate')
    response = basic.http.post(
        OURS, auth=('nova', 'secret'), headers=FORGED,
        json={**ANY, 'host': 'h'})
    answers.check(response, 201)
    assert response.json()['host'] == 'h'
    assert response.json()['project_id'] is None
    assert response.json()['user_id'] != 'forged'
    listed = basic.http.get(OURS, auth=('nova', 'secret'))
    answers.check(listed, 200)
    assert len(listed.json()['reservations']) == 4
    # As Ironic's.
    assert challenge == 'Basic realm="Baremetal API"'


@pytest.mark.parametrize('auth', [None, ('nova', 'wrong'), ('x', 'secret')])
@pytest.mark.parametrize('method, path', [
    ('GET', OURS), ('POST', OURS), ('GET', f'{OURS}/{uuid.UUID(int=1)}'),
    ('DELETE', f'{OURS}/{uuid.UUID(int=1)}'), ('PUT', OURS)])
def test_http_basic_refuses_strangers(basic, auth, method, path):
    response = basic.http.request(
        method, path, auth=auth, json={'resource_class': 'x'})
    answers.check(response, 401)


def test_stranger_does_not_send_us_looking(basic):
    response = basic.http.post(
        OURS, data=b'[' * 60000, headers={'Content-Type': 'text/plain'})
    answers.check(response, 401)


@contextlib.contextmanager
def callers_in_the_log():
    """Those that the access lines and the lines of holds are logged for."""
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


def test_caller_in_the_log_and_nobody_else(cloud):
    """A thread serves many; its lines do not name the caller before."""
    with callers_in_the_log() as callers:
        cloud.get('a-member', OURS)
        response = cloud.request('bad-token', 'GET', OURS)
    answers.check(response, 401)
    first, second = callers
    assert first.user_id == cloud.users['a-member']
    assert second.user_id is None
    assert second.request_id == response.headers['x-openstack-request-id']


def test_first_request_asks_ironic_and_stays_ours(cloud, start):
    """Ironic, asked for its versions, leaves its own context to the thread."""
    def of_ironic(environ, start_response):
        context.RequestContext(user_id='of Ironic')
        return webob.Response()(environ, start_response)

    with start({'DEFAULT': {'auth_strategy': 'noauth'}},
                    of_ironic) as first, callers_in_the_log() as callers:
        response = first.http.post(OURS, json=ANY)
    answers.check(response, 201)
    held, asked = callers
    assert held is asked
    assert held.request_id == response.headers['x-openstack-request-id']
