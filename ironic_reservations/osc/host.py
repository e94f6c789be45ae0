# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack baremetal reservation host``: list and delete."""

import argparse
from typing import Any

from ironic_reservations.osc import client
from ironic_reservations.osc import output
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions

COLUMNS = ('host', 'live', 'since', 'standbys', 'reservations', 'expires_at')
DETAILS = (*COLUMNS, 'holder', 'created_at', 'updated_at')


class ListHost(output.Lister):
    """List compute host leases.

    A host lease records which process serves a compute host: whether the
    process is live (Live), since when it serves the host, the number of
    processes that wait to replace it (Standbys), the number of reservations of
    the host, and when the lease expires unless it is renewed.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Only this compute host')
        client.add_paging(parser, 'host')
        scope.add_all_projects(parser)
        parser.add_argument('--long', action='store_true',
                            help='Show all columns')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        names = DETAILS if parsed_args.long else COLUMNS
        auth = scope.find_auth(self, parsed_args)
        filters = {'host': parsed_args.host, 'marker': parsed_args.marker}
        with suggestions.suggest_all_projects(self, auth):
            leases = list(client.read_list(self, 'reservations/hosts', filters,
                                           parsed_args.limit, auth=auth))
        rows = suggestions.report_empty(self, leases, 'compute hosts',
                                        filters, auth=auth)
        return output.format_headers(names), (
            # An Ironic with an older plugin lacks some columns.
            [lease.get(name) for name in names] for lease in rows)


class DeleteHost(output.EachCommand):
    """Delete expired compute host leases.

    Reservations of the host are not changed: see "move".
    """

    argument = 'host', 'Compute host'

    def change(self, ident: str, args: argparse.Namespace, auth: Any) -> str:
        client.request_ironic(
            self, 'DELETE',
            f'{client.PATH}/hosts/{client.quote_name(ident)}', auth=auth)
        return f'host {ident}'
