# SPDX-License-Identifier: Apache-2.0
"""Handles requests for reservations: /v1/reservations."""

from collections.abc import Callable
from collections.abc import Iterable
import datetime
import json
import re
from typing import Any

from oslo_utils import uuidutils
from wsme import types as wtypes

from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.api import capacity
from ironic_reservations.api import markers
from ironic_reservations.api import notices
from ironic_reservations.api import patches
from ironic_reservations.api import requests
from ironic_reservations.api import responses
from ironic_reservations.api import schema
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import claims
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import notice_lookup
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from ironic_reservations.shared import constants

LIST_QUERY = schema.query_validator(
    host=schema.IDENT,
    node=schema.IDENT,
    project_id=schema.IDENT,
    resource_class=schema.NAME,
    state={'enum': list(constants.STATES)},
    group=schema.UUID,
    expires_before=schema.NAME,
    fields=schema.NAME,
    limit=schema.POSITIVE,
    marker=schema.MARKER,
    sort_key=schema.SORT_KEY,
    sort_dir=schema.SORT_DIR,
)

CREATE_QUERY = schema.query_validator(
    dry_run=schema.BOOLEAN, adopt=schema.BOOLEAN)

#: The query of POST ?adopt=true.
ADOPT_QUERY = schema.query_validator(adopt=schema.BOOLEAN)

SHOW_QUERY = schema.query_validator(fields=schema.NAME)

#: The query of PATCH and DELETE.
WRITE_QUERY = schema.query_validator(host=schema.IDENT, holder=schema.UUID)

#: Schemas of the keys that PATCH can change.
CHANGEABLE: dict[str, Any] = {
    'host': schema.IDENT_OR_NULL,
    # requests.read_lease() checks [reservations] max_lease, the maximum.
    'expires_in': {**schema.INTEGER, 'minimum': 1},
    'description': schema.nullable_text(),
}

#: Maximum number of nodes that a request avoids.
MAX_AVOIDED = 16

#: Schemas of the keys of a body that are not in the request spec. Requests
#: that differ only in these are equal.
ENVELOPE: dict[str, Any] = {
    **CHANGEABLE,
    'instance_uuid': schema.UUID_OR_NULL,
    'project_id': schema.IDENT_OR_NULL,
    'user_id': schema.IDENT_OR_NULL,
    'holder': schema.UUID_OR_NULL,
    'claim': schema.CLAIM,
    'avoid': {'type': ['array', 'null'], 'maxItems': MAX_AVOIDED,
              'items': schema.NAME},
}

REQUEST_SPEC: dict[str, Any] = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        **ENVELOPE,
        'memory_mb': schema.INTEGER,
        'vcpus': schema.INTEGER,
        'root_gb': schema.INTEGER,
        'ephemeral_gb': schema.INTEGER,
        'swap': schema.INTEGER,
        'vcpu_weight': schema.INTEGER,
        'rxtx_factor': schema.NUMBER,
        'name': schema.nullable_text(),
        'flavorid': schema.nullable_text(),
        'extra_specs': schema.text_map(1024),
        'image': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'properties': {
                'id': schema.nullable_text(),
                'properties': schema.text_map(1024),
                'min_ram': schema.INTEGER,
                'min_disk': schema.INTEGER,
            },
        },
        'resource_class': schema.nullable_text(minLength=1),
        'conductor_group': schema.nullable_text(),
        'shard': schema.nullable_text(),
        'candidate_nodes': {
            'type': ['array', 'null'], 'minItems': 1,
            'maxItems': request_spec.MAX_CANDIDATES, 'items': schema.IDENT,
        },
        'ownership': {'enum': [*constants.OWNERSHIPS, None]},
        'group': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'required': ['uuid'],
            'properties': {'uuid': schema.UUID, 'policy': schema.POLICY,
                           'by': schema.BY, 'segment': schema.INTEGER},
        },
    },
}


def omit_keys(*names: str) -> dict[str, Any]:
    """Return the schemas of the keys of a request spec without some keys."""
    return {name: value for name, value in REQUEST_SPEC['properties'].items()
            if name not in names}


CREATE_BODY = schema.Validator(REQUEST_SPEC, 'body')

#: The body of POST ?adopt=true.
ADOPT_BODY = schema.Validator({
    **REQUEST_SPEC, 'required': ['instance_uuid'],
    'properties': {**omit_keys('expires_in', 'claim', 'avoid'),
                   'instance_uuid': schema.UUID}}, 'body')


