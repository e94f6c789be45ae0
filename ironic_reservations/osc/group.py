# SPDX-License-Identifier: Apache-2.0
"""The commands for groups: several reservations at once, near or apart."""

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


def domains(group):
    """Return the Text of the domains that a group's members are in."""
    members = collections.Counter(
        member['group']['domain'] for member in group['reservations']
    ) if group['by'] else {}
    return output.domains([
        {'value': value, 'nodes': nodes} for value, nodes in
        sorted(members.items(), key=lambda item: (-item[1], str(item[0])))])


def _display(group):
    """Return the columns and values of a group for ShowOne."""
    members = group['reservations']
    rows = [{**member, **member['group'],
             'node': member['node_name'] or member['node_uuid']}
            for member in members]
    return zip(*{
        **{name: group[name] for name in (
            'uuid', 'policy', 'by', 'project_id', 'created_at')},
        'domains': domains(group),
        'reservations': output.Text(members, output.table(
            output.headers(MEMBER),
            ([row[name] for name in MEMBER] for row in rows))),
    }.items(), strict=True)


class CreateGroup(output.ShowOne):
    """Reserve a node for each member of a new group, or none at all.

    All nodes match the same request. A policy says whether they are near or
    apart. Servers are booted into them by claiming the group.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        members = parser.add_mutually_exclusive_group(required=True)
        members.add_argument(
            '--members', type=int, metavar='<number>',
            help='How many nodes to reserve')
        members.add_argument(
            '--instance-uuid', action='append', dest='instances',
            metavar='<uuid>',
            help='UUID of the instance of a member, instead of a new one '
                 '(repeat for each member)')
        options.add_policies(parser)
        options.add_options(parser)
        parser.add_argument(
            '--uuid', metavar='<uuid>',
            help='UUID of the group (default: a new one); asked again for '
                 'the same, the answer is the same')
        return parser

    def take_action(self, parsed_args):
        uuid = parsed_args.uuid or uuidutils.generate_uuid()
        body = {'uuid': uuid,
                'members': parsed_args.instances or parsed_args.members,
                **options.policy(parsed_args),
                'request': options.request_spec(self, parsed_args),
                **options.envelope(self, parsed_args)}
        if parsed_args.dry_run:
            return create.dry_run(self, PATH, body)
        with client.remembered(self, 'group', uuid, 'group show'):
            return _display(client.whole(self, create.hold(self, PATH, body)))


class ListGroup(output.Lister):
    """List groups of reservations."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        client.add_paging(parser, 'uuid')
        scope.add_option(parser)
        return parser

    def take_action(self, parsed_args):
        auth = scope.auth(self, parsed_args, 'groups')
        filters = {'marker': parsed_args.marker}
        groups = suggestions.report_empty(self, client.listed(
            self, 'reservations/groups', filters, parsed_args.limit,
            auth=auth), 'groups', filters, auth=auth)
        return output.headers(COLUMNS), (
            [output.domains(group[name]) if name == 'domains' else group[name]
             for name in COLUMNS]
            for group in groups)


class ShowGroup(output.ShowOne):
    """Show a group with its members and their domains."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('uuid', metavar='<uuid>',
                            help='UUID of the group')
        return parser

    def take_action(self, parsed_args):
        return _display(client.whole(self, client.request(
            self, 'GET', client.path(PATH, parsed_args.uuid))))


class DeleteGroup(output.Command):
    """Release all members of groups on which nothing is deployed."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('uuids', nargs='+', metavar='<uuid>',
                            help='UUID of the group')
        return parser

    def take_action(self, parsed_args):
        def delete(uuid):
            before = self._members(uuid)
            progress.say(self, 'group %s, %d reservations', uuid, before)
            try:
                client.request(self, 'DELETE', client.path(PATH, uuid))
            except exc.ClientException:
                self._tell_what_went(uuid, before)
                raise
            return f'group {uuid}'

        with progress.shown(self):
            output.delete_each(self, parsed_args.uuids, delete)

    def _members(self, uuid):
        return len(client.whole(self, client.request(
            self, 'GET', client.path(PATH, uuid)))['reservations'])

    def _tell_what_went(self, uuid, before):
        """Say how many members a deletion that failed has released."""
        with contextlib.suppress(exc.ClientException,
                                 ksa_exc.ClientException):
            left = self._members(uuid)
            if left < before:
                print(f'Released {before - left} of {before} reservations '
                      f'of group {uuid}', file=self.app.stdout)
