# SPDX-License-Identifier: Apache-2.0
"""The commands, a class for each; their docstrings are the help texts.

Requests go through python-ironicclient, so that a user configures them as
all other ``openstack baremetal`` commands.
"""

import copy
import json
import re
import urllib.parse

from cliff import columns
from ironicclient import exc
from ironicclient.common import http
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions
from osc_lib.cli import format_columns
from osc_lib.command import command
from oslo_utils import uuidutils
import prettytable
import tenacity

PATH = '/v1/reservations'

COLUMNS = ('instance_uuid', 'node', 'host', 'state', 'resource_class')
DETAILS = ('instance_uuid', 'node_uuid', 'node_name', 'host', 'state',
           'provision_state', 'resource_class', 'project_id', 'user_id',
           'request_spec', 'expires_at', 'created_at', 'updated_at')
SORT_KEYS = ('instance_uuid', 'node_uuid', 'host', 'project_id', 'user_id',
             'expires_at', 'created_at', 'updated_at')
PROFILE = ('resource_class', 'memory_mb', 'vcpus', 'local_gb', 'cpu_arch',
           'traits', 'total', 'free', 'held')
PROFILE_DETAILS = (*PROFILE[:-3], 'capabilities', 'conductor_group', 'shard',
                   'owner', 'lessee', *PROFILE[-3:])
HOST = ('host', 'holder', 'live', 'expires_at')
HOST_DETAILS = (*HOST, 'created_at', 'updated_at')
STATES = ('reserved', 'deploying', 'active', 'releasing', 'error',
          'unavailable')

# The options of create for sizes: the key of the request spec, the placeholder
# and the help text of each.
_SIZES = {'ram': ('memory_mb', '<MiB>', 'Memory of the node'),
          'vcpus': ('vcpus', '<number>', 'CPUs of the node'),
          'disk': ('root_gb', '<GiB>', 'Root disk of the instance'),
          'ephemeral': ('ephemeral_gb', '<GiB>',
                        'Ephemeral disk of the instance'),
          'swap': ('swap', '<MiB>', 'Swap disk of the instance')}

# The extra specs of a flavor that an option overrides: patterns of their keys,
# by the key of the request spec that the option sets.
_OVERRIDDEN = {'memory_mb': r'resources[\w-]*:MEMORY_MB',
               'vcpus': r'resources[\w-]*:VCPU',
               'root_gb': r'resources[\w-]*:DISK_GB',
               'ephemeral_gb': r'resources[\w-]*:DISK_GB',
               'swap': r'resources[\w-]*:DISK_GB',
               'resource_class': r'resources[\w-]*:CUSTOM_.*',
               'candidate_nodes': 'reservations:candidate_nodes'}

#: The most characters of an image property's value in a request.
_LONGEST = 1024

def request(cmd, method, url, **kwargs):
    """Send one request through ironicclient and return the answer's data."""
    # A copy, because this client belongs to all commands of an interactive
    # shell, and the others shall keep their retries.
    client = copy.copy(cmd.app.client_manager.baremetal.http_client)
    # ironicclient would repeat a request that is answered with 409 or 503
    # for ten seconds, but a conflict does not go away by itself.
    client.conflict_max_retries = 0
    http.LOG.addFilter(_is_news)
    try:
        return client.json_request(
            method, url, hooks={'response': _take_retry_after}, **kwargs)[1]
    finally:
        http.LOG.removeFilter(_is_news)


def listed(cmd, collection, query, **kwargs):
    """Yield everything that a list of Ironic's API has, page after page.

    :param collection: its path, such as ``reservations/hosts``.
    :param query: dict of parameters of the query; None are left out.
    :param kwargs: of the requests, such as another ``auth``.
    """
    name = collection.rpartition('/')[2]
    key = {'reservations': 'instance_uuid', 'hosts': 'host'}.get(name, 'uuid')
    query = {name: value for name, value in query.items()
             if value is not None}
    first, seen = query, set()
    while query is not None:
        try:
            page = request(
                cmd, 'GET',
                f'/v1/{collection}?{urllib.parse.urlencode(query)}', **kwargs)
        except (exc.BadRequest, exc.NotFound):
            if query is first:
                raise
            # The marker is refused, because what the page before ended with
            # is gone meanwhile. Begin again; what was yielded already is
            # skipped below.
            query = first
            continue
        for each in page[name]:
            if each[key] not in seen:
                seen.add(each[key])
                yield each
        if seen:
            cmd.log.info('%d %s read', len(seen), name)
        # Only the query of the link is used, because behind a proxy the host
        # in it may be one that clients cannot reach.
        query = page.get('next') and dict(urllib.parse.parse_qsl(
            urllib.parse.urlsplit(page['next']).query))


