# SPDX-License-Identifier: Apache-2.0
"""Requests that pass the fence, and requests that it refuses."""

import io
import logging
import uuid

import bcrypt
import pytest
import sqlalchemy as sa

from ironic_reservations.api import access
from ironic_reservations.db import engine
from tests.api import fence_client
from tests.api.fence_client import FENCE
from tests.api.fence_client import NAME
from tests.api.fence_client import make_header
from tests.api.fence_client import power_path
from tests.common import application
from tests.common import contract
from tests.common import personas
from tests.common import service

HOSTS = f'{service.OURS}/hosts'
TARGETS = '/v1/volume/targets'
POOL = [{'properties': {'memory_mb': 1024}}] * 2
ONE = 'abcdefab-0000-4000-8000-000000000001'
OTHER = 'abcdefab-0000-4000-8000-000000000002'
MIB = 2 ** 20
#: As Ironic's server says it.
CHUNKED = {'HTTP_TRANSFER_ENCODING': 'chunked',
           'wsgi.input_terminated': True}


class Body:
    """A body of some length; records the size of each read."""

    def __init__(self, length):
        self.size, self.pieces = length, []

    def read(self, size):
        piece = b'x' * min(size, self.size)
        self.size -= len(piece)
        self.pieces.append(len(piece))
        return piece


class BrokenBody:
    def read(self, size):
        raise ValueError('Bad chunk size')


@pytest.fixture
def client(ironic):
    with fence_client.serve() as client:
        yield client


@pytest.fixture
def hold(ironic, pool, node_class):
    yield ironic.create(resource_class=node_class, host='compute-1')
    ironic.execute('DELETE FROM reservations_hosts')
    ironic.execute('DELETE FROM volume_targets')


def other_node(pool, hold):
    return next(node.id for node in pool if node.id != hold['node_uuid'])


def call(client, hold, method='PUT', host='compute-1', **environ):
    return client.call(power_path(hold), make_header(hold, host=host), method,
                       **environ)


# Accepted requests

@pytest.mark.parametrize('method, below', [
    ('PUT', '/states/power'), ('PUT', '/states/provision'), ('PATCH', ''),
    ('POST', '/vifs'), ('DELETE', f'/vifs/{ONE}'), ('GET', '/states/console'),
    ('GET', ''), ('PUT', '/management/inject_nmi/'), ('OPTIONS', ''),
    ('DELETE', '/traits/CUSTOM_A'), ('GET', '/ports?node=NODE&fields=uuid'),
    ('POST', '/vendor_passthru/x?method=a')])
def test_host_that_holds_the_node(client, hold, method, below):
    path = f'/v1/nodes/{hold["node_uuid"]}{below}'
    client.accept(hold, method, path.replace('NODE', hold['node_uuid']))


# Actions after which the host no longer holds the node

def move(ironic, hold, pool):
    contract.check(ironic.http.patch(
        f'{service.OURS}/{hold["instance_uuid"]}', json=[
            {'op': 'replace', 'path': '/host', 'value': 'compute-2'}]), 200)


def release(ironic, hold, pool):
    ironic.delete(hold['instance_uuid'])


def tear_down(ironic, hold, pool):
    ironic.set_node(hold['node_uuid'], instance_uuid=None)


def replace(ironic, hold, pool):
    release(ironic, hold, pool)
    ironic.create(candidate_nodes=[hold['node_uuid']], host='compute-1')


def hold_another_node(ironic, hold, pool):
    release(ironic, hold, pool)
    ironic.create(candidate_nodes=[other_node(pool, hold)], host='compute-1',
                  instance_uuid=hold['instance_uuid'])


def expire(ironic, hold, pool):
    ironic.expire(hold['instance_uuid'])


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('act', [
    move, release, tear_down, replace, hold_another_node, expire],
    ids=lambda act: act.__name__)
