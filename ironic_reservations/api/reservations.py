# SPDX-License-Identifier: Apache-2.0
"""Handles requests for reservations: /v1/reservations."""

from collections.abc import Callable
from collections.abc import Iterable
import datetime
import json
import re
from typing import Any

from oslo_utils import timeutils
from oslo_utils import uuidutils
from wsme import types as wtypes

from ironic_reservations import conf
from ironic_reservations import constants
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations.api import capacity
from ironic_reservations.api import markers
from ironic_reservations.api import requests
from ironic_reservations.api import responses
from ironic_reservations.api import schema
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import claims
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from ironic_reservations.reservations import values

#: Maximum number of operations in a JSON Patch.
MAX_OPERATIONS = 64

LIST_QUERY = schema.query_validator(
    host=schema.name,
    node=schema.name,
    project_id=schema.name,
    resource_class=schema.name,
    state={'enum': list(constants.STATES)},
    group=schema.uuid,
    expires_before=schema.name,
    fields=schema.name,
    limit=schema.positive,
    marker=schema.marker,
    sort_key=schema.sort_key,
    sort_dir=schema.sort_dir,
)

CREATE_QUERY = schema.query_validator(
    dry_run=schema.boolean, adopt=schema.boolean)

#: The query of POST ?adopt=true.
ADOPT_QUERY = schema.query_validator(adopt=schema.boolean)

SHOW_QUERY = schema.query_validator(fields=schema.name)

#: The query of PATCH and DELETE.
WRITE_QUERY = schema.query_validator(host=schema.name, holder=schema.uuid)

#: Schemas of the keys that PATCH can change.
CHANGEABLE: dict[str, Any] = {
    'host': schema.nullable_text(minLength=1),
    # requests.read_lease() checks [reservations] max_lease, the maximum.
    'expires_in': {**schema.integer, 'minimum': 1},
    'description': schema.nullable_text(),
}

#: Schemas of the keys of a body that are not in the request spec. Requests
#: that differ only in these are equal.
ENVELOPE: dict[str, Any] = {
    **CHANGEABLE,
    'instance_uuid': schema.uuid_or_null,
    'project_id': schema.nullable_text(minLength=1),
    'user_id': schema.nullable_text(minLength=1),
    'holder': schema.uuid_or_null,
    'claim': schema.claim,
}

REQUEST_SPEC: dict[str, Any] = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        **ENVELOPE,
        'memory_mb': schema.integer,
        'vcpus': schema.integer,
        'root_gb': schema.integer,
        'ephemeral_gb': schema.integer,
        'swap': schema.integer,
        'vcpu_weight': schema.integer,
        'rxtx_factor': schema.number,
        'name': schema.nullable_text(),
        'flavorid': schema.nullable_text(),
        'extra_specs': schema.text_map(1024),
        'image': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'properties': {
                'id': schema.nullable_text(),
                'properties': schema.text_map(1024),
                'min_ram': schema.integer,
                'min_disk': schema.integer,
            },
        },
        'resource_class': schema.nullable_text(minLength=1),
        'conductor_group': schema.nullable_text(),
        'shard': schema.nullable_text(minLength=1),
        'candidate_nodes': {
            'type': ['array', 'null'], 'minItems': 1,
            'maxItems': request_spec.MAX_CANDIDATES, 'items': schema.name,
        },
        'ownership': {'enum': [*constants.OWNERSHIPS, None]},
        'group': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'required': ['uuid'],
            'properties': {'uuid': schema.uuid, 'policy': schema.policy,
                           'by': schema.by, 'segment': schema.integer},
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
    'properties': {**omit_keys('expires_in', 'claim'),
                   'instance_uuid': schema.uuid}}, 'body')


def make_patch_body(names: Iterable[str]) -> schema.Validator:
    """Return the Validator of a JSON Patch.

    ``PATCH_VALUES`` checks its values.

    :param names: keys of ``CHANGEABLE`` that it may change.
    """
    return schema.Validator({
        'type': 'array',
        'minItems': 1,
        'maxItems': MAX_OPERATIONS,
        'items': schema.closed_object({
            'op': {'enum': ['add', 'replace', 'remove']},
            'path': {'enum': [f'/{name}' for name in names]},
            'value': {},
        }, required=['op', 'path']),
    }, 'body')


PATCH_BODY = make_patch_body(CHANGEABLE)

PATCH_VALUES = schema.Validator(schema.closed_object({
    name: {**value, 'type': value['type'][0]}
    for name, value in CHANGEABLE.items()}), 'body')


