# SPDX-License-Identifier: Apache-2.0
"""An Ironic without nodes."""

import pytest

from tests.common import contract
from tests.common import service


@pytest.mark.on('sqlite', 'server')
def test_no_nodes(ironic):
    assert not ironic.execute('SELECT id FROM nodes')
    ironic.capacity()
    response = ironic.http.post(service.OURS, json={'memory_mb': 1})
    text = contract.check(response, 422)
    assert response.json()['explanation'] == {
        'considered': 0, 'eliminated': []}
    assert '0 nodes' in text
    assert 'Retry-After' not in response.headers
    verdict = ironic.http.post(f'{service.OURS}?dry_run=true',
                               json={'memory_mb': 1})
    assert verdict.json() == {
        'matching_nodes': 0, 'profiles': [],
        'explanation': response.json()['explanation']}
    assert ironic.capacity() == []
