# SPDX-License-Identifier: Apache-2.0
"""Groups of reservations: /v1/reservations/groups."""

import hashlib
import json

from oslo_utils import uuidutils
from wsme import types as wtypes

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.api import answers
from ironic_reservations.api import markers
from ironic_reservations.api import requests
from ironic_reservations.api import reservations
from ironic_reservations.api import schema
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quotas

LIST_QUERY = schema.query(limit=schema.positive, marker=schema.marker)
CREATE_QUERY = schema.query(dry_run=schema.boolean)
SHOW_QUERY = schema.query(marker=schema.marker)

CREATE_BODY = schema.Validator(schema.closed({
    'uuid': schema.uuid_or_null,
    # The maximum is [reservations] max_members: _members() checks it. No
    # more UUIDs than that option's own maximum are validated.
    'members': {'type': ['integer', 'array'], 'minimum': 1,
                'maximum': request_spec.MAX_INT, 'minItems': 1,
                'maxItems': conf.MOST_MEMBERS, 'items': schema.uuid},
    'policy': schema.policy,
    'by': schema.by,
    'request': {**reservations.REQUEST_SPEC, 'properties': reservations.omit(
        *request_spec.ENVELOPE, 'group')},
    **{name: reservations.REQUEST_SPEC['properties'][name] for name in
       ('host', 'project_id', 'user_id', 'expires_in')},
}, required=['members', 'request']), 'body')


class Group(wtypes.Base):
    """A group: a ``membership.Group``."""

    uuid = wtypes.text
    policy = wtypes.text
    by = wtypes.text
    project_id = wtypes.text
    created_at = answers.Time()
    # In a list: how many members there are, and where.
    members = int
    domains = answers.Json()
    # Of one group: a page of its members.
    reservations = answers.Json()
    next = wtypes.text


def create():
    """POST /v1/reservations/groups"""
    query, caller = requests.query(CREATE_QUERY), requests.caller()
    caller.authorize('create')
    body = requests.body(CREATE_BODY)
    matcher, request = _wanted(caller, body)
    if requests.is_true(query, 'dry_run'):
        return reservations.view_dry_run(dry_runs.dry_run(
            matcher, request.quota, request.group, len(request.instances)))
    group, created = groups.create_group(matcher, request)
    answers.say_created(created, answers.url(f'/groups/{group.uuid}'))
    return _present(group, more=answers.ignored(matcher.spec))


def _wanted(caller, body):
    """Read out of a body which nodes are wanted, and for whom.

    :returns: matching.Matcher, which decides whether a node will do, and
        obtain.Request.
    """
    assignment = requests.callers_assignment(caller, body)
    restricted_to = caller.restricted_to('create_restricted')
    lease = requests.lease(restricted_to, body)
    with requests.inside('request'):
        matcher = requests.matcher(
            caller, restricted_to, assignment.project_id, body['request'])
    members = _members(body['members'])
    uuid = (body.get('uuid') or uuidutils.generate_uuid()).lower()
    wanted = requests.group(body, uuid, assignment.project_id)
    instances = (members if isinstance(members, list) else
                 [uuidutils.generate_uuid() for _ in range(members)])
    return matcher, obtain.Request(
        tuple(instances), assignment, lease, group=wanted,
        digest=_digest(members, matcher.spec),
        quota=quotas.read_quota(restricted_to))


def _digest(members, spec):
    """What tells a request for a group from all others, a short text.

    :param members: how many are asked for, or their instances.
    :param spec: request_spec.RequestSpec.
    """
    return hashlib.sha256(json.dumps(
        [members, spec.canonical]).encode()).hexdigest()


def find():
    """GET /v1/reservations/groups"""
    query, caller = requests.query(LIST_QUERY), requests.caller()
    caller.authorize('list')
    limit = answers.limit(query)
    restricted_to = caller.restricted_to('list_all')
    after = markers.decode(
        query.get('marker'), 'groups', [int],
        lambda uuid: [groups.find_group_id(uuid, restricted_to)])
    found = groups.find_groups(limit + 1, restricted_to, after and after[0],
                        answers.MAX_PAGE)
    return answers.page('groups', found, limit, _present_in_list,
                        lambda last: markers.encode('groups', [last.id]),
                        '/groups')


def show(uuid):
    """GET /v1/reservations/groups/{uuid}"""
    marker = requests.query(SHOW_QUERY).get('marker')
    group = groups.get_group(uuid, _authorizer(requests.caller(), 'get'))
    return _present(group, marker)


def delete(uuid):
    """DELETE /v1/reservations/groups/{uuid}"""
    requests.query(schema.NO_QUERY)
    caller = requests.caller()
    group_releases.release_group(uuid, _authorizer(caller, 'delete'),
                           is_restricted=not caller.may('create_restricted'))
    answers.no_content()


def _authorizer(caller, rule):
    return requests.authorizer(
        caller, rule, lambda found: groups.make_not_found(found.uuid))


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
    page = _view(group) | (more or {})
    page['reservations'] = shown = answers.fitting(
        members,
        lambda member: reservations.view(member, reservations.LIST_FIELDS),
        answers.MAX_PAGE - answers.length(more or {}))
    if len(members) > len(shown):
        last = markers.encode(group.uuid, [members[len(shown) - 1].node_id])
        page['next'] = answers.url(f'/groups/{group.uuid}?marker={last}')
    return page


def _present_in_list(group):
    """Return a group with the numbers of its members as JSON, a dict."""
    domains = [{'value': value, 'nodes': nodes} for value, nodes in sorted(
        group.domains.items(), key=lambda item: (-item[1], str(item[0])))]
    return _view(group, members=group.domains.total(),
                 # A group is never split between two pages.
                 domains=answers.fitting(domains) if group.by else [])


def _view(group, **more):
    """Return what every response says about a group as JSON, a dict."""
    return answers.present(Group, {
        name: getattr(group, name)
        for name in ('uuid', 'policy', 'by', 'project_id', 'created_at')
    } | more)


def _members(members):
    """Return the instances for which nodes are to be held at once.

    :param members: the number of instances, or their UUIDs.
    :returns: list of UUIDs in lower case, or the number of UUIDs to generate.
    :raises: InvalidInput when there are too many, or two are equal.
    """
    most = conf.CONF.reservations.max_members
    number = len(members) if isinstance(members, list) else int(members)
    if number > most:
        raise exception.InvalidInput('members', f'must be at most {most}' + (
            ' UUIDs' if isinstance(members, list) else ''))
    if not isinstance(members, list):
        return number
    uuids = sorted({uuid.lower() for uuid in members})
    if len(uuids) < number:
        raise exception.InvalidInput('members',
                                     'must be UUIDs that differ')
    return uuids
