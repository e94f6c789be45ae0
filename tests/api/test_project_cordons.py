# SPDX-License-Identifier: Apache-2.0
"""Machines that projects give back as broken: /v1/reservations/notices."""

import uuid

import pytest

from tests.api.test_scheduled_notices import HOUR
from tests.api.test_scheduled_notices import NAMES
from tests.api.test_scheduled_notices import deploy
from tests.api.test_scheduled_notices import hold
from tests.api.test_scheduled_notices import make_pool
from tests.api.test_scheduled_notices import patch
from tests.api.test_scheduled_notices import post
from tests.api.test_scheduled_notices import reset
from tests.api.test_scheduled_notices import see
from tests.api.test_scheduled_notices import set_time
from tests.common import application
from tests.common import contract

OURS = '/v1/reservations'


@pytest.fixture
def cloud_with_server(cloud):
    """The Cloud without notices and pools; A has a server on free-2."""
    cloud.ironic.execute('DELETE FROM reservations_notices')
    cloud.server = deploy(cloud, 'free-2')
    yield cloud
    cloud.set_node('of-b-2', owner=cloud.projects['b'])
    reset(cloud)


@pytest.fixture
def tenant(cloud_with_server):
    """The same; each project may set two cordons."""
    with application.set_options({'reservations': {'project_cordons': 2}}):
        yield cloud_with_server


def report(cloud, *nodes, status=201, persona='a-member', cordon=True, **body):
    """Report a fault of nodes, and give them back."""
    return post(cloud, *nodes, persona=persona, status=status, kind='fault',
                cordon=cordon, **body)


def cordon(cloud, notice, status=200, persona='a-member', **more):
    return patch(cloud, notice, persona, status, cordon=True, **more)


def delete_server(cloud):
    cloud.set_node('free-2', provision_state='available')
    cloud.call('a-member', 204, 'DELETE',
               f'{OURS}/{cloud.server["instance_uuid"]}')


def is_offered(cloud, node='free-2'):
    response = cloud.request('system-member', 'POST',
                             f'{OURS}?dry_run=true', json={
                                 'candidate_nodes': [node]})
    contract.check(response, 200)
    return bool(response.json()['matching_nodes'])


@pytest.mark.on('sqlite', 'server')
def test_by_default(cloud_with_server):
    report(cloud_with_server, 'free-2', status=403)
    notice, = report(cloud_with_server, 'free-2', cordon=False)
    cordon(cloud_with_server, notice, 403)
    assert not see(cloud_with_server)[0]['cordon']


@pytest.mark.on('sqlite', 'server')
def test_broken_machine(tenant):
    """Nobody gets it until an operator has closed the notice."""
    notice, = report(tenant, 'free-2', category='gpu')
    assert (notice['state'], notice['cordon'], notice['project_id']) == (
        'open', True, tenant.projects['a'])
    assert [notice[name] for name in NAMES] == [
        notice['starts_at'], None, None, None]
    tenant.call('a-reader', 200, 'GET',
                f'{OURS}/{tenant.server["instance_uuid"]}')
    assert see(tenant) == see(tenant, 'a-reader') == see(
        tenant, project_id=tenant.projects['a']) == [notice]
    delete_server(tenant)
    for persona in 'a-member', 'system-member':
        tenant.call(persona, 422, 'POST', OURS, json={
            'candidate_nodes': ['free-2']})
    # The project sees what becomes of its report.
    patch(tenant, notice, action='Replaced a GPU')
    patch(tenant, notice, 'a-member', description='XID 79')
    notice, = patch(tenant, notice, ends_at='now')
    assert see(tenant, 'a-member') == [notice]
    tenant.hold('system-member', candidate_nodes=['free-2'])


@pytest.mark.on('sqlite', 'server')
def test_owner_removes_the_cordon(tenant):
    deploy(tenant, 'of-b-2')
    notice, = report(tenant, 'of-b-2')
    assert see(tenant, 'b-reader') == [notice]
    patch(tenant, notice, 'b-member', cordon=False)
    patch(tenant, notice, 'b-member', cordon=True)
    patch(tenant, notice, 'b-member', ends_at='now')


