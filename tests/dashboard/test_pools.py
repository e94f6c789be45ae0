# SPDX-License-Identifier: Apache-2.0
"""The panels: pools, which operators change and projects read."""

import datetime
import json
import pathlib
import re
import uuid

import pytest

from tests.dashboard import test_dashboard

EVIL = test_dashboard.EVIL
FAR = '2099-12-31T18:00:00+00:00'
POOLS = '/reservations/pools'
#: Machines of one shard. One of the last two is in use.
CANDIDATES = ['silver-1', 'silver-2', 'silver-5']


@pytest.fixture
def pool(cloud):
    """A pool of team-a with silver-1, and one machine to replace it."""
    service = cloud.admin.baremetal_reservations
    response = service.post(POOLS, json={
        'project_id': cloud.projects['team-a'], 'members': 1,
        'policy': 'pack', 'by': 'shard', 'description': EVIL,
        'expires_at': FAR, 'request': {
            'candidate_nodes': CANDIDATES, 'memory_mb': 32768}})
    assert response.status_code == 201, response.text
    pool = response.json()
    assert [node['name'] for node in pool['nodes']] == ['silver-1']
    yield pool
    assert service.delete(f'{POOLS}/{pool["uuid"]}').status_code in (204, 404)


def read(cloud, pool):
    return cloud.admin.baremetal_reservations.get(
        f'{POOLS}/{pool["uuid"]}').json()


def names(pool):
    return {node['name'] for node in pool['nodes']}


def squeeze(visitor):
    return re.sub(r'\s+', ' ', visitor.main.inner_text())


def alert(visitor):
    return visitor.main.locator('.alert-danger').inner_text()


@pytest.fixture
def server(cloud, ironic, pool):
    """A reservation of the pool's project, on an unhealthy machine."""
    service, node = cloud.admin.baremetal_reservations, pool['nodes'][0]
    reservation = service.create(candidate_nodes=[node['name']],
                                 project_id=pool['project_id'])
    notice, = service.create_notices('fault', nodes=[node['uuid']],
                                     category='fan', ticket='RMA-9')
    ironic.execute("UPDATE nodes SET health = 'Critical' WHERE uuid = :u",
                   u=node['uuid'])
    yield reservation
    ironic.execute('UPDATE nodes SET health = NULL WHERE uuid = :u',
                   u=node['uuid'])
    service.close_notices(notice)
    service.release(reservation)


def test_pool(admin, ada, cloud, pool, server):
    for visitor in admin, ada:
        page = visitor.open('pools/')
        row, = visitor.rows().values()
        assert re.search(r' 1 0 0 in \d+ d', row)
        assert EVIL in row and ('team-a' in row) == (visitor is admin)
        assert page.get_by_role('img', name='0 free, 1 reserved').is_visible()
        visitor.follow('link', pool['uuid'])
        text = squeeze(visitor)
        for words in ('pack shard', 'team-a', EVIL, '2099-12-31 18:00 UTC',
                      '0 free, 1 reserved, 0 taken, 0 out of service; '
                      '0 healthy', 'memory_mb 32768'):
            assert words in text
        assert re.match(
            'silver-1 baremetal.silver domain east instance '
            f'{server.instance_uuid} open fault: fan .* ticket RMA-9 '
            'reserved Critical', visitor.rows()['silver-1'])
        assert page.title() != 'owned'
        assert page.get_by_role('link', name='Replace silver-1').count() == (
            visitor is admin)
        visitor.follow('link', server.instance_uuid)
        assert 'silver-1' in visitor.main.inner_text()


def test_pool_of_several_pages(admin, cloud, ironic, pool):
    """The API needs two responses for nodes with long notices."""
    service, names = cloud.admin.baremetal_reservations, CANDIDATES[:2]
    service.add_pool_node(pool['uuid'], names[1])
    notices = service.create_notices('fault', nodes=names)
    # The page shows no action of an open notice.
    ironic.execute("UPDATE reservations_notices SET action = "
                   "printf('%.*c', 3000000, 'x') WHERE uuid = :u",
                   u=notices[0].uuid)
    try:
        assert read(cloud, pool)['next']
        admin.open(f'pools/{pool["uuid"]}/')
        assert {*admin.rows()} == {*names}
    finally:
        service.close_notices(notices[0], action='none')


