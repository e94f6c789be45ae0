# SPDX-License-Identifier: Apache-2.0
"""The calls below /v1/reservations/groups."""

import hashlib
import json

from oslo_utils import uuidutils

from ironic_reservations import exception
from ironic_reservations.api import answers
from ironic_reservations.api import bodies
from ironic_reservations.api import checks
from ironic_reservations.api import markers
from ironic_reservations.api import queries
from ironic_reservations.api import requests
from ironic_reservations.api import types
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quota


def create():
    """POST /v1/reservations/groups"""
    query, caller = requests.query(queries.dry_run), requests.caller()
    caller.authorize('create')
    body = requests.body(bodies.create_group)
    matcher, request = _wanted(caller, body)
    if checks.is_true(query, 'dry_run'):
        return answers.dry_run(dry_runs.dry_run(
            matcher, request.quota, request.group, len(request.instances)))
    group, created = groups.create(matcher, request)
    answers.say_created(created, answers.url(f'/groups/{group.uuid}'))
    return _present(group, more=answers.ignored(matcher.spec))


def _wanted(caller, body):
    """Read out of a body which nodes are wanted, and for whom.

    :returns: matching.Matcher, which decides whether a node will do, and
        obtain.Request.
    """
    owner = requests.owner(caller, body)
    restricted_to = caller.restricted_to('create_restricted')
    lease = requests.lease(restricted_to, body)
    with checks.inside('request'):
        matcher = requests.matcher(
            caller, restricted_to, owner, body['request'])
    members = checks.members(body['members'])
    uuid = (body.get('uuid') or uuidutils.generate_uuid()).lower()
    wanted = requests.group(body, uuid, owner)
    instances = (members if isinstance(members, list) else
                 [uuidutils.generate_uuid() for _ in range(members)])
    return matcher, obtain.Request(
        tuple(instances), owner, lease, group=wanted,
        digest=_digest(members, matcher.spec), quota=quota.of(restricted_to))


def _digest(members, spec):
    """What tells a request for a group from all others, a short text.

    :param members: how many are asked for, or their instances.
    :param spec: request_spec.RequestSpec.
    """
    return hashlib.sha256(json.dumps(
        [members, spec.canonical]).encode()).hexdigest()


def find():
    """GET /v1/reservations/groups"""
    query, caller = requests.query(queries.find_groups), requests.caller()
    caller.authorize('list')
    limit = answers.limit(query)
    restricted_to = caller.restricted_to('list_all')
    after = markers.decode(
        query.get('marker'), 'groups', [int],
        lambda uuid: [groups.find_marker(uuid, restricted_to)])
    found = groups.find(limit + 1, restricted_to, after and after[0],
                        answers.MAX_PAGE)
    return answers.page('groups', found, limit, _present_listed,
                        lambda last: markers.encode('groups', [last.id]),
                        '/groups')


def show(uuid):
    """GET /v1/reservations/groups/{uuid}"""
    marker = requests.query(queries.show_group).get('marker')
    group = groups.get(uuid, _authorizer(requests.caller(), 'get'))
    return _present(group, marker)


def delete(uuid):
    """DELETE /v1/reservations/groups/{uuid}"""
    requests.query(queries.nothing)
    caller = requests.caller()
    group_releases.release(uuid, _authorizer(caller, 'delete'),
                           restricted=not caller.may('create_restricted'))
    answers.no_content()


def _authorizer(caller, rule):
    return requests.authorizer(
        caller, rule, lambda found: groups.not_found(found.uuid))


def _present(group, marker=None, more=None):
    """A group with its members as JSON, a dict.

    :param marker: where the page before ended: see ``markers``.
    :param more: what the answer has as well, a dict.
    :raises: InvalidInput when there is no such member.
    """
    def look_up(uuid):
        for member in group.members:
            if member.instance_uuid == uuid:
                return [member.node_id]
        raise exception.InvalidInput(
            'marker', 'must be the instance UUID of a member')

    after = markers.decode(marker, group.uuid, [int], look_up)
    members = [member for member in group.members
               if after is None or member.node_id > after[0]]
    page = types.present(types.Group, group) | (more or {})
    page['reservations'] = shown = answers.fitting(
        members, lambda each: answers.reservation(each, types.LISTED),
        answers.MAX_PAGE - answers.length(more or {}))
    if len(members) > len(shown):
        last = markers.encode(group.uuid, [members[len(shown) - 1].node_id])
        page['next'] = answers.url(f'/groups/{group.uuid}?marker={last}')
    return page


def _present_listed(group):
    """A membership.Group as JSON, a dict."""
    shown = types.present(types.ListedGroup, group)
    # One group cannot be told in several answers.
    return shown | {'domains': answers.fitting(shown['domains'])}
