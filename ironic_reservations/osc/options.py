# SPDX-License-Identifier: Apache-2.0
"""The options of the commands that hold nodes, and the request they make."""

import re

from osc_lib import exceptions
from osc_lib.cli import parseractions

from ironic_reservations import constants
from ironic_reservations.osc import client
from ironic_reservations.osc import identity
from ironic_reservations.osc import units

# The options for sizes: the key of the request spec, the placeholder, what it
# takes, and the help text of each.
_SIZES = {'ram': ('memory_mb', '<MiB>', units.mib,
                  'Memory of the node, such as 65536 or 64GiB'),
          'vcpus': ('vcpus', '<number>', units.number, 'CPUs of the node'),
          'disk': ('root_gb', '<GiB>', units.gib,
                   'Root disk of the instance, such as 500 or 2TiB'),
          'ephemeral': ('ephemeral_gb', '<GiB>', units.gib,
                        'Ephemeral disk of the instance'),
          'swap': ('swap', '<MiB>', units.mib, 'Swap disk of the instance')}

#: A request spec with nothing but these keys does not constrain the node.
_NO_CONSTRAINT = {'conductor_group', 'shard', 'ownership'}

# The policies of a group, and the help text of the option for each.
_POLICIES = dict(zip(constants.POLICIES, (
    'No two members of the group in one domain',
    'All members of the group in one domain',
    'The members of the group over the domains as evenly as possible',
    'The members of the group in as few domains as possible'), strict=True))

# An option overrides extra specs of a flavor: patterns of their keys, by the
# key of the request spec that the option sets.
_OVERRIDDEN = {'memory_mb': r'resources[\w-]*:MEMORY_MB',
               'vcpus': r'resources[\w-]*:VCPU',
               'root_gb': r'resources[\w-]*:DISK_GB',
               'ephemeral_gb': r'resources[\w-]*:DISK_GB',
               'swap': r'resources[\w-]*:DISK_GB',
               'resource_class': r'resources[\w-]*:CUSTOM_.*',
               'candidate_nodes': 'reservations:candidate_nodes'}

#: A property of an image is sent only if its value has at most so many
#: characters.
_LONGEST = 1024


def add_options(parser):
    """Add the options that say what is wanted, for whom, and for how long."""
    add_request(parser)
    _add_holder(parser)
    parser.add_argument(
        '--dry-run', action='store_true',
        help='Reserve nothing; show what matches, and why the rest does '
             'not')


def add_request(parser):
    """Add the options that say what is wanted."""
    _add_machine(parser)
    _add_choice(parser)


def _add_machine(parser):
    """Add the options that say what the machine must be."""
    parser.add_argument(
        '--flavor', metavar='<flavor>',
        help='Flavor (name or ID) to take the request from; the other '
             'options override it')
    parser.add_argument(
        '--image', metavar='<image>',
        help='Image (name or ID) whose properties and minimum sizes the '
             'node must satisfy')
    for option, (key, metavar, kind, text) in _SIZES.items():
        parser.add_argument(f'--{option}', dest=key, type=kind,
                            metavar=metavar, help=text)
    parser.add_argument(
        '--resource-class', metavar='<class>',
        help='Resource class of the node')
    parser.add_argument(
        '--trait', action='append', default=[], type=units.name,
        metavar='<trait>',
        help='Trait that the node must have (repeat for several)')
    parser.add_argument(
        '--forbidden-trait', action='append', default=[], type=units.name,
        metavar='<trait>',
        help='Trait that the node must not have (repeat for several)')
    parser.add_argument(
        '--capability', action='append', default=[],
        metavar='<name>[=<value>]',
        help='Capability that the node must have, of any value or of '
             'one, which may be an expression such as ">= 4" (repeat '
             'for several)')
    parser.add_argument(
        '--property', action=parseractions.KeyValueAction, default={},
        metavar='<key>=<value>',
        help='Any extra spec of a flavor (repeat for several)')


def _add_choice(parser):
    """Add the options that say among which nodes to choose, and how."""
    parser.add_argument(
        '--conductor-group', metavar='<group>',
        help='Conductor group of the node ("" for the default group)')
    parser.add_argument(
        '--shard', metavar='<shard>', help='Shard of the node')
    parser.add_argument(
        '--candidate-node', action='append', dest='candidate_nodes',
        type=units.name, metavar='<node>',
        help='Node (name or UUID) to choose from (repeat for several)')
    parser.add_argument(
        '--match', choices=constants.MATCHES,
        help='How the sizes of a node compare with those asked for '
             '(default: as Ironic is configured, where at_least is the '
             'default)')
    parser.add_argument(
        '--ownership', choices=constants.OWNERSHIPS,
        help='Whose the node must be: anybody\'s, one that the project owns '
             'or leases, or one of these or of nobody (default: any for '
             'admins, else project)')


def _add_holder(parser):
    """Add the options that say for whom a node is held, and for how long."""
    parser.add_argument(
        '--expires-in', type=units.seconds, metavar='<seconds>',
        help='Lease: give the node back after this time, such as 600 or 10m, '
             'if nothing has begun on it')
    parser.add_argument(
        '--host', metavar='<host>',
        help='Compute service that holds the reservation (admins only)')
    identity.add_options(
        parser, 'project', 'Project (name or ID) that has the reservation, '
                           'if not your own (admins only)')
    identity.add_options(
        parser, 'user', 'User (name or ID) who has the reservation, if not '
                        'you (admins only)')


def add_policies(parser):
    """Add an option for each policy of a group."""
    policies = parser.add_mutually_exclusive_group()
    for name, text in _POLICIES.items():
        policies.add_argument(
            f'--{name}', metavar='<domain>',
            help=f'{text}; a domain is what has the same '
                 f'"capability:<name>", "conductor_group" or "shard"')


