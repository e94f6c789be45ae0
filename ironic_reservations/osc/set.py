# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation set``."""

import urllib.parse

from osc_lib import exceptions

from ironic_reservations.osc import client
from ironic_reservations.osc import move
from ironic_reservations.osc import output
from ironic_reservations.osc import reservation
from ironic_reservations.osc import scope
from ironic_reservations.osc import units


class SetReservation(output.Command):
    """Give a reservation to another host, or its lease another end.

    A server whose machine is deployed or being deployed is given to another
    host as "move" does it: only from a compute service that is down to one
    that is up, in the same availability zone. Nova is asked for that; log in
    for a project, as an admin.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        reservation.add_which(parser)
        parser.add_argument('--host', metavar='<host>',
                            help='Compute service that is to hold it (admins '
                                 'only)')
        parser.add_argument(
            '--force', action='store_true',
            help='Give it to the host whatever Nova says of the two hosts')
        lease = parser.add_mutually_exclusive_group()
        lease.add_argument('--expires-in', type=units.seconds,
                           metavar='<seconds>',
                           help='Let the lease be over after this time, such '
                                'as 600 or 10m, if nothing has begun on the '
                                'node')
        lease.add_argument('--no-expiry', action='store_true',
                           help='Let the reservation have no end')
        return parser

    def take_action(self, parsed_args):
        changes = []
        if parsed_args.host is not None:
            changes.append({'op': 'replace', 'path': '/host',
                            'value': parsed_args.host})
        if parsed_args.expires_in is not None:
            changes.append({'op': 'add', 'path': '/expires_in',
                            'value': parsed_args.expires_in})
        if parsed_args.no_expiry:
            changes.append({'op': 'remove', 'path': '/expires_in'})
        if not changes:
            raise exceptions.CommandError(
                'Nothing to set: give --host, --expires-in or --no-expiry')
        auth = parsed_args.host and scope.of_ironic(self)
        row = reservation.find(self, parsed_args.reservation,
                               (*reservation.WHICH, 'host', 'state'), auth)
        path = reservation.path(row)
        if (parsed_args.host not in (None, row['host'])
                and not parsed_args.force):
            if row['state'] != 'reserved':
                with client.errors_of_nova():
                    move.check(self,
                               self.app.client_manager.sdk_connection.compute,
                               row['host'], parsed_args.host)
            if row['host'] is not None:
                # The API gives it away only if that host still holds it.
                path += '?' + urllib.parse.urlencode({'host': row['host']})
        client.request(self, 'PATCH', path, body=changes, auth=auth)
