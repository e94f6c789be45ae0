# SPDX-License-Identifier: Apache-2.0
"""The library, and its example in the documentation."""

import pathlib
import runpy
import uuid

import openstack
from openstack import exceptions
import pytest

from ironic_reservations import sdk
from ironic_reservations.api import capacity
from ironic_reservations.api import groups
from ironic_reservations.api import history
from ironic_reservations.api import hosts
from ironic_reservations.api import notices
from ironic_reservations.api import pools
from ironic_reservations.api import reservations as api
from ironic_reservations.api import resources
from ironic_reservations.api import specs
from ironic_reservations.api import version

EXAMPLE = pathlib.Path(
    __file__).parents[2] / 'doc/source/examples/fulfilment.py'
POOL = [{'properties': {'memory_mb': 1024, 'capabilities': f'rack:{rack}'},
         'traits': ['CUSTOM_NVME']} for rack in ('r1', 'r1', 'r2')]


def connect(url, **kwargs):
    return openstack.connect(load_envvars=False, load_yaml_config=False,
                             auth_type='none', endpoint=url, **kwargs)


@pytest.fixture
def reservations(ironic):
    conn = connect(ironic.url)
    conn.add_service(sdk.SERVICE)
    return conn.baremetal_reservations


def test_reservation(reservations, ironic, pool, node_class):
    hold = reservations.create(resource_class=node_class, memory_mb=512,
                               expires_in=60, host='compute-1',
                               extra_specs={'trait:CUSTOM_NVME': 'required'})
    assert hold.node_uuid in {node.id for node in pool}
    assert (hold.state, hold.host) == ('reserved', 'compute-1')
    assert hold.request_spec['memory_mb'] == 512
    shown_hold = reservations.show(hold.instance_uuid)
    assert shown_hold.expires_at == hold.expires_at
    again = reservations.create(
        instance_uuid=hold.id, resource_class=node_class, memory_mb=512,
        extra_specs={'trait:CUSTOM_NVME': 'required'})
    assert again.node_uuid == hold.node_uuid and again.expires_at is None
    renewal = reservations.renew(hold, 600, host='compute-1')
    assert renewal.expires_at > shown_hold.expires_at
    assert reservations.renew(hold, None).expires_at is None
    for text in 'burn-in', None:
        assert reservations.describe(hold, text).description == text
    with pytest.raises(exceptions.NotFoundException):
        reservations.renew(hold, 600, host='compute-2')
    reservations.release(hold)
    reservations.release(hold)
    with pytest.raises(exceptions.NotFoundException):
        reservations.release(hold, ignore_missing=False)
    with pytest.raises(exceptions.NotFoundException):
        reservations.show(hold)


def test_list(reservations, pool, node_class):
    uuids = [reservations.create(resource_class=node_class).instance_uuid
             for _ in pool]
    for query in {}, {'limit': 1}:
        rows = list(reservations.list(resource_class=node_class, **query))
        assert [row.instance_uuid for row in rows] == uuids
    assert list(reservations.list(host='none')) == []


def test_refusal(reservations, pool, node_class):
    with pytest.raises(exceptions.HttpException,
                       match='memory_mb>=4096 eliminates 3') as error:
        reservations.create(resource_class=node_class, memory_mb=4096)
    assert error.value.status_code == 422
    explanation = error.value.response.json()['explanation']
    assert explanation['nearest'] == {'by': 'memory_mb>=4096', 'nodes': 3}


def test_dry_run(reservations, pool, node_class):
    verdict = reservations.dry_run(resource_class=node_class, memory_mb=4096)
    assert verdict['matching_nodes'] == 0
    assert verdict['explanation']['nearest'] == {'by': 'memory_mb>=4096',
                                                 'nodes': 3}
    with pytest.raises(exceptions.BadRequestException, match='memory'):
        reservations.dry_run(resource_class=node_class, memory=4096)
    assert list(reservations.list(resource_class=node_class)) == []