@pytest.mark.on('sqlite', 'server')
def test_repeat(tenant):
    """Also after the server was deleted, and at the limit."""
    body = {'uuid': str(uuid.uuid4()), 'category': 'gpu'}
    with application.set_options({'reservations': {'project_cordons': 1}}):
        notices = report(tenant, 'free-2', **body)
        assert report(tenant, 'free-2', status=200, **body) == notices
        delete_server(tenant)
        assert report(tenant, 'free-2', status=200, **body) == notices
        report(tenant, 'free-2', status=409, **{**body, 'category': 'x'})


@pytest.mark.parametrize('persona, status', [
    ('a-member', 201), ('a-admin', 201), ('a-reader', 403),
    ('a-service', 403), ('b-member', 400), ('service', 400)])
def test_who_may_report(tenant, persona, status):
    """Those who may change the reservation."""
    report(tenant, 'free-2', status=status, persona=persona)


def test_policy_of_the_reservation(tenant, policy):
    notice, = report(tenant, 'free-2', cordon=False)
    policy({'baremetal:reservation:update': '!'})
    report(tenant, 'free-2', status=403)
    cordon(tenant, notice, 403)


def test_kinds(tenant):
    for kind in 'maintenance', 'retirement':
        post(tenant, 'free-2', persona='a-member', status=403, kind=kind)


@pytest.mark.on('sqlite', 'server')
def test_node_that_is_only_reserved(tenant):
    """A hold costs nothing, so it gives no right."""
    hold(tenant, 'of-b-2')
    assert 'server' in report(tenant, 'of-b-2', status=403)
    report(tenant, 'of-b-2', 'free-2', status=403)
    notice, = report(tenant, 'of-b-2', cordon=False)
    assert 'server' in cordon(tenant, notice, 403)
    tenant.set_node('of-b-2', provision_state='deploying')
    cordon(tenant, notice)


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('holder, state, status', [
    (None, 'available', 201), ('a', 'available', 201), ('a', 'active', 201),
    ('b', 'available', 403), ('b', 'active', 403)])
def test_node_of_the_pool(tenant, holder, state, status):
    """No other project must hold it."""
    tenant.set_node('of-b-2', owner=None)
    make_pool(tenant, 'of-b-2')
    if holder is not None:
        reservation = hold(tenant, 'of-b-2')
        tenant.ironic.execute(
            'UPDATE reservations SET project_id = :p WHERE instance_uuid = :i',
            p=tenant.projects[holder], i=reservation['instance_uuid'])
        tenant.set_node('of-b-2', provision_state=state)
    report(tenant, 'of-b-2', status=status)
    if holder == 'b':
        # The pool lets A report the fault, but not keep others off.
        notice, = report(tenant, 'of-b-2', cordon=False)
        cordon(tenant, notice, 403)
        report(tenant, 'of-b-2', persona='b-member',
               status=201 if state == 'active' else 403)


def test_domain(tenant):
    """It means the nodes of which the project may set a cordon."""
    hold(tenant, 'of-b-2')
    tenant.ironic.execute("UPDATE nodes SET shard = 'S'")
    response = tenant.request('a-member', 'POST', f'{OURS}/notices', json={
        'kind': 'fault', 'cordon': True, 'by': {'shard': 'S'},
        'description': 'x'})
    tenant.ironic.execute('UPDATE nodes SET shard = NULL')
    contract.check(response, 201)
    assert {notice['node_name']: notice['project_id']
            for notice in response.json()['notices']} == {
        # A owns the first two, and so creates any notice of them.
        'of-a-1': None, 'of-a-2': None, 'free-2': tenant.projects['a']}


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('name', NAMES)
def test_no_times(tenant, name):
    """The cordon is open until an operator closes it."""
    times = {name: {'in': HOUR}}
    assert report(tenant, 'free-2', status=400, **times).startswith(
        f'{name}: must not be given')
    report(tenant, 'of-a-2', **times)
    report(tenant, 'free-2', persona='system-member', **times)
    notice, = report(tenant, 'free-2', cordon=False, **times)
    patch(tenant, notice, 'a-member', ends_at='now')
    report(tenant, 'free-2', **{name: None})


# PATCH

