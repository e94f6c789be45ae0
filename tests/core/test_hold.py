# SPDX-License-Identifier: Apache-2.0
"""The transaction of a hold: complete, or without any effect."""

import concurrent.futures
import datetime
import random
import time

from ironic.common import states
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import releases
from tests.common.fleets import GOLD
from tests.common.fleets import HOLD
from tests.common.fleets import INSTANCE

OTHER = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'


# The result of a hold

@pytest.mark.on('sqlite', 'server')
def test_hold(fleet):
    node_id = fleet.add_node(name='node-1', resource_class='Gold')
    owner = values.Assignment('compute-1', project_id='project',
                              user_id='user')
    reservation, is_new = fleet.hold(INSTANCE, owner=owner, **GOLD)
    assert is_new
    node = fleet[node_id]
    assert reservation.instance_uuid == node.instance_uuid == INSTANCE
    assert (reservation.node_id, reservation.node_uuid,
            reservation.node_name) == (node_id, node.uuid, 'node-1')
    assert (reservation.host, reservation.project_id, reservation.user_id) == (
        'compute-1', 'project', 'user')
    assert reservation.state == 'reserved'
    assert reservation.provision_state == 'available'
    assert reservation.resource_class == 'Gold'
    assert reservation.expires_at is None and reservation.updated_at is None
    assert lookup.get_reservation(INSTANCE) == reservation
    assert fleet.holds == {node_id: INSTANCE}


@pytest.mark.on('sqlite', 'server')
def test_times_are_the_databases_utc(fleet):
    node_id = fleet.add_node()
    now = sa.text("SELECT strftime('%Y-%m-%d %H:%M:%S', 'now')"
                  if fleet.engine.name == 'sqlite' else
                  "SELECT DATE_FORMAT(UTC_TIMESTAMP(), '%Y-%m-%d %H:%i:%s')")
    before, = fleet.execute(now)[0]
    reservation, _ = fleet.hold(INSTANCE)
    after, = fleet.execute(now)[0]
    for moment in reservation.created_at, fleet[node_id].updated_at:
        assert before <= f'{moment:%Y-%m-%d %H:%M:%S}' <= after
        assert not moment.microsecond


@pytest.mark.on('sqlite', 'server')
def test_time_with_a_trigger_on_ironics_table(fleet):
    """An operator's audit, or a tool that alters tables, may create one."""
    fleet.add_node()
    key = 'AUTO_INCREMENT' if fleet.engine.name == 'mysql' else ''
    for statement in (
            f'CREATE TABLE notes (id INTEGER PRIMARY KEY {key}, node INTEGER)',
            'CREATE TRIGGER note AFTER UPDATE ON nodes FOR EACH ROW '
            'BEGIN INSERT INTO notes (node) VALUES (NEW.id); END'):
        fleet.execute(sa.text(statement))
    try:
        reservation, _ = fleet.hold(INSTANCE)
    finally:
        fleet.execute(sa.text('DROP TRIGGER note'))
        rows = fleet.execute(sa.text('SELECT node FROM notes'))
        fleet.execute(sa.text('DROP TABLE notes'))
    assert rows == [(reservation.node_id,)]
    updated_at = fleet[reservation.node_id].updated_at
    assert abs(reservation.created_at - updated_at) <= datetime.timedelta(0, 2)


@pytest.mark.on('server')
def test_other_columns_of_ironic_do_not_change(fleet):
    metadata = sa.MetaData()
    metadata.reflect(fleet.engine, only=['nodes', 'node_traits'])

    def read_rows():
        return [[{key: value for key, value in row._mapping.items()
                  if key not in ('instance_uuid', 'updated_at')}
                 for row in fleet.execute(sa.select(table))]
                for table in metadata.tables.values()]

    fleet.add({'traits': ['CUSTOM_A']}, {})
    before = read_rows()
    fleet.hold(INSTANCE)
    releases.release_reservation(INSTANCE)
    assert read_rows() == before


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
        fields = {'allocation_id': fleet.add_allocation()}
    ineligible = fleet.add_node(**fields)
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold()
    free = fleet.add_node()
    assert fleet.hold()[0].node_id == free
    assert fleet[ineligible].instance_uuid == fields.get('instance_uuid')