def test_unknown_keys_are_refused(reservations, pool, node_class):
    """openstacksdk by itself would leave them out."""
    for call in (lambda: reservations.create(resource_class=node_class,
                                             memory=1024),
                 lambda: reservations.create_group(
                     2, {'resource_class': node_class}, polcy='pack')):
        with pytest.raises(exceptions.BadRequestException):
            call()
    assert list(reservations.list(resource_class=node_class)) == []


@pytest.mark.parametrize('method', ['list', 'capacity', 'hosts', 'groups',
                                    'notices', 'pools', 'history'])
@pytest.mark.parametrize('name', ['hosts', 'state_', 'paginated',
                                  'description'])
def test_unknown_filters_are_refused(reservations, method, name):
    with pytest.raises(exceptions.InvalidResourceQuery, match=name):
        getattr(reservations, method)(**{name: 'a'})


@pytest.mark.parametrize(('resource', 'validator'), [
    (sdk.Reservation, api.LIST_QUERY), (sdk.Group, groups.LIST_QUERY),
    (sdk.Host, hosts.LIST_QUERY), (sdk.Notice, notices.LIST_QUERY),
    (sdk.Pool, pools.LIST_QUERY), (sdk.Profile, capacity.QUERY),
    (sdk.EndedReservation, history.LIST_QUERY)])
def test_filters_are_those_of_the_api(resource, validator):
    assert resource._query_mapping._mapping.keys() == (
        validator.schema['properties'].keys())


@pytest.mark.parametrize('ident', [None, '', '..', sdk.Reservation()])
def test_calls_without_an_id(reservations, pool, node_class, ident):
    reservations.create(resource_class=node_class)
    for call in (lambda: reservations.claim(ident, resource_class=node_class),
                 lambda: reservations.show(ident),
                 lambda: reservations.release(ident),
                 lambda: reservations.renew(ident, None),
                 lambda: reservations.describe(ident, 'a')):
        with pytest.raises(exceptions.InvalidRequest):
            call()
    if not isinstance(ident, sdk.Reservation):
        for call in (reservations.show_group, reservations.release_group,
                     reservations.delete_host, reservations.show_pool,
                     reservations.delete_pool, reservations.update_pool,
                     lambda pool: reservations.remove_pool_node(pool, 'a'),
                     lambda node: reservations.remove_pool_node(
                         str(uuid.uuid4()), node),
                     lambda node: reservations.add_pool_node(
                         str(uuid.uuid4()), node)):
            with pytest.raises(exceptions.InvalidRequest):
                call(ident)
    assert len(list(reservations.list(resource_class=node_class))) == 1


@pytest.mark.parametrize('path', ['capacity', 'groups/%s', '../groups/%s'])
def test_ids_that_are_paths(reservations, pool, node_class, path):
    """Such as that of a group, which "release" would release."""
    group = reservations.create_group(2, {'resource_class': node_class})
    path = path.replace('%s', group.id)
    for call in (reservations.show, reservations.release,
                 lambda ident: reservations.renew(ident, None),
                 lambda ident: reservations.describe(ident, 'a'),
                 reservations.show_group, reservations.release_group,
                 lambda ident: reservations.renew_group(ident, None),
                 lambda ident: reservations.describe_group(ident, 'a'),
                 reservations.close_notices, reservations.show_pool,
                 reservations.update_pool, reservations.delete_pool,
                 lambda ident: reservations.add_pool_node(ident, 'a'),
                 lambda ident: reservations.replace_pool_node(ident, 'a'),
                 lambda ident: reservations.remove_pool_node(ident, 'a')):
        with pytest.raises(exceptions.InvalidRequest, match='UUID'):
            call(path)
    assert len(reservations.show_group(group).reservations) == 2
    for ident in uuid.UUID(group.id), group.id.upper():
        assert reservations.show_group(ident).uuid == group.id