@pytest.mark.on('sqlite', 'server')
def test_report_that_gets_a_cordon(tenant):
    """It then has no end."""
    before, = report(tenant, 'free-2', cordon=False, due_at={'in': HOUR},
                     ends_at={'in': 2 * HOUR}, latest_start={'in': 60})
    after, = cordon(tenant, before, description='XID 79', ticket='T')
    assert after == {
        **before, 'cordon': True, 'due_at': None, 'ends_at': None,
        'latest_start': None, 'description': 'XID 79', 'ticket': 'T',
        'updated_at': after['updated_at']}
    delete_server(tenant)
    assert not is_offered(tenant)


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('first', [True, False])
def test_project_then_changes_only_texts(tenant, first):
    notice, = report(tenant, 'free-2', cordon=first)
    if not first:
        notice, = cordon(tenant, notice)
    # A repeat, because the response may have been lost.
    assert patch(tenant, notice, 'a-member', cordon=True) == [notice]
    patch(tenant, notice, 'a-member', 403, cordon=False)
    for name in NAMES:
        for value in 'now', {'in': HOUR}, '2999-01-01T00:00:00Z':
            if value != 'now' or name in ('starts_at', 'ends_at'):
                patch(tenant, notice, 'a-member', 403, **{name: value})
    patch(tenant, notice, 'a-member', 403, ends_at='now', ticket='T')
    assert see(tenant) == [notice]
    for name in 'category', 'description', 'ticket', 'action':
        patch(tenant, notice, 'a-member', **{name: 'text'})
    delete_server(tenant)
    patch(tenant, notice, 'a-member', ticket=None)
    patch(tenant, notice, 'a-member', 403, ends_at='now')


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('column, seconds', [
    ('starts_at', HOUR), ('ends_at', -5)])
def test_report_that_is_not_open(tenant, column, seconds):
    notice, = report(tenant, 'free-2', cordon=False)
    set_time(tenant, column, seconds)
    cordon(tenant, notice, 409)


def test_further_changes_with_a_cordon(tenant):
    notice, = report(tenant, 'free-2', cordon=False)
    for name in NAMES:
        cordon(tenant, notice, 403, **{name: {'in': HOUR}})
    assert see(tenant) == [notice]


@pytest.mark.on('sqlite', 'server')
def test_notice_of_others(tenant):
    other, = post(tenant, 'free-2', cordon=False, kind='fault')
    cordon(tenant, other, 403)
    mine, = report(tenant, 'free-2', cordon=False)
    for persona, status in ('a-reader', 403), ('b-member', 404):
        cordon(tenant, mine, status, persona)
    # Another user of the project.
    cordon(tenant, mine, persona='a-admin')


@pytest.mark.on('sqlite', 'server')
def test_project_that_no_longer_has_the_machine(tenant):
    notice, = report(tenant, 'free-2', cordon=False)
    delete_server(tenant)
    assert 'server' in cordon(tenant, notice, 403)
    deploy(tenant, 'free-2', 'b')
    cordon(tenant, notice, 403)
    make_pool(tenant, 'of-b-2')


@pytest.mark.on('sqlite', 'server')
def test_cordon_that_an_operator_has_set_or_removed(tenant):
    """A project does not change the first; the second it may set again."""
    notice, = report(tenant, 'free-2', cordon=False)
    theirs = patch(tenant, notice, cordon=True, ends_at={'in': HOUR})
    assert cordon(tenant, notice) == theirs
    after, = patch(tenant, notice, 'a-member', cordon=True, ticket='T')
    assert (after['ends_at'], after['ticket']) == (theirs[0]['ends_at'], 'T')
    patch(tenant, notice, cordon=False)
    after, = cordon(tenant, notice)
    assert after['ends_at'] is None


@pytest.mark.on('sqlite', 'server')
def test_report_of_several_machines(tenant):
    """One of them was enrolled again, and so is another machine."""
    make_pool(tenant, 'of-b-2')
    notice, _ = report(tenant, 'free-2', 'of-b-2', cordon=False)
    assert len(cordon(tenant, notice)) == 2
    patch(tenant, notice, cordon=False)
    tenant.ironic.execute("UPDATE nodes SET id = id + 1000 "
                          "WHERE name = 'of-b-2'")
    try:
        after, = cordon(tenant, notice)
        assert after['node_name'] == 'free-2'
    finally:
        tenant.ironic.execute("UPDATE nodes SET id = id - 1000 "
                              "WHERE name = 'of-b-2'")


# The limit

@pytest.fixture
def four(tenant):
    """The tenant with servers of A on free-2, of-b-2, leased-to-a-1 and -2.
    """
    for node in 'of-b-2', 'leased-to-a-1', 'leased-to-a-2':
        deploy(tenant, node)
    yield tenant