class Reservation(wtypes.Base):
    """A node held for an instance; see ``values.Reservation``."""

    instance_uuid = wtypes.text
    node_uuid = wtypes.text
    node_name = responses.NULLABLE_TEXT
    host = responses.NULLABLE_TEXT
    state = responses.Json(enum=[*constants.STATES])
    provision_state = wtypes.text
    resource_class = responses.NULLABLE_TEXT
    project_id = responses.NULLABLE_TEXT
    user_id = responses.NULLABLE_TEXT
    request_spec = responses.Json(
        type='object', properties=omit_keys(*ENVELOPE))
    # Only of a member of a group; levels and segment only with segments.
    group = responses.Json(
        type='object', required=['uuid', 'policy', 'by', 'domain'],
        properties={
            'uuid': schema.uuid, 'policy': schema.policy, 'by': schema.by,
            'levels': responses.LEVELS.schema, 'domain': responses.DOMAIN,
            'segment': {'type': ['integer', 'null']}})
    expires_at = responses.NULLABLE_TIME
    description = responses.NULLABLE_TEXT
    created_at = responses.Time()
    updated_at = responses.NULLABLE_TIME
    links = responses.Json(type='array', items=responses.whole_object(
        href={'type': 'string', 'format': 'uri'}, rel={'type': 'string'}))


FIELDS = tuple(attribute.name
               for attribute in wtypes.list_attributes(Reservation))

#: Default fields of reservations in lists and groups. A request spec may be a
#: thousand times as long as all other fields.
LIST_FIELDS = tuple(name for name in FIELDS if name != 'request_spec')

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
        lambda reservation: _present_membership(reservation),
        ('group_uuid', 'group_policy', 'group_by', 'group_segment_levels',
         'domain', 'segment')),
    # Only a reserved node has an expiry time.
    'expires_at': (lambda reservation: reservation.effective_expiry,
                   ('expires_at', 'provision_state')),
    'links': (lambda reservation: [{
        'href': responses.make_url(f'/{reservation.instance_uuid}'),
        'rel': 'self'}], ('instance_uuid',)),
}


def _present_membership(reservation: values.Reservation) -> dict[str, Any]:
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
    if claim is not None and (request.group is not None or dry_run):
        raise exception.InvalidInput(
            'claim', 'cannot be combined with group or dry_run')
    if claim is not None:
        uuid, _, segment = claim.lower().partition(':')
        return _respond(matcher.spec, *claims.claim_reservation(
            uuid, matcher, request, _make_authorizer(caller, 'delete'),
            int(segment) if segment else None))
    if dry_run:
        return present_dry_run(dry_runs.dry_run(
            matcher, request.quota, request.group))
    return _respond(matcher.spec, *holds.hold_node(matcher, request))


def _read_request(
        caller: context.RequestContext,
        body: dict[str, Any]) -> tuple[matching.Matcher, obtain.Request]:
    """Return the Matcher of the node in a body, and the request."""
    assignment = requests.read_permitted_assignment(caller, body)
    holder = requests.read_holder(body)
    group = requests.read_membership(body, assignment.project_id)
    restricted_to = caller.restricted_to('create_restricted')
    lease = requests.read_lease(restricted_to, body)
    matcher = requests.make_matcher(
        caller, restricted_to, assignment.project_id, select_spec(body),
        is_claim=body.get('claim') is not None)
    instance_uuid = body.get('instance_uuid') or uuidutils.generate_uuid()
    return matcher, obtain.Request(
        (instance_uuid.lower(),), assignment, lease, body.get('project_id'),
        holder, group,
        # A claimed reservation is already counted.
        quota=quotas.read_quota(
            restricted_to if body.get('claim') is None else None))


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
    return _respond(spec, *adoption.adopt_instance(
        body['instance_uuid'].lower(), spec, assignment,
        requests.read_holder(body), group))


def _respond(spec: request_spec.RequestSpec, reservation: values.Reservation,
             is_new: bool) -> dict[str, Any]:
    """Return the response to a POST, and set its status and location.

    :param spec: request spec of this request.
    :param is_new: False if an earlier request has made the reservation.
    """
    response = present_reservation(reservation) | responses.show_ignored(spec)
    responses.set_created(is_new, response['links'][0]['href'])
    return response


def list_reservations() -> dict[str, Any]:
    """GET /v1/reservations"""
    query, caller = requests.read_query(LIST_QUERY), requests.get_caller()
    caller.authorize('list')
    restricted_to = caller.restricted_to('list_all')
    if restricted_to is not None and query.get(
            'project_id', restricted_to) != restricted_to:
        raise exception.NotAuthorized(
            f'project_id: only system-scope and service callers may list '
            f'reservations of another project; got "{query["project_id"]}"')
    fields = pop_fields(query) or LIST_FIELDS
    limit, order = responses.pop_limit(query), pop_order(query)
    after = markers.decode(
        query.pop('marker', None), order,
        [type(lookup.NULL_VALUES[name]) for name in order],
        lambda uuid: lookup.find_position(uuid, order, restricted_to))
    if 'group' in query:
        query['group_uuid'] = query.pop('group').lower()
    if 'expires_before' in query:
        query['expires_before'] = read_moment(
            'expires_before', query['expires_before'])
    # One more row than the limit shows whether there is a next page. A stored
    # request spec is at most twice as long as in a response.
    rows = lookup.find_reservations(
        lookup.Filters(restricted_to, **query), order, after, limit + 1,
        _list_attributes(fields), room=2 * responses.MAX_PAGE)
    return responses.make_page(
        'reservations', rows, limit,
        lambda reservation: present_reservation(reservation, fields),
        lambda last: markers.encode(order, lookup.get_position(last, order)))