def test_host_whose_name_is_a_path(reservations, pool, node_class):
    group = reservations.create_group(1, {'resource_class': node_class})
    reservations.delete_host(f'../groups/{group.id}')
    with pytest.raises(exceptions.NotFoundException):
        reservations.delete_host(f'../groups/{group.id}',
                                 ignore_missing=False)
    assert reservations.show_group(group).reservations


def test_empty_host(reservations, pool, node_class):
    hold = reservations.create(resource_class=node_class, expires_in=60,
                               host='compute-1')
    for call in (lambda: reservations.renew(hold, None, host=''),
                 lambda: list(reservations.list(host='')),
                 lambda: list(reservations.capacity(host='')),
                 lambda: list(reservations.hosts(host=''))):
        with pytest.raises(exceptions.BadRequestException, match='host: '):
            call()
    assert reservations.show(hold).expires_at == hold.expires_at


def test_no_value(reservations, pool, node_class):
    """It would be left out, and the call would apply to everything."""
    hold = reservations.create(resource_class=node_class, expires_in=60,
                               host='compute-1')
    uuid_ = reservations.create_notices(
        'fault', nodes=[pool[0].id, pool[1].id])[0].uuid
    for call in (lambda: reservations.list(node=None),
                 lambda: reservations.list(host=[]),
                 lambda: reservations.capacity(shard=None),
                 lambda: reservations.capacity(trait=[None]),
                 lambda: reservations.hosts(host=None),
                 lambda: reservations.notices(node=None),
                 lambda: reservations.history(project_id=None),
                 lambda: reservations.pools(project_id=None),
                 lambda: reservations.renew(hold, None, host=None),
                 lambda: reservations.close_notices(uuid_, node=None)):
        with pytest.raises(exceptions.InvalidRequest,
                           match='requires a value'):
            list(call())
    assert reservations.show(hold).expires_at == hold.expires_at
    assert len([*reservations.notices(uuid=uuid_, state='open')]) == 2
    row, = reservations.list(
        resource_class=node_class, limit=None, marker=None, sort_key=None,
        sort_dir=None, fields=None)
    assert row.id == hold.id
    assert list(reservations.capacity(resource_class=node_class, trait=[],
                                      by=[]))
    reservations.close_notices(uuid_)


def test_group_and_claim(reservations, pool, node_class):
    group = reservations.create_group(
        2, {'resource_class': node_class}, policy='pack',
        by='capability:rack')
    assert {row.group['domain'] for row in group.reservations} == {'r1'}
    assert reservations.show_group(group.uuid).reservations[0].node_uuid in {
        node.id for node in pool}
    assert [(row.members, row.domains)
            for row in reservations.groups(limit=1)
            if row.uuid == group.uuid] == [
                (2, [{'value': 'r1', 'nodes': 2}])]
    with pytest.raises(exceptions.HttpException) as error:
        reservations.create_group(
            2, {'resource_class': node_class}, policy='pack',
            by='capability:rack')
    assert error.value.response.json()['members'] == {'wanted': 2,
                                                      'available': 1}
    claim = reservations.claim(group, resource_class=node_class)
    assert claim.group['uuid'] == group.uuid
    assert reservations.claim(
        group.reservations[0] if group.reservations[0].node_uuid
        != claim.node_uuid else group.reservations[1],
        resource_class=node_class).group == claim.group
    reservations.release_group(group)
    with pytest.raises(exceptions.NotFoundException):
        reservations.show_group(group)