@pytest.mark.on('sqlite', 'server')
def test_limit(four):
    """It is that of the project, not of a user."""
    report(four, 'free-2')
    report(four, 'of-b-2', persona='a-admin')
    fault = report(four, 'leased-to-a-1', status=409)
    assert 'At most 2 ' in fault and 'project_cordons' in fault
    report(four, 'leased-to-a-1', status=409, persona='a-manager')
    notice, = report(four, 'leased-to-a-1', cordon=False)
    assert cordon(four, notice, 409) == fault
    # Operators have no limit.
    post(four, 'leased-to-a-1')
    with application.set_options({'reservations': {'project_cordons': 3}}):
        cordon(four, notice)


@pytest.mark.on('sqlite', 'server')
def test_limit_of_another_project(four):
    report(four, 'free-2', 'of-b-2')
    four.set_node('of-b-1', owner=None, provision_state='active')
    try:
        report(four, 'of-b-1', persona='b-member')
    finally:
        four.set_node('of-b-1', owner=four.projects['b'])


@pytest.mark.on('sqlite', 'server')
def test_all_or_none(four):
    names = 'free-2', 'of-b-2', 'leased-to-a-1'
    report(four, *names, status=409)
    assert see(four) == []
    notice = report(four, *names, cordon=False)[0]
    cordon(four, notice, 409)
    assert not any(row['cordon'] for row in see(four))


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('changes', [
    {'ends_at': 'now'}, {'cordon': False}], ids=str)
def test_cordon_that_does_not_count(four, changes):
    first, _ = report(four, 'free-2', 'of-b-2')
    patch(four, first, node='free-2', **changes)
    report(four, 'leased-to-a-1')
    report(four, 'leased-to-a-2', status=409)


@pytest.mark.on('sqlite', 'server')
def test_cordons_of_operators_do_not_count(four):
    """A failed build has the project in which it happened, too."""
    post(four, 'free-2', 'of-b-2', 'leased-to-a-1')
    for node in 'free-2', 'of-b-2':
        build, = post(four, node, persona='system-service', kind='fault',
                      category='build')
        patch(four, build, cordon=True)
    report(four, 'leased-to-a-1', 'leased-to-a-2')


@pytest.mark.on('sqlite', 'server')
def test_planned_cordon_counts(four):
    """An operator has postponed it."""
    first, _ = report(four, 'free-2', 'of-b-2')
    patch(four, first, starts_at={'in': HOUR})
    report(four, 'leased-to-a-1', status=409)


@pytest.mark.on('sqlite', 'server')
def test_cordon_of_a_deleted_node(tenant):
    report(tenant, 'free-2')
    with tenant.ironic.fleet({'name': 'gone', 'properties': {
            'memory_mb': 1024}}):
        make_pool(tenant, 'gone')
        report(tenant, 'gone')
        make_pool(tenant, 'of-b-2')
        report(tenant, 'of-b-2', status=409)
        tenant.ironic.execute("DELETE FROM nodes WHERE name = 'gone'")
        report(tenant, 'of-b-2')


# The next holder

@pytest.mark.on('sqlite', 'server')
def test_next_holder_sees_nothing(tenant):
    notice, = report(tenant, 'free-2', description='secret', ticket='T')
    delete_server(tenant)
    patch(tenant, notice, cordon=False)
    reservation = deploy(tenant, 'free-2', 'b')
    for query in ({}, {'uuid': notice['uuid']}, {'node': 'free-2'},
                  {'ticket': 'T'}, {'project_id': tenant.projects['a']}):
        assert see(tenant, 'b-member', **query) == []
    row = tenant.get('b-member', f'{OURS}/{reservation["instance_uuid"]}')
    assert (row['notices'], row['more_notices']) == ([], 0)
    for changes in {'ticket': 'x'}, {'cordon': True}, {'starts_at': 'now'}:
        patch(tenant, notice, 'b-member', 404, **changes)
    # A still sees its report, and no longer has the machine.
    assert see(tenant, 'a-member')[0]['uuid'] == notice['uuid']
    cordon(tenant, notice, 403)
    report(tenant, 'free-2', persona='b-member')


def test_project_that_no_longer_exists(tenant):
    """Its reports stay: nothing refers to the project."""
    notice, = report(tenant, 'free-2')
    delete_server(tenant)
    tenant.ironic.execute('DELETE FROM reservations_projects')
    assert see(tenant) == [notice]
    assert not is_offered(tenant)
