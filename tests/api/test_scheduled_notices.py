# SPDX-License-Identifier: Apache-2.0
"""Times of notices, and projects that move them: /v1/reservations/notices."""

import datetime
import uuid

import pytest

from tests.common import application
from tests.common import contract

OURS = '/v1/reservations'
NOTICES = f'{OURS}/notices'
POOLS = f'{OURS}/pools'

NAMES = ('starts_at', 'due_at', 'latest_start', 'ends_at')
HOUR = 3600

TOO_EARLY = 'must be later than starts_at and than now'
TOO_LATE = 'due_at: must not be later than ends_at'
NO_WINDOW = 'latest_start: must be later than now, and not earlier than'


@pytest.fixture
def tenant(cloud):
    """The Cloud without notices and pools; A has a server on free-2."""
    cloud.ironic.execute('DELETE FROM reservations_notices')
    deploy(cloud, 'free-2')
    yield cloud
    reset(cloud)


def reset(cloud):
    for table in 'pools', 'pool_nodes', 'notices':
        cloud.ironic.execute(f'DELETE FROM reservations_{table}')
    cloud.before = None


def hold(cloud, node, project='a'):
    return cloud.hold('system-admin', project_id=cloud.projects[project],
                      candidate_nodes=[node])


def deploy(cloud, node, project='a'):
    """Give a project a server on a node."""
    reservation = hold(cloud, node, project)
    cloud.set_node(node, provision_state='active')
    return reservation


def make_pool(cloud, node, project='a'):
    cloud.call('system-member', 201, 'POST', POOLS, json={
        'project_id': cloud.projects[project], 'members': 1,
        'request': {'memory_mb': 1, 'candidate_nodes': [node]}})


def send(cloud, persona, status, method, path, json):
    """Return the notices in a response, or the text of an error."""
    response = cloud.request(persona, method, path, json=json)
    fault = contract.check(response, status)
    return response.json()['notices'] if fault is None else fault


def post(cloud, *nodes, persona='system-member', status=201, **body):
    return send(cloud, persona, status, 'POST', NOTICES, {
        'kind': 'maintenance', 'nodes': nodes, **body})


def patch(cloud, notice, persona='system-member', status=200, node=None,
          **values):
    query = '' if node is None else f'?node={node}'
    return send(cloud, persona, status, 'PATCH',
                f'{NOTICES}/{notice["uuid"]}{query}', [
                    {'op': 'add', 'path': f'/{name}', 'value': value}
                    if value is not None
                    else {'op': 'remove', 'path': f'/{name}'}
                    for name, value in values.items()])


def schedule(cloud, notice, at, status=200, persona='a-member', node=None):
    return patch(cloud, notice, persona, status, node, starts_at=at)


def plan(cloud, *nodes, **times):
    """Plan work that the projects of nodes may move; return a notice."""
    return post(cloud, *nodes, **{
        'starts_at': {'in': HOUR}, 'due_at': {'in': 2 * HOUR},
        'ends_at': {'in': 3 * HOUR}, 'latest_start': {'in': 10 * HOUR},
        **times})[0]


def see(cloud, persona='system-member', **query):
    return cloud.get(persona, NOTICES, **query)['notices']


def set_time(cloud, column, seconds, node=None):
    """Set a time of all notices, or of a node's, to some seconds from now."""
    cloud.ironic.execute(
        f'UPDATE reservations_notices SET {column} = '
        f'{cloud.ironic.clock(seconds)} WHERE :n IN (node_name, :all)',
        n=node or 'all', all='all')


def from_now(cloud, seconds):
    return (cloud.ironic.now() + datetime.timedelta(0, seconds)).isoformat()


def get_times(notice):
    return [notice[name] and datetime.datetime.fromisoformat(notice[name])
            for name in NAMES]


def subtract(one, other):
    """Return by how many seconds each time of a notice differs."""
    return [None if time is None else (time - before).total_seconds()
            for time, before in zip(get_times(one), get_times(other),
                                    strict=True)]


