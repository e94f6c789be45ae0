# SPDX-License-Identifier: Apache-2.0
"""The transaction: what is held, and nothing in between."""

import concurrent.futures
import datetime
import random
import time

from ironic.common import states
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import values

INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
OTHER = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'
GOLD = {'resource_class': 'gold', 'memory_mb': 1000}

#: The statement that makes a node somebody's, or lets it go.
HOLD = 'UPDATE nodes SET instance_uuid'


# What is held

@pytest.mark.on('sqlite', 'server')
def test_hold(fleet):
    node_id = fleet.node(name='node-1', resource_class='Gold')
    owner = values.Assignment('compute-1', 'project', 'user')
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
    assert lookup.get_reservation(INSTANCE) == held
    assert fleet.held == {node_id: INSTANCE}


@pytest.mark.on('sqlite', 'server')
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


@pytest.mark.on('sqlite', 'server')
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


@pytest.mark.on('server')
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
    releases.release_reservation(INSTANCE)
    assert ironics() == before


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
    {'health': 'Critical'},
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
    {'resource_class': 'GOLD'}, {'health': 'OK'}, {'health': 'Warning'},
], ids=str)
def test_node_that_may_be_held(fleet, fields):
    node_id = fleet.node(**fields)
    assert fleet.hold()[0].node_id == node_id


# For a project


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('column', ['owner', 'lessee'])
@pytest.mark.parametrize('body', [
    GOLD, {'candidate_nodes': ['node-1']}], ids=['any', 'named'])
def test_node_of_nobody_that_gets_an_owner(fleet, body, column):
    """Before the guarded update, which must not take it any more."""
    node_id = fleet.node(name='node-1')
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(restricted_to='mine', **body)
    with fleet.before(HOLD, lambda: fleet.edit(node_id, **{column: ''})):
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(restricted_to='mine', unowned=True, **body)
    fleet.edit(node_id, **{column: None})
    assert fleet.hold(restricted_to='mine', unowned=True,
                      **body)[0].node_id == node_id


@pytest.mark.on('sqlite', 'server')
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
    'health': {'health': 'Critical'},
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


@pytest.mark.on('server')
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


@pytest.mark.on('server')
@pytest.mark.parametrize('name', [
    'size', 'instance', 'required-trait', 'gone'])
def test_another_node_is_held_instead(fleet, name):
    """The better one changes; what it was does not matter any more."""
    best = fleet.node(**NODE_1)
    other = fleet.node(**{**NODE_1, 'name': 'node-2',
                          'properties': '{"memory_mb": 2048}'})
    with fleet.before(HOLD, lambda: change(fleet, best, CHANGED[name])):
        held, created = fleet.hold(restricted_to='mine', **FOR_NODE_1)
    assert created and held.node_id == other
    assert [row.node_id for row in fleet.rows] == [other]


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('name', ['space', 'class-case', 'name', 'uuid'])
def test_guard_is_what_was_read_not_what_was_asked(fleet, name):
    """The guarded update itself refuses, whoever looks again afterwards."""
    node_id = fleet.node(**NODE_1)
    with fleet.before(HOLD, lambda: change(fleet, node_id, CHANGED[name])), \
            fleet.counted(HOLD) as counted:
        fleet.hold(**GOLD)
    assert counted == [0, 1]


@pytest.mark.on('server')
@pytest.mark.parametrize('statement, held', [
    ('UPDATE nodes SET properties = \'{"memory_mb": 999}\'', False),
    # Blanks in its JSON make it no other node: it is found once more.
    ('UPDATE nodes SET properties = \'{"memory_mb": 1024 }\'', True),
    ('UPDATE nodes SET maintenance = 1', False),
    (f"UPDATE nodes SET instance_uuid = '{OTHER}'", False),
    ('DELETE FROM node_traits', False),
    ("INSERT INTO node_traits (node_id, trait, version) "
     "SELECT id, 'CUSTOM_B', '1.0' FROM nodes", False)])
def test_change_that_is_committed_while_the_hold_waits(fleet, statement, held):
    """It is written, and not to be seen by others before the commit."""
    fleet.node(**NODE_1)
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        with fleet.engine.connect() as connection:
            connection.execute(sa.text(statement))
            hold = executor.submit(fleet.hold, **FOR_NODE_1)
            wait_for_lock(fleet, hold)
            assert not hold.done()
            connection.commit()
        error = hold.exception(60)
    assert isinstance(error, exception.NoMatchingNode) == (not held)
    assert len(fleet.rows) == held
    assert len(fleet.carried) == (held or OTHER in statement)


def wait_for_lock(fleet, hold):
    """Give a hold the time to run into the lock of our transaction."""
    while not hold.done() and not fleet.execute(sa.text(
            'SELECT id FROM information_schema.processlist '
            "WHERE info LIKE 'UPDATE nodes %SET instance_uuid%'")):
        time.sleep(0.05)


@pytest.mark.on('server')
def test_guard_wants_all_of_several_traits(fleet):
    node_id = fleet.node(traits=['CUSTOM_A', 'CUSTOM_B'])
    with fleet.before(HOLD, lambda: fleet.set_traits(node_id, 'CUSTOM_A')), \
            fleet.counted(HOLD) as counted:
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(**GOLD, extra_specs={'trait:CUSTOM_A': 'required',
                                            'trait:CUSTOM_B': 'required'})
    assert counted == [0]


@pytest.mark.on('server')
def test_change_that_concerns_nobody(fleet):
    node_id = fleet.node(**NODE_1)
    with fleet.before(HOLD, lambda: fleet.edit(
            node_id, power_state='power on',
            updated_at=datetime.datetime(2026, 1, 1))), \
            fleet.counted(HOLD) as counted:
        fleet.hold(**FOR_NODE_1)
    assert counted == [1]


@pytest.mark.on('server')
def test_null_properties_are_a_text_like_others(fleet):
    node_id = fleet.node(properties=None)
    assert fleet.hold(memory_mb=0)[0].node_id == node_id
    fleet.free()
    with fleet.before(HOLD, lambda: fleet.edit(node_id, properties='')), \
            fleet.counted(HOLD) as counted:
        assert fleet.hold(memory_mb=0)[0].node_id == node_id
    assert counted == [0, 1]


@pytest.mark.on('server')
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

@pytest.mark.parametrize('place', [0, 299, 599])
def test_the_one_node_of_hundreds_is_found(fleet, place):
    """Whatever node the search begins at."""
    ids = fleet.add(*(
        {'properties': {'memory_mb': 1024,
                        'capabilities': f'rack:{n == place}'}}
        for n in range(600)))
    for _ in range(2):
        held, _ = fleet.hold(
            **GOLD, extra_specs={'capabilities:rack': 'True'})
        assert held.node_id == ids[place]
        fleet.free()


@pytest.mark.on('sqlite', 'server')
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
