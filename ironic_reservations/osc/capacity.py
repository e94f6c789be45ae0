# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation capacity list``."""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import TextIO
import urllib.parse

from ironicclient import exc

from ironic_reservations.osc import client
from ironic_reservations.osc import fleet_map
from ironic_reservations.osc import output
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions
from ironic_reservations.osc import units
from ironic_reservations.shared import constants

#: Columns that describe a profile in every table.
PROFILE = ('resource_class', 'memory_mb', 'vcpus', 'local_gb', 'cpu_arch',
           'traits')
#: Further columns in which profiles may differ.
DETAILS = ('capabilities', 'conductor_group', 'shard', 'owner', 'lessee',
           'pool_project_id')
#: The first count is the sum of the others.
COUNTS = ('total', *constants.NODE_STATES)
FILTERS = ('resource_class', 'trait', 'conductor_group', 'shard')

#: Values that are left out of a map.
_EMPTY: tuple[object, ...] = (None, '', {}, [])

#: Formats of numbers and names in a map.
_UNITS = {'memory_mb': '{} MiB', 'vcpus': '{} CPUs', 'local_gb': '{} GB',
          'conductor_group': 'group {}', 'shard': 'shard {}',
          'owner': 'owner {}', 'lessee': 'lessee {}',
          'pool_project_id': 'pool of {}', 'project_id': 'project {}'}


class ListCapacity(output.Lister):
    """Show the remaining capacity of the fleet, by hardware profile.

    For each profile: the number of all nodes (Total), and of free, reserved,
    taken (being deployed, in use, or being torn down) and out-of-service
    nodes, which add up; with --host, the number held by that host; with
    --long, the number of reservations without a host that can be claimed; with
    "--by project_id", the number of healthy nodes: not in maintenance, without
    a refused health and without an open notice. Without --long, columns of
    --long are added where rows would otherwise look the same. A table of
    several rows ends with their sum.
    """

    #: Set by cliff.
    formatter: Any

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--resource-class', metavar='<class>',
                            help='Only nodes of this resource class')
        parser.add_argument('--trait', action='append', metavar='<trait>',
                            help='Only nodes that have this trait (repeat '
                                 'for several)')
        parser.add_argument('--conductor-group', type=units.parse_empty,
                            metavar='<group>',
                            help='Only nodes in this conductor group')
        parser.add_argument('--shard', type=units.parse_empty,
                            metavar='<shard>',
                            help='Only nodes in this shard ("" is one, too)')
        parser.add_argument('--host', metavar='<host>',
                            help='Also count the nodes that this compute '
                                 'service holds')
        parser.add_argument('--no-cache', action='store_true',
                            help='Bypass the cache')
        parser.add_argument(
            '--by', action='append', default=[], metavar='<key>',
            help='Sum the nodes that have the same "resource_class", '
                 '"owner", "lessee", "pool_project_id", '
                 '"conductor_group", "shard", '
                 '"project_id" (of the reservation or the pool) or '
                 '"capability:<name>" '
                 '(repeat for several)')
        parser.add_argument(
            '--map', action='store_true',
            help='Draw a bar for each row: free, reserved, taken, out of '
                 'service')
        scope.add_all_projects(parser)
        parser.add_argument('--long', action='store_true',
                            help='Show all columns')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        query = {name: getattr(parsed_args, name)
                 for name in (*FILTERS, 'host', 'by')
                 if getattr(parsed_args, name) is not None}
        auth = scope.choose_auth(self, parsed_args, 'nodes')
        filters = {name: query.get(name) for name in FILTERS}
        self._rows: list[client.Data] = list(suggestions.report_empty(
            self, self._read_rows(query, filters, parsed_args, auth), 'nodes',
            filters, auth=auth))
        names = (*self._list_labels(parsed_args), *COUNTS,
                 *['healthy'] * ('project_id' in parsed_args.by),
                 *['held'] * (parsed_args.host is not None),
                 *['claimable'] * parsed_args.long)
        return output.format_headers(names), (
            [output.format_value(row[name]) for name in names]
            for row in self._rows)

    def _read_rows(self, query: client.Data, filters: client.Data,
                   args: argparse.Namespace, auth: Any) -> list[client.Data]:
        """Return the capacity rows; print hints on misspelt keys and names."""
        headers = {'Cache-Control': 'no-cache'} if args.no_cache else {}
        try:
            rows: list[client.Data] = client.request_ironic(
                self, 'GET', f'{client.PATH}/capacity?'
                             + urllib.parse.urlencode(query, doseq=True),
                headers=headers, auth=auth)['capacity']
        except exc.BadRequest:
            for key in args.by:
                suggestions.suggest_key(self, key, auth=auth)
            suggestions.suggest_filters(self, filters, auth=auth)
            raise
        suggestions.suggest_filters(self, {'capability': [
            key.removeprefix('capability:') for key in args.by
            if key.startswith('capability:') and rows
            and all(row[key] is None for row in rows)]}, auth=auth)
        return rows

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: Sequence[str],
                       data: Iterable[Sequence[Any]]) -> int:
        if parsed_args.formatter == 'table' and parsed_args.map:
            names = self._list_labels(parsed_args)
            fleet_map.draw_map(self.app.stdout, [
                (', '.join(_format_label(name, row[name]) for name in names
                           if parsed_args.by or row[name] not in _EMPTY),
                 row)
                for row in self._rows])
            return 0
        if parsed_args.formatter == 'table':
            self.formatter = _WithSum(output.Table(), output.format_headers(
                [*COUNTS, 'healthy', 'held', 'claimable']))
        return super().produce_output(parsed_args, column_names, data)

    def _list_labels(self, args: argparse.Namespace) -> list[str]:
        """Return the columns that identify the nodes of a row."""
        if args.by:
            return [*dict.fromkeys(args.by)]
        if args.long:
            return [*PROFILE, *DETAILS]
        if args.formatter != 'table':
            return [*PROFILE]  # Programs need the same columns each time.
        similar: dict[str, list[client.Data]] = {}
        for row in self._rows:
            similar.setdefault(repr([row[name] for name in PROFILE]),
                               []).append(row)
        return [*PROFILE, *(name for name in DETAILS if any(
            row[name] != rows[0][name]
            for rows in similar.values() for row in rows))]


class _WithSum:
    """A formatter that adds the sum of the rows, after they are sorted.

    :param formatter: formatter of a table.
    :param counts: headers of the columns that are summed.
    """

    def __init__(self, formatter: Any, counts: list[str]) -> None:
        self._formatter, self._counts = formatter, counts

    def emit_list(self, column_names: Sequence[str],
                  data: Iterable[Sequence[Any]], stdout: TextIO,
                  parsed_args: argparse.Namespace) -> None:
        rows = [list(row) for row in data]
        if len(rows) > 1:
            sums = [sum(column) if name in self._counts else ''
                    for name, *column in zip(column_names, *rows, strict=True)]
            # The row is labelled in the first column, which may be a count.
            rows.append([f'Sum {sums[0]}'.strip(), *sums[1:]])
        self._formatter.emit_list(column_names, rows, stdout, parsed_args)


def _format_label(name: str, data: Any) -> str:
    """Return a value of a row as text for the map."""
    cell = output.format_value('none' if data in _EMPTY else data)
    if hasattr(cell, 'human_readable'):
        cell = cell.human_readable()
    _, _, capability = name.partition('capability:')
    return _UNITS.get(name, f'{capability} {{}}'.lstrip()).format(cell)