def get_node(cloud, name):
    """Return the columns of a node, without the time of its last change."""
    row, = cloud.ironic.execute('SELECT * FROM nodes WHERE name = :n', n=name)
    return {**row._mapping, 'updated_at': None}


# Due times

@pytest.mark.on('sqlite', 'server')
def test_due_at(tenant):
    """It closes nothing, also when it has passed."""
    notice, = post(tenant, 'of-a-2', due_at={'in': HOUR},
                   ends_at={'in': 2 * HOUR})
    start, due, last, end = get_times(notice)
    assert (due - start, last, end - due) == (
        datetime.timedelta(0, HOUR), None, datetime.timedelta(0, HOUR))
    assert (notice['state'], notice['overdue']) == ('open', False)
    set_time(tenant, 'starts_at', -60)
    for seconds, is_overdue in (60, False), (0, True), (-30, True):
        set_time(tenant, 'due_at', seconds)
        for persona in 'system-member', 'a-reader':
            notice, = see(tenant, persona)
            assert (notice['state'], notice['overdue']) == ('open', is_overdue)
        for text, expected in {
                'true': [notice] * is_overdue, 'TRUE': [notice] * is_overdue,
                'false': [notice] * (not is_overdue)}.items():
            assert see(tenant, overdue=text) == expected
        tenant.call('system-member', 422, 'POST', OURS, json={
            'candidate_nodes': ['of-a-2']})
    notice, = patch(tenant, notice, ends_at='now')
    assert (notice['state'], notice['overdue']) == ('closed', False)
    assert see(tenant, overdue='true') == []
    assert see(tenant, overdue='false') == [notice]
    tenant.hold('system-member', candidate_nodes=['of-a-2'])


@pytest.mark.on('sqlite', 'server')
def test_planned_notice_is_not_overdue(tenant):
    plan(tenant, 'free-2')
    set_time(tenant, 'due_at', -60)
    notice, = see(tenant)
    assert (notice['state'], notice['overdue']) == ('planned', False)
    assert see(tenant, overdue='true') == []


def test_notice_without_due_at_is_not_overdue(tenant):
    notice, = post(tenant, 'free-2')
    assert see(tenant, overdue='false') == [notice]
    assert see(tenant, overdue='true') == []
    for text in 'maybe', '', '1':
        fault = tenant.call('system-member', 400, 'GET',
                            f'{NOTICES}?overdue={text}')
        assert fault.startswith('overdue: ')


def test_overdue_notice_of_a_deleted_node(tenant):
    with tenant.ironic.fleet({'name': 'gone'}):
        post(tenant, 'gone', due_at={'in': HOUR})
        set_time(tenant, 'starts_at', -60)
        set_time(tenant, 'due_at', -30)
        assert len(see(tenant, overdue='true')) == 1
        tenant.ironic.execute("DELETE FROM nodes WHERE name = 'gone'")
        assert see(tenant, overdue='true') == []


def test_reservation_and_pool_show_the_times(tenant):
    make_pool(tenant, 'of-a-2')
    plan(tenant, 'free-2', 'of-a-2')
    notices = see(tenant, 'a-member')
    row, = (row for row in tenant.get(
        'a-member', OURS, fields='node_name,notices')['reservations']
        if row['node_name'] == 'free-2')
    pool, = tenant.get('a-member', POOLS)['pools']
    node, = tenant.get('a-member', f'{POOLS}/{pool["uuid"]}')['nodes']
    assert sorted([*row['notices'], *node['notices']], key=str) == sorted(
        notices, key=str)


# The order of times. Seconds from now.

