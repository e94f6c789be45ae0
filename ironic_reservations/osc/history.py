# SPDX-License-Identifier: Apache-2.0
"""The command that lists reservations that have ended."""

import argparse
import itertools
from typing import Any

from ironic_reservations.osc import client
from ironic_reservations.osc import commands
from ironic_reservations.osc import identity
from ironic_reservations.osc import options
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions
from ironic_reservations.osc import units

COLUMNS = ('node', 'instance_uuid', 'project_id', 'description', 'created_at',
           'ended_at', 'ended_by')
DETAILS = ('node_uuid', 'node_name', 'node_owner', 'instance_uuid', 'host',
           'resource_class', 'health', 'maintenance', *options.PURPOSE,
           'user_id', 'group', 'expires_at', 'created_at', 'updated_at',
           'ended_at', 'ended_by')


class ListHistory(commands.ListCommand):
    """List reservations that have ended, the last one first.

    With a node and without --ended-after, its present reservation comes
    first, which has no end. The exit status is 1 if there is no such node.
    """

    path, plural = 'reservations/history', 'ended reservations'
    filters = ('node', 'instance_uuid', 'project', 'ended_after')
    columns = COLUMNS
    details = DETAILS

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
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
        super().add_arguments(parser)

    def choose_auth(self, args: argparse.Namespace) -> Any:
        return scope.choose_auth(self, args, 'reservations')

    def read_rows(self, query: client.Data, args: argparse.Namespace,
                  auth: Any) -> list[client.Data]:
        node, instance = args.node, args.instance_uuid
        present = [] if node is None or args.ended_after else [
            row for row in client.read_list(self, 'reservations', {
                **query, 'instance_uuid': None}, auth=auth)
            if instance is None
            or instance.lower() == row['instance_uuid'].lower()]
        rows = list(itertools.islice(itertools.chain(
            present, super().read_rows(query, args, auth)),
            args.limit or None))
        if node and not rows and suggestions.describe_missing_node(
                self, node, auth=auth):
            self.status = 1
        return rows

    def describe_filters(self, filters: client.Data) -> client.Data:
        return {'node': filters['node'], 'instance': filters['instance_uuid'],
                'project': filters['project'], 'ended_after':
                units.format_moment(filters['ended_after'])}
