# SPDX-License-Identifier: Apache-2.0
"""The commands for notices: what is wrong with nodes, or will be done."""

import argparse
from collections.abc import Iterator
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
from ironic_reservations.osc import lookup
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions
from ironic_reservations.osc import units
from ironic_reservations.shared import constants

PATH = f'{client.PATH}/notices'

#: Texts of a new notice, with the help of their options.
_TEXTS = {'category': 'Type of the problem or of the work, such as gpu, at '
                      'most 64 characters',
          'description': 'What is wrong or will be done, at most 255 '
                         'characters',
          'ticket': 'Ticket in another system, such as RMA-4711'}
_ACTION = {'action': 'What was done, at most 255 characters'}

#: Times, with the help of their options.
_TIMES = {'starts_at': 'Start: a time from now, such as 2h, or a time with a '
                       'time zone, such as 2030-12-31T18:00Z (initially: now)',
          'due_at': 'When the work should be done, as --starts-at; it closes '
                    'nothing, but the notice is overdue from then on',
          'latest_start': 'Until when the project that has the node may '
                          'postpone the start, as --starts-at (initially: it '
                          'may not)',
          'ends_at': 'End, as --starts-at (initially: open until it is '
                     'closed)'}

#: Options without a value that remove a time.
_REMOVALS = {'no_due_at': 'due_at', 'no_latest_start': 'latest_start',
             'no_end': 'ends_at'}

#: Keys of a notice that options set and change.
_CHANGEABLE = ('cordon', *_TIMES, *_TEXTS)

COLUMNS = ('uuid', 'node', 'kind', 'cordon', 'state', 'overdue', 'starts_at',
           'due_at', 'ends_at', 'category', 'ticket')
DETAILS = ('uuid', 'node_uuid', 'node_name', *COLUMNS[2:],
           *(name for name in (*_TIMES, 'scheduled_at', *_TEXTS)
             if name not in COLUMNS), *_ACTION,
           'project_id', 'created_by', 'created_at', 'updated_at')


def format_notices(notices: list[client.Data], more: int) -> output.Text:
    """Return the column of notices, a line for each.

    :param more: number of those that the API does not show.
    """
    return output.Text(notices, *(', '.join(filter(None, (
        f'{notice["state"]} {notice["kind"]}',
        'cordon' if notice['cordon'] else '',
        'overdue' if notice['overdue'] else '',
        f'from {notice["starts_at"]}',
        *(f'{words} {notice[name]}' for name, words in (
            ('due_at', 'due'), ('latest_start', 'latest start'),
            ('ends_at', 'to')) if notice[name]),
        *(notice[name] if name in ('category', 'description')
          else f'{name} {notice[name]}' for name in _TEXTS if notice[name]),
        f'notice {notice["uuid"]}'))) for notice in notices),
        *([f'and {more} more'] if more else ()))


def _add_texts(parser: argparse.ArgumentParser,
               texts: dict[str, str]) -> None:
    for name, text in texts.items():
        parser.add_argument(f'--{name}', metavar='<text>', help=text)


def _add_cordon(parser: argparse.ArgumentParser) -> None:
    cordon = parser.add_mutually_exclusive_group()
    cordon.add_argument(
        '--cordon', action='store_true', default=None,
        help='Keep new reservations off the node (initially: for maintenance '
             'and retirement)')
    cordon.add_argument(
        '--no-cordon', action='store_false', dest='cordon', default=None,
        help='Do not keep new reservations off the node')


def _add_times(parser: argparse.ArgumentParser,
               removals: dict[str, str]) -> None:
    """Add the options for times.

    :param removals: options that remove a time, with its key.
    """
    groups = {name: parser.add_mutually_exclusive_group() for name in _TIMES}
    for name, text in _TIMES.items():
        groups[name].add_argument(
            f'--{name.replace("_", "-")}', type=units.parse_time,
            metavar='<time>', help=text)
    for option, name in removals.items():
        groups[name].add_argument(
            f'--{option.replace("_", "-")}', action='store_true',
            help=f'Remove {name}')