@pytest.mark.parametrize('fields', [
    {'maintenance': None}, {'retired': None}, {'maintenance': False},
    {'power_state': 'power on'}, {'power_state': 'error'}, {'name': None},
    {'resource_class': 'GOLD'}, {'health': 'OK'}, {'health': 'Warning'},
], ids=str)
def test_node_that_may_be_held(fleet, fields):
    node_id = fleet.add_node(**fields)
    assert fleet.hold()[0].node_id == node_id


# For a project


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('column', ['owner', 'lessee'])
@pytest.mark.parametrize('body', [
    GOLD, {'candidate_nodes': ['node-1']}], ids=['any', 'named'])
def test_unowned_node_that_gets_an_owner(fleet, body, column):
    """The owner is set right before the guarded UPDATE, which must fail."""
    node_id = fleet.add_node(name='node-1')
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(project='mine', **body)
    with fleet.before(HOLD, lambda: fleet.set_node(node_id, **{column: ''})):
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(project='mine', unowned=True, **body)
    fleet.set_node(node_id, **{column: None})
    assert fleet.hold(project='mine', unowned=True,
                      **body)[0].node_id == node_id


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('similar', ['MINE', 'mine ', 'm\u00edne'])
@pytest.mark.parametrize('body', [
    GOLD, {'candidate_nodes': ['node-1', 'node-2']}], ids=['any', 'named'])
def test_similar_name_is_another_project(fleet, body, similar):
    """MariaDB's collation treats them as equal."""
    fleet.add({'owner': similar, 'name': 'node-1'},
              {'lessee': similar, 'name': 'node-2'})
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(project='mine', **body)
    assert fleet.holds == {}


# Changes between the search and the hold

CHANGES = {
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
    'cordon': 'cordon',
}
# A class in another case is the same class: the second search finds the node.
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
        fleet.delete_node(node_id)
    elif how == 'cordon':
        fleet.cordon(node_id)
    elif isinstance(how, list):
        fleet.set_traits(node_id, *how)
    else:
        fleet.set_node(node_id, **how)


@pytest.mark.on('server')
@pytest.mark.parametrize('name', CHANGES)
def test_node_that_changes_is_searched_for_again(fleet, name):
    """After most changes, the only node no longer matches."""
    node_id = fleet.add_node(**NODE_1)
    with fleet.before(HOLD, lambda: change(fleet, node_id, CHANGES[name])):
        if name in STILL_MATCHING:
            assert fleet.hold(project='mine',
                              **FOR_NODE_1)[0].node_id == node_id
            return
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(project='mine', **FOR_NODE_1)
    assert fleet.rows == []
    if name not in ('gone', 'instance'):
        assert fleet[node_id].instance_uuid is None


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('name', ['space', 'class-case', 'name', 'uuid'])
def test_guard_compares_all_that_was_read(fleet, name):
    """The first UPDATE changes no row, even if the node still matches."""
    node_id = fleet.add_node(**NODE_1)
    with fleet.before(HOLD, lambda: change(fleet, node_id, CHANGES[name])), \
            fleet.row_counts(HOLD) as row_counts:
        fleet.hold(**GOLD)
    assert row_counts == [0, 1]


@pytest.mark.on('server')
@pytest.mark.parametrize('statement, succeeds', [
    ('UPDATE nodes SET properties = \'{"memory_mb": 999}\'', False),
    # A space in its JSON does not matter: the second search finds the node.
    ('UPDATE nodes SET properties = \'{"memory_mb": 1024 }\'', True),
    ('UPDATE nodes SET maintenance = 1', False),
    (f"UPDATE nodes SET instance_uuid = '{OTHER}'", False),
    ("INSERT INTO node_traits (node_id, trait, version) "
     "SELECT id, 'CUSTOM_B', '1.0' FROM nodes", False)])
