# SPDX-License-Identifier: Apache-2.0
"""The commands that list, show and delete reservations."""

import urllib.parse

from ironicclient import exc
from osc_lib import exceptions
from oslo_utils import uuidutils

from ironic_reservations import constants
from ironic_reservations.osc import client
from ironic_reservations.osc import identity
from ironic_reservations.osc import output
from ironic_reservations.osc import scope
from ironic_reservations.osc import servers
from ironic_reservations.osc import suggestions
from ironic_reservations.osc import usage

COLUMNS = ('instance_uuid', 'node', 'host', 'state', 'resource_class',
           'expires_at')
DETAILS = ('instance_uuid', 'node_uuid', 'node_name', 'host', 'state',
           'provision_state', 'resource_class', 'project_id', 'user_id',
           'request_spec', 'group', 'expires_at', 'created_at', 'updated_at')
#: The fields by which a reservation is named to people and to the API.
WHICH = ('instance_uuid', 'node_uuid', 'node_name')


def display(reservation):
    """Return the columns and values of a reservation for ShowOne."""
    return DETAILS, [output.value(reservation.get(name)) for name in DETAILS]


def add_which(parser, **kwargs):
    """Add the argument that names a reservation to a parser."""
    parser.add_argument(
        'reservation', metavar='<instance-or-node>',
        help='UUID of the instance, name or UUID of its node, or name of the '
             'server', **kwargs)


def path(reservation):
    """Return the path of a reservation below the API's endpoint."""
    return f'{client.PATH}/{reservation["instance_uuid"]}'


class ListReservation(output.Lister):
    """List reservations."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Of this compute service')
        parser.add_argument('--node', metavar='<node>',
                            help='Of this node (name or UUID)')
        parser.add_argument('--resource-class', metavar='<class>',
                            help='Of nodes of this resource class')
        parser.add_argument('--state', choices=constants.STATES,
                            help='In this state')
        identity.add_options(parser, 'project',
                             'Of this project (name or ID)')
        scope.add_option(parser)
        client.add_paging(parser, 'instance-uuid')
        parser.add_argument('--sort', metavar='<key>[:<direction>][,...]',
                            help='Keys to sort by, separated by commas, each '
                                 'in the direction asc (the default) or '
                                 'desc; keys: '
                                 + ', '.join(constants.SORT_KEYS))
        columns = parser.add_mutually_exclusive_group()
        columns.add_argument('--long', action='store_true',
                             help='Show all columns')
        columns.add_argument(
            '--usage', action='store_true',
            help='Show how many each project has, of all and of each resource '
                 'class, and how many it may have by the limits in Keystone')
        columns.add_argument('--fields', nargs='+', choices=DETAILS,
                             metavar='<field>',
                             help='Columns to show: ' + ', '.join(DETAILS))
        return parser

    def take_action(self, parsed_args):
        names = DETAILS if parsed_args.long else parsed_args.fields or COLUMNS
        auth = scope.auth(self, parsed_args, 'reservations')
        if parsed_args.usage:
            names = 'project_id', 'resource_class'
        filters = {name: getattr(parsed_args, name) for name in (
            'host', 'node', 'resource_class', 'state', 'marker')}
        rows = client.listed(self, 'reservations', {
            **filters, **identity.find_ids(self, parsed_args, 'project'),
            'fields': ','.join(['instance_uuid', *(
                'node_uuid,node_name' if name == 'node' else name
                for name in names)]),
            **_order(parsed_args.sort)}, parsed_args.limit, auth=auth)
        if parsed_args.usage:
            return (output.headers(usage.COLUMNS),
                    usage.rows(self, rows, auth))
        rows = suggestions.report_empty(
            self, rows, 'reservations',
            {**filters, 'project': parsed_args.project}, auth=auth)
        return output.headers(names), (
            [self._value(row, name) for name in names] for row in rows)

    @staticmethod
    def _value(reservation, name):
        if name == 'node':
            return reservation['node_name'] or reservation['node_uuid']
        return output.value(reservation.get(name))


def _order(text):
    """Return the query that sorts as ``<key>[:<direction>],...`` says."""
    if text is None:
        return {}
    keys = [each.partition(':') for each in text.split(',')]
    return {'sort_key': ','.join(key for key, _, _ in keys),
            'sort_dir': ','.join(direction if colon else 'asc'
                                 for _, colon, direction in keys)}


def find(cmd, ident, fields, auth=None, unique=True):
    """Return the reservation of an instance, a node or a server.

    :param ident: UUID of the instance, UUID or name of the node, or name of
        the server.
    :param fields: list of its fields to return, with those of WHICH.
    :param auth: how to log in to Ironic; None for the user's own.
    :param unique: whether a node's name is refused if a server has it, too.
    :raises: exc.NotFound or CommandError.
    """
    try:
        return _find(cmd, ident, {'fields': ','.join(fields)}, auth, unique)
    except servers.Ambiguous:
        raise
    except (exc.NotFound, exceptions.CommandError):
        project = auth is None and scope.of_a_part(cmd)
        if not project:
            raise
    raise exceptions.CommandError(
        f'Project {project} sees no reservation of {ident}; --all-projects '
        f'looks at those of all projects.')


def _find(cmd, ident, query, auth, unique):
    missing = None
    if uuidutils.is_uuid_like(ident):
        try:
            return get(cmd, ident, query, auth)
        except exc.NotFound as error:
            missing = error
    rows = list(client.listed(cmd, 'reservations', {'node': ident, **query},
                              auth=auth))
    instances = [] if missing or rows and not unique else [
        server.id for server in servers.find_by_name(cmd, ident)]
    instances = sorted({*instances} - {row['instance_uuid'] for row in rows})
    if len(rows) + len(instances) > 1:
        raise servers.ambiguous_error(ident, [
            *(f'instance {row["instance_uuid"]}' for row in rows),
            *(f'server {uuid}' for uuid in instances)])
    if rows:
        return rows[0]
    if instances:
        return get(cmd, instances[0], query, auth)
    raise missing or exceptions.CommandError(
        suggestions.describe_missing_node(cmd, ident, auth=auth)
        or f'No reservation of node {ident} could be found.')


def get(cmd, instance, query, auth=None):
    """Return the reservation of an instance.

    :raises: exc.NotFound.
    """
    return client.request(
        cmd, 'GET', f'{client.path(client.PATH, instance)}?'
                    + urllib.parse.urlencode(query), auth=auth)


class ShowReservation(output.ShowOne):
    """Show the reservation of an instance or a node."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        add_which(parser)
        scope.add_option(parser)
        return parser

    def take_action(self, parsed_args):
        auth = scope.of_ironic(self) if parsed_args.all_projects else None
        return display(find(self, parsed_args.reservation, DETAILS, auth,
                            unique=False))


class DeleteReservation(output.Command):
    """Release the nodes of reservations on which nothing is deployed."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        add_which(parser, nargs='+')
        parser.add_argument('--host', metavar='<host>',
                            help='Only if this compute service holds it')
        scope.add_option(parser)
        return parser

    def take_action(self, parsed_args):
        auth = scope.of_ironic(self) if parsed_args.all_projects else None
        query = ('?' + urllib.parse.urlencode({'host': parsed_args.host})
                 if parsed_args.host else '')

        def delete(ident):
            row = find(self, ident, WHICH, auth)
            client.request(self, 'DELETE', path(row) + query, auth=auth)
            return (f'reservation of instance {row["instance_uuid"]}, node '
                    f'{row["node_name"] or row["node_uuid"]}')

        output.delete_each(self, parsed_args.reservation, delete)
