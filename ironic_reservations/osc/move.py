# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation move``.

A reservation says which compute host manages the machine of a server. The
command changes this for one server after the other, and the host that is
given a machine takes its server over by itself.
"""

import contextlib
import time
import urllib.parse

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions

from ironic_reservations.osc import client
from ironic_reservations.osc import output
from ironic_reservations.osc import progress
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions

#: A compute service that runs reports to Nova at least once in so many
#: seconds. It is more than the default of [DEFAULT] report_interval.
HEARTBEAT = 15

#: Seconds between two looks at what was taken over.
PAUSE = 2

#: The command stops waiting after so many seconds without any progress.
PATIENCE = 120


def check(cmd, compute, source, target, force=False):
    """Refuse a move after which two hosts, or none, would manage a server.

    :param compute: Nova's API, a proxy of openstacksdk.
    :param source: the host that holds the server's machine, or None.
    :param force: accept a source that Nova does not know, and a target in
        another availability zone.
    :raises: CommandError.
    """
    services = {each.host: each for each in
                compute.services(binary='nova-compute')}
    was, will = services.get(source), services.get(target)
    if source == target:
        raise exceptions.CommandError('The two hosts are the same.')
    if was is None and source is not None and not force:
        raise exceptions.CommandError(
            f'Nova has no compute service on host {source}.')
    if was and (was.state != 'down'
                or was.is_forced_down and _runs(cmd, compute, was)):
        raise exceptions.CommandError(
            f'Host {source} is up: stop nova-compute there, and wait until '
            f'Nova shows it as down.')
    if will is None or will.state != 'up':
        raise exceptions.CommandError(
            f'Host {target} is not up: nobody would take the servers over.')
    if was and not force and was.availability_zone != will.availability_zone:
        raise exceptions.CommandError(
            f'Host {target} is in availability zone '
            f'{will.availability_zone}, and {source} in '
            f'{was.availability_zone}.')


def _runs(cmd, compute, service):
    """Whether a service that is forced down still reports to Nova."""
    progress.say(cmd, 'Host %s is forced down; whether it runs is known in '
                      '%d s', service.host, HEARTBEAT)
    time.sleep(HEARTBEAT)
    now, = compute.services(binary='nova-compute', host=service.host)
    return now.updated_at != service.updated_at


class MoveReservation(output.Lister):
    """Have another compute host manage servers of one that is down.

    The machines run on, and nothing of them changes. To drain a host,
    disable its service and stop nova-compute first. A server that the host
    was asked to build, and has not begun, has no machine: it is set to ERROR.
    Log in for a project, as an admin of Nova; see "audit" for what Ironic
    wants. The exit status is 1 if a server stays.
    """

    def get_parser(self, prog_name):
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
                            help='Wait until Nova has each server there')
        parser.add_argument(
            '--force', action='store_true',
            help='Also to a host in another availability zone, and from one '
                 'that Nova does not know any more')
        return parser

    def take_action(self, parsed_args):
        source, target = parsed_args.source, parsed_args.target
        with client.errors_of_nova(), progress.shown(self):
            self._compute = self.app.client_manager.sdk_connection.compute
            auth = scope.of_ironic(self)
            check(self, self._compute, source, target, parsed_args.force)
            held = self._held(source, auth)
            servers = {each.id for each in self._servers(source)}
            queued = self._queued(source, held.keys() | servers)
            asked = set(parsed_args.instance or (
                held.keys() | servers | queued.keys()))
            # An earlier command gave these, or one that runs at the same
            # time.
            given_before = {each: held_there for each, held_there in
                            self._held(target, auth).items()
                            if each in asked}
            results = {each: None if each in given_before else
                       self._give(each, source, target, auth)
                       if each in held else
                       self._end(each, queued[each]) if each in queued else
                       self._end_unheld(
                           each, 'stays: it has no reservation, see audit')
                       if each in servers else
                       f'stays: not of host {source}' for each in asked}
            held |= given_before
            given = {each for each, result in results.items()
                     if result is None}
            progress.say(self, '%d of %d machines are given to host %s',
                         len(given), len(asked), target)
            results |= dict.fromkeys(given, f'given to {target}')
            if parsed_args.wait:
                results |= self._wait(given, target)
        self.status = 1 if any(result.startswith('stays')
                               for result in results.values()) else 0
        rows = suggestions.report_empty(
            self, sorted(results.items()), 'servers', {'host': source},
            auth=auth)
        return (('Instance', 'Node', 'Result'), (
            (each, held[each]['node_name'] or held[each]['node_uuid']
             if each in held else None, result)
            for each, result in rows))

    def _held(self, host, auth):
        """A host's reservations, by the UUID of the instance."""
        return {each['instance_uuid']: each for each in client.listed(
            self, 'reservations', {
                'host': host, 'fields': 'instance_uuid,node_uuid,node_name'},
            auth=auth)}

    def _servers(self, host):
        return self._compute.servers(details=False, all_projects=True,
                                     compute_host=host)

    def _queued(self, host, others):
        """The builds that a host was asked for, and has not begun.

        :param others: UUIDs of instances that it has begun.
        :returns: dict of their allocations by the UUID of the instance.
        """
        found = {}
        for provider in client.placement(
                self, f'/resource_providers?name={urllib.parse.quote(host)}'
        )['resource_providers']:
            path = f'/resource_providers/{provider["uuid"]}/allocations'
            for each in client.placement(
                    self, path)['allocations'].keys() - others:
                with contextlib.suppress(sdk_exc.NotFoundException):
                    server = self._compute.get_server(each)
                    # ERROR is what an earlier command has left.
                    if (server.compute_host is None
                            and server.status in ('BUILD', 'ERROR')):
                        found[each] = client.placement(
                            self, f'/allocations/{each}')
        return found

    def _end(self, instance, known):
        """End a build that no host has begun.

        :param known: its allocations, which are left if they have changed.
        :returns: what was done.
        """
        self._compute.reset_server_state(instance, 'error')
        client.placement(self, f'/allocations/{instance}', 'PUT', json={
            **known, 'allocations': {}})
        return 'set to ERROR: its build had not begun'

    def _end_unheld(self, instance, otherwise):
        """End a build whose lease was over before its host could deploy it.

        :param otherwise: the result, if it is no build.
        :returns: what was done.
        """
        try:
            status = self._compute.get_server(instance).status
        except sdk_exc.NotFoundException:
            return otherwise
        return otherwise if status != 'BUILD' else self._end(
            instance, client.placement(self, f'/allocations/{instance}'))

    def _give(self, instance, source, target, auth):
        """Give a machine to a host.

        :returns: None if it was given; else why it stays, or that it was
            released.
        """
        path = f'{client.PATH}/{instance}'
        try:
            try:
                client.request(
                    self, 'PATCH', f'{path}?host={source}', auth=auth, body=[
                        {'op': 'replace', 'path': '/host', 'value': target}])
                return None
            except exc.NotFound:
                # Another command may have given it away meanwhile.
                holder = client.request(self, 'GET', path, auth=auth)['host']
        except exc.NotFound:
            return self._end_unheld(instance, 'released meanwhile')
        except (exc.ClientException, ksa_exc.ClientException) as error:
            return f'stays: {error}'
        return None if holder == target else f'stays: host {holder} has it'

    def _wait(self, given, target):
        """Wait until a host has taken servers over.

        :returns: dict of the results, by the UUID of the instance.
        """
        results, moved_on = {}, time.monotonic()
        while True:
            left = given - results.keys()
            # Nova may be unavailable for a moment, so look again later.
            with contextlib.suppress(sdk_exc.SDKException,
                                     ksa_exc.ClientException):
                if done := self._done(left, target):
                    results |= done
                    left -= done.keys()
                    moved_on = time.monotonic()
                    progress.say(self, '%d of %d servers are taken over',
                                 len(results), len(given))
            if not left or time.monotonic() >= moved_on + PATIENCE:
                return results | dict.fromkeys(
                    left, f'stays: {target} has not taken it over; is it in '
                          f'another cell?')
            time.sleep(PAUSE)

    def _done(self, instances, target):
        """Which of some servers a host has taken over, or users have deleted.

        :returns: dict of the results, by the UUID of the instance.
        """
        there = {each.id for each in self._servers(target)}
        found = dict.fromkeys(instances & there, f'taken over by {target}')
        for each in instances - there:
            try:
                self._compute.get_server(each)
            except sdk_exc.NotFoundException:
                found[each] = f'deleted: {target} tears it down'
        return found
