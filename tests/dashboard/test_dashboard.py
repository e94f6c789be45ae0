# SPDX-License-Identifier: Apache-2.0
"""The panels: the fleet, filters, explanations and releases."""

import html
import json
import pathlib
import re
import time
import urllib.parse
import uuid

from axe_playwright_python import sync_playwright as axe
import pytest
import sqlalchemy as sa

from ironic_reservations.shared import constants

#: The last character would reorder the text behind it.
EVIL = '<script>document.title = "owned"</script>\u202e'
PAGES = ('', 'reservations/', 'groups/', 'pools/', 'notices/', 'hosts/',
         'ask/')
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
    ('Owner', 'none'), ('Project', 'team-b'), ('Project of the pool', 'none')])
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
    assert re.search(r'in \d+ min', everything['gpu-1'])
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
    assert f'59 min {expires} UTC' in re.sub(r'\s+', ' ', text)


def test_times_that_the_time_zone_lacks(admin, cloud):
    """The last hours of the year 9999 are those of the next in Tokyo."""
    service = cloud.admin.baremetal_reservations
    end = '9999-12-31T23:59:59Z'
    pool = service.create_pool(cloud.projects['team-a'], 1, {
        'resource_class': 'baremetal.silver'}, expires_at=end)
    node = pool.nodes[0]['name']
    notice, = service.create_notices('fault', nodes=[node], ends_at=end)
    cookie = {'name': 'django_timezone', 'value': 'Asia/Tokyo',
              'url': admin.url}
    admin.page.context.add_cookies([cookie])
    try:
        for path in f'pools/{pool.id}/', 'notices/':
            admin.open(path)
            assert '9999-12-31 23:59' in admin.main.inner_text(), path
        admin.open('pools/')
        assert re.search(r'in \d+ d', admin.rows()[pool.id])
    finally:
        admin.page.context.clear_cookies(name='django_timezone')
        service.close_notices(notice)
        service.delete_pool(pool)


def test_who_had_a_node(admin, cloud, reservation):
    """The present reservation comes first, and has no end."""
    service = cloud.admin.baremetal_reservations
    former = service.create(resource_class='baremetal.silver',
                            description=EVIL)
    service.release(former)
    admin.open('reservations/')
    admin.follow('link', 'gold-1')
    admin.follow('link', 'Who had this node')
    text = admin.main.inner_text()
    assert reservation.instance_uuid in text and 'now' in text
    assert admin.page.title().startswith('Who had gold-1')
    page = admin.open(f'nodes/{former.node_uuid}/history/')
    text = admin.main.inner_text()
    assert former.instance_uuid in text and EVIL in text
    assert 'released' in text
    check_for_screen_readers(page)


def test_tenant_sees_the_name_of_its_machine(ada, cloud):
    """Ironic does not show the node to the project of the server."""
    reservation, = cloud.admin.baremetal_reservations.list(
        project_id=cloud.projects['team-a'], state='active')
    ada.open(f'nodes/{reservation.node_uuid}/history/')
    assert ada.page.title().startswith(f'Who had {reservation.node_name}')


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
def test_pages_do_not_scroll_sideways(admin, path):
    check_widths(admin, path)


def check_widths(visitor, path):
    """Check that nothing is cut on small and large screens."""
    page = visitor.open(path)
    before = page.viewport_size
    for width in 400, 800, 1100:
        page.set_viewport_size({'width': width, 'height': 800})
        assert width == page.evaluate('document.documentElement.scrollWidth')
        for element in visitor.main.locator('.btn, td').all():
            box = element.bounding_box()
            assert box['x'] + box['width'] <= width
    page.set_viewport_size(before)


def check_looks(visitor, path):
    """Check a page for screen readers, and at all widths."""
    check_for_screen_readers(visitor.open(path))
    check_widths(visitor, path)


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
        assert 'in 1 h 59 min' in text
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


