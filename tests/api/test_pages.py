# SPDX-License-Identifier: Apache-2.0
"""Clients read all pages of a list while rows are deleted."""

import json

import openstack
import pytest

from ironic_reservations import sdk
from ironic_reservations.api import responses
from ironic_reservations.osc import client
from tests.common import command
from tests.common import service

pytestmark = pytest.mark.on('sqlite')

OURS = service.OURS
POOL = [{}] * 7
UNKNOWN = '99999999-2222-4333-8444-555555555555'


@pytest.fixture(autouse=True)
def short_pages(monkeypatch):
    """A response has room for two or three members of a group, or groups."""
    monkeypatch.setattr(responses, 'MAX_PAGE', 1500)


class Client:
    """Releases reservations between the pages that it reads.

    :ivar act: called once, with the response, before the next page.
    """

    requests = 0

    def __init__(self):
        self.act = lambda page: None

    def read(self, page):
        self.requests += 1
        act, self.act = self.act, lambda page: None
        act(page)

    def release(self, ironic):
        """Release the last row of the first page."""
        def release(page):
            name, = {'reservations', 'groups'} & page.keys()
            row = page[name][-1]
            self.victim = row.get('instance_uuid') or row['uuid']
            ironic.http.delete(f'{OURS}/{self.victim}')
            ironic.http.delete(f'{OURS}/groups/{self.victim}')
        self.act = release


@pytest.fixture
def cli(ironic, monkeypatch):
    """Shows and creates groups, and lists, with the openstack command."""
    user, request = Client(), client.request_ironic

    def send(cmd, method, url, **kwargs):
        page = request(cmd, method, url, **kwargs)
        user.read(page)
        return page

    def run(*args):
        result = command.run(ironic.url, 'baremetal', 'reservation', *args,
                             '-f', 'json')
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def group(*args):
        return [row['instance_uuid']
                for row in run('group', *args)['reservations']]

    monkeypatch.setattr(client, 'request_ironic', send)
    user.show = lambda uuid: group('show', uuid)
    user.create = lambda node_class: group(
        'create', '--members', '7', '--resource-class', node_class)
    user.list = lambda node_class: [
        row['Instance UUID']
        for row in run('list', '--long', '--resource-class', node_class)]
    return user


@pytest.fixture
def library(ironic, monkeypatch):
    """Does the same with openstacksdk."""
    conn = openstack.connect(load_envvars=False, load_yaml_config=False,
                             auth_type='none', endpoint=ironic.url)
    # conn would ask for the versions of Ironic, which is missing.
    proxy, user = sdk.Proxy(
        conn.session, service_type='baremetal',
        endpoint_override=f'{ironic.url}/v1'), Client()

    def send(method):
        def send(*args, **kwargs):
            response = method(*args, **kwargs)
            user.read(response.json())
            return response
        return send

    for name in 'get', 'post':
        monkeypatch.setattr(proxy, name, send(getattr(proxy, name)))
    user.proxy = proxy
    user.show = lambda uuid: members(proxy.show_group(uuid))
    user.create = lambda node_class: members(
        proxy.create_group(7, {'resource_class': node_class}))
    user.list = lambda node_class: [
        row.id for row in proxy.list(resource_class=node_class)]
    yield user
    conn.close()


def members(group):
    assert group.next is None
    return [row.instance_uuid for row in group.reservations]


@pytest.fixture(params=['cli', 'library'])
def user(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def group(ironic, pool, node_class):
    return create(ironic, node_class, 7)


def create(ironic, node_class, number):
    """Return the UUID of a new group."""
    return ironic.http.post(f'{OURS}/groups', json={
        'members': number, 'request': {'resource_class': node_class}}
    ).json()['uuid']


def find_holds(ironic, node_class):
    return [row.id for row in ironic.execute(
        'SELECT instance_uuid AS id FROM nodes WHERE resource_class = :c '
        'AND instance_uuid IS NOT NULL ORDER BY id', c=node_class)]


def test_group_too_large_for_a_response(ironic, user, group, node_class):
    assert sorted(user.show(group)) == sorted(find_holds(ironic, node_class))
    assert user.requests > 2


def check_deleted(ironic, user, rows, node_class):
    """Check that each row was listed once, and all but one still exist."""
    assert len(rows) == 7
    assert sorted(rows) == sorted(
        [user.victim, *find_holds(ironic, node_class)])


def test_group_whose_member_is_released(ironic, user, group, node_class):
    user.release(ironic)
    check_deleted(ironic, user, user.show(group), node_class)


def test_new_group_whose_member_is_released(ironic, user, pool, node_class):
    user.release(ironic)
    check_deleted(ironic, user, user.create(node_class), node_class)


def test_list_whose_marker_is_released(ironic, user, group, node_class):
    user.release(ironic)
    check_deleted(ironic, user, user.list(node_class), node_class)


def test_list_of_groups_whose_marker_goes(ironic, library, pool, node_class):
    uuids = [create(ironic, node_class, 1) for _ in range(7)]
    library.release(ironic)
    assert [row.uuid for row in library.proxy.groups(limit=3)] == uuids
    assert library.victim in uuids
    assert [row.uuid for row in library.proxy.groups(max_items=4)] == [
        uuid for uuid in uuids if uuid != library.victim][:4]


def test_last_page_with_a_limit(ironic, library, group, node_class):
    """No request follows the last page: its last row may be gone."""
    rows = library.proxy.list(resource_class=node_class, limit=7,
                              fields='instance_uuid')
    for row in rows:
        ironic.http.delete(f'{OURS}/{row.id}')
    assert find_holds(ironic, node_class) == []


def test_marker_of_the_caller(library, group):
    with pytest.raises(openstack.exceptions.BadRequestException):
        list(library.proxy.list(marker=UNKNOWN))
    assert library.requests == 1
