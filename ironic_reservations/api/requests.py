# SPDX-License-Identifier: Apache-2.0
"""What the calls read out of a request: who sends it, for whom, and what."""

import contextlib
import dataclasses
import json

from oslo_log import log
import pecan

from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import text
from ironic_reservations.api import access
from ironic_reservations.api import limits
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import values

LOG = log.getLogger(__name__)


def caller():
    """Return who sends the request, a RequestContext."""
    return caller_of(pecan.request.environ)


def caller_of(environ):
    """The same of a request's WSGI environment."""
    if conf.CONF.auth_strategy == 'keystone':
        return context.RequestContext.from_environ(environ)
    # Without Keystone nobody has checked the headers that claim an identity.
    # The log may have another context by now: that of Ironic, which a process
    # asks for its versions within its first request.
    nobody = environ[access.CONTEXT]
    nobody.update_store()
    return nobody


def query(validate):
    """Return the parameters of the query, validated.

    The value of a repeated parameter is a list.

    :param validate: a schema.Validator.
    :raises: InvalidInput.
    """
    return validate(pecan.request.GET.mixed())


def body(validate):
    """Return the JSON of the body, validated.

    :param validate: a schema.Validator.
    :raises: InvalidInput.
    """
    return validate(parse(limits.body(pecan.request)))


def parse(body):
    """Parse a JSON body.

    NaN and Infinity, which Python's parser accepts although they are not
    JSON, become a value that no schema allows, so that the schema's error
    names the field.

    :param body: bytes whose length and nesting are bounded (see ``limits``).
    :raises: InvalidInput when the body is not JSON in UTF-8.
    """
    try:
        return json.loads(body.decode('utf-8'),
                          parse_constant=lambda constant: object(),
                          # Python refuses to parse integers of more than
                          # 4,300 digits; twenty exceed every maximum.
                          parse_int=lambda digits: int(digits[:20]))
    except ValueError as error:
        raise exception.InvalidInput('body', f'must be valid JSON: {error}')


@contextlib.contextmanager
def inside(field):
    """Prefix the field of an InvalidInput with the field that contains it."""
    try:
        yield
    except exception.InvalidInput as e:
        raise exception.InvalidInput(
            field if e.field == 'body' else f'{field}.{e.field}', e.reason
        ) from e


def is_true(query, name):
    """Return whether a boolean parameter of a query is true.

    :param query: dict, validated.
    """
    return query.get(name, 'false').lower() == 'true'


def authorizer(caller, rule, not_found):
    """Make the function that decides whether a caller may do this to one.

    What the policy does not let the caller see is hidden from it, unless it
    is of the caller's own project, because then there is nothing to hide.

    :param caller: RequestContext.
    :param rule: the last part of the rule's name.
    :param not_found: makes the error that says that there is no such one.
    :returns: a function of a Reservation or a Group, which raises NotFound
        or NotAuthorized.
    """
    def authorize(found):
        if not caller.may('get', found):
            if caller.project_id is not None and caller.project_id in (
                    found.project_id, found.node_owner):
                caller.authorize('get', found)
            error = not_found(found)
            LOG.debug('Policy hides it from this caller: %s', error)
            raise error
        if rule != 'get':
            caller.authorize(rule, found)
    return authorize


def assignment(body, **defaults):
    """Return for whom a body reserves a node, a values.Assignment.

    :param defaults: values of keys that the body does not have.
    """
    return values.Assignment(**defaults | {
        field.name: body[field.name]
        for field in dataclasses.fields(values.Assignment)
        if body.get(field.name) is not None})


def callers_assignment(caller, body):
    """Return for whom a caller reserves a node, by default for itself.

    :returns: values.Assignment.
    :raises: NotAuthorized when the caller must not reserve for others.
    """
    keys = [key for key in ('host', 'project_id', 'user_id')
            if body.get(key) is not None]
    if keys and not caller.may('create_restricted'):
        raise exception.NotAuthorized(
            f'{", ".join(keys)}: only system-scope and service callers '
            f'may say for whom a node is reserved.')
    return assignment(body, project_id=caller.project_id,
                      user_id=caller.user_id)


