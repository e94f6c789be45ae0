# SPDX-License-Identifier: Apache-2.0
"""The metrics of the fleet, without the process that serves them."""

import collections
import datetime
import uuid

import pytest

from ironic_reservations import values
from ironic_reservations.cmd import exporter
from ironic_reservations.fleet import capacity
from ironic_reservations.shared import constants


def samples():
    return {(sample.name, *sorted(sample.labels.items())): sample.value
            for family in exporter.Collector().collect()
            for sample in family.samples}


def test_series_at_0_are_exported(fleet):
    """Otherwise a graph would keep the last value."""
    fleet.add_node(reservation='conductor-1')
    fleet.add_node()
    fleet.hold(owner=values.Assignment('compute-1'))
    metrics = samples()
    labels = [('conductor_group', ''), ('resource_class', 'gold'),
              ('shard', '')]
    for state in constants.NODE_STATES:
        assert metrics['ironic_reservations_nodes', *labels, (
            'state', state)] == (state in ('free', 'reserved'))
    for state in constants.STATES:
        assert metrics['ironic_reservations_reservations', (
            'host', 'compute-1'), ('state', state)] == (state == 'reserved')
    assert metrics['ironic_reservations_overdue',] == 0
    for kind in constants.NOTICE_KINDS:
        assert metrics['ironic_reservations_notices_overdue', (
            'kind', kind)] == 0
        for state in 'planned', 'open':
            assert metrics['ironic_reservations_notices', ('kind', kind), (
                'state', state)] == 0
    assert metrics['ironic_reservations_up',] == 1


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('column', ['resource_class', 'shard'])
def test_values_that_are_equal_as_labels(fleet, column):
    """Prometheus would keep one of two samples of a series."""
    fleet.add({column: None}, {column: ''}, {column: 's'})
    gauge, = (family for family in exporter.Collector().collect()
              if family.name == 'ironic_reservations_nodes')
    assert sorted((sample.labels[column], sample.value)
                  for sample in gauge.samples
                  if sample.labels['state'] == 'free') == [('', 2), ('s', 1)]


#: Columns of a node, and the state that it is counted in.
NODES = [
    ({}, 'free'),
    ({'reservation': 'conductor-1'}, 'free'),
    ({'instance_uuid': 'i'}, 'reserved'),
    ({'instance_uuid': 'i', 'maintenance': True}, 'reserved'),
    ({'allocation_id': 1}, 'reserved'),
    ({'instance_uuid': 'i', 'provision_state': 'deploying'}, 'taken'),
    ({'instance_uuid': 'i', 'provision_state': 'active'}, 'taken'),
    ({'instance_uuid': 'i', 'provision_state': 'deploy failed'}, 'taken'),
    ({'provision_state': 'deleting', 'maintenance': True}, 'taken'),
    ({'provision_state': 'cleaning'}, 'out_of_service'),
    ({'maintenance': True}, 'out_of_service'),
    ({'retired': True}, 'out_of_service'),
    ({'power_state': None}, 'out_of_service'),
]


@pytest.mark.on('sqlite', 'server')
def test_nodes_are_counted_as_in_the_capacity(fleet):
    for fields, _ in NODES:
        make = {'instance_uuid': lambda: str(uuid.uuid4()),
                'allocation_id': fleet.add_allocation}
        fleet.add_node(**{name: make[name]() if name in make else value
                          for name, value in fields.items()})
    metrics = samples()
    counts = collections.Counter(state for _, state in NODES)
    assert counts == {
        state: metrics['ironic_reservations_nodes', (
            'conductor_group', ''), ('resource_class', 'gold'),
            ('shard', ''), ('state', state)]
        for state in constants.NODE_STATES}
    [[row], _] = capacity.list_rows(0, capacity.Filter())
    assert counts == {state: row.content[state]
                      for state in constants.NODE_STATES}
    assert row.content['total'] == len(NODES)


@pytest.mark.on('sqlite', 'server')
def test_nodes_of_pools(fleet):
    name = fleet.add_pool('p', *fleet.add({}, {}, {'maintenance': True}))
    fleet.add_pool('q', fleet.add_node(), seconds=0)
    series = {tuple(dict(labels).items()): value
              for (metric, *labels), value in samples().items()
              if metric == 'ironic_reservations_pool_nodes'}
    assert series == {
        (('pool', name), ('project_id', 'p'), ('state', state)): number
        for state, number in (('free', 2), ('reserved', 0), ('taken', 0),
                              ('out_of_service', 1))}


@pytest.mark.on('sqlite', 'server')
def test_overdue_notices(fleet):
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    hour = datetime.timedelta(hours=1)
    for node_id, due_at in zip(fleet.add({}, {}, {}), (
            now - hour, now + hour, None), strict=True):
        fleet.add_notice(node_id, kind='maintenance', due_at=due_at)
    metrics = samples()
    assert {kind: metrics['ironic_reservations_notices_overdue', (
        'kind', kind)] for kind in constants.NOTICE_KINDS} == {
            'maintenance': 1, 'retirement': 0, 'fault': 0}


@pytest.mark.on('sqlite', 'server')
def test_failed_builds(fleet):
    """Nodes are counted, and neither closed notices nor other faults."""
    first, second, other = fleet.add({}, {}, {})
    assert samples()['ironic_reservations_failed_builds',] == 0
    for node_id in first, first, second:
        fleet.add_notice(node_id, is_failed_build=True)
    fleet.add_notice(other)
    fleet.add_notice(other, is_failed_build=True,
                     ends_at=datetime.datetime(2001, 1, 2))
    assert samples()['ironic_reservations_failed_builds',] == 2


@pytest.mark.on('sqlite', 'server')
def test_expiry_and_health_of_pools(fleet):
    lasting = fleet.add_pool('p', *fleet.add({}, {'maintenance': True}))
    ending = fleet.add_pool('q', fleet.add_node(), seconds=600)
    values = {(name.rpartition('_pool_')[2], labels[0][1]): value
              for (name, *labels), value in samples().items()
              if '_pool_' in name}
    assert values['healthy', lasting] == values['healthy', ending] == 1
    assert 540 < values['expires_seconds', ending] <= 600
    assert ('expires_seconds', lasting) not in values