def _is_news(record):
    """Whether a line of ironicclient's log is not about to be printed anyway.

    ironicclient logs the last attempt of a request that fails, and raises
    its error too; where one attempt is all, a user would read it twice:
    https://opendev.org/openstack/python-ironicclient/src/branch/master/ironicclient/common/http.py
    """
    return not record.getMessage().endswith('Attempt 1 of 1')


def _take_retry_after(response, *args, **kwargs):
    """Move the header Retry-After from an answer to an attribute.

    ironicclient's ``from_response`` hands the header on to the constructor
    of the error, which for most status codes does not take it, so that a
    TypeError would hide the error:
    https://opendev.org/openstack/python-ironicclient/src/branch/master/ironicclient/common/apiclient/exceptions.py
    """
    response.retry_after = response.headers.pop('Retry-After', None)


def _display(reservation):
    """Return the columns and values of a reservation for ShowOne."""
    values = dict(reservation,
                  request_spec=format_columns.DictColumn(
                      reservation['request_spec']))
    return DETAILS, [values[name] for name in DETAILS]


def _headers(names):
    """Return the column headers of keys: that of node_uuid is Node UUID."""
    upper = {'uuid': 'UUID', 'id': 'ID', 'mb': 'MB', 'gb': 'GB',
             'vcpus': 'VCPUs', 'cpu': 'CPU'}
    return [' '.join(upper.get(word, word.title())
                     for word in name.split('_')) for name in names]


class Profiles(columns.FormattableColumn):
    """Hardware profiles: for people one on each line, for programs data."""

    def human_readable(self):
        return '\n'.join(
            '{free} free of {total}: {resource_class}, {memory_mb} MiB, '
            '{vcpus} CPUs, {local_gb} GiB'.format(**profile)
            for profile in self._value)


class Explanation(columns.FormattableColumn):
    """Why nodes do not match: for people a table, for programs data."""

    def human_readable(self):
        table = prettytable.PrettyTable(['Eliminated by', 'Nodes'])
        table.align.update({'Eliminated by': 'l', 'Nodes': 'r'})
        for each in self._value['eliminated']:
            table.add_row([each['by'], each['nodes']])
        lines = [f'{self._value["considered"]} nodes considered']
        if self._value['eliminated']:
            lines.append(str(table))
        if self._value['nearest']:
            lines.append('{nodes} could be held without {by}'.format(
                **self._value['nearest']))
        return '\n'.join(lines)


def _is_locked(error):
    """Say whether an error means that nodes match but are locked just now.

    The server then answers 422 with the header Retry-After.
    """
    return (getattr(error, 'http_status', None) == 422
            and error.response.retry_after is not None)


