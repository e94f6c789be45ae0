# SPDX-License-Identifier: Apache-2.0
"""The panels: the fleet, filters, explanations and releases."""

import re
import time
import uuid

from axe_playwright_python import sync_playwright as axe
import pytest
import sqlalchemy as sa

from ironic_reservations import constants

EVIL = '<script>document.title = "owned"</script>'
PAGES = ('', 'reservations/', 'groups/', 'hosts/', 'ask/')
#: Number of additional reservations.
MANY = 10_000


@pytest.fixture
def reservation(cloud):
    """A reservation of team-a, which a test may release."""
    reservation = cloud.admin.baremetal_reservations.create(
        candidate_nodes=['gold-1'], expires_in=3600,
        project_id=cloud.projects['team-a'])
    yield reservation
    cloud.admin.baremetal_reservations.release(reservation)


def memory(row):
    """Return the GiB of memory in the text of a row."""
    return int(re.search(r'(\d+) GiB', row)[1])


# The lists

def test_capacity_at_a_glance(admin, cloud):
    page = admin.open()
    counts = [row.to_dict() for row in
              cloud.admin.baremetal_reservations.capacity()]
    whole = {key: sum(row[key] for row in counts) for key in (
        'total', 'free', 'reserved', 'taken', 'out_of_service')}
    assert whole['total'] == 16 and whole['taken'] and whole['out_of_service']
    assert page.get_by_role('heading', level=2).inner_text() == (
        f'{whole["free"]} of 16 machines are free')
    label = ('{free} free, {reserved} reserved, {taken} taken, '
             '{out_of_service} out of service').format(**whole)
    assert page.get_by_role('img', name=label, exact=True).is_visible()
    assert admin.main.locator('thead th').all_inner_texts()[2:] == [
        'Free', 'Reserved', 'Taken', 'Out of service', 'Total']
    # The order is that of the API: by class, then by numbers.
    sizes = [(re.match(r'\S+', row)[0], memory(row))
             for row in admin.main.locator('tbody tr').all_inner_texts()]
    assert sizes == sorted(sizes) == [
        (row['resource_class'], row['memory_mb'] // 1024) for row in counts]
    gold = admin.main.get_by_role('row').filter(has_text='256 GiB').filter(
        has_text='baremetal.gold')
    assert '96 CPUs' in gold.inner_text() and 'rack: r2' in gold.inner_text()
    # The longest bar of the page has the full width.
    widths = [bar.get_attribute('width') for bar in
              admin.main.locator('tbody svg rect').all()]
    assert '100.000%' in widths


@pytest.mark.parametrize(('by', 'name'), [
    ('Resource class', 'baremetal.gold'), ('rack', 'r1'), ('Shard', 'east'),
    ('Owner', 'none')])
def test_capacity_is_summed(admin, by, name):
    page = admin.open()
    page.get_by_label('Group by').select_option(by)
    admin.follow('button', 'Show')
    total = admin.main.locator('tbody tr td:last-child').all_inner_texts()
    assert sum(map(int, total)) == 16
    assert any(row.startswith(name) for row in admin.rows())


def test_project_sees_its_nodes(ada):
    ada.open()
    assert 'of 2 machines' in ada.main.inner_text()
    assert ada.page.get_by_role('link', name='Compute hosts').count() == 0
    assert ada.page.goto(f'{ada.url}/hosts/').status == 404
    ada.open('reservations/')
    assert len(ada.rows()) == 2 and 'arm-1' in ada.rows()
    assert 'project' not in ada.main.locator('thead').inner_text().lower()


def test_reservations_are_filtered_and_sorted(admin, reservation):
    page = admin.open('reservations/')
    everything = admin.rows()
    assert 'team-b' in everything['gpu-1']
    assert re.search(r'in (9|10) minutes|minutes from now',
                     everything['gpu-1'])
    page.get_by_label('State').select_option('active')
    admin.follow('button', 'Filter')
    active, = admin.rows().values()
    assert ' active ' in active and 'ends with its server' in active
    admin.follow('link', 'Show all')
    page.get_by_label('Node', exact=True).fill('gold-1')
    admin.follow('button', 'Filter')
    assert {*admin.rows()} == {'gold-1'}
    admin.follow('link', 'Show all')
    hosts = []
    for direction in 'ascending', 'descending':
        admin.follow('link', re.compile('^Compute host(?!s)'))
        header = page.locator(f'th[aria-sort={direction}]')
        assert header.inner_text().startswith('Compute host')
        hosts.append([*admin.rows()])
    assert {*hosts[0]} == {*everything} and hosts[0] != hosts[1]


def test_states_are_those_of_the_server(admin):
    """The panel has a copy, because it does not import the server."""
    page = admin.open('reservations/')
    assert page.get_by_label('State').locator('option').evaluate_all(
        'all => all.map(each => each.value)') == ['', *constants.STATES]


def test_groups_and_hosts(admin):
    admin.open('groups/')
    group, = admin.rows().values()
    assert 'pack capability:rack team-b 2' in group and 'r1' in group
    assert admin.page.get_by_role('img', name='2 members').is_visible()
    admin.open('hosts/')
    assert ' active ' in admin.rows()['compute-1']
    admin.follow('link', 'compute-1')
    assert len(admin.rows()) == 1


def test_members_of_a_group(admin):
    """The UUID of a group is a link, in both places that show it."""
    admin.open('groups/')
    group, = admin.rows()
    admin.follow('link', group)
    members = {*admin.rows()}
    assert len(members) == 2
    assert admin.page.locator('.ir-tabs .active').inner_text() == 'Groups'
    check_for_screen_readers(admin.page)
    admin.follow('link', members.pop())
    admin.follow('link', group)
    assert len(admin.rows()) == 2


def test_group_with_segments(admin, cloud):
    page = admin.open('ask/?asked=yes&resource_class=baremetal.silver')
    page.get_by_label('Machines', exact=True).fill('2')
    page.get_by_label('Group policy').select_option('pack')
    page.get_by_label('Domains of the group').fill('shard')
    page.get_by_label('Domains of segments').fill('capability:boot_mode')
    admin.follow('button', 'Reserve')
    assert 'segment' in page.get_by_role('alert').inner_text()
    page.get_by_label('Machines per segment').fill('1')
    admin.follow('button', 'Reserve')
    group_uuid = page.url.rstrip('/').rsplit('/', 1)[1]
    reservations = cloud.admin.baremetal_reservations
    try:
        check_for_screen_readers(page)
        text = re.sub(r'\s+', ' ', admin.main.inner_text())
        assert re.search('domain (east|west) / uefi · segment 0', text)
        assert 'segment 1' in text
        admin.open('groups/')
        row = admin.rows()[group_uuid]
        assert ('pack shard pack capability:boot_mode in segments of 1'
                ) in row
        assert '2 in 2 segments' in row
        assert re.search(r'(east|west) / uefi', row)
        member = reservations.show_group(group_uuid).reservations[0]
        admin.open(f'reservations/{member.instance_uuid}/')
        text = re.sub(r'\s+', ' ', admin.main.inner_text())
        assert (f'{group_uuid} pack shard pack capability:boot_mode domain '
                f'{member.group["domain"][0]} / uefi segment '
                f'{member.group["segment"]}') in text
    finally:
        reservations.release_group(group_uuid)


def test_segments_without_an_outer_level(admin, cloud):
    page = admin.open('ask/?asked=yes&resource_class=baremetal.silver')
    page.get_by_label('Machines', exact=True).fill('2')
    page.get_by_label('Machines per segment').fill('1')
    page.get_by_label('Domains of segments').fill('shard')
    admin.follow('button', 'Reserve')
    group_uuid = page.url.rstrip('/').rsplit('/', 1)[1]
    reservations = cloud.admin.baremetal_reservations
    assert reservations.show_group(group_uuid).levels == [
        {'by': 'shard', 'policy': 'pack', 'segment': 1}]
    reservations.release_group(group_uuid)


def test_one_reservation(admin, reservation):
    admin.open('reservations/')
    admin.follow('link', 'gold-1')
    text = admin.main.inner_text()
    assert reservation.instance_uuid in text and 'candidate_nodes' in text
    expires = reservation.expires_at[:16].replace('T', ' ')
    assert f'minutes from now {expires} UTC' in re.sub(r'\s+', ' ', text)


# Looks

@pytest.fixture
def phone(admin):
    """The admin, with a small screen."""
    before = admin.page.viewport_size
    admin.page.set_viewport_size({'width': 400, 'height': 800})
    yield admin
    admin.page.set_viewport_size(before)


@pytest.mark.parametrize('path', [
    *PAGES, '?by=owner', 'ask/?asked=yes&memory_mb=65536',
    'reservations/?node=gpu-1'])
def test_pages_do_not_scroll_sideways(phone, path):
    page = phone.open(path)
    for width in 400, 800, 1100:
        page.set_viewport_size({'width': width, 'height': 800})
        assert width == page.evaluate('document.documentElement.scrollWidth')
        for element in phone.main.locator('.btn, td').all():
            box = element.bounding_box()
            assert box['x'] + box['width'] <= width


@pytest.mark.parametrize('path', ['', 'reservations/'])
def test_filters_are_low(admin, path):
    page = admin.open(path)
    assert page.locator('.ir-filters').bounding_box()['height'] <= 100


def test_policies_of_groups(phone):
    """A policy and its domain are not cut, and next to their label."""
    page = phone.open('groups/')
    policy = page.get_by_text('capability:rack')
    assert policy.bounding_box()['x'] > 120
    page.set_viewport_size({'width': 1280, 'height': 800})
    assert policy.bounding_box()['height'] < 25


def test_kinds_of_tags_look_different(admin):
    page = admin.open()
    looks = {name: page.locator(f'.ir-{name}').first.evaluate(
        """tag => ['background-color', 'border-radius', 'box-shadow'].map(
        name => getComputedStyle(tag)[name]).join()""") for name in (
            'trait', 'capability', 'place', 'project')}
    assert len({*looks.values()}) == len(looks)
    assert page.locator('.ir-project').first.inner_text() == 'lessee: team-a'


# Reservations

def test_machine_is_reserved(ada, cloud):
    page = ada.open('ask/?asked=yes&candidate_nodes=gold-1')
    page.get_by_label('Description').fill('For the audit')
    page.get_by_label('Lease').fill('2h')
    ada.follow('button', 'Reserve')
    assert page.get_by_text('gold-1 was reserved').is_visible()
    reservations = cloud.admin.baremetal_reservations
    reservation, = reservations.list(node='gold-1')
    try:
        assert reservation.description == 'For the audit'
        assert reservation.project_id == cloud.projects['team-a']
        text = ada.main.inner_text()
        assert reservation.instance_uuid in text and 'For the audit' in text
        assert 'an hour from now' in text
    finally:
        reservations.release(reservation)


def test_reservation_for_a_project(admin, cloud):
    """Sending the form a second time reserves no second machine."""
    page = admin.open('ask/?asked=yes&resource_class=baremetal.silver')
    page.get_by_label('For the project').fill('team-b')
    form = admin.main.locator('form[method=post]').evaluate(
        'it => Object.fromEntries(new FormData(it))')
    admin.follow('button', 'Reserve')
    reservations = cloud.admin.baremetal_reservations
    reservation_id = page.url.rstrip('/').rsplit('/', 1)[1]
    try:
        assert 'team-b' in admin.main.inner_text()
        answer = page.request.post(
            f'{admin.url}/ask/?asked=yes&resource_class=baremetal.silver',
            headers={'Referer': admin.url}, form=form)
        assert answer.url == page.url
    finally:
        reservations.release(reservation_id)


def test_reservation_is_refused(ada, cloud):
    """The page explains the refusal."""
    page = ada.open('ask/?asked=yes&candidate_nodes=gold-1')
    reservations = cloud.admin.baremetal_reservations
    other = reservations.create(candidate_nodes=['gold-1'])
    try:
        ada.follow('button', 'Reserve')
        assert 'No free node matches' in page.get_by_role('alert').inner_text()
        text = ada.main.inner_text()
        assert '0 of 2 machines could be reserved now' in text
        assert '1 matching, but reserved or taken' in text
        assert page.get_by_role('button', name='Reserve').count() == 0
    finally:
        reservations.release(other)


def test_group_from_creation_to_release(ada, cloud):
    page = ada.open('ask/?asked=yes&vcpus=1')
    reservations = cloud.admin.baremetal_reservations
    arm, = reservations.list(node='arm-1')
    reservations.release(arm)
    try:
        page.get_by_label('Machines', exact=True).fill('3')
        page.get_by_label('Description').fill('For the audit')
        page.get_by_label('Group policy').select_option('spread')
        page.get_by_label('Domains of the group').fill('conductor_group')
        ada.follow('button', 'Reserve')
        assert 'of 3 members can be held' in page.get_by_role(
            'alert').inner_text()
        page.get_by_label('Machines', exact=True).fill('2')
        page.get_by_label('Group policy').select_option('soft-spread')
        ada.follow('button', 'Reserve')
        assert page.get_by_text('The group was reserved').is_visible()
        assert {*ada.rows()} == {'arm-1', 'gold-1'}
        text = ada.main.inner_text()
        assert 'soft-spread conductor_group' in text
        assert 'For the audit' in text
        ada.follow('link', 'Change the group')
        page.get_by_label('Description').fill('For the review')
        page.get_by_label('New lease').fill('7d')
        ada.follow('button', 'Save')
        assert 'For the review' in ada.main.inner_text()
        assert all('6 days' in row for row in ada.rows().values())
        ada.follow('link', 'Release the group')
        ada.follow('button', 'Release the group')
        assert page.get_by_text('was released').is_visible()
        assert not [*reservations.list(node='gold-1')]
    finally:
        for group in reservations.groups():
            if group.project_id == cloud.projects['team-a']:
                reservations.release_group(group)
        reservations.create(candidate_nodes=['arm-1'], expires_in=7200,
                            project_id=cloud.projects['team-a'])


def test_group_of_another_project(ada, cloud):
    group, = cloud.admin.baremetal_reservations.groups()
    for path in '', 'change/', 'release/':
        page = ada.open(f'groups/{group.uuid}/{path}')
        assert 'could be found' in page.get_by_role('alert').inner_text()


# Changes

def test_reservation_is_changed(ada, reservation, cloud):
    page = ada.open('reservations/')
    ada.follow('link', 'Change gold-1')
    check_for_screen_readers(page)
    page.get_by_label('Description').fill('Until the <b>audit</b>')
    page.get_by_label('New lease').fill('7d')
    ada.follow('button', 'Save')
    assert page.get_by_text('was changed').is_visible()
    text = re.sub(r'\s+', ' ', ada.main.inner_text())
    assert 'Until the <b>audit</b>' in text and '6 days' in text
    ada.follow('link', 'Change')
    field = page.get_by_label('Description')
    assert field.input_value() == 'Until the <b>audit</b>'
    field.fill('')
    ada.follow('button', 'Save')
    after = cloud.admin.baremetal_reservations.show(
        reservation.instance_uuid)
    assert after.description is None
    assert after.expires_at > reservation.expires_at
    ada.follow('link', 'Change')
    page.get_by_label('New lease').fill('never')
    ada.follow('button', 'Save')
    ada.open('reservations/')
    assert 'never' in ada.rows()['gold-1']


def test_change_is_refused(admin, reservation):
    page = admin.open(f'reservations/{reservation.instance_uuid}/change/')
    for entry, text in (('soon', 'not a valid time'), ('999d', '30d')):
        page.get_by_label('Description').fill('kept')
        page.get_by_label('New lease').fill(entry)
        admin.follow('button', 'Save')
        assert text in page.get_by_role('alert').inner_text()
        assert page.get_by_label('Description').input_value() == 'kept'
    admin.open('reservations/')
    assert 'kept' not in admin.rows()['gold-1']


def test_active_reservation_has_no_lease(admin, cloud):
    """Only its description can be changed."""
    reservations = cloud.admin.baremetal_reservations
    active, = reservations.list(state='active')
    page = admin.open(f'reservations/{active.instance_uuid}/change/')
    assert page.get_by_label('New lease').count() == 0
    page.get_by_label('Description').fill('web server')
    admin.follow('button', 'Save')
    assert 'web server' in admin.main.inner_text()
    reservations.describe(active, None)


# Releases

def look_up_colour(visitor, role):
    return visitor.page.get_by_role(role, name=re.compile('^Release')).first \
        .evaluate('it => getComputedStyle(it).backgroundColor')


def test_release_is_confirmed(ada, reservation, cloud):
    page = ada.open('reservations/')
    colour = look_up_colour(ada, 'link')
    ada.follow('link', 'Release gold-1')
    page.mouse.move(0, 0)
    assert look_up_colour(ada, 'button') == colour
    assert reservation.instance_uuid in ada.main.inner_text()
    ada.follow('link', 'Keep it')
    assert cloud.admin.baremetal_reservations.show(reservation.instance_uuid)
    ada.follow('link', 'Release')
    ada.follow('button', 'Release')
    assert page.get_by_text('was released').is_visible()
    assert 'gold-1' not in ada.rows()
    assert cloud.admin.baremetal.get_node('gold-1').instance_id is None


def test_release_by_keyboard(ada, reservation, cloud):
    ada.open('reservations/')
    for role, name in ('link', 'Release gold-1'), ('button', 'Release'):
        element = ada.page.get_by_role(role, name=name, exact=True)
        for _ in range(100):
            ada.page.keyboard.press('Tab')
            if element.evaluate('it => it === document.activeElement'):
                break
        with ada.page.expect_navigation():
            ada.page.keyboard.press('Enter')
    assert cloud.admin.baremetal.get_node('gold-1').instance_id is None


@pytest.mark.parametrize('token', [None, 'forged'])
def test_release_needs_the_token_of_the_form(ada, reservation, cloud, token):
    url = f'{ada.url}/reservations/{reservation.instance_uuid}/release/'
    answer = ada.page.request.post(
        url, form={'csrfmiddlewaretoken': token} if token else {})
    assert answer.status == 403
    # The question itself releases nothing.
    assert ada.page.request.get(url).status == 200
    assert cloud.admin.baremetal_reservations.show(reservation.instance_uuid)


def test_release_is_refused(ada, reservation, cloud, ironic):
    """A node on which a deployment has started is not released."""
    page = ada.open(f'reservations/{reservation.instance_uuid}/release/')
    state = ('UPDATE nodes SET provision_state = :state '
             'WHERE uuid = :uuid')
    ironic.execute(state, state='deploying', uuid=reservation.node_uuid)
    try:
        ada.follow('button', 'Release')
        assert 'deploying' in page.locator('.alert-danger').inner_text()
        assert 'gold-1' in ada.main.inner_text()
        ada.open(f'reservations/{reservation.instance_uuid}/release/')
        assert page.get_by_role('button', name='Release').count() == 0
    finally:
        ironic.execute(state, state='available', uuid=reservation.node_uuid)


def test_reservation_of_another_project(ada, cloud):
    """It looks as if it did not exist."""
    other, = cloud.admin.baremetal_reservations.list(node='gpu-1')
    for path in '', 'change/', 'release/':
        page = ada.open(f'reservations/{other.instance_uuid}/{path}')
        assert 'could be found' in page.get_by_role('alert').inner_text()
        assert 'gpu-1' not in ada.main.inner_text()


# Explanations

def test_explanation(admin):
    page = admin.open('ask/')
    page.get_by_label('Resource class').fill('baremetal.gold')
    page.get_by_label('Required traits').fill('CUSTOM_FPGA')
    admin.follow('button', 'Ask')
    text = admin.main.inner_text()
    assert '0 of 16 machines could be reserved now' in text
    assert '12 not of resource class CUSTOM_BAREMETAL_GOLD' in text
    assert 'without the trait CUSTOM_FPGA' in text
    assert ('If machines without the trait CUSTOM_FPGA were allowed, '
            '2 machines could be reserved') in text
    assert page.get_by_role('img', name='4 left, 12 eliminated'
                            ).is_visible()
    page.get_by_label('Required traits').fill('')
    page.get_by_label('Only these nodes').fill('arm-1')
    page.get_by_label('Resource class').fill('')
    admin.follow('button', 'Ask')
    assert 'If machines other than those named were allowed, ' in (
        admin.main.inner_text())


def test_matching_profiles(admin, cloud):
    before = len([*cloud.admin.baremetal_reservations.list()])
    page = admin.open('ask/')
    page.get_by_label('Memory (MiB)').fill('65536')
    page.get_by_label('Capabilities').fill('gpus=>= 8, boot_mode')
    page.get_by_label('Forbidden traits').fill('CUSTOM_NVME')
    admin.follow('button', 'Ask')
    assert '1 of 16 machines' in admin.main.inner_text()
    assert [*admin.rows()] == ['baremetal.gpu']
    assert len([*cloud.admin.baremetal_reservations.list()]) == before


def test_best_fit_comes_first(admin):
    admin.open('ask/?asked=yes&memory_mb=65536&capabilities=boot_mode')
    assert 'Matching machines, best fit first' in admin.main.inner_text()
    sizes = [memory(row) for row in
             admin.main.locator('tbody tr').all_inner_texts()]
    assert sizes == sorted(sizes) and 128 in sizes and 256 in sizes


@pytest.mark.parametrize(('label', 'entry', 'hint'), [
    ('Resource class', 'baremetal.golf',
     'No machine has the resource class baremetal.golf. '
     'Did you mean baremetal.gold?'),
    ('Required traits', 'CUSTOM_NVMEE',
     'No machine has the trait CUSTOM_NVMEE. Did you mean CUSTOM_NVME?'),
    ('Capabilities', 'bootmode=uefi',
     'No machine has the capability bootmode. Did you mean boot_mode?'),
    ('Shard', 'eastt', 'No machine has the shard eastt. Did you mean east?'),
    ('Only these nodes', 'gold-1, gold-44',
     'No node gold-44 was found. Did you mean gold-4?'),
    ('Other extra specs', 'reservations:candidate_nodes=gold-1,gold-44',
     'No node gold-44 was found. Did you mean gold-4?'),
    ('Other extra specs', 'capabilites:rack=r1\nhw:x=1',
     'Not compared with machines: capabilites:rack '
     '(did you mean capabilities:rack?), hw:x'),
], ids=str)
def test_unknown_names(admin, label, entry, hint):
    page = admin.open('ask/')
    page.get_by_label('CPUs').fill('1')
    page.get_by_label(label, exact=True).fill(entry)
    admin.follow('button', 'Ask')
    text = page.locator('.alert-warning').inner_text()
    assert re.sub(r'\s+', ' ', text).strip() == hint


def test_known_names_need_no_hint(admin):
    for query in ('resource_class=CUSTOM_BAREMETAL_GOLD&traits=CUSTOM_GPU',
                  'shard=west&candidate_nodes=gold-1',
                  'capabilities=rack=r2,hypervisor_type=ironic&vcpus=999'):
        page = admin.open(f'ask/?asked=yes&{query}')
        assert '0 of 16 machines' in admin.main.inner_text()
        assert page.locator('.alert-warning').count() == 0


def test_filters_without_a_match(admin):
    page = admin.open('?resource_class=baremetal.golf')
    text = re.sub(r'\s+', ' ', admin.main.inner_text())
    assert ('No machine has the resource class baremetal.golf. '
            'Did you mean baremetal.gold?') in text
    admin.follow('link', 'baremetal.gold')
    assert page.locator('tbody tr').count() and {
        *page.locator('tbody th strong').all_inner_texts()} == {
            'baremetal.gold'}
    admin.follow('link', 'Show all')
    for label, entry, hint, similar in (
            ('Compute host', 'compute1',
             'No reservation has the compute host compute1.', 'compute-1'),
            ('Node', 'gpu1', 'No node gpu1 was found.',
             'gpu-1'),
            ('Resource class', 'baremetal.gpus',
             'No machine has the resource class baremetal.gpus.',
             'baremetal.gpu')):
        page = admin.open('reservations/')
        page.get_by_label(label, exact=True).fill(entry)
        admin.follow('button', 'Filter')
        text = re.sub(r'\s+', ' ', admin.main.inner_text())
        assert admin.page.get_by_role('link', name='Show all').is_visible()
        assert ('No reservations match these filters. '
                f'{hint} Did you mean {similar}?') in text
        admin.follow('link', similar)
        assert admin.rows()
    admin.open('reservations/?resource_class=plutonium')
    assert 'No machine has the resource class plutonium.' in (
        admin.main.inner_text())
    # A class that machines have, without a reservation.
    admin.open('reservations/?resource_class=baremetal.bronze')
    assert 'No machine has' not in admin.main.inner_text()


def test_filters_offer_known_values(admin):
    page = admin.open('reservations/')
    for label, value in (
            ('Resource class', 'baremetal.gold'),
            ('Compute host', 'compute-1'),
            ('Node', 'gpu-1'),
            ('Project', 'team-b')):
        field = page.get_by_label(label, exact=True)
        values = page.locator(f'#{field.get_attribute("list")} option')
        assert value in values.evaluate_all(
            'all => all.map(each => each.value)')
    page.get_by_label('Project', exact=True).fill('team-b')
    admin.follow('button', 'Filter')
    rows = admin.rows()
    assert rows and all('team-b' in row for row in rows.values())


def test_refused_filter_can_be_removed(admin):
    page = admin.open('reservations/?group=nonsense')
    assert 'nonsense' in page.get_by_role('alert').inner_text()
    admin.follow('link', 'Show all')
    assert admin.rows()


def test_empty_request(ada):
    page = ada.open('ask/')
    ada.follow('button', 'Ask')
    assert 'Enter a resource class' in page.get_by_role(
        'alert').inner_text()
    page.get_by_label('CPUs').fill('64')
    ada.follow('button', 'Ask')
    assert 'of 2 machines' in ada.main.inner_text()


def test_request_that_ironic_refuses(admin):
    page = admin.open('ask/')
    page.get_by_label('Capabilities').fill('gpus=>= many')
    admin.follow('button', 'Ask')
    assert 'gpus' in page.get_by_role('alert').inner_text()


# Scopes

def test_without_system_scope(start_horizon, log_in):
    """If Horizon does not offer it, the panel shows a part of the fleet."""
    with start_horizon(system_scope=[]) as url:
        admin = log_in(url, 'admin', 'admin')
        for path in PAGES:
            admin.open(path)
            assert 'This is not the whole fleet' in admin.main.inner_text()


def test_panel_is_in_one_scope(admin, horizon, log_in):
    """If Horizon offers it, an admin of a project has no such panel."""
    admin.open()
    assert 'This is not the whole fleet' not in admin.main.inner_text()
    visitor = log_in(horizon, 'admin', 'project')
    visitor.open()
    panel = visitor.page.locator('a[href="/admin/baremetal_reservations/"]')
    assert panel.count() == 0
    url = visitor.url.replace('/project/', '/admin/')
    visitor.page.goto(f'{url}/')
    assert visitor.main.count() == 0


def test_panel_of_admins_is_not_for_members(ada):
    url = ada.url.replace('/project/', '/admin/')
    ada.page.goto(f'{url}/')
    assert ada.main.count() == 0
    ada.open()


# Accessibility and security

@pytest.mark.parametrize('path', [*PAGES, 'ask/?asked=yes&memory_mb=65536'])
def test_screen_readers(admin, path):
    check_for_screen_readers(admin.open(path))


def check_for_screen_readers(page):
    # Links and buttons have the colours of Horizon's theme.
    for context, options in (
            ('.ir-page', {'rules': {'color-contrast': {'enabled': False}}}),
            ({'include': ['.ir-page'], 'exclude': ['.ir-page a', '.btn']},
             {'runOnly': 'color-contrast'})):
        result = axe.Axe().run(page, context=context, options=options)
        assert result.response['passes'], 'nothing was checked'
        assert not result.response['violations'], result.generate_report()


def test_names_are_escaped(admin, ironic, reservation):
    """This includes names of operators and of forged links."""
    whose = f"uuid = '{reservation.node_uuid}'"
    before, = ironic.execute(f'SELECT name, shard, resource_class, properties '
                             f'FROM nodes WHERE {whose}')
    ironic.execute(f'UPDATE nodes SET name = :e, shard = :e, '
                   f'resource_class = :e, properties = :p WHERE {whose}',
                   e=EVIL, p='{"memory_mb": 1024, "capabilities": '
                             '"<img src=x onerror=document.title=1>:<b>"}')
    ironic.execute('UPDATE reservations SET host = :e WHERE '
                   'instance_uuid = :i', e=EVIL, i=reservation.instance_uuid)
    evil = re.sub('[<>" =]', lambda it: f'%{ord(it[0]):02X}', EVIL)
    try:
        for path in (*PAGES, f'?by=shard&resource_class={evil}',
                     f'reservations/?host={evil}',
                     f'reservations/{reservation.instance_uuid}/',
                     f'reservations/{reservation.instance_uuid}/change/',
                     f'reservations/{reservation.instance_uuid}/release/',
                     f'ask/?asked=yes&resource_class={evil}',
                     f'ask/?asked=yes&vcpus=1&extra_specs={evil}%0Aa{evil}=b',
                     f'ask/?asked=yes&candidate_nodes={evil}',
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


# Large numbers

@pytest.fixture
def many(ironic, cloud):
    """Reservations of 10,000 nodes that exist only in the database."""
    rows = [{'number': number, 'node': str(uuid.uuid4()),
             'instance': str(uuid.uuid4()),
             'project': cloud.projects['team-b']} for number in range(MANY)]
    with ironic.engine.begin() as connection:
        connection.execute(sa.text(
            'INSERT INTO nodes (uuid, name, instance_uuid, driver, '
            'provision_state, resource_class, properties, maintenance, '
            "conductor_group, created_at, version) VALUES (:node, 'many-' || "
            ":number, :instance, 'fake-hardware', 'available', "
            """'baremetal.many', '{"memory_mb": 1024}', 0, '', """
            "'2026-01-01', '1.0')"), rows)
        connection.execute(sa.text(
            'INSERT INTO reservations (instance_uuid, node_id, node_uuid, '
            'project_id, request_spec, host, created_at) SELECT :instance, '
            "id, :node, :project, '{}', 'many', '2026-01-01' FROM nodes "
            'WHERE uuid = :node'), rows)
    yield
    ironic.execute("DELETE FROM reservations WHERE host = 'many'")
    ironic.execute("DELETE FROM nodes WHERE resource_class = "
                   "'baremetal.many'")


def test_ten_thousand(admin, many):
    """The server counts or limits each page; prints the durations."""
    def measure(name, action):
        began = time.monotonic()
        action()
        print(f'{time.monotonic() - began:6.2f} s  {name}')

    print()
    for path in (*PAGES, 'reservations/?sort_key=expires_at&sort_dir=desc',
                 'ask/?asked=yes&resource_class=baremetal.many'):
        measure(path or 'capacity', lambda path=path: admin.open(path))
    assert '0 of 10,016 machines' in admin.main.inner_text()
    admin.open('reservations/')
    seen = [[*admin.rows()]]
    for _ in range(3):
        measure('next page', lambda: admin.follow('link', 'Next page'))
        seen.append([*admin.rows()])
    assert len({row for rows in seen for row in rows}) == sum(
        map(len, seen)) == 80
    for expected in reversed(seen[:3]):
        measure('previous page', lambda: admin.follow('link', 'Previous page'))
        assert [*admin.rows()] == expected
    assert admin.page.get_by_role('link', name='Previous page').count() == 0
