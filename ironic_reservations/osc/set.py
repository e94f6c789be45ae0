# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation set``."""

import argparse
from typing import Any
import urllib.parse

from osc_lib import exceptions

from ironic_reservations.osc import client
from ironic_reservations.osc import commands
from ironic_reservations.osc import compute_hosts
from ironic_reservations.osc import lookup
from ironic_reservations.osc import options
from ironic_reservations.osc import scope


class SetReservation(commands.Command):
    """Change a reservation.

    If the node is deployed or being deployed, the host can be changed under
    the same conditions as with "move": from a compute service that is down to
    one that is up, in the same availability zone. This is checked in Nova and
    requires the admin role in a project.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        lookup.add_argument(parser)
        options.add_changes(parser, *options.CHANGEABLE)
        parser.add_argument(
            '--force', action='store_true',
            help='Change the host without checking both hosts in Nova')

    def choose_auth(self, args: argparse.Namespace) -> Any:
        return (scope.find_full_auth(self) if args.host
                else super().choose_auth(args))

    def act(self, args: argparse.Namespace, auth: Any) -> None:
        patch = options.build_patch(args, *options.CHANGEABLE,
                                    no_expiry='expires_in')
        row = lookup.find_reservation(
            self, args.reservation, (*lookup.IDENTIFIERS, 'host', 'state'),
            auth)
        path = lookup.build_path(row)
        if args.host not in (None, row['host']) and not args.force:
            if row['state'] != 'reserved':
                with client.convert_nova_errors():
                    self._check_move(row, args.host)
            if row['host'] is not None:
                # The API changes it only if that host still holds it.
                path += '?' + urllib.parse.urlencode({'host': row['host']})
        client.request_ironic(self, 'PATCH', path, body=patch, auth=auth)

    def _check_move(self, row: client.Data, target: str) -> None:
        compute_hosts.check_hosts(
            self, client.get_compute(self), row['host'], target)
        obstacle = row['host'] and compute_hosts.find_obstacles(
            self, row['host']).get(row['instance_uuid'].lower())
        if obstacle:
            raise exceptions.CommandError(
                f'Instance {row["instance_uuid"]} cannot be moved: '
                f'{obstacle}.')