def holder(values):
    """Return the process that writes for a host.

    :param values: a body or a query.
    :returns: UUID in lower case, or None.
    :raises: InvalidInput when there is a holder without a host.
    """
    if values.get('holder') is None:
        return None
    if values.get('host') is None:
        raise exception.InvalidInput(
            'holder', 'must come with the host that it holds')
    return values['holder'].lower()


def lease(restricted_to, body):
    """Return the lease that a request asks for, or gets by default.

    :param restricted_to: the project to which the caller is bound, or None.
    :returns: seconds, or None for a reservation that does not expire.
    :raises: InvalidInput when it exceeds [reservations] max_lease, or when
        [reservations] require_lease requires one and there is none.
    """
    options, seconds = conf.CONF.reservations, body.get('expires_in')
    if seconds is not None:
        return check_lease(seconds)
    seconds = min(options.default_lease, options.max_lease) or None
    if seconds is None and restricted_to is not None and options.require_lease:
        raise exception.InvalidInput(
            'expires_in', f'must be given, {_at_most()}')
    return seconds


def check_lease(seconds):
    """Return a lease as a whole number of seconds.

    :param seconds: None for no lease, which exceeds every limit.
    :raises: InvalidInput when it exceeds [reservations] max_lease.
    """
    if seconds is None or seconds > conf.CONF.reservations.max_lease:
        raise exception.InvalidInput('expires_in', f'must be {_at_most()}')
    return int(seconds)


def _at_most():
    longest = conf.CONF.reservations.max_lease
    return (f'at most {longest} ({text.format_duration(longest)}), see '
            f'[reservations] max_lease')


def group(values, uuid, project_id):
    """Return the group that a request names.

    :param values: dict that may have ``policy`` and ``by``.
    :param project_id: the project that the group belongs to, or None.
    :returns: membership.GroupRequest.
    :raises: InvalidInput when there is only one of policy and by.
    """
    policy, by = values.get('policy'), values.get('by')
    if (policy is None) != (by is None):
        raise exception.InvalidInput(
            'policy' if policy is None else 'by',
            'must be given: policy and by, both or neither')
    return membership.GroupRequest(uuid, policy, by, project_id)


def membership_of(body, project_id):
    """Return the group that a reservation shall join, or None.

    The UUID becomes lower case in the body as well, because the identity of
    the request is made of the body.

    :returns: membership.GroupRequest.
    :raises: InvalidInput.
    """
    values = body.get('group')
    if values is None:
        return None
    values['uuid'] = values['uuid'].lower()
    with inside('group'):
        return group(values, values['uuid'], project_id)


def matcher(caller, restricted_to, project_id, spec, required=True):
    """Return the Matcher of a request spec.

    :param restricted_to: the project to which the caller is bound, or None.
    :param project_id: the project of the reservation, or None.
    :param spec: dict, validated.
    :param required: whether the request spec must constrain the node.
    :raises: NotAuthorized, InvalidInput.
    """
    bound = restricted_to is not None
    ownership = spec.get('ownership') or ('project' if bound else 'any')
    unowned = caller.may_use_unowned(restricted_to)
    if bound and ownership not in (
            ('project', 'project_or_none') if unowned else ('project',)):
        raise exception.NotAuthorized(
            'ownership: only system-scope and service callers may reserve '
            'nodes that their project neither owns nor leases. A project may '
            'reserve nodes that nobody owns or leases where the policy '
            'baremetal:reservation:create_unowned allows it.')
    if bound and (ownership == 'project_or_none') == unowned:
        # It is all that the caller may use.
        ownership = 'any'
    if ownership != 'any' and project_id is None:
        raise exception.InvalidInput(
            'ownership', 'must be any, unless the reservation has a project')
    return matching.Matcher(
        request_spec.RequestSpec.from_dict(
            spec, conf.CONF.reservations.match, required),
        restricted_to, unowned,
        None if ownership == 'any' else matching.Ownership(
            project_id, ownership == 'project_or_none'))
