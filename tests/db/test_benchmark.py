# SPDX-License-Identifier: Apache-2.0
"""The floor of the benchmark takes nodes."""

import pytest

from tests.benchmark import clients


@pytest.mark.on('server')
@pytest.mark.parametrize('guarded', [True, False])
def test_floor_takes_nodes(fleet, database, guarded):
    nodes = fleet.add(*[{} for _ in range(clients.MANY)])
    # Each of the clients has nodes of its own.
    for seed in range(clients.MANY):
        for _ in clients.bare(database.url, guarded)(seed):
            pass
    assert all(fleet[node].instance_uuid for node in nodes)
