# SPDX-License-Identifier: Apache-2.0
"""The panels: notices, and the cordons of operators."""

import datetime
import re
import uuid
import zoneinfo

import pytest

from ironic_reservations.db import models
from tests.dashboard import test_dashboard

EVIL = test_dashboard.EVIL


@pytest.fixture
def fault(cloud):
    """An open notice of the node that is reserved for team-a."""
    service = cloud.admin.baremetal_reservations
    reservation = service.create(
        candidate_nodes=['gold-1'], expires_in=3600,
        project_id=cloud.projects['team-a'])
    notice, = service.create_notices(
        'fault', nodes=['gold-1'], category='gpu', description=EVIL,
        ticket='RMA-7')
    yield notice
    for notice in service.notices(node='gold-1'):
        if notice.state != 'closed':
            service.close_notices(notice)
    service.release(reservation)


def list_notices(cloud):
    """Return (kind, cordon, ticket, description, action) by state."""
    return {(notice.state, notice.kind): (
                notice.cordon, notice.ticket, notice.description,
                notice.action)
            for notice in cloud.admin.baremetal_reservations.notices(
                node='gold-1')}


def squeeze(visitor):
    return re.sub(r'\s+', ' ', visitor.main.inner_text())


def alert(visitor):
    return visitor.main.get_by_role('alert').inner_text()


def nodes_in_form(page):
    return page.get_by_label('Nodes', exact=True).input_value()


def test_operator_cordons_and_uncordons(admin, cloud, fault):
    page = admin.open('notices/')
    assert re.match('gold-1 open fault: gpu .* no end .*RMA-7 Cordon',
                    admin.rows()['gold-1'])
    admin.follow('link', 'Cordon gold-1')
    assert nodes_in_form(page) == 'gold-1'
    assert 'RMA-7' in admin.main.inner_text()
    page.get_by_label('Ticket').fill('RMA-8')
    admin.follow('button', 'Cordon')
    assert 'Cordoned: gold-1.' in page.inner_text('body')
    open_fault = {('open', 'fault'): (False, 'RMA-7', EVIL, None)}
    assert list_notices(cloud) == open_fault | {
        ('open', 'maintenance'): (True, 'RMA-8', None, None)}
    assert admin.main.locator('tbody tr').count() == 2
    admin.follow('link', 'Uncordon gold-1')
    assert page.get_by_role('heading', name='Uncordon gold-1').is_visible()
    page.get_by_label('What was done').fill('New fan')
    admin.follow('button', 'Uncordon')
    assert list_notices(cloud) == open_fault | {
        ('closed', 'maintenance'): (True, 'RMA-8', None, 'New fan')}
    assert admin.main.locator('tbody tr').count() == 1
    page.get_by_label('State').select_option('closed')
    admin.follow('button', 'Filter')
    assert 'done: New fan' in admin.rows()['gold-1']
    # Another operator has been faster.
    admin.open(f'notices/{fault.node_uuid}/uncordon/')
    admin.follow('button', 'Uncordon')
    assert 'Node gold-1 had no open cordon' in page.inner_text('body')


def test_overdue(admin, ada, cloud, ironic, fault):
    """An operator sees at once which work has taken too long."""
    page = admin.open('notices/cordon/?node=gold-1')
    page.get_by_label('Due').fill('1h')
    page.get_by_label('Ticket').fill('CHG-1')
    admin.follow('button', 'Cordon')
    work, = cloud.admin.baremetal_reservations.notices(ticket='CHG-1')
    due = work.due_at[:16].replace('T', ' ')
    rows = admin.main.locator('tbody tr')
    row = rows.filter(has_text='CHG-1')
    assert f'due {due} UTC' in row.inner_text()
    assert page.get_by_text('overdue', exact=True).count() == 0
    ironic.execute('UPDATE reservations_notices SET starts_at = :s, '
                   'due_at = :d WHERE uuid = :u', u=work.uuid,
                   s='2020-01-01 00:00:00.000000',
                   d='2020-01-02 00:00:00.000000')
    for visitor in admin, ada:
        for path in 'notices/', 'reservations/':
            page = visitor.open(path)
            assert page.get_by_text('overdue', exact=True).count() == 1
    page = admin.open('notices/')
    page.get_by_label('Overdue').select_option('true')
    admin.follow('button', 'Filter')
    assert 'open overdue maintenance' in admin.rows()['gold-1']
    assert rows.count() == 1
    test_dashboard.check_looks(admin, 'notices/')


