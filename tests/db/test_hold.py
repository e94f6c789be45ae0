# SPDX-License-Identifier: Apache-2.0
"""The transaction: what is held, what is let go, and nothing in between."""

import datetime
import random
import time
import uuid

from ironic.common import states
from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import reservations
from ironic_reservations.db import models
from ironic_reservations.reservations import Owner

INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
OTHER = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'
HOST_1, HOST_2 = Owner(host='compute-1'), Owner(host='compute-2')
GOLD = {'resource_class': 'gold', 'memory_mb': 1000}

#: The statement that makes a node somebody's.
HOLD = 'UPDATE nodes SET instance_uuid'


# What is held

def test_hold(fleet):
    node_id = fleet.node(name='node-1', resource_class='Gold')
    owner = Owner('compute-1', 'project', 'user')
    held, created = fleet.hold(INSTANCE, owner=owner, **GOLD)
    assert created
    node = fleet[node_id]
    assert held.instance_uuid == node.instance_uuid == INSTANCE
    assert (held.node_id, held.node_uuid, held.node_name) == (
        node_id, node.uuid, 'node-1')
    assert (held.host, held.project_id, held.user_id) == (
        'compute-1', 'project', 'user')
    assert (held.state, held.provision_state) == ('reserved', 'available')
    assert held.resource_class == 'Gold'
    assert held.expires_at is None and held.updated_at is None
    assert reservations.get(INSTANCE) == held
    assert fleet.held == {node_id: INSTANCE}


def test_times_are_the_databases_utc(fleet):
    node_id = fleet.node()
    now = sa.text("SELECT strftime('%Y-%m-%d %H:%M:%S', 'now')"
                  if fleet.engine.name == 'sqlite' else
                  "SELECT DATE_FORMAT(UTC_TIMESTAMP(), '%Y-%m-%d %H:%i:%s')")
    before, = fleet.execute(now)[0]
    held, _ = fleet.hold(INSTANCE)
    after, = fleet.execute(now)[0]
    for each in held.created_at, fleet[node_id].updated_at:
        assert before <= f'{each:%Y-%m-%d %H:%M:%S}' <= after
        assert not each.microsecond


def test_time_where_ironics_table_has_a_trigger(fleet):
    """As an operator's audit, or a tool that alters tables, may have one."""
    fleet.node()
    key = 'AUTO_INCREMENT' if fleet.engine.name == 'mysql' else ''
    for statement in (
            f'CREATE TABLE noted (id INTEGER PRIMARY KEY {key}, node INTEGER)',
            'CREATE TRIGGER note AFTER UPDATE ON nodes FOR EACH ROW '
            'BEGIN INSERT INTO noted (node) VALUES (NEW.id); END'):
        fleet.execute(sa.text(statement))
    try:
        held, _ = fleet.hold(INSTANCE)
    finally:
        fleet.execute(sa.text('DROP TRIGGER note'))
        noted = fleet.execute(sa.text('SELECT node FROM noted'))
        fleet.execute(sa.text('DROP TABLE noted'))
    assert noted == [(held.node_id,)]
    updated_at = fleet[held.node_id].updated_at
    assert abs(held.created_at - updated_at) <= datetime.timedelta(0, 2)


def test_nothing_else_of_ironics_is_written(fleet):
    everything = sa.MetaData()
    everything.reflect(fleet.engine, only=['nodes', 'node_traits'])

    def ironics():
        return [[{key: value for key, value in row._mapping.items()
                  if key not in ('instance_uuid', 'updated_at')}
                 for row in fleet.execute(sa.select(table))]
                for table in everything.tables.values()]

    fleet.add({'traits': ['CUSTOM_A']}, {})
    before = ironics()
    fleet.hold(INSTANCE)
    reservations.release(INSTANCE)
    assert ironics() == before


def test_nothing_is_left_of_a_request_that_nothing_matches(fleet):
    fleet.node(resource_class='silver')
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(INSTANCE)
    assert fleet.held == {}


def test_empty_fleet(fleet):
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(INSTANCE)


INELIGIBLE = [
    *({'provision_state': state} for state in sorted(
        states.ALL_STATES - {'available'}) + [None]),
    {'instance_uuid': OTHER},
    {'allocation_id': 'an allocation'},
    {'reservation': 'conductor-1'},
    {'maintenance': True},
    {'retired': True},
    {'power_state': None},
    {'parent_node': OTHER},
]


@pytest.mark.parametrize('fields', INELIGIBLE, ids=str)
def test_node_that_may_not_be_held(fleet, fields):
    if 'allocation_id' in fields:
        fields = {'allocation_id': fleet.allocation()}
    ineligible = fleet.node(**fields)
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold()
    free = fleet.node()
    assert fleet.hold()[0].node_id == free
    assert fleet[ineligible].instance_uuid == fields.get('instance_uuid')