def _add_creation(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that create notices of any nodes."""
    nodes = parser.add_mutually_exclusive_group(required=True)
    nodes.add_argument('nodes', nargs='*', default=[], metavar='<node>',
                       help='Node (name or UUID)')
    nodes.add_argument(
        '--by', type=units.parse_domain, metavar='<key>=<value>',
        help='All present nodes of this domain, such as capability:rack=r7, '
             'shard=s1 or conductor_group=g1')
    _add_times(parser, {})
    _add_texts(parser, _TEXTS)
    options.add_uuid(parser, 'UUID of the notices', 'notices')


def _create(cmd: command.Command, args: argparse.Namespace,
            nodes: list[str], auth: Any, **values: Any) -> output.Columns:
    """Create notices, all or none.

    :param nodes: names or UUIDs; empty with ``--by``.
    :param values: keys of the request that are no options.
    :returns: the columns of the notices.
    :raises: CommandError if a repeated request has no effect any more.
    """
    uuid = args.uuid or uuidutils.generate_uuid()
    body = {'uuid': uuid, **({'nodes': nodes} if nodes else {}),
            **options.select_values(args, *(
                name for name in ('kind', 'by', *_CHANGEABLE)
                if name in args)),
            **values}
    with client.report_lost_response(
            cmd, 'notice', uuid, scope.add_option('notice list', auth)
            + ' --uuid', 'exist'):
        with _add_hints(cmd, nodes, auth, body.get('by')):
            response = client.request_ironic(cmd, 'POST', PATH, body=body,
                                             auth=auth)
    if not response['notices']:
        raise exceptions.CommandError(
            f'No notice was created: the category "{constants.BUILD}" is for '
            f'failed builds of compute services, and the node has no '
            f'reservation, or [reservations] avoid_failed or '
            f'avoid_failed_nodes forbids it. Give another category.')
    _check_effect(response['notices'], body.get(
        'cordon', constants.NOTICE_KINDS[body['kind']]))
    return output.format_rows(response['notices'], COLUMNS)


def _check_effect(notices: list[client.Data], cordon: bool) -> None:
    """Refuse notices of an earlier request that were closed or changed.

    :param cordon: whether the request is for cordons.
    """
    others = [f'{output.name_node(notice)} '
              f'({"closed" if notice["state"] == "closed" else "no cordon"})'
              for notice in notices if notice['state'] == 'closed'
              or cordon and not notice['cordon']]
    if others:
        raise exceptions.CommandError(
            f'Nothing was created: notice {notices[0]["uuid"]} exists already '
            f'and has no effect on {", ".join(others)}. Give another --uuid, '
            f'or none.')


def _update(cmd: command.Command, uuid: str, node: str | None,
            patch: list[client.Data], auth: Any) -> list[client.Data]:
    """Change notices, all or none, and return them.

    :param node: only the notice of this node; None for all.
    """
    path = client.build_path(PATH, uuid)
    if node is not None:
        path += '?' + urllib.parse.urlencode({'node': node})
    with _add_hints(cmd, [node] if node else [], auth):
        response: client.Data = client.request_ironic(
            cmd, 'PATCH', path, body=patch, auth=auth)
    return response['notices']  # type: ignore[no-any-return]


@contextlib.contextmanager
def _add_hints(cmd: command.Command, nodes: list[str], auth: Any,
               domain: dict[str, str] | None = None) -> Iterator[None]:
    """Print hints if a request is refused: unknown names, and the scope."""
    try:
        yield
    except (exc.BadRequest, exc.Forbidden, exc.NotFound) as error:
        if isinstance(error, exc.BadRequest) and not str(error).startswith(
                ('nodes', 'by')):
            raise
        suggestions.report_missing(cmd, nodes, auth=auth)
        for by, value in (domain or {}).items():
            suggestions.suggest_key(cmd, by, auth=auth)
            kind, colon, name = by.partition(':')
            suggestions.report_unknown(cmd, {by: value} if not colon else {
                'extra_specs': {f'trait:{value}': 'required'}
                if kind == 'trait' else {f'capabilities:{name}': value}},
                auth=auth)
        project = auth is None and scope.find_limited_project(cmd)
        if project:
            suggestions.print_hint(
                cmd, f'Project {project} can use only its own nodes and '
                     f'reservations; use --all-projects for all.')
        raise


class CreateNotice(commands.Lister):
    """Create a notice for each of some nodes, or none at all.

    A notice records what is wrong with a node, or what will be done to it. A
    notice with a cordon keeps new reservations off its node while it is open;
    existing ones continue. All notices of a request have one UUID.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--kind', required=True,
                            choices=constants.NOTICE_KINDS,
                            help='Kind of the notices')
        _add_cordon(parser)
        _add_creation(parser)

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        return _create(self, args, args.nodes, auth)


