# SPDX-License-Identifier: Apache-2.0
"""Clients read what has several pages to its end, whatever goes meanwhile."""

import json

import openstack
from openstack import exceptions
import pytest

from ironic_reservations import sdk
from ironic_reservations.api import answers
from ironic_reservations.osc import client
from tests.common import command
from tests.common import service

pytestmark = pytest.mark.on('sqlite')

OURS = service.OURS
POOL = [{}] * 7
UNKNOWN = '99999999-2222-4333-8444-555555555555'


@pytest.fixture(autouse=True)
def short_pages(monkeypatch):
    """An answer has room for two or three members of a group, or groups."""
    monkeypatch.setattr(answers, 'MAX_PAGE', 1500)
    monkeypatch.setattr(client, 'PAUSE', 0)
    monkeypatch.setattr(sdk, 'PAUSE', 0)


class Meanwhile:
    """Does something before each request that names a marker.

    :ivar act: called with the marker; returns the one to send.
    """

    requests = 0

    def act(self, marker):
        return marker

    def release(self, ironic):
        """Release the first marker, once, and with it a group's member."""
        def act(marker):
            ironic.http.delete(f'{OURS}/{marker}')
            ironic.http.delete(f'{OURS}/groups/{marker}')
            self.act = lambda marker: marker
            self.released = marker
            return marker
        self.act = act

    def refuse(self):
        self.act = lambda marker: UNKNOWN


@pytest.fixture
def cli(ironic, monkeypatch):
    """Shows and makes groups, and lists, with the openstack command."""
    meanwhile, request = Meanwhile(), client.request

    def ask(cmd, method, url, **kwargs):
        meanwhile.requests += 1
        before, word, marker = url.partition('marker=')
        return request(cmd, method, before + word + (
            word and meanwhile.act(marker)), **kwargs)

    def run(*args):
        done = command.run(ironic.url, 'baremetal', 'reservation', *args,
                           '-f', 'json')
        if done.returncode:
            assert 'marker: must be' in done.stderr
            raise Refused
        return json.loads(done.stdout)

    def group(*args):
        return {each['instance_uuid']
                for each in run('group', *args)['reservations']}

    monkeypatch.setattr(client, 'request', ask)
    meanwhile.show = lambda uuid: group('show', uuid)
    meanwhile.create = lambda node_class: group(
        'create', '--members', '7', '--resource-class', node_class)
    meanwhile.list = lambda node_class: [
        each['Instance UUID']
        for each in run('list', '--long', '--resource-class', node_class)]
    return meanwhile


class Refused(Exception):
    """The command has failed because of a marker."""


@pytest.fixture
def library(ironic, monkeypatch):
    """Does the same with openstacksdk."""
    conn = openstack.connect(load_envvars=False, load_yaml_config=False,
                             auth_type='none', endpoint=ironic.url)
    # conn would ask for the versions of Ironic, which is not there.
    proxy, meanwhile = sdk.Proxy(
        conn.session, service_type='baremetal',
        endpoint_override=f'{ironic.url}/v1'), Meanwhile()
    get = proxy.get

    def ask(url, params=None, **kwargs):
        meanwhile.requests += 1
        params = dict(params or {})
        if params.get('marker'):
            marker = params['marker']
            params['marker'] = meanwhile.act(
                marker[0] if isinstance(marker, list) else marker)
        return get(url, params=params, **kwargs)

    monkeypatch.setattr(proxy, 'get', ask)
    meanwhile.proxy = proxy
    meanwhile.show = lambda uuid: members(proxy.show_group(uuid))
    meanwhile.create = lambda node_class: members(
        proxy.create_group(7, {'resource_class': node_class}))
    meanwhile.list = lambda node_class: [
        each.id for each in proxy.list(resource_class=node_class)]
    yield meanwhile
    conn.close()


def members(group):
    assert group.next is None
    return {each.instance_uuid for each in group.reservations}


@pytest.fixture(params=['cli', 'library'])
def user(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def group(ironic, pool, node_class):
    return create(ironic, node_class, 7)


def create(ironic, node_class, number):
    """The UUID of a group."""
    return ironic.http.post(f'{OURS}/groups', json={
        'members': number, 'request': {'resource_class': node_class}}
    ).json()['uuid']


def held(ironic, node_class):
    return {each.id for each in ironic.execute(
        'SELECT instance_uuid AS id FROM nodes WHERE resource_class = :c '
        'AND instance_uuid IS NOT NULL', c=node_class)}


def test_group_too_large_for_an_answer(ironic, user, group, node_class):
    assert user.show(group) == held(ironic, node_class)
    assert user.requests > 2


def test_group_whose_member_goes(ironic, user, group, node_class):
    user.release(ironic)
    assert user.show(group) == held(ironic, node_class)
    assert len(held(ironic, node_class)) == 6


def test_new_group_whose_member_goes(ironic, user, pool, node_class):
    user.release(ironic)
    assert user.create(node_class) == held(ironic, node_class)
    assert len(held(ironic, node_class)) == 6


def test_group_whose_markers_are_refused(ironic, user, group):
    user.refuse()
    with pytest.raises((Refused, exceptions.BadRequestException)):
        user.show(group)
    assert user.requests == 2 * (sdk.RESTARTS + 1)


def test_list_whose_marker_goes(ironic, user, group, node_class):
    """What it had said before stays said."""
    user.release(ironic)
    listed = user.list(node_class)
    assert len(listed) == 7
    assert {*listed} == {user.released, *held(ironic, node_class)}


def test_list_of_a_field_whose_marker_goes(ironic, library, group,
                                           node_class):
    library.release(ironic)
    assert len(list(library.proxy.list(
        resource_class=node_class, fields='host'))) == 7


def test_list_of_groups_whose_marker_goes(ironic, library, pool, node_class):
    made = [create(ironic, node_class, 1) for _ in range(7)]
    library.release(ironic)
    assert [each.uuid for each in library.proxy.groups(limit=3)] == made
    assert library.released in made
    assert [each.uuid for each in library.proxy.groups(max_items=4)] == [
        each for each in made if each != library.released][:4]


def test_list_whose_markers_are_refused(user, group, node_class):
    user.refuse()
    with pytest.raises((Refused, exceptions.BadRequestException)):
        user.list(node_class)
    assert user.requests == 2 * (sdk.RESTARTS + 1)


def test_marker_of_the_caller(library, group):
    """It is the caller's error, and nothing to try again."""
    with pytest.raises(exceptions.BadRequestException):
        list(library.proxy.list(marker=UNKNOWN))
    assert library.requests == 1
