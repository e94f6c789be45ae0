# SPDX-License-Identifier: Apache-2.0
"""Reads requests: the caller, the query, the body, and values from them."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import datetime
import json
import re
from typing import Any
from typing import TypeVar
from wsgiref import types

from oslo_log import log
from oslo_utils import uuidutils
import pecan

from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.api import access
from ironic_reservations.api import limits
from ironic_reservations.api import schema
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import request_spec
from ironic_reservations.shared import text

LOG = log.getLogger(__name__)

Value = TypeVar('Value')

# Without white space. Some clients send null where no body is given.
_EMPTY_BODIES = (b'', b'null', b'{}', b'[]', b'""')

#: Keys that only system-scope and service callers may give.
OWNER = ('host', 'project_id', 'user_id')


def get_caller() -> context.RequestContext:
    """Return the caller of the current request."""
    return make_caller(pecan.request.environ)


def make_caller(environ: types.WSGIEnvironment) -> context.RequestContext:
    """Return the caller of a request."""
    if conf.CONF.auth_strategy == 'keystone':
        return context.RequestContext.from_environ(environ)
    # Without Keystone, headers with an identity are not checked. The context
    # is stored again for the log, because Ironic, whose versions are read
    # during the first request, stores its own.
    nobody: context.RequestContext = environ[access.CONTEXT]
    nobody.update_store()
    return nobody


def read_query(validate: schema.Validator) -> dict[str, Any]:
    """Return the validated query; repeated parameters are lists.

    :raises: InvalidInput, also for the body of a GET or DELETE.
    """
    query: dict[str, Any] = validate(pecan.request.GET.mixed())
    if pecan.request.method in ('GET', 'HEAD', 'DELETE'):
        _check_no_body([*validate.schema['properties']])
    return query


def _check_no_body(parameters: list[str]) -> None:
    """Refuse a body that says anything, as a condition would not count.

    It may have any type, and is not parsed.

    :param parameters: those of the query.
    :raises: InvalidInput that names the parameters that the body names.
    """
    body = b''.join(limits.get_body(pecan.request).split())
    if body in _EMPTY_BODIES:
        return
    words = re.findall(r'\w+', body.decode(errors='replace'))
    names = [name for name in parameters if name in words] or parameters
    raise exception.InvalidInput(
        'body', f'must be empty with {pecan.request.method}'
        + (f'; put {", ".join(names)} in the query' if names else ''))


def read_body(validate: schema.Validator) -> Any:
    """Return the validated JSON of the body.

    :raises: InvalidInput.
    """
    return validate(parse_json(limits.get_body(pecan.request)))


def parse_json(body: bytes) -> Any:
    """Parse a body whose size and nesting are limited; see ``limits``.

    Python also parses NaN and Infinity, which are not JSON. They become a
    value that no schema allows, so that the schema's error names the field.

    :raises: InvalidInput if the body is not JSON in UTF-8, or an object has a
        key twice.
    """
    try:
        return json.loads(body.decode('utf-8'),
                          object_pairs_hook=_make_object,
                          parse_constant=lambda constant: object(),
                          # Python does not parse integers of more than 4,300
                          # digits; 20 digits exceed every maximum.
                          parse_int=lambda digits: int(digits[:20]))
    except ValueError as error:
        raise exception.InvalidInput('body', f'must be valid JSON: {error}')


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; which of two values counts is not defined."""
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise exception.InvalidInput(
            'body', 'must not have a key twice in one object',
            got=next(key for key in keys if keys.count(key) > 1))
    return result


@contextlib.contextmanager
def prefix_field(field: str) -> Iterator[None]:
    """Prefix the field of an InvalidInput with the field that contains it."""
    try:
        yield
    except exception.InvalidInput as e:
        raise exception.InvalidInput(
            field if e.field == 'body' else f'{field}.{e.field}', e.reason
        ) from e


def is_true(query: dict[str, Any], name: str) -> bool:
    """Return whether a boolean parameter of a validated query is true."""
    value: str = query.get(name, 'false')
    return value.lower() == 'true'


def make_authorizer(caller: context.RequestContext, rule: str,
                    make_error: Callable[[Any], exception.NotFound]
                    ) -> Callable[[context.Owned], None]:
    """Return a function that checks whether the caller may act on an object.

    If the policy does not let the caller see a reservation or a group, the
    function raises NotFound, unless it belongs to the caller's own project,
    which knows that it exists. Otherwise it raises NotAuthorized.

    :param rule: last part of the name of the policy rule.
    :param make_error: returns the NotFound for an object.
    """
    def authorize(target: context.Owned) -> None:
        if not caller.may('get', target):
            if caller.project_id is not None and caller.project_id in (
                    target.project_id, target.node_owner):
                caller.authorize('get', target)
            error = make_error(target)
            LOG.debug('The policy does not let this caller see it: %s', error)
            raise error
        if rule != 'get':
            caller.authorize(rule, target)
    return authorize