@pytest.mark.parametrize('fields', [
    {'maintenance': None}, {'retired': None}, {'maintenance': False},
    {'power_state': 'power on'}, {'power_state': 'error'}, {'name': None},
    {'resource_class': 'GOLD'}], ids=str)
def test_node_that_may_be_held(fleet, fields):
    node_id = fleet.node(**fields)
    assert fleet.hold()[0].node_id == node_id


@pytest.mark.parametrize('lock', [None, 'conductor-1'])
def test_only_locks_are_worth_another_try(fleet, lock):
    fleet.add({'resource_class': 'silver', 'reservation': 'conductor-1'},
              {'maintenance': True},
              {'reservation': lock, 'maintenance': lock is None})
    with pytest.raises(exception.NoMatchingNode) as caught:
        fleet.hold()
    assert caught.value.retry is (lock is not None)


# For a project

@pytest.mark.parametrize('fields, expected', [
    ({'owner': 'mine'}, True), ({'lessee': 'mine'}, True),
    ({'owner': 'yours', 'lessee': 'mine'}, True),
    ({'owner': 'yours'}, False), ({'lessee': 'yours'}, False), ({}, False),
    ({'owner': ''}, False)], ids=str)
def test_project_gets_what_it_owns_or_leases(fleet, fields, expected):
    fleet.node(**fields)
    if expected:
        assert fleet.hold(restricted_to='mine')[1]
    else:
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(restricted_to='mine')
        assert fleet.held == {}


@pytest.mark.parametrize('almost', ['MINE', 'mine ', 'm\u00edne'])
@pytest.mark.parametrize('body', [
    GOLD, {'candidate_nodes': ['node-1', 'node-2']}], ids=['any', 'named'])
def test_project_of_almost_the_same_name_is_another(fleet, body, almost):
    """MariaDB's collation takes them for equal."""
    fleet.add({'owner': almost, 'name': 'node-1'},
              {'lessee': almost, 'name': 'node-2'})
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(restricted_to='mine', **body)
    assert fleet.held == {}


# What changes between the look and the hold

CHANGED = {
    'size': {'properties': {'memory_mb': 999}},
    'space': {'properties': '{"memory_mb": 1024} '},
    'case': {'properties': '{"MEMORY_MB": 1024}'},
    'accent': {'properties': '{"m\u00e9mory_mb": 1024}'},
    'null': {'properties': None},
    'empty': {'properties': ''},
    'class': {'resource_class': 'silver'},
    'class-case': {'resource_class': 'GOLD'},
    'no-class': {'resource_class': None},
    'group': {'conductor_group': 'rack'},
    'group-space': {'conductor_group': ' '},
    'shard': {'shard': 'b'},
    'shard-case': {'shard': 'A'},
    'no-shard': {'shard': None},
    'uuid': {'uuid': OTHER},
    'name': {'name': 'another'},
    'name-case': {'name': 'NODE-1'},
    'no-name': {'name': None},
    'owner': {'owner': 'another'},
    'owner-case': {'owner': 'MINE'},
    'no-owner': {'owner': None},
    'state': {'provision_state': 'manageable'},
    'instance': {'instance_uuid': OTHER},
    'lock': {'reservation': 'conductor-1'},
    'maintenance': {'maintenance': True},
    'retired': {'retired': True},
    'power': {'power_state': None},
    'parent': {'parent_node': OTHER},
    'required-trait': ['CUSTOM_C'],
    'no-traits': [],
    'forbidden-trait': ['CUSTOM_A', 'CUSTOM_B'],
    'gone': None,
}
# A class in another case is the same class: the next look takes it again.
STILL_MATCHING = ('space', 'class-case', 'uuid')

NODE_1 = {'name': 'node-1', 'shard': 'a', 'owner': 'mine',
          'traits': ['CUSTOM_A'], 'properties': '{"memory_mb": 1024}'}
FOR_NODE_1 = {**GOLD, 'shard': 'a', 'conductor_group': '',
              'candidate_nodes': ['node-1', 'node-2'],
              'extra_specs': {'trait:CUSTOM_A': 'required',
                              'trait:CUSTOM_B': 'forbidden'}}


def change(fleet, node_id, how):
    if how is None:
        fleet.set_traits(node_id)
        fleet.delete(node_id)
    elif isinstance(how, list):
        fleet.set_traits(node_id, *how)
    else:
        fleet.edit(node_id, **how)


@pytest.mark.parametrize('name', CHANGED)
def test_node_that_changes_is_not_held_as_it_was(fleet, name):
    """The only node: it is looked at anew, and mostly matches no more."""
    node_id = fleet.node(**NODE_1)
    with fleet.before(HOLD, lambda: change(fleet, node_id, CHANGED[name])):
        if name in STILL_MATCHING:
            assert fleet.hold(restricted_to='mine',
                              **FOR_NODE_1)[0].node_id == node_id
            return
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(restricted_to='mine', **FOR_NODE_1)
    assert fleet.rows == []
    if name not in ('gone', 'instance'):
        assert fleet[node_id].instance_uuid is None


