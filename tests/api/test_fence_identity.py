# SPDX-License-Identifier: Apache-2.0
"""Responses of the fence to different callers."""

import pytest

from tests.api import fence_client
from tests.api.fence_client import NAME
from tests.api.fence_client import make_header
from tests.api.fence_client import power_path
from tests.common import contract
from tests.common import personas

NOBODY = '00000000-0000-4000-8000-000000000000'


@pytest.fixture
def client(cloud):
    with fence_client.serve() as client:
        yield client


@pytest.fixture
def put(cloud, client, monkeypatch):
    """Sends a request for A's reservation as a persona."""
    def put(persona, **keys):
        caller, hold = cloud.callers[persona], cloud.holds['a']
        with monkeypatch.context() as patch:
            patch.setattr(caller, 'url', client.url)
            return caller.put(power_path(hold), headers={
                **personas.FORGED, NAME: make_header(hold, host='h', **keys)})
    return put


@pytest.mark.parametrize('persona, status', [
    ('no-token', 401), ('bad-token', 401), ('unscoped', 412),
    ('domain-admin', 412), ('system-admin', 202), ('system-reader', 202),
    ('system-service', 202), ('a-member', 202), ('a-reader', 202),
    ('a-service', 412), ('b-admin', 412), ('service', 412),
    ('elevated-service', 202)])
def test_caller_must_see_the_reservation(client, put, persona, status):
    """The header gives no permission: Ironic authenticates the caller."""
    response = put(persona, holder=personas.HOLDER)
    if status == 202:
        client.check_accepted(response)
        return
    fault = client.check_refused(response, status)
    # The error is the same with a wrong lease,
    assert contract.fault(put(persona, holder=NOBODY)) == fault
    if status == 412:
        # and for an instance that does not exist.
        _, unknown = (client.check_refused(put(name, instance=NOBODY), 412)
                      for name in (persona, 'system-admin'))
        assert unknown.replace(NOBODY, '') == fault.replace(
            fault.split()[-1][:-1], '')


def test_ironic_gets_only_the_token(cloud, client):
    """The headers that our own authentication sets are removed."""
    token = cloud.callers['a-member'].headers['X-Auth-Token']
    hold = cloud.holds['a']
    for headers in {}, {'HTTP_X_ROLES': 'forged'}:
        status, _ = client.call(power_path(hold), make_header(hold, host='h'),
                                HTTP_X_AUTH_TOKEN=token, **headers)
        assert status == 202
        assert client.ironic.environs.pop() == client.before


def test_authentication_comes_first(cloud, client):
    """Before errors in the header or the path."""
    for path in '/v1/ports', power_path(cloud.holds['a']):
        status, headers = client.call(path, 'x')
        assert status == 401 and 'WWW-Authenticate' in headers
    assert client.ironic.environs == []
