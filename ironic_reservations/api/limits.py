# SPDX-License-Identifier: Apache-2.0
"""Bounds that hold before anything is parsed."""

import re

import webob

from ironic_reservations import exception

#: Bytes of a request's body, and levels of its JSON.
MAX_BODY, MAX_DEPTH = 64 * 1024, 20

# A string as a whole (to the end of the text when it is never closed), or a
# bracket. Possessive, so that no body makes it look twice.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|[][{}]', re.DOTALL)

_BODY = 'ironic_reservations.body'


class Limits:
    """Read the body of a POST within its bounds, for ``body`` to give.

    Ironic runs its API threads on stacks so small that a deeply nested body
    would overflow them inside the JSON parser, which ends the process: no
    parser, pecan's own included, sees a body that has not passed here.
    """

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        request = webob.Request(environ)
        _check_text(request)
        if request.method == 'POST':
            body = _read(request)
            if _depth(body) > MAX_DEPTH:
                raise exception.InvalidInput(
                    'body', f'must be nested at most {MAX_DEPTH} levels deep')
            environ[_BODY] = body
        request.body = b''
        # Ours is JSON whatever a client's Accept header prefers.
        environ.pop('HTTP_ACCEPT', None)
        return self.app(environ, start_response)


def body(request):
    """The body of a POST, bytes."""
    return request.environ[_BODY]


def _check_text(request):
    for part in 'path_info', 'GET':
        try:
            getattr(request, part)
        except UnicodeDecodeError:
            raise exception.InvalidInput('URL', 'must be UTF-8')


def _read(request):
    if (request.content_length or 0) > MAX_BODY:
        raise _too_large()
    if request.content_type.lower() != 'application/json':
        raise exception.UnsupportedMediaType(
            'Content-Type: must be application/json')
    # One byte more than allowed tells a body of unknown length that is too
    # long from one that just fits.
    stream, length = request.environ['wsgi.input'], request.content_length
    try:
        body = stream.read(MAX_BODY + 1 if length is None else length)
    except (OSError, ValueError):
        raise exception.InvalidInput('body', 'must be readable HTTP')
    if len(body) > MAX_BODY:
        raise _too_large()
    if length is not None and len(body) < length:
        # The client went away: nobody would know of what it gets.
        raise exception.InvalidInput(
            'body', f'must be {length} bytes long, as Content-Length says')
    return body


def _too_large():
    return exception.BodyTooLarge(
        f'body: must be at most {MAX_BODY} bytes long')


def _depth(body):
    """How deep JSON is nested, without parsing it."""
    depth = deepest = 0
    for token in _TOKENS.finditer(body):
        match token[0]:
            case b'[' | b'{':
                depth += 1
                deepest = max(deepest, depth)
            case b']' | b'}':
                depth -= 1
    return deepest
