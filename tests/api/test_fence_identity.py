# SPDX-License-Identifier: Apache-2.0
"""The fence at Ironic's door: who asks."""

import pytest

from tests.api.door import NAME
from tests.api.door import let_in
from tests.api.door import of
from tests.api.door import opened
from tests.api.door import power
from tests.api.door import refused
from tests.common import answers
from tests.common import personas

NOBODY = '00000000-0000-4000-8000-000000000000'


@pytest.fixture
def door(cloud):
    with opened() as door:
        yield door


@pytest.fixture
def put(cloud, door, monkeypatch):
    """Sends as a persona, for the reservation of A."""
    def put(persona, **said):
        caller, held = cloud.callers[persona], cloud.held['a']
        with monkeypatch.context() as patch:
            patch.setattr(caller, 'url', door.url)
            return caller.put(power(held), headers={
                **personas.FORGED, NAME: of(held, host='h', **said)})
    return put


@pytest.mark.parametrize('persona, status', [
    ('no-token', 401), ('bad-token', 401), ('unscoped', 412),
    ('domain-admin', 412), ('system-admin', 202), ('system-reader', 202),
    ('system-service', 202), ('a-member', 202), ('a-reader', 202),
    ('a-service', 412), ('b-admin', 412), ('service', 412),
    ('elevated-service', 202)])
def test_who_may_see_the_reservation(door, put, persona, status):
    """The header gives no right: Ironic judges for itself who it is."""
    response = put(persona, holder=personas.HOLDER)
    if status == 202:
        let_in(door, response)
        return
    fault = refused(door, response, status)
    # Nothing is told of the lease,
    assert answers.fault(put(persona, holder=NOBODY)) == fault
    if status == 412:
        # and it is as if there were none.
        _, none = (refused(door, put(each, instance=NOBODY), 412)
                   for each in (persona, 'system-admin'))
        assert none.replace(NOBODY, '') == fault.replace(
            fault.split()[-1][:-1], '')


def test_ironic_sees_the_token_alone(cloud, door):
    """And nothing that our own authentication has found out."""
    token = cloud.callers['a-member'].headers['X-Auth-Token']
    held = cloud.held['a']
    for forged in {}, {'HTTP_X_ROLES': 'forged'}:
        status, *_ = door.call(power(held), of(held, host='h'),
                               HTTP_X_AUTH_TOKEN=token, **forged)
        assert status == 202 and door.behind.seen.pop() == door.before


def test_strangers_are_told_nothing_else_first(cloud, door):
    """Whatever is wrong with the header or the path."""
    for path, header in ('/v1/ports', 'x'), (power(cloud.held['a']), 'x'):
        status, headers, _ = door.call(path, header)
        assert status == 401 and 'WWW-Authenticate' in headers
    assert door.seen == []
