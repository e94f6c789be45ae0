# SPDX-License-Identifier: Apache-2.0
"""Pools and their nodes in the database."""

import dataclasses
import itertools
import uuid

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.cmd import manage
from ironic_reservations.db import expressions
from ironic_reservations.db import models
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import pool_nodes
from ironic_reservations.reservations import pools
from tests.common.fleets import from_now
from tests.common.fleets import present

pytestmark = pytest.mark.on('sqlite', 'server')


def test_project_of_the_pool_of_a_node(fleet):
    first, *others = fleet.add({}, {}, {}, {}, {})
    fleet.add_pool('a', others[0])
    fleet.add_pool('b', others[1], seconds=60)
    fleet.add_pool('c', others[2], seconds=0)
    fleet.add_pool('d', others[3], node_uuid=str(uuid.uuid4()))
    rows = fleet.execute(sa.select(
        models.nodes.c.id, expressions.POOLED, expressions.POOL_PROJECT
    ).order_by(models.nodes.c.id))
    assert [(node_id, bool(is_pooled), project)
            for node_id, is_pooled, project in rows] == [
        (first, False, None), (others[0], True, 'a'), (others[1], True, 'b'),
        (others[2], False, None), (others[3], False, None)]


# Transactions

def make_request(members=1, project_id='p', **fields):
    name = str(uuid.uuid4())
    return pools.Request(**{
        'group': values.GroupRequest(uuid=name, project_id=project_id),
        'members': members, 'expires_at': None, 'digest': name, **fields})


def make_matcher(project_id='p', **body):
    return matching.Matcher(request_spec.RequestSpec.from_dict(
        {'resource_class': 'gold', **body}), use=matching.to_join(project_id))


def create(members=1, project_id='p', **fields):
    return pools.create_pool(make_matcher(project_id), make_request(
        members, project_id, **fields))[0]


def allow(pool):
    """Authorize every caller."""


@pytest.mark.parametrize('change', [
    {'maintenance': True}, {'lessee': 'q'}, {'instance_info': '{"a": 1}'},
    {'properties': {'memory_mb': 2048}}, {'instance_uuid': str(uuid.uuid4())},
], ids=['maintenance', 'lessee', 'info', 'properties', 'instance'])
def test_node_that_changes_after_the_search(fleet, change):
    """The search goes on with another one, and none joins twice."""
    first, *others = fleet.add(*({},) * 4)
    with fleet.before('UPDATE nodes', lambda: fleet.set_node(
            first, **change)):
        pool = create(3)
    assert [node.id for node in pool.nodes] == others


@pytest.mark.parametrize('caller', [
    values.ALL, values.Ownership('q', 'project')], ids=['all', 'owner'])
def test_only_node_that_the_project_leases(fleet, caller):
    """The fleet has no pool yet, and the caller is of another project."""
    node_id, = fleet.add({'owner': 'q', 'lessee': 'p'})
    matcher = dataclasses.replace(
        make_matcher(), reach=caller, ownership=caller)
    with pytest.raises(exception.NoMatchingNode) as error:
        pools.create_pool(dataclasses.replace(
            matcher, use=matching.to_join('q')), make_request(1, 'q'))
    assert present(error)['explanation']['eliminated'] == [
        {'by': 'lessee', 'nodes': 1}]
    pool, _ = pools.create_pool(matcher, make_request(1))
    assert [node.id for node in pool.nodes] == [node_id]


def test_node_that_joins_another_pool_after_the_search(fleet):
    fleet.add(*({},) * 3)
    with fleet.before('UPDATE nodes', lambda: create(2)):
        with pytest.raises(exception.NoMatchingNode) as error:
            create(2, 'q')
    explanation = present(error)['explanation']
    assert {'by': 'pool', 'nodes': 2} in explanation['eliminated']
    assert len(fleet.execute(sa.select(models.pools))) == 1
    assert len(create(1, 'q').nodes) == 1


def test_pool_and_holds_of_the_same_nodes(fleet, executor):
    """Each node is held before it joins, or joins first, and none is lost."""
    fleet.add(*({},) * 8)
    holds = [executor.submit(fleet.hold) for _ in range(8)]
    try:
        pool = create(4)
    except exception.NoMatchingNode:
        pool = None
    for hold in holds:
        try:
            hold.result(60)
        except exception.NoMatchingNode:
            assert pool
    assert len(fleet.execute(sa.select(models.pool_nodes))) == (
        4 if pool else 0)


def remove(pool, node):
    pool_nodes.remove_node(pool.uuid, node.uuid, allow)