def test_segments(reservations, pool, node_class):
    group = reservations.create_group(
        2, {'resource_class': node_class}, levels=[
            {'by': 'capability:rack', 'policy': 'pack', 'segment': 1}])
    assert reservations.show_group(group).levels == group.levels == [
        {'by': 'capability:rack', 'policy': 'pack', 'segment': 1}]
    assert (group.policy, group.by) == (None, None)
    assert [(row.segments, sum(domain['nodes'] for domain in row.domains))
            for row in reservations.groups() if row.uuid == group.uuid] == [
                (2, 2)]
    claim = reservations.claim(group, segment=1, resource_class=node_class)
    assert claim.group['segment'] == 1
    with pytest.raises(exceptions.ConflictException):
        reservations.claim(group, segment=2, resource_class=node_class)
    reservations.release(claim)
    repair = reservations.create(resource_class=node_class, group={
        'uuid': group.uuid, 'segment': 1})
    assert repair.group['segment'] == 1
    reservations.release_group(group)


def test_change_of_a_group(reservations, pool, node_class):
    group = reservations.create_group(
        2, {'resource_class': node_class}, expires_in=60, description='old')
    assert group.description == 'old'
    for text in 'new', None:
        change = reservations.describe_group(group, text)
        assert change.description == text and len(change.reservations) == 2
    change = reservations.renew_group(group.id, 3600)
    assert all(member.expires_at > group.reservations[0].expires_at
               for member in change.reservations)
    assert len(list(reservations.list(group=group.id,
                                      expires_before=7200))) == 2
    assert not list(reservations.list(group=group.id, expires_before=600))
    assert not any(member.expires_at for member in reservations.renew_group(
        group, None).reservations)
    reservations.release_group(group)


def test_capacity(reservations, pool, node_class):
    reservations.create_group(1, {'resource_class': node_class})
    profiles = list(reservations.capacity(resource_class=node_class))
    assert {row.capabilities['rack'] for row in profiles} == {'r1', 'r2'}
    assert sum(row.total for row in profiles) == 3


def test_capacity_by_keys(reservations, pool, node_class):
    for query in {}, {'limit': 1}:
        rows = list(reservations.capacity(
            resource_class=node_class, trait=['CUSTOM_NVME'],
            by=['capability:rack', 'resource_class'], **query))
        assert [(row['capability:rack'], row.resource_class, row.total)
                for row in rows] == [('r1', node_class, 2),
                                     ('r2', node_class, 1)]


def test_hosts(reservations, ironic):
    for ttl in (600, 10):
        response = ironic.http.put(f'/v1/reservations/hosts/sdk-{ttl}', json={
            'holder': str(uuid.uuid4()), 'ttl': ttl})
        assert response.status_code == 200, response.text
    host, = reservations.hosts(host='sdk-600')
    assert (host.id, host.live, host.standbys, host.reservations) == (
        'sdk-600', True, 0, 0)
    assert {'sdk-600', 'sdk-10'} <= {lease.host
                                     for lease in reservations.hosts()}
    with pytest.raises(exceptions.ConflictException):
        reservations.delete_host(host)
    ironic.execute("UPDATE reservations_hosts SET expires_at = "
                   "'2020-01-01 00:00:00' WHERE host LIKE 'sdk-%'")
    reservations.delete_host(host)
    reservations.delete_host('sdk-10')
    assert not list(reservations.hosts(host='sdk-600'))


