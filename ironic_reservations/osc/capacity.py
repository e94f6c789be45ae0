# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation capacity list``."""

import urllib.parse

from ironic_reservations.osc import client
from ironic_reservations.osc import fleet_map
from ironic_reservations.osc import output
from ironic_reservations.osc import scope

#: What a profile is, in every table.
PROFILE = ('resource_class', 'memory_mb', 'vcpus', 'local_gb', 'cpu_arch',
           'traits')
#: What else profiles may differ in.
DETAILS = ('capabilities', 'conductor_group', 'shard', 'owner', 'lessee')
COUNTS = ('total', 'free', 'held', 'claimable')
#: With "free" these add up to "total".
OTHERS = ('reserved', 'taken', 'out_of_service')

#: What a profile does not have is not said on a map.
_NOTHING = (None, '', {}, [])

#: What a number or a name needs beside itself there.
_UNITS = {'memory_mb': '{} MiB', 'vcpus': '{} CPUs', 'local_gb': '{} GB',
          'conductor_group': 'group {}', 'shard': 'shard {}',
          'owner': 'owner {}', 'lessee': 'lessee {}'}


class ListCapacity(output.Lister):
    """Show what the fleet can still give, by hardware profile.

    Of each profile: how many nodes there are in total, how many are free,
    how many the asked host holds, and how many are held for no host and may
    be claimed. Rows that would look the same are told apart by those columns
    of --long in which they differ.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('--resource-class', metavar='<class>',
                            help='Only nodes of this resource class')
        parser.add_argument('--trait', action='append', metavar='<trait>',
                            help='Only nodes that have this trait (repeat '
                                 'for several)')
        parser.add_argument('--conductor-group', metavar='<group>',
                            help='Only nodes in this conductor group')
        parser.add_argument('--shard', metavar='<shard>',
                            help='Only nodes in this shard')
        parser.add_argument('--host', metavar='<host>',
                            help='Count as held what this compute service '
                                 'holds')
        parser.add_argument('--no-cache', action='store_true',
                            help='Have the nodes counted anew')
        parser.add_argument(
            '--by', action='append', default=[], metavar='<key>',
            help='Sum the nodes that have the same "resource_class", '
                 '"owner", "lessee", "conductor_group", "shard" or '
                 '"capability:<name>" (repeat for several)')
        parser.add_argument(
            '--map', action='store_true',
            help='Draw a bar for each row: free, held by reservations or '
                 'allocations, taken by servers, out of service')
        scope.add_option(parser)
        parser.add_argument('--long', action='store_true',
                            help='Show all columns')
        return parser

    def take_action(self, parsed_args):
        query = {name: getattr(parsed_args, name) for name in
                 ('resource_class', 'trait', 'conductor_group', 'shard',
                  'host', 'by') if getattr(parsed_args, name) is not None}
        headers = ({'Cache-Control': 'no-cache'} if parsed_args.no_cache
                   else {})
        self._rows = client.request(
            self, 'GET', f'{client.PATH}/capacity?'
                         + urllib.parse.urlencode(query, doseq=True),
            headers=headers,
            auth=scope.auth(self, parsed_args, 'nodes'))['capacity']
        names = (*self._labels(parsed_args), *COUNTS,
                 *OTHERS * (parsed_args.long or parsed_args.map))
        return output.headers(names), (
            [output.value(row[name]) for name in names]
            for row in self._rows)

    def produce_output(self, parsed_args, column_names, data):
        if not (parsed_args.map and parsed_args.formatter == 'table'):
            return super().produce_output(parsed_args, column_names, data)
        names = self._labels(parsed_args)
        fleet_map.draw(self.app.stdout, [
            (', '.join(_said(name, row[name]) for name in names
                       if parsed_args.by or row[name] not in _NOTHING), row)
            for row in self._rows])
        return 0

    def _labels(self, args):
        """The columns that say which nodes a row is of."""
        if args.by:
            return [*dict.fromkeys(args.by)]
        if args.long:
            return [*PROFILE, *DETAILS]
        if args.formatter != 'table':
            return [*PROFILE]  # A program wants the same columns each time.
        alike = {}
        for row in self._rows:
            alike.setdefault(repr([row[name] for name in PROFILE]),
                             []).append(row)
        return [*PROFILE, *(name for name in DETAILS if any(
            row[name] != rows[0][name]
            for rows in alike.values() for row in rows))]


def _said(name, value):
    """A value of a row in words, for the map."""
    shown = output.value('none' if value in _NOTHING else value)
    if hasattr(shown, 'human_readable'):
        shown = shown.human_readable()
    _, _, capability = name.partition('capability:')
    return _UNITS.get(name, f'{capability} {{}}'.lstrip()).format(shown)