def find_actions(visitor, pool):
    """Return the links that change the pool of a page."""
    return visitor.open(f'pools/{pool["uuid"]}/').get_by_role(
        'link', name=re.compile('Change|Delete|Replace')).all_inner_texts()


def test_project_only_reads(ada, cloud, pool):
    path, node = f'pools/{pool["uuid"]}/', pool['nodes'][0]['uuid']
    assert find_actions(ada, pool) == []
    for end in 'change', 'delete':
        assert ada.page.goto(f'{ada.url}/{path}{end}/').status == 404
    ada.open(f'{path}replace/{node}/')
    ada.follow('button', 'Replace the machine')
    assert 'pools_replace' in alert(ada)
    assert read(cloud, pool) == pool


@pytest.fixture
def policy(cloud):
    """Return a function that changes who may replace a node of a pool."""
    path = pathlib.Path(cloud.ironic.conf_file).with_name('policy.yaml')

    def write(check):
        # JSON is YAML.
        path.write_text(json.dumps({
            'baremetal:reservation:pools_replace': check}))
        return path
    yield write
    path.write_text('{}')


def test_project_replaces_a_machine(start_horizon, log_in, cloud, policy, ada,
                                    pool):
    path = policy('role:member and project_id:%(reservation.project_id)s')
    # This Horizon does not have the policy.
    assert find_actions(ada, pool) == []
    with start_horizon(more='from openstack_dashboard.defaults import '
                            'POLICY_FILES\n'
                            f"POLICY_FILES['baremetal'] = '{path}'\n") as url:
        ada = log_in(url, 'ada', 'project')
        assert find_actions(ada, pool) == ['Replace']
        test_dashboard.check_looks(ada, f'pools/{pool["uuid"]}/')
        ada.follow('link', 'Replace silver-1')
        ada.follow('button', 'Replace the machine')
        name, = names(read(cloud, pool))
        assert name in CANDIDATES[1:]
        assert {*ada.rows()} == {name}
        policy('!')
        assert find_actions(ada, pool) == []


def test_pool_of_another_project(ada, cloud, pool):
    service = cloud.admin.baremetal_reservations
    other = service.post(POOLS, json={
        'project_id': cloud.projects['team-b'], 'members': 1,
        'request': {'candidate_nodes': ['gold-3']}}).json()
    try:
        ada.open('pools/')
        assert {*ada.rows()} == {pool['uuid']}
        ada.open(f'pools/{other["uuid"]}/')
        assert other['uuid'] in alert(ada)
        assert 'gold-3' not in ada.main.inner_text()
    finally:
        service.delete(f'{POOLS}/{other["uuid"]}')


def test_pool_is_changed(admin, cloud, pool):
    """Only what differs is changed, so that other changes are kept."""
    page = admin.open(f'pools/{pool["uuid"]}/')
    admin.follow('link', 'Change the pool')
    assert page.get_by_label('Expires at').input_value() == FAR
    cloud.admin.baremetal_reservations.patch(
        f'{POOLS}/{pool["uuid"]}', json=[
            {'op': 'add', 'path': '/description', 'value': 'by another'}])
    page.get_by_label('Expires at').fill('2098-01-01T01:00:00+01:00')
    admin.follow('button', 'Save')
    assert 'The pool was changed.' in page.inner_text('body')
    after = read(cloud, pool)
    assert (after['expires_at'], after['description']) == (
        '2098-01-01T00:00:00+00:00', 'by another')
    admin.follow('link', 'Change the pool')
    page.get_by_label('Expires at').fill('30d')
    admin.follow('button', 'Save')
    days = datetime.datetime.fromisoformat(
        read(cloud, pool)['expires_at']) - datetime.datetime.now(datetime.UTC)
    assert round(days / datetime.timedelta(1)) == 30
    admin.follow('link', 'Change the pool')
    page.get_by_label('Expires at').fill('')
    page.get_by_label('Description').fill('')
    admin.follow('button', 'Save')
    after = read(cloud, pool)
    assert after['expires_at'] is after['description'] is None
    assert 'never' in admin.main.inner_text()
    admin.follow('link', 'Change the pool')
    admin.follow('button', 'Save')
    assert 'Nothing was changed.' in page.inner_text('body')
    assert read(cloud, pool) == after


