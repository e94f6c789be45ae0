# SPDX-License-Identifier: Apache-2.0
"""Somebody looks at the fleet, filters, asks why, and releases."""

import re
import time
import uuid

from axe_playwright_python import sync_playwright as axe
import pytest

from ironic_reservations.osc import reservation as osc

EVIL = '<script>document.title = "owned"</script>'
PAGES = ('', 'reservations/', 'groups/', 'hosts/', 'ask/')
#: So many reservations more, and for so long a page may be awaited.
MANY, SECONDS = 10_000, 2


@pytest.fixture
def held(cloud):
    """A reservation of team-a, which somebody may have released since."""
    made = cloud.admin.baremetal_reservations.create(
        candidate_nodes=['gold-1'], expires_in=3600,
        project_id=cloud.projects['team-a'])
    yield made
    cloud.admin.baremetal_reservations.release(made)


# To look

def test_capacity_at_a_glance(admin, cloud):
    page = admin.open()
    counts = [each.to_dict() for each in
              cloud.admin.baremetal_reservations.capacity()]
    whole = {key: sum(each[key] for each in counts) for key in (
        'total', 'free', 'reserved', 'taken', 'out_of_service')}
    assert whole['total'] == 16 and whole['taken'] and whole['out_of_service']
    assert page.get_by_role('heading', level=2).inner_text() == (
        f'{whole["free"]} of 16 machines are free')
    said = ('{free} free, {reserved} held, {taken} taken, '
            '{out_of_service} out of service').format(**whole)
    assert page.get_by_role('img', name=said, exact=True).is_visible()
    assert len(admin.rows()) == len(counts)
    gold = admin.main.get_by_role('row').filter(has_text='256 GiB').filter(
        has_text='baremetal.gold')
    assert '96 CPUs' in gold.inner_text() and 'rack: r2' in gold.inner_text()
    # The longest bar of the page fills its room.
    widths = [each.get_attribute('width') for each in
              admin.main.locator('tbody svg rect').all()]
    assert '100.000%' in widths


@pytest.mark.parametrize(('by', 'named'), [
    ('Resource class', 'baremetal.gold'), ('rack', 'r1'), ('Shard', 'east'),
    ('Owner', 'none')])
def test_capacity_is_summed(admin, by, named):
    page = admin.open()
    page.get_by_label('One row for each').select_option(by)
    page.get_by_role('button', name='Show').click()
    total = admin.main.locator('tbody tr td:last-child').all_inner_texts()
    assert sum(map(int, total)) == 16
    assert any(row.startswith(named) for row in admin.rows())


def test_project_sees_its_own(ada):
    ada.open()
    assert 'of 2 machines' in ada.main.inner_text()
    assert ada.page.get_by_role('link', name='Compute hosts').count() == 0
    assert ada.page.goto(f'{ada.url}/hosts/').status == 404
    ada.open('reservations/')
    assert {*ada.rows()} == {'silver-2', 'arm-1'} or {*ada.rows()} == {
        'silver-5', 'arm-1'}
    assert 'project' not in ada.main.locator('thead').inner_text().lower()


def test_reservations_are_filtered_and_sorted(admin, held):
    page = admin.open('reservations/')
    everything = admin.rows()
    assert 'team-b' in everything['gpu-1']
    assert re.search(r'in (9|10) minutes|minutes from now',
                     everything['gpu-1'])
    page.get_by_label('State').select_option('active')
    page.get_by_role('button', name='Filter').click()
    active, = admin.rows().values()
    assert 'in use' in active and 'ends with its server' in active
    page.get_by_role('link', name='Show all').click()
    page.get_by_label('Node (name or UUID)').fill('gold-1')
    page.get_by_label('Node (name or UUID)').press('Enter')
    assert {*admin.rows()} == {'gold-1'}
    page.get_by_role('link', name='Show all').click()
    hosts = []
    for direction in 'ascending', 'descending':
        page.get_by_role('link', name=re.compile('^Compute host(?!s)')).click()
        header = page.locator(f'th[aria-sort={direction}]')
        assert header.inner_text().startswith('Compute host')
        hosts.append([*admin.rows()])
    assert {*hosts[0]} == {*everything} and hosts[0] != hosts[1]


def test_states_are_the_servers(admin):
    """The panel has its own copy: it imports nothing of the server."""
    page = admin.open('reservations/')
    assert page.get_by_label('State').locator('option').evaluate_all(
        'all => all.map(each => each.value)') == ['', *osc.STATES]


def test_groups_and_hosts(admin):
    admin.open('groups/')
    group, = admin.rows().values()
    assert 'pack capability:rack team-b 2' in group and 'r1' in group
    assert admin.page.get_by_role('img', name='2 members').is_visible()
    page = admin.open('hosts/')
    assert 'yes' in admin.rows()['compute-1']
    page.get_by_role('link', name='compute-1', exact=True).click()
    assert len(admin.rows()) == 1


