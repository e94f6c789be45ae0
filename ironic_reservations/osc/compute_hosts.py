# SPDX-License-Identifier: Apache-2.0
"""Compute hosts between which servers may move."""

import time
from typing import Any
import urllib.parse

from osc_lib import exceptions
from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.osc import progress

#: A running compute service reports to Nova at least once in this number of
#: seconds, which is more than the default of [DEFAULT] report_interval.
HEARTBEAT = 15


class HostIsUp(exceptions.CommandError):
    """The host whose servers should move still runs.

    :param is_disabled: Nova sends it no new servers, so they can move as soon
        as it is stopped.
    """

    def __init__(self, message: str, is_disabled: bool) -> None:
        super().__init__(message)
        self.is_disabled = is_disabled


def check_hosts(cmd: command.Command, compute: Any, source: str | None,
                target: str, force: bool = False) -> None:
    """Refuse a move that would leave a server with two hosts, or with none.

    :param compute: Nova's API, a proxy of openstacksdk.
    :param source: the host that holds the server's node, or None.
    :param force: accept a source that Nova does not know, and a target in
        another availability zone.
    :raises: CommandError, or HostIsUp if nothing else prevents the move.
    """
    services = {service.host: service for service in
                compute.services(binary='nova-compute')}
    before, after = services.get(source), services.get(target)
    if source == target:
        raise exceptions.CommandError(
            f'Both hosts are {source}: give another target.')
    if before is None and source is not None and not force:
        raise exceptions.CommandError(
            f'Nova has no compute service on host {source}.')
    if after is None or after.state != 'up':
        raise exceptions.CommandError(
            f'Compute service on {target} is not up and cannot take over '
            f'servers.')
    if (before and not force
            and before.availability_zone != after.availability_zone):
        raise exceptions.CommandError(
            f'Host {target} is in availability zone '
            f'{after.availability_zone}, and {source} in '
            f'{before.availability_zone}.')
    if before is None:
        return
    is_disabled = before.status == 'disabled'
    if before.state != 'down':
        raise HostIsUp(
            f'Compute service on {source} is up: '
            f'{"" if is_disabled else "disable it first, and "}'
            f'stop nova-compute on {source}. If it has just died, Nova shows '
            f'it as down within a minute.', is_disabled)
    if before.is_forced_down and _is_running(cmd, compute, before):
        raise HostIsUp(
            f'Compute service on {source} is forced down, but still reports: '
            f'stop nova-compute on {source}.', is_disabled)


def find_obstacles(cmd: command.Command, host: str) -> dict[str, str]:
    """Return why servers of a host cannot move, by the UUID of the server.

    A host takes over an allocation from the other host's provider, and none
    from a provider below that, such as Blazar's.
    """
    def list_providers(**query: str) -> list[client.Data]:
        providers: list[client.Data] = client.request_placement(
            cmd, f'/resource_providers?{urllib.parse.urlencode(query)}')[
                'resource_providers']
        return providers

    return {instance: f'it has an allocation from provider '
                      f'{provider["name"]}, which no other host can take '
                      f'over; if it belongs to a lease of Blazar, end the '
                      f'lease first'
            for root in list_providers(name=host)
            for provider in list_providers(in_tree=root['uuid'])
            if provider['uuid'] != root['uuid']
            for instance in client.request_placement(
                cmd, f'/resource_providers/{provider["uuid"]}/allocations')[
                    'allocations']}


def _is_running(cmd: command.Command, compute: Any, service: Any) -> bool:
    """Return whether a service that is forced down still reports to Nova."""
    progress.update_line(cmd, 'Host %s is forced down; waiting %d s to see '
                              'whether it still reports', service.host,
                         HEARTBEAT)
    time.sleep(HEARTBEAT)
    return any(now.updated_at != service.updated_at for now
               in compute.services(binary='nova-compute', host=service.host))
