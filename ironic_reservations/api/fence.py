# SPDX-License-Identifier: Apache-2.0
"""Refuses requests to Ironic of a host that no longer holds the node.

A compute host checks that it holds a node before it calls Ironic, but this
may have changed when the call arrives. Therefore a header of the call names
the reservation, which is checked here.

``Fence`` wraps Ironic's application. It sends a copy of the request to the
application that serves /v1/reservations, and so reuses its authentication,
policy, errors and log. ``Gate`` is middleware of that application and makes
the check. Only the gate decides whether a request passes; the status of the
response does not matter.
"""

from collections.abc import Iterable
import io
import re
from typing import Any
import urllib.parse
from wsgiref import types

from oslo_utils import uuidutils
import webob

from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.api import access
from ironic_reservations.api import limits
from ironic_reservations.api import requests
from ironic_reservations.api import schema
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import transaction

#: Headers of a request, and of all responses to such requests.
HEADER = 'X-OpenStack-Ironic-Reservation'
RESPONSE_HEADER = 'X-OpenStack-Ironic-Reservations-Fence'

#: The key of the WSGI environment that has the header.
VARIABLE = 'HTTP_' + HEADER.upper().replace('-', '_')

#: Parameters of the header.
PARAMETERS = schema.Validator(schema.closed_object({
    'instance': schema.UUID, 'host': schema.HOST, 'holder': schema.UUID,
    'node': schema.IDENT}, required=['instance', 'host']), HEADER)

# Paths that may have the header. They must be unambiguous to Ironic: a node by
# its UUID, without empty or dotted segments.
_NODE = re.compile(r'/v1/nodes/([^/]+)(?:/(?!\.\.?(?:/|\Z))[^/]+)*/?')
_TARGETS = re.compile(r'/v1/volume/targets(?:/([^/]+))?/?')

# Methods of the collection of targets. With other methods, Ironic's framework
# would read the target from the body.
_TARGET_METHODS = ('GET', 'HEAD', 'OPTIONS', 'POST')

# Ironic's framework reads arguments that the path lacks from the query, and
# the method too. A node must be the path's; the other arguments are not
# needed.
_NODE_ARGUMENTS = ('node', 'node_ident', 'node_uuid')
_OTHER_ARGUMENTS = ('target_uuid', '_method')

# It also reads them from a form. Ironic's own bodies are JSON.
_FORMS = ('application/x-www-form-urlencoded', 'multipart/form-data')

# Key of the WSGI environment: the environment of the request to check. No
# client can set it.
_ORIGINAL = 'ironic_reservations.original'


class Fence:
    """Pass a request with the header on to Ironic, or refuse it.

    :param ironic: Ironic's application, which receives the original request.
    :param reservations: application of ``app.make_app``, with a ``Gate``.
    """

    def __init__(self, ironic: types.WSGIApplication,
                 reservations: types.WSGIApplication) -> None:
        self._ironic = ironic
        self._reservations = reservations

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]],
                  *exc_info: Any) -> Any:
            return start_response(
                status, [*headers, (RESPONSE_HEADER, '1')], *exc_info)

        check = _make_check(environ)
        refusal: types.WSGIApplication = webob.Request(
            check).get_response(self._reservations)
        if access.PASSED_ON in check:
            return self._ironic(environ, start)
        # Some clients read the response only after they have sent the body.
        limits.drain_body(environ,
                          conf.CONF.api.max_json_body_size_provision * 1024)
        return refusal(environ, start)


def _make_check(environ: types.WSGIEnvironment) -> dict[str, Any]:
    """Return the environment of the request that the gate checks.

    It has no body, and no headers that exceed our limits, because Ironic may
    have other limits.
    """
    return {**{name: value for name, value in environ.items()
               if not limits.is_too_long(name, value)},
            'wsgi.input': io.BytesIO(), _ORIGINAL: environ}


class Gate:
    """Middleware that checks requests for the fence."""

    def __init__(self, app: types.WSGIApplication) -> None:
        self.app = app

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        if _ORIGINAL not in environ:
            return self.app(environ, start_response)
        _check(environ[_ORIGINAL], requests.make_caller(environ))
        environ[access.PASSED_ON] = True
        start_response('204 No Content', [])
        return []


