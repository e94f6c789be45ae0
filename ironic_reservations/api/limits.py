# SPDX-License-Identifier: Apache-2.0
"""Bounds on a request that hold before anything of it is parsed."""

import re

import webob

from ironic_reservations import exception

#: The most bytes of a request's body, and levels of nesting of its JSON.
MAX_BODY, MAX_DEPTH = 64 * 1024, 20

# A bracket, or a whole string, since brackets inside of strings do not count.
# A string that is never closed reaches to the end of the text. The quantifiers
# are possessive, so that no body makes the search go back and take quadratic
# time.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|[][{}]', re.DOTALL)

# A key of the WSGI environment: the body of a POST, which was read here.
_BODY = 'ironic_reservations.body'


class Limits:
    """Middleware that reads the body of a POST, within bounds.

    The body is bounded before it is parsed, because Ironic gives its threads
    stacks of 128 KiB (``ironic/command/__init__.py``): a deeply nested body
    would overflow them inside the JSON parser, which ends the process. Behind
    this middleware the request has no body any more, so that nothing else,
    Pecan included, parses it; ``body`` gives it.
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
        # Answers are JSON whatever the client prefers; Pecan would answer
        # another preference with 406.
        environ.pop('HTTP_ACCEPT', None)
        return self.app(environ, start_response)


def body(request):
    """Return the body of a POST that Limits has read, bytes."""
    return request.environ[_BODY]


def _check_text(request):
    """Refuse a path or a query that is not UTF-8 before anyone reads it."""
    for part in 'path_info', 'GET':
        try:
            getattr(request, part)
        except UnicodeDecodeError:
            raise exception.InvalidInput('URL', 'must be UTF-8')


def _read(request):
    """Read the body of a POST; raise unless it is whole, short and JSON."""
    if (request.content_length or 0) > MAX_BODY:
        raise _too_large()
    if request.content_type.lower() != 'application/json':
        raise exception.UnsupportedMediaType(
            'Content-Type: must be application/json')
    # A body of unknown length is read one byte past the limit, because only
    # that byte shows whether the body is too long or just fits.
    stream, length = request.environ['wsgi.input'], request.content_length
    try:
        body = stream.read(MAX_BODY + 1 if length is None else length)
    except (OSError, ValueError):
        raise exception.InvalidInput('body', 'must be readable HTTP')
    if len(body) > MAX_BODY:
        raise _too_large()
    if length is not None and len(body) < length:
        # The client has gone away in the middle of its request. It must not
        # be served, because nobody would know of the node that it gets.
        raise exception.InvalidInput(
            'body', f'must be {length} bytes long, as Content-Length says')
    return body


def _too_large():
    return exception.BodyTooLarge(
        f'body: must be at most {MAX_BODY} bytes long')


def _depth(body):
    """Count how many levels deep JSON is nested, without parsing it."""
    depth = deepest = 0
    for token in _TOKENS.finditer(body):
        match token[0]:
            case b'[' | b'{':
                depth += 1
                deepest = max(deepest, depth)
            case b']' | b'}':
                depth -= 1
    return deepest
