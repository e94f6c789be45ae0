# SPDX-License-Identifier: Apache-2.0
"""Notices and cordons: /v1/reservations/notices."""

import concurrent.futures
import datetime
import threading
import uuid

import pytest

from ironic_reservations.reservations import targets
from tests.common import application
from tests.common import contract
from tests.common import service

OURS = '/v1/reservations'
NOTICES = f'{OURS}/notices'
RACK = 'capability:rack'


@pytest.fixture
def nodes(ironic, node_class):
    """Three equal nodes, two of them in rack r1 and one in r2."""
    with ironic.fleet(*(
            {'name': f'{node_class}-{number}', 'resource_class': node_class,
             'properties': {'memory_mb': 1024,
                            'capabilities': f'rack:{rack}'}}
            for number, rack in enumerate(('r1', 'r1', 'r2')))) as nodes:
        yield nodes
    ironic.execute('DELETE FROM reservations_notices')


def post(ironic, status=201, **body):
    response = ironic.http.post(NOTICES, json={'kind': 'maintenance', **body})
    fault = contract.check(response, status)
    return response.json()['notices'] if fault is None else fault


def patch(ironic, uuid, status=200, query='', **values):
    response = ironic.http.patch(f'{NOTICES}/{uuid}{query}',
                                 json=service.make_patch(**values))
    fault = contract.check(response, status)
    return response.json()['notices'] if fault is None else fault


def get(ironic, **query):
    response = ironic.http.get(NOTICES, params=query)
    contract.check(response, 200)
    return response.json()['notices']


def set_time(ironic, column, seconds=0):
    """Let all notices begin or end some seconds from now."""
    ironic.execute(f'UPDATE reservations_notices SET {column} = '
                   + ironic.clock(seconds))


def assert_soon(first, second):
    """Check that a time follows another one within a minute."""
    first, second = map(datetime.datetime.fromisoformat, (first, second))
    assert 0 <= (second - first).total_seconds() < 60


def count(ironic, node_class):
    row, = ironic.capacity(resource_class=node_class, by='resource_class')
    return row


def test_notice(ironic, nodes):
    notice, = post(ironic, nodes=[nodes[0].name], ticket='RMA-1',
                   category='gpu', description='Replace a fan')
    assert notice == {
        'uuid': notice['uuid'], 'kind': 'maintenance', 'cordon': True,
        'state': 'open', 'node_uuid': nodes[0].id, 'node_name': nodes[0].name,
        'overdue': False, 'starts_at': notice['starts_at'], 'due_at': None,
        'latest_start': None, 'scheduled_at': None, 'ends_at': None,
        'category': 'gpu', 'description': 'Replace a fan', 'ticket': 'RMA-1',
        'action': None, 'project_id': None, 'created_by': None,
        'created_at': notice['created_at'], 'updated_at': None}
    # The clock may go on between them.
    assert_soon(notice['starts_at'], notice['created_at'])
    assert get(ironic, uuid=notice['uuid'].upper()) == [notice]


@pytest.mark.parametrize('kind, cordon', [
    ('maintenance', True), ('retirement', True), ('fault', False)])
def test_default_of_cordon(ironic, nodes, kind, cordon):
    notice, = post(ironic, kind=kind, nodes=[nodes[0].id.upper()])
    assert notice['cordon'] is cordon
    notice, = post(ironic, kind=kind, nodes=[nodes[0].id],
                   cordon=not cordon)
    assert notice['cordon'] is not cordon