def test_notice_is_changed_and_closed(admin, cloud, fault):
    service = cloud.admin.baremetal_reservations
    page = admin.open('notices/')
    admin.follow('link', 'Change the notice of gold-1')
    assert page.get_by_label('Ticket').input_value() == 'RMA-7'
    service.update_notices(fault, category='fan')
    page.get_by_label('Due').fill('4h')
    page.get_by_label('Until').fill('1h')
    admin.follow('button', 'Save')
    assert 'Due: must not be later than Until' in alert(admin)
    page.get_by_label('Until').fill('')
    admin.follow('button', 'Save')
    assert 'The notice was changed.' in page.inner_text('body')
    notice, = service.notices(uuid=fault.uuid)
    assert (notice.category, notice.ticket, notice.description) == (
        'fan', 'RMA-7', EVIL)
    assert notice.due_at and notice.ends_at is None
    admin.follow('link', 'Change the notice of gold-1')
    page.get_by_label('Until').fill('now')
    page.get_by_label('What was done').fill('New fan')
    page.get_by_label('Ticket').fill('')
    admin.follow('button', 'Save')
    notice, = service.notices(uuid=fault.uuid)
    assert (notice.state, notice.action, notice.ticket) == (
        'closed', 'New fan', None)


def test_operator_plans_work_on_a_domain(admin, cloud):
    service = cloud.admin.baremetal_reservations
    page = admin.open('notices/')
    admin.follow('link', 'Cordon nodes')
    page.get_by_label('Nodes', exact=True).fill('gold-2')
    page.get_by_label('Or a domain').fill('rack')
    admin.follow('button', 'Cordon')
    assert '"rack" is not <key>=<value>' in (
        page.get_by_role('alert').inner_text())
    page.get_by_label('Or a domain').fill('capability:rack=r1')
    admin.follow('button', 'Cordon')
    assert 'Enter either nodes or a domain.' in (
        page.get_by_role('alert').inner_text())
    page.get_by_label('Nodes', exact=True).fill('')
    page.get_by_label('Kind').select_option('retirement')
    page.get_by_label('From').fill('2999-12-31T18:00:00Z')
    page.get_by_label('Latest start').fill('2999-12-30T18:00:00Z')
    page.get_by_label('Due').fill('2999-12-31T20:00:00Z')
    admin.follow('button', 'Cordon')
    assert re.search('Latest start: must be later than now, and not earlier '
                     'than From', page.get_by_role('alert').inner_text())
    page.get_by_label('Latest start').fill('2999-12-31T19:00:00Z')
    admin.follow('button', 'Cordon')
    notices = [*service.notices(state='planned')]
    try:
        assert len(notices) > 1
        assert f'Cordon planned: {len(notices)} nodes.' in (
            page.inner_text('body'))
        assert {(notice.kind, notice.cordon, notice.starts_at[:16],
                 notice.latest_start[:16], notice.due_at[:16])
                for notice in notices} == {
            ('retirement', True, '2999-12-31T18:00', '2999-12-31T19:00',
             '2999-12-31T20:00')}
        page.get_by_label('State').select_option('planned')
        admin.follow('button', 'Filter')
        assert {*admin.rows()} == {notice.node_name for notice in notices}
        assert ('due 2999-12-31 20:00 UTC latest start 2999-12-31 19:00 UTC'
                ) in admin.rows()[notices[0].node_name]
        # Other rows of the page have the node's name in their link, too.
        admin.follow('link', f'Cordon {notices[0].node_name}')
        assert 'retirement' in admin.main.inner_text()
    finally:
        for notice in notices:
            service.close_notices(notice)


def test_pages_lead_to_the_cordon_of_their_node(admin, cloud, fault):
    page = admin.open('reservations/')
    admin.follow('link', 'gold-1')
    admin.follow('link', 'Cordon this node')
    assert nodes_in_form(page) == 'gold-1'
    assert 'RMA-7' in admin.main.inner_text()
    admin.open('reservations/')
    admin.follow('link', 'gold-1')
    admin.follow('link', 'Who had this node')
    admin.follow('link', 'Cordon this node')
    assert nodes_in_form(page) == 'gold-1'
    pool = cloud.admin.baremetal_reservations.create_pool(
        cloud.projects['team-a'], 1, {'candidate_nodes': ['gold-1', 'gold-2',
                                                          'gold-3']})
    try:
        admin.open(f'pools/{pool.id}/')
        name = pool.nodes[0]['name']
        admin.follow('link', f'Cordon {name}')
        assert nodes_in_form(page) == name
    finally:
        cloud.admin.baremetal_reservations.delete_pool(pool)