def reserve(visitor, path, **fields):
    """Reserve with the form below the result of a request."""
    page = visitor.open(path)
    for label, entry in fields.items():
        field = page.get_by_label(label.replace('_', ' '), exact=True)
        if field.evaluate('it => it.tagName') == 'SELECT':
            field.select_option(entry)
        else:
            field.fill(entry)
    visitor.follow('button', 'Reserve')
    return re.sub(r'\s+', ' ', page.locator('body').inner_text())


@pytest.fixture
def release_later(cloud):
    """Release what a test reserves."""
    reservations = cloud.admin.baremetal_reservations
    before = {row.instance_uuid for row in reservations.list()}
    yield
    for row in [*reservations.list()]:
        if row.instance_uuid not in before:
            reservations.release(row)


def count_reservations(cloud):
    return len([*cloud.admin.baremetal_reservations.list()])


@pytest.mark.parametrize('members', ['1', '2'])
@pytest.mark.parametrize(('project', 'ownership', 'is_refused'), [
    ('team-a', '', True), ('team-b', 'any', True),
    ('', 'project_or_none', True), ('', '', False),
    ('team-b', 'project', False)])
def test_owner_in_the_request(admin, cloud, release_later, members, project,
                              ownership, is_refused):
    """Machines of one project are not reserved for another."""
    team_b = cloud.projects['team-b']
    before = count_reservations(cloud)
    for owner in 'team-b', team_b:
        text = reserve(
            admin, f'ask/?asked=yes&resource_class=baremetal.silver'
            f'&project_id={owner}', Machines=members,
            For_the_project=project, Ownership=ownership)
        assert ('This contradicts "Owner or lessee"' in text) == is_refused
        if not is_refused and members == '1':
            assert 'silver-4 was reserved' in text
            assert cloud.admin.baremetal_reservations.show(
                admin.page.url.split('/')[-2]).project_id == team_b
            return
        # Only silver-4 is leased to team-b.
        assert is_refused or '1 of 2 members' in text
        assert count_reservations(cloud) == before


def test_unknown_project(admin, cloud):
    """Nothing is reserved for, or listed of, a project that does not exist."""
    identity, before = cloud.admin.identity, count_reservations(cloud)
    domain = identity.create_domain(name='other')
    for where in 'default', domain.id:
        identity.create_project(name='twin', domain_id=where)
    silver = 'ask/?asked=yes&resource_class=baremetal.silver'
    for project in 'teamb', 'f' * 32, '.', '?name=team-b':
        error = f'There is no project "{project}".'
        assert error in reserve(admin, silver, For_the_project=project)
        query = urllib.parse.urlencode({'project_id': project})
        for path in f'{silver}&{query}', f'reservations/?{query}':
            page = admin.open(path)
            assert page.get_by_role('alert').inner_text() == error
            assert 'could be reserved' not in admin.main.inner_text()
    assert page.get_by_role('link', name='Show all').is_visible()
    assert 'Several projects are called "twin"' in reserve(
        admin, silver, For_the_project='twin')
    assert count_reservations(cloud) == before


def test_ownership(admin, cloud, release_later):
    """Machines of another project are not taken for a project unnoticed."""
    path = 'ask/?asked=yes&candidate_nodes=silver-4'
    text = reserve(admin, path, For_the_project='team-a')
    assert 'No free node matches' in text
    page = admin.open(path)
    form = page.get_by_role('form', name='Reserve such machines')
    assert 'Without a project' in form.inner_text()
    assert re.sub(r'\s+', ' ', form.locator('.ir-owners').inner_text()
                  ).endswith(' 1 lessee: team-b')
    check_for_screen_readers(page)
    text = reserve(admin, path, For_the_project='team-a', Ownership='any')
    assert 'silver-4 was reserved. Lessee: team-b.' in text
    reservation, = cloud.admin.baremetal_reservations.list(node='silver-4')
    assert reservation.project_id == cloud.projects['team-a']
    cloud.admin.baremetal_reservations.release(reservation)
    # The project's own, and machines of nobody.
    assert 'silver-4 was reserved.' in reserve(
        admin, path, For_the_project='team-b')
    assert 'silver-1 was reserved.' in reserve(
        admin, 'ask/?asked=yes&candidate_nodes=silver-1',
        For_the_project='team-b')


