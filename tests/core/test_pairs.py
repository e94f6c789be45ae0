# SPDX-License-Identifier: Apache-2.0
"""Each pair of writes ends as one of the two serial orders does.

One of them is interrupted at each place where the other can come between, and
each mutation of a condition that prevents a race is found by a pair.
"""

from unittest import mock

import pytest
import sqlalchemy as sa

from ironic_reservations.db import expressions
from ironic_reservations.db import group_rows
from ironic_reservations.db import models
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import transaction
from tests.core import writes

pytestmark = pytest.mark.long

#: Writes that are refused, or change nothing, if no other write interferes.
REFUSED = {'release after expiry', 'release a stale one',
           'release a deployed node', 'wait for a host'}
UNCHANGED = {'release a deployed node', 'pass the fence', 'list reservations'}


def test_writes(simulator):
    """Otherwise the pairs would prove nothing."""
    outcomes = {name: simulator.run(name, simulator.initial)
                for name in {**writes.WRITES, **writes.CHANGES}}
    assert {name for name, outcome in outcomes.items()
            if outcome.is_refused} == REFUSED
    assert {name for name, outcome in outcomes.items()
            if outcome.after is simulator.initial} == UNCHANGED


@pytest.mark.parametrize('first', [
    name for name in writes.WRITES if name not in writes.VARIANTS])
def test_pairs(simulator, first):
    faults = {second: simulator.check(first, second)
              for second in writes.WRITES
              # Races of Ironic with itself are its own.
              if not (first.startswith('Ironic')
                      and second.startswith('Ironic'))}
    simulator.forget(first)
    assert not any(faults.values()), faults


#: Pairs that have found a fault.
FAULTS = [
    ('claim', 'Ironic: deploy for nobody'),
    ('release after expiry', 'Ironic: attach a VIF'),
    ('delete the group', 'delete the group'),
    ('end a notice later', 'Ironic: delete and enrol a cordoned one'),
    ('schedule a notice at once', 'Ironic: tear down'),
]


@pytest.mark.parametrize('pair', FAULTS, ids='-'.join)
def test_pair_that_found_a_fault(simulator, pair):
    assert not simulator.check(*pair)


# Mutations. Each is found by the pair next to it.

#: Conditions of the guard of a hold or a claim, by a part of their SQL.
GUARDS = {
    'nodes.reservation IS NULL': ('hold', 'lock'),
    'nodes.instance_uuid IS NULL': ('hold', 'instance'),
    'nodes.provision_state = ': ('hold', 'state'),
    'nodes.allocation_id IS NULL': ('claim', 'allocation'),
    'nodes.maintenance IS NULL': ('hold', 'maintenance'),
    'nodes.retired IS NULL': ('hold', 'retired'),
    'nodes.power_state IS NOT NULL': ('hold', 'power'),
    'nodes.parent_node IS NULL': ('hold', 'parent'),
    'refuse_health': ('hold', 'health'),
    'reservations_notices.cordon = ': ('hold a suspect', 'begin a notice'),
    'nodes.instance_info': ('hold', 'info'),
    'NOT CAST(reservations_pools.project_id': ('hold', 'create a pool'),
    'NOT (EXISTS (SELECT * FROM nodes, reservations_notices': (
        'hold', 'plan'),
    'nodes.owner AS BINARY': ('hold own', 'owner'),
    ':read_uuid': ('hold the last', 'replace the last'),
    ':read_resource_class': ('hold', 'class'),
    ':read_conductor_group': ('hold in a group', 'group'),
    ':read_shard': ('hold in a shard', 'shard'),
    ':read_name': ('hold a node by name', 'name'),
    ':read_properties': ('hold', 'properties'),
    'trait IN (__[POSTCOMPILE_required': ('hold with a trait', 'no trait'),
    'trait NOT IN': ('hold no dedicated one', 'trait'),
    'substr(node_traits.trait': ('hold in a domain', 'trait'),
    'forbidden': ('hold without a trait', 'trait'),
}


#: Conditions that no pair needs, and why they are there.
UNNECESSARY = {
    'nodes.id = :node_id': 'the UUID as read names the same node',
    'deferred_actions': 'this Ironic has no such table',
    '(1 = 1)': 'MySQL alone distinguishes capitals',
    'coalesce(reservations.id': 'the deletion of the claimed row repeats it',
}


