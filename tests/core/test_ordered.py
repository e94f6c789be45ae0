# SPDX-License-Identifier: Apache-2.0
"""Candidate nodes are tried in the order in which a request names them."""

import json
import uuid

import pytest

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import obtain
from tests.common import fleets

ORDERED = {'reservations:candidates': 'ordered'}

#: The order of the nodes by fit, and that of the request.
NAMES, ORDER = ['a', 'b', 'c', 'd', 'e'], ['d', 'b', 'e', 'a', 'c']


@pytest.fixture
def nodes(fleet):
    """Nodes by name, the best fit first; d and e are suspect."""
    ids = fleet.add(*({'name': name, 'properties': {
        'memory_mb': 1024 * (number + 1),
        'capabilities': f'rack:r{number % 2}'}}
        for number, name in enumerate(NAMES)))
    fleet.names = dict(zip(ids, NAMES, strict=True))
    for name, node_id in zip(NAMES, ids, strict=True):
        if name in 'de':
            fleet.add_notice(node_id)
    return fleet


def hold_all(nodes, number=5, **body):
    """Hold nodes one after another; return their names in this order."""
    return ''.join(nodes.names[nodes.hold(**body)[0].node_id]
                   for _ in range(number))


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('body, expected', [
    ({'candidate_nodes': ORDER}, 'abcde'),
    ({'candidate_nodes': ORDER, 'extra_specs': ORDERED}, 'dbeac'),
    ({'extra_specs': {**ORDERED, 'reservations:candidate_nodes':
                      ' d, b,,e,a,c'}}, 'dbeac'),
    # With two lists, that of the body counts.
    ({'candidate_nodes': ORDER, 'extra_specs': {
        **ORDERED, 'reservations:candidate_nodes': 'a,b,c,d,e,f'}}, 'dbeac'),
    ({'candidate_nodes': ['x', *ORDER, 'd'], 'extra_specs': ORDERED},
     'dbeac'),
    # Without candidates, there is no order.
    ({'memory_mb': 1, 'extra_specs': ORDERED}, 'abcde'),
], ids=['fit', 'body', 'flavor', 'both', 'others', 'none'])
def test_holds(nodes, body, expected):
    assert hold_all(nodes, **body) == expected


def test_uuids(nodes):
    """Also those that the request spells differently, and names."""
    by_name = {name: nodes[node_id].uuid
               for node_id, name in nodes.names.items()}
    names = [by_name['d'], 'b', by_name['e'].upper(), 'a', by_name['c']]
    assert hold_all(nodes, candidate_nodes=names,
                    extra_specs=ORDERED) == 'dbeac'


def test_other_constraints(nodes):
    assert hold_all(nodes, 2, candidate_nodes=ORDER, memory_mb=4000,
                    extra_specs=ORDERED) == 'de'


def test_repeat(nodes):
    """The order is part of the request."""
    body = {'candidate_nodes': ORDER, 'extra_specs': ORDERED}
    reservation, _ = nodes.hold(fleets.INSTANCE, **body)
    repeat, is_new = nodes.hold(fleets.INSTANCE, **body)
    assert (repeat.id, is_new) == (reservation.id, False)
    for names in sorted(ORDER), ORDER[::-1]:
        with pytest.raises(exception.Conflict):
            nodes.hold(fleets.INSTANCE, **{**body, 'candidate_nodes': names})


def create_group(members, policy=None, **body):
    group, _ = groups.create_group(
        fleets.matcher(**{'candidate_nodes': ORDER, 'extra_specs': ORDERED,
                          **body}),
        obtain.Request(tuple(str(uuid.uuid4()) for _ in range(members)),
                       values.Assignment(), digest='digest',
                       group=values.GroupRequest(
                           fleets.GROUP, policy,
                           policy and 'capability:rack')))
    return group.members


@pytest.mark.parametrize('policy, members, expected', [
    (None, 3, 'bde'), ('soft-spread', 2, 'bd'), ('soft-pack', 3, 'bde'),
    # Hard policies hold: a, c and e are in one rack, b and d in the other.
    ('spread', 2, 'de'), ('pack', 2, 'bd'), ('pack', 3, 'ace'),
])
def test_group(nodes, policy, members, expected):
    names = [nodes.names[member.node_id]
             for member in create_group(members, policy)]
    assert ''.join(sorted(names)) == expected


def test_domains_of_a_soft_policy_are_stored(nodes):
    domains = {nodes.names[member.node_id]: member.domain
               for member in create_group(3, 'soft-spread')}
    assert domains == {'b': 'r1', 'd': 'r1', 'e': 'r0'}


@pytest.mark.parametrize('policy', ['soft-spread', 'soft-pack'])
def test_members_one_by_one(nodes, policy):
    group = values.GroupRequest(fleets.GROUP, policy, 'capability:rack')
    assert hold_all(nodes, candidate_nodes=ORDER, extra_specs=ORDERED,
                    group=group) == 'dbeac'


def test_claims(nodes):
    create_group(5)
    names = []
    for _ in NAMES:
        reservation, _ = nodes.claim(fleets.GROUP, str(uuid.uuid4()),
                                     candidate_nodes=ORDER,
                                     extra_specs=ORDERED)
        names.append(nodes.names[reservation.node_id])
    assert names == ORDER


def test_adoption_of_another_value(nodes):
    """A hold would refuse it; an adoption ignores and stores it."""
    spec = request_spec.RequestSpec.from_server({
        'candidate_nodes': ORDER,
        'extra_specs': {'reservations:candidates': 'first'}})
    assert spec.ignored == ('reservations:candidates',)
    assert spec.candidate_order == ()
    assert json.loads(spec.canonical)['extra_specs'] == {
        'reservations:candidates': 'first'}
    with pytest.raises(exception.InvalidInput):
        nodes.hold(candidate_nodes=ORDER, extra_specs={
            'reservations:candidates': 'first'})