@pytest.mark.on('sqlite', 'server')
def test_cordon_keeps_holds_off(ironic, nodes, node_class):
    hold = ironic.create(resource_class=node_class,
                         candidate_nodes=[nodes[2].id])
    cordons = post(ironic, nodes=[node.id for node in nodes])
    response = ironic.http.post(OURS, json={'resource_class': node_class})
    contract.check(response, 422)
    assert response.json()['explanation']['eliminated'][-2:] == [
        {'by': 'reserved', 'nodes': 1}, {'by': 'cordoned', 'nodes': 2}]
    row = count(ironic, node_class)
    assert (row['free'], row['reserved'], row['out_of_service'],
            row['claimable']) == (0, 1, 2, 0)
    # The reservation continues, but cannot be claimed.
    repeat = {'resource_class': node_class, 'expires_in': 60,
              'candidate_nodes': [nodes[2].id]}
    ironic.create(200, instance_uuid=hold['instance_uuid'], **repeat)
    response = ironic.http.post(OURS, json={'claim': hold['instance_uuid']})
    contract.check(response, 422)
    assert response.json()['explanation']['eliminated'] == [
        {'by': 'cordoned', 'nodes': 1}]
    patch(ironic, cordons[0]['uuid'], ends_at='now')
    ironic.create(claim=hold['instance_uuid'])
    for _ in range(2):
        ironic.create(resource_class=node_class)


@pytest.mark.on('sqlite', 'server')
def test_states_follow_the_clock(ironic, nodes, node_class):
    notice, = post(ironic, nodes=[nodes[0].id], ends_at=ironic.from_now(),
                   starts_at=ironic.from_now(1800))
    assert notice['state'] == 'planned'
    assert not get(ironic, state='open', node=nodes[0].id)
    assert get(ironic, state='planned', node=nodes[0].name) == [notice]
    row = count(ironic, node_class)
    assert row['free'] == 3
    set_time(ironic, 'starts_at')
    assert get(ironic, node=nodes[0].id)[0]['state'] == 'open'
    row = count(ironic, node_class)
    assert (row['free'], row['out_of_service']) == (2, 1)
    set_time(ironic, 'ends_at')
    assert get(ironic, state='closed', kind='maintenance',
               node=nodes[0].id)[0]['state'] == 'closed'
    row = count(ironic, node_class)
    assert row['free'] == 3


def test_domain(ironic, nodes):
    notices = post(ironic, by={RACK: 'r1'})
    assert {notice['node_uuid'] for notice in notices} == {
        nodes[0].id, nodes[1].id}
    assert {notice['uuid'] for notice in notices} == {notices[0]['uuid']}
    text = post(ironic, 400, by={RACK: 'r9'})
    assert text.startswith('by: ') and '"r9"' in text


@pytest.mark.parametrize('properties, by', [
    ({'capabilities': 'gpu,uefi'}, {'capability:gpu': 'true'}),
    ({'cpu_arch': 'amd64'}, {'capability:cpu_arch': 'x86_64'})],
    ids=['no-value', 'architecture'])
def test_value_that_the_node_does_not_state(ironic, nodes, node_class,
                                            properties, by):
    with ironic.fleet({'resource_class': node_class,
                       'properties': properties}) as [node]:
        assert [notice['node_uuid'] for notice in post(ironic, by=by)] == [
            node.id]


@pytest.mark.on('sqlite', 'server')
def test_repeat(ironic, nodes):
    body = {'uuid': str(uuid.uuid4()), 'ends_at': ironic.from_now(60),
            'nodes': [nodes[1].id, nodes[0].name, nodes[0].id]}
    notices = post(ironic, **body)
    assert [notice['node_uuid'] for notice in notices] == [
        nodes[0].id, nodes[1].id]
    set_time(ironic, 'ends_at', -5)
    repeat = post(ironic, 200, **{**body, 'uuid': body['uuid'].upper()},
                  cordon=True)
    assert [notice['created_at'] for notice in repeat] == [
        notice['created_at'] for notice in notices]
    assert {notice['state'] for notice in repeat} == {'closed'}
    for change in ({'nodes': [nodes[2].id]}, {'cordon': False},
                   {'ticket': 'T'}, {'ends_at': None}):
        assert body['uuid'] in post(ironic, 409, **{**body, **change})
    assert len(get(ironic)) == 2