def test_notices(reservations, ironic, pool, node_class):
    hold = reservations.create(resource_class=node_class,
                               candidate_nodes=[pool[0].id])
    assert hold.notices == []
    hold, = reservations.list(node=hold.node_uuid)
    notices = reservations.create_notices(
        'maintenance', nodes=[pool[0].id, pool[1].name or pool[1].id],
        ticket='RMA-1')
    again = reservations.create_notices(
        'maintenance', nodes=[pool[0].id, pool[1].name or pool[1].id],
        ticket='RMA-1', uuid=notices[0].uuid)
    assert again == notices
    notice, = reservations.create_notices(
        'maintenance', nodes=[pool[2].id], starts_at={'in': 600})
    assert notice.state == 'planned'
    reservations.close_notices(notice)
    assert {notice.node_uuid for notice in notices} == {
        pool[0].id, pool[1].id}
    for query in {}, {'limit': 1}:
        assert [*reservations.notices(ticket='RMA-1', **query)] == notices
    assert hold.notices is None
    hold = reservations.show(hold)
    one, = hold.notices
    assert hold.more_notices == 0
    assert (one.id, one.node_uuid, one.ticket) == (
        notices[0].uuid, hold.node_uuid, 'RMA-1')
    assert (hold.health, hold.maintenance) == (None, False)
    row, = reservations.list(node=hold.node_uuid,
                             fields=['instance_uuid', 'notices'])
    assert row.notices == hold.notices
    # An object is one notice, and a UUID all of a request.
    one, = reservations.update_notices(notices[0], cordon=False, ticket=None)
    assert (one.node_uuid, one.cordon, one.ticket) == (
        notices[0].node_uuid, False, None)
    assert len([*reservations.notices(ticket='RMA-1')]) == 1
    one, = reservations.close_notices(
        notices[0].uuid, node=pool[1].id, action='New fan')
    assert (one.node_uuid, one.state, one.action) == (
        pool[1].id, 'closed', 'New fan')
    with pytest.raises(exceptions.ConflictException):
        reservations.close_notices(notices[0].uuid)
    assert len(reservations.update_notices(notices[0].id, ticket='T')) == 2
    assert [notice.id for notice in reservations.notices(
        state='open', node=pool[0].id)] == [notices[0].uuid]
    with pytest.raises(exceptions.BadRequestException, match='ends'):
        reservations.create_notices('fault', nodes=[pool[0].id], ends='a')
    with pytest.raises(exceptions.BadRequestException):
        reservations.update_notices(notices[0], tickets='a')
    with pytest.raises(exceptions.InvalidRequest):
        reservations.close_notices('')
    # A notice has its node, which may be given by UUID or name.
    with pytest.raises(exceptions.InvalidRequest, match=pool[1].id):
        reservations.update_notices(notices[0], node=pool[1].id, ticket='U')
    for node in notices[0].node_uuid, notices[0].node_name:
        one, = reservations.update_notices(notices[0], node=node, ticket='U')
        assert (one.node_uuid, one.ticket) == (notices[0].node_uuid, 'U')
    ironic.execute('DELETE FROM reservations_notices')


def test_pools(reservations, pool, node_class):
    uuids = {node.id for node in pool}
    request = {'resource_class': node_class}
    rack_pool = reservations.create_pool(
        'p', 2, request, policy='pack', by='capability:rack',
        expires_at='2040-01-01T00:00:00Z', description='Q1')
    assert (rack_pool.project_id, rack_pool.request,
            rack_pool.summary['free']) == ('p', request, 2)
    assert rack_pool.expires_at.startswith('2040-01-01')
    assert reservations.create_pool(
        'p', 2, request, policy='pack', by='capability:rack',
        uuid=rack_pool.uuid).nodes == rack_pool.nodes
    names = {node['uuid'] for node in rack_pool.nodes}
    rest, = uuids - names
    node = rack_pool.nodes[0]['uuid']
    row, = reservations.pools(project_id='p', node=node, limit=1)
    assert (row.summary, row.nodes) == (rack_pool.summary, None)
    with pytest.raises(exceptions.HttpException) as error:
        reservations.replace_pool_node(rack_pool, node)
    assert error.value.status_code == 422
    assert len(reservations.add_pool_node(rack_pool, rest).nodes) == 3
    with pytest.raises(exceptions.ConflictException):
        reservations.add_pool_node(rack_pool.uuid, rest)
    reservations.remove_pool_node(rack_pool, rest)
    with pytest.raises(exceptions.NotFoundException):
        reservations.remove_pool_node(rack_pool, rest)
    assert {node['uuid'] for node in reservations.show_pool(rack_pool).nodes
            } == names
    change = reservations.update_pool(rack_pool, expires_at={'in': 86400})
    assert change.expires_at < '2040'
    change = reservations.update_pool(rack_pool.uuid, expires_at=None,
                                      description='Q2')
    assert (change.expires_at, change.description) == (None, 'Q2')
    with pytest.raises(exceptions.BadRequestException):
        reservations.update_pool(rack_pool.uuid, members=3)
    with pytest.raises(exceptions.BadRequestException, match='expires_in'):
        reservations.create_pool('p', 1, request, expires_in=60)
    reservations.delete_pool(rack_pool)
    reservations.delete_pool(rack_pool)
    with pytest.raises(exceptions.NotFoundException):
        reservations.show_pool(rack_pool.uuid)
    loose = reservations.create_pool('p', 1, request)
    replacement = reservations.replace_pool_node(
        loose, loose.nodes[0]['uuid'])
    assert len(replacement.nodes) == 1
    assert replacement.nodes[0]['uuid'] != loose.nodes[0]['uuid']
    reservations.delete_pool(loose)


