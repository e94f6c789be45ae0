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
import pecan

from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.api import access
from ironic_reservations.api import limits
from ironic_reservations.api import schema
from ironic_reservations.shared import text

LOG = log.getLogger(__name__)

Value = TypeVar('Value')

# Without white space. Some clients send null where no body is given.
_EMPTY_BODIES = (b'', b'null', b'{}', b'[]', b'""')


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


def make_authorizer(caller: context.RequestContext, rule: str
                    ) -> Callable[[context.Resource], None]:
    """Return a function that checks whether the caller may act on an object.

    If the policy does not let the caller see a reservation or a group, the
    function raises NotFound, unless it belongs to the caller's own project,
    which knows that it exists. Otherwise it raises NotAuthorized.

    :param rule: last part of the name of the policy rule.
    """
    def authorize(target: context.Resource) -> None:
        if not caller.may('get', target):
            if caller.project_id is not None and caller.project_id in (
                    target.project_id, target.node_owner):
                caller.authorize('get', target)
            error = exception.NotFound.of(target.title)
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


def read_moment(field: str, text: str) -> int | datetime.datetime:
    """Parse a time in a query.

    :returns: seconds from now, or a time in UTC without a time zone.
    :raises: InvalidInput.
    """
    if re.fullmatch('[0-9]{1,9}', text):
        return int(text)
    return parse_time(
        field, text, 'a number of seconds, at most 999999999, or ')
