# SPDX-License-Identifier: Apache-2.0
"""Requests of a page of another origin, such as a dashboard."""

from tests.common import contract
from tests.common import personas

OURS = personas.OURS
PAGE = {'Origin': personas.ORIGIN}


def test_preflight_of_a_dashboard(ironic):
    for method in 'GET', 'POST', 'DELETE':
        response = ironic.http.options(OURS, headers={
            **PAGE, 'Access-Control-Request-Method': method,
            'Access-Control-Request-Headers':
            'X-Auth-Token,Content-Type,X-OpenStack-Ironic-API-Version'})
        assert response.status_code == 200
        assert (response.headers['Access-Control-Allow-Origin']
                == personas.ORIGIN)
        assert method in response.headers['Access-Control-Allow-Methods']
        headers = response.headers['Access-Control-Allow-Headers'].lower()
        assert 'x-openstack-ironic-api-version' in headers
    for path, status in ((OURS, 200), (f'{OURS}/x', 400)):
        response = ironic.http.get(path, headers=PAGE)
        contract.check(response, status)
        assert (response.headers['Access-Control-Allow-Origin']
                == personas.ORIGIN)
        headers = response.headers['Access-Control-Expose-Headers']
        assert 'X-OpenStack-Ironic-API-Version' in headers
        assert contract.OWN_HEADER in headers
    response = ironic.http.get(OURS, headers={
        'Origin': 'http://elsewhere.example'})
    assert 'Access-Control-Allow-Origin' not in response.headers
