# SPDX-License-Identifier: Apache-2.0
"""The guard of a hold sees that a node has become a dedicated one."""

import dataclasses

import pytest

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import obtain
from tests.common import fleets

pytestmark = pytest.mark.on('sqlite', 'server')

HOLD = 'UPDATE nodes'


def hold(*patterns, **body):
    return holds.hold_node(
        dataclasses.replace(fleets.matcher(**body), dedicated=patterns),
        obtain.Request((fleets.INSTANCE,), values.Assignment()))


@pytest.mark.parametrize(('patterns', 'trait', 'is_dedicated'), [
    (['CUSTOM_A'], 'CUSTOM_A', True),
    (['CUSTOM_A'], 'CUSTOM_A_B', False),
    (['CUSTOM_A', 'CUSTOM_B'], 'CUSTOM_B', True),
    (['CUSTOM_POOL_*'], 'CUSTOM_POOL_1', True),
    (['CUSTOM_POOL_*'], 'CUSTOM_POOL_', True),
    # An underscore is no wildcard.
    (['CUSTOM_POOL_*'], 'CUSTOM_POOLS', False),
    (['CUSTOM_P_*'], 'CUSTOM_PQR', False),
    (['CUSTOM_P_*'], 'MY_CUSTOM_P_1', False),
    (['CUSTOM_B', 'CUSTOM_P*', 'CUSTOM_Q*'], 'CUSTOM_Q', True)])
def test_trait_is_added_before_the_hold(fleet, patterns, trait, is_dedicated):
    node_id = fleet.add_node(traits=['CUSTOM_X'])

    def change():
        fleet.set_traits(node_id, 'CUSTOM_X', trait)
    with fleet.before(HOLD, change), fleet.row_counts(HOLD) as counts:
        if is_dedicated:
            with pytest.raises(exception.NoMatchingNode,
                               match=f'dedicated:{trait} eliminates 1'):
                hold(*patterns, resource_class='gold')
        else:
            hold(*patterns, resource_class='gold')
    assert counts == [0 if is_dedicated else 1]


def test_required_traits_are_allowed(fleet):
    node_id = fleet.add_node(traits=['CUSTOM_A', 'CUSTOM_POOL_1'])
    patterns = ['CUSTOM_A', 'CUSTOM_POOL_*']
    for traits in (), ('CUSTOM_A',), ('CUSTOM_POOL_1',):
        with pytest.raises(exception.NoMatchingNode, match='dedicated:'):
            hold(*patterns, extra_specs={
                f'trait:{trait}': 'required' for trait in traits},
                resource_class='gold')
    reservation, _ = hold(*patterns, extra_specs={
        'trait:CUSTOM_A': 'required',
        'reservations:trait:CUSTOM_POOL_1': 'required'})
    assert reservation.node_id == node_id


def test_candidate(fleet):
    fleet.add_node(traits=['CUSTOM_A'], name='node-1')
    with pytest.raises(exception.NoMatchingNode, match='dedicated:CUSTOM_A'):
        hold('CUSTOM_A', candidate_nodes=['node-1'])
