# SPDX-License-Identifier: Apache-2.0
"""The commands, a class for each; their docstrings are the help texts."""

import urllib.parse

from osc_lib import exceptions
from osc_lib.command import command
from oslo_utils import uuidutils

from ironic_reservations.osc import client
from ironic_reservations.osc import create
from ironic_reservations.osc import move
from ironic_reservations.osc import output

COLUMNS = ('instance_uuid', 'node', 'host', 'state', 'resource_class',
           'expires_at')
DETAILS = ('instance_uuid', 'node_uuid', 'node_name', 'host', 'state',
           'provision_state', 'resource_class', 'project_id', 'user_id',
           'request_spec', 'group', 'expires_at', 'created_at', 'updated_at')
#: What tells which one it is.
WHICH = ('instance_uuid', 'node_uuid', 'node_name')
SORT_KEYS = ('id', 'instance_uuid', 'node_uuid', 'host', 'project_id',
             'user_id', 'expires_at', 'created_at', 'updated_at')
PROFILE = ('resource_class', 'memory_mb', 'vcpus', 'local_gb', 'cpu_arch',
           'traits', 'total', 'free', 'held', 'claimable')
PROFILE_DETAILS = (*PROFILE[:-4], 'capabilities', 'conductor_group', 'shard',
                   'owner', 'lessee', *PROFILE[-4:])
HOST = ('host', 'holder', 'live', 'expires_at')
HOST_DETAILS = (*HOST, 'created_at', 'updated_at')
STATES = ('reserved', 'deploying', 'active', 'releasing', 'error',
          'unavailable')


def _display(reservation):
    """Return the columns and values of a reservation for ShowOne."""
    return DETAILS, [output.value(reservation.get(name)) for name in DETAILS]


def _add_which(parser, **kwargs):
    """Add the argument that says whose reservation is meant."""
    parser.add_argument(
        'reservation', metavar='<instance-or-node>',
        help='UUID of the instance, or name or UUID of its node', **kwargs)


def _path(reservation):
    return f'{client.PATH}/{reservation["instance_uuid"]}'


class CreateReservation(output.ShowOne):
    """Reserve a node that matches a request.

    The request needs at least a size, a resource class, a candidate node or
    an extra spec, or a flavor that has them. Of the nodes that match, the
    one that fits best is held for the instance.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        create.add_options(parser)
        parser.add_argument(
            '--instance-uuid', metavar='<uuid>',
            help='UUID of the instance (default: a new one); asked again '
                 'for the same, the answer is the same')
        parser.add_argument(
            '--claim', metavar='<uuid>',
            help='Take over the node of the reservation of this instance, or '
                 'one of this group, which no compute service holds')
        parser.add_argument(
            '--group', metavar='<uuid>',
            help='Make it a member of this group; give the policy that its '
                 'first member was given, too')
        create.add_policies(parser)
        return parser

    def take_action(self, parsed_args):
        instance = parsed_args.instance_uuid or uuidutils.generate_uuid()
        group = create.policy(parsed_args)
        if group and parsed_args.group is None:
            raise exceptions.CommandError(
                f'--{group["policy"]} is the policy of a group: name it with '
                f'--group')
        body = {'instance_uuid': instance,
                **create.spec(self, parsed_args),
                **create.envelope(self, parsed_args)}
        if parsed_args.claim is not None:
            body['claim'] = parsed_args.claim
        if parsed_args.group is not None:
            body['group'] = {'uuid': parsed_args.group, **group}
        if parsed_args.dry_run:
            return create.dry_run(self, client.PATH, body)
        with client.remembered(self, 'instance', instance, 'show'):
            return _display(create.hold(self, client.PATH, body))


class ListReservation(output.Lister):
    """List reservations."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Of this compute service')
        parser.add_argument('--node', metavar='<node>',
                            help='Of this node (name or UUID)')
        parser.add_argument('--resource-class', metavar='<class>',
                            help='Of nodes of this resource class')
        parser.add_argument('--state', choices=STATES, help='In this state')
        client.add_project(parser, 'Of this project (name or ID)')
        client.add_paging(parser, 'instance-uuid')
        parser.add_argument('--sort', metavar='<key>[:<direction>][,...]',
                            help='Keys to sort by, separated by commas, each '
                                 'in the direction asc (the default) or '
                                 'desc; keys: ' + ', '.join(SORT_KEYS))
        display = parser.add_mutually_exclusive_group()
        display.add_argument('--long', action='store_true',
                             help='Show all columns')
        display.add_argument('--fields', nargs='+', choices=DETAILS,
                             metavar='<field>',
                             help='Columns to show: ' + ', '.join(DETAILS))
        return parser

    def take_action(self, parsed_args):
        names = DETAILS if parsed_args.long else parsed_args.fields or COLUMNS
        found = client.listed(self, 'reservations', {
            **{name: getattr(parsed_args, name) for name in (
                'host', 'node', 'resource_class', 'state', 'marker')},
            'project_id': client.project_id(self, parsed_args),
            'fields': ','.join(['instance_uuid', *(
                'node_uuid,node_name' if name == 'node' else name
                for name in names)]),
            **_order(parsed_args.sort)}, parsed_args.limit)
        return output.headers(names), (
            [self._value(each, name) for name in names] for each in found)

    @staticmethod
    def _value(reservation, name):
        if name == 'node':
            return reservation['node_name'] or reservation['node_uuid']
        return output.value(reservation.get(name))