PATCH_BODY = patches.make_body(CHANGEABLE)

PATCH_VALUES = patches.make_values(CHANGEABLE)


class Reservation(wtypes.Base):
    """A node held for an instance; see ``values.Reservation``."""

    instance_uuid = wtypes.text
    node_uuid = wtypes.text
    node_name = responses.NULLABLE_TEXT
    host = responses.NULLABLE_TEXT
    state = responses.Json(enum=[*constants.STATES])
    provision_state = wtypes.text
    resource_class = responses.NULLABLE_TEXT
    health = responses.NULLABLE_TEXT
    maintenance = bool
    project_id = responses.NULLABLE_TEXT
    user_id = responses.NULLABLE_TEXT
    request_spec = responses.Json(
        type='object', properties=omit_keys(*ENVELOPE))
    # Only of a member of a group; levels and segment only with segments.
    group = responses.Json(
        type='object', required=['uuid', 'policy', 'by', 'domain'],
        properties={
            'uuid': schema.UUID, 'policy': schema.POLICY, 'by': schema.BY,
            'levels': responses.LEVELS.schema, 'domain': responses.DOMAIN,
            'segment': {'type': ['integer', 'null']}})
    expires_at = responses.NULLABLE_TIME
    description = responses.NULLABLE_TEXT
    created_at = responses.Time()
    updated_at = responses.NULLABLE_TIME
    # The planned and the open ones of the node, and the number of others. In
    # lists and groups only if requested.
    notices = [notices.Notice]
    more_notices = responses.COUNT
    links = responses.Json(type='array', items=responses.whole_object(
        href={'type': 'string', 'format': 'uri'}, rel={'type': 'string'}))


# The number of other notices is always next to the notices.
FIELDS = tuple(attribute.name
               for attribute in wtypes.list_attributes(Reservation)
               if attribute.name != 'more_notices')

#: Default fields of reservations in lists and groups. A request spec, or all
#: notices, may be a thousand times as long as all other fields.
LIST_FIELDS = tuple(name for name in FIELDS
                    if name not in ('request_spec', 'notices'))

# Fields that are computed from attributes of a values.Reservation: a function,
# and the attributes that it reads. All other fields are attributes.
_COMPUTED: dict[str, tuple[Callable[[values.Reservation], Any],
                           tuple[str, ...]]] = {
    'state': (lambda reservation: reservation.state, ('provision_state',)),
    'request_spec': (
        lambda reservation: json.loads(
            reservation.request_spec),  # type: ignore[arg-type]  # was read
        ('request_spec',)),
    'group': (
        lambda reservation: present_membership(reservation),
        ('group_uuid', 'group_policy', 'group_by', 'group_segment_levels',
         'domain', 'segment')),
    'maintenance': (lambda reservation: bool(reservation.maintenance),
                    ('maintenance',)),
    # Only a reserved node has an expiry time.
    'expires_at': (lambda reservation: reservation.effective_expiry,
                   ('expires_at', 'provision_state')),
    'links': (lambda reservation: [{
        'href': responses.make_url(f'/{reservation.instance_uuid}'),
        'rel': 'self'}], ('instance_uuid',)),
}


def present_membership(reservation: values.Reservation) -> dict[str, Any]:
    """Return the group of a reservation as JSON."""
    group = {'uuid': reservation.group_uuid,
             'policy': reservation.group_policy, 'by': reservation.group_by}
    if reservation.group_segment_levels is None:
        return group | {'domain': reservation.domain}
    return group | {
        'levels': json.loads(reservation.group_segment_levels),
        'domain': json.loads(reservation.domain or 'null'),
        'segment': reservation.segment}


class DryRun(wtypes.Base):
    """The result of a dry run; see ``dry_runs.dry_run``."""

    matching_nodes = responses.COUNT
    profiles = [capacity.Profile]
    explanation = responses.EXPLANATION
    # Only for a new group.
    members = responses.ROOM
    domains = responses.DOMAINS
    # Only for a new group with segments; the level only if there are too few.
    segments = responses.ROOM
    level = wtypes.text
    # Only if nothing but the quota prevents the hold.
    quota = responses.QUOTA
    # Only if there are extra specs that are not compared with nodes.
    ignored = responses.TEXTS


