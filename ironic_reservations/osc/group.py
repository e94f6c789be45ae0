# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack baremetal reservation group``."""

import argparse
import collections
import contextlib
import json
from typing import Any

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from osc_lib.command import command
from oslo_utils import uuidutils
from rich import console
from rich import tree

from ironic_reservations.osc import client
from ironic_reservations.osc import commands
from ironic_reservations.osc import create
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import progress
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions
from ironic_reservations.shared import text

PATH = f'{client.PATH}/groups'

_CHANGEABLE = tuple(name for name in options.CHANGEABLE if name != 'host')
MEMBER = ('instance_uuid', 'node', 'domain', 'host', 'state', 'expires_at')


def _build_path(uuid: str) -> str:
    return client.build_path(PATH, uuid)


def format_member_domains(group: client.Data) -> output.Text:
    """Return the column of the domains of a group's members."""
    # JSON can be counted, and lists cannot.
    members = collections.Counter(
        json.dumps(member['group']['domain'])
        for member in group['reservations']
    ) if group['by'] or 'levels' in group else {}
    return output.format_domains([
        {'value': json.loads(value), 'nodes': nodes} for value, nodes in
        sorted(members.items(), key=lambda item: (-item[1], item[0]))])


def _format_columns(cmd: command.Command,
                    group: client.Data) -> output.Columns:
    """Return the columns and values of a group for ShowOne."""
    members = group['reservations']
    rows = [{**member, **member['group'],
             'node': output.name_node(member)}
            for member in members]
    picture = _draw_tree(cmd, rows) if 'levels' in group else (
        output.format_table(output.format_headers(MEMBER), (
            [row[name] for name in MEMBER] for row in rows)))
    columns = {
        **{name: group[name] for name in (
            'uuid', 'policy', 'by', *options.PURPOSE, 'created_at')},
        **({'levels': output.format_levels(group['levels'])}
           if 'levels' in group else {}),
        'health': output.format_value(group['health']),
        'domains': format_member_domains(group),
        'reservations': output.Text(members, *picture.split('\n'))}
    return list(columns), list(columns.values())


def _draw_tree(cmd: command.Command, members: list[client.Data]) -> str:
    """Return a tree of domains, their segments, and the members of these."""
    root = tree.Tree('', hide_root=True)
    branches: dict[tuple[str, ...], tree.Tree] = {(): root}
    for member in sorted(members, key=lambda member: (
            [(part is None, part) for part in member['domain']],
            member['segment'])):
        path: tuple[str, ...] = ()
        for label in (*map(text.format_domain, member['domain']),
                      f'segment {member["segment"]}'):
            parent, path = branches[path], (*path, label)
            if path not in branches:
                branches[path] = parent.add(text.escape_controls(label))
        branches[path].add(text.escape_controls(
            f'{member["node"]} {member["state"]}'))
    # The standard output says whether it takes more than ASCII.
    terminal = console.Console(file=cmd.app.stdout, color_system=None,
                               highlight=False, markup=False)
    with terminal.capture() as capture:
        terminal.print(root, soft_wrap=True)
    return capture.get().rstrip()


def _format_listed(group: client.Data, name: str) -> Any:
    """Return the value of a column of a listed group.

    The policy and the domain of a group with segments are lists, with one
    entry for each level.
    """
    if name == 'domains':
        return output.format_domains(group[name])
    if name in ('policy', 'by') and 'levels' in group:
        values = [level[name] for level in group['levels']]
        return output.Text(values, *values)
    return group.get(name)


class CreateGroup(commands.ShowOne):
    """Reserve a node for each member of a new group, or none at all.

    All nodes match the same request. A policy places them close together or
    apart. To boot servers on them, claim the group.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        members = parser.add_mutually_exclusive_group(required=True)
        members.add_argument(
            '--members', type=int, metavar='<number>',
            help='Number of nodes to reserve')
        members.add_argument(
            '--instance-uuid', action='append', dest='instances',
            metavar='<uuid>',
            help='Instance UUID of a member, instead of a generated one '
                 '(repeat for each member)')
        options.add_levels(
            parser, 'Level of domains, instead of a policy (repeat for a '
                    'second one within the first). The last one divides the '
                    'members into segments of this size, each in one domain, '
                    'and has the policy pack; the policy of the first applies '
                    'to segments')
        options.add_hold_options(parser)
        options.add_uuid(parser, 'Group UUID', 'group')

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        uuid = args.uuid or uuidutils.generate_uuid()
        body = {'uuid': uuid,
                'members': args.instances or args.members,
                **options.read_policy(args),
                'request': options.build_request_spec(self, args),
                **options.build_owner(self, args)}
        if args.dry_run:
            return create.show_dry_run(self, PATH, body, auth=auth)
        with client.report_lost_response(
                self, 'group', uuid, scope.add_option('group show', auth)):
            return _format_columns(self, client.complete(
                self, create.reserve_nodes(self, PATH, body, auth=auth),
                auth=auth))


class ListGroup(commands.ListCommand):
    """List groups of reservations."""

    path, plural = 'reservations/groups', 'groups'
    filters = ('marker',)
    columns = ('uuid', 'policy', 'by', 'segments', 'members', 'domains',
               *options.PURPOSE, 'created_at')
    format_cell = staticmethod(_format_listed)


class ShowGroup(commands.ShowOne):
    """Show a group with its members and their domains."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('uuid', metavar='<uuid>',
                            help='UUID of the group')

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        group = suggestions.send_request(self, 'GET', _build_path(args.uuid),
                                         auth)
        return _format_columns(self, client.complete(self, group, auth=auth))


class SetGroup(commands.Command):
    """Change a group, or the leases of its members.

    A lease applies to all members that are reserved and that no compute
    service holds, or to none of them.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('uuid', metavar='<uuid>',
                            help='UUID of the group')
        options.add_changes(parser, *_CHANGEABLE)

    def act(self, args: argparse.Namespace, auth: Any) -> None:
        patch = options.build_patch(args, *_CHANGEABLE, no_expiry='expires_in')
        suggestions.send_request(
            self, 'PATCH', _build_path(args.uuid), auth, body=patch)


class DeleteGroup(commands.EachCommand):
    """Release all members of groups on which nothing is deployed."""

    argument = 'uuid', 'UUID of the group'

    def change_each(self, args: argparse.Namespace, auth: Any) -> None:
        with progress.show_line(self):
            super().change_each(args, auth)

    def change(self, ident: str, args: argparse.Namespace, auth: Any) -> str:
        before = self._count_members(ident, auth)
        progress.update_line(self, 'group %s, %d reservations', ident, before)
        try:
            client.request_ironic(self, 'DELETE', _build_path(ident),
                                  auth=auth)
        except exc.ClientException:
            self._report_released(ident, before, auth)
            raise
        return f'group {ident}'

    def _count_members(self, uuid: str, auth: Any) -> int:
        group = client.request_ironic(self, 'GET', _build_path(uuid),
                                      auth=auth)
        return len(client.complete(self, group, auth=auth)['reservations'])

    def _report_released(self, uuid: str, before: int, auth: Any) -> None:
        """Print how many members a failed deletion has released."""
        with contextlib.suppress(exc.ClientException,
                                 ksa_exc.ClientException):
            after = self._count_members(uuid, auth)
            if after < before:
                print(f'Released {before - after} of {before} reservations '
                      f'of group {uuid}', file=self.app.stdout)
