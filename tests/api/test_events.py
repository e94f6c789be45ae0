# SPDX-License-Identifier: Apache-2.0
"""Access lines, events in the log and on the message bus, and the audit."""

import datetime
import email
import email.policy
import json
import operator
import pathlib
import queue
import random
import re
import runpy
import socketserver
import threading
import types
import urllib.parse
import uuid

from keystonemiddleware import audit
import oslo_messaging
from oslo_messaging.notify import _impl_test
import pytest

from ironic_reservations import conf
from ironic_reservations import notifications
from tests.common import contract

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
        messages = [record.getMessage() for record in caplog.records
                    if record.name == logger]
        caplog.clear()
        return messages
    yield lines


# Access lines

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
def test_access_line(ironic, pool, log, method, path, body,
                     status):
    response = ironic.http.request(method, path, json=body)
    contract.check(response, status)
    if status == 405:
        assert response.headers['Allow'] == 'GET, HEAD, POST'
    line, = log(ACCESS)
    match = TEMPLATE.fullmatch(line)
    assert (match['method'], match['path'], match['status']) == (
        method, path.replace('%0a', '%0A'), str(status))


def test_cause_of_a_refusal(ironic, pool, node_class, log):
    ironic.create(422, resource_class=node_class, memory_mb=10 ** 9)
    line, = log('ironic_reservations.api.errors')
    assert 'memory_mb>=1000000000 eliminates 4' in line


# No text of a client starts a new line or controls the terminal

TEXTS = ['a\nINFO forged', 'a\rb', 'a\x1b[31m', 'a\x7f', 'a\u2028b', 'a\x85']


@pytest.mark.parametrize('text', TEXTS, ids=ascii)
def test_control_characters(ironic, pool, log, text):
    for body in ({'host': text}, {'project_id': text}, {'name': text},
                 {'resource_class': text}, {'shard': text},
                 {'conductor_group': text}, {'candidate_nodes': [text]},
                 {'extra_specs': {text: 'x'}}, {text: 'x'},
                 {'image': {'properties': {text: 'x'}}}):
        ironic.create(400, **{'memory_mb': 1, **body})
    for query in ({'host': text}, {'node': text}, {'fields': text},
                  {text: 'x'}):
        contract.check(ironic.http.get(OURS, params=query), 400)
    # A value may contain them, and is quoted in the log.
    fault = ironic.create(422, extra_specs={f'capabilities:{uuid.uuid4()}':
                                            text})
    assert text not in fault and text[0] in fault
    for logger in ACCESS, 'ironic_reservations.api.errors':
        lines = log(logger)
        assert not any(re.search('[\x00-\x1f\x7f-\x9f\u2028]', line)
                       for line in lines), lines


def test_controls_of_the_direction(ironic, node_class, pool, caplog):
    """Names may contain them."""
    name = f'{node_class} \u061c\u200f\u202e\u2066'
    caplog.set_level('DEBUG', 'ironic_reservations')
    ironic.create(resource_class=node_class, host=name, project_id=name)
    path, holder = f'{OURS}/hosts/{urllib.parse.quote(name)}', str(
        uuid.uuid4())
    ironic.http.put(path, json={'holder': holder, 'ttl': 600})
    contract.check(ironic.http.delete(path), 409)
    ironic.http.delete(path, params={'holder': holder})
    contract.check(ironic.http.delete(path), 404)
    ironic.create(404, resource_class=node_class, project_id=name,
                  claim=holder)
    lines = [record.getMessage() for record in caplog.records
             if record.name.startswith('ironic_reservations')]
    assert sum(r'\u061c\u200f\u202e\u2066' in line for line in lines) >= 4
    assert not [line for line in lines
                if re.search('[\u061c\u200f\u202e\u2066]', line)]


def test_address_of_the_client(ironic, log):
    ironic.http.get(OURS, headers={
        'X-Forwarded-For': '10.9.9.9 - POST /forged - 201 (1.00ms)',
        'X-Real-IP': '10.9.9.9'})
    line, = log(ACCESS)
    assert line.startswith('127.0.0.1 - GET')


# Events