def test_change_that_is_committed_while_the_hold_waits(fleet, statement,
                                                       succeeds):
    """Other transactions do not see the change before its COMMIT."""
    fleet.add_node(**NODE_1)
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        with fleet.engine.connect() as connection:
            connection.execute(sa.text(statement))
            hold = executor.submit(fleet.hold, **FOR_NODE_1)
            wait_for_lock(fleet, hold)
            assert not hold.done()
            connection.commit()
        error = hold.exception(60)
    assert isinstance(error, exception.NoMatchingNode) == (not succeeds)
    assert len(fleet.rows) == succeeds
    assert len(fleet.instances) == (succeeds or OTHER in statement)


def wait_for_lock(fleet, hold):
    """Wait until a hold is blocked by the lock of our transaction."""
    while not hold.done() and not fleet.execute(sa.text(
            'SELECT id FROM information_schema.processlist '
            "WHERE info LIKE 'UPDATE nodes %SET instance_uuid%'")):
        time.sleep(0.05)


@pytest.mark.on('server')
def test_guard_compares_all_of_several_traits(fleet):
    node_id = fleet.add_node(traits=['CUSTOM_A', 'CUSTOM_B'])
    with fleet.before(HOLD, lambda: fleet.set_traits(node_id, 'CUSTOM_A')), \
            fleet.row_counts(HOLD) as row_counts:
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(**GOLD, extra_specs={'trait:CUSTOM_A': 'required',
                                            'trait:CUSTOM_B': 'required'})
    assert row_counts == [0]


@pytest.mark.on('server')
def test_change_of_other_columns(fleet):
    node_id = fleet.add_node(**NODE_1)
    with fleet.before(HOLD, lambda: fleet.set_node(
            node_id, power_state='power on',
            updated_at=datetime.datetime(2026, 1, 1))), \
            fleet.row_counts(HOLD) as row_counts:
        fleet.hold(**FOR_NODE_1)
    assert row_counts == [1]


@pytest.mark.on('server')
def test_guard_distinguishes_null_and_empty_properties(fleet):
    node_id = fleet.add_node(properties=None)
    assert fleet.hold(memory_mb=0)[0].node_id == node_id
    fleet.release_all()
    with fleet.before(HOLD, lambda: fleet.set_node(node_id, properties='')), \
            fleet.row_counts(HOLD) as row_counts:
        assert fleet.hold(memory_mb=0)[0].node_id == node_id
    assert row_counts == [0, 1]


@pytest.mark.on('server')
def test_node_that_changes_all_the_time(fleet, option):
    """The request fails at its deadline."""
    option(deadline=1)
    node_id = fleet.add_node(properties={'memory_mb': 1024})

    def edit():
        fleet.set_node(node_id, properties={
            'memory_mb': 1024, 'a': random.random()})

    with fleet.before(HOLD, edit, times=10000):
        with pytest.raises(exception.DeadlineExceeded):
            fleet.hold(**GOLD)
    assert fleet.holds == {}


# The complete scan

@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('extra_specs', [
    {'capabilities:rack': '<in> True'}, {'trait:CUSTOM_A': 'required'},
    {'reservations:candidate_nodes': 'the-one'}], ids=str)
def test_one_node_and_a_search_from_any_start(fleet, monkeypatch,
                                              extra_specs):
    ids = fleet.add(*({} for _ in range(100)))
    one = ids[40]
    fleet.set_node(one, name='the-one', properties={
        'memory_mb': 1024, 'capabilities': 'rack:True'})
    fleet.set_traits(one, 'CUSTOM_A')
    for start in (ids[0], ids[39], ids[40], ids[41], ids[-1]):
        monkeypatch.setattr(random, 'randint', lambda *_, start=start: start)
        assert fleet.hold(**GOLD, extra_specs=extra_specs)[0].node_id == one
        fleet.release_all()


def test_ids_with_gaps(fleet):
    ids = fleet.add(*({} for _ in range(60)))
    for node_id in ids[:20] + ids[30:59]:
        fleet.delete_node(node_id)
    for _ in range(11):
        fleet.hold(**GOLD)
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(**GOLD)
    assert fleet.holds.keys() == {*ids[20:30], ids[59]}