class CreateReservation(command.ShowOne):
    """Reserve a node that matches a request."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--flavor', metavar='<flavor>',
            help='Flavor (name or ID) to take the request from; the other '
                 'options override it')
        parser.add_argument(
            '--image', metavar='<image>',
            help='Image (name or ID) whose properties and minimum sizes the '
                 'node must satisfy')
        for option, (key, metavar, text) in _SIZES.items():
            parser.add_argument(f'--{option}', dest=key, type=int,
                                metavar=metavar, help=text)
        parser.add_argument(
            '--resource-class', metavar='<class>',
            help='Resource class of the node')
        parser.add_argument(
            '--trait', action='append', default=[], metavar='<trait>',
            help='Trait that the node must have (repeat for several)')
        parser.add_argument(
            '--forbidden-trait', action='append', default=[],
            metavar='<trait>',
            help='Trait that the node must not have (repeat for several)')
        parser.add_argument(
            '--capability', action='append', default=[],
            metavar='<name>[=<value>]',
            help='Capability that the node must have, of any value or of '
                 'one, which may be an expression such as ">= 4" (repeat '
                 'for several)')
        parser.add_argument(
            '--conductor-group', metavar='<group>',
            help='Conductor group of the node ("" for the default group)')
        parser.add_argument(
            '--shard', metavar='<shard>', help='Shard of the node')
        parser.add_argument(
            '--candidate-node', action='append', dest='candidate_nodes',
            metavar='<node>',
            help='Node (name or UUID) to choose from (repeat for several)')
        parser.add_argument(
            '--match', choices=('at_least', 'exact'),
            help='How sizes are compared')
        parser.add_argument(
            '--expires-in', type=int, metavar='<seconds>',
            help='Lease: give the node back after this time if nothing has '
                 'begun on it')
        parser.add_argument(
            '--host', metavar='<host>',
            help='Compute service that holds the reservation')
        parser.add_argument(
            '--instance-uuid', metavar='<uuid>',
            help='UUID of the instance (default: a new one)')
        parser.add_argument(
            '--dry-run', action='store_true',
            help='Reserve nothing; show what matches, and why the rest does '
                 'not')
        return parser

    def take_action(self, parsed_args):
        body = self._request(parsed_args)
        if parsed_args.dry_run:
            found = request(self, 'POST', f'{PATH}?dry_run=true', body=body)
            return (('matching_nodes', 'profiles', 'explanation'),
                    (found['matching_nodes'],
                     Profiles(found['profiles']),
                     Explanation(found['explanation'])))
        try:
            return _display(self._create(body))
        except exc.ClientException as error:
            self._explain(error)
            raise

    @tenacity.retry(retry=tenacity.retry_if_exception(_is_locked),
                    stop=tenacity.stop_after_delay(5),
                    wait=tenacity.wait_fixed(1), reraise=True)
    def _create(self, body):
        return request(self, 'POST', PATH, body=body)

    def _explain(self, error):
        """Print why no node matches, if the answer has an explanation."""
        if getattr(error, 'http_status', None) == 422:
            explanation = json.loads(error.response.content).get(
                'explanation')
            if explanation:
                print(Explanation(explanation).human_readable(),
                      file=self.app.stderr)

    def _request(self, args):
        """Build the request spec: flavor and image, then the options."""
        body = {}
        if args.flavor:
            body.update(self._flavor(args.flavor))
        if args.image:
            body['image'] = self._image(args.image)
        for key in ('memory_mb', 'vcpus', 'root_gb', 'ephemeral_gb', 'swap',
                    'resource_class', 'conductor_group', 'shard',
                    'candidate_nodes', 'expires_in', 'host', 'instance_uuid'):
            if getattr(args, key) is not None:
                body[key] = getattr(args, key)
        specs = _extra_specs(args, body.get('extra_specs', {}))
        if specs:
            body['extra_specs'] = specs
        return body

    def _find(self, service, kind, ident, **more):
        """Look up a flavor or an image by name or ID."""
        try:
            proxy = getattr(self.app.client_manager.sdk_connection, service)
            find = getattr(proxy, f'find_{kind}')
            return find(ident, ignore_missing=False, **more)
        except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
            raise exceptions.CommandError(
                f'Cannot look up {kind} "{ident}": {error}')

    def _flavor(self, ident):
        """Return what a flavor asks for, as keys of the request spec."""
        flavor = self._find('compute', 'flavor', ident, get_extra_specs=True)
        return {'memory_mb': flavor.ram, 'vcpus': flavor.vcpus,
                'root_gb': flavor.disk, 'ephemeral_gb': flavor.ephemeral,
                'swap': flavor.swap or 0, 'rxtx_factor': flavor.rxtx_factor,
                'name': flavor.name, 'flavorid': flavor.id,
                'extra_specs': dict(flavor.extra_specs or {})}

    def _image(self, ident):
        """Return the value of the request spec's key ``image``."""
        image = self._find('image', 'image', ident)
        # The SDK turns the properties of Nova's older names into attributes.
        # A property of the newer name takes precedence, as in Nova.
        properties = {'hw_architecture': image.architecture,
                      'img_hv_type': image.hypervisor_type,
                      **(image.properties or {})}
        # An image may have properties of any length, such as descriptions.
        # The API refuses long ones, and none of them is matched, so they are
        # left out.
        return {'id': image.id,
                'properties': {name: str(value)
                               for name, value in properties.items()
                               if value is not None
                               and len(str(value)) <= _LONGEST},
                'min_ram': image.min_ram, 'min_disk': image.min_disk}


def _extra_specs(args, flavor):
    """Return a flavor's extra specs, overridden by what the options say."""
    traits = {**dict.fromkeys(args.trait, 'required'),
              **dict.fromkeys(args.forbidden_trait, 'forbidden')}
    capabilities = dict(map(_capability, args.capability))
    for name in {*args.trait} & {*args.forbidden_trait}:
        raise exceptions.CommandError(
            f'trait {name} cannot be required and forbidden')
    if len(capabilities) < len(args.capability):
        raise exceptions.CommandError(
            'a capability can be asked for only once')

    overridden = '|'.join([
        *(pattern for key, pattern in _OVERRIDDEN.items()
          if getattr(args, key) is not None),
        *(rf'(?:trait[\w-]*|reservations:trait):{re.escape(name)}'
          for name in traits),
        *(f'capabilities:{re.escape(name)}' for name in capabilities),
        *(['cpu_arch'] if 'cpu_arch' in capabilities else []),
    ])
    specs = {key: value for key, value in flavor.items()
             if not re.fullmatch(overridden, key)}
    # A flavor may also name several capabilities in one key: "a,b:c".
    together = [item for item in specs.pop('capabilities', '').split(',')
                if item and item.partition(':')[0].strip()
                not in capabilities]
    for name, value in capabilities.items():
        if value is None:
            together.append(name)
        else:
            specs[f'capabilities:{name}'] = value
    if together:
        specs['capabilities'] = ','.join(together)
    specs.update({f'trait:{name}': word for name, word in traits.items()})
    if args.match:
        specs['reservations:match'] = args.match
    return specs


