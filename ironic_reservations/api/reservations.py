# SPDX-License-Identifier: Apache-2.0
"""The calls below /v1/reservations that are about reservations."""

from oslo_utils import uuidutils

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.api import answers
from ironic_reservations.api import bodies
from ironic_reservations.api import checks
from ironic_reservations.api import markers
from ironic_reservations.api import queries
from ironic_reservations.api import requests
from ironic_reservations.api import types
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import claims
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quota
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from ironic_reservations.reservations import values


def create():
    """POST /v1/reservations: hold, dry run, claim or adopt a node."""
    query, caller = requests.query(queries.create), requests.caller()
    if checks.is_true(query, 'adopt'):
        queries.adopt(query)
        return _adopt(caller)
    caller.authorize('create')
    body = requests.body(bodies.create)
    matcher, request = _wanted(caller, body)
    dry_run, claim = checks.is_true(query, 'dry_run'), body.get('claim')
    if claim is not None and (request.group is not None or dry_run):
        raise exception.InvalidInput(
            'claim', 'cannot be given beside group, or in a dry run')
    if claim is not None:
        return _answer_created(matcher.spec, *claims.claim(
            claim.lower(), matcher, request, _authorizer(caller, 'delete')))
    if dry_run:
        return answers.dry_run(dry_runs.dry_run(
            matcher, request.quota, request.group))
    return _answer_created(matcher.spec, *holds.hold(matcher, request))


def _wanted(caller, body):
    """Read out of a body which node is wanted, and for whom.

    :returns: matching.Matcher, which decides whether a node will do, and
        obtain.Request.
    """
    owner, holder = requests.owner(caller, body), checks.holder(body)
    group = requests.membership_of(body, owner)
    restricted_to = caller.restricted_to('create_restricted')
    lease = requests.lease(restricted_to, body)
    matcher = requests.matcher(caller, restricted_to, owner, body,
                               required=body.get('claim') is None)
    instance_uuid = body.get('instance_uuid') or uuidutils.generate_uuid()
    return matcher, obtain.Request(
        (instance_uuid.lower(),), owner, lease, body.get('project_id'),
        holder, group,
        # What is claimed is counted already.
        quota=quota.of(restricted_to if body.get('claim') is None else None))


def _adopt(caller):
    """Make a reservation of a node that carries the instance already."""
    caller.authorize('adopt')
    body = requests.body(bodies.adopt)
    owner = values.Owner(**requests.given(body))
    group = requests.membership_of(body, owner)
    spec = request_spec.RequestSpec.from_server(body)
    return _answer_created(spec, *adoption.adopt(
        body['instance_uuid'].lower(), spec, owner, checks.holder(body),
        group))


def _answer_created(spec, reservation, created):
    """Answer with a reservation that was made, by this request or before.

    :param spec: request_spec.RequestSpec of this request.
    """
    shown = answers.reservation(reservation) | answers.ignored(spec)
    answers.say_created(created, shown['links'][0]['href'])
    return shown


def find():
    """GET /v1/reservations"""
    query, caller = requests.query(queries.find), requests.caller()
    caller.authorize('list')
    restricted_to = caller.restricted_to('list_all')
    if restricted_to is not None and query.get(
            'project_id', restricted_to) != restricted_to:
        raise exception.NotAuthorized(
            'The reservations of another project cannot be listed.')
    fields = checks.fields(query.pop('fields', None)) or types.LISTED
    limit, order = answers.limit(query), checks.order(query)
    after = markers.decode(
        query.pop('marker', None), order,
        [type(lookup.LEAST[name]) for name in order],
        lambda uuid: lookup.find_marker(uuid, order, restricted_to))
    # One row more than the page has shows whether there is a next page.
    # Stored, a request spec is at most twice as long as in an answer.
    found = lookup.find(
        lookup.Filters(restricted_to, **query), order, after, limit + 1,
        types.made_of(fields), room=2 * answers.MAX_PAGE)
    return answers.page(
        'reservations', found, limit,
        lambda each: answers.reservation(each, fields),
        lambda last: markers.encode(order, lookup.position(last, order)))


def show(instance_uuid):
    """GET /v1/reservations/{instance_uuid}"""
    fields = checks.fields(requests.query(queries.show).get('fields'))
    return answers.reservation(expiry.get_or_purge(
        instance_uuid, _authorizer(requests.caller(), 'get')), fields)


def update(instance_uuid):
    """PATCH /v1/reservations/{instance_uuid}"""
    actor, caller, restricted = _writer()
    changes = checks.changes(
        requests.body(bodies.update),
        required=restricted and conf.CONF.reservations.require_lease)
    if restricted and 'host' in changes:
        raise exception.NotAuthorized(
            'host: only system-scope and service callers may say which '
            'host holds a node.')
    return answers.reservation(updates.update(
        instance_uuid, changes, _authorizer(caller, 'update'), actor,
        restricted))


def delete(instance_uuid):
    """DELETE /v1/reservations/{instance_uuid}"""
    actor, caller, restricted = _writer()
    releases.release(
        instance_uuid, _authorizer(caller, 'delete'), actor, restricted)
    answers.no_content()


def _writer():
    """Who writes to one reservation.

    :returns: values.Actor with the host that must hold it, the caller, and
        whether the caller is bound to its project.
    """
    query, caller = requests.query(queries.write), requests.caller()
    return (values.Actor(query.get('host'), checks.holder(query)), caller,
            not caller.may('create_restricted'))


def _authorizer(caller, rule):
    return requests.authorizer(caller, rule, lambda found:
                               lookup.not_found(found.instance_uuid))