def read_fields(type_: Callable[..., Value], body: dict[str, Any],
                **defaults: Any) -> Value:
    """Return a dataclass with the values of a body.

    :param defaults: values of keys that the body does not have.
    """
    names = {field.name for field in dataclasses.fields(
        type_)}  # type: ignore[arg-type]  # is a dataclass
    return type_(**defaults | {
        name: value for name, value in body.items()
        if name in names and value is not None})


def read_permitted_assignment(caller: context.RequestContext,
                              body: dict[str, Any]) -> values.Assignment:
    """Return the assignment in a body, by default to the caller.

    :raises: NotAuthorized if the caller must not reserve for others.
    """
    keys = [key for key in OWNER if body.get(key) is not None]
    if keys and not caller.may('create_restricted'):
        raise exception.NotAuthorized(
            f'{", ".join(keys)}: only system-scope and service callers may '
            f'reserve nodes for others; leave it out to reserve for yourself.')
    return read_fields(values.Assignment, body, project_id=caller.project_id,
                       user_id=caller.user_id)


def read_holder(request: dict[str, Any]) -> str | None:
    """Return the process that acts as the host of a request.

    :param request: a body or a query.
    :returns: UUID in lower case.
    :raises: InvalidInput if the request has a holder and no host.
    """
    if request.get('holder') is None:
        return None
    if request.get('host') is None:
        raise exception.InvalidInput('holder', 'requires host')
    holder: str = request['holder']
    return holder.lower()


def read_avoid(caller: context.RequestContext,
               body: dict[str, Any]) -> frozenset[str]:
    """Return the UUIDs of the nodes that a request avoids, in lower case.

    :raises: NotAuthorized, InvalidInput.
    """
    uuids = body.get('avoid')
    if uuids is None:
        return frozenset()
    if not caller.may('create_restricted'):
        raise exception.NotAuthorized(
            'avoid: only system-scope and service callers may name nodes to '
            'avoid; leave it out.')
    for number, uuid in enumerate(uuids):
        if not uuidutils.is_uuid_like(uuid):
            raise exception.InvalidInput(
                f'avoid.{number}', 'must be the UUID of a node', got=uuid)
    return frozenset(map(str.lower, uuids))


def read_lease(reach: values.Ownership, body: dict[str, Any]) -> int | None:
    """Return the lease in a body, or the default.

    :param reach: that of the caller.
    :returns: seconds, or None for a reservation that does not expire.
    :raises: InvalidInput; see ``check_lease``.
    """
    options, seconds = conf.CONF.reservations, body.get('expires_in')
    if seconds is None:
        seconds = min(options.default_lease, options.max_lease) or None
    return check_lease(seconds, reach)


def check_lease(seconds: float | None, reach: values.Ownership) -> int | None:
    """Return a lease as an integer number of seconds.

    :param seconds: None for no lease.
    :param reach: that of the caller. A project-scoped caller needs a lease if
        [reservations] require_lease is set.
    :raises: InvalidInput if there is no lease, or if it exceeds
        [reservations] max_lease.
    """
    options = conf.CONF.reservations
    maximum = (f'at most {options.max_lease} '
               f'({text.format_duration(options.max_lease)}), see '
               f'[reservations] max_lease')
    if seconds is None:
        if reach.is_limited and options.require_lease:
            raise exception.InvalidInput(
                'expires_in', f'is required, because [reservations] '
                              f'require_lease is set; it must be {maximum}')
        return None
    if seconds > options.max_lease:
        raise exception.InvalidInput(
            'expires_in', f'must be {maximum}', got=seconds)
    return int(seconds)


def read_time(name: str, body: dict[str, Any]) -> values.Time | None:
    """Return a time in a validated body; None if there is none.

    :raises: InvalidInput.
    """
    time = body.get(name)
    if isinstance(time, dict):
        return datetime.timedelta(0, time['in'])
    return None if time is None else parse_time(name, time)


def parse_time(field: str, time: str, others: str = '') -> datetime.datetime:
    """Return a time in UTC; see ``text.parse_time``.

    :raises: InvalidInput.
    """
    try:
        return text.parse_time(time, others)
    except ValueError as error:
        raise exception.InvalidInput(field, str(error), got=time)


