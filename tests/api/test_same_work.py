# SPDX-License-Identifier: Apache-2.0
"""What is another project's makes as much work as what is not there.

Otherwise the time that an answer takes would tell the one from the other. It
is decided by the statements, because time is not the same twice.
"""

import uuid

import pytest

from tests.api import conftest
from tests.common import personas

OURS = personas.OURS
RENEW = [{'op': 'replace', 'path': '/expires_in', 'value': 60}]

INSTANCE = {
    'show': ('GET', '/{}', None, 404),
    'renew': ('PATCH', '/{}', RENEW, 404),
    'renew of a host': ('PATCH', '/{}?host=h', RENEW, 404),
    'release': ('DELETE', '/{}', None, 404),
    'release of a host': ('DELETE', '/{}?host=h', None, 404),
    'list': ('GET', '?marker={}', None, 400),
}
GROUP = {
    'show group': ('GET', '/groups/{}', None, 404),
    'release group': ('DELETE', '/groups/{}', None, 404),
    'list groups': ('GET', '/groups?marker={}', None, 400),
}
EITHER = {'claim': ('POST', '', {**personas.ANY, 'claim': '{}'}, 404)}


def work(cloud, call, ident):
    """What B is told and what is done for that, without the UUID."""
    method, path, body, status = call
    if isinstance(body, dict):
        body = {**body, 'claim': ident}
    with conftest.statements() as found:
        fault = cloud.refused('b-member', status, method,
                              OURS + path.format(ident), json=body)
    assert found
    return fault.replace(ident, 'UUID'), found


@pytest.mark.parametrize('call', [*INSTANCE, *EITHER])
def test_instance(cloud, call):
    call = (INSTANCE | EITHER)[call]
    held = cloud.hold('a-member', expires_in=600)
    before = cloud.ironic.state()
    assert (work(cloud, call, held['instance_uuid'])
            == work(cloud, call, str(uuid.uuid4())))
    assert cloud.ironic.state() == before


@pytest.mark.parametrize('call', [*GROUP, *EITHER])
def test_group(cloud, call):
    call = (GROUP | EITHER)[call]
    ident = str(uuid.uuid4())
    cloud.refused('a-member', 201, 'POST', f'{OURS}/groups', json={
        'uuid': ident, 'members': 2, 'request': personas.ANY})
    before = cloud.ironic.state()
    assert work(cloud, call, ident) == work(cloud, call, str(uuid.uuid4()))
    assert cloud.ironic.state() == before