def test_version(reservations, stock_ironic):
    assert reservations.endpoint_version() == version.OWN_VERSION
    conn = connect(stock_ironic.url)
    conn.add_service(sdk.SERVICE)
    assert conn.baremetal_reservations.endpoint_version() is None


def test_vendor_hook(ironic, pool, node_class):
    conn = connect(ironic.url, vendor_hook='ironic_reservations.sdk:add_to')
    assert conn.baremetal_reservations.create(
        resource_class=node_class).state == 'reserved'
    assert conn.baremetal.get_node(pool[0].id).id == pool[0].id


@pytest.mark.parametrize(('resource', 'fields'), [
    (sdk.Reservation, {*resources.FIELDS, 'more_notices',
                       *specs.REQUEST_SPEC['properties']}),
    (sdk.Group, {*(attribute.name
                   for attribute in groups.Group._wsme_attributes),
                 *groups.CREATE_BODY.schema['properties']}),
    (sdk.Host, {attribute.name for attribute in hosts.Host._wsme_attributes}),
    (sdk.Notice, {attribute.name
                  for attribute in resources.Notice._wsme_attributes}),
    (sdk.Pool, {*(attribute.name
                  for attribute in pools.Pool._wsme_attributes),
                *pools.CREATE_BODY.schema['properties']}),
    (sdk.Profile, {
        attribute.name
        for attribute in resources.Profile._wsme_attributes})])
def test_fields_are_those_of_the_api(resource, fields):
    own = set(resource._body_mapping())
    # They are only stored, or used by compute services only; the library
    # accepts them without an attribute.
    assert fields - own <= {'holder', 'vcpu_weight', 'rxtx_factor'}
    assert own - fields <= {'id', 'name', 'ignored'}


def test_example(ironic, resource_class):
    example = runpy.run_path(str(EXAMPLE))
    with ironic.fleet({'resource_class': resource_class,
                       'properties': {'memory_mb': 1024}}) as (node,):
        backend = example['Backend'](connect(ironic.url))
        order = str(uuid.uuid4())
        hold = backend.hold(order, resource_class=resource_class)
        assert hold.node_uuid == node.id
        # As after a crash.
        assert backend.hold(order, resource_class=resource_class
                            ).node_uuid == node.id
        with pytest.raises(example['NoMachine'], match='reserved'):
            backend.hold(str(uuid.uuid4()), resource_class=resource_class)
        assert backend.renew(order).expires_at >= hold.expires_at
        backend.deploy(order, {'image_source': 'http://images.test/a.raw'})
        assert backend.reservations.show(order).state == 'active'
        backend.release(order)
        backend.release(order)
        ironic_node = backend.baremetal.get_node(node.id)
        assert ironic_node.provision_state == 'available'
        assert ironic_node.instance_id is None
        another = str(uuid.uuid4())
        backend.hold(another, resource_class=resource_class)
        backend.release(another)
        assert backend.baremetal.get_node(node.id).instance_id is None