def test_owners_of_machines_of_anybody(admin, release_later):
    assert 'silver-4 was reserved. Lessee: team-b.' in reserve(
        admin, 'ask/?asked=yes&candidate_nodes=silver-4')
    text = reserve(
        admin, 'ask/?asked=yes&candidate_nodes=gold-1,bronze-2,bronze-1',
        Machines='3')
    assert 'The group was reserved. Owner: team-' in text
    assert 'Owner: team-a.' in text and 'Owner: team-b.' in text


def test_projects_have_no_choice_of_ownership(ada):
    page = ada.open('ask/?asked=yes&candidate_nodes=gold-1')
    assert page.get_by_role('button', name='Reserve').count()
    assert page.get_by_label('Ownership').count() == 0
    assert 'Without a project' not in ada.main.inner_text()


def test_node_without_a_name(admin, cloud, ironic, release_later):
    node = cloud.admin.baremetal.get_node('silver-1').id
    ironic.execute('UPDATE nodes SET name = NULL WHERE uuid = :u', u=node)
    try:
        text = reserve(admin, f'ask/?asked=yes&candidate_nodes={node}')
        assert f'{node} was reserved.' in text and 'None' not in text
        admin.open('reservations/')
        assert node in admin.rows()
    finally:
        ironic.execute("UPDATE nodes SET name = 'silver-1' WHERE uuid = :u",
                       u=node)


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
        assert all('in 6 d 23 h' in row for row in ada.rows().values())
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
    assert 'Until the <b>audit</b>' in text and 'in 6 d 23 h' in text
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


@pytest.fixture
def group(cloud):
    """A group of team-a."""
    reservations = cloud.admin.baremetal_reservations
    group = reservations.create_group(
        1, {'candidate_nodes': ['gold-1']}, expires_in=3600,
        project_id=cloud.projects['team-a'])
    yield group
    reservations.release_group(group)


@pytest.fixture(params=['reservation', 'group'])
def changeable(request, cloud):
    """The page of a reservation or a group, and functions for it."""
    row = request.getfixturevalue(request.param)
    api = cloud.admin.baremetal_reservations
    if request.param == 'group':
        member = row.reservations[0]['instance_uuid']
        return (f'groups/{row.id}', lambda: (
            api.show_group(row.id).description,
            api.show(member).expires_at), lambda text: api.describe_group(
                row, text), lambda lease: api.renew_group(row, lease))
    return (f'reservations/{row.id}', lambda: (
        api.show(row.id).description, api.show(row.id).expires_at),
        lambda text: api.describe(row, text),
        lambda lease: api.renew(row, lease))


def test_change_keeps_other_changes(ada, changeable):
    """Only what the user has changed is changed."""
    path, show, describe, renew = changeable
    page = ada.open(f'{path}/change/')
    describe('of another')
    page.get_by_label('New lease').fill('7d')
    ada.follow('button', 'Save')
    description, expires_at = show()
    assert description == 'of another'
    assert 'in 6 d 23 h' in ada.main.inner_text()
    page = ada.open(f'{path}/change/')
    renew(1800)
    assert show()[1] < expires_at
    expires_at = show()[1]
    page.get_by_label('Description').fill('of ada')
    ada.follow('button', 'Save')
    assert show() == ('of ada', expires_at)
    # Also after an error.
    page = ada.open(f'{path}/change/')
    page.get_by_label('New lease').fill('soon')
    ada.follow('button', 'Save')
    describe('of another')
    page.get_by_label('New lease').fill('1h')
    ada.follow('button', 'Save')
    assert show()[0] == 'of another'
    before = show()
    ada.open(f'{path}/change/')
    ada.follow('button', 'Save')
    assert page.get_by_text('Nothing was changed.').is_visible()
    assert show() == before


def test_change_is_refused_as_a_whole(ada, changeable):
    path, show, _describe, _renew = changeable
    before = show()
    page = ada.open(f'{path}/change/')
    page.get_by_label('Description').fill('two\u2028lines')
    page.get_by_label('New lease').fill('7d')
    ada.follow('button', 'Save')
    assert 'control characters' in page.get_by_role('alert').inner_text()
    assert show() == before


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