def show_reservation(instance_uuid: str) -> dict[str, Any]:
    """GET /v1/reservations/{instance_uuid}"""
    fields = pop_fields(requests.read_query(SHOW_QUERY)) or FIELDS
    return present_reservation(expiry.get_or_purge(
        instance_uuid, _make_authorizer(requests.get_caller(), 'get')), fields)


def update_reservation(instance_uuid: str) -> dict[str, Any]:
    """PATCH /v1/reservations/{instance_uuid}"""
    actor, caller, is_restricted = _identify_writer()
    changes = read_changes(requests.read_body(PATCH_BODY), is_restricted)
    if is_restricted and 'host' in changes:
        raise exception.NotAuthorized(
            'host: only system-scope and service callers may change the host '
            'of a reservation.')
    return present_reservation(updates.update_reservation(
        instance_uuid, changes, _make_authorizer(caller, 'update'), actor,
        is_restricted))


def delete_reservation(instance_uuid: str) -> None:
    """DELETE /v1/reservations/{instance_uuid}"""
    actor, caller, is_restricted = _identify_writer()
    releases.release_reservation(
        instance_uuid, _make_authorizer(caller, 'delete'), actor,
        is_restricted)
    responses.set_no_content()


def _identify_writer() -> tuple[values.Actor, context.RequestContext, bool]:
    """Return the actor, the caller, and whether it is project-scoped."""
    query, caller = requests.read_query(WRITE_QUERY), requests.get_caller()
    return (values.Actor(query.get('host'), requests.read_holder(query)),
            caller, not caller.may('create_restricted'))


def _make_authorizer(caller: context.RequestContext,
                     rule: str) -> Callable[[context.Owned], None]:
    return requests.make_authorizer(
        caller, rule, lambda reservation: lookup.make_not_found(
            reservation.instance_uuid))


def _list_attributes(fields: Iterable[str]) -> set[str]:
    """Return the attributes of a values.Reservation that fields need."""
    return {attribute for name in fields for attribute in (
        _COMPUTED[name][1] if name in _COMPUTED else (name,))}


def present_reservation(reservation: values.Reservation,
                        fields: Iterable[str] = FIELDS) -> dict[str, Any]:
    """Return a reservation as JSON.

    :param fields: names of the fields to show; links are always shown.
    """
    names = {*fields, 'links'}
    if reservation.group_uuid is None:
        names.discard('group')
    return responses.make_json(Reservation, {
        name: _COMPUTED[name][0](reservation) if name in _COMPUTED
        else getattr(reservation, name) for name in names})


def present_dry_run(verdict: dict[str, Any]) -> dict[str, Any]:
    """Return the result of ``dry_runs.dry_run`` as JSON.

    The domains of a group may occupy half of the response, and the profiles
    the rest.
    """
    response = responses.make_json(DryRun, {**verdict, 'profiles': []})
    if 'domains' in response:
        response['domains'] = responses.fit_rows(
            response['domains'], room=responses.MAX_PAGE // 2)
    response['profiles'] = responses.fit_rows(
        verdict['profiles'],
        lambda profile: responses.make_json(capacity.Profile, profile),
        responses.MAX_PAGE - responses.count_bytes(response))
    return response


def read_changes(operations: list[dict[str, Any]],
                 is_restricted: bool = False) -> dict[str, Any]:
    """Return the changes of a JSON Patch.

    :param operations: validated by ``make_patch_body``.
    :param is_restricted: whether the caller is bound to its project, and must
        keep a lease if [reservations] require_lease is set.
    :returns: see ``updates.update_reservation``.
    :raises: InvalidInput.
    """
    changes: dict[str, Any] = {}
    for number, operation in enumerate(operations):
        name = operation['path'][1:]
        if operation['op'] == 'remove' and name == 'host':
            raise exception.InvalidInput(
                f'{number}.op', f'must be add or replace for /{name}',
                got='remove')
        if operation['op'] != 'remove' and 'value' not in operation:
            raise exception.InvalidInput(
                f'{number}.value', 'is required with add and replace')
        changes[name] = None
        if operation['op'] != 'remove':
            changes |= PATCH_VALUES({name: operation['value']})
    if 'expires_in' in changes:
        seconds = changes.pop('expires_in')
        if seconds is not None or (
                is_restricted and conf.CONF.reservations.require_lease):
            seconds = requests.check_lease(seconds)
        changes['lease'] = seconds
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
    try:
        if re.fullmatch('[0-9]{1,9}', text):
            return int(text)
        return timeutils.normalize_time(timeutils.parse_isotime(text))
    except (ValueError, OverflowError):
        raise exception.InvalidInput(
            field, 'must be a number of seconds, at most 999999999, or a time '
                   'such as 2030-12-31T18:00:00Z', got=text)


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
