# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack baremetal reservation host``: list and delete."""

import argparse
from typing import Any

from ironic_reservations.osc import client
from ironic_reservations.osc import commands
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions

COLUMNS = ('host', 'live', 'since', 'standbys', 'reservations', 'expires_at')


class ListHost(commands.ListCommand):
    """List compute host leases.

    A host lease records which process serves a compute host: whether the
    process is live (Live), since when it serves the host, the number of
    processes that wait to replace it (Standbys), the number of reservations of
    the host, and when the lease expires unless it is renewed.
    """

    path, plural = 'reservations/hosts', 'compute hosts'
    filters = ('host', 'marker')
    marker = 'host'
    columns = COLUMNS
    details = (*COLUMNS, 'holder', 'created_at', 'updated_at')

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--host', metavar='<host>',
                            help='Only this compute host')
        super().add_arguments(parser)

    def choose_auth(self, args: argparse.Namespace) -> Any:
        return scope.find_auth(self, args)

    def read_rows(self, query: client.Data, args: argparse.Namespace,
                  auth: Any) -> list[client.Data]:
        with suggestions.suggest_all_projects(self, auth):
            return list(super().read_rows(query, args, auth))


class DeleteHost(commands.EachCommand):
    """Delete expired compute host leases.

    Reservations of the host are not changed: see "move".
    """

    argument = 'host', 'Compute host'

    def change(self, ident: str, args: argparse.Namespace, auth: Any) -> str:
        client.request_ironic(
            self, 'DELETE',
            f'{client.PATH}/hosts/{client.quote_name(ident)}', auth=auth)
        return f'host {ident}'
