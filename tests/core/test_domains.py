# SPDX-License-Identifier: Apache-2.0
"""The free nodes of domains that a process knows between two counts."""

import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import domains
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import group_releases
from tests.common import fleets
from tests.core import test_groups

LEVELS = group_policy.Levels('pack', 'capability:rack')


@pytest.fixture
def count(fleet, monkeypatch):
    """Count the fleet once, as a service does at its start."""
    def count():
        # Even a quick count is used until the end of the test.
        monkeypatch.setattr(counts, 'AGE_TO_COST', 10 ** 6)
        latest = counts.Latest()
        monkeypatch.setattr(counts, '_latest', latest)
        new_fleet, _ = latest.get_fleet(0)
        monkeypatch.setattr(counts, 'get_recent_fleet',
                            lambda *_: (new_fleet, False))
        return new_fleet
    return engine.retry(count)


def room(new_fleet, **body):
    """Return the number of free nodes in each rack, as the process knows it.
    """
    return {rack: capacity.free for (rack, _), capacity in domains.get_domains(
        fleets.matcher(**body or {'resource_class': 'gold'}), new_fleet,
        LEVELS, with_suspects=False).count_room().items()}


def test_nodes_that_this_process_holds_are_subtracted(fleet, count):
    """Also for other requests that match the nodes."""
    test_groups.add_racks(fleet, r1=4, r2=3)
    new_fleet = count()
    large = {'resource_class': 'gold', 'memory_mb': 4096}
    assert room(new_fleet) == {'r1': 4, 'r2': 3}
    test_groups.create(fleet, 2, 'pack')
    fleet.hold(group=test_groups.name_group('pack'))
    assert room(new_fleet) == {'r1': 4, 'r2': 0}
    assert room(new_fleet, memory_mb=1024) == {'r1': 4, 'r2': 0}
    assert room(new_fleet, **large) == {}


def test_released_nodes_are_free_again(fleet, count):
    test_groups.add_racks(fleet, r1=3)
    new_fleet = count()
    for _ in range(3):
        test_groups.create(fleet, 2, 'pack', lease=600)
        assert room(new_fleet) == {'r1': 1}
        group_releases.release_group(
            fleets.GROUP, lambda group: None, values.ALL)
        assert room(new_fleet) == {'r1': 3}
    test_groups.create(fleet, 2, 'pack', lease=600)
    fleet.expire_leases()
    expiry.expire_leases()
    assert room(new_fleet) == {'r1': 3}


def test_holds_are_not_stored_without_a_count(fleet, monkeypatch):
    """Or in one that is too old to be used."""
    latest = counts.Latest()
    monkeypatch.setattr(counts, '_latest', latest)
    fleet.add_node()
    fleet.hold()
    assert not counts._UNCOUNTED.fleet.holds


def test_second_group_does_not_try_the_rack_of_the_first(fleet, count):
    test_groups.add_racks(fleet, r1=4, r2=3, r3=4)
    count()
    test_groups.create(fleet, 3, 'pack')
    other = '0' * 8 + fleets.GROUP[8:]
    with fleet.statements('nodes.id IN') as statements:
        group, _ = test_groups.create(fleet, 3, 'pack', uuid=other)
    assert set(test_groups.count_domains(group)) < {'r1', 'r3'}
    assert len(statements) == 1


def test_rack_with_fewer_nodes_than_counted_is_corrected(fleet, count):
    """Another process has taken the nodes: the next rack is tried."""
    test_groups.add_racks(fleet, r1=2, r2=3, r3=4)
    new_fleet = count()
    fleet.execute(sa.text(
        "UPDATE nodes SET maintenance = 1 WHERE properties LIKE '%r1%'"))
    with fleet.statements('AS column_0') as statements:
        group, _ = test_groups.create(fleet, 2, 'pack')
    assert test_groups.count_domains(group) == {'r2': 2}
    # The fleet was not counted again.
    assert not statements
    assert room(new_fleet) == {'r1': 0, 'r2': 1, 'r3': 4}