@pytest.mark.parametrize('name', CHANGED)
def test_another_node_is_held_instead(fleet, name):
    """The better one changes; what it was does not matter any more."""
    best = fleet.node(**NODE_1)
    other = fleet.node(**{**NODE_1, 'name': 'node-2',
                          'properties': '{"memory_mb": 2048}'})
    with fleet.before(HOLD, lambda: change(fleet, best, CHANGED[name])):
        held, created = fleet.hold(restricted_to='mine', **FOR_NODE_1)
    assert created and held.node_id == other
    assert [row.node_id for row in fleet.rows] == [other]


@pytest.mark.parametrize('name', ['space', 'class-case', 'name', 'uuid'])
def test_guard_is_what_was_read_not_what_was_asked(fleet, name):
    """The guarded update itself refuses, whoever looks again afterwards."""
    node_id = fleet.node(**NODE_1)
    with fleet.before(HOLD, lambda: change(fleet, node_id, CHANGED[name])), \
            fleet.counted(HOLD) as counted:
        fleet.hold(**GOLD)
    assert counted == [0, 1]


def test_change_that_concerns_nobody(fleet):
    node_id = fleet.node(**NODE_1)
    with fleet.before(HOLD, lambda: fleet.edit(
            node_id, power_state='power on',
            updated_at=datetime.datetime(2026, 1, 1))), \
            fleet.counted(HOLD) as counted:
        fleet.hold(**FOR_NODE_1)
    assert counted == [1]


def test_null_properties_are_a_text_like_others(fleet):
    node_id = fleet.node(properties=None)
    assert fleet.hold(memory_mb=0)[0].node_id == node_id
    fleet.free()
    with fleet.before(HOLD, lambda: fleet.edit(node_id, properties='')), \
            fleet.counted(HOLD) as counted:
        assert fleet.hold(memory_mb=0)[0].node_id == node_id
    assert counted == [0, 1]


def test_fleet_that_changes_all_the_time(fleet, option):
    """The request ends at its deadline."""
    option(deadline=1)
    node_id = fleet.node(properties={'memory_mb': 1024})

    def edit():
        fleet.edit(node_id, properties={'memory_mb': 1024,
                                        'a': random.random()})

    with fleet.before(HOLD, edit, times=10000):
        with pytest.raises(exception.DeadlineExceeded):
            fleet.hold(**GOLD)
    assert fleet.held == {}


# The complete scan

@pytest.mark.parametrize('place', [0, 1, 299, 598, 599])
def test_the_one_node_of_hundreds_is_found(fleet, place):
    """Whatever node the search begins at."""
    ids = fleet.add(*(
        {'properties': {'memory_mb': 1024,
                        'capabilities': f'rack:{n == place}'}}
        for n in range(600)))
    for _ in range(4):
        held, _ = fleet.hold(
            **GOLD, extra_specs={'capabilities:rack': 'True'})
        assert held.node_id == ids[place]
        fleet.free()


@pytest.mark.parametrize('extra_specs', [
    {'capabilities:rack': '<in> True'}, {'trait:CUSTOM_A': 'required'},
    {'reservations:candidate_nodes': 'the-one'}], ids=str)
def test_the_one_node_is_found_from_wherever_the_search_begins(
        fleet, monkeypatch, extra_specs):
    ids = fleet.add(*({} for _ in range(100)))
    one = ids[40]
    fleet.edit(one, name='the-one', properties={
        'memory_mb': 1024, 'capabilities': 'rack:True'})
    fleet.set_traits(one, 'CUSTOM_A')
    for start in (ids[0], ids[39], ids[40], ids[41], ids[-1]):
        monkeypatch.setattr(random, 'randint', lambda *_, start=start: start)
        assert fleet.hold(**GOLD, extra_specs=extra_specs)[0].node_id == one
        fleet.free()


def test_ids_with_gaps(fleet):
    ids = fleet.add(*({} for _ in range(60)))
    for node_id in ids[:20] + ids[30:59]:
        fleet.delete(node_id)
    for _ in range(11):
        fleet.hold(**GOLD)
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(**GOLD)
    assert fleet.held.keys() == {*ids[20:30], ids[59]}


def test_all_nodes_are_held_once_each(fleet):
    ids = fleet.add(*({} for _ in range(50)))
    for _ in ids:
        assert fleet.hold(**GOLD)[1]
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(**GOLD)
    assert fleet.held.keys() == set(ids)
    assert len(set(fleet.held.values())) == 50


def test_equal_nodes_are_held_at_random(fleet):
    fleet.add(*({} for _ in range(40)))
    found = set()
    for _ in range(20):
        found.add(fleet.hold(**GOLD)[0].node_id)
        fleet.free()
    assert len(found) > 1