def test_one_reservation(admin, held):
    page = admin.open('reservations/')
    page.get_by_role('link', name='gold-1', exact=True).click()
    text = admin.main.inner_text()
    assert held.instance_uuid in text and 'candidate_nodes' in text


# To release

def test_release_is_confirmed(ada, held, cloud):
    page = ada.open('reservations/')
    page.get_by_role('link', name='Release gold-1').click()
    dialog = page.get_by_role('dialog')
    dialog.get_by_text(held.instance_uuid).wait_for()
    dialog.get_by_role('link', name='Keep it').click()
    dialog.wait_for(state='hidden')
    assert cloud.admin.baremetal_reservations.show(held.instance_uuid)
    page.get_by_role('link', name='Release gold-1').click()
    page.get_by_role('button', name='Release', exact=True).click()
    page.get_by_text('is free again').wait_for()
    assert 'gold-1' not in ada.rows()
    assert cloud.admin.baremetal.get_node('gold-1').instance_id is None


def test_release_by_keyboard(ada, held):
    page = ada.open(f'reservations/{held.instance_uuid}/')
    button = page.get_by_role('link', name='Release')
    for _ in range(200):
        page.keyboard.press('Tab')
        if button.evaluate('it => it === document.activeElement'):
            break
    page.keyboard.press('Enter')
    page.get_by_role('dialog').get_by_text(held.instance_uuid).wait_for()
    # What opened has the focus, or the next Tab reaches it.
    confirm = page.get_by_role('button', name='Release', exact=True)
    for _ in range(20):
        page.keyboard.press('Tab')
        if confirm.evaluate('it => it === document.activeElement'):
            break
    page.keyboard.press('Enter')
    page.get_by_text('is free again').wait_for()


@pytest.mark.parametrize('token', [None, 'forged'])
def test_release_needs_the_token_of_the_form(ada, held, cloud, token):
    url = f'{ada.url}/reservations/{held.instance_uuid}/release/'
    answer = ada.page.request.post(
        url, form={'csrfmiddlewaretoken': token} if token else {})
    assert answer.status == 403
    # To look at the question releases nothing.
    assert ada.page.request.get(url).status == 200
    assert cloud.admin.baremetal_reservations.show(held.instance_uuid)


def test_release_is_refused(ada, admin, cloud):
    """A server that was begun meanwhile keeps its machine."""
    active, = cloud.admin.baremetal_reservations.list(state='active')
    page = admin.open(f'reservations/{active.instance_uuid}/release/')
    page.get_by_role('button', name='Release').click()
    page.get_by_text('active').first.wait_for()
    assert page.locator('.alert-danger').is_visible()
    assert cloud.admin.baremetal_reservations.show(active.instance_uuid)
    # Somebody else's is not there.
    other, = cloud.admin.baremetal_reservations.list(node='gpu-1')
    ada.open(f'reservations/{other.instance_uuid}/release/')
    assert ada.page.locator('.alert-danger').is_visible()
    assert ada.page.url.endswith('/reservations/')


# To ask

def test_why_nothing_matches(admin):
    page = admin.open('ask/')
    page.get_by_label('Resource class').fill('baremetal.gold')
    page.get_by_label('Traits it must have').fill('CUSTOM_FPGA')
    page.get_by_role('button', name='Ask').click()
    text = admin.main.inner_text()
    assert '0 of 16 machines could be held now' in text
    assert '12 are not of resource class CUSTOM_BAREMETAL_GOLD' in text
    assert 'do not have the trait CUSTOM_FPGA' in text
    assert 'Without trait:CUSTOM_FPGA=required it would be' in text
    assert page.get_by_role('img', name='4 are left, 12 fall away'
                            ).is_visible()


def test_what_matches(admin, cloud):
    before = len([*cloud.admin.baremetal_reservations.list()])
    page = admin.open('ask/')
    page.get_by_label('Memory (MiB)').fill('65536')
    page.get_by_label('Capabilities').fill('gpus=>= 8, boot_mode')
    page.get_by_label('Traits it must not have').fill('CUSTOM_NVME')
    page.get_by_role('button', name='Ask').click()
    assert '1 of 16 machines' in admin.main.inner_text()
    assert [*admin.rows()] == ['baremetal.gpu']
    assert len([*cloud.admin.baremetal_reservations.list()]) == before


def test_nothing_is_asked_for(ada):
    page = ada.open('ask/')
    page.get_by_role('button', name='Ask').click()
    assert 'Say what the machine must be' in page.get_by_role(
        'alert').inner_text()
    page.get_by_label('CPUs').fill('64')
    page.get_by_role('button', name='Ask').click()
    assert 'of 2 machines' in ada.main.inner_text()


def test_a_request_that_ironic_refuses(admin):
    page = admin.open('ask/')
    page.get_by_label('Capabilities').fill('gpus=>= many')
    page.get_by_role('button', name='Ask').click()
    assert 'gpus' in page.get_by_role('alert').inner_text()


# Who sees nothing is told so

