# SPDX-License-Identifier: Apache-2.0
"""Nodes with dedicated traits only match requests that require them."""

import pytest

from tests.common import application
from tests.common import contract
from tests.common import service

DEDICATED = ['CUSTOM_BURN_IN', 'CUSTOM_POOL_*']


@pytest.fixture
def nodes(ironic, resource_class):
    """A node of a pool, one in burn-in as well, and one for everybody."""
    with ironic.fleet(*(
            {'name': name, 'resource_class': resource_class, 'traits': traits}
            for name, traits in (
                ('pool', ['CUSTOM_POOL_A']),
                ('both', ['CUSTOM_POOL_A', 'CUSTOM_BURN_IN']),
                ('plain', ['CUSTOM_X'])))) as nodes, \
            application.set_options({
                'reservations': {'dedicated_traits': DEDICATED}}):
        yield nodes


def require(*traits):
    return {'extra_specs': {f'trait:{trait}': 'required' for trait in traits}}


def refuse(ironic, **body):
    """Return what eliminates nodes, and which constraint is nearest."""
    response = ironic.http.post(service.OURS, json=body)
    contract.check(response, 422)
    explanation = response.json()['explanation']
    return ({step['by']: step['nodes'] for step in explanation['eliminated']},
            explanation.get('nearest'))


@pytest.mark.on('sqlite', 'server')
def test_hold(ironic, nodes, resource_class):
    gold = {'resource_class': resource_class}
    assert ironic.create(**gold)['node_name'] == 'plain'
    eliminated, nearest = refuse(ironic, **gold)
    assert eliminated.items() >= {'dedicated:CUSTOM_BURN_IN': 1,
                                  'dedicated:CUSTOM_POOL_A': 1}.items()
    assert nearest == {'by': 'dedicated:CUSTOM_POOL_A', 'nodes': 1}
    assert ironic.create(**gold, **require('CUSTOM_POOL_A'))[
        'node_name'] == 'pool'
    eliminated, _ = refuse(ironic, **gold, **require('CUSTOM_POOL_A'))
    assert eliminated['dedicated:CUSTOM_BURN_IN'] == 1
    # Candidates are no exception.
    refuse(ironic, candidate_nodes=['both'])
    assert ironic.create(**gold, **require(
        'CUSTOM_BURN_IN', 'CUSTOM_POOL_A'))['node_name'] == 'both'


def test_group(ironic, nodes, resource_class):
    body = {'members': 2, 'request': {'resource_class': resource_class}}
    response = ironic.http.post(f'{service.OURS}/groups', json=body)
    contract.check(response, 422)
    assert response.json()['members'] == {'wanted': 2, 'available': 1}
    assert response.json()['explanation']['nearest'] == {
        'by': 'dedicated:CUSTOM_POOL_A', 'nodes': 2}


@pytest.mark.parametrize('by', ['capability:rack', 'trait:CUSTOM_POOL_'])
def test_segments(ironic, resource_class, by):
    """Domains contain only nodes that the request may have.

    A dedicated trait that is a domain is not thereby required.
    """
    pool, plain = ({'resource_class': resource_class, 'traits': traits,
                    'properties': {'capabilities': f'rack:{rack}'}}
                   for rack, traits in (('r1', ['CUSTOM_POOL_A']), ('r2', [])))
    body = {'members': 4,
            'levels': [{'by': by, 'policy': 'pack', 'segment': 2}],
            'request': {'resource_class': resource_class}}
    with ironic.fleet(*[pool] * 4, *[plain] * 2), \
            application.set_options({
                'reservations': {'dedicated_traits': DEDICATED}}):
        response = ironic.http.post(f'{service.OURS}/groups', json=body)
        contract.check(response, 422)
        assert response.json()['segments'] == {
            'wanted': 2, 'available': 1 if by == 'capability:rack' else 0}
        body['request'] |= require('CUSTOM_POOL_A')
        response = ironic.http.post(f'{service.OURS}/groups', json=body)
        contract.check(response, 201)
        group = response.json()
        member = group['reservations'][0]
        ironic.delete(member['instance_uuid'])
        join = {'group': {'uuid': group['uuid'],
                          'segment': member['group']['segment']}}
        eliminated, _ = refuse(ironic, resource_class=resource_class, **join)
        assert eliminated['dedicated:CUSTOM_POOL_A'] == 4
        ironic.create(**body['request'], **join)


def test_claims_are_not_checked(ironic, nodes, resource_class):
    hold = ironic.create(resource_class=resource_class, **require(
        'CUSTOM_BURN_IN', 'CUSTOM_POOL_A'))
    server = ironic.create(resource_class=resource_class, host='compute-1',
                           claim=hold['instance_uuid'])
    assert server['node_name'] == 'both'


def test_repeat(ironic, nodes, resource_class):
    """A node that becomes a dedicated one stays with its instance."""
    body = {'resource_class': resource_class}
    hold = ironic.create(**body)
    with application.set_options({
            'reservations': {'dedicated_traits': ['CUSTOM_X']}}):
        assert ironic.create(
            200, **body, instance_uuid=hold['instance_uuid']) == hold


def test_capacity_counts_them(ironic, nodes, resource_class):
    rows = [row for row in ironic.capacity()
            if row['resource_class'] == resource_class]
    assert sorted((row['traits'], row['free']) for row in rows) == [
        (['CUSTOM_BURN_IN', 'CUSTOM_POOL_A'], 1), (['CUSTOM_POOL_A'], 1),
        (['CUSTOM_X'], 1)]


@pytest.mark.parametrize('value', ['*', 'custom_x', 'CUSTOM_*_X', 'A-B'])
def test_invalid_option(value):
    with pytest.raises(ValueError), application.set_options({
            'reservations': {'dedicated_traits': [value]}}):
        pass
