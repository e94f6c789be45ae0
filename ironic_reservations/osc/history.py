# SPDX-License-Identifier: Apache-2.0
"""The command that lists reservations that have ended."""

import argparse
import itertools

from ironic_reservations.osc import client
from ironic_reservations.osc import identity
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions
from ironic_reservations.osc import units

COLUMNS = ('node', 'instance_uuid', 'project_id', 'description', 'created_at',
           'ended_at', 'ended_by')
DETAILS = ('node_uuid', 'node_name', 'node_owner', 'instance_uuid', 'host',
           'resource_class', 'health', 'maintenance', *options.PURPOSE,
           'user_id', 'group', 'expires_at', 'created_at', 'updated_at',
           'ended_at', 'ended_by')


class ListHistory(output.Lister):
    """List reservations that have ended, the last one first.

    With a node and without --ended-after, its present reservation comes
    first, which has no end. The exit status is 1 if there is no such node.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('node', nargs='?', metavar='<node>',
                            help='Only those of this node (name or UUID)')
        parser.add_argument('--instance-uuid', metavar='<uuid>',
                            help='Only those of this instance')
        identity.add_name_options(
            parser, 'project', 'Only those of this project (name or ID)')
        parser.add_argument('--ended-after', type=units.parse_moment,
                            metavar='<time>',
                            help='Only those that ended within this time, '
                                 'such as 7d, or after a time such as '
                                 '2030-12-31T18:00Z')
        client.add_limit(parser)
        scope.add_all_projects(parser)
        parser.add_argument('--long', action='store_true',
                            help='Show all columns')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        auth = scope.choose_auth(self, parsed_args, 'reservations')
        query = {'node': parsed_args.node,
                 **identity.find_ids(self, parsed_args, 'project')}
        instance = parsed_args.instance_uuid
        present = [] if (
            parsed_args.node is None or parsed_args.ended_after) else [
            row for row in client.read_list(self, 'reservations', query,
                                            auth=auth)
            if instance is None
            or instance.lower() == row['instance_uuid'].lower()]
        history = client.read_list(
            self, 'reservations/history', {
                **query, 'instance_uuid': instance,
                'ended_after': parsed_args.ended_after},
            parsed_args.limit, auth=auth)
        rows = list(suggestions.report_empty(
            self, itertools.islice(itertools.chain(present, history),
                                   parsed_args.limit or None),
            'ended reservations', {
                'node': parsed_args.node, 'instance': instance,
                'project': parsed_args.project,
                'ended_after': units.format_moment(parsed_args.ended_after)},
            auth=auth))
        if (parsed_args.node and not rows
                and suggestions.describe_missing_node(
                    self, parsed_args.node, auth=auth)):
            self.status = 1
        names = DETAILS if parsed_args.long else COLUMNS
        return output.format_headers(names), (
            [row['node_name'] or row['node_uuid'] if name == 'node'
             else output.format_value(row.get(name)) for name in names]
            for row in rows)