def test_stale_reservation(ironic, client, hold, pool, act):
    client.accept(hold)
    act(ironic, hold, pool)
    before = ironic.state()
    assert client.refuse(412, hold) == (
        f'Host compute-1 does not hold node {hold["node_uuid"]} for instance '
        f'{hold["instance_uuid"]}.')
    # The fence writes nothing; it does not even clean up as other reads do.
    assert ironic.state() == before


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('keys', [
    {'host': 'compute-2'}, {'host': 'Compute-1'}, {'host': 'compute-1%20x'},
    {'instance': ONE}, {'instance': ONE, 'host': 'compute-2'},
    {'host': 'compute-2', 'holder': ONE}], ids=str)
def test_no_such_reservation(ironic, client, hold, keys):
    fault = client.refuse(412, hold, **keys)
    assert 'does not hold node' in fault


@pytest.mark.on('sqlite', 'server')
def test_other_node(client, hold, pool):
    node = hold['node_uuid']
    # The others are UUIDs to Ironic, of other nodes.
    for ident in (other_node(pool, hold), node.replace('-', ''),
                  f'{{{node}}}', f'urn:uuid:{node}'):
        client.refuse(412, hold, path=f'/v1/nodes/{ident}/states/power')


@pytest.mark.on('sqlite', 'server')
def test_case_of_uuids_is_ignored(ironic, client, hold):
    """Also where the database distinguishes case."""
    contract.check(ironic.http.put(f'{HOSTS}/compute-1', json={
        'holder': ONE, 'ttl': 60}), 200)
    client.accept(hold, instance=hold['instance_uuid'].upper(),
                  holder=ONE.upper())
    client.accept(hold, path=f'/v1/nodes/{hold["node_uuid"].upper()}')


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('host, quoted_host', [
    ('a;b=c', 'a%3Bb%3Dc'), ('a,b', 'a%2Cb'), ('100%', '100%25'),
    ('comput\u00e9', 'comput%C3%A9'), ('comput\u00e9', b'comput\xc3\xa9'),
    ('\U0001f600' * 255, '%F0%9F%98%80' * 255)])
def test_names_of_hosts(ironic, client, pool, node_class, host, quoted_host):
    hold = ironic.create(resource_class=node_class, host=host)
    if isinstance(quoted_host, str):
        quoted_host = quoted_host.encode()
    client.check_accepted(client.put(power_path(hold), headers={
        NAME: make_header(hold, host='').encode() + quoted_host}))


# The host lease

def acquire_lease(ironic, holder, seconds=60):
    ironic.execute('DELETE FROM reservations_hosts')
    contract.check(ironic.http.put(f'{HOSTS}/compute-1', json={
        'holder': holder, 'ttl': 60}), 200)
    ironic.execute('UPDATE reservations_hosts '
                   f'SET expires_at = {ironic.clock(seconds)}')


@pytest.mark.on('sqlite', 'server')
def test_host_lease(ironic, client, hold):
    client.refuse(412, hold, holder=ONE)
    acquire_lease(ironic, ONE)
    client.accept(hold, holder=ONE)
    fault = client.refuse(412, hold, holder=OTHER)
    assert fault == (f'Process {OTHER} does not have the lease of host '
                     'compute-1, or the lease has expired.')
    acquire_lease(ironic, ONE, 0)
    client.refuse(412, hold, holder=ONE)
    # Without a holder in the header, no lease is required.
    client.accept(hold)
    acquire_lease(ironic, OTHER)
    client.refuse(412, hold, holder=ONE)
    # The reservation is checked before the lease.
    fault = client.refuse(412, hold, holder=ONE, instance=ONE)
    assert 'does not hold node' in fault


# Volume targets

def create_target(ironic, node_uuid):
    target_uuid = str(uuid.uuid4())
    ironic.execute(
        'INSERT INTO volume_targets (uuid, node_id, volume_type, boot_index, '
        "volume_id) SELECT :u, id, 'iscsi', 0, 'v' FROM nodes "
        'WHERE uuid = :n', u=target_uuid, n=node_uuid)
    return target_uuid


