# SPDX-License-Identifier: Apache-2.0
"""The commands that list, show and delete reservations."""

import argparse
from collections.abc import Iterable
from typing import Any
import urllib.parse

from osc_lib import exceptions

from ironic_reservations.osc import client
from ironic_reservations.osc import commands
from ironic_reservations.osc import identity
from ironic_reservations.osc import lookup
from ironic_reservations.osc import notice
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import units
from ironic_reservations.osc import usage
from ironic_reservations.shared import constants

COLUMNS = ('instance_uuid', 'node', 'host', 'state', 'resource_class',
           'expires_at')
DETAILS = ('instance_uuid', 'node_uuid', 'node_name', 'host', 'state',
           'provision_state', 'resource_class', 'health', 'maintenance',
           'notices', *options.PURPOSE, 'user_id', 'request_spec', 'group',
           'expires_at', 'created_at', 'updated_at')


def format_columns(reservation: client.Data) -> output.Columns:
    """Return the columns and values of a reservation for ShowOne."""
    return DETAILS, [_format_cell(reservation, name) for name in DETAILS]


def _format_cell(reservation: client.Data, name: str) -> Any:
    if name == 'notices':
        return notice.format_notices(reservation.get(name) or [],
                                     reservation.get('more_notices') or 0)
    return output.format_cell(reservation, name)


class ListReservation(commands.ListCommand):
    """List reservations."""

    path = plural = 'reservations'
    filters = ('host', 'node', 'resource_class', 'state', 'group',
               'expires_before', 'marker', 'project')
    marker = 'instance-uuid'
    columns = COLUMNS
    details = DETAILS
    format_cell = staticmethod(_format_cell)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--host', metavar='<host>',
                            help='Only those of this compute service')
        parser.add_argument('--node', metavar='<node>',
                            help='Only that of this node (name or UUID)')
        parser.add_argument('--resource-class', metavar='<class>',
                            help='Only those of nodes with this resource '
                                 'class')
        parser.add_argument('--state', choices=constants.STATES,
                            help='Only those in this state')
        parser.add_argument('--group', metavar='<uuid>',
                            help='Only the members of this group')
        parser.add_argument('--expires-before', type=units.parse_moment,
                            metavar='<time>',
                            help='Only those whose lease expires within this '
                                 'time, such as 600 or 1d, or before a time '
                                 'such as 2030-12-31T18:00Z')
        identity.add_name_options(
            parser, 'project', 'Only those of this project (name or ID)')
        super().add_arguments(parser)

    def add_columns(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument('--sort', metavar='<key>[:<direction>][,...]',
                            help='Keys to sort by, separated by commas, each '
                                 'in the direction asc (the default) or '
                                 'desc; keys: '
                                 + ', '.join(constants.SORT_KEYS))
        columns = parser.add_mutually_exclusive_group()
        super().add_columns(columns)
        columns.add_argument(
            '--usage', action='store_true',
            help='Show the number of reservations of each project, in total '
                 'and by resource class, with the limits in Keystone')
        columns.add_argument('--fields', nargs='+', choices=DETAILS,
                             metavar='<field>',
                             help='Columns to show: ' + ', '.join(DETAILS))

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        if parsed_args.usage and (parsed_args.limit or parsed_args.marker):
            raise exceptions.CommandError(
                '--usage counts all reservations: omit --limit and --marker')
        columns: output.Columns = super().take_action(parsed_args)
        return columns

    def choose_columns(self, args: argparse.Namespace) -> tuple[str, ...]:
        return usage.COLUMNS if args.usage else (
            args.fields or super().choose_columns(args))

    def read_rows(self, query: client.Data, args: argparse.Namespace,
                  auth: Any) -> Iterable[client.Data]:
        fields = ('project_id', 'resource_class') if args.usage else [
            'node_uuid,node_name' if name == 'node' else name
            for name in self.choose_columns(args)]
        rows = super().read_rows({
            **query, 'fields': ','.join(['instance_uuid', *fields]),
            **_parse_sort(args.sort)}, args, auth)
        return usage.list_usage(self, rows, auth) if args.usage else rows

    def describe_filters(self, filters: client.Data) -> client.Data:
        return {**filters, 'expires_before': units.format_moment(
            filters['expires_before'])}


def _parse_sort(text: str | None) -> dict[str, str]:
    """Return the query for ``<key>[:<direction>],...``."""
    if text is None:
        return {}
    keys = [item.partition(':') for item in text.split(',')]
    return {'sort_key': ','.join(key for key, _, _ in keys),
            'sort_dir': ','.join(direction if colon else 'asc'
                                 for _, colon, direction in keys)}


class ShowReservation(commands.ShowOne):
    """Show the reservation of an instance or a node."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        lookup.add_argument(parser)

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        return format_columns(lookup.find_reservation(
            self, args.reservation, DETAILS, auth, unique=False))


class DeleteReservation(commands.EachCommand):
    """Release the nodes of reservations on which nothing is deployed."""

    argument = lookup.ARGUMENT
    has_own_hints = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--host', metavar='<host>',
                            help='Only if this compute service holds it')
        super().add_arguments(parser)

    def change(self, ident: str, args: argparse.Namespace, auth: Any) -> str:
        query = ('?' + urllib.parse.urlencode({'host': args.host})
                 if args.host else '')
        row = lookup.find_reservation(self, ident, lookup.IDENTIFIERS, auth)
        client.request_ironic(self, 'DELETE', lookup.build_path(row) + query,
                              auth=auth)
        return (f'reservation of instance {row["instance_uuid"]}, node '
                f'{output.name_node(row)}')