@pytest.fixture
def start_notifying(start, monkeypatch):
    """Starts the application with notifications: a context manager."""
    # This registers the options.
    oslo_messaging.get_notification_transport(conf.CONF, 'fake://')
    _impl_test.reset()
    # A new one makes its notifier from these options.
    monkeypatch.setattr(notifications, 'OUTBOX', notifications.Outbox())

    def start_notifying(level='info', driver='test', url='fake://'):
        return start({
            'DEFAULT': {'notification_level': level},
            'oslo_messaging_notifications': {
                'driver': [driver], 'transport_url': url}})
    return start_notifying


@pytest.fixture
def bus(start_notifying):
    """The application, whose notifications are kept in a list."""
    with start_notifying() as service:
        yield service


def read_events():
    notifications.OUTBOX.wait(10)
    events = [(message['event_type'], message['payload'])
              for _, message, _, _ in _impl_test.NOTIFICATIONS]
    _impl_test.reset()
    return events


def read_log(lines):
    """Derive the instance and the host of each node from the log."""
    holds = {}
    for line in lines:
        node, = re.findall(r'node ([0-9a-f-]{36})', line, re.I)
        instance, = re.findall(r'instance ([0-9a-f-]{36})', line, re.I)
        host, = re.findall(r'\(host (\S+),', line)
        if 'is held for' in line or 'renewed' in line or 'moves' in line:
            holds[node] = instance, host
        else:
            assert holds.pop(node)[0] == instance
    return holds


def read_messages(messages):
    """Derive the same from the notifications."""
    holds = {}
    for event_type, payload in messages:
        assert payload['ironic_object.name'] == 'ReservationPayload'
        data = payload['ironic_object.data']
        assert 'request_spec' not in data and data['occurred_at']
        json.dumps(payload)
        match event_type.split('.'):
            case ['baremetal', 'reservation', 'create' | 'update', 'end']:
                holds[data['node_uuid']] = (data['instance_uuid'],
                                            str(data['host']))
            case ['baremetal', 'reservation', 'delete' | 'expire', 'end']:
                assert holds.pop(data['node_uuid'])[0] == data['instance_uuid']
            case _:
                raise AssertionError(event_type)
    return holds


def test_trail_of_fifty_events(bus, ironic, pool, node_class, log):
    """The log and the bus each suffice to know who holds which node."""
    lines, messages = [], []

    def hold():
        bus.create(resource_class=node_class, expires_in=3600,
                   host=random.choice([None, 'compute-1']),
                   instance_uuid=str(uuid.uuid4()))

    def renew(row):
        bus.create(200, **row['request_spec'], expires_in=60,
                   instance_uuid=row['instance_uuid'])

    def move(row):
        bus.create(200, **row['request_spec'], host='compute-2',
                   expires_in=60, instance_uuid=row['instance_uuid'])

    def release(row):
        bus.delete(row['instance_uuid'])

    def expire(row):
        bus.expire(row['instance_uuid'])
        bus.delete(row['instance_uuid'], 404)

    def lose(row):
        bus.set_node(row['node_uuid'], instance_uuid=None)
        bus.show(row['instance_uuid'], 404)

    counts = {}
    while len(lines) < 50 or len(counts) < 6:
        rows = bus.list(resource_class=node_class, fields=(
            'instance_uuid,node_uuid,request_spec'))
        act = hold if not rows else random.choice(
            [hold, renew, move, release, expire, lose])
        if act is hold and len(rows) == len(pool):
            continue
        if act is hold:
            hold()
        else:
            act(random.choice(rows))
        counts[act.__name__] = counts.get(act.__name__, 0) + 1
        lines += log(EVENTS)
        messages += read_events()
        truth = {row['node_uuid']: (row['instance_uuid'],
                                    str(row['host']))
                 for row in bus.list(resource_class=node_class)}
        assert read_log(lines) == truth
        assert read_messages(messages) == truth
    assert len(lines) == len(messages) == sum(counts.values())


def test_event_of_a_deployed_node(bus, pool, node_class, log):
    """The event shows no expiry, as responses do."""
    hold = bus.create(resource_class=node_class, host='compute-1',
                      expires_in=600)
    bus.set_node(hold['node_uuid'], provision_state='active')
    log(EVENTS), read_events()
    contract.check(bus.http.patch(f'{OURS}/{hold["instance_uuid"]}', json=[
        {'op': 'replace', 'path': '/host', 'value': 'compute-2'}]), 200)
    line, = log(EVENTS)
    assert 'expires at None' in line
    (_, payload), = read_events()
    assert payload['ironic_object.data']['expires_at'] is None


