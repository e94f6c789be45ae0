# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation host list``."""

from ironic_reservations.osc import client
from ironic_reservations.osc import output

COLUMNS = ('host', 'holder', 'live', 'expires_at')
DETAILS = (*COLUMNS, 'created_at', 'updated_at')


class ListHost(output.Lister):
    """List the compute hosts whose processes hold a lease of them."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Only this compute host')
        client.add_paging(parser, 'host')
        parser.add_argument('--long', action='store_true',
                            help='Show all columns')
        return parser

    def take_action(self, parsed_args):
        names = DETAILS if parsed_args.long else COLUMNS
        return output.headers(names), (
            [lease[name] for name in names] for lease in client.listed(
                self, 'reservations/hosts', {
                    'host': parsed_args.host, 'marker': parsed_args.marker},
                parsed_args.limit))