def _check(environ: types.WSGIEnvironment,
           caller: context.RequestContext) -> None:
    """Check that a request may be passed on to Ironic.

    :raises: InvalidInput, PreconditionFailed.
    """
    parameters = _parse_header(environ[VARIABLE])
    node, target = _find_node(environ, parameters)
    actor = values.Actor(parameters['host'], parameters.get('holder'))
    reservation, is_host = lookup.find_fenced(
        parameters['instance'], node, target, actor)
    if reservation is None or not caller.may('get', reservation):
        raise exception.PreconditionFailed(
            f'Host {actor.host} does not hold node {node} for instance '
            f'{parameters["instance"]}.')
    if not is_host:
        raise transaction.make_lease_error(actor)


def _parse_header(header: str) -> dict[str, str]:
    """Return the parameters of the header: see ``PARAMETERS``.

    :returns: UUIDs of our own in lower case.
    :raises: InvalidInput.
    """
    pairs = [part.strip(' \t').partition('=') for part in header.split(';')]
    try:
        parameters = {name: urllib.parse.unquote_to_bytes(
            value.encode('latin-1')).decode() for name, _, value in pairs}
    except UnicodeError:
        raise exception.InvalidInput(
            HEADER, 'must be percent-encoded UTF-8', got=header)
    # Servers join the values of a repeated header by a comma.
    if len(parameters) < len(pairs) or ',' in header:
        raise exception.InvalidInput(
            HEADER, 'must not repeat a parameter', got=header)
    return {name: text.lower() if name in ('instance', 'holder') else text
            for name, text in PARAMETERS(parameters).items()}


def _find_node(environ: types.WSGIEnvironment,
               parameters: dict[str, str]) -> tuple[str, str | None]:
    """Return the node of a request.

    :param parameters: result of ``_parse_header``.
    :returns: the node's UUID as the request spells it, and the UUID of the
        volume target in the path, or None.
    :raises: InvalidInput if the request names no node, or could name two.
    """
    path, target = environ.get('PATH_INFO', ''), None
    if match := _NODE.fullmatch(path):
        if 'node' in parameters:
            raise exception.InvalidInput(
                HEADER, 'must not have node, because the path names it')
        node = match[1]
    elif match := _TARGETS.fullmatch(path):
        if 'node' not in parameters:
            raise exception.InvalidInput(
                HEADER, 'must have node, because the path does not name it')
        node, target = parameters['node'], match[1]
        if target is None and environ['REQUEST_METHOD'] not in _TARGET_METHODS:
            raise exception.InvalidInput('path', 'must name a volume target',
                                         got=path)
    else:
        raise exception.InvalidInput(
            HEADER, 'is allowed only with the path of a node, by its UUID, or '
                    'of volume targets')
    for ident in node, target:
        # Ironic stores these UUIDs as its clients sent them, without dashes,
        # too. It finds them as they are spelled, and so does the check.
        if ident is not None and not uuidutils.is_uuid_like(ident):
            raise exception.InvalidInput(
                HEADER, 'needs the UUIDs of the node and of the volume target',
                got=ident)
    _check_arguments(environ, node)
    return node, target


def _check_arguments(environ: types.WSGIEnvironment, node: str) -> None:
    """Refuse a query or a form that could name another node.

    :raises: InvalidInput.
    """
    for name, value in urllib.parse.parse_qsl(
            environ.get('QUERY_STRING', ''), keep_blank_values=True):
        if name in _OTHER_ARGUMENTS or (
                name in _NODE_ARGUMENTS and value.lower() != node.lower()):
            raise exception.InvalidInput(
                name, f'must not be in the query of a request with {HEADER}')
    media_type = environ.get(
        'CONTENT_TYPE', '').partition(';')[0].strip().lower()
    if media_type in _FORMS or (
            not media_type and environ['REQUEST_METHOD'] == 'POST'
            and limits.has_body(environ)):
        raise exception.InvalidInput(
            'Content-Type', 'must be application/json', got=media_type)