@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('times, fault', [
    ({'due_at': 0}, f'due_at: {TOO_EARLY}'),
    ({'due_at': -60}, f'due_at: {TOO_EARLY}'),
    ({'starts_at': -60, 'due_at': -30}, f'due_at: {TOO_EARLY}'),
    ({'starts_at': 600, 'due_at': 600}, f'due_at: {TOO_EARLY}'),
    ({'starts_at': 600, 'due_at': 599}, f'due_at: {TOO_EARLY}'),
    ({'starts_at': 600, 'ends_at': 600}, f'ends_at: {TOO_EARLY}'),
    ({'starts_at': -60, 'ends_at': -30}, f'ends_at: {TOO_EARLY}'),
    ({'due_at': 601, 'ends_at': 600}, TOO_LATE),
    ({'due_at': 600, 'ends_at': 600}, None),
    ({'starts_at': 600, 'latest_start': 599}, NO_WINDOW),
    ({'starts_at': -60, 'latest_start': -30}, NO_WINDOW),
    ({'latest_start': 0}, NO_WINDOW),
    ({'starts_at': 600, 'latest_start': 600}, None),
    ({'starts_at': 600, 'latest_start': 900, 'due_at': 700}, None),
], ids=str)
def test_order(tenant, times, fault):
    now = tenant.ironic.now()
    result = post(tenant, 'free-2', status=400 if fault else 201, **{
        name: (now + datetime.timedelta(0, seconds)).isoformat()
        for name, seconds in times.items()})
    assert not fault or result.startswith(fault)
    assert len(see(tenant)) == (not fault)


@pytest.mark.parametrize('name', ['due_at', 'latest_start'])
def test_text_that_is_no_time(tenant, name):
    notice = plan(tenant, 'free-2')
    for value in 'now', '2999-01-01', {'in': -1}, {'in': 1.5}, 5:
        assert post(tenant, 'free-2', status=400, **{name: value}).startswith(
            name)
        assert name in patch(tenant, notice, status=400, **{name: value})
    for value in {'in': 0}, from_now(tenant, -1):
        assert patch(tenant, notice, status=400,
                     **{name: value}).startswith(f'{name}: ')


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('changes, fault', [
    ({'due_at': HOUR - 1}, f'due_at: {TOO_EARLY}'),
    ({'due_at': HOUR}, f'due_at: {TOO_EARLY}'),
    ({'due_at': 4 * HOUR}, TOO_LATE),
    ({'ends_at': 2 * HOUR - 1}, TOO_LATE),
    ({'starts_at': 2 * HOUR}, f'due_at: {TOO_EARLY}'),
    ({'starts_at': 11 * HOUR, 'due_at': 12 * HOUR, 'ends_at': None},
     NO_WINDOW),
    ({'latest_start': HOUR - 1}, NO_WINDOW),
    ({'latest_start': HOUR}, None),
    ({'due_at': 3 * HOUR}, None),
    ({'due_at': None, 'ends_at': HOUR + 60}, None),
    ({'starts_at': 11 * HOUR, 'due_at': 12 * HOUR, 'ends_at': 13 * HOUR,
      'latest_start': None}, None),
], ids=str)
def test_order_of_changed_times(tenant, changes, fault):
    """They are compared with those that stay."""
    now = tenant.ironic.now().replace(microsecond=0)

    def make(times):
        return {name: seconds if seconds is None else (
            now + datetime.timedelta(0, seconds)).isoformat()
            for name, seconds in times.items()}

    first = {'starts_at': HOUR, 'due_at': 2 * HOUR, 'ends_at': 3 * HOUR,
             'latest_start': 10 * HOUR}
    notice, = post(tenant, 'free-2', **make(first))
    result = patch(tenant, notice, status=400 if fault else 200,
                   **make(changes))
    assert not fault or result.startswith(fault)
    after, = see(tenant)
    assert {name: after[name] for name in first} == make(
        first if fault else {**first, **changes})


