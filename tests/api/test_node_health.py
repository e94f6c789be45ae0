# SPDX-License-Identifier: Apache-2.0
"""Nodes with critical health are not held; nodes with a warning last."""

import pytest

from tests.common import application
from tests.common import contract
from tests.common import service

CRITICAL = {'health': 'Critical'}
WARNING = {'health': 'Warning'}


@pytest.fixture
def fleet(ironic, resource_class):
    def create(*nodes):
        return ironic.fleet(*({'resource_class': resource_class, **spec}
                              for spec in nodes))
    return create


def check_refusal(ironic, **body):
    """Check that a request is refused; return the explanation."""
    response = ironic.http.post(service.OURS, json=body)
    contract.check(response, 422)
    return response.json()['explanation']


@pytest.mark.on('sqlite', 'server')
def test_critical_node_is_not_held(ironic, fleet, resource_class):
    with fleet(CRITICAL, {}) as nodes:
        assert ironic.create(resource_class=resource_class)[
            'node_uuid'] == nodes[1].id
        for body in ({'resource_class': resource_class},
                     {'candidate_nodes': [nodes[0].id]}):
            assert {'by': 'health', 'nodes': 1} in check_refusal(
                ironic, **body)['eliminated']


@pytest.mark.on('sqlite', 'server')
def test_out_of_service(ironic, fleet, resource_class):
    with fleet(CRITICAL, WARNING, {}):
        row, = (row for row in ironic.capacity()
                if row['resource_class'] == resource_class)
        assert [row[name] for name in (
            'total', 'free', 'out_of_service')] == [3, 2, 1]


@pytest.mark.parametrize('refuse, number', [
    ([], 3), (['Critical'], 2), (['Warning'], 2), (['Critical', 'Warning'], 1),
])
@pytest.mark.on('sqlite', 'server')
def test_refuse_health(ironic, fleet, resource_class, refuse,
                       number):
    with fleet(CRITICAL, WARNING, {}), application.set_options(
            {'reservations': {'refuse_health': refuse}}):
        for _ in range(number):
            ironic.create(resource_class=resource_class)
        check_refusal(ironic, resource_class=resource_class)


@pytest.mark.parametrize('options', [{}, {'avoid_failed': 0}], ids=str)
def test_warning_comes_last(ironic, fleet, resource_class, options):
    with fleet(WARNING, *[{}] * 3, {'health': 'OK'},
               {'health': 'unheard of'}) as nodes, application.set_options(
            {'reservations': options}):
        ironic.capacity()
        order = [ironic.create(resource_class=resource_class)['node_uuid']
                 for _ in nodes]
        assert set(order[4:]) == {nodes[0].id, nodes[5].id}


def test_existing_hold_of_a_critical_node(ironic, fleet, resource_class):
    """It can be repeated and released."""
    with fleet({}) as nodes:
        hold = ironic.create(resource_class=resource_class)
        ironic.set_node(nodes[0].id, **CRITICAL)
        repeat = ironic.http.post(service.OURS, json={
            'instance_uuid': hold['instance_uuid'],
            'resource_class': resource_class})
        contract.check(repeat, 200)
        ironic.delete(hold['instance_uuid'])


def test_critical_node_is_not_claimed(ironic, fleet, resource_class):
    with fleet({}) as nodes:
        hold = ironic.create(resource_class=resource_class)
        ironic.set_node(nodes[0].id, **CRITICAL)
        assert check_refusal(ironic, resource_class=resource_class,
                             claim=hold['instance_uuid'])['eliminated'] == [
                  {'by': 'health', 'nodes': 1}]
