# SPDX-License-Identifier: Apache-2.0
"""Reservations of one node each: /v1/reservations."""

import json

from oslo_utils import uuidutils
from wsme import types as wtypes

from ironic_reservations import conf
from ironic_reservations import constants
from ironic_reservations import exception
from ironic_reservations.api import answers
from ironic_reservations.api import capacity
from ironic_reservations.api import markers
from ironic_reservations.api import requests
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

#: The most operations of a JSON Patch.
MAX_OPERATIONS = 64

LIST_QUERY = schema.query(
    host=schema.name,
    node=schema.name,
    project_id=schema.name,
    resource_class=schema.name,
    state={'enum': list(constants.STATES)},
    fields=schema.name,
    limit=schema.positive,
    marker=schema.marker,
    sort_key=schema.sort_key,
    sort_dir=schema.sort_dir,
)

CREATE_QUERY = schema.query(dry_run=schema.boolean, adopt=schema.boolean)

#: The query of POST ?adopt=true, for a node that carries its instance.
ADOPT_QUERY = schema.query(adopt=schema.boolean)

SHOW_QUERY = schema.query(fields=schema.name)

#: The query of PATCH and DELETE.
WRITE_QUERY = schema.query(host=schema.name, holder=schema.uuid)

REQUEST_SPEC = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        'instance_uuid': schema.uuid_or_null,
        'host': schema.string(minLength=1),
        'memory_mb': schema.integer,
        'vcpus': schema.integer,
        'root_gb': schema.integer,
        'ephemeral_gb': schema.integer,
        'swap': schema.integer,
        'vcpu_weight': schema.integer,
        'rxtx_factor': schema.number,
        'name': schema.string(),
        'flavorid': schema.string(),
        'extra_specs': schema.strings(1024),
        'image': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'properties': {
                'id': schema.string(),
                'properties': schema.strings(1024),
                'min_ram': schema.integer,
                'min_disk': schema.integer,
            },
        },
        'resource_class': schema.string(minLength=1),
        'conductor_group': schema.string(),
        'shard': schema.string(minLength=1),
        'candidate_nodes': {
            'type': ['array', 'null'], 'minItems': 1,
            'maxItems': request_spec.MAX_CANDIDATES, 'items': schema.name,
        },
        # The maximum is [reservations] max_lease: requests.lease() checks it.
        'expires_in': {**schema.integer, 'minimum': 1},
        'project_id': schema.string(minLength=1),
        'user_id': schema.string(minLength=1),
        'holder': schema.uuid_or_null,
        'ownership': {'enum': [*constants.OWNERSHIPS, None]},
        'group': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'required': ['uuid'],
            'properties': {'uuid': schema.uuid, 'policy': schema.policy,
                           'by': schema.by},
        },
        'claim': schema.uuid_or_null,
    },
}


def omit(*names):
    """Return the schemas of the other keys of a request spec, a dict."""
    return {name: value for name, value in REQUEST_SPEC['properties'].items()
            if name not in names}


CREATE_BODY = schema.Validator(REQUEST_SPEC, 'body')

#: The body of POST ?adopt=true: no lease, no claim.
ADOPT_BODY = schema.Validator({
    **REQUEST_SPEC, 'required': ['instance_uuid'],
    'properties': {**omit('expires_in', 'claim'),
                   'instance_uuid': schema.uuid}}, 'body')

#: The body of PATCH, a JSON Patch. ``PATCH_VALUES`` checks its values.
PATCH_BODY = schema.Validator({
    'type': 'array',
    'minItems': 1,
    'maxItems': MAX_OPERATIONS,
    'items': schema.closed({
        'op': {'enum': ['add', 'replace', 'remove']},
        'path': {'enum': ['/host', '/expires_in']},
        'value': {},
    }, required=['op', 'path']),
}, 'body')

PATCH_VALUES = schema.Validator(schema.closed({
    'host': schema.name,
    'expires_in': {'type': 'integer', 'minimum': 1,
                   'maximum': request_spec.MAX_INT},
}), 'body')


class Reservation(wtypes.Base):
    """A node held for an instance: a ``values.Reservation``."""

    instance_uuid = wtypes.text
    node_uuid = wtypes.text
    node_name = wtypes.text
    host = wtypes.text
    state = wtypes.text
    provision_state = wtypes.text
    resource_class = wtypes.text
    project_id = wtypes.text
    user_id = wtypes.text
    request_spec = answers.Json()
    group = answers.Json()
    expires_at = answers.Time()
    created_at = answers.Time()
    updated_at = answers.Time()
    links = answers.Json()


FIELDS = tuple(attribute.name
               for attribute in wtypes.list_attributes(Reservation))

#: The default fields of a list, and of the members of a group. A request spec
#: may be a thousand times as long as all other fields.
LIST_FIELDS = tuple(name for name in FIELDS if name != 'request_spec')