@pytest.mark.on('sqlite', 'server')
def test_times_that_have_passed(tenant):
    """Only times that a PATCH sets have to be in the future."""
    notice = plan(tenant, 'free-2')
    for name, seconds in zip(NAMES, (-90, -60, -30, 60), strict=True):
        set_time(tenant, name, seconds)
    patch(tenant, notice, ticket='T')
    notice, = patch(tenant, notice, ends_at={'in': HOUR})
    assert notice['overdue']
    notice, = patch(tenant, notice, due_at={'in': HOUR})
    assert not notice['overdue']


@pytest.mark.on('sqlite', 'server')
def test_closed_notice(tenant):
    """It may be closed before its work is due, and then keeps its times."""
    notice = plan(tenant, 'free-2')
    notice, = patch(tenant, notice, ends_at='now')
    assert notice['state'] == 'closed'
    for name in NAMES:
        patch(tenant, notice, status=409, **{name: {'in': 5 * HOUR}})
    patch(tenant, notice, action='None was needed')


def test_repeat(tenant):
    """It compares the body, and the stored times stay."""
    body = {'uuid': str(uuid.uuid4()), 'starts_at': {'in': HOUR},
            'due_at': {'in': 2 * HOUR}, 'latest_start': {'in': 9 * HOUR}}
    notice, = post(tenant, 'free-2', **body)
    for name in 'due_at', 'latest_start':
        for value in None, {'in': 8 * HOUR}:
            post(tenant, 'free-2', status=409, **{**body, name: value})
    schedule(tenant, notice, get_times(notice)[1].isoformat())
    again, = post(tenant, 'free-2', status=200, **body)
    assert [again] == see(tenant)
    assert subtract(again, notice) == [HOUR, HOUR, 0, None]


# The project of a report

@pytest.mark.on('sqlite', 'server')
def test_project_of_a_report(tenant):
    """Operators, the owner of the node and the project see it."""
    a, b = tenant.projects['a'], tenant.projects['b']
    deploy(tenant, 'of-b-2')
    mine, = post(tenant, 'of-b-2', persona='a-member', kind='fault')
    theirs, = post(tenant, 'of-b-2', persona='b-member')
    other, = post(tenant, 'of-b-2')
    assert (mine['project_id'], theirs['project_id'], other['project_id']) == (
        a, None, None)
    for persona in 'system-member', 'b-member':
        assert [notice['project_id'] for notice in see(tenant, persona)] == [
            a, None, None]
    for persona in 'system-member', 'b-reader', 'a-reader':
        assert see(tenant, persona, project_id=a) == [mine]
        assert see(tenant, persona, project_id=b) == []
        assert see(tenant, persona, project_id=a.upper()) == []
        assert see(tenant, persona, project_id=a, overdue='true') == []
    assert see(tenant, 'service', project_id=a) == []


def test_former_owner_filters_by_project(tenant):
    """The filter finds nothing that the list does not show."""
    deploy(tenant, 'of-b-2')
    post(tenant, 'of-b-2', persona='a-member', kind='fault')
    tenant.set_node('of-b-2', owner=None)
    try:
        assert see(tenant, 'b-member', project_id=tenant.projects['a']) == []
    finally:
        tenant.set_node('of-b-2', owner=tenant.projects['b'])


# A project chooses the time

@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('hours', [0.1, 2, 10])
def test_schedule(tenant, hours):
    """Due time and end of the notice move with its start."""
    before = plan(tenant, 'free-2')
    at = (get_times(before)[2] if hours == 10 else get_times(before)[0]
          + datetime.timedelta(hours=hours - 1)).isoformat()
    after, = schedule(tenant, before, at)
    assert after['starts_at'] == at
    seconds = (hours - 1) * HOUR
    assert subtract(after, before) == [seconds, seconds, 0, seconds]
    # The clock may go on between them.
    assert before['created_at'] <= after['scheduled_at'] <= after['updated_at']
    assert after == {**before, **{name: after[name] for name in (
        *NAMES, 'scheduled_at', 'updated_at')}, 'created_by': None}
    assert see(tenant)[0]['scheduled_at'] == after['scheduled_at']


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('now', ['now', {'in': 0}], ids=str)
def test_schedule_now(tenant, now):
    """It opens, and nothing happens to the server."""
    before = plan(tenant, 'free-2', due_at=None)
    row = get_node(tenant, 'free-2')
    after, = schedule(tenant, before, now)
    assert after['state'] == 'open'
    assert after['scheduled_at'] == after['starts_at']
    shift, due, _, end = subtract(after, before)
    assert (due, end) == (None, shift) and -HOUR - 1 <= shift <= 60 - HOUR
    assert get_node(tenant, 'free-2') == row
    assert 'open' in schedule(tenant, before, 'now', 409)