@pytest.mark.on('server')
def test_one_request_with_a_uuid_at_the_same_time(ironic, nodes):
    """All read that there is none, and one of them may create notices."""
    barrier = threading.Barrier(len(nodes), timeout=60)

    def create(node, name):
        barrier.wait()
        return ironic.http.post(NOTICES, json={
            'uuid': name, 'kind': 'fault', 'nodes': [node.id]}).status_code

    with concurrent.futures.ThreadPoolExecutor(len(nodes)) as executor:
        for _ in range(10):
            statuses = list(executor.map(
                create, nodes, [str(uuid.uuid4())] * len(nodes)))
            assert sorted(statuses) == [201, 409, 409]


def test_all_nodes_or_none(ironic, nodes):
    text = post(ironic, 400, nodes=[nodes[0].id, 'nonsense'])
    assert text.startswith('nodes.1: ') and 'nonsense' in text
    assert not get(ironic)


def test_times_in_the_wrong_order(ironic, nodes):
    for times in ({'ends_at': ironic.from_now(-1)}, {'ends_at': {'in': 0}},
                  {'starts_at': {'in': 60}, 'ends_at': {'in': 60}},
                  {'starts_at': ironic.from_now(60),
                   'ends_at': ironic.from_now(60)}):
        assert post(ironic, 400, nodes=[nodes[0].id], **times).startswith(
            'ends_at: must be later than starts_at and than now')


@pytest.mark.parametrize('text, expected', [
    ('2030-W52-1T00:00Z', '2030-12-23T00:00:00+00:00'),
    ('2030-12-31t18:00:00z', '2030-12-31T18:00:00+00:00'),
    ('2030-12-31 18:00:00.9-01:00', '2030-12-31T19:00:00+00:00'),
    ('20301231T180000,5+0130', '2030-12-31T16:30:00+00:00'),
    ('9999-12-31T23:59:59-00:00', '9999-12-31T23:59:59+00:00')])
def test_time(ironic, nodes, text, expected):
    """Bodies and queries accept the same texts."""
    notice, = post(ironic, nodes=[nodes[0].id], starts_at=text)
    assert notice['starts_at'] == expected
    ironic.list(expires_before=text)
    contract.check(ironic.http.get(f'{OURS}/history', params={
        'ended_after': text}), 200)


@pytest.mark.parametrize('text, reason', [
    ('2027-02-31T18:00Z', 'there is no such day'),
    ('2027-W54-1T18:00Z', 'there is no such day'),
    ('2030-12-31T23:59:60Z', 'is out of range'),
    ('2030-12-31T24:00:00Z', 'is out of range'),
    ('9999-12-31T23:59:59-12:00', 'is out of range'),
    ('2030-12-31T18:00+24:00', 'is out of range'),
    *((text, 'must be {}a time with a time zone, such as '
             '2030-12-31T18:00:00Z') for text in (
        '2030-12-31', '2030-12-31T18:00', '2030-12-31x18:00Z',
        '2030-1231T18:00Z', '2030-12-31T18:0000Z', ' 2030-12-31T18:00Z',
        '٢٠٣٠-12-31T18:00Z'))])
def test_text_that_is_no_time(ironic, nodes, text, reason):
    assert post(ironic, 400, nodes=[nodes[0].id], starts_at=text).startswith(
        f'starts_at: {reason.format("")}; got "')
    if text.isprintable():
        fault = contract.check(ironic.http.get(OURS, params={
            'expires_before': text}), 400)
        reason = reason.format('a number of seconds, at most 999999999, or ')
        assert fault == f'expires_before: {reason}; got "{text}"'


