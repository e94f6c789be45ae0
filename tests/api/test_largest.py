# SPDX-License-Identifier: Apache-2.0
"""As much as a request may ask for, both databases can look for."""

import pytest

from tests.common import answers

OURS = '/v1/reservations'
POOL = [{'name': 'bounds-1'}]


@pytest.mark.parametrize('number, status, found', [
    (1023, 200, 1), (1024, 400, None)])
def test_candidates(ironic, pool, number, status, found):
    body = {'candidate_nodes': ['bounds-1', *map(str, range(number))]}
    response = ironic.http.post(f'{OURS}?dry_run=true', json=body)
    answers.check(response, status)
    assert response.json().get('matching_nodes') == found
    if found:
        held = ironic.create(**body)
        assert held['node_name'] == 'bounds-1'
