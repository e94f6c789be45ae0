# SPDX-License-Identifier: Apache-2.0
"""A node that has just failed to deploy is chosen last."""

import uuid

import pytest

from tests.common import application

#: More nodes than a page of a shelf has.
MANY = 40


def spec(memory=1024):
    return {'properties': {'memory_mb': memory}}


@pytest.fixture
def hold(ironic, resource_class):
    """Holds all nodes; returns their indexes in the order of the holds."""
    def hold(nodes, **body):
        ids = [node.id for node in nodes]
        return [ids.index(ironic.create(
            resource_class=resource_class, **body)['node_uuid'])
            for _ in nodes]
    return hold


@pytest.fixture
def fleet(ironic, resource_class):
    def create(*nodes):
        return ironic.fleet(*({**spec, 'resource_class': resource_class}
                              for spec in nodes))
    return create


def test_after_equal_nodes(ironic, fleet, hold):
    with fleet(*[spec()] * 6) as nodes:
        for node in nodes[:3]:
            ironic.add_history(node)
        ironic.capacity()
        order = hold(nodes)
        assert set(order[:3]) == {3, 4, 5}
        assert set(order[3:]) == {0, 1, 2}


def test_one_good_node_among_many(ironic, fleet, resource_class):
    with fleet(*[spec()] * MANY) as nodes:
        for node in nodes:
            if node is not nodes[MANY // 2]:
                ironic.add_history(node)
        ironic.capacity()
        first = ironic.create(resource_class=resource_class)
        assert first['node_uuid'] == nodes[MANY // 2].id
        # A failed node is better than none.
        ironic.create(resource_class=resource_class)


def test_equal_nodes_of_another_profile(ironic, fleet, hold):
    """The nodes differ only by their shard, which is no part of the fit."""
    with fleet(spec(), {**spec(), 'shard': 'a'}, {**spec(), 'shard': 'b'},
               {**spec(), 'shard': 'c'}) as nodes:
        for node in nodes[:3]:
            ironic.add_history(node)
        ironic.capacity()
        assert hold(nodes)[0] == 3


@pytest.mark.parametrize('state', [
    None, 'deploying', 'wait call-back', 'deploy hold', 'deploy failed'])
def test_states_of_a_deployment(ironic, fleet, hold, state):
    """An Ironic before 39 does not record the state of the node."""
    with fleet(*[spec()] * 4) as nodes:
        ironic.add_history(nodes[0], state=state)
        ironic.capacity()
        assert hold(nodes)[-1] == 0


def test_after_nodes_that_fit_worse(ironic, fleet, hold):
    with fleet(spec(2048), spec(1024), spec(2048), spec(1024)) as nodes:
        ironic.add_history(nodes[1])
        ironic.add_history(nodes[2])
        ironic.capacity()
        assert hold(nodes, memory_mb=1024) == [3, 0, 1, 2]


def test_nodes_that_a_request_avoids(ironic, fleet, resource_class):
    with fleet(spec(1024), spec(2048)) as (best, other):
        body = {'resource_class': resource_class, 'memory_mb': 1024,
                'instance_uuid': str(uuid.uuid4())}
        # Ironic accepts UUIDs without dashes. It knows only one of these.
        avoid = [uuid.uuid4().hex, best.id.upper()]
        hold = ironic.create(**body, avoid=avoid)
        assert hold['node_uuid'] == other.id
        assert 'avoid' not in hold['request_spec']
        # It is no part of the identity of the request.
        for another in None, [], [other.id] * 16:
            assert ironic.create(200, **body, avoid=another)[
                'node_uuid'] == other.id
        # It is better than none.
        assert ironic.create(
            resource_class=resource_class, avoid=avoid
        )['node_uuid'] == best.id


def test_candidate_nodes(ironic, fleet, hold):
    with fleet(*[spec()] * 4) as nodes:
        ironic.add_history(nodes[0])
        assert hold(nodes, candidate_nodes=[
            node.id for node in nodes])[-1] == 0


def test_without_a_count(ironic, fleet, hold):
    """No earlier request has counted the fleet."""
    with fleet(*[spec()] * 4) as nodes:
        ironic.add_history(nodes[2])
        assert hold(nodes)[-1] == 2


@pytest.mark.parametrize(('event', 'options'), [
    ({'severity': 'INFO'}, {}), ({'ago': 3700}, {}),
    ({'ago': 20}, {'avoid_failed': 10}), ({}, {'avoid_failed': 0}),
    ({'state': 'clean failed'}, {}), ({'state': 'inspect failed'}, {}),
    # Ironic 35.1 to 38 record errors of VIFs, and of missing workers.
    ({'state': None, 'event_type': 'available'}, {}),
    ({'state': None, 'event_type': 'provisioning'}, {}),
], ids=str)
def test_history_that_is_ignored(ironic, fleet, resource_class, event,
                                 options):
    """The node is chosen first as often as the other."""
    with fleet(*[spec()] * 2) as nodes, application.set_options(
            {'reservations': options}):
        ironic.add_history(nodes[0], **event)
        ironic.capacity()
        missing = {node.id for node in nodes}
        for _ in range(40):
            first = ironic.create(resource_class=resource_class)
            missing.discard(first['node_uuid'])
            ironic.delete(first['instance_uuid'])
            if not missing:
                break
        assert not missing