@pytest.mark.on('sqlite', 'server')
def test_times_from_now(ironic, nodes):
    body = {'uuid': str(uuid.uuid4()), 'by': {RACK: 'r1'},
            'starts_at': {'in': 600}, 'ends_at': {'in': 7200}}
    [(starts_at, ends_at)] = list_times(post(ironic, **body))
    assert ends_at - starts_at == datetime.timedelta(0, 6600)
    seconds = (starts_at - ironic.now()).total_seconds()
    assert 540 < seconds <= 600
    # The times of a repeat stay.
    set_time(ironic, 'starts_at', 60)
    [(repeat, _)] = list_times(post(ironic, 200, **body))
    assert repeat < starts_at
    post(ironic, 409, **{**body, 'starts_at': {'in': 601}})
    [(again, same)] = list_times(
        patch(ironic, body['uuid'], starts_at={'in': 600}))
    assert again >= starts_at and same == ends_at
    notices = patch(ironic, body['uuid'], starts_at='now')
    assert {notice['state'] for notice in notices} == {'open'}
    notices = patch(ironic, body['uuid'], ends_at={'in': 0})
    assert {notice['state'] for notice in notices} == {'closed'}


def list_times(notices):
    """Return the different times of notices."""
    return {tuple(datetime.datetime.fromisoformat(notice[name])
                  for name in ('starts_at', 'ends_at')) for notice in notices}


@pytest.mark.on('sqlite', 'server')
def test_update(ironic, nodes):
    notices = post(ironic, by={RACK: 'r1'}, cordon=False)
    name = notices[0]['uuid']
    notices = patch(ironic, name, ticket='T', action='Replaced', cordon=True)
    assert [(notice['ticket'], notice['action'], notice['cordon'])
            for notice in notices] == [('T', 'Replaced', True)] * 2
    one, = patch(ironic, name, query=f'?node={nodes[0].name}', ends_at='now')
    assert (one['node_uuid'], one['state']) == (nodes[0].id, 'closed')
    # All change, or none.
    assert nodes[0].id in patch(ironic, name, 409, cordon=False, ticket='U')
    assert {notice['ticket'] for notice in get(ironic, uuid=name)} == {'T'}
    # The texts of a closed notice change.
    patch(ironic, name, ticket=None)
    assert get(ironic, ticket='T') == []
    patch(ironic, str(uuid.uuid4()), 404, ticket='T')
    patch(ironic, name, 404, query='?node=nonsense', ticket='T')
    for values in ({'cordon': None}, {'starts_at': None},
                   {'ends_at': ironic.from_now(-60)}, {'kind': 'fault'}):
        patch(ironic, name, 400, query=f'?node={nodes[1].id}', **values)


@pytest.mark.on('sqlite', 'server')
def test_number_of_notices(ironic, nodes):
    """Closed ones and failed builds do not count."""
    first, second, _ = nodes
    fault = {'kind': 'fault', 'nodes': [first.id, second.id]}
    with application.set_options({'reservations': {'max_notices': 2}}):
        fail_build(ironic, first)
        for number in range(3):
            one = post(ironic, **{**fault, 'nodes': [first.id]})[0]
            if number:
                patch(ironic, one['uuid'], ends_at='now')
        later = {**fault, 'uuid': str(uuid.uuid4()),
                 'starts_at': ironic.from_now(60)}
        post(ironic, **later)
        fault['nodes'] = [node.id for node in nodes]
        text = post(ironic, 409, **fault)
        assert 'max_notices' in text and text.endswith(f': {first.name}')
        # A repeat is no other notice, and a failed build is not refused.
        post(ironic, 200, **later)
        fail_build(ironic, second)
        # Reports do not prevent an operator's cordon.
        fault['cordon'] = True
        for _ in range(2):
            post(ironic, **fault)
        assert post(ironic, 409, **fault).endswith(f': {first.name}')


def test_pages(ironic, nodes):
    notices = [post(ironic, nodes=[nodes[0].id])[0] for _ in range(5)]
    pages = list(ironic.pages(NOTICES, 'notices', limit=2))
    assert [len(page) for page in pages] == [2, 2, 1]
    assert sum(pages, []) == notices
    assert get(ironic, marker=notices[2]['uuid'].upper()) == notices[3:]