# The attributes of a values.Reservation that must be read to show a field,
# where they are others than the field itself.
_READ = {
    'state': ['provision_state'],
    'group': ['group_uuid', 'group_policy', 'group_by', 'domain'],
    # Only a reserved node has an expiry time.
    'expires_at': ['expires_at', 'provision_state'],
    'links': ['instance_uuid'],
}


class DryRun(wtypes.Base):
    """What a request would get: the result of ``dry_runs.dry_run``."""

    matching_nodes = int
    profiles = answers.Json()
    explanation = answers.Json()
    # Only for a group of several members.
    members = answers.Json()
    domains = answers.Json()
    # Only where nothing but the quota prevents it.
    quota = answers.Json()
    # Extra specs that are not compared with nodes, if there are any.
    ignored = answers.Json()


def create():
    """POST /v1/reservations: hold, dry run, claim or adopt a node."""
    query, caller = requests.query(CREATE_QUERY), requests.caller()
    if requests.is_true(query, 'adopt'):
        ADOPT_QUERY(query)
        return _adopt(caller)
    caller.authorize('create')
    body = requests.body(CREATE_BODY)
    matcher, request = _wanted(caller, body)
    dry_run, claim = requests.is_true(query, 'dry_run'), body.get('claim')
    if claim is not None and (request.group is not None or dry_run):
        raise exception.InvalidInput(
            'claim', 'cannot be given with group, or in a dry run')
    if claim is not None:
        return _answer_created(matcher.spec, *claims.claim_reservation(
            claim.lower(), matcher, request, _authorizer(caller, 'delete')))
    if dry_run:
        return view_dry_run(dry_runs.dry_run(
            matcher, request.quota, request.group))
    return _answer_created(matcher.spec, *holds.hold_node(matcher, request))


def _wanted(caller, body):
    """Read out of a body which node is wanted, and for whom.

    :returns: matching.Matcher, which decides whether a node will do, and
        obtain.Request.
    """
    assignment = requests.callers_assignment(caller, body)
    holder = requests.holder(body)
    group = requests.membership_of(body, assignment.project_id)
    restricted_to = caller.restricted_to('create_restricted')
    lease = requests.lease(restricted_to, body)
    matcher = requests.matcher(caller, restricted_to, assignment.project_id,
                               body, required=body.get('claim') is None)
    instance_uuid = body.get('instance_uuid') or uuidutils.generate_uuid()
    return matcher, obtain.Request(
        (instance_uuid.lower(),), assignment, lease, body.get('project_id'),
        holder, group,
        # What is claimed is counted already.
        quota=quotas.read_quota(
            restricted_to if body.get('claim') is None else None))


def _adopt(caller):
    """Make a reservation of a node that carries the instance already."""
    caller.authorize('adopt')
    body = requests.body(ADOPT_BODY)
    assignment = requests.assignment(body)
    group = requests.membership_of(body, assignment.project_id)
    spec = request_spec.RequestSpec.from_server(body)
    return _answer_created(spec, *adoption.adopt_instance(
        body['instance_uuid'].lower(), spec, assignment,
        requests.holder(body), group))


def _answer_created(spec, reservation, created):
    """Answer with a reservation that was made, by this request or before.

    :param spec: request_spec.RequestSpec of this request.
    """
    shown = view(reservation) | answers.ignored(spec)
    answers.say_created(created, shown['links'][0]['href'])
    return shown


def find():
    """GET /v1/reservations"""
    query, caller = requests.query(LIST_QUERY), requests.caller()
    caller.authorize('list')
    restricted_to = caller.restricted_to('list_all')
    if restricted_to is not None and query.get(
            'project_id', restricted_to) != restricted_to:
        raise exception.NotAuthorized(
            'The reservations of another project cannot be listed.')
    fields = read_fields(query) or LIST_FIELDS
    limit, order = answers.limit(query), read_order(query)
    after = markers.decode(
        query.pop('marker', None), order,
        [type(lookup.LEAST[name]) for name in order],
        lambda uuid: lookup.find_position(uuid, order, restricted_to))
    # One row more than the page has shows whether there is a next page.
    # Stored, a request spec is at most twice as long as in an answer.
    found = lookup.find_reservations(
        lookup.Filters(restricted_to, **query), order, after, limit + 1,
        {name for field in fields for name in _READ.get(field, [field])},
        room=2 * answers.MAX_PAGE)
    return answers.page(
        'reservations', found, limit,
        lambda reservation: view(reservation, fields),
        lambda last: markers.encode(order, lookup.get_position(last, order)))


def show(instance_uuid):
    """GET /v1/reservations/{instance_uuid}"""
    fields = read_fields(requests.query(SHOW_QUERY)) or FIELDS
    return view(expiry.get_or_purge(
        instance_uuid, _authorizer(requests.caller(), 'get')), fields)


