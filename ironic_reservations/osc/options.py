# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that hold nodes, and the request they build."""

import argparse
from collections.abc import Mapping
import re
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from ironic_reservations.osc import actions
from ironic_reservations.osc import client
from ironic_reservations.osc import identity
from ironic_reservations.osc import units
from ironic_reservations.shared import constants
from ironic_reservations.shared import extra_specs
from ironic_reservations.shared import names

# The options for sizes: the key of the request spec, the placeholder, the
# type, and the help text of each.
_SIZES = {'ram': ('memory_mb', '<MiB>', units.parse_mib,
                  'Memory of the node, such as 65536 or 64GiB'),
          'vcpus': ('vcpus', '<number>', units.parse_number,
                    'CPUs of the node'),
          'disk': ('root_gb', '<GiB>', units.parse_gib,
                   'Root disk of the instance, such as 500 or 2TiB'),
          'ephemeral': ('ephemeral_gb', '<GiB>', units.parse_gib,
                        'Ephemeral disk of the instance'),
          'swap': ('swap', '<MiB>', units.parse_mib,
                   'Swap disk of the instance')}

#: Keys of a request spec that do not constrain the node by themselves.
_NO_CONSTRAINT = {'conductor_group', 'shard', 'ownership'}

# The policies of a group, and the help text of the option for each.
_POLICIES = dict(zip(constants.POLICIES, (
    'No two members of the group in one domain',
    'All members of the group in one domain',
    'The members of the group over the domains as evenly as possible',
    'The members of the group in as few domains as possible'), strict=True))

#: Keys that reservations and groups have in common.
PURPOSE = ('project_id', 'description')

#: Keys that requests set and change, with the arguments of their options.
CHANGEABLE: dict[str, dict[str, Any]] = {
    'host': {
        'metavar': '<host>',
        'help': 'Compute service that holds the reservation (admins only)'},
    'expires_in': {
        'type': units.parse_seconds, 'metavar': '<seconds>',
        'help': 'Lease from now, such as 600 or 10m, after which the '
                'reservation expires if deployment has not started'},
    'description': {
        'type': units.parse_empty, 'metavar': '<text>',
        'help': 'What it is reserved for, at most 255 characters; an '
                'empty text removes it'},
}

#: Maximum length of a property of an image that is sent.
_MAX_LENGTH = 1024


def add_hold_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the node, the owner and the lease."""
    add_request_options(parser)
    _add_owner(parser)
    parser.add_argument(
        '--dry-run', action='store_true',
        help='Reserve nothing; show the matching nodes, and why others do '
             'not match')


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that constrain the node."""
    _add_hardware(parser)
    _add_selection(parser)


def add_claim_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a reservation to claim."""
    parser.add_argument(
        '--claim', metavar='<uuid>[:<segment>]',
        help='Instance, group or segment of a group whose reservation to '
             'claim; no compute service may hold it')


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    """Add the options for the node's hardware."""
    parser.add_argument(
        '--flavor', metavar='<flavor>',
        help='Flavor (name or ID) to take the request from; the other '
             'options override it')
    parser.add_argument(
        '--image', metavar='<image>',
        help='Image (name or ID) whose properties and minimum sizes the '
             'node must satisfy')
    for option, (key, metavar, parse, text) in _SIZES.items():
        parser.add_argument(f'--{option}', dest=key, type=parse,
                            metavar=metavar, help=text)
    parser.add_argument(
        '--resource-class', metavar='<class>',
        help='Resource class of the node')
    parser.add_argument(
        '--trait', action='append', default=[], type=units.parse_name,
        metavar='<trait>',
        help='Trait that the node must have (repeat for several)')
    parser.add_argument(
        '--forbidden-trait', action='append', default=[],
        type=units.parse_name, metavar='<trait>',
        help='Trait that the node must not have (repeat for several)')
    parser.add_argument(
        '--capability', action='append', default=[],
        metavar='<name>[=<value>]',
        help='Capability that the node must have, with any value or with '
             'this one, which may be an expression such as ">= 4" (repeat '
             'for several)')
    parser.add_argument(
        '--property', action=actions.PropertyAction, default={},
        metavar='<key>=<value>',
        help='Any extra spec of a flavor (repeat for several)')