#: Writes that must know whether a statement has changed a row, by its begin.
#: Others are checked twice: an adoption and a change of a pool are read at
#: their ends, the generation of a pool includes its nodes, and the guard of a
#: claim has checked the row that it deletes.
CHECKS = {
    'UPDATE nodes SET instance_uuid=:instance': ('hold', 'cordon'),
    'UPDATE nodes SET instance_uuid=:instance_uuid': (
        'release', 'Ironic: deploy for nobody'),
    'UPDATE nodes SET updated_at': ('create a pool', 'hold'),
    'UPDATE reservations SET': ('renew', 'Ironic: deploy for nobody'),
    'UPDATE reservations_groups': ('join', 'delete the group'),
    'DELETE FROM reservations_pools': ('delete the pool', 'delete the pool'),
    'UPDATE reservations_notices': ('close a notice', 'end a notice later'),
    'UPDATE reservations_hosts': ('acquire a host again', 'take over a host'),
    'DELETE FROM reservations_hosts': ('give up a host', 'give up a host'),
}


def weaken(condition):
    """Return a condition that is true, with the same parameters."""
    return sa.or_(condition, sa.literal_column('1') == 1)


def show(condition):
    """Return the SQL of a condition in one line."""
    return ' '.join(str(condition).split())


def without(statement, text):
    """Return a statement without the conditions that have a text."""
    copy = statement._generate()
    copy._where_criteria = tuple(
        weaken(condition) if text in show(condition) else condition
        for condition in statement._where_criteria)
    return copy


def check_mutation(simulator, pair, target, name, mutant):
    """Check that a pair is right, and wrong with a mutant."""
    assert not simulator.check(*pair)
    assert simulator.check(*pair, mock.patch.object(target, name, mutant))


def test_guards():
    """Each condition of a hold and of a claim is in one of the lists."""
    texts = [show(condition) for is_claim in (False, True)
             for is_suspect in (False, True)
             for condition in node_rows._hold_node(node_rows._Shape(
                 'project', True, True, ('CUSTOM_X',), is_suspect, False,
                 (True, False)), is_claim)._where_criteria]
    assert [text for text in texts if not any(
        part in text for part in [*GUARDS, *UNNECESSARY])] == []
    assert [part for part in [*GUARDS, *UNNECESSARY]
            if not any(part in text for text in texts)] == []


@pytest.mark.parametrize('table, second', [
    (models.ports, 'port'), (models.volume_targets, 'target')])
def test_preparations(simulator, table, second):
    """The part of a condition that reads another table."""
    original = node_rows._hold_node
    condition = sa.or_(expressions.has_instance_info(models.nodes), *(
        expressions._has_row(*item)
        for item in expressions.PREPARATIONS.items() if item[0] is not table))

    def hold_node(*args):
        return without(original(*args), 'nodes.instance_info').where(
            sa.not_(condition))

    check_mutation(simulator, ('hold', second), node_rows, '_hold_node',
                   hold_node)


@pytest.mark.parametrize('text', GUARDS)
def test_guard(simulator, text):
    original = node_rows._hold_node
    check_mutation(simulator, GUARDS[text], node_rows, '_hold_node',
                   lambda *args: without(original(*args), text))


@pytest.mark.parametrize('text', CHECKS)
def test_check(simulator, text):
    original = transaction.Transaction.write_one

    def write_one(tx, statement, *args, **more):
        if str(statement).startswith(text):
            return tx.execute(statement, *args[:1])
        return original(tx, statement, *args, **more)

    check_mutation(simulator, CHECKS[text], transaction.Transaction,
                   'write_one', write_one)


@pytest.mark.parametrize('pair, target, name, mutant', [
    (('hold, fenced', 'give up a host'), transaction.Transaction,
     'check_fence', lambda tx: None),
    (('hold with a limit', 'hold with a limit for another'), quotas.Limits,
     'verify', lambda *args: None),
    (('join apart', 'join apart, too'), group_rows, 'GROW',
     without(group_rows.GROW, 'generation')),
    (('sweep', 'Ironic: attach a VIF'), node_rows, '_release_node',
     lambda *where, release=node_rows._release_node: without(
         release(*where), 'provision_state')),
    (('sweep', 'instance again'), reservation_rows, 'delete_stale_row',
     lambda reservation: expressions.delete_ids(
         reservation_rows.reservations.c.id, [reservation.id])),
], ids=['fence', 'quota', 'generation', 'untouched', 'stale'])
def test_mutation(simulator, pair, target, name, mutant):
    check_mutation(simulator, pair, target, name, mutant)
