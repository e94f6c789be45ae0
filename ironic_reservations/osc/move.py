# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation move``.

The host of a reservation manages the server on the node. The command changes
it for one server after the other, and the new host takes the server over by
itself.
"""

import argparse
import contextlib
import dataclasses
import time
from typing import Any
import urllib.parse

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions
from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.osc import output
from ironic_reservations.osc import progress
from ironic_reservations.osc import reservation
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions

#: A running compute service reports to Nova at least once in this number of
#: seconds, which is more than the default of [DEFAULT] report_interval.
HEARTBEAT = 15

#: Seconds between two polls of the servers that are taken over.
PAUSE = 2

#: Seconds after which the command stops waiting for a host to be down: by
#: default nova-compute stops within 180 s, and Nova shows it as down 60 s
#: later ([DEFAULT] graceful_shutdown_timeout and service_down_time).
DOWN_PATIENCE = 300

#: Seconds without progress after which the command stops waiting for servers.
PATIENCE = 120


class HostIsUp(exceptions.CommandError):
    """The host whose servers should move still runs.

    :param is_disabled: Nova sends it no new servers, so they can move as soon
        as it is stopped.
    """

    def __init__(self, message: str, is_disabled: bool) -> None:
        super().__init__(message)
        self.is_disabled = is_disabled


@dataclasses.dataclass(frozen=True)
class Mode:
    """Whether servers move, or what is shown instead.

    :param obstacle: why they stay; None if they can move.
    :param is_dry_run: whether nothing happens.
    """

    obstacle: str | None
    is_dry_run: bool

    def preview(self, result: str) -> str | None:
        """Return the result that is shown without an action; else None.

        :param result: what would happen.
        """
        return self.obstacle or (result if self.is_dry_run else None)


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
    if before and before.state != 'down':
        is_disabled = before.status == 'disabled'
        raise HostIsUp(
            f'Compute service on {source} is up: '
            f'{"" if is_disabled else "disable it first, and "}'
            f'stop nova-compute on {source}.', is_disabled)
    if before and before.is_forced_down and _is_running(cmd, compute, before):
        raise HostIsUp(
            f'Compute service on {source} is up: stop it, and wait until Nova '
            f'shows it as down.', False)


def _is_running(cmd: command.Command, compute: Any, service: Any) -> bool:
    """Return whether a service that is forced down still reports to Nova."""
    progress.update_line(cmd, 'Host %s is forced down; waiting %d s to see '
                              'whether it still reports', service.host,
                         HEARTBEAT)
    time.sleep(HEARTBEAT)
    now, = compute.services(binary='nova-compute', host=service.host)
    is_running: bool = now.updated_at != service.updated_at
    return is_running


class MoveReservation(output.Lister):
    """Move servers from a compute host that is down to another one.

    The machines keep running and are not changed. To drain a host, first
    disable its service and stop nova-compute: until Nova shows it as down, all
    servers stay. A server whose build the host has not started has no machine:
    it is set to ERROR. Requires the admin role of Nova in a project; see
    "audit" for the requirements of Ironic. The exit status is 1 if a server
    stays.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--from', dest='source', metavar='<host>',
                            required=True,
                            help='Compute service that is down')
        parser.add_argument('--to', dest='target', metavar='<host>',
                            required=True,
                            help='Compute service that takes over')
        parser.add_argument('--instance', action='append', metavar='<uuid>',
                            help='Only this server (repeat for several)')
        parser.add_argument('--wait', action='store_true',
                            help='Wait up to five minutes until a disabled '
                                 'host is down, and until each server is '
                                 'taken over')
        parser.add_argument('--dry-run', action='store_true',
                            help='Only show what would happen to each server')
        parser.add_argument(
            '--force', action='store_true',
            help='Allow a target in another availability zone, and a source '
                 'that Nova does not know')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        source, target = parsed_args.source, parsed_args.target
        with client.convert_nova_errors(), progress.show_line(self):
            self._compute = client.get_compute(self)
            self._auth = scope.find_full_auth(self)
            mode = Mode(self._find_obstacle(parsed_args), parsed_args.dry_run)
            reservations = self._read_reservations(source)
            servers = self._read_servers(source)
            queue = self._read_queue(source, reservations.keys() | servers)
            instances = {*map(str.lower, parsed_args.instance or (
                reservations.keys() | servers | queue.keys()))}
            # Moved by an earlier command, or by a concurrent one.
            moves = {instance: row for instance, row
                     in self._read_reservations(target).items()
                     if instance in instances}
            results = {
                instance: None if instance in moves else
                self._move_reservation(instance, source, target, mode)
                if instance in reservations else
                self._end_build(instance, queue[instance], mode)
                if instance in queue else
                self._end_lost_build(instance, target, None, mode)
                if instance in servers else
                f'stays: not on host {source}' for instance in instances}
            reservations |= moves
            moving = {instance for instance, result in results.items()
                      if result is None}
            progress.update_line(self, '%d of %d machines are moved to host '
                                       '%s', len(moving), len(instances),
                                 target)
            results |= dict.fromkeys(moving, f'moved to {target}')
            if parsed_args.wait and not (mode.is_dry_run or mode.obstacle):
                results |= {
                    instance: result or self._end_lost_build(
                        instance, target, 'released concurrently', mode)
                    or f'moved to {target}'
                    for instance, result
                    in self._wait(moving, target).items()}
        self.status = 1 if any(str(result).startswith('stays')
                               for result in results.values()) else 0
        rows = suggestions.report_empty(
            self, sorted(results.items()), 'servers', {'host': source},
            auth=self._auth)
        return (('Instance', 'Node', 'Result'), (
            (instance, reservations[instance]['node_name']
             or reservations[instance]['node_uuid']
             if instance in reservations else None, result)
            for instance, result in rows))

    def _find_obstacle(self, parsed_args: argparse.Namespace) -> str | None:
        """Check both hosts, and wait for the source to be down with --wait.

        :returns: the result of the servers that stay because the source is up,
            or None if they can move.
        :raises: CommandError.
        """
        deadline = time.monotonic() + DOWN_PATIENCE
        while True:
            try:
                check_hosts(self, self._compute, parsed_args.source,
                            parsed_args.target, parsed_args.force)
                return None
            except HostIsUp as error:
                if parsed_args.dry_run or (
                        error.is_disabled and not parsed_args.wait):
                    return f'stays: {error}'
                if not error.is_disabled or time.monotonic() >= deadline:
                    raise
                progress.update_line(self, '%s', error)
            time.sleep(PAUSE)

    def _read_reservations(self, host: str) -> dict[str, client.Data]:
        """Return a host's reservations by the UUID of the instance.

        As Nova has it, in lower case.
        """
        return {row['instance_uuid'].lower(): row for row in client.read_list(
            self, 'reservations', {
                'host': host, 'fields': 'instance_uuid,node_uuid,node_name'},
            auth=self._auth)}

    def _read_servers(self, host: str) -> set[str]:
        """Return the UUIDs of the servers on a host."""
        return {server.id for server in self._compute.servers(
            details=False, all_projects=True, compute_host=host)}

    def _read_queue(self, host: str,
                    others: set[str]) -> dict[str, client.Data]:
        """Return the builds that were sent to a host and have not started.

        :param others: UUIDs of instances whose build has started.
        :returns: their allocations by the UUID of the instance.
        """
        queue = {}
        for provider in client.request_placement(
                self, f'/resource_providers?name={urllib.parse.quote(host)}'
        )['resource_providers']:
            path = f'/resource_providers/{provider["uuid"]}/allocations'
            for instance in client.request_placement(
                    self, path)['allocations'].keys() - others:
                with contextlib.suppress(sdk_exc.NotFoundException):
                    server = self._compute.get_server(instance)
                    # An interrupted command may have left it in ERROR.
                    if (server.compute_host is None
                            and server.status in ('BUILD', 'ERROR')):
                        queue[instance] = client.request_placement(
                            self, f'/allocations/{instance}')
        return queue

    def _end_build(self, instance: str, allocations: client.Data,
                   mode: Mode) -> str:
        """End a build that no host has started.

        :param allocations: its allocations, which are kept if they have
            changed.
        :returns: the result.
        """
        if preview := mode.preview(
                'would be set to ERROR: its build has not started'):
            return preview
        self._compute.reset_server_state(instance, 'error')
        client.request_placement(
            self, f'/allocations/{instance}', 'PUT',
            json={**allocations, 'allocations': {}})
        return 'set to ERROR: its build had not started'

    def _end_lost_build(self, instance: str, target: str, default: str | None,
                        mode: Mode) -> str | None:
        """End a build whose lease expired before its host could deploy it.

        :param default: the result if there is no such build; None for what
            to do with a server without a reservation.
        :returns: None if the target holds the server, otherwise the result.
        """
        try:
            holder = reservation.read_reservation(
                self, instance, {'fields': 'host'}, self._auth)['host']
            # A concurrent command may have moved it.
            return None if holder == target else (
                f'stays: host {holder} holds it')
        except exc.NotFound:
            pass
        except (exc.ClientException, ksa_exc.ClientException) as error:
            return f'stays: {error}'
        try:
            status = self._compute.get_server(instance).status
        except sdk_exc.NotFoundException:
            return 'released concurrently'
        if status == 'BUILD':
            return self._end_build(instance, client.request_placement(
                self, f'/allocations/{instance}'), mode)
        return default or 'stays: it has no reservation; ' + (
            'delete it unless audit lists it' if status == 'ERROR'
            else 'see audit')

    def _move_reservation(self, instance: str, source: str, target: str,
                          mode: Mode) -> str | None:
        """Change the host of a reservation.

        :returns: None if it is moved, otherwise the result.
        """
        if preview := mode.preview(f'would move to {target}'):
            return preview
        try:
            client.request_ironic(
                self, 'PATCH', f'{client.PATH}/{instance}?host={source}',
                auth=self._auth,
                body=[{'op': 'replace', 'path': '/host', 'value': target}])
            return None
        except exc.NotFound:
            return self._end_lost_build(instance, target,
                                        'released concurrently', mode)
        except (exc.ClientException, ksa_exc.ClientException) as error:
            return f'stays: {error}'

    def _wait(self, instances: set[str], target: str,
              ) -> dict[str, str | None]:
        """Wait until a host has taken servers over.

        :returns: see ``_find_results``.
        """
        results: dict[str, str | None] = {}
        last_progress = time.monotonic()
        while True:
            pending = instances - results.keys()
            # A service may be unavailable for a moment, so poll again later.
            with contextlib.suppress(sdk_exc.SDKException, exc.ClientException,
                                     ksa_exc.ClientException):
                if latest := self._find_results(pending, target):
                    results |= latest
                    pending -= latest.keys()
                    last_progress = time.monotonic()
                    progress.update_line(self, '%d of %d servers are taken '
                                               'over', len(results),
                                         len(instances))
            if not pending or time.monotonic() >= last_progress + PATIENCE:
                return results | dict.fromkeys(
                    pending, f'stays: {target} has not taken it over; is it '
                             f'in another cell?')
            time.sleep(PAUSE)

    def _find_results(self, instances: set[str],
                      target: str) -> dict[str, str | None]:
        """Return the servers that were taken over, or will not be.

        :returns: the results by the UUID of the instance; None for a server
            that the target no longer holds: the lease of its build may have
            expired before the takeover.
        """
        servers = self._read_servers(target)
        reservations = self._read_reservations(target)
        results: dict[str, str | None] = dict.fromkeys(
            instances & servers, f'taken over by {target}')
        for instance in instances - servers:
            try:
                self._compute.get_server(instance)
            except sdk_exc.NotFoundException:
                results[instance] = f'deleted: {target} tears it down'
            else:
                if instance not in reservations:
                    results[instance] = None
        return results