def test_best_fit(fleet):
    """Among fewer nodes than a page has, the least oversized one."""
    sizes = [4096, 1025, 2048, 1100]
    ids = dict(zip(sizes, fleet.add(*(
        {'properties': {'memory_mb': size}} for size in sizes)), strict=True))
    fleet.node(properties={'memory_mb': 999})
    found = [fleet.hold(**GOLD)[0].node_id for _ in sizes]
    assert found == [ids[size] for size in sorted(sizes)]


def test_fewer_traits_that_nobody_asked_for(fleet):
    fleet.add({'traits': ['CUSTOM_A', 'CUSTOM_B']}, {'traits': ['CUSTOM_C']})
    plain = fleet.node()
    assert fleet.hold(**GOLD)[0].node_id == plain


# Rows whose nodes have moved on

@pytest.fixture
def stale(fleet):
    """A node whose instance is gone, by Ironic's hand, and that is free."""
    fleet.node_id = fleet.node()
    fleet.hold(INSTANCE, **GOLD)
    fleet.edit(fleet.node_id, instance_uuid=None)
    return fleet


def test_stale_row_is_invisible(stale):
    assert len(stale.rows) == 1
    assert reservations.find() == []
    with pytest.raises(exception.NotFound):
        reservations.get(INSTANCE)


def test_stale_row_is_purged_by_a_delete(stale):
    with pytest.raises(exception.NotFound):
        reservations.release(INSTANCE)
    assert stale.rows == []


def test_stale_row_of_the_node_is_in_nobodys_way(stale):
    other = str(uuid.uuid4())
    assert stale.hold(other, **GOLD)[1]
    assert stale.held == {stale.node_id: other}


def test_stale_row_of_the_instance_is_in_nobodys_way(stale):
    """It holds anew, and may get the same node or another."""
    old, = stale.rows
    held, created = stale.hold(INSTANCE, **GOLD)
    assert created and held.id > old.id
    assert stale.held == {stale.node_id: INSTANCE}


def test_stale_rows_of_all_nodes_and_the_instance(fleet):
    ids = fleet.add({}, {}, {})
    for node_id in ids:
        fleet.stale(node_id=node_id)
    fleet.stale(instance_uuid=INSTANCE, node_id=max(ids) + 1)
    held, created = fleet.hold(INSTANCE, **GOLD)
    assert created and fleet.carried == {held.node_id: INSTANCE}
    assert [row.instance_uuid for row in fleet.rows
            if row.node_id == held.node_id] == [INSTANCE]


def test_stale_row_is_not_revived_by_another_request(stale):
    """What it asked for then is not what is asked for now."""
    held, created = stale.hold(INSTANCE, owner=HOST_2, memory_mb=1)
    assert created and held.host == 'compute-2'


def test_node_that_carries_another_instance(stale):
    other = str(uuid.uuid4())
    stale.edit(stale.node_id, instance_uuid=other)
    assert reservations.find() == []
    with pytest.raises(exception.NotFound):
        reservations.release(INSTANCE)
    assert stale.rows == []
    assert stale[stale.node_id].instance_uuid == other


def test_node_that_another_has_given_the_instance(fleet):
    """Nova's old driver did: no reservation of ours, and no second node."""
    node_id = fleet.node(instance_uuid=INSTANCE)
    fleet.node()
    with pytest.raises(exception.Conflict):
        fleet.hold(INSTANCE, **GOLD)
    with pytest.raises(exception.NotFound):
        reservations.release(INSTANCE)
    assert fleet.carried == {node_id: INSTANCE} and fleet.rows == []


def test_stale_row_whose_instance_another_node_carries(stale):
    """The reservation does not follow its instance to another node."""
    carrier = stale.node(instance_uuid=INSTANCE)
    assert reservations.find() == []
    with pytest.raises(exception.Conflict):
        stale.hold(INSTANCE, **GOLD)
    with pytest.raises(exception.NotFound):
        reservations.release(INSTANCE)
    assert stale.carried == {carrier: INSTANCE}


def test_deleted_node(fleet):
    node_id = fleet.node()
    fleet.hold(INSTANCE, **GOLD)
    fleet.delete(node_id)
    assert reservations.find() == []
    fleet.node()
    assert fleet.hold(INSTANCE, **GOLD)[1]


def test_ids_are_never_used_again(fleet):
    fleet.node()
    seen = []
    for _ in range(3):
        seen.append(fleet.hold(INSTANCE, **GOLD)[0].id)
        reservations.release(INSTANCE)
    assert len(set(seen)) == 3 and seen == sorted(seen)


# Asking again

DEPLOYING = ('deploying', 'wait call-back', 'deploy hold', 'deploy complete')
ACTIVE = ('active', 'rescue', 'rescuing', 'rescue wait', 'rescue failed',
          'unrescuing', 'unrescue failed', 'servicing', 'service wait',
          'service failed', 'service hold', 'adopting')