def test_open_notices_behind_a_long_history(admin, cloud, ironic, fault):
    service = cloud.admin.baremetal_reservations
    old, = service.create_notices('fault', nodes=['gold-1'], ticket='RMA-0')
    service.close_notices(old)
    names = ', '.join(column.name for column in models.Notice.__table__.columns
                      if column.name not in ('id', 'number'))
    # More than fit into a page.
    ironic.execute(
        f'INSERT INTO reservations_notices (number, {names}) '
        f'WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 '
        f'FROM numbers WHERE n < 1000) SELECT n, {names} '
        f'FROM reservations_notices, numbers WHERE uuid = :u', u=old.uuid)
    service.create_notices('maintenance', nodes=['gold-1'], ticket='RMA-8')
    service.create_notices('maintenance', nodes=['gold-1'], ticket='RMA-9',
                           starts_at='2999-12-31T18:00:00Z')
    for path in ('notices/cordon/?node=gold-1',
                 f'notices/{fault.node_uuid}/uncordon/'):
        admin.open(path)
        assert re.findall(r'RMA-\d', admin.main.inner_text()) == [
            'RMA-7', 'RMA-8', 'RMA-9']
    ironic.execute('DELETE FROM reservations_notices WHERE uuid = :u',
                   u=old.uuid)


def test_cordon_is_refused(admin, cloud, fault):
    before = list_notices(cloud)
    page = admin.open(f'notices/cordon/?node={uuid.uuid4()}')
    page.get_by_label('Ticket').fill('RMA-8')
    admin.follow('button', 'Cordon')
    assert 'Nodes: must be the UUID or the name of a node' in (
        page.get_by_role('alert').inner_text())
    assert page.get_by_label('Ticket').input_value() == 'RMA-8'
    admin.open('notices/?state=nonsense')
    assert admin.main.locator('.has-error').count() == 1
    assert list_notices(cloud) == before


def test_notices_of_a_reservation(admin, ada, fault):
    for visitor in admin, ada:
        page = visitor.open('reservations/')
        assert 'open fault: gpu' in visitor.rows()['gold-1']
        visitor.follow('link', 'gold-1')
        assert 'open fault: gpu' in re.sub(
            r'\s+', ' ', visitor.main.inner_text())
        assert EVIL in visitor.main.inner_text()
        assert page.title() != 'owned'
    # A tenant sees what is announced, and leaves cordons to operators.
    ada.open('notices/')
    assert 'RMA-7' in ada.rows()['gold-1']
    assert ada.page.get_by_role('link', name=re.compile('ordon')).count() == 0


@pytest.fixture
def server(cloud):
    """The reservation of a machine that carries a server of team-a."""
    service = cloud.admin.baremetal_reservations
    reservation, = service.list(project_id=cloud.projects['team-a'],
                                state='active')
    yield reservation
    for notice in service.notices(node=reservation.node_uuid):
        if notice.state != 'closed':
            service.close_notices(notice)


def test_project_chooses_the_time(ada, admin, cloud, server):
    service = cloud.admin.baremetal_reservations
    work, = service.create_notices(
        'maintenance', nodes=[server.node_uuid], starts_at={'in': 86400},
        due_at={'in': 90000}, latest_start={'in': 5 * 86400})
    path = f'reservations/{server.instance_uuid}/'
    admin.open(path)
    assert 'latest start' in admin.main.inner_text()
    assert admin.page.get_by_role('link', name='Choose the time').count() == 0
    tokyo = zoneinfo.ZoneInfo('Asia/Tokyo')
    ada.page.context.add_cookies([{
        'name': 'django_timezone', 'value': tokyo.key, 'url': ada.url}])
    try:
        page = ada.open(path)
        ada.follow('link', 'Choose the time')
        latest = datetime.datetime.fromisoformat(
            work.latest_start).astimezone(tokyo)
        assert (f'In your time zone, at the latest {latest:%Y-%m-%d %H:%M} '
                f'JST') in squeeze(ada)
        ada.follow('button', 'Save')
        assert 'Enter either a time or "Begin now".' in alert(ada)
        field = page.get_by_label('Begin at')
        field.fill('2999-01-01T00:00')
        assert not field.evaluate('field => field.checkValidity()')
        field.evaluate('field => field.removeAttribute("max")')
        ada.follow('button', 'Save')
        assert 'Begin at: must be from now to latest_start' in alert(ada)
        choice = latest.replace(second=0, microsecond=0)
        page.get_by_label('Begin at').fill(f'{choice:%Y-%m-%dT%H:%M}')
        ada.follow('button', 'Save')
        notice, = service.notices(uuid=work.uuid)
        start, due = (datetime.datetime.fromisoformat(time)
                      for time in (notice.starts_at, notice.due_at))
        assert start == choice and due - start == datetime.timedelta(hours=1)
        assert f'{choice:%Y-%m-%d %H:%M} JST' in squeeze(ada)
        assert 'time chosen by the project on' in squeeze(ada)
    finally:
        ada.page.context.clear_cookies(name='django_timezone')
    ada.follow('link', 'Choose the time')
    page.get_by_label('Begin now').check()
    ada.follow('button', 'Save')
    assert 'The time was chosen.' in page.inner_text('body')
    assert 'open maintenance cordon' in squeeze(ada)
    assert page.get_by_role('link', name='Choose the time').count() == 0
    # It has begun since the form was shown.
    ada.open(f'{path}schedule/{work.uuid}/')
    page.get_by_label('Begin now').check()
    ada.follow('button', 'Save')
    assert 'cannot be moved' in ada.main.locator('.alert').inner_text()