@pytest.mark.on('sqlite', 'server')
def test_notices_outlive_their_node(ironic, node_class):
    with ironic.fleet({'name': 'gone-1', 'resource_class': node_class}):
        notice, = post(ironic, nodes=['gone-1'])
        ironic.execute("DELETE FROM nodes WHERE name = 'gone-1'")
        notice['state'] = 'closed'
        for node in 'gone-1', notice['node_uuid'], notice['node_uuid'].upper():
            assert get(ironic, node=node) == [notice]
        # SQLite gives the id of the deleted node to the new one.
        with ironic.fleet({'name': 'new', 'resource_class': node_class}):
            assert get(ironic, node='new') == []
            assert get(ironic, node='gone-1') == [notice]
            ironic.create(resource_class=node_class)
            patch(ironic, notice['uuid'], action='Scrapped')


@pytest.mark.on('sqlite', 'server')
def test_node_that_was_enrolled_again(ironic, nodes, node_class):
    """It is another node, although it has its UUID and name."""
    first, second, _ = nodes
    body = {'uuid': str(uuid.uuid4()), 'nodes': [first.id, second.id]}
    post(ironic, **body)
    ironic.execute('UPDATE nodes SET id = id + 1000 WHERE uuid = :u',
                   u=first.id)
    assert [row['node_uuid'] for row in get(ironic, state='open')] == [
        second.id]
    [row] = get(ironic, state='closed')
    assert (row['node_uuid'], row['ends_at']) == (first.id, None)
    assert post(ironic, 409, **body).endswith(f': {first.name}')
    patch(ironic, row['uuid'], 409, query=f'?node={first.id}', cordon=False)
    ironic.create(candidate_nodes=[first.id])
    notices = patch(ironic, row['uuid'], ends_at='now')
    assert [notice['node_uuid'] for notice in notices] == [second.id]
    assert len(patch(ironic, row['uuid'], action='Enrolled again')) == 2
    # Also if the notices had been closed.
    set_time(ironic, 'ends_at')
    assert post(ironic, 409, **body).endswith(f': {first.name}')


# Failed builds

def fail_build(ironic, node, status=201, project_id='p1', **body):
    """Reserve a node unless it is, and record a failed build on it."""
    if not ironic.list(node=node.id):
        ironic.create(candidate_nodes=[node.id], project_id=project_id)
    return post(ironic, status, kind='fault', category='build',
                nodes=[node.id], **body)


def seconds_left(ironic, notice):
    ends_at = datetime.datetime.fromisoformat(notice['ends_at'])
    return (ends_at - ironic.now()).total_seconds()


@pytest.mark.on('sqlite', 'server')
def test_failed_build(ironic, nodes, start):
    notice, = fail_build(ironic, nodes[0], description='No port')
    assert 3500 < seconds_left(ironic, notice) <= 3600
    set_time(ironic, 'ends_at', 5)
    again, = fail_build(ironic, nodes[0], 200, description='No port again')
    assert again['uuid'] == notice['uuid']
    assert again['description'] == 'No port again'
    assert 3500 < seconds_left(ironic, again) <= 3600
    with start({'reservations': {'avoid_failed': 0}}) as other:
        assert fail_build(other, nodes[1], 200) == []
    assert len(get(ironic)) == 1


@pytest.mark.parametrize('is_expired', [False, True])
def test_failed_build_without_a_reservation(ironic, nodes, is_expired):
    if is_expired:
        hold = ironic.create(candidate_nodes=[nodes[0].id], expires_in=60)
        ironic.expire(hold['instance_uuid'])
    assert post(ironic, 200, kind='fault', category='build',
                nodes=[nodes[0].id]) == []
    assert get(ironic) == []