@pytest.mark.parametrize('expiry', ['past', 'no time zone', 'no time'])
def test_expiry_is_refused(admin, cloud, pool, expiry):
    text = {'past': '2020-01-01T00:00:00Z', 'no time': 'soon',
            'no time zone': '2098-01-01T00:00:00'}[expiry]
    page = admin.open(f'pools/{pool["uuid"]}/change/')
    page.get_by_label('Expires at').fill(text)
    page.get_by_label('Description').fill('new')
    admin.follow('button', 'Save')
    assert {
        'past': 'Expires at: must be in the future',
        'no time': '"soon" is not a valid time',
        'no time zone': f'"{text}": must be a time with a time zone',
    }[expiry] in admin.main.get_by_role('alert').inner_text()
    assert page.get_by_label('Expires at').input_value() == text
    assert read(cloud, pool) == pool


def test_machine_is_replaced(admin, cloud, pool):
    page = admin.open(f'pools/{pool["uuid"]}/')
    admin.follow('link', 'Replace silver-1')
    assert {*admin.rows()} == {'silver-1'}
    admin.follow('button', 'Replace the machine')
    assert 'was replaced' in page.inner_text('body')
    name, = names(read(cloud, pool))
    assert name in ('silver-2', 'silver-5')
    assert {*admin.rows()} == {name}


def test_replacement_is_refused(admin, cloud, pool):
    # A machine that is not in the pool.
    path = f'pools/{pool["uuid"]}/replace/'
    other = str(uuid.uuid4())
    admin.open(f'{path}{other}/')
    admin.follow('button', 'Replace the machine')
    assert f'Node {other} is not in pool' in alert(admin)
    # The others of the shard are in use or in the pool.
    free = [name for name in CANDIDATES[1:] if cloud.admin.baremetal.get_node(
        name).provision_state == 'available']
    for name in free:
        cloud.admin.baremetal_reservations.post(
            f'{POOLS}/{pool["uuid"]}/nodes', json={'node': name})
    assert names(read(cloud, pool)) == {'silver-1', *free}
    admin.open(f'{path}{pool["nodes"][0]["uuid"]}/')
    admin.follow('button', 'Replace the machine')
    assert 'No free node matches' in alert(admin)
    assert 'candidate_nodes' in alert(admin)
    assert names(read(cloud, pool)) == {'silver-1', *free}


def test_pool_is_deleted(admin, cloud, pool):
    page = admin.open(f'pools/{pool["uuid"]}/')
    admin.follow('link', 'Delete the pool')
    admin.follow('link', 'Keep it')
    assert read(cloud, pool) == pool
    admin.follow('link', 'Delete the pool')
    admin.follow('button', 'Delete the pool')
    assert f'The pool {pool["uuid"]} was deleted.' in page.inner_text('body')
    assert 'There are no pools.' in admin.main.inner_text()
    # Another operator has been faster.
    admin.open(f'pools/{pool["uuid"]}/')
    assert pool['uuid'] in alert(admin)


@pytest.mark.parametrize('end', ['', 'change/', 'delete/', 'replace/{}/'])
def test_looks(admin, pool, server, end):
    path = f'pools/{pool["uuid"]}/' + end.format(pool['nodes'][0]['uuid'])
    test_dashboard.check_looks(admin, path)


def test_looks_of_the_list(admin, pool):
    test_dashboard.check_looks(admin, 'pools/')


def test_project_chooses_the_time_of_an_idle_machine(ada, admin, cloud, pool):
    """On the page of the pool, because there is no reservation."""
    service, node = cloud.admin.baremetal_reservations, pool['nodes'][0]
    work, = service.create_notices(
        'maintenance', nodes=[node['uuid']], starts_at={'in': 86400},
        latest_start={'in': 5 * 86400})
    path = f'pools/{pool["uuid"]}/'
    admin.open(path)
    assert 'latest start' in squeeze(admin)
    assert admin.page.get_by_role('link', name='Choose the time').count() == 0
    hold = service.create(candidate_nodes=[node['uuid']],
                          project_id=pool['project_id'])
    page = ada.open(path)
    assert page.get_by_role('link', name='Choose the time').count() == 0
    service.release(hold)
    ada.open(path)
    ada.follow('link', 'Choose the time')
    assert 'In your time zone, at the latest' in squeeze(ada)
    page.get_by_label('Begin now').check()
    ada.follow('button', 'Save')
    assert 'The time was chosen.' in page.inner_text('body')
    notice, = service.notices(uuid=work.uuid)
    assert (notice.state, notice.node_uuid) == ('open', node['uuid'])
    service.close_notices(notice)
