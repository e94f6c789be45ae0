# SPDX-License-Identifier: Apache-2.0
"""A machine that its BMC calls sick is not held, and a doubtful one last."""

import pytest

from tests.common import answers
from tests.common import application
from tests.common import service

CRITICAL = {'health': 'Critical'}
WARNING = {'health': 'Warning'}


@pytest.fixture
def fleet(ironic, resource_class):
    def of(*nodes):
        return ironic.fleet(*({'resource_class': resource_class, **each}
                              for each in nodes))
    return of


def refused(ironic, **body):
    """The explanation of a refusal."""
    response = ironic.http.post(service.OURS, json=body)
    answers.check(response, 422)
    return response.json()['explanation']


@pytest.mark.on('sqlite', 'server')
def test_critical_is_not_held(ironic, fleet, resource_class):
    with fleet(CRITICAL, {}) as nodes:
        assert ironic.create(resource_class=resource_class)[
            'node_uuid'] == nodes[1].id
        for body in ({'resource_class': resource_class},
                     {'candidate_nodes': [nodes[0].id]}):
            assert {'by': 'health', 'nodes': 1} in refused(
                ironic, **body)['eliminated']


@pytest.mark.on('sqlite', 'server')
def test_out_of_service(ironic, fleet, resource_class):
    with fleet(CRITICAL, WARNING, {}):
        row, = (each for each in ironic.capacity()
                if each['resource_class'] == resource_class)
        assert [row[name] for name in (
            'total', 'free', 'out_of_service')] == [3, 2, 1]


@pytest.mark.parametrize('refuse, held', [
    ([], 3), (['Critical'], 2), (['Warning'], 2), (['Critical', 'Warning'], 1),
])
@pytest.mark.on('sqlite', 'server')
def test_what_is_refused_is_configured(ironic, fleet, resource_class, refuse,
                                       held):
    with fleet(CRITICAL, WARNING, {}), application.set_options(
            {'reservations': {'refuse_health': refuse}}):
        for _ in range(held):
            ironic.create(resource_class=resource_class)
        refused(ironic, resource_class=resource_class)


@pytest.mark.parametrize('options', [{}, {'avoid_failed': 0}], ids=str)
def test_what_is_not_well_comes_last(ironic, fleet, resource_class, options):
    with fleet(WARNING, *[{}] * 3, {'health': 'OK'},
               {'health': 'unheard of'}) as nodes, application.set_options(
            {'reservations': options}):
        ironic.capacity()
        order = [ironic.create(resource_class=resource_class)['node_uuid']
                 for _ in nodes]
        assert set(order[4:]) == {nodes[0].id, nodes[5].id}


def test_what_is_held_already_stays(ironic, fleet, resource_class):
    """The same request again, and a release."""
    with fleet({}) as nodes:
        held = ironic.create(resource_class=resource_class)
        ironic.set_node(nodes[0].id, **CRITICAL)
        again = ironic.http.post(service.OURS, json={
            'instance_uuid': held['instance_uuid'],
            'resource_class': resource_class})
        answers.check(again, 200)
        ironic.delete(held['instance_uuid'])


def test_sick_is_not_claimed(ironic, fleet, resource_class):
    with fleet({}) as nodes:
        held = ironic.create(resource_class=resource_class)
        ironic.set_node(nodes[0].id, **CRITICAL)
        assert refused(ironic, resource_class=resource_class,
                       claim=held['instance_uuid'])['eliminated'] == [
            {'by': 'health', 'nodes': 1}]