def _order(text):
    """Return the query that sorts as ``<key>[:<direction>],...`` says."""
    if text is None:
        return {}
    keys = [each.partition(':') for each in text.split(',')]
    return {'sort_key': ','.join(key for key, _, _ in keys),
            'sort_dir': ','.join(direction if colon else 'asc'
                                 for _, colon, direction in keys)}


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
        names = PROFILE_DETAILS if parsed_args.long else PROFILE
        return output.headers(names), (
            [output.value(profile[name]) for name in names]
            for profile in answer['capacity'])


class ListHost(output.Lister):
    """List the compute hosts whose processes hold a lease of them."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Only this compute host')
        client.add_paging(parser, 'host')
        parser.add_argument('--long', action='store_true',
                            help='Show all columns')
        return parser

    def take_action(self, parsed_args):
        names = HOST_DETAILS if parsed_args.long else HOST
        return output.headers(names), (
            [lease[name] for name in names] for lease in client.listed(
                self, 'reservations/hosts', {
                    'host': parsed_args.host, 'marker': parsed_args.marker},
                parsed_args.limit))


class ShowReservation(output.ShowOne):
    """Show the reservation of an instance or a node."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        _add_which(parser)
        return parser

    def take_action(self, parsed_args):
        return _display(client.find(self, parsed_args.reservation, DETAILS))


class SetReservation(command.Command):
    """Give a reservation to another host, or its lease another end.

    A server whose machine is deployed or being deployed is given to another
    host as "move" does it: only from a compute service that is down to one
    that is up, in the same availability zone. Nova is asked for that; log in
    for a project, as an admin.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        _add_which(parser)
        parser.add_argument('--host', metavar='<host>',
                            help='Compute service that is to hold it (admins '
                                 'only)')
        parser.add_argument(
            '--force', action='store_true',
            help='Give it to the host whatever Nova says of the two hosts')
        lease = parser.add_mutually_exclusive_group()
        lease.add_argument('--expires-in', type=int, metavar='<seconds>',
                           help='Let the lease be over so many seconds from '
                                'now, if nothing has begun on the node')
        lease.add_argument('--no-expiry', action='store_true',
                           help='Let the reservation have no end')
        return parser

    def take_action(self, parsed_args):
        changes = []
        if parsed_args.host is not None:
            changes.append({'op': 'replace', 'path': '/host',
                            'value': parsed_args.host})
        if parsed_args.expires_in is not None:
            changes.append({'op': 'add', 'path': '/expires_in',
                            'value': parsed_args.expires_in})
        if parsed_args.no_expiry:
            changes.append({'op': 'remove', 'path': '/expires_in'})
        if not changes:
            raise exceptions.CommandError(
                'Nothing to set: give --host, --expires-in or --no-expiry')
        auth = parsed_args.host and client.auth_of_ironic(self)
        found = client.find(self, parsed_args.reservation,
                            (*WHICH, 'host', 'state'), auth=auth)
        path = _path(found)
        if (parsed_args.host not in (None, found['host'])
                and not parsed_args.force):
            if found['state'] != 'reserved':
                with client.errors_of_nova():
                    move.check(self,
                               self.app.client_manager.sdk_connection.compute,
                               found['host'], parsed_args.host)
            if found['host'] is not None:
                # Only from the host that was looked at.
                path += '?' + urllib.parse.urlencode({'host': found['host']})
        client.request(self, 'PATCH', path, body=changes, auth=auth)


class DeleteReservation(command.Command):
    """Release the nodes of reservations on which nothing is deployed."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        _add_which(parser, nargs='+')
        parser.add_argument('--host', metavar='<host>',
                            help='Only if this compute service holds it')
        return parser

    def take_action(self, parsed_args):
        query = ('?' + urllib.parse.urlencode({'host': parsed_args.host})
                 if parsed_args.host else '')

        def delete(ident):
            found = client.find(self, ident, WHICH)
            client.request(self, 'DELETE', _path(found) + query)
            return (f'reservation of instance {found["instance_uuid"]}, node '
                    f'{found["node_name"] or found["node_uuid"]}')

        output.delete_each(self, parsed_args.reservation, delete)