@pytest.mark.on('sqlite', 'server')
def test_volume_targets(ironic, client, hold, pool):
    """Another node's target is refused; Ironic answers for unknown targets."""
    node, other = hold['node_uuid'], other_node(pool, hold)
    own, others = (create_target(ironic, uuid) for uuid in (node, other))
    for method, path in (
            ('GET', TARGETS), ('GET', f'{TARGETS}?node={node}'),
            ('POST', TARGETS), ('POST', f'{TARGETS}/'),
            ('DELETE', f'{TARGETS}/{own}'), ('PATCH', f'{TARGETS}/{own}'),
            ('DELETE', f'{TARGETS}/{ONE}')):
        client.accept(hold, method, path, node=node)
    client.refuse(412, hold, 'DELETE', f'{TARGETS}/{others}', node=node)
    for method, path in ('POST', TARGETS), ('DELETE', f'{TARGETS}/{others}'):
        client.refuse(412, hold, method, path, node=other)
    for method, path, node_key in (
            ('POST', TARGETS, None), ('DELETE', f'{TARGETS}/{own}', None),
            ('DELETE', f'{TARGETS}/detail', node),
            ('DELETE', f'{TARGETS}/{own}.json', node),
            ('DELETE', f'{TARGETS}/{own}/more', node),
            ('GET', f'{TARGETS}?node={other}', node),
            ('GET', f'{TARGETS}?node=node-1', node),
            # Ironic's framework would read the target from the query.
            ('DELETE', TARGETS, node), ('PATCH', TARGETS, node),
            ('DELETE', f'{TARGETS}/{own}?target_uuid={others}', node),
            ('GET', f'{TARGETS}?target%5Fuuid={others}', node),
            ('POST', f'{TARGETS}?_method=delete', node)):
        client.refuse(400, hold, method, path, node=node_key)


# Malformed requests

@pytest.mark.parametrize('change', [
    lambda text: '', lambda text: 'x', lambda text: ';',
    lambda text: text + ';', lambda text: text.partition('; ')[0],
    lambda text: text.partition('; ')[2], lambda text: text + '; host=a',
    lambda text: f'{text}, {text}', lambda text: f'{text},',
    lambda text: text + '; ttl=1', lambda text: text.replace('host', 'Host'),
    lambda text: text.replace('-', ''), lambda text: text + '%00',
    lambda text: text + '%0a', lambda text: text + '%20',
    lambda text: text + '\xff', lambda text: text + '%ff',
    lambda text: text + 'x' * 300, lambda text: text + 'x' * 100_000,
    lambda text: text + '; a=' * 100_000, lambda text: text + '; holder=',
    lambda text: text + '; holder=x', lambda text: text.replace('=', ':'),
    lambda text: text.replace('=', '=%7B', 1),
    lambda text: text + f'; node={ONE}', lambda text: text + '; node=node-1',
    lambda text: text.replace('compute-1', '')])
def test_malformed_header(client, hold, change):
    status, headers = client.call(power_path(hold), change(make_header(hold)))
    assert (status, headers[FENCE]) == (400, '1')
    assert client.ironic.environs == []


@pytest.mark.parametrize('path', [
    '', '/', '/v1', '/v1/nodes', '/v1/nodes/', '/v1/nodes/node-1',
    '/v1/nodes/detail', '/nodes/NODE', '/V1/nodes/NODE', '//v1/nodes/NODE',
    '/v1//nodes/NODE', '/v1/nodes//NODE', '/v1/nodes/NODE.json',
    '/v1/nodes/NODE//states', '/v1/nodes/NODE/../OTHER/states/power',
    '/v1/nodes/NODE/./states', '/v1/nodes/NODE/..', '/v1/nodes/NODE;x/states',
    '/v1/nodes/NODE%2Fstates', '/v1/nodes/NODE//', '/v1/nodes/ NODE',
    '/v1/nodes/NODE\n', '/v1/nodes/NODE\x00', '/v1/nodes/\xffNODE',
    '/v1/nodes/NODE0', '/v1/nodes/../nodes/NODE', '/v1/nodesNODE',
    '/v1/volume/targetsNODE', '/v1/volume', '/v1/volume/connectors',
    '/v1/volume/targets',
    '/v1/ports/NODE', '/v1/allocations/NODE', '/v1/chassis/NODE/nodes/NODE',
    '/v1/lookup', '/v1/heartbeat/NODE', '/healthcheck', '/v1/reservations',
    '/v1/reservations/INSTANCE', '/v1/reservations/hosts/compute-1'])