def test_without_system_scope(start_horizon, log_in):
    with start_horizon(system_scope=[]) as url:
        admin = log_in(url, 'admin', 'admin')
        for path in PAGES:
            admin.open(path)
            assert 'This is not the whole fleet' in admin.main.inner_text()


def test_panel_of_admins_is_theirs(ada, horizon):
    url = ada.url.replace('/project/', '/admin/')
    ada.page.goto(f'{url}/')
    assert ada.main.count() == 0
    ada.open()


# Those who do not see, and those who do harm

@pytest.mark.parametrize('path', [*PAGES, 'ask/?asked=yes&memory_mb=65536'])
def test_screen_readers(admin, path):
    page = admin.open(path)
    found = axe.Axe().run(page, context='.ir-page')
    assert not found.response['violations'], found.generate_report()


def test_names_are_texts(admin, ironic, held):
    """Of operators, and of whoever makes a link for another one."""
    whose = f"uuid = '{held.node_uuid}'"
    before, = ironic.execute(f'SELECT name, shard, resource_class, properties '
                             f'FROM nodes WHERE {whose}')
    ironic.execute(f'UPDATE nodes SET name = :e, shard = :e, '
                   f'resource_class = :e, properties = :p WHERE {whose}',
                   e=EVIL, p='{"memory_mb": 1024, "capabilities": '
                             '"<img src=x onerror=document.title=1>:<b>"}')
    ironic.execute('UPDATE reservations SET host = :e WHERE '
                   'instance_uuid = :i', e=EVIL, i=held.instance_uuid)
    evil = re.sub('[<>" =]', lambda it: f'%{ord(it[0]):02X}', EVIL)
    try:
        for path in (*PAGES, f'?by=shard&resource_class={evil}',
                     f'reservations/?host={evil}',
                     f'reservations/{held.instance_uuid}/',
                     f'reservations/{held.instance_uuid}/release/',
                     f'ask/?asked=yes&resource_class={evil}&traits={evil}',
                     f'reservations/?marker={evil}&sort_key={evil}'):
            page = admin.open(path)
            assert page.title() not in ('owned', '1')
            assert page.locator('.ir-page script, .ir-page img, .ir-page b'
                                ).count() == 0
        admin.open('reservations/')
        assert EVIL in admin.main.inner_text()
    finally:
        ironic.execute(f'UPDATE nodes SET name = :n, shard = :s, '
                       f'resource_class = :c, properties = :p WHERE {whose}',
                       **dict(zip('nscp', before, strict=True)))


# Many

@pytest.fixture
def many(ironic, cloud):
    """Reservations of 10,000 nodes that exist in the database alone."""
    project = cloud.projects['team-b']
    rows = [{'number': number, 'node': str(uuid.uuid4()),
             'instance': str(uuid.uuid4()), 'project': project}
            for number in range(MANY)]
    with ironic.engine.begin() as connection:
        for table, columns in (
                ('nodes', "uuid, name, instance_uuid, driver, "
                 "provision_state, power_state, resource_class, properties, "
                 "maintenance, created_at, version) VALUES (:node, "
                 "'many-' || :number, :instance, 'fake-hardware', "
                 "'available', 'power off', 'baremetal.many', "
                 "'{\"memory_mb\": 1024}', 0, '2026-01-01', '1.0'"),
                ('reservations', "instance_uuid, node_id, node_uuid, "
                 "project_id, request_spec, host, created_at) SELECT "
                 ":instance, id, :node, :project, '{}', 'host', "
                 "'2026-01-01' FROM nodes WHERE uuid = (:node")):
            connection.exec_driver_sql('SELECT 1')
            import sqlalchemy as sa
            connection.execute(sa.text(
                f'INSERT INTO {table} ({columns})'), rows)
    yield
    ironic.execute("DELETE FROM reservations WHERE host = 'host'")
    ironic.execute("DELETE FROM nodes WHERE resource_class = "
                   "'baremetal.many'")


def test_ten_thousand(admin, many):
    """No page of them is awaited for long, forth and back."""
    times = {}

    def timed(name, action):
        began = time.monotonic()
        action()
        times[name] = time.monotonic() - began

    for path in (*PAGES, 'reservations/?sort_key=expires_at&sort_dir=desc',
                 'ask/?asked=yes&resource_class=baremetal.many'):
        timed(path, lambda path=path: admin.open(path))
    page = admin.open('reservations/')
    seen = [[*admin.rows()]]
    for number in range(3):
        timed(f'next {number}', page.get_by_role(
            'link', name='Next page').first.click)
        seen.append([*admin.rows()])
    assert len({each for rows in seen for each in rows}) == sum(
        map(len, seen)) == 80
    for number in range(3):
        timed(f'previous {number}', page.get_by_role(
            'link', name='Previous page').first.click)
        assert [*admin.rows()] == seen[2 - number]
    assert page.get_by_role('link', name='Previous page').count() == 0
    print(times)
    assert not {name: took for name, took in times.items() if took > SECONDS}