def test_instance_in_capitals(admin, reservation, ironic):
    """Ironic stores UUIDs as its clients sent them."""
    ironic.execute('UPDATE nodes SET instance_uuid = UPPER(instance_uuid) '
                   'WHERE uuid = :uuid', uuid=reservation.node_uuid)
    admin.open('reservations/?node=gold-1')
    admin.follow('link', 'gold-1')
    assert reservation.instance_uuid.upper() in admin.main.inner_text()
    admin.follow('link', 'Change')


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


def test_no_proposal_if_enough_match(admin, cloud):
    path = 'ask/?asked=yes&resource_class=baremetal.silver'
    page = admin.open(path)
    assert re.search('[1-9] of 16 machines', admin.main.inner_text())
    assert page.locator('.alert-info').count() == 0
    assert '9 members' in reserve(admin, path, Machines='9')
    assert 'If machines not of resource class' in page.locator(
        '.alert-info').inner_text()


@pytest.mark.parametrize(('fields', 'name'), [
    ({'capabilities': 'gpus=>= 4, gpus=<= 8'}, 'capability gpus'),
    ({'capabilities': 'gpus, gpus=4'}, 'capability gpus'),
    ({'capabilities': 'gpus=4, gpus:4'}, 'capability gpus'),
    ({'traits': 'CUSTOM_GPU', 'forbidden': 'CUSTOM_GPU'},
     'trait CUSTOM_GPU'),
    ({'traits': 'CUSTOM_GPU', 'extra_specs': 'trait:CUSTOM_GPU=forbidden'},
     'trait CUSTOM_GPU'),
    ({'forbidden': 'CUSTOM_GPU',
      'extra_specs': 'reservations:trait:CUSTOM_GPU=required'},
     'trait CUSTOM_GPU'),
    ({'capabilities': 'gpus=4', 'extra_specs': 'capabilities:gpus=8'},
     'capability gpus'),
    ({'capabilities': 'gpus', 'extra_specs': 'capabilities=rack:r1,gpus:8'},
     'capability gpus'),
    ({'capabilities': 'cpu_arch=x86_64', 'extra_specs': 'cpu_arch=aarch64'},
     'capability cpu_arch'),
    ({'memory_mb': '1', 'extra_specs': 'resources:MEMORY_MB=2'},
     'Memory (MiB)'),
    ({'vcpus': '1', 'extra_specs': 'resources1:VCPU=0'}, 'CPUs'),
    ({'root_gb': '1', 'extra_specs': 'resources:DISK_GB=0'}, 'Disk (GiB)'),
    ({'resource_class': 'baremetal.gpu',
      'extra_specs': 'resources:CUSTOM_BAREMETAL_GPU=0'}, 'Resource class'),
    ({'candidate_nodes': 'gpu-2',
      'extra_specs': 'reservations:candidate_nodes=gpu-1'},
     'Only these nodes'),
    ({'extra_specs': 'resources:VCPU=0\nresources:VCPU = 1'},
     'resources:VCPU'),
], ids=str)
def test_contradictory_fields(admin, cloud, fields, name):
    """Nothing is asked and nothing is reserved, alone and in a group."""
    page = admin.open('ask/?asked=yes&vcpus=1')
    before = count_reservations(cloud)
    form = admin.main.locator('form[method=post]').evaluate(
        'it => Object.fromEntries(new FormData(it))')
    query = urllib.parse.urlencode({'asked': 'yes', **fields})
    admin.open(f'ask/?{query}')
    assert page.get_by_role('alert').inner_text() == (
        f'Given more than once: {name}.')
    assert 'could be reserved' not in admin.main.inner_text()
    for members in '1', '2':
        answer = page.request.post(
            f'{admin.url}/ask/?{query}', headers={'Referer': admin.url},
            form={**form, 'members': members})
        assert 'Given more than once' in answer.text()
    assert count_reservations(cloud) == before