def test_other_paths(client, hold, path):
    for name, text in (('NODE', hold['node_uuid']), ('OTHER', ONE),
                       ('INSTANCE', hold['instance_uuid'])):
        path = path.replace(name, text)
    for method in 'GET', 'PUT', 'DELETE':
        status, headers = client.call(path, make_header(hold), method)
        assert (status, headers[FENCE]) == (400, '1')
    assert client.ironic.environs == []


@pytest.mark.parametrize('query', [
    'node=OTHER', 'node_ident=OTHER', 'node_uuid=OTHER', 'node=', 'node',
    'node=NODE&node=OTHER', 'a=b&n%6fde_uuid=OTHER', '_method=put',
    'target_uuid=OTHER'])
def test_query_that_names_another_node(client, hold, query):
    """GET /v1/nodes/A/validate?node_uuid=B is about B."""
    query = query.replace('OTHER', ONE).replace('NODE', hold['node_uuid'])
    client.refuse(400, hold, 'POST', f'{power_path(hold)}?{query}')


@pytest.mark.parametrize('content_type, status', [
    ('application/x-www-form-urlencoded', 400),
    ('Multipart/Form-Data; boundary=x', 400), ('', 400),
    ('application/json', 202), ('application/json; charset=utf-8', 202)])
def test_form_that_may_name_another_node(client, hold, content_type, status):
    environ = {'CONTENT_TYPE': content_type, 'CONTENT_LENGTH': '3'}
    if status == 400:
        environ['wsgi.input'] = io.BytesIO(b'a=b')
    assert call(client, hold, 'POST', **environ)[0] == status


@pytest.mark.parametrize('strategy', ['noauth', 'http_basic'])
def test_without_keystone(ironic, hold, tmp_path, strategy):
    users = tmp_path / 'htpasswd'
    users.write_text('nova:' + bcrypt.hashpw(
        b'secret', bcrypt.gensalt(4)).decode() + '\n')
    with application.set_options({'DEFAULT': {
            'auth_strategy': strategy,
            'http_basic_auth_user_file': str(users)}
            }), fence_client.serve() as client:
        if strategy == 'http_basic':
            response = client.send_for(hold)
            client.check_refused(response, 401)
            assert 'Basic' in response.headers['WWW-Authenticate']
            client.refuse(401, hold, host='x')
            client.auth = ('nova', 'secret')
        client.accept(hold)
        client.refuse(412, hold, host='x')


# Requests and responses

@pytest.mark.parametrize('more', [
    {}, {'CONTENT_LENGTH': str(64 * MIB), 'CONTENT_TYPE': 'application/json'},
    {'HTTP_TRANSFER_ENCODING': 'chunked', 'HTTP_EXPECT': '100-continue'},
    {'HTTP_COOKIE': 'x' * 100_000, 'QUERY_STRING': 'x=' + 'y' * 100_000},
    {'SCRIPT_NAME': '/baremetal', 'HTTP_X_FORWARDED_PREFIX': '/x',
     'HTTP_X_FORWARDED_PROTO': 'https'},
    {'HTTP_ORIGIN': personas.ORIGIN, 'keystone.token_info': 'x'}], ids=str)
def test_ironic_gets_the_request_unchanged(client, hold, more):
    """The body is not read."""
    call(client, hold, **more)
    environ, = client.ironic.environs
    assert environ is client.environ and environ == client.before


@pytest.mark.parametrize('length, limit', [
    (0, 0), (1, 1), (70_000, 70_000), (64 * MIB, 64 * MIB),
    (65 * MIB, 64 * MIB)])
@pytest.mark.parametrize('is_chunked', [False, True])
def test_body_of_a_refused_request_is_read(client, hold, length, limit,
                                           is_chunked):
    """Up to the size that Ironic itself would read, piece by piece."""
    body = Body(length)
    status, headers = call(client, hold, host='x', **{
        'wsgi.input': body, **(CHUNKED if is_chunked else {
            'CONTENT_LENGTH': str(length)})})
    assert status == 412 and client.ironic.environs == []
    # The rest of the body cannot be taken for the next request.
    assert headers.get('Connection') == ('close' if is_chunked else None)
    assert sum(body.pieces) == limit and max(body.pieces or [0]) <= MIB


