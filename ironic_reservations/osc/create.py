# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation create``."""

import difflib
import json
import re

from ironicclient import exc
from osc_lib import exceptions
from oslo_utils import uuidutils
import tenacity

from ironic_reservations.osc import client
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import reservation


class CreateReservation(output.ShowOne):
    """Reserve a node that matches a request.

    The request needs at least a size, a resource class, a candidate node or
    an extra spec, or a flavor that has them. Of the nodes that match, the
    one that fits best is held for the instance.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        options.add_options(parser)
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
        options.add_policies(parser)
        return parser

    def take_action(self, parsed_args):
        instance = parsed_args.instance_uuid or uuidutils.generate_uuid()
        group = options.policy(parsed_args)
        if group and parsed_args.group is None:
            raise exceptions.CommandError(
                f'--{group["policy"]} is the policy of a group: name it with '
                f'--group')
        body = {'instance_uuid': instance,
                **options.spec(self, parsed_args),
                **options.envelope(self, parsed_args)}
        if parsed_args.claim is not None:
            body['claim'] = parsed_args.claim
        if parsed_args.group is not None:
            body['group'] = {'uuid': parsed_args.group, **group}
        if parsed_args.dry_run:
            return dry_run(self, client.PATH, body)
        with client.remembered(self, 'instance', instance, 'show'):
            return reservation.display(hold(self, client.PATH, body))


def hold(cmd, url, body):
    """POST a request to hold nodes.

    If no node matches, the reason is printed as a table.

    :returns: the answer's data.
    :raises: exc.ClientException.
    """
    try:
        return _post(cmd, url, body)
    except exc.ClientException as error:
        if getattr(error, 'http_status', None) == 422:
            why = json.loads(error.response.content).get('explanation')
            if why:
                print(output.explanation(why).human_readable(),
                      file=cmd.app.stderr)
                _say_what_was_meant(cmd, body)
        raise


def _say_what_was_meant(cmd, body, **kwargs):
    """Say which class or trait has a name like one that no node has."""
    spec = body.get('request', body)
    specs = [key.partition(':')[::2] for key, word in spec.get(
        'extra_specs', {}).items() if str(word) not in ('0', 'forbidden')]
    classes = {name for kind, name in specs if kind.startswith('resources')
               and name.startswith('CUSTOM_')}
    if spec.get('resource_class'):
        classes.add(spec['resource_class'])
    traits = {name.removeprefix('trait:') for kind, name in specs
              if kind.startswith('trait') or name.startswith('trait:')}
    if not classes | traits:
        return
    try:
        found = client.request(cmd, 'GET', f'{client.PATH}/capacity',
                               **kwargs)['capacity']
    except exc.ClientException:
        return  # The user may not see it.
    for kind, asked, known in (
            ('resource class', classes, {each['resource_class'] or ''
                                         for each in found}),
            ('trait', traits, {trait for each in found
                               for trait in each['traits']})):
        alike = {_normalized(name): name for name in known}
        for name in sorted(asked):
            near = difflib.get_close_matches(_normalized(name), alike, 1, 0.8)
            if near and _normalized(name) not in alike:
                print(f'No node has the {kind} {name}. Did you mean '
                      f'{alike[near[0]]}?', file=cmd.app.stderr)


def _normalized(name):
    """Return a resource class or a trait as Placement names it."""
    name = re.sub('[^A-Z0-9]', '_', name.upper())
    return name if name.startswith(('CUSTOM_', 'HW_', 'COMPUTE_')
                                   ) else f'CUSTOM_{name}'


def _is_locked(error):
    """Whether an error means that nodes match, but all of them are locked.

    The server answers this with 422 and the header Retry-After.
    """
    return (getattr(error, 'http_status', None) == 422
            and error.response.retry_after is not None)


@tenacity.retry(retry=tenacity.retry_if_exception(_is_locked),
                stop=tenacity.stop_after_delay(5),
                wait=tenacity.wait_fixed(1), reraise=True)
def _post(cmd, url, body):
    return client.request(cmd, 'POST', url, body=body)


def dry_run(cmd, url, body, **kwargs):
    """Return columns and values that say what a request would find.

    :param kwargs: arguments of the request, such as another ``auth``.
    """
    found = client.request(cmd, 'POST', f'{url}?dry_run=true', body=body,
                           **kwargs)
    if not found['matching_nodes']:
        _say_what_was_meant(cmd, body, **kwargs)
    shown = {
        'matching_nodes': lambda number: number,
        'members': lambda members: output.Text(
            members, '{wanted} wanted, {available} can be held'.format(
                **members)),
        'domains': output.domains,
        'profiles': output.profiles,
        'explanation': output.explanation}
    # Only a group has members and domains.
    names = [name for name in shown if name in found]
    return names, [shown[name](found[name]) for name in names]