class CordonNode(commands.Lister):
    """Keep new reservations off nodes, all of them or none.

    This creates a notice with a cordon for each node. Existing reservations
    continue, but cannot be claimed.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--kind', choices=constants.NOTICE_KINDS,
                            help='Kind of the notices (default: maintenance)')
        _add_creation(parser)

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        return _create(self, args, args.nodes, auth, cordon=True,
                       kind=args.kind or 'maintenance')


class ReportFault(commands.Lister):
    """Report a fault of the node of a reservation.

    This creates a notice without a cordon. A project has at most one planned
    or open report for a node.

    With --cordon, no reservation gets the node until an operator closes the
    notice, so that the machine is given back as broken when its server is
    deleted. The cordon of a present report is set.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        lookup.add_argument(parser)
        parser.add_argument(
            '--cordon', action='store_true', default=None,
            help='Keep new reservations off the node until an operator closes '
                 'the notice')
        _add_texts(parser, _TEXTS)
        options.add_uuid(parser, 'UUID of the notices', 'notices')

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        node = lookup.find_reservation(
            self, args.reservation, lookup.IDENTIFIERS, auth)['node_uuid']
        try:
            return _create(self, args, [node], auth, kind='fault')
        except exc.Conflict:
            # A repeat must not change another report.
            token = client.get_access(self)
            if not args.cordon or args.uuid or auth or not token:
                raise
            for row in client.read_list(
                    self, 'reservations/notices',
                    {'node': node, 'kind': 'fault', 'state': 'open',
                     'project_id': token.project_id}):
                if row['category'] != constants.BUILD:
                    return output.format_rows(_update(
                        self, row['uuid'], node, options.make_patch(
                            options.select_values(args, 'cordon', *_TEXTS)),
                        auth), COLUMNS)
            raise


class ListNotice(commands.ListCommand):
    """List notices, including closed ones, in the order of creation."""

    path, plural = 'reservations/notices', 'notices'
    filters = ('uuid', 'node', 'kind', 'state', 'ticket', 'overdue', 'project')
    columns = COLUMNS
    details = DETAILS

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--uuid', metavar='<uuid>',
                            help='Only the notices of one request')
        parser.add_argument('--node', metavar='<node>',
                            help='Only those of this node (name or UUID)')
        parser.add_argument('--kind', choices=constants.NOTICE_KINDS,
                            help='Only those of this kind')
        parser.add_argument('--state', choices=constants.NOTICE_STATES,
                            help='Only those in this state')
        parser.add_argument('--ticket', metavar='<text>',
                            help='Only those with this ticket')
        parser.add_argument('--overdue', action='store_const', const='true',
                            help='Only those that are open after due_at')
        identity.add_name_options(
            parser, 'project',
            'Only reports of this project (name or ID)')
        super().add_arguments(parser)