def _add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that limit and order the nodes."""
    parser.add_argument(
        '--conductor-group', type=units.parse_empty, metavar='<group>',
        help='Conductor group of the node ("" for the default group)')
    parser.add_argument(
        '--shard', type=units.parse_empty, metavar='<shard>',
        help='Shard of the node ("" is one, too)')
    parser.add_argument(
        '--candidate-node', action='append', dest='candidate_nodes',
        type=units.parse_name, metavar='<node>',
        help='Node (name or UUID) to choose from (repeat for several)')
    parser.add_argument(
        '--ordered', action='store_true',
        help='Try the candidate nodes in the order given instead of by fit')
    parser.add_argument(
        '--match', choices=constants.MATCHES,
        help='How the sizes of a node compare with the requested ones '
             '(default: as configured in Ironic, initially at_least)')
    parser.add_argument(
        '--ownership', choices=constants.OWNERSHIPS,
        help='Whose node: any, one that the project owns, leases or has in a '
             'pool, or also one that nobody does (default: any for admins, '
             'otherwise project)')


def _add_owner(parser: argparse.ArgumentParser) -> None:
    """Add the options for the owner and the lease of a reservation."""
    _add_changeable(parser, *CHANGEABLE)
    identity.add_name_options(
        parser, 'project', 'Project (name or ID) of the reservation, if not '
                           'your own (admins only)')
    identity.add_name_options(
        parser, 'user', 'User (name or ID) of the reservation, if not you '
                        '(admins only)')


def _add_changeable(parser: argparse._ActionsContainer, *names: str) -> None:
    """Add the options for keys of ``CHANGEABLE``."""
    for name in names:
        parser.add_argument(f'--{name.replace("_", "-")}', **CHANGEABLE[name])


def add_changes(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options that change a reservation or a group.

    :param names: keys of ``CHANGEABLE``.
    """
    lease = parser.add_mutually_exclusive_group()
    for name in names:
        _add_changeable(lease if name == 'expires_in' else parser, name)
    lease.add_argument('--no-expiry', action='store_true',
                       help='Remove the lease')


def build_patch(args: argparse.Namespace, *names: str,
                **removals: str) -> list[client.Data]:
    """Return the JSON Patch for options.

    :param names: options that set a key of this name.
    :param removals: the key that an option without a value removes, by the
        option.
    :raises: CommandError if there are none.
    """
    return make_patch(select_values(args, *names) | {
        key: '' for option, key in removals.items() if getattr(args, option)
    }, *names, *removals)


def make_patch(values: client.Data, *names: str) -> list[client.Data]:
    """Return the JSON Patch that changes some keys.

    :param values: by key; an empty text removes the key.
    :param names: of the options, for messages.
    :raises: CommandError if there are none.
    """
    if not values:
        *others, last = [f'--{name.replace("_", "-")}' for name in names]
        raise exceptions.CommandError(
            f'Nothing to set: give {", ".join(others)} or {last}')
    return [{'op': 'remove', 'path': f'/{name}'} if value == '' else
            {'op': 'add', 'path': f'/{name}', 'value': value}
            for name, value in values.items()]


def add_policies(parser: argparse.ArgumentParser
                 ) -> argparse._MutuallyExclusiveGroup:
    """Add an option for each policy of a group.

    :returns: the options, which exclude each other.
    """
    policies = parser.add_mutually_exclusive_group()
    for name, text in _POLICIES.items():
        policies.add_argument(
            f'--{name}', metavar='<domain>',
            help=f'{text}; the nodes of a domain have the same '
                 f'"capability:<name>", "conductor_group" or "shard", or the '
                 f'same of the traits that begin with <prefix> in '
                 f'"trait:<prefix>"')
    return policies