def _capability(text):
    """Split ``<name>=<value>``; the value is None where there is none."""
    found = re.fullmatch(r'([^\s=:,<>!]+)(?:[=:](.*))?', text, re.DOTALL)
    if not found:
        raise exceptions.CommandError(
            f'capability "{text}" must be <name> or <name>=<value>, such as '
            f'"gpus=>= 4"')
    return found.groups()


class ListReservation(command.Lister):
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
        parser.add_argument('--project', dest='project_id',
                            metavar='<project-id>', help='Of this project')
        parser.add_argument('--sort', metavar='<key>[:<direction>]',
                            help='Column and direction (asc or desc) to sort '
                                 'by; columns: ' + ', '.join(SORT_KEYS))
        display = parser.add_mutually_exclusive_group()
        display.add_argument('--long', action='store_true',
                             help='Show all columns')
        display.add_argument('--fields', nargs='+', choices=DETAILS,
                             metavar='<field>',
                             help='Columns to show: ' + ', '.join(DETAILS))
        return parser

    def take_action(self, parsed_args):
        query = {name: getattr(parsed_args, name) for name in
                 ('host', 'node', 'resource_class', 'state', 'project_id')}
        if parsed_args.sort:
            query['sort_key'], _, direction = parsed_args.sort.partition(':')
            query['sort_dir'] = direction or None
        if parsed_args.fields:
            query['fields'] = ','.join(
                dict.fromkeys(['instance_uuid', *parsed_args.fields]))
        names = DETAILS if parsed_args.long else parsed_args.fields or COLUMNS
        return _headers(names), (
            [self._value(reservation, name) for name in names]
            for reservation in listed(self, 'reservations', query))

    @staticmethod
    def _value(reservation, name):
        if name == 'node':
            return reservation['node_name'] or reservation['node_uuid']
        if name == 'request_spec':
            return format_columns.DictColumn(reservation[name])
        return reservation[name]


class ShowCapacity(command.Lister):
    """Show what the fleet can still give, by hardware profile."""

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
        answer = request(
            self, 'GET', f'{PATH}/capacity?'
                         + urllib.parse.urlencode(query, doseq=True),
            headers=headers)
        names = PROFILE_DETAILS if parsed_args.long else PROFILE
        return _headers(names), ([self._value(profile[name])
                                  for name in names]
                                 for profile in answer['capacity'])

    @staticmethod
    def _value(value):
        if isinstance(value, dict):
            return format_columns.DictColumn(value)
        if isinstance(value, list):
            return format_columns.ListColumn(value)
        return value


class ListHost(command.Lister):
    """List the compute hosts whose processes hold a lease of them."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Only this compute host')
        parser.add_argument('--long', action='store_true',
                            help='Show all columns')
        return parser

    def take_action(self, parsed_args):
        names = HOST_DETAILS if parsed_args.long else HOST
        return _headers(names), (
            [lease[name] for name in names] for lease in listed(
                self, 'reservations/hosts', {'host': parsed_args.host}))


class ShowReservation(command.ShowOne):
    """Show the reservation of an instance."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('instance_uuid', metavar='<instance-uuid>',
                            help='UUID of the instance')
        return parser

    def take_action(self, parsed_args):
        return _display(
            request(self, 'GET', _path(parsed_args.instance_uuid)))


class DeleteReservation(command.Command):
    """Release the nodes of instances that nothing is deployed to."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('instance_uuids', nargs='+',
                            metavar='<instance-uuid>',
                            help='UUID of the instance')
        parser.add_argument('--host', metavar='<host>',
                            help='Only if this compute service holds it')
        return parser

    def take_action(self, parsed_args):
        failures = []
        query = ('?' + urllib.parse.urlencode({'host': parsed_args.host})
                 if parsed_args.host else '')
        for instance_uuid in parsed_args.instance_uuids:
            try:
                request(self, 'DELETE', _path(instance_uuid) + query)
            except exc.ClientException as error:
                failures.append(f'{instance_uuid}: {error}')
        if failures:
            raise exc.ClientException('\n'.join(failures))


def _path(instance_uuid):
    # Another text could name another path of the API, such as "capacity".
    if not uuidutils.is_uuid_like(instance_uuid):
        raise exc.ClientException(f'"{instance_uuid}" is not a UUID')
    return f'{PATH}/{instance_uuid}'
