# SPDX-License-Identifier: Apache-2.0
"""What the log and the message bus tell: who has asked, who holds what."""

import json
import random
import re
import uuid

from keystonemiddleware import audit
import oslo_messaging
from oslo_messaging.notify import _impl_test
import pytest

from ironic_reservations import conf
from ironic_reservations import notifications
from tests.common import answers

OURS = '/v1/reservations'
POOL = [{'properties': {'memory_mb': 1024}}] * 4
ACCESS = 'ironic_reservations.api.access'
EVENTS = 'ironic_reservations.events'
TEMPLATE = re.compile(
    r'(?P<address>\S+) - (?P<method>\S+) (?P<path>\S+) - (?P<status>\d+) '
    r'\((?P<ms>\d+\.\d\d)ms\)')


@pytest.fixture
def log(caplog):
    caplog.set_level('INFO')

    def lines(logger):
        found = [record.getMessage() for record in caplog.records
                 if record.name == logger]
        caplog.clear()
        return found
    yield lines


# The access line


@pytest.mark.parametrize('method, path, body, status', [
    ('GET', OURS, None, 200),
    ('GET', f'{OURS}?limit=1&fields=host', None, 200),
    ('GET', f'{OURS}/capacity', None, 200),
    ('HEAD', OURS, None, 200),
    ('POST', OURS, {'memory_mb': 10 ** 9}, 422),
    ('POST', OURS, {'memory_mb': True}, 400),
    ('POST', OURS, None, 415),
    ('GET', f'{OURS}?what=1', None, 400),
    ('GET', f'{OURS}/%0aroot', None, 400),
    ('GET', f'{OURS}/5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e', None, 404),
    ('GET', f'{OURS}/a/b/c', None, 404),
    ('PUT', OURS, None, 405),
    ('OPTIONS', OURS, None, 405),
], ids=str)
def test_one_line_for_a_request(ironic, pool, log, method, path, body,
                                status):
    response = ironic.http.request(method, path, json=body)
    answers.check(response, status)
    if status == 405:
        assert response.headers['Allow'] == 'GET, HEAD, POST'
    line, = log(ACCESS)
    found = TEMPLATE.fullmatch(line)
    assert (found['method'], found['path'], found['status']) == (
        method, path.replace('%0a', '%0A'), str(status))


def test_refusal_says_its_cause(ironic, pool, node_class, log):
    ironic.create(422, resource_class=node_class, memory_mb=10 ** 9)
    line, = log('ironic_reservations.api.errors')
    assert 'memory_mb>=1000000000 eliminates 4' in line


# Nothing of a client's begins a new line or commands a terminal

EVIL = ['a\nINFO forged', 'a\rb', 'a\x1b[31m', 'a\x7f', 'a\u2028b', 'a\x85']


@pytest.mark.parametrize('evil', EVIL, ids=ascii)
def test_names_without_control_characters(ironic, pool, log, evil):
    for body in ({'host': evil}, {'project_id': evil}, {'name': evil},
                 {'resource_class': evil}, {'shard': evil},
                 {'conductor_group': evil}, {'candidate_nodes': [evil]},
                 {'extra_specs': {evil: 'x'}}, {evil: 'x'},
                 {'image': {'properties': {evil: 'x'}}}):
        ironic.create(400, **{'memory_mb': 1, **body})
    for query in ({'host': evil}, {'node': evil}, {'fields': evil},
                  {evil: 'x'}):
        answers.check(ironic.http.get(OURS, params=query), 400)
    # A value may, but does not stand in a line as it is.
    fault = ironic.create(422, extra_specs={f'capabilities:{uuid.uuid4()}':
                                            evil})
    assert evil not in fault and evil[0] in fault
    for logger in ACCESS, 'ironic_reservations.api.errors':
        lines = log(logger)
        assert not any(re.search('[\x00-\x1f\x7f-\x9f\u2028]', line)
                       for line in lines), lines


def test_address_is_not_what_the_client_says(ironic, log):
    ironic.http.get(OURS, headers={
        'X-Forwarded-For': '10.9.9.9 - POST /forged - 201 (1.00ms)',
        'X-Real-IP': '10.9.9.9'})
    line, = log(ACCESS)
    assert line.startswith('127.0.0.1 - GET')


# Events


@pytest.fixture
def notifying(start, monkeypatch):
    """Starts the application with notifications: a context manager."""
    # It registers the options.
    oslo_messaging.get_notification_transport(conf.CONF, 'fake://')
    _impl_test.reset()
    # One that has made no notifier yet: it makes it of these options.
    monkeypatch.setattr(notifications, 'OUTBOX', notifications.Outbox())

    def start_notifying(level='info', driver='test', url='fake://'):
        return start({
            'DEFAULT': {'notification_level': level},
            'oslo_messaging_notifications': {
                'driver': [driver], 'transport_url': url}})
    return start_notifying


@pytest.fixture
def bus(notifying):
    """The application with notifications, kept in a list."""
    with notifying() as service:
        yield service


def notified():
    notifications.OUTBOX.wait(10)
    found = [(message['event_type'], message['payload'])
             for _, message, _, _ in _impl_test.NOTIFICATIONS]
    _impl_test.reset()
    return found


def in_log(lines):
    """The instance of each node, by the lines of the log alone."""
    held = {}
    for line in lines:
        node, = re.findall(r'node ([0-9a-f-]{36})', line, re.I)
        instance, = re.findall(r'instance ([0-9a-f-]{36})', line, re.I)
        host, = re.findall(r'\(host (\S+),', line)
        if 'is held for' in line or 'renewed' in line or 'moves' in line:
            held[node] = instance, host
        else:
            assert held.pop(node)[0] == instance
    return held


