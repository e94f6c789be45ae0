# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation create``."""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import json
from typing import Any

from ironicclient import exc
from osc_lib import exceptions
from osc_lib.command import command
from oslo_utils import uuidutils
import tenacity

from ironic_reservations.osc import client
from ironic_reservations.osc import commands
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import reservation
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions
from ironic_reservations.osc import units


class CreateReservation(commands.ShowOne):
    """Reserve a node that matches a request.

    The request must constrain the node, at least by a size, a resource class,
    a trait, a capability, a candidate node or an image, or by a flavor that
    has one of these. The best fitting of the matching nodes is held for the
    instance.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        options.add_hold_options(parser)
        options.add_uuid(parser, 'Instance UUID', 'reservation',
                         '--instance-uuid')
        options.add_claim_option(parser)
        parser.add_argument(
            '--group', metavar='<uuid>',
            help='Group to join; requires the same policy option as the first '
                 'member, or --segment')
        options.add_policies(parser).add_argument(
            '--segment', type=units.parse_number, metavar='<number>',
            help='Number of the segment to join; it must lack a member')

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        instance = args.instance_uuid or uuidutils.generate_uuid()
        group = options.read_policy(args)
        if group and args.group is None:
            raise exceptions.CommandError(
                f'--{group["policy"]} is the policy of a group: name it with '
                f'--group')
        if args.segment is not None:
            if args.group is None:
                raise exceptions.CommandError(
                    '--segment is a part of a group: name it with --group')
            group = {'segment': args.segment}
        body = {'instance_uuid': instance,
                **options.build_request_spec(self, args),
                **options.build_owner(self, args)}
        if args.claim is not None:
            body['claim'] = args.claim
        if args.group is not None:
            body['group'] = {'uuid': args.group, **group}
        if args.dry_run:
            return show_dry_run(self, client.PATH, body, auth=auth)
        with client.report_lost_response(self, 'instance', instance,
                                         scope.add_option('show', auth)):
            return reservation.format_columns(
                reserve_nodes(self, client.PATH, body, auth=auth))


def reserve_nodes(cmd: command.Command, url: str, body: client.Data,
                  **kwargs: Any) -> client.Data:
    """POST a request to hold nodes.

    If no node matches, the reason is printed as a table.

    :param kwargs: arguments of the request, such as another ``auth``.
    :returns: data of the response.
    :raises: exc.ClientException.
    """
    try:
        with _add_hints(cmd, body, **kwargs):
            response = _send_request(cmd, url, body, **kwargs)
    except exc.ClientException as error:
        response = _get_refusal(error)
        if response is not None:
            _explain_refusal(cmd, body, json.loads(response.content),
                             **kwargs)
        raise
    suggestions.report_ignored(cmd, response)
    # A single candidate exists, because it was held.
    if len(body.get('request', body).get('candidate_nodes', ())) > 1:
        suggestions.report_candidates(cmd, body, **kwargs)
    return response


@contextlib.contextmanager
def _add_hints(cmd: command.Command, body: client.Data,
               **kwargs: Any) -> Iterator[None]:
    """Print hints if a request is refused: unknown keys, and the scope."""
    try:
        with suggestions.suggest_all_projects(
                cmd, **kwargs), _report_owner(cmd, body, **kwargs):
            yield
    except exc.BadRequest:
        for by in suggestions.list_group_keys(body):
            suggestions.suggest_key(cmd, by, **kwargs)
        raise


@contextlib.contextmanager
def _report_owner(cmd: command.Command, body: client.Data,
                  **kwargs: Any) -> Iterator[None]:
    """Replace the error if the group or the claim is another project's.

    :raises: CommandError, if the user may see the group.
    """
    try:
        yield
    except (exc.NotFound, exc.Conflict):
        ident = body.get('claim') or body.get('group', {}).get('uuid')
        if ident:
            _check_owner(
                cmd, ident.partition(':')[0], body.get('project_id')
                or scope.find_project(cmd, **kwargs), **kwargs)
        raise


def _check_owner(cmd: command.Command, uuid: str, project: str | None,
                 **kwargs: Any) -> None:
    """Refuse a group or a claim of another project.

    :param project: of the request.
    :raises: CommandError.
    """
    for collection in f'{client.PATH}/groups', client.PATH:
        with contextlib.suppress(exc.ClientException):
            owner = client.request_ironic(
                cmd, 'GET', client.build_path(collection, uuid),
                **kwargs)['project_id']
            if owner != project:
                raise exceptions.CommandError(
                    f'{uuid} belongs to project {owner}: add --project '
                    f'{owner}' if owner else
                    f'{uuid} belongs to no project: omit --project')


def _explain_refusal(cmd: command.Command, body: client.Data,
                     refusal: client.Data, **kwargs: Any) -> None:
    """Print why no node matches.

    :param refusal: data of the response with status 422.
    """
    if refusal.get('explanation'):
        if refusal['explanation']['considered']:
            column = output.format_explanation(refusal['explanation'])
            print(column.human_readable(), file=cmd.app.stderr)
        if 'segments' in refusal:
            column = output.format_available(refusal['segments'])
            level = refusal.get('level')
            print(f'Segments: {column.human_readable()}'
                  + (f', limited by {level}' if level else ''),
                  file=cmd.app.stderr)
        suggestions.report_unknown(cmd, body, **kwargs)
        suggestions.report_candidates(cmd, body, **kwargs)
    suggestions.report_ignored(cmd, refusal)


def _get_refusal(error: BaseException) -> Any:
    """Return the response 422 of Ironic, or None after another error."""
    return (getattr(error, 'response', None)
            if isinstance(error, exc.ClientException)
            and getattr(error, 'http_status', None) == 422 else None)


def _is_locked(error: BaseException) -> bool:
    """Return whether nodes match, but were locked or taken concurrently.

    The response is then 422 with the header Retry-After.
    """
    response = _get_refusal(error)
    return response is not None and response.retry_after is not None


@tenacity.retry(retry=tenacity.retry_if_exception(_is_locked),
                stop=tenacity.stop_after_delay(5),
                wait=tenacity.wait_fixed(1), reraise=True)
def _send_request(cmd: command.Command, url: str, body: client.Data,
                  **kwargs: Any) -> client.Data:
    data: client.Data = client.request_ironic(cmd, 'POST', url, body=body,
                                              **kwargs)
    return data


def show_dry_run(cmd: output.ShowOne, url: str, body: client.Data,
                 **kwargs: Any) -> tuple[list[str], list[Any]]:
    """Return columns and values of a dry run.

    The exit status of the command is set to 1 if no node matches, or too few
    for the members of a group.

    :param kwargs: arguments of the request, such as another ``auth``.
    """
    with _add_hints(cmd, body, **kwargs):
        response = client.request_ironic(
            cmd, 'POST', f'{url}?dry_run=true', body=body, **kwargs)
    members = response.get('members', {
        'wanted': 1, 'available': response['matching_nodes']})
    is_refused = members['available'] < members['wanted']
    if is_refused:
        cmd.status = 1
        suggestions.report_unknown(cmd, body, **kwargs)
    suggestions.report_candidates(cmd, body, **kwargs)
    suggestions.report_ignored(cmd, response)
    columns: dict[str, Callable[[Any], Any]] = {
        'matching_nodes': lambda number: number,
        'members': output.format_available,
        'segments': output.format_available,
        'level': lambda by: by,
        'domains': output.format_domains,
        'profiles': lambda rows: output.format_profiles(
            rows, 'claimable' if 'claim' in body else 'free'),
        'explanation': lambda explanation: output.format_explanation(
            explanation, with_nearest=is_refused)}
    # Only a group has members and domains, and some have segments.
    names = [name for name in columns if name in response]
    return names, [columns[name](response[name]) for name in names]