@pytest.mark.parametrize(('fields', 'error'), [
    ({'capabilities': 'boot_mode='}, '"boot_mode=" must be a name'),
    ({'capabilities': '=uefi'}, '"=uefi" must be a name'),
    ({'capabilities': 'gpus>=4'}, '"gpus>=4" must be a name'),
    ({'extra_specs': 'resources:VCPU'}, '"resources:VCPU" must be a key'),
    ({'extra_specs': '=0'}, '"=0" must be a key'),
    ({'traits': ','}, 'Enter names'), ({'forbidden': ' , '}, 'Enter names'),
    ({'candidate_nodes': ','}, 'Enter names'),
], ids=str)
def test_incomplete_entries(admin, fields, error):
    """An empty value is not as if it were absent."""
    query = urllib.parse.urlencode({'asked': 'yes', 'vcpus': '1', **fields})
    page = admin.open(f'ask/?{query}')
    assert error in page.get_by_role('alert').inner_text()
    assert 'could be reserved' not in admin.main.inner_text()


def test_several_extra_specs(admin):
    """Amounts in numbered groups are one request, as in a flavor."""
    admin.open('ask/?' + urllib.parse.urlencode({
        'asked': 'yes', 'traits': 'CUSTOM_GPU',
        'extra_specs': 'resources1:VCPU=30\nresources2:VCPU=30\n'
                       'capabilities=gpus,boot_mode:uefi'}))
    assert '1 of 16 machines' in admin.main.inner_text()
    assert [*admin.rows()] == ['baremetal.gpu']


def test_links_of_other_sites(admin, cloud):
    """They only fill in the form, because a dry run counts the fleet."""
    def count_dry_runs():
        return pathlib.Path(cloud.ironic.log).read_text().count('dry_run')

    url = f'{admin.url}/ask/?asked=yes&vcpus=1'
    elsewhere = 'http://elsewhere.example/'
    page = admin.page
    page.route(f'{elsewhere}**', lambda route: route.fulfill(
        content_type='text/html',
        body=f'<a href="{html.escape(url)}">link</a><img src="'
             f'{html.escape(url)}"><form action="{admin.url}/ask/"><input '
             'name=asked value=yes><input name=vcpus value=1>'
             '<button>form</button>'))
    before = count_dry_runs()
    for role, name in ('link', 'link'), ('button', 'form'):
        page.goto(elsewhere)
        page.wait_for_load_state('networkidle')
        admin.follow(role, name)
        text = admin.main.inner_text()
        assert 'A link on another site has filled in this form' in text
        assert 'could be reserved' not in text
        assert page.get_by_label('CPUs').input_value() == '1'
    assert count_dry_runs() == before
    check_for_screen_readers(page)
    admin.follow('button', 'Ask')
    assert 'could be reserved now' in admin.main.inner_text()
    assert count_dry_runs() > before
    page.unroute(f'{elsewhere}**')


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


@pytest.mark.parametrize('path', [
    'ask/?asked=yes&vcpus=1&candidate_nodes=', 'reservations/?node='])
@pytest.mark.parametrize('name', ['gold-2', 'gold-11'])
def test_name_of_a_hidden_node(ada, path, name):
    """It reads like one that no node has, and none is suggested."""
    ada.open(f'{path}{name}')
    text = re.sub(r'\s+', ' ', ada.main.inner_text())
    assert f'No node {name} was found.' in text
    assert 'Did you mean' not in text


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


def test_nodes_by_uuid(admin, cloud):
    """A node without a reservation exists; its UUID may be in capitals."""
    node = cloud.admin.baremetal.get_node('bronze-1').id
    for name in node, node.upper(), 'bronze-1':
        admin.open(f'reservations/?node={name}')
        assert 'No reservations match' in admin.main.inner_text()
        assert 'was found' not in admin.main.inner_text()
        page = admin.open(f'ask/?asked=yes&candidate_nodes={name}')
        assert page.locator('.alert-warning').count() == 0
    assert '1 of 16 machines' in admin.main.inner_text()


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


