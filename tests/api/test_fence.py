# SPDX-License-Identifier: Apache-2.0
"""The fence at Ironic's door: what is let in, and what is refused."""

import io
import logging
import uuid

import bcrypt
import pytest
import sqlalchemy as sa

from ironic_reservations.api import access
from ironic_reservations.db import engine as db_engine
from tests.api.door import FENCE
from tests.api.door import NAME
from tests.api.door import Unread
from tests.api.door import let_in
from tests.api.door import of
from tests.api.door import opened
from tests.api.door import power
from tests.api.door import refused
from tests.api.door import send
from tests.common import answers
from tests.common import application
from tests.common import personas
from tests.common import service

HOSTS = f'{service.OURS}/hosts'
TARGETS = '/v1/volume/targets'
POOL = [{'properties': {'memory_mb': 1024}}] * 2
ONE = 'abcdefab-0000-4000-8000-000000000001'
OTHER = 'abcdefab-0000-4000-8000-000000000002'
MIB = 2 ** 20


class Body:
    """A body of some length; notes how much of it was read at most."""

    def __init__(self, length):
        self.left, self.pieces = length, []

    def read(self, size):
        piece = b'x' * min(size, self.left)
        self.left -= len(piece)
        self.pieces.append(len(piece))
        return piece


class Broken:
    def read(self, size):
        raise ValueError('Bad chunk size')


@pytest.fixture
def door(ironic):
    with opened() as door:
        yield door


@pytest.fixture
def held(ironic, pool, node_class):
    yield ironic.create(resource_class=node_class, host='compute-1')
    ironic.execute('DELETE FROM reservations_hosts')
    ironic.execute('DELETE FROM volume_targets')


def other_node(pool, held):
    return next(each.id for each in pool if each.id != held['node_uuid'])


# Who is let in

@pytest.mark.parametrize('method, below', [
    ('PUT', '/states/power'), ('PUT', '/states/provision'), ('PATCH', ''),
    ('POST', '/vifs'), ('DELETE', f'/vifs/{ONE}'), ('GET', '/states/console'),
    ('GET', ''), ('PUT', '/management/inject_nmi/'), ('OPTIONS', ''),
    ('DELETE', '/traits/CUSTOM_A'), ('GET', '/ports?node=NODE&fields=uuid'),
    ('POST', '/vendor_passthru/x?method=a')])
def test_host_that_holds_the_node(door, held, method, below):
    path = f'/v1/nodes/{held["node_uuid"]}{below}'
    let_in(door, send(door, held, method,
                      path.replace('NODE', held['node_uuid'])))


def moved(ironic, held, pool):
    answers.check(ironic.http.patch(
        f'{service.OURS}/{held["instance_uuid"]}', json=[
            {'op': 'replace', 'path': '/host', 'value': 'compute-2'}]), 200)


def released(ironic, held, pool):
    ironic.delete(held['instance_uuid'])


def torn_down(ironic, held, pool):
    ironic.set_node(held['node_uuid'], instance_uuid=None)


def given_to_another(ironic, held, pool):
    released(ironic, held, pool)
    ironic.create(candidate_nodes=[held['node_uuid']], host='compute-1')


def held_again_elsewhere(ironic, held, pool):
    released(ironic, held, pool)
    ironic.create(candidate_nodes=[other_node(pool, held)], host='compute-1',
                  instance_uuid=held['instance_uuid'])


def lapsed(ironic, held, pool):
    ironic.expire(held['instance_uuid'])


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('become', [
    moved, released, torn_down, given_to_another, held_again_elsewhere,
    lapsed], ids=lambda become: become.__name__)
def test_what_is_over(ironic, door, held, pool, become):
    let_in(door, send(door, held))
    become(ironic, held, pool)
    before = ironic.state()
    assert refused(door, send(door, held), 412) == (
        f'Host compute-1 does not hold node {held["node_uuid"]} for instance '
        f'{held["instance_uuid"]}.')
    # It writes nothing, not even what another read would put in order.
    assert ironic.state() == before


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('said', [
    {'host': 'compute-2'}, {'host': 'Compute-1'}, {'host': 'compute-1%20x'},
    {'instance': ONE}, {'instance': ONE, 'host': 'compute-2'},
    {'host': 'compute-2', 'holder': ONE}], ids=str)
def test_what_never_was(ironic, door, held, said):
    fault = refused(door, send(door, held, **said), 412)
    assert 'does not hold node' in fault


@pytest.mark.on('sqlite', 'server')
def test_another_node(door, held, pool):
    path = f'/v1/nodes/{other_node(pool, held)}/states/power'
    refused(door, send(door, held, path=path), 412)