def create_reservation() -> dict[str, Any]:
    """POST /v1/reservations: hold, dry run, claim or adopt a node."""
    query, caller = requests.read_query(CREATE_QUERY), requests.get_caller()
    if requests.is_true(query, 'adopt'):
        ADOPT_QUERY(query)
        return _adopt_node(caller)
    caller.authorize('create')
    body = requests.read_body(CREATE_BODY)
    matcher, request = _read_request(caller, body)
    dry_run, claim = requests.is_true(query, 'dry_run'), body.get('claim')
    if claim is not None and request.group is not None:
        raise exception.InvalidInput(
            'claim', 'cannot be combined with group')
    uuid, _, segment = (claim or '').lower().partition(':')
    try:
        if claim is not None:
            more = (_make_authorizer(caller, 'delete'),
                    int(segment) if segment else None)
            if dry_run:
                return present_dry_run(claims.dry_run(
                    uuid, matcher, request.assignment.project_id, *more))
            return _respond(caller, matcher.spec, *claims.claim_reservation(
                uuid, matcher, request, *more))
        if dry_run:
            return present_dry_run(dry_runs.dry_run(
                matcher, request.limits, request.group))
        return _respond(
            caller, matcher.spec, *holds.hold_node(matcher, request))
    except exception.NotFound:
        _check_project(caller, request, uuid or (
            request.group.uuid if request.group else ''))
        raise


def _check_project(caller: context.RequestContext, request: obtain.Request,
                   uuid: str) -> None:
    """Raise another error if a missing group belongs to another project.

    Callers without a project read which one they have to name. A compute
    service names that of its user, who must not learn what others have.

    :param uuid: a group or a reservation.
    :raises: NotFound.
    """
    if request.project_id is not None or not caller.may('create_restricted'):
        return
    for kind, find in (('Group', groups.get_group),
                       ('Reservation', lookup.get_reservation)):
        try:
            target = find(uuid)
        except exception.NotFound:
            continue
        if (target.project_id not in (None, request.assignment.project_id)
                and caller.may('get', target)):
            raise exception.NotFound(
                f'{kind} {uuid} belongs to another project, '
                f'{target.project_id}: name it with project_id (--project in '
                f'the command).')


def _read_request(
        caller: context.RequestContext,
        body: dict[str, Any]) -> tuple[matching.Matcher, obtain.Request]:
    """Return the Matcher of the node in a body, and the request."""
    assignment = requests.read_permitted_assignment(caller, body)
    holder = requests.read_holder(body)
    avoid = requests.read_avoid(caller, body)
    group = requests.read_membership(body, assignment.project_id)
    reach = caller.get_reach('create_restricted')
    lease = requests.read_lease(reach, body)
    matcher = requests.make_matcher(
        reach, assignment.project_id, select_spec(body),
        matching.TO_HOLD if body.get('claim') is None else matching.TO_CLAIM,
        avoid)
    instance_uuid = body.get('instance_uuid') or uuidutils.generate_uuid()
    return matcher, obtain.Request(
        (instance_uuid.lower(),), assignment, lease, body.get('project_id'),
        holder, group,
        # A claimed reservation is already counted.
        limits=quotas.read_limits(
            reach.project_id if body.get('claim') is None else None))