@pytest.mark.on('sqlite', 'server')
def test_times_that_a_project_may_not_choose(tenant):
    """The error names the last possible one."""
    notice = plan(tenant, 'free-2')
    last = get_times(notice)[2].replace(tzinfo=None).isoformat()
    for at in (from_now(tenant, -5), '2001-01-01T00:00:00Z',
               {'in': 10 * HOUR + 60}, '2999-01-01T00:00:00Z'):
        assert schedule(tenant, notice, at, 400) == (
            f'starts_at: must be from now to latest_start, {last}Z')
    for at in 'later', {'in': -1}, None:
        schedule(tenant, notice, at, 400)
    assert see(tenant) == [notice]


def test_time_that_no_date_can_hold(tenant):
    for name in 'due_at', 'ends_at':
        notice = plan(tenant, 'free-2', **{
            'due_at': None, 'ends_at': None, name: '9999-12-31T23:59:59Z'})
        assert schedule(tenant, notice, {'in': 2 * HOUR}, 400) == (
            f'starts_at: moves {name} out of range')


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('name, value', [
    ('cordon', False), ('due_at', {'in': 4 * HOUR}), ('due_at', None),
    ('latest_start', {'in': 20 * HOUR}), ('latest_start', None),
    ('ends_at', 'now'), ('ends_at', None), ('category', 'c'),
    ('description', 'd'), ('ticket', 'T'), ('action', 'a')], ids=str)
def test_project_moves_only_the_start(tenant, name, value):
    notice = plan(tenant, 'free-2')
    for changes in {name: value}, {name: value, 'starts_at': 'now'}:
        patch(tenant, notice, 'a-member', 403, **changes)
    assert see(tenant) == [notice]


@pytest.mark.parametrize('persona, status', [
    ('a-member', 200), ('a-manager', 200), ('a-admin', 200), ('a-reader', 403),
    ('a-service', 403), ('b-member', 404), ('b-admin', 404), ('service', 404),
    ('system-reader', 404), ('domain-admin', 404)])
def test_who_may_schedule(tenant, persona, status):
    """Those who may change the reservation."""
    schedule(tenant, plan(tenant, 'free-2'), 'now', status, persona)


def test_policy_of_the_reservation(tenant, policy):
    notice = plan(tenant, 'free-2')
    policy({'baremetal:reservation:update': '!'})
    schedule(tenant, notice, 'now', 403)


@pytest.mark.on('sqlite', 'server')
def test_node_that_is_only_reserved(tenant):
    """A hold costs nothing, so it gives no right."""
    hold(tenant, 'of-b-2')
    notice = plan(tenant, 'of-b-2', 'free-2')
    assert 'server' in schedule(tenant, notice, 'now', 403, node='of-b-2')
    # Only that of the server moves.
    other, = schedule(tenant, notice, 'now')
    assert other['node_name'] == 'free-2'
    assert see(tenant, state='planned') == [
        row for row in see(tenant) if row['node_name'] == 'of-b-2']