#: The guide finds with it what is missing in a backup.
LOST, = re.findall("grep -E '(.*)' /var/log/ironic", (
    pathlib.Path(__file__).parents[2] / 'doc/source/how-to/restore.rst'
).read_text())


def test_events_of_notices(bus, pool, node_class, log):
    """They name the project and the instance that have the node."""
    hold = bus.create(resource_class=node_class, project_id='p')
    free = next(node for node in pool if node.id != hold['node_uuid'])
    log(EVENTS), read_events()
    response = bus.http.post(f'{OURS}/notices', json={
        'kind': 'fault', 'nodes': [hold['node_uuid'], free.id],
        'description': 'A fan', 'ticket': 'T'})
    contract.check(response, 201)
    for notice, line, (event_type, payload) in zip(
            response.json()['notices'], log(EVENTS), read_events(),
            strict=True):
        assert re.search(LOST, line)
        has_node = notice['node_uuid'] == hold['node_uuid']
        holder = {'is_shown_to_project': has_node, **{
            name: hold[name] if has_node else None
            for name in ('project_id', 'instance_uuid')}}
        assert event_type == 'baremetal.reservation.notice.create.end'
        assert payload['ironic_object.name'] == 'ReservationNoticePayload'
        data = payload['ironic_object.data']
        assert data.pop('occurred_at')
        assert data == {**notice, **holder}
        assert line.startswith(f'Notice {notice["uuid"]} of node '
                               f'{notice["node_uuid"]} is created (fault')
        assert f'instance {holder["instance_uuid"]}' in line
    contract.check(bus.http.patch(
        f'{OURS}/notices/{notice["uuid"]}?node={free.id}', json=[
            {'op': 'add', 'path': '/ends_at', 'value': 'now'}]), 200)
    line, = log(EVENTS)
    assert free.id in line and 'is changed (fault, cordon False' in line
    (event_type, payload), = read_events()
    assert event_type == 'baremetal.reservation.notice.update.end'
    assert payload['ironic_object.data']['state'] == 'closed'
    # Nothing has changed.
    contract.check(bus.http.post(f'{OURS}/notices', json={
        'kind': 'fault', 'nodes': ['nonsense']}), 400)
    assert log(EVENTS) == read_events() == []


class Smtp(socketserver.StreamRequestHandler):
    """A mail server that keeps the mails."""

    def handle(self):
        self.wfile.write(b'220 ready\r\n')
        for line in map(bytes.lower, self.rfile):
            reply = b'250 ok\r\n'
            if line.startswith(b'data'):
                self.wfile.write(b'354 go on\r\n')
                self.server.mails.put(email.message_from_bytes(b''.join(
                    iter(self.rfile.readline, b'.\r\n')),
                    policy=email.policy.default))
            elif line.startswith(b'rcpt to:<refused'):
                reply = b'550 no such user\r\n'
            elif line.startswith(b'quit'):
                self.wfile.write(b'221 bye\r\n')
                return
            self.wfile.write(reply)


@pytest.fixture
def mails():
    """Run a mail server, and yield its address and the queue of its mails."""
    with socketserver.ThreadingTCPServer(('127.0.0.1', 0), Smtp) as server:
        server.mails = queue.Queue()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def make_mailer(mails, monkeypatch, tmp_path):
    """Return a function that makes the example's mailer from find_address.

    It records its mails in the file "deliveries".
    """
    example = types.SimpleNamespace(**runpy.run_path(
        pathlib.Path(__file__).parents[2]
        / 'doc/source/examples/notices_mail.py'))
    monkeypatch.setattr(example.Mailer, 'pause', 0)
    return lambda find_address, **options: example.Mailer(
        types.SimpleNamespace(**{
            'sender': 'ironic@example.com', 'host': '127.0.0.1',
            'port': mails.server_address[1],
            'deliveries': tmp_path / 'deliveries', **options}), find_address)