RELEASING = ('deleting', 'deleted')
ERROR = ('deploy failed', 'error', 'adopt failed')
UNAVAILABLE = ('manageable', 'enroll', 'verifying', 'cleaning', 'clean wait',
               'clean hold', 'clean failed', 'inspecting', 'inspect wait',
               'inspect failed')
STATES = {'available': 'reserved',
          **dict.fromkeys(DEPLOYING, 'deploying'),
          **dict.fromkeys(ACTIVE, 'active'),
          **dict.fromkeys(RELEASING, 'releasing'),
          **dict.fromkeys(ERROR, 'error'),
          **dict.fromkeys(UNAVAILABLE, 'unavailable')}


@pytest.fixture
def held(fleet):
    """A node that compute-1 holds, and one that is free."""
    fleet.node_id = fleet.node()
    fleet.hold(INSTANCE, owner=HOST_1, **GOLD)
    fleet.node()
    return fleet


def test_every_state_of_ironics_is_in_the_tables():
    assert STATES.keys() == states.ALL_STATES
    assert set(STATES.values()) == set(reservations.STATES)


@pytest.mark.parametrize('provision_state', STATES)
def test_state(held, provision_state):
    held.edit(held.node_id, provision_state=provision_state)
    assert reservations.get(INSTANCE).state == STATES[provision_state]
    for state in reservations.STATES:
        assert len(reservations.find(state=state)) == (
            state == STATES[provision_state])


@pytest.mark.parametrize('provision_state', STATES)
@pytest.mark.parametrize('host', [None, 'compute-1', 'compute-2'])
def test_same_request_again(held, provision_state, host):
    held.edit(held.node_id, provision_state=provision_state)
    state = STATES[provision_state]
    allowed = state == 'reserved' or (
        state in ('deploying', 'active') and host != 'compute-2')
    before = held.rows
    if allowed:
        found, created = held.hold(INSTANCE, owner=Owner(host=host), **GOLD)
        assert not created
        assert found.node_id == held.node_id
        assert found.host == (host or 'compute-1')
        assert found.id == before[0].id
        assert reservations.get(INSTANCE).host == found.host
    else:
        with pytest.raises(exception.Conflict):
            held.hold(INSTANCE, owner=Owner(host=host), **GOLD)
        assert held.rows == before
    assert held.held == {held.node_id: INSTANCE}


@pytest.mark.parametrize('body', [
    {**GOLD, 'memory_mb': 1000.0, 'swap': None},
    {**GOLD, 'ephemeral_gb': 0, 'rxtx_factor': 1.0},
    {**GOLD, 'host': 'x', 'project_id': 'y', 'expires_in': 60}], ids=str)
def test_same_request_in_other_words(held, body):
    assert held.hold(INSTANCE, **body)[1] is False


def test_another_request_of_the_same_instance(held):
    held.node()
    with pytest.raises(exception.Conflict):
        held.hold(INSTANCE, **{**GOLD, 'memory_mb': 1001})
    assert held.held == {held.node_id: INSTANCE}


def test_conflict_says_the_same_whoever_holds_the_other(held):
    held.node()
    told = set()
    for owner, restricted_to, body in (
            (HOST_1, None, {'memory_mb': 1}), (HOST_2, None, {'vcpus': 0}),
            (Owner(project_id='mine'), 'mine', GOLD),
            (Owner(project_id='mine'), 'mine', {'memory_mb': 1})):
        with pytest.raises(exception.Conflict) as caught:
            held.hold(INSTANCE, owner=owner, restricted_to=restricted_to,
                      **body)
        told.add(str(caught.value))
    text, = told
    assert 'compute' not in text and held[held.node_id].uuid not in text


def test_own_request_of_a_project(fleet):
    fleet.node(owner='mine')
    owner = Owner(project_id='mine')
    first, _ = fleet.hold(INSTANCE, owner=owner, restricted_to='mine', **GOLD)
    again, created = fleet.hold(INSTANCE, owner=owner, restricted_to='mine',
                                **GOLD)
    assert not created and again.id == first.id


def test_two_requests_for_one_instance_at_once(fleet):
    """The unique key on the node decides; both get the same node."""
    fleet.add(*({} for _ in range(5)))
    won = []
    with fleet.before(HOLD, lambda: won.append(fleet.hold(INSTANCE, **GOLD))):
        second, created = fleet.hold(INSTANCE, **GOLD)
    (first, first_created), = won
    assert first_created and not created
    assert first.id == second.id
    assert fleet.held == {first.node_id: INSTANCE}


def test_two_requests_for_one_node_at_once(fleet):
    node_id = fleet.node()
    with fleet.before(HOLD, lambda: fleet.hold(INSTANCE, **GOLD)):
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(**GOLD)
    assert fleet.held == {node_id: INSTANCE}


