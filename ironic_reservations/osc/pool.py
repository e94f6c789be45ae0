# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack baremetal reservation pool``."""

import argparse
from collections.abc import Iterator
import contextlib
from typing import Any

from ironicclient import exc
from osc_lib.command import command
from oslo_utils import uuidutils

from ironic_reservations.osc import client
from ironic_reservations.osc import commands
from ironic_reservations.osc import create
from ironic_reservations.osc import identity
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions
from ironic_reservations.osc import units
from ironic_reservations.shared import text

PATH = f'{client.PATH}/pools'

COUNTS = ('total', 'free', 'reserved', 'taken', 'out_of_service', 'healthy')
COLUMNS = ('uuid', 'project_id', 'description', *COUNTS, 'expires_at')
NODE = ('node', 'domain', 'segment', 'joined_at', 'reason', 'state', 'health',
        'instance_uuid', 'notices')


def _reserve_nodes(cmd: command.Command, path: str, body: client.Data,
                   auth: Any) -> output.Columns:
    """POST a request that nodes join a pool; return the pool's columns."""
    return _format_columns(
        cmd, create.reserve_nodes(cmd, path, body, auth=auth), auth)


def _add_uuid(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('uuid', metavar='<uuid>', help='UUID of the pool')


def _add_expiry(parser: argparse.ArgumentParser
                ) -> argparse._MutuallyExclusiveGroup:
    """Add the options for the expiry, which exclude each other."""
    expiry = parser.add_mutually_exclusive_group()
    for name, example in (('at', 'a time with a time zone, such as '
                                 '2030-12-31T18:00Z'),
                          ('in', 'a time from now, such as 30d')):
        expiry.add_argument(
            f'--expires-{name}', dest='expires_at', type=units.parse_time,
            metavar='<time>', help=f'Expiry of the pool: {example}')
    return expiry


def _add_description(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--description', type=units.parse_empty,
                        metavar='<text>',
                        help='Description, at most 255 characters')


def _format_columns(cmd: command.Command, pool: client.Data,
                    auth: Any) -> output.Columns:
    """Return the columns and values of a pool for ShowOne."""
    pool = client.complete(cmd, pool, auth=auth)
    rows = [{**node, 'node': node['name'] or node['uuid'],
             'domain': (text.format_domain(node['domain']) if pool['levels']
                        else node['domain']),
             'notices': len(node['notices']) + node.get('more_notices', 0)}
            for node in pool['nodes']]
    picture = output.format_table(output.format_headers(NODE), (
        [row[name] for name in NODE] for row in rows))
    columns = {
        **{name: output.format_value(pool[name]) for name in (
            'uuid', 'project_id', 'policy', 'by', 'description',
            'expires_at', 'created_at', 'updated_at', 'request')},
        **({'levels': output.format_levels(pool['levels'])}
           if pool['levels'] else {}),
        **pool['summary'],
        'nodes': output.Text(pool['nodes'], *picture.split('\n'))}
    return list(columns), list(columns.values())


class CreatePool(commands.ShowOne):
    """Keep nodes for one project, as many as requested or none at all.

    All nodes match the same request. A policy places them close together or
    apart, as for a group of reservations.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--members', type=int, metavar='<number>',
                            required=True, help='Number of nodes')
        options.add_levels(
            parser, 'Level of domains, instead of a policy (repeat for a '
                    'second one): see "group create"')
        options.add_request_options(parser)
        identity.add_name_options(
            parser, 'project', 'Project (name or ID) that may reserve the '
                               'nodes', required=True)
        _add_expiry(parser)
        _add_description(parser)
        options.add_uuid(parser, 'Pool UUID', 'pool')
        parser.add_argument(
            '--dry-run', action='store_true',
            help='Keep nothing; show the matching nodes, and why others do '
                 'not match')

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        uuid = args.uuid or uuidutils.generate_uuid()
        body = {'uuid': uuid, 'members': args.members,
                **options.read_policy(args),
                'request': options.build_request_spec(self, args),
                **identity.find_ids(self, args, 'project'),
                **options.select_new_values(args, 'expires_at',
                                            'description')}
        if args.dry_run:
            return create.show_dry_run(self, PATH, body, auth=auth)
        with client.report_lost_response(
                self, 'pool', uuid, scope.add_option('pool show', auth),
                'exist'):
            return _reserve_nodes(self, PATH, body, auth)


def _format_cell(pool: client.Data, name: str) -> Any:
    return {**pool, **pool['summary']}[name]


class ListPool(commands.ListCommand):
    """List pools, the nodes that only one project may reserve."""

    path, plural = 'reservations/pools', 'pools'
    filters = ('node', 'marker', 'project')
    columns = COLUMNS
    format_cell = staticmethod(_format_cell)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--node', metavar='<node>',
                            help='Only the pool of this node (name or UUID)')
        identity.add_name_options(
            parser, 'project', 'Only pools of this project (name or ID)')
        super().add_arguments(parser)


class ShowPool(commands.ShowOne):
    """Show a pool with its nodes."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_uuid(parser)

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        return _format_columns(self, suggestions.send_request(
            self, 'GET', client.build_path(PATH, args.uuid), auth), auth)


class SetPool(commands.Command):
    """Change the expiry or the description of a pool."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_uuid(parser)
        _add_expiry(parser).add_argument(
            '--no-expiry', action='store_true',
            help='Let the pool not expire')
        _add_description(parser)

    def act(self, args: argparse.Namespace, auth: Any) -> None:
        patch = options.build_patch(args, 'expires_at', 'description',
                                    no_expiry='expires_at')
        suggestions.send_request(
            self, 'PATCH', client.build_path(PATH, args.uuid), auth,
            body=patch)


class DeletePool(commands.EachCommand):
    """Delete pools. Reservations of their nodes stay."""

    argument = 'uuid', 'UUID of the pool'

    def change(self, ident: str, args: argparse.Namespace, auth: Any) -> str:
        client.request_ironic(
            self, 'DELETE', client.build_path(PATH, ident), auth=auth)
        return f'pool {ident}'


def _build_nodes_path(uuid: str) -> str:
    """Return the path of the nodes of a pool."""
    return f'{client.build_path(PATH, uuid)}/nodes'


@contextlib.contextmanager
def _suggest_node(cmd: command.Command, node: str,
                  auth: Any) -> Iterator[None]:
    """Print the closest name after an error about an unknown node."""
    try:
        yield
    except (exc.BadRequest, exc.NotFound) as error:
        if not str(error).startswith('No pool'):
            suggestions.report_missing(cmd, [node], auth=auth)
        raise


class _ChangeNodes(commands.EachCommand):

    argument = 'node', 'Node (name or UUID)'

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_uuid(parser)
        super().add_arguments(parser)

    def change(self, ident: str, args: argparse.Namespace, auth: Any) -> str:
        with _suggest_node(self, ident, auth):
            self.send(ident, _build_nodes_path(args.uuid), auth)
        return f'node {ident}'

    def send(self, node: str, path: str, auth: Any) -> None:
        """Send the request for a node to the path of the pool's nodes."""
        raise NotImplementedError


class AddPoolNode(_ChangeNodes):
    """Add nodes to a pool, one after the other.

    A node must be free, or reserved by the project of the pool. It need not
    match the request of the pool.
    """

    verb = 'Added'

    def send(self, node: str, path: str, auth: Any) -> None:
        client.request_ironic(self, 'POST', path, body={'node': node},
                              auth=auth)


class RemovePoolNode(_ChangeNodes):
    """Remove nodes from a pool, one after the other.

    A pool without nodes is deleted. Reservations of the nodes stay.
    """

    verb = 'Removed'

    def send(self, node: str, path: str, auth: Any) -> None:
        client.request_ironic(
            self, 'DELETE', f'{path}/{client.quote_name(node)}', auth=auth)


class ReplacePoolNode(commands.ShowOne):
    """Replace a node of a pool by another one in the same domain.

    A reservation of the old node stays.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_uuid(parser)
        parser.add_argument('node', metavar='<node>',
                            help='Node to remove (name or UUID)')

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        with _suggest_node(self, args.node, auth):
            return _reserve_nodes(
                self, _build_nodes_path(args.uuid), {'replaces': args.node},
                auth)
