# SPDX-License-Identifier: Apache-2.0
"""Handles requests for reservations: /v1/reservations."""

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

from oslo_utils import uuidutils

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

PATCH_BODY = patches.make_body(specs.CHANGEABLE)

SHOW_QUERY = schema.query_validator(fields=schema.NAME)

#: The query of PATCH and DELETE.
WRITE_QUERY = schema.query_validator(host=schema.IDENT, holder=schema.UUID)

CREATE_BODY = schema.Validator(specs.REQUEST_SPEC, 'body')

#: The body of POST ?adopt=true.
ADOPT_BODY = schema.Validator({
    **specs.REQUEST_SPEC, 'required': ['instance_uuid'],
    'properties': {**specs.omit_keys('expires_in', 'claim', 'avoid'),
                   'instance_uuid': schema.UUID}}, 'body')


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
            more = (requests.make_authorizer(caller, 'delete'),
                    int(segment) if segment else None)
            if dry_run:
                return resources.present_dry_run(claims.dry_run(
                    uuid, matcher, request.assignment.project_id, *more))
            return _respond(caller, matcher.spec, *claims.claim_reservation(
                uuid, matcher, request, *more))
        if dry_run:
            return resources.present_dry_run(dry_runs.dry_run(
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
    assignment = specs.read_permitted_assignment(caller, body)
    holder = requests.read_holder(body)
    avoid = specs.read_avoid(caller, body)
    group = specs.read_membership(body, assignment.project_id)
    reach = caller.get_reach('create_restricted')
    lease = specs.read_lease(reach, body)
    matcher = specs.make_matcher(
        reach, assignment.project_id, specs.select_spec(body),
        matching.TO_HOLD if body.get('claim') is None else matching.TO_CLAIM,
        avoid)
    instance_uuid = body.get('instance_uuid') or uuidutils.generate_uuid()
    return matcher, obtain.Request(
        (instance_uuid.lower(),), assignment, lease, body.get('project_id'),
        holder, group,
        # A claimed reservation is already counted.
        limits=quotas.read_limits(
            reach.project_id if body.get('claim') is None else None))


def _adopt_node(caller: context.RequestContext) -> dict[str, Any]:
    """Make a reservation of the node that carries an instance."""
    caller.authorize('adopt')
    body = requests.read_body(ADOPT_BODY)
    assignment = requests.read_fields(values.Assignment, body)
    group = specs.read_membership(body, assignment.project_id)
    spec = request_spec.RequestSpec.from_server(specs.select_spec(body))
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
    fields = pop_fields(query) or resources.LIST_FIELDS
    limit, order = responses.pop_limit(query), pop_order(query)
    after = markers.decode(
        query.pop('marker', None), order,
        [type(lookup.NULL_VALUES[name]) for name in order],
        lambda uuid: lookup.find_position(uuid, order, reach),
        'the instance UUID of a reservation')
    if 'group' in query:
        query['group_uuid'] = query.pop('group').lower()
    if 'expires_before' in query:
        query['expires_before'] = requests.read_moment(
            'expires_before', query['expires_before'])
    # One more row than the limit shows whether there is a next page. A stored
    # request spec is at most twice as long as in a response.
    rows = lookup.find_reservations(
        lookup.Filters(reach, **query), order, after, limit + 1,
        resources.list_attributes(fields), room=2 * responses.MAX_PAGE)
    return responses.make_page(
        'reservations', rows, limit, _make_presenter(caller, rows, fields),
        lambda last: markers.encode(order, lookup.get_position(last, order)))


def show_reservation(instance_uuid: str) -> dict[str, Any]:
    """GET /v1/reservations/{instance_uuid}"""
    fields = pop_fields(requests.read_query(SHOW_QUERY)) or resources.FIELDS
    caller = requests.get_caller()
    reservation = expiry.get_or_purge(
        instance_uuid, requests.make_authorizer(caller, 'get'))
    return _make_presenter(caller, [reservation], fields)(reservation)


def update_reservation(instance_uuid: str) -> dict[str, Any]:
    """PATCH /v1/reservations/{instance_uuid}"""
    actor, caller, reach = _identify_writer()
    changes = specs.read_changes(requests.read_body(PATCH_BODY), reach)
    if reach.is_limited and 'host' in changes:
        raise exception.NotAuthorized(
            'host: only system-scope and service callers may change the host '
            'of a reservation.')
    reservation = updates.update_reservation(
        instance_uuid, changes, requests.make_authorizer(caller, 'update'),
        actor, reach)
    return _make_presenter(caller, [reservation])(reservation)


def delete_reservation(instance_uuid: str) -> None:
    """DELETE /v1/reservations/{instance_uuid}"""
    actor, caller, reach = _identify_writer()
    releases.release_reservation(
        instance_uuid, requests.make_authorizer(caller, 'delete'), actor,
        reach)
    responses.set_no_content()


def _identify_writer() -> tuple[values.Actor, context.RequestContext,
                                values.Ownership]:
    """Return the actor, the caller and its reach."""
    query, caller = requests.read_query(WRITE_QUERY), requests.get_caller()
    return (values.Actor(query.get('host'), requests.read_holder(query)),
            caller, caller.get_reach('create_restricted'))


def _make_presenter(caller: context.RequestContext,
                    rows: Iterable[values.Reservation],
                    fields: Iterable[str] = resources.FIELDS
                    ) -> Callable[[values.Reservation], dict[str, Any]]:
    """Return a function that returns one of some reservations as JSON.

    Their notices are read at once, as far as the caller may see them.

    :param fields: see ``resources.present_reservation``.
    """
    if 'notices' not in fields:
        return lambda reservation: resources.present_reservation(
            reservation, fields)
    reach = caller.get_reach('notices')
    node_ids = [row.node_id for row in rows if row.node_id is not None
                and row.has_notices in (None, True)]
    # Even a call that reads nothing costs a round trip to the database.
    by_node = (notice_lookup.find_on_nodes(node_ids, reach) if node_ids
               else {})
    return lambda reservation: {
        **resources.present_reservation(reservation, fields),
        **resources.present_on_node(by_node.get(
            reservation.node_id or 0, values.NodeNotices()), reach)}


def pop_fields(query: dict[str, Any]) -> list[str] | None:
    """Remove the fields to show from a validated query, and return them.

    :raises: InvalidInput for a field that a reservation does not have.
    """
    text = query.pop('fields', None)
    if text is None:
        return None
    names = list(dict.fromkeys(name.strip() for name in text.split(',')))
    for name in names:
        if name not in resources.FIELDS:
            raise exception.InvalidInput(
                'fields', f'must be one of {", ".join(resources.FIELDS)}, or '
                          f'several of them, separated by commas', got=name)
    return names


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