class SetNotice(commands.Command):
    """Change the notices of one request, all or none.

    Closed notices cannot be changed, except for their texts.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('uuid', metavar='<uuid>',
                            help='UUID of the notices')
        parser.add_argument('--node', metavar='<node>',
                            help='Only that of this node (name or UUID)')
        _add_cordon(parser)
        _add_times(parser, _REMOVALS)
        for name, text in (_TEXTS | _ACTION).items():
            parser.add_argument(
                f'--{name}', type=units.parse_empty, metavar='<text>',
                help=f'{text}; an empty text removes it')

    def act(self, args: argparse.Namespace, auth: Any) -> None:
        patch = options.build_patch(args, *_CHANGEABLE, *_ACTION,
                                    **_REMOVALS)
        _update(self, args.uuid, args.node, patch, auth)


class ScheduleNotice(commands.Lister):
    """Choose when planned work on machines of your project begins.

    This moves the planned notices of one request that have a latest start, up
    to that time, and shows them. due_at and ends_at move by as much. Operators
    and owners of nodes use "notice set", because they change each time alone.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('uuid', metavar='<uuid>',
                            help='UUID of the notices')
        parser.add_argument(
            '--at', required=True, metavar='<time>', type=lambda value: (
                value if value == 'now' else units.parse_time(value)),
            help='now, a time from now, such as 2h, or a time with a time '
                 'zone, such as 2030-12-31T18:00Z')
        parser.add_argument('--node', metavar='<node>',
                            help='Only that of this node (name or UUID)')

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        return output.format_rows(
            _update(self, args.uuid, args.node,
                    options.make_patch({'starts_at': args.at}), auth), COLUMNS)


def _close(cmd: command.Command, args: argparse.Namespace, uuid: str,
           node: str | None, auth: Any) -> None:
    """Close notices, and set the action of the command."""
    _update(cmd, uuid, node, options.make_patch(
        {'ends_at': 'now', **options.select_values(args, 'action')}), auth)


class CloseNotice(commands.EachCommand):
    """Close notices, which ends their cordons.

    Notices of the same request that are closed already are not changed.
    """

    argument = 'uuid', 'UUID of the notices'
    verb = 'Closed'
    has_own_hints = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--node', metavar='<node>',
                            help='Only those of this node (name or UUID)')
        _add_texts(parser, _ACTION)
        super().add_arguments(parser)

    def change(self, ident: str, args: argparse.Namespace, auth: Any) -> str:
        rows = list(client.read_list(
            self, 'reservations/notices', {'uuid': ident, 'node': args.node},
            auth=auth))
        current = [row for row in rows if row['state'] != 'closed']
        if rows and not current:
            raise exceptions.CommandError('It is closed already.')
        if len(current) == len(rows):
            # Also without rows, for the error and its hints.
            _close(self, args, ident, args.node, auth)
        else:
            for row in current:
                _close(self, args, ident, row['node_uuid'], auth)
        return (f'notice {ident}, node{"s" * (len(current) > 1)} '
                + ', '.join(map(output.name_node, current)))


class UncordonNode(commands.EachCommand):
    """End the cordons of nodes by closing all open notices with one."""

    argument = 'node', 'Node (name or UUID)'
    verb = 'Uncordoned'
    has_own_hints = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_texts(parser, _ACTION)
        super().add_arguments(parser)

    def change(self, ident: str, args: argparse.Namespace, auth: Any) -> str:
        rows = self._find_cordons(ident, 'open', auth)
        if not rows:
            raise exceptions.CommandError(self._explain(ident, auth))
        for row in rows:
            _close(self, args, row['uuid'], row['node_uuid'], auth)
        others = self._find_cordons(ident, 'planned', auth)
        return (f'node {ident}, closed notice{"s" * (len(rows) > 1)} '
                + ', '.join(row['uuid'] for row in rows)
                + ('; planned: ' if others else '')
                + ', '.join(f'{row["uuid"]} from {row["starts_at"]}'
                            for row in others))

    def _find_cordons(self, node: str, state: str,
                      auth: Any) -> list[client.Data]:
        return [row for row in client.read_list(
            self, 'reservations/notices', {'node': node, 'state': state},
            auth=auth) if row['cordon']]

    def _explain(self, node: str, auth: Any) -> str:
        """Return why a node without an open cordon cannot be uncordoned."""
        for row in self._find_cordons(node, 'planned', auth):
            return ('Its cordon has not started; use "openstack baremetal '
                    f'reservation notice close {row["uuid"]} --node {node}".')
        project = auth is None and scope.find_limited_project(self)
        if project:
            return (f'No open cordon is visible to project {project}; use '
                    f'--all-projects to see all.')
        return suggestions.describe_missing_node(
            self, node, auth=auth) or 'It has no open cordon.'