def read_group(group: dict[str, Any], uuid: str,
               project_id: str | None) -> values.GroupRequest:
    """Return the group that a request names.

    :param group: may have the keys ``policy`` and ``by``, or ``segment``.
    :param project_id: project that the group belongs to.
    :raises: InvalidInput if only one of policy and by is set, or one of them
        and segment.
    """
    policy, by = group.get('policy'), group.get('by')
    segment = group.get('segment')
    if segment is not None and (policy, by) != (None, None):
        raise exception.InvalidInput(
            'segment', 'cannot be combined with policy and by, which the '
                       'group already has')
    if policy is None and by is not None:
        raise exception.InvalidInput('policy', 'is required with by')
    if by is None and policy is not None:
        raise exception.InvalidInput('by', 'is required with policy')
    return read_fields(values.GroupRequest, {
        **group, 'uuid': uuid, 'project_id': project_id,
        'segment': None if segment is None else int(segment)})


def read_levels(levels: list[dict[str, Any]],
                group: values.GroupRequest,
                members: int) -> values.GroupRequest:
    """Return a new group with the levels that a request names.

    :param levels: one or two objects with the keys ``by``, ``policy`` and
        maybe ``segment``, the outer level first.
    :param group: the group without levels.
    :param members: number of members.
    :raises: InvalidInput.
    """
    *outer, inner = levels
    size, field = inner.get('segment'), f'levels.{len(outer)}'
    if group.policy is not None:
        raise exception.InvalidInput(
            'levels', 'cannot be combined with policy and by')
    if any(level.get('segment') is not None for level in outer):
        raise exception.InvalidInput(
            'levels.0.segment', 'is allowed only in the last level')
    if size is None:
        if outer:
            raise exception.InvalidInput(
                f'{field}.segment', 'is required with two levels')
        return dataclasses.replace(
            group, policy=inner['policy'], by=inner['by'])
    if inner['policy'] != group_policy.PACK:
        raise exception.InvalidInput(
            f'{field}.policy', 'must be pack with segment',
            got=inner['policy'])
    if members % size:
        raise exception.InvalidInput(
            f'{field}.segment', f'must divide the number of members, '
                                f'{members}', got=size)
    if outer and outer[0]['by'] == inner['by']:
        raise exception.InvalidInput(
            f'{field}.by', 'must differ from that of the first level',
            got=inner['by'])
    return dataclasses.replace(
        group, segments=members // int(size), segment_levels=json.dumps([
            {name: int(value) if name == 'segment' else value
             for name, value in sorted(level.items()) if value is not None}
            for level in levels]))


def read_membership(body: dict[str, Any],
                    project_id: str | None) -> values.GroupRequest | None:
    """Return the group that a reservation is to join.

    Also converts the UUID in the body to lower case, because the body is the
    identity of the request.

    :raises: InvalidInput.
    """
    group = body.get('group')
    if group is None:
        return None
    group['uuid'] = group['uuid'].lower()
    with prefix_field('group'):
        return read_group(group, group['uuid'], project_id)


def make_matcher(reach: values.Ownership, project_id: str | None,
                 spec: dict[str, Any],
                 use: matching.Use = matching.TO_HOLD,
                 avoid: frozenset[str] = frozenset()) -> matching.Matcher:
    """Return the Matcher of a validated request spec.

    :param reach: that of the caller.
    :param project_id: project of the reservation.
    :param use: what the node is for. A claim need not constrain it, and may
        claim a dedicated one.
    :param avoid: see ``matching.Matcher``.
    :raises: NotAuthorized, InvalidInput.
    """
    kind = spec.get('ownership') or ('project' if reach.is_limited else 'any')
    if reach.is_limited and kind not in ('project', reach.kind):
        raise exception.NotAuthorized(
            f'ownership: "{kind}" is not allowed. Only system-scope and '
            f'service callers may reserve nodes that their project does not '
            f'own, lease or have in a pool; the policy '
            f'baremetal:reservation:create_unowned may allow '
            f'"project_or_none".')
    if kind != 'any' and project_id is None and not reach.is_limited:
        raise exception.InvalidInput(
            'ownership', 'must be any for a reservation without project_id',
            got=kind)
    return matching.Matcher(
        request_spec.RequestSpec.from_dict(
            spec, conf.CONF.reservations.match,
            required=use != matching.TO_CLAIM),
        reach, values.Ownership(
            reach.project_id if reach.is_limited else project_id, kind),
        dedicated=() if use == matching.TO_CLAIM else tuple(
            conf.CONF.reservations.dedicated_traits), use=use, avoid=avoid)