def select_spec(body: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a body that are the request spec."""
    return {key: value for key, value in body.items() if key not in ENVELOPE}


def _adopt_node(caller: context.RequestContext) -> dict[str, Any]:
    """Make a reservation of the node that carries an instance."""
    caller.authorize('adopt')
    body = requests.read_body(ADOPT_BODY)
    assignment = requests.read_fields(values.Assignment, body)
    group = requests.read_membership(body, assignment.project_id)
    spec = request_spec.RequestSpec.from_server(select_spec(body))
    return _respond(caller, spec, *adoption.adopt_instance(
        body['instance_uuid'], spec, assignment,
        requests.read_holder(body), group))


def _respond(caller: context.RequestContext, spec: request_spec.RequestSpec,
             reservation: values.Reservation, is_new: bool) -> dict[str, Any]:
    """Return the response to a POST, and set its status and location.

    :param spec: request spec of this request.
    :param is_new: False if an earlier request has made the reservation.
    """
    response = _make_presenter(caller, [reservation])(
        reservation) | responses.show_ignored(spec)
    responses.set_created(is_new, response['links'][0]['href'])
    return response


def list_reservations() -> dict[str, Any]:
    """GET /v1/reservations"""
    query, caller = requests.read_query(LIST_QUERY), requests.get_caller()
    caller.authorize('list')
    reach = caller.get_reach('list_all')
    if not reach.has_project(query.get('project_id', reach.project_id)):
        raise exception.NotAuthorized(
            f'project_id: only system-scope and service callers may list '
            f'reservations of another project; got "{query["project_id"]}"')
    fields = pop_fields(query) or LIST_FIELDS
    limit, order = responses.pop_limit(query), pop_order(query)
    after = markers.decode(
        query.pop('marker', None), order,
        [type(lookup.NULL_VALUES[name]) for name in order],
        lambda uuid: lookup.find_position(uuid, order, reach),
        'the instance UUID of a reservation')
    if 'group' in query:
        query['group_uuid'] = query.pop('group').lower()
    if 'expires_before' in query:
        query['expires_before'] = read_moment(
            'expires_before', query['expires_before'])
    # One more row than the limit shows whether there is a next page. A stored
    # request spec is at most twice as long as in a response.
    rows = lookup.find_reservations(
        lookup.Filters(reach, **query), order, after, limit + 1,
        _list_attributes(fields), room=2 * responses.MAX_PAGE)
    return responses.make_page(
        'reservations', rows, limit, _make_presenter(caller, rows, fields),
        lambda last: markers.encode(order, lookup.get_position(last, order)))


def show_reservation(instance_uuid: str) -> dict[str, Any]:
    """GET /v1/reservations/{instance_uuid}"""
    fields = pop_fields(requests.read_query(SHOW_QUERY)) or FIELDS
    caller = requests.get_caller()
    reservation = expiry.get_or_purge(
        instance_uuid, _make_authorizer(caller, 'get'))
    return _make_presenter(caller, [reservation], fields)(reservation)


def update_reservation(instance_uuid: str) -> dict[str, Any]:
    """PATCH /v1/reservations/{instance_uuid}"""
    actor, caller, reach = _identify_writer()
    changes = read_changes(requests.read_body(PATCH_BODY), reach)
    if reach.is_limited and 'host' in changes:
        raise exception.NotAuthorized(
            'host: only system-scope and service callers may change the host '
            'of a reservation.')
    reservation = updates.update_reservation(
        instance_uuid, changes, _make_authorizer(caller, 'update'), actor,
        reach)
    return _make_presenter(caller, [reservation])(reservation)


def delete_reservation(instance_uuid: str) -> None:
    """DELETE /v1/reservations/{instance_uuid}"""
    actor, caller, reach = _identify_writer()
    releases.release_reservation(
        instance_uuid, _make_authorizer(caller, 'delete'), actor,
        reach)
    responses.set_no_content()


def _identify_writer() -> tuple[values.Actor, context.RequestContext,
                                values.Ownership]:
    """Return the actor, the caller and its reach."""
    query, caller = requests.read_query(WRITE_QUERY), requests.get_caller()
    return (values.Actor(query.get('host'), requests.read_holder(query)),
            caller, caller.get_reach('create_restricted'))


def _make_authorizer(caller: context.RequestContext,
                     rule: str) -> Callable[[context.Owned], None]:
    return requests.make_authorizer(
        caller, rule, lambda reservation: lookup.make_not_found(
            reservation.instance_uuid))


def _list_attributes(fields: Iterable[str]) -> set[str]:
    """Return the attributes of a values.Reservation that fields need."""
    return {attribute for name in fields for attribute in (
        ('node_id', 'has_notices') if name == 'notices'
        else _COMPUTED[name][1] if name in _COMPUTED else (name,))}


def _make_presenter(caller: context.RequestContext,
                    rows: Iterable[values.Reservation],
                    fields: Iterable[str] = FIELDS
                    ) -> Callable[[values.Reservation], dict[str, Any]]:
    """Return a function that returns one of some reservations as JSON.

    Their notices are read at once, as far as the caller may see them.

    :param fields: see ``present_reservation``.
    """
    if 'notices' not in fields:
        return lambda reservation: present_reservation(reservation, fields)
    reach = caller.get_reach('notices')
    node_ids = [row.node_id for row in rows if row.node_id is not None
                and row.has_notices in (None, True)]
    # Even a call that reads nothing costs a round trip to the database.
    by_node = (notice_lookup.find_on_nodes(node_ids, reach) if node_ids
               else {})
    return lambda reservation: {
        **present_reservation(reservation, fields),
        **notices.present_on_node(by_node.get(
            reservation.node_id or 0, values.NodeNotices()), reach)}


def present_reservation(reservation: values.Reservation,
                        fields: Iterable[str] = FIELDS) -> dict[str, Any]:
    """Return a reservation as JSON.

    :param fields: names of the fields to show; links are always shown, and
        notices only by ``_make_presenter``.
    """
    names = {*fields, 'links'} - {'notices'}
    if reservation.group_uuid is None:
        names.discard('group')
    return responses.make_json(Reservation, {
        name: _COMPUTED[name][0](reservation) if name in _COMPUTED
        else getattr(reservation, name) for name in names})


def present_dry_run(result: dry_runs.DryRun) -> dict[str, Any]:
    """Return the result of a dry run as JSON.

    The domains of a group may occupy half of the response, and the profiles
    the rest.
    """
    verdict = result.verdict
    items = responses.present_verdict(verdict) | {
        'matching_nodes': verdict.matching_nodes, 'profiles': []}
    if verdict.domains is not None:
        items['domains'] = responses.fit_rows(
            verdict.domains,
            lambda domain: {'value': domain[0], 'nodes': domain[1]},
            responses.MAX_PAGE // 2)
    if verdict.quota is not None:
        items['quota'] = vars(verdict.quota)
    response = responses.make_json(DryRun, items)
    response['profiles'] = responses.fit_rows(
        result.profiles,
        lambda profile: responses.make_json(capacity.Profile, profile),
        responses.MAX_PAGE - responses.count_bytes(response))
    return response


def read_changes(operations: list[dict[str, Any]],
                 reach: values.Ownership = values.ALL) -> dict[str, Any]:
    """Return the changes of a JSON Patch.

    :param operations: validated by ``PATCH_BODY``.
    :param reach: that of the caller. A project-scoped caller must keep a lease
        if [reservations] require_lease is set.
    :returns: see ``updates.update_reservation``.
    :raises: InvalidInput.
    """
    changes = patches.read_values(operations, PATCH_VALUES, ('host',))
    if 'expires_in' in changes:
        changes['lease'] = requests.check_lease(
            changes.pop('expires_in'), reach)
    return changes


def pop_fields(query: dict[str, Any]) -> list[str] | None:
    """Remove the fields to show from a validated query, and return them.

    :raises: InvalidInput for a field that a reservation does not have.
    """
    text = query.pop('fields', None)
    if text is None:
        return None
    names = list(dict.fromkeys(name.strip() for name in text.split(',')))
    for name in names:
        if name not in FIELDS:
            raise exception.InvalidInput(
                'fields', f'must be one of {", ".join(FIELDS)}, or several of '
                          f'them, separated by commas', got=name)
    return names


def read_moment(field: str, text: str) -> int | datetime.datetime:
    """Parse a time in a query.

    :returns: seconds from now, or a time in UTC without a time zone.
    :raises: InvalidInput.
    """
    if re.fullmatch('[0-9]{1,9}', text):
        return int(text)
    return requests.parse_time(
        field, text, 'a number of seconds, at most 999999999, or ')


def pop_order(query: dict[str, Any]) -> dict[str, str]:
    """Remove the sort parameters from a validated query, and return the order.

    A key without a direction has the direction of the key before it.

    :returns: directions by key, the most significant key first. It always
        includes ``id``, so that no two rows are equal.
    :raises: InvalidInput for a repeated key, or a direction without a key.
    """
    keys = query.pop('sort_key', 'id').split(',')
    directions = query.pop('sort_dir', 'asc').split(',')
    for key in keys:
        if keys.count(key) > 1:
            raise exception.InvalidInput(
                'sort_key', f'must not repeat a key; got "{key}" twice')
    if len(directions) > len(keys):
        raise exception.InvalidInput(
            'sort_dir', f'must have at most one direction for each key of '
                        f'sort_key; got {len(directions)} for {len(keys)}')
    directions += directions[-1:] * (len(keys) - len(directions))
    order = dict(zip(keys, directions, strict=True))
    order.setdefault('id', directions[-1])
    return order
