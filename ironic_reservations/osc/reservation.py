# SPDX-License-Identifier: Apache-2.0
"""The commands that list, show and delete reservations."""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
from typing import Any
import urllib.parse

from ironicclient import exc
from osc_lib import exceptions
from osc_lib.command import command
from oslo_utils import uuidutils

from ironic_reservations.osc import client
from ironic_reservations.osc import commands
from ironic_reservations.osc import identity
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import scope
from ironic_reservations.osc import servers
from ironic_reservations.osc import suggestions
from ironic_reservations.osc import units
from ironic_reservations.osc import usage
from ironic_reservations.shared import constants

COLUMNS = ('instance_uuid', 'node', 'host', 'state', 'resource_class',
           'expires_at')
DETAILS = ('instance_uuid', 'node_uuid', 'node_name', 'host', 'state',
           'provision_state', 'resource_class', 'health', 'maintenance',
           'notices', *options.PURPOSE, 'user_id', 'request_spec', 'group',
           'expires_at', 'created_at', 'updated_at')
#: Fields that identify a reservation to people and to the API.
IDENTIFIERS = ('instance_uuid', 'node_uuid', 'node_name')

#: The argument that identifies a reservation, and its help.
ARGUMENT = ('instance-or-node',
            'UUID of the instance, name or UUID of its node, or name of the '
            'server')


def format_columns(reservation: client.Data) -> output.Columns:
    """Return the columns and values of a reservation for ShowOne."""
    return DETAILS, [_format_cell(reservation, name) for name in DETAILS]


def _format_cell(reservation: client.Data, name: str) -> Any:
    if name == 'notices':
        return output.format_notices(reservation.get(name) or [],
                                     reservation.get('more_notices') or 0)
    return output.format_cell(reservation, name)


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that identifies a reservation to a parser."""
    name, help_text = ARGUMENT
    parser.add_argument('reservation', metavar=f'<{name}>', help=help_text)


def build_path(reservation: client.Data) -> str:
    """Return the path of a reservation below the API's endpoint."""
    return f'{client.PATH}/{reservation["instance_uuid"]}'


class ListReservation(commands.ListCommand):
    """List reservations."""

    path = plural = 'reservations'
    filters = ('host', 'node', 'resource_class', 'state', 'group',
               'expires_before', 'marker', 'project')
    marker = 'instance-uuid'
    columns = COLUMNS
    details = DETAILS
    format_cell = staticmethod(_format_cell)

    def add_filters(self, parser: argparse.ArgumentParser) -> None:
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
        return super().take_action(parsed_args)

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


class IsGroup(exceptions.CommandError):
    """A UUID is that of a group instead of an instance."""


def find_reservation(cmd: command.Command, ident: str, fields: Sequence[str],
                     auth: Any = None, unique: bool = True) -> client.Data:
    """Return the reservation of an instance, a node or a server.

    :param ident: UUID of the instance, UUID or name of the node, or name of
        the server.
    :param fields: fields to return, including IDENTIFIERS.
    :param auth: how to log in to Ironic; None for the user's own token.
    :param unique: whether a node's name is refused if a server has the same.
    :raises: exc.NotFound or CommandError.
    """
    try:
        return _find_visible(cmd, ident, {'fields': ','.join(fields)}, auth,
                             unique)
    except (servers.Ambiguous, IsGroup):
        raise
    except (exc.NotFound, exceptions.CommandError):
        project = auth is None and scope.find_limited_project(cmd)
        if not project:
            raise
    raise exceptions.CommandError(
        f'No reservation of {ident} is visible to project {project}; use '
        f'--all-projects to search all projects.')


def _find_visible(cmd: command.Command, ident: str, query: client.Data,
                  auth: Any, unique: bool) -> client.Data:
    missing: Exception | None = None
    if uuidutils.is_uuid_like(ident):
        try:
            return read_reservation(cmd, ident, query, auth)
        except exc.NotFound as error:
            missing = error
    rows = list(client.read_list(
        cmd, 'reservations', {'node': ident, **query}, auth=auth))
    instances = [] if missing or rows and not unique else [
        server.id for server in servers.find_servers(cmd, ident)]
    instances = sorted({*instances} - {row['instance_uuid'].lower()
                                       for row in rows})
    if len(rows) + len(instances) > 1:
        raise servers.Ambiguous(ident, [
            *(f'instance {row["instance_uuid"]}' for row in rows),
            *(f'server {uuid}' for uuid in instances)])
    if rows:
        return rows[0]
    if instances:
        return read_reservation(cmd, instances[0], query, auth)
    if missing:
        _check_is_no_group(cmd, ident, auth)
    raise missing or exceptions.CommandError(
        suggestions.describe_missing_node(cmd, ident, auth=auth)
        or f'No reservation of node {ident} could be found.')


def _check_is_no_group(cmd: command.Command, uuid: str, auth: Any) -> None:
    """Raise IsGroup if a UUID is that of a group."""
    path = client.build_path(f'{client.PATH}/groups', uuid)
    with contextlib.suppress(exc.ClientException):
        client.request_ironic(cmd, 'GET', path, auth=auth)
        words = f'{uuid} --all-projects' if auth else uuid
        raise IsGroup(
            f'{uuid} belongs to a group, not to an instance. Use "openstack '
            f'baremetal reservation group {{show,set,delete}} {words}", or '
            f'"openstack baremetal reservation list --group {words}".')


def read_reservation(cmd: command.Command, instance: str, query: client.Data,
                     auth: Any = None) -> client.Data:
    """Return the reservation of an instance.

    :raises: exc.NotFound.
    """
    data: client.Data = client.request_ironic(
        cmd, 'GET', f'{client.build_path(client.PATH, instance)}?'
                    + urllib.parse.urlencode(query), auth=auth)
    return data


class ShowReservation(output.ShowOne):
    """Show the reservation of an instance or a node."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_argument(parser)
        scope.add_all_projects(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        auth = scope.find_auth(self, parsed_args)
        return format_columns(find_reservation(
            self, parsed_args.reservation, DETAILS, auth, unique=False))


class DeleteReservation(commands.EachCommand):
    """Release the nodes of reservations on which nothing is deployed."""

    argument = ARGUMENT
    has_own_hints = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--host', metavar='<host>',
                            help='Only if this compute service holds it')

    def change(self, ident: str, args: argparse.Namespace, auth: Any) -> str:
        query = ('?' + urllib.parse.urlencode({'host': args.host})
                 if args.host else '')
        row = find_reservation(self, ident, IDENTIFIERS, auth)
        client.request_ironic(self, 'DELETE', build_path(row) + query,
                              auth=auth)
        return (f'reservation of instance {row["instance_uuid"]}, node '
                f'{output.name_node(row)}')