@pytest.mark.parametrize('environ', [
    {}, {'CONTENT_LENGTH': ''}, {'CONTENT_LENGTH': '0'},
    {'CONTENT_LENGTH': 'x'}, {'CONTENT_LENGTH': '-1'}])
def test_request_without_a_body(client, hold, environ):
    """The response does not wait for one."""
    assert call(client, hold, host='x', **environ)[0] == 412


def test_chunks_that_the_server_does_not_pass_on(client, hold):
    """Nothing is read, and nothing raised at the end."""
    for host, status in ('x', 412), ('compute-1', 202):
        assert call(client, hold, host=host,
                    HTTP_TRANSFER_ENCODING='chunked')[0] == status


@pytest.mark.parametrize('environ', [CHUNKED, {'CONTENT_LENGTH': '5'}])
def test_broken_body(client, hold, environ):
    assert call(client, hold, host='x', **environ, **{
        'wsgi.input': BrokenBody()})[0] == 412


def test_head_and_preflight(client, hold):
    client.accept(hold, 'HEAD')
    client.refuse(412, hold, 'HEAD', host='x')
    # The application answers preflight requests itself.
    response = client.options(power_path(hold), headers={
        NAME: make_header(hold, host='x'), 'Origin': personas.ORIGIN,
        'Access-Control-Request-Method': 'PUT'})
    assert (response.status_code, client.ironic.environs) == (200, [])


def test_refusal_has_cors_headers(client, hold):
    response = client.put(power_path(hold), headers={
        NAME: make_header(hold, host='x'), 'Origin': personas.ORIGIN})
    client.check_refused(response, 412)
    assert (response.headers['Access-Control-Allow-Origin']
            == personas.ORIGIN)


def test_bad_version(client, hold):
    response = client.put(power_path(hold), headers={
        NAME: make_header(hold), service.API_VERSION: 'x'})
    client.check_refused(response, 406)


def test_log(client, hold, caplog):
    """Refusals get a line; for other requests there is Ironic's own."""
    caplog.set_level(logging.INFO, access.__name__)
    client.send_for(hold)
    assert not caplog.messages
    response = client.send_for(hold, path=f'{power_path(hold)}?a=b', host='x')
    line, = caplog.messages
    assert f' - PUT {power_path(hold)}?a=b - 412 (' in line
    record, = caplog.records
    assert record.levelno == logging.INFO
    assert response.headers['x-openstack-request-id']


def test_number_of_statements(ironic, client, hold):
    """One with the header, none without it."""
    with application.record_statements() as statements:
        response = client.put(power_path(hold), data=b'x')
    assert statements == [] and FENCE not in response.headers
    assert response.status_code == 202 and len(client.ironic.environs) == 1
    acquire_lease(ironic, ONE)
    for target in '', f'/{create_target(ironic, hold["node_uuid"])}':
        with application.record_statements() as statements:
            client.request('GET', TARGETS + target, headers={
                NAME: make_header(hold, holder=ONE, node=hold['node_uuid'])})
        statement, = (text for text in statements if text != 'BEGIN')
        assert statement.startswith('SELECT ')
    assert len(client.ironic.environs) == 3


@pytest.mark.parametrize('url', [
    'sqlite://', 'sqlite:////no/such/directory/ironic.sqlite',
    'mysql+pymysql://nobody@127.0.0.1:1/ironic'])
def test_unusable_database(client, hold, monkeypatch, url):
    unusable = sa.create_engine(url)
    monkeypatch.setattr(engine, 'get_engine', lambda: unusable)
    for keys in {}, {'host': 'x'}, {'holder': ONE}:
        response = client.send_for(hold, **keys)
        client.check_refused(response, 503)
        assert int(response.headers['Retry-After']) > 0
    unusable.dispose()
