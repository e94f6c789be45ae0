# SPDX-License-Identifier: Apache-2.0
"""Free nodes that carry something of a tenant are not held."""

import uuid

import pytest

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import node_counts
from ironic_reservations.fleet import search
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import preparations
from tests.common import fleets

pytestmark = pytest.mark.on('sqlite', 'server')


def set_info(text):
    return lambda fleet, node_id: fleet.set_node(node_id, instance_info=text)


def add_port(table, **columns):
    def add(fleet, node_id):
        fleet.insert_row(table, node_id, address=str(uuid.uuid4())[:17],
                         **columns)
    return add


def add_target(fleet, node_id):
    fleet.insert_row('volume_targets', node_id, volume_type='iscsi',
                     boot_index=0, volume_id='x')


TENANT_VIF, OLD_VIF = '{"tenant_vif_port_id": "x"}', '{"vif_port_id": "x"}'

#: Changes that keep a node from being held, and whether a count sees them.
PREPARATIONS = {
    'info': (set_info('{"image_source": "x"}'), True),
    'info with whitespace': (set_info(' {\n"a": null}'), True),
    **{f'{table} {key}': (add_port(table, **columns), False)
       for table in ('ports', 'portgroups') for key, columns in {
           'internal_info': {'internal_info': TENANT_VIF},
           'extra': {'extra': OLD_VIF},
           'without a space': {'extra': '{"a":1,"vif_port_id":"x"}'},
           'both': {'internal_info': TENANT_VIF, 'extra': '{'},
           'empty inside': {'extra': '{"a": {"vif_port_id": ""}, '
                                     '"vif_port_id": "x"}'},
           'with an escape': {'extra': r'{"a": "\u00e4", "vif_port_id": "x"}'},
       }.items()},
    'volume target': (add_target, False),
}

#: What does not.
NOTHING = {
    **{f'info {text!r}': set_info(text)
       for text in (None, '', '{}', ' { }\n', 'null')},
    **{f'{table} {columns}': add_port(table, **columns)
       for table in ('ports', 'portgroups') for columns in (
           {}, {'internal_info': '{}', 'extra': '{}'},
           {'internal_info': '{"cleaning_vif_port_id": "x", '
                             '"inspection_vif_port_id": "x", '
                             '"provisioning_vif_port_id": "x", '
                             '"rescuing_vif_port_id": "x"}'},
           {'internal_info': '{"tenant_vif_port_id": null}'},
           {'internal_info': OLD_VIF, 'extra': TENANT_VIF},
           {'extra': '{"vif_port_id": ""}'},
           {'extra': r'{"a": "\u00e4", "vif_port_id": ""}'},
           {'extra': '{"a": {"vif_port_id": "x"}, "vif_port_id": ""}',
            'internal_info': '{"a": {"tenant_vif_port_id": "x"}}'},
           {'extra': r'{"note": "\"vif_port_id\": \"x\""}'},
           {'extra': '{"note": "vif_port_id", "VIF_PORT_ID": "x"}'},
           {'extra': '{"a": NaN', 'internal_info': '[' * 200})},
}


def get_eliminated(fleet, **body):
    """Return why nodes cannot be held, with their numbers."""
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold(**body)
    return error.value.verdict.explanation.eliminated


@pytest.mark.parametrize('name', PREPARATIONS)
def test_prepared_node_is_not_held(fleet, name):
    prepare, is_counted = PREPARATIONS[name]
    node_id = fleet.add_node()
    prepare(fleet, node_id)
    body = {'candidate_nodes': [fleet[node_id].uuid]}
    # A lock does not matter, because the node cannot be held without it.
    for lock in None, 'conductor-1':
        fleet.set_node(node_id, reservation=lock)
        assert get_eliminated(fleet, **body) == {'prepared': 1}
    fleet.set_node(node_id, reservation=None)
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold_group(1)
    assert fleet.count_nodes() == (1, 0 if is_counted else 1, 0)
    assert fleet.holds == {}
    free = fleet.add_node()
    assert fleet.hold()[0].node_id == free


@pytest.mark.parametrize('name', PREPARATIONS)
def test_refusal_says_that_nodes_are_prepared(fleet, name):
    """Also if the count has not seen it."""
    for node_id in fleet.add({}, {}):
        PREPARATIONS[name][0](fleet, node_id)
    assert get_eliminated(fleet) == {'prepared': 2}


