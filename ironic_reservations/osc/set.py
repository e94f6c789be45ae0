# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation set``."""

import argparse
import urllib.parse

from osc_lib import exceptions

from ironic_reservations.osc import client
from ironic_reservations.osc import move
from ironic_reservations.osc import output
from ironic_reservations.osc import reservation
from ironic_reservations.osc import scope
from ironic_reservations.osc import units


class SetReservation(output.Command):
    """Change the host or the lease of a reservation.

    If the node is deployed or being deployed, the host can be changed under
    the same conditions as with "move": from a compute service that is down to
    one that is up, in the same availability zone. This is checked in Nova and
    requires the admin role in a project.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        reservation.add_argument(parser)
        parser.add_argument('--host', metavar='<host>',
                            help='Compute service that will hold it (admins '
                                 'only)')
        parser.add_argument(
            '--force', action='store_true',
            help='Change the host without checking both hosts in Nova')
        lease = parser.add_mutually_exclusive_group()
        lease.add_argument('--expires-in', type=units.parse_seconds,
                           metavar='<seconds>',
                           help='New lease from now, such as 600 or 10m; the '
                                'reservation expires if deployment has not '
                                'started by then')
        lease.add_argument('--no-expiry', action='store_true',
                           help='Remove the lease')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
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
        auth = scope.find_full_auth(self) if parsed_args.host else None
        row = reservation.find_reservation(
            self, parsed_args.reservation,
            (*reservation.IDENTIFIERS, 'host', 'state'), auth)
        path = reservation.build_path(row)
        if (parsed_args.host not in (None, row['host'])
                and not parsed_args.force):
            if row['state'] != 'reserved':
                with client.convert_nova_errors():
                    move.check_hosts(
                        self, self.app.client_manager.sdk_connection.compute,
                        row['host'], parsed_args.host)
            if row['host'] is not None:
                # The API changes it only if that host still holds it.
                path += '?' + urllib.parse.urlencode({'host': row['host']})
        client.request_ironic(self, 'PATCH', path, body=changes, auth=auth)
