# SPDX-License-Identifier: Apache-2.0
"""The database accepts the largest list of candidates."""

import pytest

from tests.common import answers

OURS = '/v1/reservations'
POOL = [{'name': 'bounds-1'}]


@pytest.mark.parametrize('number, status, matching', [
    (1023, 200, 1), (1024, 400, None)])
def test_candidates(ironic, pool, number, status, matching):
    body = {'candidate_nodes': ['bounds-1', *map(str, range(number))]}
    response = ironic.http.post(f'{OURS}?dry_run=true', json=body)
    answers.check(response, status)
    assert response.json().get('matching_nodes') == matching
    if matching:
        hold = ironic.create(**body)
        assert hold['node_name'] == 'bounds-1'
