# SPDX-License-Identifier: Apache-2.0
"""Handles requests for groups: /v1/reservations/groups."""

import collections
import hashlib
import itertools
import json
from typing import Any

from oslo_utils import uuidutils
from wsme import types as wtypes

from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.api import markers
from ironic_reservations.api import patches
from ironic_reservations.api import requests
from ironic_reservations.api import resources
from ironic_reservations.api import responses
from ironic_reservations.api import schema
from ironic_reservations.api import specs
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import group_updates
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quotas

LIST_QUERY = schema.query_validator(
    limit=schema.POSITIVE, marker=schema.MARKER)
CREATE_QUERY = schema.query_validator(dry_run=schema.BOOLEAN)
PATCH_BODY = patches.make_body(
    name for name in specs.CHANGEABLE if name != 'host')
SHOW_QUERY = schema.query_validator(marker=schema.MARKER)

CREATE_BODY = schema.Validator(schema.closed_object({
    'uuid': schema.UUID_OR_NULL,
    # _read_members() checks [reservations] max_members. The maximum of that
    # option limits how many UUIDs are validated.
    'members': {'type': ['integer', 'array'], 'minimum': 1,
                'maximum': request_spec.MAX_INT, 'minItems': 1,
                'maxItems': conf.MOST_MEMBERS, 'items': schema.UUID},
    **specs.NODES,
    **{name: specs.ENVELOPE[name]
       for name in (*specs.CHANGEABLE, 'project_id', 'user_id')},
}, required=['members', 'request']), 'body')


class Group(wtypes.Base):
    """A group; see ``values.Group``."""

    uuid = wtypes.text
    policy = responses.Json(**schema.POLICY)
    by = responses.NULLABLE_TEXT
    # Only of a group with segments. In a list also their number.
    levels = responses.LEVELS
    segments = responses.COUNT
    project_id = responses.NULLABLE_TEXT
    description = responses.NULLABLE_TEXT
    created_at = responses.Time()
    # Number of members by the health of their nodes.
    health = responses.HEALTH
    # Only in a list: the number of members, and the number in each domain.
    members = responses.COUNT
    domains = responses.DOMAINS
    # Only of a single group: a page of its members.
    reservations = [resources.Reservation]
    next = wtypes.text


def create_group() -> dict[str, Any]:
    """POST /v1/reservations/groups"""
    query, caller = requests.read_query(CREATE_QUERY), requests.get_caller()
    caller.authorize('create')
    body = requests.read_body(CREATE_BODY)
    matcher, request = _read_request(caller, body)
    if requests.is_true(query, 'dry_run'):
        return resources.present_dry_run(dry_runs.dry_run(
            matcher, request.limits, request.group, len(request.instances)))
    group, is_new = groups.create_group(matcher, request)
    responses.set_created(
        is_new, responses.make_url(f'/groups/{group.uuid}'))
    return _present_group(group, more=responses.show_ignored(matcher.spec))


def _read_request(
        caller: context.RequestContext,
        body: dict[str, Any]) -> tuple[matching.Matcher, obtain.Request]:
    """Return the Matcher of the nodes in a body, and the request."""
    # Each member has the same owner; the rest of the purpose is the group's.
    assignment = specs.read_permitted_assignment(
        caller, {key: body.get(key) for key in specs.OWNER})
    reach = caller.get_reach('create_restricted')
    lease = specs.read_lease(reach, body)
    with requests.prefix_field('request'):
        matcher = specs.make_matcher(
            reach, assignment.project_id, body['request'])
    members = _read_members(body['members'])
    uuid = (body.get('uuid') or uuidutils.generate_uuid()).lower()
    instances = (members if isinstance(members, list) else
                 [uuidutils.generate_uuid() for _ in range(members)])
    levels = body.get('levels')
    group = specs.read_group(body, uuid, assignment.project_id)
    if levels is not None:
        group = specs.read_levels(levels, group, len(instances))
    return matcher, obtain.Request(
        tuple(instances), assignment, lease, group=group,
        digest=_compute_digest(members, matcher.spec.canonical),
        limits=quotas.read_limits(reach.project_id))


def _compute_digest(members: list[str] | int, spec: str) -> str:
    """Return a digest that identifies a request for a group.

    :param members: UUIDs of the instances, or their number.
    :param spec: canonical request spec.
    """
    return hashlib.sha256(json.dumps([members, spec]).encode()).hexdigest()


