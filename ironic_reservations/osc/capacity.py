# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation capacity list``."""

import urllib.parse

from ironic_reservations.osc import client
from ironic_reservations.osc import output

COLUMNS = ('resource_class', 'memory_mb', 'vcpus', 'local_gb', 'cpu_arch',
           'traits', 'total', 'free', 'held', 'claimable')
DETAILS = (*COLUMNS[:-4], 'capabilities', 'conductor_group', 'shard', 'owner',
           'lessee', *COLUMNS[-4:])


class ListCapacity(output.Lister):
    """Show what the fleet can still give, by hardware profile.

    Of each profile: how many nodes there are in total, how many are free,
    how many the asked host holds, and how many are held for no host and may
    be claimed.
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
        parser.add_argument('--long', action='store_true',
                            help='Show all columns')
        return parser

    def take_action(self, parsed_args):
        query = {name: getattr(parsed_args, name) for name in
                 ('resource_class', 'trait', 'conductor_group', 'shard',
                  'host') if getattr(parsed_args, name) is not None}
        headers = ({'Cache-Control': 'no-cache'} if parsed_args.no_cache
                   else {})
        answer = client.request(
            self, 'GET', f'{client.PATH}/capacity?'
                         + urllib.parse.urlencode(query, doseq=True),
            headers=headers)
        names = DETAILS if parsed_args.long else COLUMNS
        return output.headers(names), (
            [output.value(profile[name]) for name in names]
            for profile in answer['capacity'])
