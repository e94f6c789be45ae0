# SPDX-License-Identifier: Apache-2.0
"""The hosts between which servers may be moved."""

import logging
import types

from osc_lib import exceptions
import pytest

from ironic_reservations.osc import compute_hosts


class Compute:
    """Nova's services, whose heartbeats advance with each query.

    :param services: dicts of the differences from a host that is down.
    """

    def __init__(self, *services):
        self._services, self._time = services, 0

    def services(self, binary, host=None):
        self._time += 1
        return [types.SimpleNamespace(**{
            'state': 'down', 'status': 'enabled', 'is_forced_down': False,
            'updated_at': self._time if service.get('beats') else 0,
            'availability_zone': 'nova', **service})
            for service in self._services
            if host in (None, service['host'])
            and not (host and service.get('ends'))]


UP = {'host': 'b', 'state': 'up'}


@pytest.fixture
def check_move(monkeypatch):
    monkeypatch.setattr(compute_hosts, 'HEARTBEAT', 0)
    cmd = types.SimpleNamespace(log=logging.getLogger(__name__))

    def run(*services, source='a', target='b', force=False):
        compute_hosts.check_hosts(cmd, Compute(*services), source, target,
                                  force)
    return run


@pytest.mark.parametrize('source', [
    {}, {'is_forced_down': True},
    # Deleted while the command waits for its next report.
    {'is_forced_down': True, 'ends': True}], ids=str)
def test_from_a_host_that_is_down(check_move, source):
    check_move({'host': 'a', **source}, UP)


@pytest.mark.parametrize('source, target, words', [
    ({'state': 'up'}, UP, 'on a is up: disable it first, and stop nova-c'),
    ({'state': 'up', 'status': 'disabled'}, UP, 'on a is up: stop nova-c'),
    # What cannot be mended by stopping the source comes first.
    ({'state': 'up'}, {'host': 'b'}, 'service on b is not up'),
    ({'is_forced_down': True, 'beats': True}, UP, 'down, but still reports'),
    ({}, {'host': 'b'}, 'service on b is not up'),
    ({}, {'host': 'c', 'state': 'up'}, 'service on b is not up'),
    ({'host': 'c'}, UP, 'no compute service on host a'),
    ({'availability_zone': 'other'}, UP, 'is in availability zone nova'),
], ids=str)
@pytest.mark.parametrize('force', [False, True])
def test_refused_move(check_move, source, target, words, force):
    services = {'host': 'a', **source}, target
    if force and ('zone' in words or 'no compute' in words):
        check_move(*services, force=True)
        return
    with pytest.raises(exceptions.CommandError, match=words):
        check_move(*services, force=force)


@pytest.mark.parametrize('source', [
    {'state': 'up'}, {'is_forced_down': True, 'beats': True}], ids=str)
@pytest.mark.parametrize('status', ['enabled', 'disabled'])
def test_host_that_is_disabled(check_move, source, status):
    with pytest.raises(compute_hosts.HostIsUp) as error:
        check_move({'host': 'a', 'status': status, **source}, UP)
    assert error.value.is_disabled == (status == 'disabled')


def test_move_to_the_same_host(check_move):
    with pytest.raises(exceptions.CommandError, match='Both hosts are b'):
        check_move(UP, target='b', source='b')