def test_refusal_reads_only_free_nodes_in_full(fleet, monkeypatch):
    """Thousands may carry only a VIF, which no count sees."""
    ids, read_counts = [], node_counts.read_counts
    monkeypatch.setattr(search, 'REASONS_PAGE', 2)
    monkeypatch.setattr(
        node_counts, 'read_counts', lambda page, *args: ids.extend(page)
        or read_counts(page, *args))
    *others, last = fleet.add(*({'properties': '{"cpu_arch": "64"}'},) * 4)
    for node_id in others:
        add_target(fleet, node_id)
    # The database reads an architecture in it, but Python does not.
    fleet.set_node(last, properties='{"cpu_arch": 64}')
    assert get_eliminated(
        fleet, extra_specs={'capabilities:cpu_arch': '64'}) == {
        'prepared': 3, 'malformed properties': 1}
    assert ids == [last]


@pytest.mark.parametrize('name', NOTHING)
def test_node_that_is_not_prepared(fleet, name):
    node_id = fleet.add_node()
    NOTHING[name](fleet, node_id)
    # Preparations of another node do not matter.
    other = fleet.add_node(resource_class='silver')
    for prepare, _ in PREPARATIONS.values():
        if prepare is not add_target:
            prepare(fleet, other)
    assert fleet.count_nodes(resource_class='gold') == (1, 1, 0)
    reservation, _ = fleet.hold(lease=60)
    assert reservation.node_id == node_id
    # It does not keep a reservation from expiring, either.
    fleet.expire_leases()
    assert expiry.sweep() == (1, 0)
    assert fleet.holds == {}


@pytest.mark.parametrize('name', PREPARATIONS)
@pytest.mark.parametrize('table', [None, 'ports', 'portgroups'])
def test_preparation_between_the_search_and_the_hold(fleet, name, table):
    """Also if the search has read a text that may name a VIF."""
    node_id = fleet.add_node()
    if table:
        add_port(table, extra='{"note": "vif_port_id"}')(fleet, node_id)
    with fleet.before(fleets.HOLD,
                      lambda: PREPARATIONS[name][0](fleet, node_id)):
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(candidate_nodes=[fleet[node_id].uuid])
    assert fleet.holds == {}


@pytest.mark.parametrize('name', PREPARATIONS)
def test_prepared_node_is_claimed_and_adopted(fleet, name):
    prepare = PREPARATIONS[name][0]
    first, second = fleet.add({}, {})
    reservation, _ = fleet.hold(owner=values.Assignment(),
                                candidate_nodes=[fleet[first].uuid])
    prepare(fleet, first)
    assert fleet.claim(reservation.instance_uuid)[0].node_id == first
    instance = str(uuid.uuid4())
    fleet.set_node(second, instance_uuid=instance, provision_state='active')
    prepare(fleet, second)
    assert adoption.adopt_instance(
        instance, fleets.matcher(memory_mb=1).spec,
        values.Assignment('compute-1'))[0].node_id == second


def test_deployed_node_counts_as_taken(fleet):
    node_id = fleet.add_node()
    fleet.hold()
    fleet.set_node(node_id, provision_state='active',
                   instance_info='{"a": "b"}')
    assert get_eliminated(fleet) == {'reserved': 1}


def test_commands_that_clean_a_node(fleet):
    node_id, _, other = fleet.add({}, {}, {})
    fleet.set_node(node_id, instance_info='{"a": 1, "b c; \\u001b[1m": 2}')
    add_port('ports', internal_info='{"tenant_vif_port_id": "x y"}',
             extra=OLD_VIF)(fleet, node_id)
    add_port('portgroups', extra=OLD_VIF)(fleet, node_id)
    add_target(fleet, node_id)
    fleet.set_node(other, instance_info='{"a": 1}',
                   instance_uuid=str(uuid.uuid4()))
    [(ident, commands)] = preparations.find_prepared()
    assert ident == fleet[node_id].uuid
    assert commands[:2] == [
        f"openstack baremetal node unset {ident} --instance-info a "
        f"--instance-info 'b c; \\x1b[1m'",
        f"openstack baremetal node vif detach {ident} 'x y'"]
    assert [command.rpartition(' ')[0] for command in commands[3:]] == [
        'openstack baremetal volume target delete']
    assert commands[2].startswith('openstack baremetal port group unset ')
    assert commands[2].endswith(' --extra vif_port_id')


def test_unknown_instances(fleet):
    unknown, *_ = fleet.add(
        {'instance_uuid': str(uuid.uuid4())}, {},
        {'instance_uuid': str(uuid.uuid4()),
         'allocation_id': fleet.add_allocation()},
        {'instance_uuid': str(uuid.uuid4()), 'provision_state': 'active'})
    fleet.hold(lease=60)
    # Also while a sweep has not released it yet.
    fleet.expire_leases()
    assert preparations.find_unknown_instances() == [
        (fleet[unknown].uuid, fleet[unknown].instance_uuid)]
