# SPDX-License-Identifier: Apache-2.0
"""The fence at Ironic's door: who writes to a node must still hold it.

A compute host looks whose a node is before it calls Ironic, and what it has
seen may be over when the call arrives. With a header the call says for whom
it is meant, and it is looked at here, where it arrives.

``Fence`` stands in front of Ironic. It asks the application that serves
/v1/reservations, with a copy of the request, and so needs no authentication,
policy, errors and log of its own. ``Gate`` answers inside of that application.
A request is let in only if the gate says so: no status of an answer does.
"""

from collections.abc import Iterable
import io
import re
from typing import Any
import urllib.parse
from wsgiref import types

import webob

from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations.api import access
from ironic_reservations.api import limits
from ironic_reservations.api import requests
from ironic_reservations.api import schema
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import values

#: What a request says, and what the answers to such requests say.
HEADER = 'X-OpenStack-Ironic-Reservation'
ANSWER_HEADER = 'X-OpenStack-Ironic-Reservations-Fence'

#: The key of the WSGI environment that has the header.
VARIABLE = 'HTTP_' + HEADER.upper().replace('-', '_')

#: What the header may say.
KEYS = schema.Validator(schema.closed_object({
    'instance': schema.uuid, 'host': schema.host, 'holder': schema.uuid,
    'node': schema.uuid}, required=['instance', 'host']), HEADER)

# What the header may come with. Only a path is let in that Ironic can read in
# no other way: a node by its UUID, and neither an empty segment nor a dotted
# one, whatever becomes of these.
_NODE = re.compile(
    rf'/v1/nodes/({schema.UUID})(?:/(?!\.\.?(?:/|\Z))[^/]+)*/?')
_TARGETS = re.compile(rf'/v1/volume/targets(?:/({schema.UUID}))?/?')

# What the collection of targets knows. Of other methods Ironic's framework
# would take the target out of the body.
_OF_TARGETS = ('GET', 'HEAD', 'OPTIONS', 'POST')

# Ironic's framework takes arguments that the path does not give out of the
# query, and another method: a node, which must be the one in question, and
# what no request needs to say there.
_NODE_ARGUMENTS = ('node', 'node_ident', 'node_uuid')
_OTHER_ARGUMENTS = ('target_uuid', '_method')

# It takes them out of a form, too. Ironic's own bodies are JSON.
_FORMS = ('application/x-www-form-urlencoded', 'multipart/form-data')

# A key of the WSGI environment: the environment of the request for which the
# gate is asked. No client can set it.
_ASKED_FOR = 'ironic_reservations.asked_for'


class Fence:
    """Let a request with the header go on to Ironic, or refuse it.

    :param ironic: Ironic's WSGI application, which sees the request as it has
        come.
    :param reservations: the application of ``app.make_app``.
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
                status, [*headers, (ANSWER_HEADER, '1')], *exc_info)

        question = _question(environ)
        refusal = webob.Request(question).get_response(self._reservations)
        if access.PASSED_ON in question:
            return self._ironic(environ, start)
        # The client may be able to read the answer only when it has sent all.
        limits.drain_body(environ,
                     conf.CONF.api.max_json_body_size_provision * 1024)
        return refusal(environ, start)


def _question(environ: types.WSGIEnvironment) -> dict[str, Any]:
    """Make the environment in which the gate is asked.

    It has no body, and nothing that is too long for us and may not be so for
    Ironic.
    """
    return {**{name: value for name, value in environ.items()
               if not limits.is_too_long(name, value)},
            'wsgi.input': io.BytesIO(), _ASKED_FOR: environ}


class Gate:
    """Middleware that answers what the fence asks."""

    def __init__(self, app: types.WSGIApplication) -> None:
        self.app = app

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        if _ASKED_FOR not in environ:
            return self.app(environ, start_response)
        _check(environ[_ASKED_FOR], requests.make_caller(environ))
        environ[access.PASSED_ON] = True
        start_response('204 No Content', [])
        return []


def _check(environ: types.WSGIEnvironment,
           caller: context.RequestContext) -> None:
    """Raise unless a request may go on to Ironic.

    :param environ: of the request.
    :param caller: RequestContext of who sends it.
    :raises: InvalidInput, PreconditionFailed.
    """
    said = _said(environ[VARIABLE])
    node, target = _named(environ, said)
    actor = values.Actor(said['host'], said.get('holder'))
    held, is_host = lookup.find_fenced(said['instance'], node, target, actor)
    if held is None or not caller.may('get', held):
        raise exception.PreconditionFailed(
            f'Host {actor.host} does not hold node {node} for instance '
            f'{said["instance"]}.')
    if not is_host:
        raise transaction.make_lease_error(actor)


def _said(header: str) -> dict[str, str]:
    """Read the header.

    :returns: dict of ``instance`` and ``host``, and of ``holder`` and ``node``
        where it says them. Our own UUIDs are in lower case.
    :raises: InvalidInput.
    """
    pairs = [part.strip(' \t').partition('=') for part in header.split(';')]
    try:
        said = {name: urllib.parse.unquote_to_bytes(
            value.encode('latin-1')).decode() for name, _, value in pairs}
    except UnicodeError:
        raise exception.InvalidInput(HEADER, 'must be UTF-8')
    # Servers join the values of a header that is there twice by a comma.
    if len(said) < len(pairs) or ',' in header:
        raise exception.InvalidInput(HEADER, 'must say each thing once')
    return {name: text.lower() if name in ('instance', 'holder') else text
            for name, text in KEYS(said).items()}


def _named(environ: types.WSGIEnvironment,
           said: dict[str, str]) -> tuple[str, str | None]:
    """Find out which node a request is about.

    :param said: what ``_said`` returns.
    :returns: the node's UUID as Ironic will look for it, and the UUID of the
        volume target that the path names, or None.
    :raises: InvalidInput when it names no node, or perhaps two.
    """
    path, target = environ.get('PATH_INFO', ''), None
    if found := _NODE.fullmatch(path):
        if 'node' in said:
            raise exception.InvalidInput(
                HEADER, 'must not say node where the path does')
        node = found[1]
    elif found := _TARGETS.fullmatch(path):
        if 'node' not in said:
            raise exception.InvalidInput(
                HEADER, 'must say node where the path does not')
        node, target = said['node'], found[1]
        if target is None and environ['REQUEST_METHOD'] not in _OF_TARGETS:
            raise exception.InvalidInput('path', 'must name a volume target')
    else:
        raise exception.InvalidInput(
            HEADER, 'must come with a path of a node, by its UUID, or of '
                    'volume targets')
    _check_arguments(environ, node)
    return node, target


def _check_arguments(environ: types.WSGIEnvironment, node: str) -> None:
    """Refuse a query or a form that may be about another node.

    :raises: InvalidInput.
    """
    for name, value in urllib.parse.parse_qsl(
            environ.get('QUERY_STRING', ''), keep_blank_values=True):
        if name in _OTHER_ARGUMENTS or (
                name in _NODE_ARGUMENTS and value.lower() != node.lower()):
            raise exception.InvalidInput(
                name, f'must not be in a query beside {HEADER}')
    kind = environ.get('CONTENT_TYPE', '').partition(';')[0].strip().lower()
    if kind in _FORMS or not kind and environ['REQUEST_METHOD'] == 'POST' and (
            limits.has_body(environ)):
        raise exception.InvalidInput('Content-Type',
                                     'must be application/json')