def test_host_moves_while_the_deploy_begins(held):
    """The guarded update of our row looks at the node once more."""
    with held.before('UPDATE reservations', lambda: held.edit(
            held.node_id, provision_state='deploying')):
        with pytest.raises(exception.Conflict):
            held.hold(INSTANCE, owner=HOST_2, **GOLD)
    assert reservations.get(INSTANCE).host == 'compute-1'


# Release

RELEASABLE = ('available', 'manageable', 'enroll', 'clean failed',
              'inspect failed')


@pytest.mark.parametrize('forced', [False, True])
@pytest.mark.parametrize('maintenance', [False, True, None])
@pytest.mark.parametrize('provision_state', STATES)
def test_release(held, provision_state, maintenance, forced):
    held.edit(held.node_id, provision_state=provision_state,
              maintenance=maintenance)
    if provision_state in RELEASABLE or forced and maintenance:
        reservations.release(INSTANCE, forced=forced)
        assert held.held == {}
        with pytest.raises(exception.NotFound):
            reservations.release(INSTANCE, forced=forced)
    else:
        with pytest.raises(exception.Conflict):
            reservations.release(INSTANCE, forced=forced)
        assert held.held == {held.node_id: INSTANCE}
    assert held[held.node_id].provision_state == provision_state


@pytest.mark.parametrize('forced', [False, True])
@pytest.mark.parametrize('maintenance', [False, True])
@pytest.mark.parametrize('provision_state', ['available', 'active'])
def test_locked_node_is_not_released(held, provision_state, maintenance,
                                     forced):
    held.edit(held.node_id, provision_state=provision_state,
              maintenance=maintenance, reservation='conductor-1')
    with pytest.raises(exception.Conflict):
        reservations.release(INSTANCE, forced=forced)
    assert held.held == {held.node_id: INSTANCE}


def test_release_of_nothing(held):
    with pytest.raises(exception.NotFound):
        reservations.release(str(uuid.uuid4()))
    assert held.held == {held.node_id: INSTANCE}


def test_release_by_a_host_that_holds_it(held):
    reservations.release(INSTANCE, host='compute-1')
    assert held.held == {}


@pytest.mark.parametrize('host', ['compute-2', 'Compute-1', 'compute-1 ', ''])
def test_release_by_a_host_that_does_not_hold_it(held, host):
    with pytest.raises(exception.NotFound):
        reservations.release(INSTANCE, host=host)
    assert held.held == {held.node_id: INSTANCE}


def test_late_release_by_a_host_that_held_it(held):
    held.hold(INSTANCE, owner=HOST_2, **GOLD)
    with pytest.raises(exception.NotFound):
        reservations.release(INSTANCE, host='compute-1')
    assert held.held == {held.node_id: INSTANCE}


@pytest.mark.parametrize('fields, error', [
    ({'provision_state': 'deploying'}, exception.Conflict),
    ({'reservation': 'conductor-1'}, exception.Conflict),
    ({'instance_uuid': None}, exception.NotFound),
    ({'instance_uuid': OTHER}, exception.NotFound)], ids=str)
def test_node_that_changes_is_not_released(held, fields, error):
    before = held.rows
    with held.before(HOLD, lambda: held.edit(held.node_id, **fields)):
        with pytest.raises(error):
            reservations.release(INSTANCE)
    assert held[held.node_id].instance_uuid == fields.get('instance_uuid',
                                                          INSTANCE)
    assert held.rows == (before if error is exception.Conflict else [])


def test_host_moves_while_the_other_releases(held):
    """The node's update is undone when the row is no longer the host's."""
    with held.before(HOLD, lambda: held.hold(INSTANCE, owner=HOST_2, **GOLD)):
        with pytest.raises(exception.NotFound):
            reservations.release(INSTANCE, host='compute-1')
    assert held.held == {held.node_id: INSTANCE}
    assert reservations.get(INSTANCE).host == 'compute-2'


def test_node_can_be_held_again(held):
    reservations.release(INSTANCE)
    assert held.node_id in {held.hold(**GOLD)[0].node_id for _ in range(2)}


# When the database fails

LOST = db_exc.DBConnectionError()


def test_commit_of_a_hold_whose_answer_is_lost(fleet):
    fleet.add(*({} for _ in range(5)))
    with fleet.commit_fails(LOST, after=True), fleet.counted(HOLD) as tried:
        held, created = fleet.hold(INSTANCE, **GOLD)
    # The retry reads before it writes.
    assert created and tried == [1]
    assert fleet.held == {held.node_id: INSTANCE}


@pytest.mark.parametrize('error', [LOST, db_exc.DBDeadlock()], ids=repr)
def test_commit_of_a_hold_that_fails(fleet, error):
    fleet.add(*({} for _ in range(5)))
    with fleet.commit_fails(error):
        held, created = fleet.hold(INSTANCE, **GOLD)
    assert created
    assert fleet.held == {held.node_id: INSTANCE}