def test_missing_endpoint(start_horizon, log_in):
    more = "OPENSTACK_ENDPOINT_TYPE = 'internalURL'\n"
    with start_horizon(more=more, system_scope=[]) as url:
        admin = log_in(url, 'admin', 'admin')
        for path in PAGES:
            page = admin.open(path)
            assert ('no "internalURL" of the service "baremetal"'
                    in page.get_by_role('alert').inner_text()), path


def test_revoked_token(horizon, log_in, cloud, reservation):
    """The user logs in again, and continues."""
    identity = cloud.admin.identity
    eve = identity.create_user(name='eve', password=cloud.auth['password'],
                               domain_id='default')
    member = identity.find_role('member', ignore_missing=False)
    identity.assign_project_role_to_user(
        cloud.projects['team-a'], eve, member)
    visitor = log_in(horizon, 'eve', 'project')
    page, form = visitor.page, visitor.page.context.new_page()
    form.goto(f'{visitor.url}/reservations/{reservation.instance_uuid}/'
              f'release/')
    # This revokes all tokens of the user.
    for is_enabled in False, True:
        identity.update_user(eve, is_enabled=is_enabled)

    def asks_to_log_in(path):
        page.goto(f'{visitor.url}/{path}')
        return '/auth/login/' in page.url

    deadline = time.monotonic() + 60
    while not asks_to_log_in(''):
        assert time.monotonic() < deadline
    form.get_by_role('button', name='Release', exact=True).click()
    form.wait_for_url('**/auth/login/?next=**')
    assert cloud.admin.baremetal_reservations.show(reservation.instance_uuid)
    assert all(map(asks_to_log_in, set(PAGES) - {'hosts/'}))
    page.get_by_label('User Name').fill('eve')
    page.get_by_label('Password').fill(cloud.auth['password'])
    page.keyboard.press('Enter')
    page.wait_for_url(lambda now: '/auth/login/' not in now)
    assert visitor.main.is_visible()


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


def test_names_of_methods(admin, ada, cloud, ironic, reservation):
    """Templates would call a method of a dict instead of reading a value."""
    names = [name for name in dir(dict) if name.isalpha()]
    assert {'items', 'keys', 'values', 'get', 'pop'} <= {*names}
    whose = f"uuid = '{reservation.node_uuid}'"
    (before,), = ironic.execute(f'SELECT properties FROM nodes WHERE {whose}')
    ironic.execute(
        f'UPDATE nodes SET properties = :p WHERE {whose}', p=json.dumps({
            'cpus': 1, 'memory_mb': 1, 'local_gb': 1, 'capabilities': ','.join(
                f'{name}:{name}' for name in names)}))
    api = cloud.admin.baremetal_reservations
    api.release(reservation)
    # Otherwise, pages show an older count for some seconds.
    api.get('/reservations/capacity', headers={'Cache-Control': 'no-cache'})
    try:
        for visitor in admin, ada:
            visitor.open()
            text = visitor.main.inner_text()
            assert all(f'{name}: {name}' in text for name in names)
        for name in names:
            admin.open(f'?by=capability:{name}')
            assert name in admin.rows()
            group = api.create_group(
                1, {'extra_specs': {f'capabilities:{name}': name}},
                policy='pack', by=f'capability:{name}')
            member, = group.reservations
            try:
                admin.open('groups/')
                assert f'{name} 1' in admin.rows()[group.id]
                admin.open(f'groups/{group.id}/')
                assert f'domain {name}' in admin.rows()['gold-1']
                admin.open(f'reservations/{member["instance_uuid"]}/')
                assert f'capability:{name} domain {name}' in re.sub(
                    r'\s+', ' ', admin.main.inner_text())
            finally:
                api.release_group(group)
            admin.open('ask/?asked=yes&candidate_nodes=gold-1&'
                       f'capabilities={name}={name}')
            text = admin.main.inner_text()
            assert all(f'{name}: {name}' in text for name in names)
    finally:
        ironic.execute(f'UPDATE nodes SET properties = :p WHERE {whose}',
                       p=before)


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


def test_ten_thousand_nodes(admin, many):
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