def test_failed_build_after_an_operator_changed_its_notice(ironic, nodes):
    """Only a cordon, or no end, keeps it from being prolonged."""
    notice, = fail_build(ironic, nodes[0])
    patch(ironic, notice['uuid'], ends_at=ironic.from_now(86400))
    again, = fail_build(ironic, nodes[0], 200, description='again')
    assert (again['description'], seconds_left(ironic, again) > 80000) == (
        'again', True)
    for changes in {'ends_at': None}, {'ends_at': ironic.from_now(60),
                                       'cordon': True}:
        notices = patch(ironic, notice['uuid'], **changes)
        assert fail_build(ironic, nodes[0], 200, description='no') == notices
        assert get(ironic) == notices
    patch(ironic, notice['uuid'], ends_at='now')
    fail_build(ironic, nodes[0])


@pytest.mark.on('sqlite', 'server')
def test_failed_builds_of_a_project(ironic, nodes, start, caplog):
    with start({'reservations': {'avoid_failed_nodes': 1}}) as other:
        first, = fail_build(other, nodes[0])
        assert fail_build(other, nodes[1], 200) == []
        warning, = [record.getMessage() for record in caplog.records
                    if 'Did not mark' in record.message]
        reservation, = ironic.list(node=nodes[1].id)
        for name in 'p1', reservation['instance_uuid'], nodes[1].id:
            assert name in warning
        # A node that is marked already, and another project.
        fail_build(other, nodes[0], 200)
        fail_build(other, nodes[2], project_id='p2')
        patch(ironic, first['uuid'], ends_at='now')
        second, = fail_build(other, nodes[1])
        assert fail_build(other, nodes[0], 200) == []
        ironic.execute('DELETE FROM nodes WHERE uuid = :u', u=nodes[1].id)
        fail_build(other, nodes[0])
    assert [notice['state'] for notice in get(ironic, node=nodes[0].id)] == [
        'closed', 'open']


def test_failed_builds_without_a_limit(ironic, nodes, start):
    with start({'reservations': {'avoid_failed_nodes': 0}}) as other:
        for node in nodes:
            fail_build(other, node)


@pytest.mark.on('sqlite', 'server')
def test_concurrent_failed_builds(ironic, nodes, start):
    for node in nodes:
        ironic.create(candidate_nodes=[node.id], project_id='p1')
    with start({'reservations': {'avoid_failed_nodes': 1}}) as other, \
            concurrent.futures.ThreadPoolExecutor() as pool:
        marks = list(pool.map(lambda node: fail_build(
            other, node, (200, 201)), nodes))
    assert sum(map(len, marks)) == 1


def test_failed_builds_do_not_count_for_healthy(ironic, nodes, node_class):
    fail_build(ironic, nodes[0])
    row, = (row for row in ironic.capacity(resource_class=node_class,
                                           by='project_id')
            if row['project_id'] == 'p1')
    assert (row['total'], row['healthy']) == (1, 1)


@pytest.mark.parametrize('limit, pages', [(1, 2), (2, 3)])
def test_domain_is_read_page_by_page(ironic, nodes, monkeypatch, limit,
                                     pages):
    """Not further than to the first node that is too many."""
    monkeypatch.setattr(targets, 'NODES_AT_ONCE', 1)
    with application.set_options({'reservations': {'max_members': limit}}), \
            application.record_statements() as statements:
        result = post(ironic, 400 if limit == 1 else 201, by={RACK: 'r1'})
    assert [' LIMIT ' in text and 'conductor_group' in text
            for text in statements].count(True) == pages
    if limit == 1:
        assert result == ('by: must be at most 1 nodes, see [reservations] '
                          'max_members')
    else:
        assert [notice['node_name'] for notice in result] == [
            node.name for node in nodes[:2]]


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('by', [
    'shard', 'conductor_group', RACK, 'trait:CUSTOM_'])
def test_domain_without_nodes(ironic, nodes, by):
    """Old databases refuse to compare this character."""
    assert 'must name a' in post(ironic, 400, by={by: '\U0001f600'})