@pytest.mark.on('sqlite', 'server')
def test_uuids_are_the_same_however_they_are_spelled(ironic, door, held):
    """The node's as the database compares it, which is how Ironic finds it."""
    answers.check(ironic.http.put(f'{HOSTS}/compute-1', json={
        'holder': ONE, 'ttl': 60}), 200)
    let_in(door, send(door, held, instance=held['instance_uuid'].upper(),
                      holder=ONE.upper()))
    found = ironic.execute('SELECT id FROM nodes WHERE uuid = :u',
                           u=held['node_uuid'].upper())
    response = send(door, held, path=f'/v1/nodes/{held["node_uuid"].upper()}')
    if found:
        let_in(door, response)
    else:
        refused(door, response, 412)


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('host, said', [
    ('a;b=c', 'a%3Bb%3Dc'), ('a,b', 'a%2Cb'), ('100%', '100%25'),
    ('comput\u00e9', 'comput%C3%A9'), ('comput\u00e9', b'comput\xc3\xa9'),
    ('\U0001f600' * 255, '%F0%9F%98%80' * 255)])
def test_names_of_hosts(ironic, door, pool, node_class, host, said):
    held = ironic.create(resource_class=node_class, host=host)
    said = said if isinstance(said, bytes) else said.encode()
    let_in(door, door.put(power(held), headers={
        NAME: of(held, host='').encode() + said}))


# The lease of the host

def hold(ironic, holder, seconds=60):
    ironic.execute('DELETE FROM reservations_hosts')
    answers.check(ironic.http.put(f'{HOSTS}/compute-1', json={
        'holder': holder, 'ttl': 60}), 200)
    ironic.execute('UPDATE reservations_hosts '
                   f'SET expires_at = {ironic.clock(seconds)}')


@pytest.mark.on('sqlite', 'server')
def test_lease(ironic, door, held):
    refused(door, send(door, held, holder=ONE), 412)
    hold(ironic, ONE)
    let_in(door, send(door, held, holder=ONE))
    fault = refused(door, send(door, held, holder=OTHER), 412)
    assert fault == (f'Host compute-1 is not held by {OTHER}, or its lease is '
                     'over.')
    hold(ironic, ONE, 0)
    refused(door, send(door, held, holder=ONE), 412)
    # Who does not say it is not asked for it.
    let_in(door, send(door, held))
    hold(ironic, OTHER)
    refused(door, send(door, held, holder=ONE), 412)
    # Whose it is comes first.
    fault = refused(door, send(door, held, holder=ONE, instance=ONE), 412)
    assert 'does not hold node' in fault


# Volume targets

def target_of(ironic, node_uuid):
    ident = str(uuid.uuid4())
    ironic.execute(
        'INSERT INTO volume_targets (uuid, node_id, volume_type, boot_index, '
        "volume_id) SELECT :u, id, 'iscsi', 0, 'v' FROM nodes "
        'WHERE uuid = :n', u=ident, n=node_uuid)
    return ident


@pytest.mark.on('sqlite', 'server')
def test_volume_targets(ironic, door, held, pool):
    """A target must not be another node's; one that is gone is Ironic's."""
    node, other = held['node_uuid'], other_node(pool, held)
    own, others = target_of(ironic, node), target_of(ironic, other)
    for method, path in (
            ('GET', TARGETS), ('GET', f'{TARGETS}?node={node}'),
            ('POST', TARGETS), ('POST', f'{TARGETS}/'),
            ('DELETE', f'{TARGETS}/{own}'), ('PATCH', f'{TARGETS}/{own}'),
            ('DELETE', f'{TARGETS}/{ONE}')):
        let_in(door, send(door, held, method, path, node=node))
    refused(door, send(door, held, 'DELETE', f'{TARGETS}/{others}',
                       node=node), 412)
    for method, path in ('POST', TARGETS), ('DELETE', f'{TARGETS}/{others}'):
        refused(door, send(door, held, method, path, node=other), 412)
    for method, path, said in (
            ('POST', TARGETS, None), ('DELETE', f'{TARGETS}/{own}', None),
            ('DELETE', f'{TARGETS}/detail', node),
            ('DELETE', f'{TARGETS}/{own}.json', node),
            ('DELETE', f'{TARGETS}/{own}/more', node),
            ('GET', f'{TARGETS}?node={other}', node),
            ('GET', f'{TARGETS}?node=node-1', node),
            # Ironic's framework would take the target from elsewhere.
            ('DELETE', TARGETS, node), ('PATCH', TARGETS, node),
            ('DELETE', f'{TARGETS}/{own}?target_uuid={others}', node),
            ('GET', f'{TARGETS}?target%5Fuuid={others}', node),
            ('POST', f'{TARGETS}?_method=delete', node)):
        refused(door, send(door, held, method, path, node=said), 400)


