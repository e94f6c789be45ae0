# SPDX-License-Identifier: Apache-2.0
"""As much as a request may ask for, both databases can look for."""

import pytest

from tests.common import answers

OURS = '/v1/reservations'
POOL = [{'name': 'bounds-1'}]


@pytest.mark.parametrize('number, status, found', [
    (1023, 200, 1), (1024, 400, None)])
def test_candidates(ironic, pool, number, status, found):
    response = ironic.http.post(f'{OURS}?dry_run=true', json={
        'candidate_nodes': ['bounds-1', *map(str, range(number))]})
    answers.check(response, status)
    assert response.json().get('matching_nodes') == found


def test_candidates_of_a_hold(ironic, pool):
    response = ironic.http.post(OURS, json={
        'candidate_nodes': ['bounds-1', *map(str, range(1023))]})
    answers.check(response, 201)
    assert response.json()['node_name'] == 'bounds-1'