def policy(args):
    """Return the policy that the options of ``add_policies`` name.

    :returns: dict of keys of a request; empty without a policy.
    """
    for name in _POLICIES:
        by = getattr(args, name.replace('-', '_'))
        if by is not None:
            return {'policy': name, 'by': by}
    return {}


def request_spec(cmd, args, server=None):
    """Return the request spec.

    It is that of the flavor and the image, overridden by the options.

    :param server: the request spec of a server, which all of them override.
    :raises: CommandError.
    """
    spec = dict(server or {})
    if args.flavor:
        spec.update(_flavor(cmd, args.flavor))
    if args.image:
        spec['image'] = image(cmd, args.image)
    spec |= _values(args, *(key for key, *_ in _SIZES.values()),
                    'resource_class', 'conductor_group', 'shard',
                    'candidate_nodes', 'ownership')
    specs = _extra_specs(args, spec.get('extra_specs', {}))
    if specs:
        spec['extra_specs'] = specs
    # The API decides whether the others are enough. A claim needs none.
    if not (spec.keys() - _NO_CONSTRAINT or getattr(args, 'claim', None)):
        server = 'a server, ' if 'server' in args else ''
        raise exceptions.CommandError(
            f'Say what is wanted: {server}--flavor, --resource-class, --ram, '
            f'--vcpus, --disk, --trait, --capability, --candidate-node, '
            f'--image or --property')
    return spec


def envelope(cmd, args):
    """Return the keys of a request that say for whom and for how long.

    :raises: CommandError.
    """
    return {**_values(args, 'host', 'expires_in'),
            **identity.find_ids(cmd, args, 'project', 'user')}


def _values(args, *names):
    """Return the options of these names that have a value, as a dict."""
    return {name: getattr(args, name) for name in names
            if getattr(args, name) is not None}


def _flavor(cmd, ident):
    """Return what a flavor asks for, as keys of the request spec."""
    flavor = client.look_up(cmd, 'compute', 'flavor', ident,
                            get_extra_specs=True)
    return {**flavor_spec(flavor), 'rxtx_factor': flavor.rxtx_factor,
            'name': flavor.name, 'flavorid': flavor.id}


def flavor_spec(flavor, root_disk=True):
    """Return the sizes and extra specs of a flavor, as keys of a request.

    :param flavor: Flavor of the SDK, or a dict of a server of Nova's API.
    :param root_disk: False for a server that was booted from a volume.
    """
    return {'memory_mb': flavor['ram'], 'vcpus': flavor['vcpus'],
            'root_gb': flavor['disk'] if root_disk else 0,
            'ephemeral_gb': flavor['ephemeral'] or 0,
            'swap': flavor['swap'] or 0,
            'extra_specs': dict(flavor.get('extra_specs') or {})}


def image(cmd, ident):
    """Return the value of the request spec's key ``image``."""
    found = client.look_up(cmd, 'image', 'image', ident)
    # The SDK turns the properties of Nova's older names into attributes.
    # A property of the newer name takes precedence, as in Nova.
    properties = {'hw_architecture': found.architecture,
                  'img_hv_type': found.hypervisor_type,
                  **(found.properties or {})}
    # An image may have properties of any length, such as descriptions. The
    # API refuses long values, and matches none of those properties, so they
    # are left out.
    return {'id': found.id,
            'properties': {name: str(value)
                           for name, value in properties.items()
                           if value is not None
                           and len(str(value)) <= _LONGEST},
            'min_ram': found.min_ram, 'min_disk': found.min_disk}


def _extra_specs(args, flavor):
    """Return the extra specs of a flavor, overridden by the options."""
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
    # A flavor is overridden by both; of the others nothing may be dropped.
    for key, value in args.property.items():
        if _is_contradiction(key, value, args, traits, capabilities):
            raise exceptions.CommandError(
                f'--property {key}={value} contradicts another option')
    specs = {**{key: value for key, value in flavor.items()
                if not re.fullmatch(overridden, key)}, **args.property}
    # One key may also name several capabilities: "a,b:c".
    together = [item for item in specs.pop('capabilities', '').split(',')
                if item and ('capabilities' in args.property
                             or item.partition(':')[0].strip()
                             not in capabilities)]
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


def _is_contradiction(key, value, args, traits, capabilities):
    """Whether a ``--property`` contradicts another option.

    :param traits: ``required`` or ``forbidden`` by trait, of the options.
    :param capabilities: values by name, of the options.
    """
    if any(getattr(args, size) is not None
           and re.fullmatch(_OVERRIDDEN[size], key)
           for size, *_ in _SIZES.values()):
        return True
    if key == 'capabilities':
        return any(
            capabilities.get(name.strip(), text) not in (None, text)
            for name, colon, text in (
                item.partition(':') for item in value.split(',')) if colon)
    trait = re.fullmatch(r'(?:trait[\w-]*|reservations:trait):(.+)', key)
    expected = traits.get(trait[1]) if trait else {
        'reservations:match': args.match,
        'cpu_arch': capabilities.get('cpu_arch'),
        **{f'capabilities:{name}': text
           for name, text in capabilities.items()}}.get(key)
    return expected not in (None, value)


def _capability(text):
    """Split ``<name>=<value>``; the value is None where there is none."""
    found = re.fullmatch(r'([^\s=:,<>!]+)(?:[=:](.*))?', text, re.DOTALL)
    if not found:
        raise exceptions.CommandError(
            f'capability "{text}" must be <name> or <name>=<value>, such as '
            f'"gpus=>= 4"')
    return found.groups()