def on_bus(messages):
    held = {}
    for event_type, payload in messages:
        assert payload['ironic_object.name'] == 'ReservationPayload'
        data = payload['ironic_object.data']
        assert 'request_spec' not in data and data['occurred_at']
        json.dumps(payload)
        match event_type.split('.'):
            case ['baremetal', 'reservation', 'create' | 'update', 'end']:
                held[data['node_uuid']] = (data['instance_uuid'],
                                           str(data['host']))
            case ['baremetal', 'reservation', 'delete' | 'expire', 'end']:
                assert held.pop(data['node_uuid'])[0] == data['instance_uuid']
            case _:
                raise AssertionError(event_type)
    return held


def test_trail_of_fifty_events(bus, ironic, pool, node_class, log):
    """Who held which node when, from the log and the bus alone."""
    lines, messages = [], []

    def hold():
        bus.create(resource_class=node_class, expires_in=3600,
                   host=random.choice([None, 'compute-1']),
                   instance_uuid=str(uuid.uuid4()))

    def renew(held):
        bus.create(200, **held['request_spec'], expires_in=60,
                   instance_uuid=held['instance_uuid'])

    def move(held):
        bus.create(200, **held['request_spec'], host='compute-2',
                   expires_in=60, instance_uuid=held['instance_uuid'])

    def release(held):
        bus.delete(held['instance_uuid'])

    def expire(held):
        bus.expire(held['instance_uuid'])
        bus.delete(held['instance_uuid'], 404)

    def lose(held):
        bus.set_node(held['node_uuid'], instance_uuid=None)
        bus.show(held['instance_uuid'], 404)

    counts = {}
    while len(lines) < 50 or len(counts) < 6:
        listed = bus.list(resource_class=node_class, fields=(
            'instance_uuid,node_uuid,request_spec'))
        act = hold if not listed else random.choice(
            [hold, renew, move, release, expire, lose])
        if act is hold and len(listed) == len(pool):
            continue
        if act is hold:
            hold()
        else:
            act(random.choice(listed))
        counts[act.__name__] = counts.get(act.__name__, 0) + 1
        lines += log(EVENTS)
        messages += notified()
        truth = {each['node_uuid']: (each['instance_uuid'],
                                     str(each['host']))
                 for each in bus.list(resource_class=node_class)}
        assert in_log(lines) == truth
        assert on_bus(messages) == truth
    assert len(lines) == len(messages) == sum(counts.values())


def test_server_that_moves_has_no_lease(bus, pool, node_class, log):
    """The event says when it ends as answers do: by itself, never."""
    held = bus.create(resource_class=node_class, host='compute-1',
                      expires_in=600)
    bus.set_node(held['node_uuid'], provision_state='active')
    log(EVENTS), notified()
    answers.check(bus.http.patch(f'{OURS}/{held["instance_uuid"]}', json=[
        {'op': 'replace', 'path': '/host', 'value': 'compute-2'}]), 200)
    line, = log(EVENTS)
    assert 'expires at None' in line
    (_, payload), = notified()
    assert payload['ironic_object.data']['expires_at'] is None


@pytest.mark.parametrize('level', ['warning', None])
def test_no_notifications(pool, node_class, notifying, level):
    with notifying(level) as service:
        service.create(resource_class=node_class)
    assert notified() == []


def test_notifications_that_cannot_be_made(pool, node_class, notifying,
                                           caplog):
    """What is done is done, and is answered so."""
    with notifying(driver='messagingv2', url='nonsense://x') as service:
        for _ in range(2):
            held = service.create(resource_class=node_class)
            service.delete(held['instance_uuid'])
        assert notified() == []
    assert caplog.text.count('Cannot send notification') == 4


# The audit


@pytest.fixture
def audited(start, tmp_path):
    """The application with Ironic's audit."""
    for group, opts in audit.list_opts():
        conf.CONF.register_opts(opts, group=group)
    audit_map = tmp_path / 'audit_map.conf'
    audit_map.write_text('[path_keywords]\nreservations = instance_uuid\n')
    _impl_test.reset()
    with start({
            'audit': {'enabled': True, 'audit_map_file': str(audit_map)},
            'audit_middleware_notifications': {
                'driver': 'test', 'transport_url': 'fake://'}}) as service:
        yield service


def test_audit(ironic, pool, node_class, audited):
    held = audited.create(resource_class=node_class)
    audited.create(422, resource_class=node_class, memory_mb=10 ** 9)
    audited.delete(held['instance_uuid'])
    found = [message['payload'] for _, message, _, _
             in _impl_test.NOTIFICATIONS
             if message['event_type'] == 'audit.http.response']
    assert [(each['action'], each['outcome'], each['reason']['reasonCode'],
             each['requestPath']) for each in found] == [
        ('create', 'success', '201', OURS), ('create', 'failure', '422', OURS),
        ('delete', 'success', '204', f'{OURS}/{held["instance_uuid"]}')]


@pytest.mark.parametrize('body', [b'[' * 60000, b'{}' + b' ' * 70000])
def test_audit_parses_no_body(ironic, audited, body):
    """It would take the action of "…/action" from there."""
    response = audited.http.post(
        f'{OURS}/action', data=body,
        headers={'Content-Type': 'application/json'})
    answers.check(response, (400, 413))
