# SPDX-License-Identifier: Apache-2.0
"""What calls share about a request: who asks, for whom, and for what."""

from oslo_log import log
import pecan

from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations.api import access
from ironic_reservations.api import bodies
from ironic_reservations.api import checks
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

    The value of a parameter that is given several times is a list.

    :param validate: a Validator of ``queries``.
    :raises: InvalidInput.
    """
    return validate(pecan.request.GET.mixed())


def body(validate):
    """Return the JSON of the body, validated.

    :param validate: a Validator of ``bodies``.
    :raises: InvalidInput.
    """
    return validate(bodies.parse(limits.body(pecan.request)))


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


def given(body):
    """Return for whom a node is held, as far as the body says it, a dict."""
    return {key: body[key] for key in ('host', 'project_id', 'user_id')
            if body.get(key) is not None}


def owner(caller, body):
    """Return for whom a node is held: as the body says, else the caller.

    :returns: values.Owner.
    :raises: NotAuthorized when the caller may not speak for another.
    """
    said = given(body)
    if said and not caller.may('create_restricted'):
        raise exception.NotAuthorized(
            f'{", ".join(said)}: only system-scope and service callers '
            f'may say for whom a node is reserved.')
    return values.Owner(**{'project_id': caller.project_id,
                           'user_id': caller.user_id, **said})


def lease(restricted_to, body):
    """Return for how many seconds a request asks, or None for no end.

    :param restricted_to: the project to which the caller is bound, or None.
    :raises: InvalidInput.
    """
    return checks.expires_in(body, required=(
        restricted_to is not None and conf.CONF.reservations.require_lease))


def group(given, uuid, owner):
    """Return the group that a request names.

    :param given: dict that may have ``policy`` and ``by``.
    :param owner: values.Owner, whose project's group it is.
    :returns: membership.Named.
    :raises: InvalidInput.
    """
    return membership.Named(uuid, **checks.group(given),
                            project_id=owner.project_id)


def membership_of(body, owner):
    """Return the group of which a reservation is to be a member, or None.

    It is noted in the body in its canonical form, because the body is what
    the identity of the request is made of.

    :returns: membership.Named.
    :raises: InvalidInput.
    """
    named = body.get('group')
    if named is None:
        return None
    named['uuid'] = named['uuid'].lower()
    with checks.inside('group'):
        return group(named, named['uuid'], owner)


def matcher(caller, restricted_to, owner, spec, required=True):
    """Return the Matcher of a request spec.

    :param restricted_to: the project to which the caller is bound, or None.
    :param owner: values.Owner.
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
    if ownership != 'any' and owner.project_id is None:
        raise exception.InvalidInput(
            'ownership', 'must be any, unless the reservation has a project')
    return matching.Matcher(
        request_spec.RequestSpec.from_dict(
            spec, conf.CONF.reservations.match, required),
        restricted_to, unowned,
        None if ownership == 'any' else matching.Ownership(
            owner.project_id, ownership == 'project_or_none'))