def replace(pool, node):
    pool_nodes.replace_node(pool, node.uuid, make_matcher())


def replace_idle(pool, node):
    return pool_nodes.replace_node(pool, node.uuid, make_matcher(),
                                   must_be_idle=True)


def delete(pool, node):
    pools.delete_pool(pool.uuid, allow)


@pytest.mark.on('server')
@pytest.mark.parametrize('change', [remove, replace, replace_idle,
                                    delete])
def test_hold_of_a_node_that_leaves_its_pool(fleet, executor, change):
    """The hold waits for the node at most: no deadlock."""
    fleet.add(*({},) * 3)
    pool = create(2)
    node, *_ = pool.nodes
    statements, futures, deadlocks = [], [], []

    def hold_before_the_second_write():
        statements.append('')
        if len(statements) == 2:
            futures.append(executor.submit(
                fleet.hold, candidate_nodes=[node.uuid],
                owner=values.Assignment(project_id='p'),
                ownership=values.Ownership('p')))
            fleet.wait_for_lock(futures[0])

    def note(context):
        deadlocks.append(context.original_exception)

    sa.event.listen(fleet.engine, 'handle_error', note)
    try:
        with fleet.before((
                'DELETE FROM reservations_pool', 'UPDATE reservations_pools'),
                hold_before_the_second_write, times=2):
            change(pool, node)
        reservation, _ = futures[0].result(60)
    finally:
        sa.event.remove(fleet.engine, 'handle_error', note)
    assert reservation.node_id == node.id
    assert not deadlocks


@pytest.mark.parametrize('number', [0, 1])
def test_replacement_of_a_node_that_must_be_idle(fleet, number):
    """It and a hold of the node do not both succeed."""
    ids = fleet.add({}, {})
    pool = pools.get_pool(fleet.add_pool('p', ids[number]))
    [node] = pool.nodes

    def hold():
        fleet.hold(candidate_nodes=[node.uuid], lease=60,
                   owner=values.Assignment(project_id='p'),
                   ownership=values.Ownership('p'))

    with fleet.before('UPDATE nodes', hold):
        with pytest.raises(exception.Conflict):
            replace_idle(pool, node)
    with pytest.raises(exception.Conflict):
        replace_idle(pool, node)
    assert pools.get_pool(pool.uuid).nodes[0].id == node.id
    fleet.expire_leases()
    with fleet.statements('UPDATE nodes') as statements:
        assert replace_idle(pool, node).nodes[0].id == ids[1 - number]
    # Nodes are changed in the order of their ids.
    assert ['provision_state' in text for text in statements[-2:]] == [
        number == 1, number == 0]


def test_writes_that_keep_requests_off_change_nodes(fleet):
    """Galera replicates, and certifies, no UPDATE that changes nothing."""
    first, second = fleet.add({}, {})
    pool = create(expires_at=from_now(3600))
    [node] = pool.nodes
    other = second if node.id == first else first
    times = [fleet[node.id].updated_at]
    for expires_at in from_now(7200), None:
        pools.update_pool(pool.uuid, {'expires_at': expires_at}, allow)
        times.append(fleet[node.id].updated_at)
    assert all(one != following for one, following
               in itertools.pairwise([None, *times]))
    for changes in {'description': 'x'}, {'expires_at': from_now(60)}:
        pools.update_pool(pool.uuid, changes, allow)
        assert fleet[node.id].updated_at == times[-1]
    assert fleet[other].updated_at is None
    pool_nodes.add_node(pool.uuid, fleet[other].uuid, allow)
    assert fleet[other].updated_at is not None


def test_lost_responses_to_commits(fleet):
    fleet.add(*({},) * 3)
    request = make_request(2)

    def lose():
        return fleet.fail_commit(db_exc.DBConnectionError(), after=True)

    with lose():
        pool, _ = pools.create_pool(make_matcher(), request)
    assert pools.get_pool(pool.uuid) == pool
    name = pool.nodes[0].uuid
    with lose():
        pool = pool_nodes.replace_node(pool, name, make_matcher())
    assert name not in [node.uuid for node in pool.nodes]
    with lose():
        assert len(pool_nodes.add_node(pool.uuid, name, allow).nodes) == 3
    with lose():
        pool_nodes.remove_node(pool.uuid, name, allow)
    with lose():
        pools.update_pool(pool.uuid, {'description': 'x'}, allow)
    assert len(pools.get_pool(pool.uuid).nodes) == 2
    with lose():
        pools.delete_pool(pool.uuid, allow)
    assert not fleet.execute(sa.select(models.pool_nodes))


