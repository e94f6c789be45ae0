# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack baremetal reservation host``: list and delete."""

import urllib.parse

from ironic_reservations.osc import client
from ironic_reservations.osc import output
from ironic_reservations.osc import scope

COLUMNS = ('host', 'live', 'since', 'standbys', 'reservations', 'expires_at')
DETAILS = (*COLUMNS, 'holder', 'created_at', 'updated_at')


class ListHost(output.Lister):
    """List the compute hosts that several processes may be.

    Of each: whether a process is it now (Live), and since when that one is,
    how many others wait to take its place (Standbys), how many reservations
    the host holds, and when its lease ends unless it is renewed.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Only this compute host')
        client.add_paging(parser, 'host')
        scope.add_option(parser)
        parser.add_argument('--long', action='store_true',
                            help='Show all columns')
        return parser

    def take_action(self, parsed_args):
        names = DETAILS if parsed_args.long else COLUMNS
        auth = scope.auth(self, parsed_args, 'compute hosts')
        return output.headers(names), (
            # An Ironic with an older plugin does not say all of it.
            [lease.get(name) for name in names] for lease in client.listed(
                self, 'reservations/hosts', {
                    'host': parsed_args.host, 'marker': parsed_args.marker},
                parsed_args.limit, auth=auth))


class DeleteHost(output.Command):
    """Forget compute hosts that no process is any more.

    Only the lease is forgotten, which must be over. What the host holds it
    goes on to hold: see "move".
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('hosts', nargs='+', metavar='<host>',
                            help='Compute host')
        return parser

    def take_action(self, parsed_args):
        def delete(host):
            client.request(self, 'DELETE', f'{client.PATH}/hosts/'
                           + urllib.parse.quote(host, safe=''))
            return f'host {host}'

        output.delete_each(self, parsed_args.hosts, delete)
