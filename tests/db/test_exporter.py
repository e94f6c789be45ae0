# SPDX-License-Identifier: Apache-2.0
"""What the exporter counts, without the process that serves it."""

from ironic_reservations.cmd import exporter
from ironic_reservations.reservations import values


def told():
    return {(sample.name, *sorted(sample.labels.items())): sample.value
            for family in exporter.Collector().collect()
            for sample in family.samples}


def test_number_that_falls_to_0_is_told(fleet):
    """Else Prometheus would go on with what it was before."""
    fleet.node(reservation='conductor-1')
    fleet.node()
    fleet.hold(owner=values.Owner('compute-1'))
    samples = told()
    of_nodes = [('conductor_group', ''), ('resource_class', 'gold'),
                ('shard', '')]
    for state in exporter.NODE_STATES:
        assert samples['ironic_reservations_nodes', *of_nodes, (
            'state', state)] == (state in ('free', 'reserved'))
    for state in values.STATES:
        assert samples['ironic_reservations_reservations', (
            'host', 'compute-1'), ('state', state)] == (state == 'reserved')
    assert samples['ironic_reservations_overdue',] == 0
    assert samples['ironic_reservations_up',] == 1