@pytest.fixture
def lines(caplog):
    """Return the lines of the log about nodes and pools."""
    caplog.set_level('INFO', 'ironic_reservations.events')
    return lambda: [record.getMessage().split(' (')[0]
                    for record in caplog.records]


LOST = ' no longer exists, and'


def test_lines_of_the_log(fleet, lines):
    fleet.add({}, {})
    pool = create()
    [node] = pool.nodes
    pools.update_pool(pool.uuid, {'description': 'x'}, allow)
    current = pool_nodes.replace_node(pool, node.uuid, make_matcher())
    [other] = current.nodes
    pool_nodes.remove_node(pool.uuid, other.uuid, allow)
    assert lines() == [
        f'Node {node.uuid} joins pool {pool.uuid}',
        f'Pool {pool.uuid} is changed',
        f'Node {other.uuid} joins pool {pool.uuid}',
        f'Node {node.uuid} leaves pool {pool.uuid}',
        f'Node {other.uuid} leaves pool {pool.uuid}']


def test_lines_of_deleted_nodes(fleet, lines, caplog):
    """They leave by a sweep, or with their pool, also if enrolled again."""
    rows = [fleet[node_id] for node_id in fleet.add(*({},) * 5)]
    ids, names = zip(*((row.id, row.uuid) for row in rows), strict=True)
    part = fleet.add_pool('p', *ids[:2])
    empty = fleet.add_pool('p', ids[2])
    whole = fleet.add_pool('p', *ids[3:])
    for node_id in ids[0], ids[2], ids[3]:
        fleet.delete_node(node_id)
    fleet.add_node(uuid=names[0])
    pools.delete_pool(whole, allow)
    assert pools.purge() == 1
    assert lines() == [
        f'Node {name}{words} leaves pool {pool}' for name, words, pool in (
            (names[3], LOST, whole), (names[4], '', whole),
            (names[2], LOST, empty), (names[0], LOST, part))]
    assert sum(record.levelname == 'WARNING'
               and LOST in record.getMessage() and '(project p, ' in
               record.getMessage() for record in caplog.records) == 3
    assert [node.uuid for node in pools.get_pool(part).nodes] == [names[1]]
    # No row leads to this pool.
    orphan = fleet.add_pool('p')
    pools.purge()
    assert lines()[-1] == f'Pool {orphan} is deleted'


def test_sweep(fleet, capsys):
    nodes = fleet.add(*({},) * 5)
    fleet.add_pool('p', nodes[0])
    fleet.add_pool('p', nodes[1], nodes[2], seconds=0)
    fleet.add_pool('p', nodes[3], node_uuid=str(uuid.uuid4()))
    name = fleet.add_pool('p', nodes[4])
    fleet.delete_node(nodes[4])
    with pytest.raises(exception.NotFound):
        pools.get_pool(name)
    manage.sweep()
    assert '3 expired pools purged, ' in capsys.readouterr().out
    assert [row.node_id for row in fleet.execute(
        sa.select(models.pool_nodes))] == nodes[:1]
    assert len(fleet.execute(sa.select(models.pools))) == 1


def test_node_of_an_expired_reservation(fleet):
    first, second = fleet.add({}, {})
    pool = create()
    fleet.hold(lease=60)
    fleet.expire_leases()
    other, = {first, second} - {node.id for node in pool.nodes}
    assert len(pool_nodes.add_node(
        pool.uuid, fleet[other].uuid, allow, values.ALL).nodes) == 2


def test_row_of_a_deleted_node_blocks_nothing(fleet):
    """SQLite gives its id to a new node."""
    node_id = fleet.add_node()
    fleet.add_pool('p', node_id, node_uuid=str(uuid.uuid4()))
    assert [node.id for node in create(1, 'q').nodes] == [node_id]


def test_audit(fleet, capsys):
    mine, other, lessee, free = fleet.add(*({},) * 4)
    for node_id, project in (mine, 'p'), (other, 'q'):
        fleet.hold(candidate_nodes=[fleet[node_id].uuid],
                   owner=values.Assignment(project_id=project))
    fleet.set_node(lessee, lessee='q', instance_uuid=str(uuid.uuid4()),
                   provision_state='active')
    name = fleet.add_pool('p', mine, other, lessee, free)
    assert manage.audit() == 1
    out = capsys.readouterr().out
    for node_id in other, lessee:
        assert (f'node {fleet[node_id].uuid} is in pool {name} of project p, '
                f'but carries instance {fleet[node_id].instance_uuid} of '
                f'project q;') in out
    assert ', 2 nodes of pools carry an instance of another project,' in out