@pytest.mark.on('sqlite', 'server')
def test_node_of_a_pool(tenant):
    make_pool(tenant, 'of-b-2')
    notice = plan(tenant, 'of-b-2')
    schedule(tenant, notice, {'in': 2 * HOUR})
    # The reservation decides, if there is one.
    reservation = hold(tenant, 'of-b-2')
    schedule(tenant, notice, {'in': 3 * HOUR}, 403)
    tenant.set_node('of-b-2', provision_state='active')
    schedule(tenant, notice, {'in': 3 * HOUR})
    for project, statuses in {'b': (403, 200), 'service': (403, 404)}.items():
        tenant.set_node('of-b-2', owner=None)
        tenant.ironic.execute(
            'UPDATE reservations SET project_id = :p WHERE instance_uuid = :i',
            p=tenant.projects[project], i=reservation['instance_uuid'])
        for persona, status in zip(('a-member', 'b-member'), statuses,
                                   strict=True):
            schedule(tenant, notice, {'in': 4 * HOUR}, status, persona)
    tenant.set_node('of-b-2', owner=tenant.projects['b'])


def test_node_of_an_expired_pool(tenant):
    make_pool(tenant, 'of-b-2')
    notice = plan(tenant, 'of-b-2')
    tenant.ironic.execute('UPDATE reservations_pools SET expires_at = '
                          f'{tenant.ironic.clock()}')
    schedule(tenant, notice, 'now', 404)


@pytest.mark.on('sqlite', 'server')
def test_cordon_that_a_project_opens(tenant):
    """It keeps also the project's own claims and reservations off."""
    make_pool(tenant, 'of-b-2')
    notice = plan(tenant, 'of-b-2')
    schedule(tenant, notice, 'now')
    response = tenant.request('a-member', 'POST', OURS, json={
        'candidate_nodes': ['of-b-2']})
    contract.check(response, 422)
    assert {'by': 'cordoned', 'nodes': 1} in (
        response.json()['explanation']['eliminated'])
    # A claim of a hold that another member of the pool has.
    patch(tenant, notice, ends_at='now')
    reservation = hold(tenant, 'of-b-2')
    post(tenant, 'of-b-2')
    tenant.call('a-member', 422, 'POST', OURS, json={
        'claim': reservation['instance_uuid']})


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('column, seconds', [
    ('starts_at', -5), ('ends_at', -5), ('latest_start', None)])
def test_notice_that_cannot_be_moved(tenant, column, seconds):
    """It is open or closed, or has no latest_start."""
    notice = plan(tenant, 'free-2')
    if seconds is None:
        patch(tenant, notice, latest_start=None)
    else:
        set_time(tenant, column, seconds)
    before = see(tenant)
    for at in 'now', {'in': 2 * HOUR}:
        assert schedule(tenant, notice, at, 409) == (
            'This notice cannot be moved: it is open or closed, or has no '
            'latest_start.')
    assert see(tenant) == before


@pytest.mark.on('sqlite', 'server')
def test_shortly_before_the_start(tenant):
    notice = plan(tenant, 'free-2')
    later = {'in': 2 * HOUR}
    set_time(tenant, 'starts_at', 290)
    fault = schedule(tenant, notice, later, 409)
    assert '300 seconds' in fault and 'schedule_ahead' in fault
    with application.set_options({'reservations': {'schedule_ahead': 200}}):
        schedule(tenant, notice, later)
    set_time(tenant, 'starts_at', 290)
    # An operator may change it at any time.
    patch(tenant, notice, starts_at={'in': 280})
    schedule(tenant, notice, later, 409)
    notice, = schedule(tenant, notice, 'now')
    assert notice['state'] == 'open'


def test_project_may_choose_the_last_seconds(tenant):
    """It could choose "now"."""
    notice = plan(tenant, 'free-2')
    schedule(tenant, notice, {'in': 60})
    schedule(tenant, notice, {'in': 2 * HOUR}, 409)


