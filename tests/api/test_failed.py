# SPDX-License-Identifier: Apache-2.0
"""A node that has just failed is not the next one's."""

import pytest

from tests.common import application

#: As reservations of the application do: more than a page of a shelf.
MANY = 40


def node(memory=1024):
    return {'properties': {'memory_mb': memory}}


@pytest.fixture
def held(ironic, resource_class):
    """Holds a node of those that are given; the order in which they go."""
    def hold_all(nodes, **body):
        found = [ironic.create(resource_class=resource_class, **body)
                 for _ in nodes]
        ids = [each.id for each in nodes]
        return [ids.index(each['node_uuid']) for each in found]
    return hold_all


@pytest.fixture
def fleet(ironic, resource_class):
    def of(*nodes):
        return ironic.fleet(*({**each, 'resource_class': resource_class}
                              for each in nodes))
    return of


def test_after_its_equals(ironic, fleet, held):
    with fleet(*[node()] * 6) as nodes:
        for each in nodes[:3]:
            ironic.add_history(each)
        ironic.capacity()
        order = held(nodes)
        assert set(order[:3]) == {3, 4, 5}
        assert set(order[3:]) == {0, 1, 2}


def test_the_only_good_one_among_many(ironic, fleet, resource_class):
    with fleet(*[node()] * MANY) as nodes:
        for each in nodes:
            if each is not nodes[MANY // 2]:
                ironic.add_history(each)
        ironic.capacity()
        first = ironic.create(resource_class=resource_class)
        assert first['node_uuid'] == nodes[MANY // 2].id
        # Better one that has failed than none.
        ironic.create(resource_class=resource_class)


def test_equals_of_another_profile(ironic, fleet, held):
    """No request can tell them apart by their fit, only by their shard."""
    with fleet(node(), {**node(), 'shard': 'a'}, {**node(), 'shard': 'b'},
               {**node(), 'shard': 'c'}) as nodes:
        for each in nodes[:3]:
            ironic.add_history(each)
        ironic.capacity()
        assert held(nodes)[0] == 3


@pytest.mark.parametrize('state', [
    None, 'deploying', 'wait call-back', 'deploy hold', 'deploy failed'])
def test_states_of_a_deployment(ironic, fleet, held, state):
    """An Ironic before 39 does not say in which state the node was."""
    with fleet(*[node()] * 4) as nodes:
        ironic.add_history(nodes[0], state=state)
        ironic.capacity()
        assert held(nodes)[-1] == 0


def test_fit_goes_first(ironic, fleet, held):
    with fleet(node(2048), node(1024), node(2048), node(1024)) as nodes:
        ironic.add_history(nodes[1])
        ironic.add_history(nodes[2])
        ironic.capacity()
        assert held(nodes, memory_mb=1024) == [3, 1, 0, 2]


def test_named_nodes(ironic, fleet, held):
    with fleet(*[node()] * 4) as nodes:
        ironic.add_history(nodes[0])
        assert held(nodes, candidate_nodes=[
            each.id for each in nodes])[-1] == 0


def test_by_a_fresh_count(ironic, fleet, held):
    """A fleet that no request has seen before."""
    with fleet(*[node()] * 4) as nodes:
        ironic.add_history(nodes[2])
        assert held(nodes)[-1] == 2


@pytest.mark.parametrize(('note', 'options'), [
    ({'severity': 'INFO'}, {}), ({'ago': 3700}, {}),
    ({'ago': 20}, {'avoid_failed': 10}), ({}, {'avoid_failed': 0}),
    ({'state': 'clean failed'}, {}), ({'state': 'inspect failed'}, {}),
], ids=str)
def test_what_makes_no_difference(ironic, fleet, resource_class, note,
                                  options):
    """The failed one is as often the first as any other."""
    with fleet(*[node()] * 2) as nodes, application.set_options(
            {'reservations': options}):
        ironic.add_history(nodes[0], **note)
        ironic.capacity()
        missing = {each.id for each in nodes}
        for _ in range(40):
            first = ironic.create(resource_class=resource_class)
            missing.discard(first['node_uuid'])
            ironic.delete(first['instance_uuid'])
            if not missing:
                break
        assert not missing