def test_time_of_a_hold_cannot_be_chosen(ada, cloud, fault):
    """A reservation without a server gives no right to it."""
    service = cloud.admin.baremetal_reservations
    service.create_notices('maintenance', nodes=['gold-1'], starts_at={
        'in': 86400}, latest_start={'in': 5 * 86400})
    ada.open('reservations/')
    ada.follow('link', 'gold-1')
    assert 'latest start' in ada.main.inner_text()
    assert ada.page.get_by_role('link', name='Choose the time').count() == 0


def test_project_reports_a_fault(ada, cloud, server):
    service = cloud.admin.baremetal_reservations

    def report(instance, description, cordon):
        page = ada.open(f'reservations/{instance}/')
        ada.follow('link', 'Report a fault')
        page.get_by_label('Category').fill('gpu')
        page.get_by_label('Description').fill(description)
        page.get_by_label('Give back').set_checked(cordon)
        ada.follow('button', 'Report')
        return page

    def read():
        return [(notice.cordon, notice.description, notice.project_id)
                for notice in service.notices(node=server.node_uuid,
                                              state='open')]

    project = cloud.projects['team-a']
    page = report(server.instance_uuid, EVIL, cordon=False)
    assert 'The fault was reported.' in page.inner_text('body')
    assert 'open fault: gpu' in squeeze(ada) and EVIL in squeeze(ada)
    assert read() == [(False, EVIL, project)]
    report(server.instance_uuid, 'again', cordon=False)
    assert 'already' in alert(ada)
    # The report gets the cordon.
    report(server.instance_uuid, 'XID 79', cordon=True)
    assert read() == [(True, 'XID 79', project)]
    # A hold cannot be given back as broken.
    hold = service.create(candidate_nodes=['gold-3'], project_id=project)
    try:
        report(hold.instance_uuid, 'mine, too', cordon=True)
        assert 'while the node carries its server' in alert(ada)
        assert page.get_by_label('Description').input_value() == 'mine, too'
        assert page.get_by_label('Give back').is_checked()
    finally:
        service.release(hold)


@pytest.fixture
def hex_node(cloud, ironic):
    """A node in a pool, whose UUID has no dashes."""
    service, project = (cloud.admin.baremetal_reservations,
                        cloud.projects['team-a'])
    node = cloud.admin.baremetal.create_node(
        driver='fake-hardware', name='hex-1', id=uuid.uuid4().hex)
    ironic.set_node(node.id, provision_state='available',
                    power_state='power off')
    request = {'candidate_nodes': [node.id]}
    pool = service.create_pool(project, 1, request)
    reservation = service.create(project_id=project, **request)
    notice, = service.create_notices('fault', nodes=[node.id])
    yield reservation
    for notice in service.notices(node=node.id):
        if notice.state != 'closed':
            service.close_notices(notice)
    service.release(reservation)
    service.delete_pool(pool)
    cloud.admin.baremetal.delete_node(node)


def test_node_without_dashes(admin, hex_node):
    """No page fails, and the links lead to the node."""
    page = admin.open('reservations/')
    admin.follow('link', 'hex-1')
    admin.follow('link', 'Who had this node')
    assert hex_node.instance_uuid in admin.main.inner_text()
    admin.open('notices/')
    for verb in 'Cordon', 'Uncordon':
        admin.follow('link', f'{verb} hex-1')
        admin.follow('button', verb)
        assert re.search(f'(?i){verb}ed[:.]', page.inner_text('body'))
    admin.open('pools/')
    pool, = admin.rows()
    admin.follow('link', pool)
    admin.follow('link', 'Replace hex-1')
    admin.follow('button', 'Replace the machine')
    assert 'No free node matches' in admin.main.locator(
        '.alert-danger').inner_text()


@pytest.mark.parametrize('path', ['notices/', 'reservations/',
                                  'notices/cordon/?node={}',
                                  'notices/{0}/uncordon/',
                                  'notices/{0}/change/{1}/'])
def test_looks(admin, fault, path):
    test_dashboard.check_looks(admin, path.format(fault.node_uuid, fault.uuid))


@pytest.mark.parametrize('end', ['', 'report/', 'schedule/{}/'])
def test_looks_of_the_project(ada, cloud, server, end):
    work, = cloud.admin.baremetal_reservations.create_notices(
        'maintenance', nodes=[server.node_uuid], starts_at={'in': 86400},
        latest_start={'in': 5 * 86400})
    test_dashboard.check_looks(ada, f'reservations/{server.instance_uuid}/'
                               + end.format(work.uuid))