def test_commit_of_a_release_whose_answer_is_lost(held):
    with held.commit_fails(LOST, after=True):
        reservations.release(INSTANCE)
    assert held.held == {}


@pytest.mark.parametrize('error', [LOST, db_exc.DBDeadlock()], ids=repr)
def test_commit_of_a_release_that_fails(held, error):
    with held.commit_fails(error):
        reservations.release(INSTANCE)
    assert held.held == {}


def test_commit_of_a_move_whose_answer_is_lost(held):
    with held.commit_fails(LOST, after=True):
        found, created = held.hold(INSTANCE, owner=HOST_2, **GOLD)
    assert not created and found.host == 'compute-2'
    assert held.held == {held.node_id: INSTANCE}


def test_commit_is_lost_and_another_releases(fleet):
    """Read back, it is not there: the hold is made once more."""
    fleet.add({}, {})
    with fleet.commit_fails(LOST, after=True, then=fleet.free):
        held, created = fleet.hold(INSTANCE, **GOLD)
    assert created and fleet.held == {held.node_id: INSTANCE}


def test_commit_is_lost_and_another_holds(fleet):
    """Read back, it is another's: this request has not made it."""
    def again():
        fleet.free()
        fleet.hold(INSTANCE, **GOLD)

    fleet.add({}, {})
    with fleet.commit_fails(LOST, after=True, then=again):
        held, created = fleet.hold(INSTANCE, **GOLD)
    assert not created and fleet.held == {held.node_id: INSTANCE}


@pytest.mark.parametrize('statement', [
    HOLD, 'INSERT INTO reservations', 'SELECT'])
@pytest.mark.parametrize('error', [LOST, db_exc.DBDeadlock()], ids=repr)
def test_statement_of_a_hold_that_fails(fleet, statement, error):
    fleet.add(*({} for _ in range(5)))

    def fail():
        raise error

    with fleet.before(statement, fail, times=2):
        held, created = fleet.hold(INSTANCE, **GOLD)
    assert created
    assert fleet.held == {held.node_id: INSTANCE}


def test_connection_lost_while_it_lay_idle(fleet, option):
    """A new one may do, however long it takes to find that out."""
    option(deadline=1)
    fleet.add({})

    def fail():
        time.sleep(1.1)
        raise LOST

    with fleet.before('SELECT', fail):
        assert fleet.hold(INSTANCE, **GOLD)[1]
    with fleet.before('SELECT', fail, times=2), pytest.raises(type(LOST)):
        fleet.hold(INSTANCE, **GOLD)


def test_deadlocks_end_at_the_deadline(fleet, option):
    option(deadline=1)
    fleet.add({})

    def fail():
        raise db_exc.DBDeadlock()

    began = time.monotonic()
    with fleet.before(HOLD, fail, times=10000) as tried:
        with pytest.raises(db_exc.DBDeadlock):
            fleet.hold(INSTANCE, **GOLD)
    assert 1 <= time.monotonic() - began < 5
    assert len(tried) > 3
    assert fleet.held == {}


def test_database_is_away(fleet):
    """Who asks is told soon: workers are not to be kept by waiting."""
    fleet.add({})

    def fail():
        raise LOST

    with fleet.before(HOLD, fail, times=100) as tried:
        with pytest.raises(db_exc.DBConnectionError):
            fleet.hold(INSTANCE, **GOLD)
    assert 1 < len(tried) < 10
    assert fleet.held == {}


@pytest.mark.parametrize('error', [LOST, db_exc.DBDeadlock()], ids=repr)
def test_statement_of_a_repeat_that_fails(held, error):
    """What was held before is no hold of this request."""
    def fail():
        raise error

    with held.before('UPDATE', fail):
        found, created = held.hold(INSTANCE, owner=HOST_1, lease=600, **GOLD)
    assert not created and found.expires_at
    assert held.held == {held.node_id: INSTANCE}


@pytest.mark.parametrize('statement', [
    HOLD, 'DELETE FROM reservations', 'SELECT'])
@pytest.mark.parametrize('error', [LOST, db_exc.DBDeadlock()], ids=repr)
def test_statement_of_a_release_that_fails(held, statement, error):
    def fail():
        raise error

    with held.before(statement, fail, times=2):
        reservations.release(INSTANCE)
    assert held.held == {}