def add_levels(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the options for a policy, or for levels of domains instead.

    :param text: help text of ``--level``.
    """
    add_policies(parser).add_argument(
        '--level', action=actions.LevelAction, dest='levels',
        metavar='by=<domain>,policy=<policy>[,segment=<number>]', help=text)


def add_uuid(parser: argparse.ArgumentParser, title: str, resource: str,
             option: str = '--uuid') -> None:
    """Add the option for the UUID of a new resource."""
    parser.add_argument(
        option, metavar='<uuid>',
        help=f'{title} (default: generated). Repeating a request with the '
             f'same UUID returns the same {resource}')


def read_policy(args: argparse.Namespace) -> client.Data:
    """Return the policy or the levels in the options.

    :returns: keys of a request; empty without a policy.
    """
    if getattr(args, 'levels', None):
        return {'levels': args.levels}
    for name in _POLICIES:
        by = getattr(args, name.replace('-', '_'))
        if by is not None:
            return {'policy': name, 'by': by}
    return {}


def build_request_spec(cmd: command.Command, args: argparse.Namespace,
                       server: client.Data | None = None) -> client.Data:
    """Return the request spec of the flavor, the image and the options.

    The options take precedence.

    :param server: request spec of a server, which all of them override.
    :raises: CommandError.
    """
    spec = dict(server or {})
    if args.flavor:
        spec.update(_read_flavor(cmd, args.flavor))
    if args.image:
        spec['image'] = build_image(cmd, args.image)
    spec |= select_values(args, *(key for key, *_ in _SIZES.values()),
                          'resource_class', 'conductor_group', 'shard',
                          'candidate_nodes', 'ownership')
    specs = _build_extra_specs(args, spec.pop('extra_specs', {}))
    if specs:
        spec['extra_specs'] = specs
    if args.ordered and not names.list_candidates(spec):
        raise exceptions.CommandError(
            '--ordered requires candidate nodes: give --candidate-node')
    # The API decides whether the other keys are sufficient. A claim needs
    # none.
    if not (spec.keys() - _NO_CONSTRAINT or getattr(args, 'claim', None)):
        argument = 'a server, ' if 'server' in args else ''
        raise exceptions.CommandError(
            f'Nothing constrains the node: give {argument}--flavor, '
            f'--resource-class, --ram, --vcpus, --disk, --trait, '
            f'--capability, --candidate-node, --image or --property')
    return spec


def build_owner(cmd: command.Command,
                args: argparse.Namespace) -> client.Data:
    """Return the keys of a request for the owner and the lease.

    :raises: CommandError.
    """
    return {**select_new_values(args, *CHANGEABLE),
            **identity.find_ids(cmd, args, 'project', 'user')}


def select_values(args: argparse.Namespace, *names: str) -> client.Data:
    """Return the options with these names that have a value."""
    return {name: getattr(args, name) for name in names
            if getattr(args, name) is not None}


def select_new_values(args: argparse.Namespace, *names: str) -> client.Data:
    """Return the options that set values of a new resource.

    An empty text, which removes the value of an existing one, is left out.
    """
    return {name: value for name, value in select_values(args, *names).items()
            if value != ''}


def _read_flavor(cmd: command.Command, ident: str) -> client.Data:
    """Return the keys of the request spec for a flavor."""
    flavor = client.find_resource(cmd, 'compute', 'flavor', ident,
                                  get_extra_specs=True)
    return {**build_flavor_spec(flavor), 'rxtx_factor': flavor.rxtx_factor,
            'name': flavor.name, 'flavorid': flavor.id}


def build_flavor_spec(flavor: Mapping[str, Any],
                      root_disk: bool = True) -> client.Data:
    """Return the sizes and extra specs of a flavor, as keys of a request.

    :param flavor: Flavor of the SDK, or the flavor in a server of Nova's API.
    :param root_disk: False for a server that was booted from a volume.
    """
    return {'memory_mb': flavor['ram'], 'vcpus': flavor['vcpus'],
            'root_gb': flavor['disk'] if root_disk else 0,
            'ephemeral_gb': flavor['ephemeral'] or 0,
            'swap': flavor['swap'] or 0,
            'extra_specs': dict(flavor.get('extra_specs') or {})}


def build_image(cmd: command.Command, ident: str) -> client.Data:
    """Return the value of the request spec's key ``image``."""
    image = client.find_resource(cmd, 'image', 'image', ident)
    # The SDK turns the properties with Nova's older names into attributes.
    # A property with the newer name takes precedence, as in Nova.
    properties = {'hw_architecture': image.architecture,
                  'img_hv_type': image.hypervisor_type,
                  **(image.properties or {})}
    # Properties such as descriptions may have any length. The API refuses
    # long values, and matches none of these properties, so they are left out.
    return {'id': image.id,
            'properties': {name: str(value)
                           for name, value in properties.items()
                           if value is not None
                           and len(str(value)) <= _MAX_LENGTH},
            'min_ram': image.min_ram, 'min_disk': image.min_disk}


def _build_extra_specs(args: argparse.Namespace,
                       flavor: Mapping[str, str]) -> dict[str, str]:
    """Return the extra specs of a flavor, overridden by the options."""
    traits = {**dict.fromkeys(args.trait, 'required'),
              **dict.fromkeys(args.forbidden_trait, 'forbidden')}
    capabilities = _parse_capabilities(args.capability)
    for name in {*args.trait} & {*args.forbidden_trait}:
        raise exceptions.CommandError(
            f'--trait {name} contradicts --forbidden-trait {name}: give one '
            f'of them')
    _check_disk(args, flavor)
    constraints = {
        *((key, '') for key in extra_specs.KEYS
          if getattr(args, key) is not None),
        *(('trait', name) for name in traits),
        *(('capability', name) for name in capabilities)}
    # Both override a flavor, but neither may drop a part of the other.
    for key, value in args.property.items():
        option = _find_contradiction(key, value, args, traits, capabilities)
        if option:
            raise exceptions.CommandError(
                f'--property {key}={value} contradicts {option}: give one of '
                f'them')
    specs = {**{key: value for key, value in flavor.items()
                if key == 'capabilities' or constraints.isdisjoint(
                    (kind, name) for kind, name, _
                    in extra_specs.read_constraints(key, value))},
             **args.property}
    # One key may also name several capabilities: "a,b:c".
    together = [item for item in specs.pop('capabilities', '').split(',')
                if item and ('capabilities' in args.property
                             or item.partition(':')[0].strip()
                             not in capabilities)]
    for name, expression in capabilities.items():
        if expression is None:
            together.append(name)
        else:
            specs[f'capabilities:{name}'] = expression
    if together:
        specs['capabilities'] = ','.join(together)
    specs.update({f'trait:{name}': word for name, word in traits.items()})
    if args.match:
        specs['reservations:match'] = args.match
    if args.ordered:
        specs['reservations:candidates'] = 'ordered'
    return specs


def _check_disk(args: argparse.Namespace, flavor: Mapping[str, str]) -> None:
    """Refuse options for a part of a disk whose total the flavor overrides.

    :param flavor: its extra specs.
    """
    options = [f'--{name}' for name in ('ephemeral', 'swap')
               if getattr(args, _SIZES[name][0]) is not None]
    totals = [f'{key}={value}' for key, value in flavor.items()
              if extra_specs.KEYS['root_gb'].fullmatch(key)]
    if options and totals and args.root_gb is None:
        raise exceptions.CommandError(
            f'{options[0]} contradicts {totals[0]} of the flavor, which is '
            f'the total of all disks: give --disk, too')


def _find_contradiction(key: str, value: str, args: argparse.Namespace,
                        traits: Mapping[str, str],
                        capabilities: Mapping[str, str | None]) -> str | None:
    """Return the option that a ``--property`` contradicts, or None.

    :param traits: ``required`` or ``forbidden`` by trait, from the options.
    :param capabilities: values by name, from the options.
    """
    if key == 'reservations:match' and args.match not in (None, value):
        return f'--match {args.match}'
    sizes = {size: option for option, (size, *_) in _SIZES.items()}
    for kind, name, text in extra_specs.read_constraints(key, value):
        if kind in sizes and getattr(args, kind) is not None:
            return f'--{sizes[kind]}'
        if kind == 'trait' and traits.get(name, text) != text:
            prefix = 'forbidden-' * (traits[name] == 'forbidden')
            return f'--{prefix}trait {name}'
        if (kind == 'capability' and text is not None
                and capabilities.get(name.strip()) not in (None, text)):
            return f'--capability {name}={capabilities[name.strip()]}'
    return None


def _parse_capabilities(texts: list[str]) -> dict[str, str | None]:
    """Parse ``<name>`` and ``<name>=<value>``; return values by name."""
    capabilities: dict[str, str | None] = {}
    for text in texts:
        match = re.fullmatch(r'([^\s=:,<>!]+)(?:[=:](.*))?', text, re.DOTALL)
        if not match:
            raise exceptions.CommandError(
                f'capability "{text}" must be <name> or <name>=<value>, such '
                f'as "gpus=>= 4"')
        if match[1] in capabilities:
            raise exceptions.CommandError(
                f'--capability {match[1]} is given more than once')
        capabilities[match[1]] = match[2]
    return capabilities