# What is malformed

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
def test_malformed_header(door, held, change):
    status, headers, _ = door.call(power(held), change(of(held)))
    assert (status, headers[FENCE]) == (400, '1')
    assert door.seen == []


@pytest.mark.parametrize('path', [
    '', '/', '/v1', '/v1/nodes', '/v1/nodes/', '/v1/nodes/node-1',
    '/v1/nodes/detail', '/nodes/NODE', '/V1/nodes/NODE', '//v1/nodes/NODE',
    '/v1//nodes/NODE', '/v1/nodes//NODE', '/v1/nodes/NODE.json',
    '/v1/nodes/NODE//states', '/v1/nodes/NODE/../OTHER/states/power',
    '/v1/nodes/NODE/./states', '/v1/nodes/NODE/..', '/v1/nodes/NODE;x/states',
    '/v1/nodes/NODE%2Fstates', '/v1/nodes/NODE//', '/v1/nodes/ NODE',
    '/v1/nodes/NODE\n', '/v1/nodes/NODE\x00', '/v1/nodes/\xffNODE',
    '/v1/nodes/{NODE}', '/v1/nodes/urn:uuid:NODE', '/v1/nodes/SHORT',
    '/v1/nodes/../nodes/NODE', '/v1/nodesNODE', '/v1/volume/targetsNODE',
    '/v1/volume', '/v1/volume/connectors', '/v1/volume/targets',
    '/v1/ports/NODE', '/v1/allocations/NODE', '/v1/chassis/NODE/nodes/NODE',
    '/v1/lookup', '/v1/heartbeat/NODE', '/healthcheck', '/v1/reservations',
    '/v1/reservations/INSTANCE', '/v1/reservations/hosts/compute-1'])
def test_other_paths(door, held, path):
    for name, text in (('NODE', held['node_uuid']), ('OTHER', ONE),
                       ('SHORT', held['node_uuid'].replace('-', '')),
                       ('INSTANCE', held['instance_uuid'])):
        path = path.replace(name, text)
    for method in 'GET', 'PUT', 'DELETE':
        status, headers, _ = door.call(path, of(held), method)
        assert (status, headers[FENCE]) == (400, '1')
    assert door.seen == []


@pytest.mark.parametrize('query', [
    'node=OTHER', 'node_ident=OTHER', 'node_uuid=OTHER', 'node=', 'node',
    'node=NODE&node=OTHER', 'a=b&n%6fde_uuid=OTHER', '_method=put',
    'target_uuid=OTHER'])
def test_query_that_names_another(door, held, query):
    """GET /v1/nodes/A/validate?node_uuid=B is about B."""
    query = query.replace('OTHER', ONE).replace('NODE', held['node_uuid'])
    refused(door, send(door, held, 'POST', f'{power(held)}?{query}'), 400)


@pytest.mark.parametrize('kind, status', [
    ('application/x-www-form-urlencoded', 400),
    ('Multipart/Form-Data; boundary=x', 400), ('', 400),
    ('application/json', 202), ('application/json; charset=utf-8', 202)])
def test_form_that_may_name_another(door, held, kind, status):
    found, *_ = door.call(power(held), of(held), 'POST', CONTENT_TYPE=kind,
                          CONTENT_LENGTH='3', **{
                              'wsgi.input': io.BytesIO(b'a=b')
                              if status == 400 else Unread()})
    assert found == status


@pytest.mark.parametrize('strategy', ['noauth', 'http_basic'])
def test_without_keystone(ironic, held, tmp_path, strategy):
    users = tmp_path / 'htpasswd'
    users.write_text('nova:' + bcrypt.hashpw(
        b'secret', bcrypt.gensalt(4)).decode() + '\n')
    with application.set_options({'DEFAULT': {
            'auth_strategy': strategy,
            'http_basic_auth_user_file': str(users)}}), opened() as door:
        if strategy == 'http_basic':
            response = send(door, held)
            refused(door, response, 401)
            assert 'Basic' in response.headers['WWW-Authenticate']
            refused(door, send(door, held, host='x'), 401)
            door.auth = ('nova', 'secret')
        let_in(door, send(door, held))
        refused(door, send(door, held, host='x'), 412)


# What a request and an answer are

@pytest.mark.parametrize('more', [
    {}, {'CONTENT_LENGTH': str(64 * MIB), 'CONTENT_TYPE': 'application/json'},
    {'HTTP_TRANSFER_ENCODING': 'chunked', 'HTTP_EXPECT': '100-continue'},
    {'HTTP_COOKIE': 'x' * 100_000, 'QUERY_STRING': 'x=' + 'y' * 100_000},
    {'SCRIPT_NAME': '/baremetal', 'HTTP_X_FORWARDED_PREFIX': '/x',
     'HTTP_X_FORWARDED_PROTO': 'https'},
    {'HTTP_ORIGIN': personas.ORIGIN, 'keystone.token_info': 'x'}], ids=str)