def test_mails(start_notifying, pool, node_class, mails, make_mailer,
               tmp_path):
    """The example sends them to projects that may see the notices."""
    start = datetime.datetime.now(datetime.UTC)
    attempts = iter([ConnectionError('Keystone is down')])

    def find_address(project_id):
        for error in attempts:
            raise error
        return {'a': 'a@example.com', 'c': 'refused@example.com'}.get(
            project_id)

    mailer = make_mailer(find_address)
    with start_notifying(driver='messagingv2', url='fake://') as service:
        # As in the example, and as notifications do when they are first sent.
        oslo_messaging.set_transport_defaults('ironic')
        listener = oslo_messaging.get_notification_listener(
            oslo_messaging.get_notification_transport(conf.CONF),
            [oslo_messaging.Target(topic=topic) for topic
             in conf.CONF.versioned_notifications_topics], [mailer],
            executor='threading', allow_requeue=True)
        listener.start()
        holds = [service.create(resource_class=node_class, project_id=name)
                 for name in 'abc']

        def create(**body):
            response = service.http.post(f'{OURS}/notices', json=body)
            contract.check(response, 201)
            return response.json()['notices'][0]['uuid']

        nodes = [node.id for node in pool]
        notice = create(kind='maintenance', nodes=nodes, category='disk',
                        starts_at='2099-01-01T00:00:00Z')
        report = create(kind='fault', nodes=[holds[0]['node_uuid']])
        # Another project had the node, and changes its report.
        service.execute('UPDATE reservations_notices SET project_id = :p '
                        'WHERE uuid = :u', p='b', u=report)
        for uuid_, key in (report, 'description'), (notice, 'ticket'):
            contract.check(service.http.patch(
                f'{OURS}/notices/{uuid_}?node={holds[0]["node_uuid"]}',
                json=[{'op': 'add', 'path': f'/{key}', 'value': 'X'}]), 200)
        messages = [mails.mails.get(timeout=10) for _ in range(3)]
        listener.stop()
        listener.wait()
    assert mails.mails.empty()
    name = next(node.name or node.id for node in pool
                if node.id == holds[0]['node_uuid'])
    assert {mail['To'] for mail in messages} == {'a@example.com'}
    # The first message is sent again, perhaps after the others.
    assert sorted((mail['Subject'], 'ticket: X' in mail.get_content())
                  for mail in messages) == [
        (f'{name}: fault is open', False),
        (f'{name}: maintenance is planned', False),
        (f'{name}: maintenance is planned', True)]
    maintenance = next(mail for mail in messages
                       if 'maintenance' in mail['Subject'])
    assert {'category: disk', f'instance_uuid: {holds[0]["instance_uuid"]}'
            } <= {*maintenance.get_content().splitlines()}
    # Only what the server has accepted is recorded.
    deliveries = [json.loads(line) for line in
                  (tmp_path / 'deliveries').read_text().splitlines()]
    for delivery in deliveries:
        assert start < datetime.datetime.fromisoformat(
            delivery.pop('delivered_at')) < datetime.datetime.now(datetime.UTC)
    common = {'address': 'a@example.com', 'project_id': 'a',
              'node_uuid': holds[0]['node_uuid']}
    assert sorted(deliveries, key=operator.itemgetter('kind')) == [
        {**common, 'uuid': report, 'kind': 'fault', 'state': 'open'},
        *[{**common, 'uuid': notice, 'kind': 'maintenance',
           'state': 'planned'}] * 2]


NOTICE = {
    'uuid': str(uuid.uuid4()), 'node_uuid': str(uuid.uuid4()),
    'node_name': 'gpu-1', 'kind': 'maintenance', 'state': 'planned',
    'starts_at': '2099-01-01T00:00:00Z', 'due_at': None,
    'latest_start': '2099-01-15T00:00:00Z', 'ends_at': None, 'category': None,
    'description': 'New firmware', 'ticket': None, 'action': None,
    'project_id': 'a', 'instance_uuid': None, 'is_shown_to_project': True}


@pytest.mark.parametrize(('change', 'is_offered'), [
    ({}, True), ({'latest_start': None}, False), ({'state': 'open'}, False)])
def test_mail_offers_another_time(mails, make_mailer, change, is_offered):
    mailer = make_mailer(lambda project_id: 'a@example.com')
    assert mailer.info(None, None, None, {
        'ironic_object.data': NOTICE | change}, None) is None
    content = mails.mails.get(timeout=10).get_content().splitlines()
    assert 'description: New firmware' in content
    assert (content[-2:] == [
        f'    openstack baremetal reservation notice schedule '
        f'{NOTICE["uuid"]} \\',
        f'        --node {NOTICE["node_uuid"]} --at TIME']) == is_offered
    assert ('latest_start: 2099-01-15T00:00:00Z' in content) == (
        'latest_start' not in change)