def test_rollback_that_fails(fleet, monkeypatch):
    """Nothing stays open on a connection that goes back to the pool.

    (SQLite's has no pool: it is closed.)
    """
    node_id = fleet.node()
    dialect, error = fleet.engine.dialect, db_exc.DBDataError()
    rollback = dialect.do_rollback

    def fail_once(connection):
        monkeypatch.setattr(dialect, 'do_rollback', rollback)
        raise error

    def fail():
        monkeypatch.setattr(dialect, 'do_rollback', fail_once)
        raise error

    with fleet.before('INSERT INTO reservations', fail):
        with pytest.raises(db_exc.DBDataError):
            fleet.hold(INSTANCE, **GOLD)
    # No lock of it is left.
    fleet.edit(node_id, maintenance=True)
    assert fleet.held == {}


def test_error_that_no_retry_helps_leaves_nothing(fleet):
    fleet.node()

    def fail():
        raise db_exc.DBDataError()

    with fleet.before('INSERT INTO reservations', fail):
        with pytest.raises(db_exc.DBDataError):
            fleet.hold(INSTANCE, **GOLD)
    assert fleet.held == {}


# Lists

@pytest.fixture
def listed(fleet):
    """Seven reservations, with nulls and equals among their columns."""
    hosts = ['b', None, 'a', 'b', None, '', 'A']
    ids = fleet.add(*({'resource_class': 'gold' if n % 2 else 'silver',
                       'name': f'node-{n}'} for n in range(7)))
    for n in random.sample(range(7), 7):
        fleet.hold(owner=Owner(hosts[n], 'p' if n % 3 else None,
                               'u' if n % 2 else None),
                   candidate_nodes=[f'node-{n}'])
        fleet.execute(sa.update(models.reservations).where(
            models.reservations.c.node_id == ids[n]).values(
                expires_at=None if n % 3 else datetime.datetime(2100, 1, n+1),
                updated_at=None if n % 2 else datetime.datetime(2026, 1, 1)))
    return fleet


def pages(limit, **query):
    """All pages, one after the other."""
    found, marker = [], None
    while True:
        page = reservations.find(limit=limit, marker=marker, **query)
        assert len(page) <= limit
        found += page
        if len(page) < limit:
            return found
        marker = page[-1].instance_uuid


@pytest.mark.parametrize('sort_dir', ['asc', 'desc'])
@pytest.mark.parametrize('sort_key', reservations.SORT_KEYS)
def test_sorted(listed, sort_key, sort_dir):
    """NULL is the least; equals by id."""
    def order(found):
        value = getattr(found, sort_key)
        return (value not in (None, ''), value or 0, found.id)

    everything = reservations.find()
    expected = sorted(everything, key=order, reverse=sort_dir == 'desc')
    query = {'sort_key': sort_key, 'sort_dir': sort_dir}
    assert len(expected) == 7
    assert reservations.find(**query) == expected
    for limit in (1, 2, 3, 7, 100):
        assert pages(limit, **query) == expected


def test_pages_while_rows_come_and_go(listed):
    """What was there all the time is seen once."""
    first = reservations.find(limit=3, sort_key='host')
    reservations.release(first[0].instance_uuid)
    listed.node(resource_class='bronze')
    new, _ = listed.hold(resource_class='bronze', owner=Owner('zz'))
    rest = reservations.find(marker=first[-1].instance_uuid, sort_key='host')
    assert len(rest) == 5 and rest[-1].id == new.id
    assert not {each.id for each in first} & {each.id for each in rest}


@pytest.mark.parametrize('query, count', [
    ({'host': 'b'}, 2), ({'host': 'a'}, 1), ({'host': 'A'}, 1),
    ({'host': 'c'}, 0), ({'node': 'node-3'}, 1), ({'node': 'node'}, 0),
    ({'resource_class': 'gold'}, 3), ({'resource_class': 'silver'}, 4),
    ({'project_id': 'p'}, 4), ({'project_id': 'P'}, 0),
    ({'state': 'reserved'}, 7), ({'state': 'active'}, 0),
    ({'restricted_to': 'p'}, 4),
    ({'restricted_to': 'p', 'project_id': 'q'}, 0),
    ({'host': 'b', 'resource_class': 'gold'}, 1), ({'limit': 2}, 2),
], ids=str)
def test_filters(listed, query, count):
    assert len(reservations.find(**query)) == count


def test_filter_by_the_uuid_of_a_node(listed):
    one = reservations.find()[2]
    assert reservations.find(node=one.node_uuid) == [one]


def test_filters_on_every_page(listed):
    expected = reservations.find(resource_class='silver')
    assert pages(1, resource_class='silver') == expected


@pytest.mark.parametrize('restricted_to', [None, 'p', 'q'])
def test_marker_that_is_none(listed, restricted_to):
    with pytest.raises(exception.InvalidInput) as caught:
        reservations.find(restricted_to, marker=str(uuid.uuid4()))
    assert caught.value.field == 'marker'


def test_marker_of_another_project(listed):
    """It says nothing of what is there."""
    other, = [each for each in reservations.find()
              if each.node_name == 'node-0']
    with pytest.raises(exception.InvalidInput):
        reservations.find('p', marker=other.instance_uuid)
