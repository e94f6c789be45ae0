# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation move``.

The host of a reservation manages the server on the node. The command changes
it for one server after the other, and the new host takes the server over by
itself.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import time
from typing import Any
import urllib.parse
import uuid

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc

from ironic_reservations.osc import client
from ironic_reservations.osc import compute_hosts
from ironic_reservations.osc import lookup
from ironic_reservations.osc import output
from ironic_reservations.osc import progress
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions

#: Seconds between two polls of the servers that are taken over.
PAUSE = 2

#: Seconds after which the command stops waiting for a host to be down: by
#: default nova-compute stops within 180 s, and Nova shows it as down 60 s
#: later ([DEFAULT] graceful_shutdown_timeout and service_down_time).
DOWN_PATIENCE = 300

#: Seconds without progress after which the command stops waiting for servers.
PATIENCE = 120

#: Errors of Ironic, Nova and Placement, which may concern a single server.
ERRORS = (exc.ClientException, ksa_exc.ClientException,
          sdk_exc.SDKException)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A move of servers from one host to another.

    :param obstacle: why they stay; None if they can move.
    :param is_dry_run: whether nothing happens.
    """

    source: str
    target: str
    obstacle: str | None
    is_dry_run: bool

    def preview(self, result: str) -> str | None:
        """Return the result that is shown without an action; else None.

        :param result: what would happen.
        """
        return self.obstacle or (result if self.is_dry_run else None)


class MoveReservation(output.Lister):
    """Move servers from a compute host that is down to another one.

    The machines keep running and are not changed. To drain a host, first
    disable its service and stop nova-compute: until Nova shows it as down, all
    servers stay. With --dry-run, a host that is up prevents nothing. A server
    whose build the host has not started has no machine: it is set to ERROR. A
    server of a lease of Blazar stays. Requires the admin role of Nova in a
    project; see "audit" for the requirements of Ironic. The exit status is 1
    if a server stays.
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
                            type=uuid.UUID,
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
            plan = Plan(source, target, self._find_obstacle(parsed_args),
                        parsed_args.dry_run)
            reservations = self._read_reservations(source)
            servers = self._read_servers(source)
            instances = {*map(str, parsed_args.instance or ())}
            queue = self._read_queue(source, reservations.keys() | servers,
                                     instances)
            instances = instances or (
                reservations.keys() | servers | queue.keys())
            obstacles = compute_hosts.find_obstacles(self, source)
            moves = self._read_reservations(target)

            def move(instance: str) -> str | None:
                if instance in moves:
                    return None
                if instance in reservations and instance in obstacles:
                    return f'stays: {obstacles[instance]}'
                if instance in reservations:
                    return self._move_reservation(instance, plan)
                if instance in queue:
                    return self._end_build(instance, queue[instance], plan)
                if instance in servers:
                    return self._resolve(instance, plan)
                return f'stays: not on host {source}'

            results = {instance: _report_errors(move, instance)
                       for instance in instances}
            # A response may be lost, or another command has moved a server.
            with contextlib.suppress(*ERRORS):
                moves |= self._read_reservations(target)
            reservations |= moves
            moving = {instance for instance, result in results.items()
                      if result is None or instance in moves}
            progress.update_line(self, '%d of %d machines are moved to host '
                                       '%s', len(moving), len(instances),
                                 target)
            results |= dict.fromkeys(moving, f'moved to {target}')
            if parsed_args.wait and not plan.is_dry_run:
                results |= self._wait(moving, plan)
        self.status = 1 if any(str(result).startswith('stays')
                               for result in results.values()) else 0
        if not results:
            suggestions.print_hint(self, f'Host {source} has no servers.')
        return (('Instance', 'Node', 'Result'), (
            (instance, reservations[instance]['node_name']
             or reservations[instance]['node_uuid']
             if instance in reservations else None, result)
            for instance, result in sorted(results.items())))

    def _find_obstacle(self, parsed_args: argparse.Namespace) -> str | None:
        """Check both hosts, and wait for the source to be down with --wait.

        :returns: the result of the servers that stay because the source is up,
            or None if they can move.
        :raises: CommandError.
        """
        deadline = time.monotonic() + DOWN_PATIENCE
        while True:
            try:
                compute_hosts.check_hosts(
                    self, self._compute, parsed_args.source,
                    parsed_args.target, parsed_args.force)
                return None
            except compute_hosts.HostIsUp as error:
                if parsed_args.dry_run:
                    suggestions.print_hint(
                        self, f'All servers stay until the host is stopped: '
                              f'{error} Then this would happen:')
                    return None
                if error.is_disabled and not parsed_args.wait:
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

    def _read_queue(self, host: str, others: set[str],
                    instances: set[str]) -> dict[str, client.Data]:
        """Return the builds that were sent to a host and have not started.

        :param others: UUIDs of instances whose build has started.
        :param instances: UUIDs of those to return; empty for all.
        :returns: their allocations by the UUID of the instance.
        """
        queue = {}
        for provider in client.request_placement(
                self, '/resource_providers?'
                      + urllib.parse.urlencode({'name': host})
        )['resource_providers']:
            path = f'/resource_providers/{provider["uuid"]}/allocations'
            consumers = client.request_placement(
                self, path)['allocations'].keys() - others
            for instance in consumers & (instances or consumers):
                with contextlib.suppress(sdk_exc.NotFoundException):
                    server = self._compute.get_server(instance)
                    # An interrupted command may have left it in ERROR.
                    if (server.compute_host is None
                            and server.status in ('BUILD', 'ERROR')):
                        queue[instance] = client.request_placement(
                            self, f'/allocations/{instance}')
        return queue

    def _move_reservation(self, instance: str, plan: Plan) -> str | None:
        """Change the host of a reservation.

        :returns: None if it is moved, otherwise the result.
        """
        if preview := plan.preview(f'would move to {plan.target}'):
            return preview
        try:
            client.request_ironic(
                self, 'PATCH', f'{client.PATH}/{instance}?'
                               + urllib.parse.urlencode({'host': plan.source}),
                auth=self._auth,
                body=[{'op': 'replace', 'path': '/host',
                       'value': plan.target}])
            return None
        except exc.NotFound:
            return self._resolve(instance, plan)

    def _resolve(self, instance: str, plan: Plan) -> str | None:
        """Find out what became of a server that the source does not hold.

        A build is ended if its lease has expired before it could be deployed.

        :returns: None if the target holds it, otherwise the result.
        """
        try:
            holder = lookup.read_reservation(
                self, instance, {'fields': 'host'}, self._auth)['host']
        except exc.NotFound:
            return self._end_lost_build(instance, plan)
        if holder == plan.target:
            return None
        return (f'stays: host {holder} holds it' if holder
                else 'stays: no host holds it; see audit')

    def _end_lost_build(self, instance: str, plan: Plan) -> str | None:
        """End the build of a server without a reservation.

        :returns: None if the target has just taken it over, otherwise the
            result.
        """
        try:
            server = self._compute.get_server(instance)
        except sdk_exc.NotFoundException:
            return 'deleted concurrently'
        if server.compute_host == plan.target:
            return None
        if server.compute_host is None:
            return 'its build has failed'
        # A host with a compute node per node builds without reservations.
        if (server.status == 'BUILD'
                and server.hypervisor_hostname == plan.source):
            return self._end_build(instance, client.request_placement(
                self, f'/allocations/{instance}'), plan)
        return 'stays: it has no reservation; ' + (
            'delete it unless audit lists it'
            if server.status == 'ERROR' or server.task_state == 'deleting'
            else 'see audit')

    def _end_build(self, instance: str, allocations: client.Data,
                   plan: Plan) -> str:
        """End a build that no host has started.

        :param allocations: its allocations, which are kept if they have
            changed.
        :returns: the result.
        """
        if preview := plan.preview(
                'would be set to ERROR: its build has not started'):
            return preview
        try:
            self._compute.reset_server_state(instance, 'error')
        except sdk_exc.NotFoundException:
            return 'deleted concurrently'
        if allocations['allocations']:
            client.request_placement(
                self, f'/allocations/{instance}', 'PUT',
                json={**allocations, 'allocations': {}})
        return 'set to ERROR: its build had not started'

    def _wait(self, instances: set[str], plan: Plan) -> dict[str, str]:
        """Wait until a host has taken servers over, and return the results."""
        results: dict[str, str] = {}
        last_progress = time.monotonic()
        while True:
            reason = (f'{plan.target} has not taken it over; see the log of '
                      f'its nova-compute')
            # A service may be unavailable for a moment, so poll again later.
            try:
                for instance, result in self._find_results(
                        instances - results.keys(), plan):
                    results[instance] = result
                    last_progress = time.monotonic()
                    progress.update_line(self, '%d of %d servers are taken '
                                               'over', len(results),
                                         len(instances))
            except ERRORS as error:
                reason = client.format_error(error)
            pending = instances - results.keys()
            if not pending or time.monotonic() >= last_progress + PATIENCE:
                return results | dict.fromkeys(pending, f'stays: {reason}')
            time.sleep(PAUSE)

    def _find_results(self, instances: set[str],
                      plan: Plan) -> Iterator[tuple[str, str]]:
        """Yield servers that were or will not be taken over, with results."""
        servers = self._read_servers(plan.target)
        for instance in instances & servers:
            yield instance, f'taken over by {plan.target}'
        others = instances - servers
        reservations = self._read_reservations(plan.target)
        for instance in others - reservations.keys():
            if result := _report_errors(self._resolve, instance, plan):
                yield instance, result
        for instance in others & reservations.keys():
            try:
                self._compute.get_server(instance)
            except sdk_exc.NotFoundException:
                yield instance, f'deleted: {plan.target} tears it down'


def _report_errors(move: Callable[..., str | None],
                   *args: Any) -> str | None:
    """Return the result for a server, also if an error occurs.

    The other servers can still be moved.
    """
    try:
        return move(*args)
    except ERRORS as error:
        return f'stays: {client.format_error(error)}'
