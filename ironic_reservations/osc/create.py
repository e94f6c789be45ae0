# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation create``."""

import json

from ironicclient import exc
from osc_lib import exceptions
from oslo_utils import uuidutils
import tenacity

from ironic_reservations.osc import client
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import reservation
from ironic_reservations.osc import suggestions


class CreateReservation(output.ShowOne):
    """Reserve a node that matches a request.

    The request must constrain the node, at least by a size, a resource class,
    a trait, a capability, a candidate node or an image, or take a flavor that
    does. Of the nodes that match, the one that fits best is held for the
    instance.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        options.add_options(parser)
        parser.add_argument(
            '--instance-uuid', metavar='<uuid>',
            help='Instance UUID (default: generated). Repeating a request '
                 'with the same UUID returns the same reservation')
        parser.add_argument(
            '--claim', metavar='<uuid>',
            help='Take over the node of the reservation of this instance, or '
                 'one of this group, which no compute service holds')
        parser.add_argument(
            '--group', metavar='<uuid>',
            help='Group to join; requires the same policy option as the first '
                 'member')
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
                **options.request_spec(self, parsed_args),
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

    :returns: the response's data.
    :raises: exc.ClientException.
    """
    try:
        answer = _post(cmd, url, body)
    except exc.BadRequest:
        suggestions.suggest_key(cmd, suggestions.group_key(body))
        raise
    except exc.ClientException as error:
        if getattr(error, 'http_status', None) == 422:
            _explain(cmd, body, json.loads(error.response.content))
        raise
    suggestions.report_ignored(cmd, answer)
    # A single candidate exists, because it was held.
    if len(body.get('request', body).get('candidate_nodes', ())) > 1:
        suggestions.report_candidates(cmd, body)
    return answer


def _explain(cmd, body, refusal):
    """Print why no node matches.

    :param refusal: data of the response with status 422.
    """
    if refusal.get('explanation'):
        print(output.explanation(refusal['explanation']).human_readable(),
              file=cmd.app.stderr)
        suggestions.report_unknown(cmd, body)
        suggestions.report_candidates(cmd, body)
    suggestions.report_ignored(cmd, refusal)


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
    """Return columns and values that show what a request would find.

    The exit status of the command is set to 1 if nothing matches, or not all
    members of a group.

    :param kwargs: arguments of the request, such as another ``auth``.
    """
    try:
        answer = client.request(cmd, 'POST', f'{url}?dry_run=true', body=body,
                                **kwargs)
    except exc.BadRequest:
        suggestions.suggest_key(cmd, suggestions.group_key(body), **kwargs)
        raise
    members = answer.get('members', {'wanted': 1, 'available':
                                     answer['matching_nodes']})
    if members['available'] < members['wanted']:
        cmd.status = 1
        suggestions.report_unknown(cmd, body, **kwargs)
    suggestions.report_candidates(cmd, body, **kwargs)
    suggestions.report_ignored(cmd, answer)
    columns = {
        'matching_nodes': lambda number: number,
        'members': lambda members: output.Text(
            members, '{wanted} wanted, {available} can be held'.format(
                **members)),
        'domains': output.domains,
        'profiles': output.profiles,
        'explanation': output.explanation}
    # Only a group has members and domains.
    names = [name for name in columns if name in answer]
    return names, [columns[name](answer[name]) for name in names]
