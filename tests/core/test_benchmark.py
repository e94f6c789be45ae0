# SPDX-License-Identifier: Apache-2.0
"""The floor of the benchmark takes nodes."""

import pytest

from benchmark import clients


@pytest.mark.on('server')
@pytest.mark.parametrize('has_guard', [True, False])
def test_floor_takes_nodes(fleet, database, has_guard):
    nodes = fleet.add(*[{} for _ in range(clients.MANY)])
    # Each client has its own nodes.
    for seed in range(clients.MANY):
        for _ in clients.bare(database.url, has_guard)(seed):
            pass
    assert all(fleet[node].instance_uuid for node in nodes)