@pytest.mark.on('sqlite', 'server')
def test_operator_moves_a_scheduled_notice(tenant):
    """Each PATCH of its start makes scheduled_at null, and no other one."""
    notice = plan(tenant, 'free-2')
    for at in {'in': HOUR}, 'now', None:
        notice, = schedule(tenant, notice, {'in': 2 * HOUR})
        patch(tenant, notice, due_at={'in': 3 * HOUR}, description='d',
              ends_at=None)
        assert see(tenant)[0]['scheduled_at'] == notice['scheduled_at']
        # None is the time that it has.
        notice, = patch(tenant, notice, starts_at=at or notice['starts_at'])
        assert notice['scheduled_at'] is None
        set_time(tenant, 'starts_at', HOUR)


# Several notices with one UUID

@pytest.mark.on('sqlite', 'server')
def test_notices_of_several_projects(tenant):
    """A project moves only those of its own nodes."""
    deploy(tenant, 'leased-to-a-1')
    deploy(tenant, 'of-b-2', 'b')
    notice = plan(tenant, 'free-2', 'leased-to-a-1', 'of-b-2')
    rows = schedule(tenant, notice, {'in': 2 * HOUR})
    assert {row['node_name'] for row in rows} == {'free-2', 'leased-to-a-1'}
    assert len({tuple(get_times(row)) for row in rows}) == 1
    other, = see(tenant, node='of-b-2')
    assert (other['starts_at'], other['scheduled_at']) == (
        notice['starts_at'], None)
    one, = schedule(tenant, notice, 'now', node='free-2')
    assert one['node_name'] == 'free-2'
    schedule(tenant, notice, 'now', 404, node='of-b-2')
    # B owns its node, so it changes the notice as its owner.
    other, = schedule(tenant, notice, {'in': 60}, persona='b-member')
    assert other['scheduled_at'] is None


@pytest.mark.on('sqlite', 'server')
def test_notices_with_different_times(tenant):
    """Each moves by as much as its own start; all move, or none."""
    deploy(tenant, 'leased-to-a-1')
    notice = plan(tenant, 'free-2', 'leased-to-a-1')
    patch(tenant, notice, node='free-2', starts_at={'in': HOUR + 600},
          latest_start={'in': 5 * HOUR})
    before = see(tenant)
    assert schedule(tenant, notice, {'in': 6 * HOUR}, 400).startswith(
        'starts_at: must be from now to latest_start')
    assert see(tenant) == before
    after = schedule(tenant, notice, {'in': 4 * HOUR})
    assert after[0]['starts_at'] == after[1]['starts_at']
    for one, other in zip(after, before, strict=True):
        shift, *others = subtract(one, other)
        assert others == [shift, 0, shift]
    # One opens soon.
    set_time(tenant, 'starts_at', 200, 'free-2')
    before = see(tenant)
    schedule(tenant, notice, {'in': 2 * HOUR}, 409)
    assert see(tenant) == before


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('changes', [
    {'starts_at': 'now'}, {'ends_at': 'now'}, {'latest_start': None}], ids=str)
def test_only_some_can_be_moved(tenant, changes):
    deploy(tenant, 'leased-to-a-1')
    notice = plan(tenant, 'free-2', 'leased-to-a-1')
    first, = patch(tenant, notice, node='free-2', **changes)
    other, = schedule(tenant, notice, 'now')
    assert other['node_name'] == 'leased-to-a-1'
    assert see(tenant, node='free-2') == [first]
    schedule(tenant, notice, 'now', 409)


@pytest.mark.on('sqlite', 'server')
def test_node_that_was_deleted(tenant):
    """Its notice is left out; if there is no other, it is a 409."""
    with tenant.ironic.fleet({'name': 'gone', 'properties': {
            'memory_mb': 1024}}) as [node]:
        make_pool(tenant, 'gone')
        notice = plan(tenant, 'gone')
        report, = post(tenant, 'gone', persona='a-member', kind='fault')
        tenant.ironic.execute('UPDATE nodes SET id = id + 1000 '
                              'WHERE uuid = :u', u=node.id)
        schedule(tenant, notice, 'now', 404)
        patch(tenant, report, 'a-member', 409, starts_at='now')