def test_ironic_gets_what_has_come(door, held, more):
    """Unchanged, and its body unread."""
    door.call(power(held), of(held), **more)
    seen, = door.behind.seen
    assert seen is door.environ and seen == door.before


@pytest.mark.parametrize('length, most', [
    (0, 0), (1, 1), (70_000, 70_000), (64 * MIB, 64 * MIB),
    (65 * MIB, 64 * MIB)])
@pytest.mark.parametrize('chunked', [False, True])
def test_refused_body_is_read_to_its_end(door, held, length, most, chunked):
    """As far as Ironic itself would read it, and never all of it at once."""
    body = Body(length)
    status, headers, _ = door.call(power(held), of(held, host='x'), **{
        'wsgi.input': body, **(
            {'HTTP_TRANSFER_ENCODING': 'chunked'} if chunked
            else {'CONTENT_LENGTH': str(length)})})
    assert status == 412 and door.seen == []
    # Nobody takes what is left of it for the next request.
    assert headers.get('Connection') == ('close' if chunked else None)
    assert sum(body.pieces) == most and max(body.pieces or [0]) <= MIB


@pytest.mark.parametrize('environ', [
    {}, {'CONTENT_LENGTH': ''}, {'CONTENT_LENGTH': '0'},
    {'CONTENT_LENGTH': 'x'}, {'CONTENT_LENGTH': '-1'}])
def test_without_a_body_nothing_is_waited_for(door, held, environ):
    assert door.call(power(held), of(held, host='x'), **environ)[0] == 412


@pytest.mark.parametrize('environ', [
    {'HTTP_TRANSFER_ENCODING': 'chunked'}, {'CONTENT_LENGTH': '5'}])
def test_broken_body(door, held, environ):
    assert door.call(power(held), of(held, host='x'), **environ, **{
        'wsgi.input': Broken()})[0] == 412


def test_head_and_preflight(door, held):
    let_in(door, send(door, held, 'HEAD'))
    refused(door, send(door, held, 'HEAD', host='x'), 412)
    # What a browser asks before is answered here, and not asked of Ironic.
    response = door.options(power(held), headers={
        NAME: of(held, host='x'), 'Origin': personas.ORIGIN,
        'Access-Control-Request-Method': 'PUT'})
    assert (response.status_code, door.seen) == (200, [])


def test_page_can_read_a_refusal(door, held):
    response = door.put(power(held), headers={
        NAME: of(held, host='x'), 'Origin': personas.ORIGIN})
    refused(door, response, 412)
    assert (response.headers['Access-Control-Allow-Origin']
            == personas.ORIGIN)


def test_bad_version(door, held):
    response = door.put(power(held), headers={
        NAME: of(held), service.API_VERSION: 'x'})
    refused(door, response, 406)


def test_log(door, held, caplog):
    """A line for what is refused; for the rest there is Ironic's own."""
    caplog.set_level(logging.INFO, access.__name__)
    send(door, held)
    assert not caplog.messages
    response = send(door, held, path=f'{power(held)}?a=b', host='x')
    line, = caplog.messages
    assert f' - PUT {power(held)}?a=b - 412 (' in line
    record, = caplog.records
    assert record.levelno == logging.INFO
    assert response.headers['x-openstack-request-id']


def test_one_read_and_none_without_the_header(ironic, door, held):
    with application.record_statements() as found:
        response = door.put(power(held), data=b'x')
    assert found == [] and FENCE not in response.headers
    assert response.status_code == 202 and len(door.behind.seen) == 1
    hold(ironic, ONE)
    for target in '', f'/{target_of(ironic, held["node_uuid"])}':
        with application.record_statements() as found:
            door.request('GET', TARGETS + target, headers={
                NAME: of(held, holder=ONE, node=held['node_uuid'])})
        statement, = (each for each in found if each != 'BEGIN')
        assert statement.startswith('SELECT ')
    assert len(door.behind.seen) == 3


@pytest.mark.parametrize('url', [
    'sqlite://', 'sqlite:////no/such/directory/ironic.sqlite',
    'mysql+pymysql://nobody@127.0.0.1:1/ironic'])
def test_nothing_is_let_in_that_cannot_be_asked(door, held, monkeypatch, url):
    unusable = sa.create_engine(url)
    monkeypatch.setattr(db_engine, 'get_engine', lambda: unusable)
    for said in {}, {'host': 'x'}, {'holder': ONE}:
        response = send(door, held, **said)
        refused(door, response, 503)
        assert int(response.headers['Retry-After']) > 0
    unusable.dispose()
