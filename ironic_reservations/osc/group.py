# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack baremetal reservation group``."""

import argparse
import collections
import contextlib

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from oslo_utils import uuidutils

from ironic_reservations.osc import client
from ironic_reservations.osc import create
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import progress
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions

PATH = f'{client.PATH}/groups'

COLUMNS = ('uuid', 'policy', 'by', 'members', 'domains', 'project_id',
           'created_at')
MEMBER = ('instance_uuid', 'node', 'domain', 'host', 'state', 'expires_at')


def format_member_domains(group: client.Data) -> output.Text:
    """Return the column of the domains of a group's members."""
    members = collections.Counter(
        member['group']['domain'] for member in group['reservations']
    ) if group['by'] else {}
    return output.format_domains([
        {'value': value, 'nodes': nodes} for value, nodes in
        sorted(members.items(), key=lambda item: (-item[1], str(item[0])))])


def _format_columns(group: client.Data) -> output.Columns:
    """Return the columns and values of a group for ShowOne."""
    members = group['reservations']
    rows = [{**member, **member['group'],
             'node': member['node_name'] or member['node_uuid']}
            for member in members]
    columns = {
        **{name: group[name] for name in (
            'uuid', 'policy', 'by', 'project_id', 'created_at')},
        'domains': format_member_domains(group),
        'reservations': output.Text(members, output.format_table(
            output.format_headers(MEMBER),
            ([row[name] for name in MEMBER] for row in rows)))}
    return list(columns), list(columns.values())


class CreateGroup(output.ShowOne):
    """Reserve a node for each member of a new group, or none at all.

    All nodes match the same request. A policy places them close together or
    apart. To boot servers on them, claim the group.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        members = parser.add_mutually_exclusive_group(required=True)
        members.add_argument(
            '--members', type=int, metavar='<number>',
            help='Number of nodes to reserve')
        members.add_argument(
            '--instance-uuid', action='append', dest='instances',
            metavar='<uuid>',
            help='Instance UUID of a member, instead of a generated one '
                 '(repeat for each member)')
        options.add_policies(parser)
        options.add_hold_options(parser)
        parser.add_argument(
            '--uuid', metavar='<uuid>',
            help='Group UUID (default: generated). Repeating a request with '
                 'the same UUID returns the same group')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        uuid = parsed_args.uuid or uuidutils.generate_uuid()
        body = {'uuid': uuid,
                'members': parsed_args.instances or parsed_args.members,
                **options.read_policy(parsed_args),
                'request': options.build_request_spec(self, parsed_args),
                **options.build_owner(self, parsed_args)}
        if parsed_args.dry_run:
            return create.show_dry_run(self, PATH, body)
        with client.report_lost_response(self, 'group', uuid, 'group show'):
            return _format_columns(client.complete_group(
                self, create.reserve_nodes(self, PATH, body)))


class ListGroup(output.Lister):
    """List groups of reservations."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        client.add_paging(parser, 'uuid')
        scope.add_all_projects(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        auth = scope.choose_auth(self, parsed_args, 'groups')
        filters = {'marker': parsed_args.marker}
        groups = suggestions.report_empty(self, client.read_list(
            self, 'reservations/groups', filters, parsed_args.limit,
            auth=auth), 'groups', filters, auth=auth)
        return output.format_headers(COLUMNS), (
            [output.format_domains(group[name]) if name == 'domains'
             else group[name] for name in COLUMNS]
            for group in groups)


class ShowGroup(output.ShowOne):
    """Show a group with its members and their domains."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('uuid', metavar='<uuid>',
                            help='UUID of the group')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        return _format_columns(client.complete_group(
            self, client.request_ironic(
                self, 'GET', client.build_path(PATH, parsed_args.uuid))))


class DeleteGroup(output.Command):
    """Release all members of groups on which nothing is deployed."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('uuids', nargs='+', metavar='<uuid>',
                            help='UUID of the group')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        def delete(uuid: str) -> str:
            before = self._count_members(uuid)
            progress.update_line(self, 'group %s, %d reservations', uuid,
                                 before)
            try:
                client.request_ironic(self, 'DELETE',
                                      client.build_path(PATH, uuid))
            except exc.ClientException:
                self._report_released(uuid, before)
                raise
            return f'group {uuid}'

        with progress.show_line(self):
            output.delete_each(self, parsed_args.uuids, delete)

    def _count_members(self, uuid: str) -> int:
        return len(client.complete_group(self, client.request_ironic(
            self, 'GET', client.build_path(PATH, uuid)))['reservations'])

    def _report_released(self, uuid: str, before: int) -> None:
        """Print how many members a failed deletion has released."""
        with contextlib.suppress(exc.ClientException,
                                 ksa_exc.ClientException):
            after = self._count_members(uuid)
            if after < before:
                print(f'Released {before - after} of {before} reservations '
                      f'of group {uuid}', file=self.app.stdout)