def test_mail_that_is_not_recorded(mails, make_mailer, caplog, tmp_path):
    """It is not sent again, unlike one that the server has not accepted."""
    mailer = make_mailer(lambda project_id: 'a@example.com',
                         deliveries=tmp_path / 'no-such-folder' / 'file')
    assert mailer.info(None, None, None, {
        'ironic_object.data': NOTICE}, None) is None
    assert mails.mails.get(timeout=10)
    assert 'is not recorded: [Errno 2]' in caplog.text


def test_events_of_pools(bus, pool, node_class, log):
    log(EVENTS), read_events()
    pools = f'{OURS}/pools'
    response = bus.http.post(pools, json={
        'project_id': 'p', 'members': 2, 'description': 'Q1',
        'request': {'resource_class': node_class}})
    contract.check(response, 201)
    new_pool = response.json()
    uuids = [node['uuid'] for node in new_pool['nodes']]
    end = f'pool {new_pool["uuid"]} (project p, expires at None)'
    assert log(EVENTS) == [f'Node {name} joins {end}' for name in uuids]
    (event_type, payload), = read_events()
    assert event_type == 'baremetal.reservation.pool.create.end'
    assert payload['ironic_object.name'] == 'ReservationPoolPayload'
    data = payload['ironic_object.data']
    assert data.pop('occurred_at')
    assert data == {'node_uuids': uuids, **{name: new_pool[name] for name in (
        'uuid', 'project_id', 'policy', 'by', 'description', 'expires_at',
        'created_at', 'updated_at')}}
    path = f'{pools}/{new_pool["uuid"]}'
    for method, sub_path, body, lines, action, nodes in (
            ('PATCH', '', [{'op': 'remove', 'path': '/description'}],
             [f'Pool {new_pool["uuid"]} is changed (project p, expires at '
              f'None)'], 'update', uuids),
            ('DELETE', f'/nodes/{uuids[0]}', None,
             [f'Node {uuids[0]} leaves {end}'], 'update', uuids[1:]),
            ('POST', '/nodes', {'node': uuids[0]},
             [f'Node {uuids[0]} joins {end}'], 'update', uuids),
            ('DELETE', '', None, [f'Node {name} leaves {end}'
                                  for name in uuids], 'delete', uuids)):
        contract.check(bus.http.request(method, path + sub_path, json=body),
                       (200, 204))
        assert log(EVENTS) == lines
        assert all(re.search(LOST, line) for line in lines)
        (event_type, payload), = read_events()
        assert event_type == f'baremetal.reservation.pool.{action}.end'
        assert payload['ironic_object.data']['node_uuids'] == nodes
    contract.check(bus.http.delete(path), 404)
    assert log(EVENTS) == read_events() == []


@pytest.mark.parametrize('level', ['warning', None])
def test_no_notifications(pool, node_class, start_notifying, level):
    with start_notifying(level) as service:
        service.create(resource_class=node_class)
    assert read_events() == []


def test_broken_notifications(pool, node_class, start_notifying,
                              caplog):
    """The request succeeds all the same."""
    with start_notifying(driver='messagingv2', url='nonsense://x') as service:
        for _ in range(2):
            hold = service.create(resource_class=node_class)
            service.delete(hold['instance_uuid'])
        assert read_events() == []
    assert caplog.text.count('Cannot send notification') == 4


# The audit

@pytest.fixture
def audit_service(start, tmp_path):
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


def test_audit(ironic, pool, node_class, audit_service):
    hold = audit_service.create(resource_class=node_class)
    audit_service.create(422, resource_class=node_class, memory_mb=10 ** 9)
    audit_service.delete(hold['instance_uuid'])
    events = [message['payload'] for _, message, _, _
              in _impl_test.NOTIFICATIONS
              if message['event_type'] == 'audit.http.response']
    assert [(event['action'], event['outcome'], event['reason']['reasonCode'],
             event['requestPath']) for event in events] == [
        ('create', 'success', '201', OURS), ('create', 'failure', '422', OURS),
        ('delete', 'success', '204', f'{OURS}/{hold["instance_uuid"]}')]


@pytest.mark.parametrize('body', [b'[' * 60000, b'{}' + b' ' * 70000])
def test_audit_and_a_bad_body(ironic, audit_service, body):
    """The audit reads the body of paths that end with "/action"."""
    response = audit_service.http.post(
        f'{OURS}/action', data=body,
        headers={'Content-Type': 'application/json'})
    contract.check(response, (400, 413))