def test_corrected_rack_does_not_lack_nodes_twice(fleet, count):
    test_groups.add_racks(fleet, r1=4)
    new_fleet = count()
    rack = domains.get_domains(fleets.matcher(resource_class='gold'),
                               new_fleet, LEVELS, with_suspects=False)
    rack.count_room()
    fleet.hold()
    nodes = engine.retry(rack.choose_nodes)({('r1', None): 4})
    assert len(nodes['r1', None]) == 3
    assert room(new_fleet) == {'r1': 3}


def test_count_is_repeated_only_before_a_refusal(fleet, count):
    test_groups.add_racks(fleet, r1=3, r2=3)
    count()
    fleet.execute(sa.text('UPDATE nodes SET maintenance = 1'))
    with fleet.statements('AS column_0') as statements, \
            pytest.raises(exception.NoMatchingNode):
        test_groups.create(fleet, 2, 'pack')
    assert len(statements) == 1


def test_nodes_that_fit_best_are_read_first(fleet, count, monkeypatch):
    """A large domain is not read as a whole."""
    monkeypatch.setattr(domains, 'SPARE', 1)
    fleet.add(*({'properties': {'memory_mb': memory,
                                'capabilities': 'rack:r1'}}
                for memory in (4096, 1024, 2048, 1024, 8192)))
    count()
    with fleet.statements('nodes.id IN') as statements:
        test_groups.create(fleet, 2, 'pack')
    assert len(statements) == 1
    first = min(row.id for row in fleet.execute(
        sa.text('SELECT id FROM nodes')))
    assert sorted(fleet.holds) == [first + 1, first + 3]


def test_domains_are_cached_for_equal_requests(fleet, count, monkeypatch):
    monkeypatch.setattr(domains, 'MAX_CACHED', 2)
    test_groups.add_racks(fleet, r1=1)
    new_fleet = count()
    first = domains.get_domains(fleets.matcher(memory_mb=1), new_fleet, LEVELS)
    assert domains.get_domains(
        fleets.matcher(memory_mb=1), new_fleet, LEVELS) is first
    for memory in 2, 3:
        domains.get_domains(fleets.matcher(memory_mb=memory), new_fleet,
                            LEVELS)
        assert len(new_fleet.domains) <= 2


@pytest.mark.on('sqlite', 'server')
def test_node_gains_a_domain_before_the_hold(fleet):
    node_id = fleet.add_node()
    with fleet.before('UPDATE nodes',
                      lambda: fleet.set_traits(node_id, 'CUSTOM_Q_1')):
        reservation, _ = fleet.hold(group=test_groups.name_group(
            'soft-spread', by='trait:CUSTOM_Q_'))
    assert reservation.domain == 'CUSTOM_Q_1'


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('policy', ['soft-spread', 'spread'])
@pytest.mark.parametrize('before, after, domain', [
    (['CUSTOM_Q_1'], ['CUSTOM_Q_2'], 'CUSTOM_Q_2'),
    (['CUSTOM_Q_1'], ['CUSTOM_Q_1', 'CUSTOM_Q_2'], None),
    (['CUSTOM_Q_1'], [], None),
    # "_" is no wildcard.
    (['CUSTOM_Q_1'], ['CUSTOM_Q_1', 'CUSTOM_QX1'], 'CUSTOM_Q_1')], ids=str)
def test_traits_change_before_the_hold(fleet, before, after, domain, policy):
    """The guard checks that the node still has its domain."""
    is_hard = policy == 'spread'
    node_id = fleet.add_node(traits=before)
    group = test_groups.name_group(policy, by='trait:CUSTOM_Q_')
    with fleet.before('UPDATE nodes',
                      lambda: fleet.set_traits(node_id, *after)):
        if is_hard and domain is None:
            with pytest.raises(exception.NoMatchingNode):
                fleet.hold(group=group)
        else:
            reservation, _ = fleet.hold(group=group)
            assert reservation.domain == domain