def list_groups() -> dict[str, Any]:
    """GET /v1/reservations/groups"""
    query, caller = requests.read_query(LIST_QUERY), requests.get_caller()
    caller.authorize('list')
    limit = responses.pop_limit(query)
    reach = caller.get_reach('list_all')
    after = markers.decode(
        query.get('marker'), 'groups', [int],
        lambda uuid: groups.find_position(uuid, reach), 'the UUID of a group')
    rows = groups.find_groups(limit + 1, reach,
                              after[0] if after else None, responses.MAX_PAGE)
    return responses.make_page(
        'groups', rows, limit, _present_in_list,
        lambda group: markers.encode('groups', [group.id]), '/groups')


def show_group(uuid: str) -> dict[str, Any]:
    """GET /v1/reservations/groups/{uuid}"""
    marker = requests.read_query(SHOW_QUERY).get('marker')
    group = groups.get_group(
        uuid, requests.make_authorizer(requests.get_caller(), 'get'))
    return _present_group(group, marker)


def update_group(uuid: str) -> dict[str, Any]:
    """PATCH /v1/reservations/groups/{uuid}"""
    requests.read_query(schema.NO_QUERY)
    caller = requests.get_caller()
    reach = caller.get_reach('create_restricted')
    changes = specs.read_changes(
        requests.read_body(PATCH_BODY), reach)
    return _present_group(group_updates.update_group(
        uuid, changes, requests.make_authorizer(caller, 'update'), reach))


def delete_group(uuid: str) -> None:
    """DELETE /v1/reservations/groups/{uuid}"""
    requests.read_query(schema.NO_QUERY)
    caller = requests.get_caller()
    group_releases.release_group(
        uuid, requests.make_authorizer(caller, 'delete'),
        caller.get_reach('create_restricted'))
    responses.set_no_content()


def _present_group(group: values.Group, marker: str | None = None,
                   more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a group and a page of its members as JSON.

    :param marker: marker of the last member of the previous page.
    :param more: further keys of the response.
    :raises: InvalidInput if the marker's member does not exist.
    """
    response = _present_group_alone(group, health=collections.Counter(
        member.health for member in group.members
        if member.health is not None)) | (more or {})
    return responses.add_page(
        response, 'reservations', group.members,
        lambda member: resources.present_reservation(
            member, resources.LIST_FIELDS),
        lambda member: (str(member.instance_uuid), member.node_id), marker,
        '/groups', 'the instance UUID of a member')


def _present_in_list(group: values.Group) -> dict[str, Any]:
    """Return a group with the numbers of its members as JSON."""
    levels = group_policy.find_levels(group)
    domains = [{'value': levels.show_domain(levels.split_domain(value)),
                'nodes': nodes} for value, nodes in sorted(
        group.domains.items(), key=lambda item: (-item[1], str(item[0])))]
    return _present_group_alone(
        group, members=group.domains.total(),
        # A group is never split between two pages.
        domains=responses.fit_rows(domains) if levels.keys else [],
        **({'segments': group.segments} if group.segments else {}))


def _present_group_alone(group: values.Group,
                         **more: Any) -> dict[str, Any]:
    """Return a group without its members as JSON."""
    if group.segment_levels is not None:
        more['levels'] = json.loads(group.segment_levels)
    return responses.make_json(Group, {
        name: value for name, value in vars(group).items()
        if name not in ('segments', 'members', 'domains')} | more)


def _read_members(members: list[str] | float) -> list[str] | int:
    """Return the instances of a new group.

    :param members: UUIDs of the instances, or their number.
    :returns: UUIDs in lower case, or the number of UUIDs to generate.
    :raises: InvalidInput if there are too many, or duplicates.
    """
    limit = conf.CONF.reservations.max_members
    number = len(members) if isinstance(members, list) else int(members)
    if number > limit:
        raise exception.InvalidInput(
            'members', f'must be at most {limit}, see [reservations] '
                       f'max_members; got {number}')
    if not isinstance(members, list):
        return number
    uuids = sorted(uuid.lower() for uuid in members)
    for uuid, following in itertools.pairwise(uuids):
        if uuid == following:
            raise exception.InvalidInput(
                'members', f'must not contain duplicates; got "{uuid}" twice')
    return uuids