def update(instance_uuid):
    """PATCH /v1/reservations/{instance_uuid}"""
    actor, caller, restricted = _writer()
    changes = read_changes(
        requests.body(PATCH_BODY),
        required=restricted and conf.CONF.reservations.require_lease)
    if restricted and 'host' in changes:
        raise exception.NotAuthorized(
            'host: only system-scope and service callers may say which '
            'host holds a node.')
    return view(updates.update_reservation(
        instance_uuid, changes, _authorizer(caller, 'update'), actor,
        restricted))


def delete(instance_uuid):
    """DELETE /v1/reservations/{instance_uuid}"""
    actor, caller, restricted = _writer()
    releases.release_reservation(
        instance_uuid, _authorizer(caller, 'delete'), actor, restricted)
    answers.no_content()


def _writer():
    """Who writes to one reservation.

    :returns: values.Actor with the host that must hold it, the caller, and
        whether the caller is bound to its project.
    """
    query, caller = requests.query(WRITE_QUERY), requests.caller()
    return (values.Actor(query.get('host'), requests.holder(query)), caller,
            not caller.may('create_restricted'))


def _authorizer(caller, rule):
    return requests.authorizer(caller, rule, lambda found:
                               lookup.make_not_found(found.instance_uuid))


def view(reservation, fields=FIELDS):
    """Return a reservation as JSON, a dict.

    :param reservation: values.Reservation.
    :param fields: names of the attributes to show; links are always shown.
    """
    values = {name: getattr(reservation, name)
              for name in fields if hasattr(reservation, name)}
    if 'request_spec' in fields:
        values['request_spec'] = json.loads(reservation.request_spec)
    if 'expires_at' in fields:
        values['expires_at'] = reservation.effective_expiry
    if 'group' in fields and reservation.group_uuid is not None:
        values['group'] = {
            'uuid': reservation.group_uuid,
            'policy': reservation.group_policy, 'by': reservation.group_by,
            'domain': reservation.domain}
    values['links'] = [{
        'href': answers.url(f'/{reservation.instance_uuid}'), 'rel': 'self'}]
    return answers.present(Reservation, values)


def view_dry_run(verdict):
    """Return the result of dry_runs.dry_run as JSON, a dict.

    The domains of a group may take half of the room, and its profiles, as
    those of a node, what is left.
    """
    shown = answers.present(DryRun, {**verdict, 'profiles': []})
    if 'domains' in shown:
        shown['domains'] = answers.fitting(
            shown['domains'], room=answers.MAX_PAGE // 2)
    shown['profiles'] = answers.fitting(
        verdict['profiles'],
        lambda profile: answers.present(capacity.Profile, profile),
        answers.MAX_PAGE - answers.length(shown))
    return shown


def read_changes(body, required=False):
    """Return what a JSON Patch changes.

    :param body: the operations, validated.
    :param required: whether there must be a lease.
    :returns: dict of ``host``, and of ``lease`` in seconds, which is None for
        no expiry; only those that change.
    :raises: InvalidInput.
    """
    changes = {}
    for number, operation in enumerate(body):
        name = operation['path'][1:]
        if operation['op'] == 'remove' and name != 'expires_in':
            raise exception.InvalidInput(f'{number}.op', 'must be replace')
        if operation['op'] != 'remove' and 'value' not in operation:
            raise exception.InvalidInput(f'{number}.value', 'must be given')
        changes[name] = None
        if operation['op'] != 'remove':
            changes |= PATCH_VALUES({name: operation['value']})
    if 'expires_in' in changes:
        seconds = changes.pop('expires_in')
        if required or seconds is not None:
            seconds = requests.check_lease(seconds)
        changes['lease'] = seconds
    return changes


def read_fields(query):
    """Take the names of the fields to show out of a query.

    :param query: dict, validated.
    :returns: list without duplicates, or None.
    :raises: InvalidInput for a field that a reservation does not have.
    """
    text = query.pop('fields', None)
    if text is None:
        return None
    names = list(dict.fromkeys(name.strip() for name in text.split(',')))
    for name in names:
        if name not in FIELDS:
            raise exception.InvalidInput(
                'fields', f'must be of {", ".join(FIELDS)}')
    return names


def read_order(query):
    """Take the order of the rows out of a query.

    :param query: dict, validated. A key without a direction is sorted as the
        key before.
    :returns: dict of directions by key, the most significant key first.
        ``id`` is one of them, so that no two rows are equal.
    :raises: InvalidInput for a repeated key, or a direction without a key.
    """
    keys = query.pop('sort_key', 'id').split(',')
    directions = query.pop('sort_dir', 'asc').split(',')
    if len(set(keys)) < len(keys):
        raise exception.InvalidInput('sort_key', 'must be keys that differ')
    if len(directions) > len(keys):
        raise exception.InvalidInput('sort_dir',
                                     'must be at most one for each sort_key')
    directions += directions[-1:] * (len(keys) - len(directions))
    order = dict(zip(keys, directions, strict=True))
    order.setdefault('id', directions[-1])
    return order
