# SPDX-License-Identifier: Apache-2.0
"""Enforces limits on a request before it is parsed."""

from collections.abc import Iterable
from collections.abc import Iterator
import errno
import io
import re
from typing import Any
from wsgiref import types

import webob

from ironic_reservations import exception
from ironic_reservations.shared import text

#: Maximum size of a body in bytes, and maximum nesting of its JSON.
MAX_BODY, MAX_DEPTH = 64 * 1024, 20

#: Maximum number of characters of a query and of the value of a header. WebOb
#: parses them in quadratic time:
#: https://github.com/Pylons/webob/blob/main/src/webob/compat.py (unquote)
#: https://github.com/python/cpython/blob/3.11/Lib/cgi.py (_parseparam)
MAX_HEADER = 16 * 1024

# A bracket, or a whole string, because brackets inside strings do not count.
# An unclosed string extends to the end of the text. Possessive quantifiers
# prevent backtracking, which would take quadratic time.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|[][{}]', re.DOTALL)

# Prefixes of the keys of the WSGI environment for the query and the headers.
_CLIENT_KEYS = ('HTTP_', 'CONTENT_', 'QUERY_STRING')

# Key of the WSGI environment for the body, as ``BodyLimits`` reads it.
_BODY = 'ironic_reservations.body'


class HeaderLimits:
    """Middleware that refuses a long query or header."""

    def __init__(self, app: types.WSGIApplication) -> None:
        self.app = app

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        for name, value in environ.items():
            if is_too_long(name, value):
                header = name.removeprefix('HTTP_').replace('_', '-').title()
                raise exception.InvalidInput(
                    'query' if name == 'QUERY_STRING' else header,
                    f'must be at most {MAX_HEADER} characters long',
                    got=len(value))
        return self.app(environ, start_response)


def is_too_long(name: str, value: Any) -> bool:
    """Return whether a variable of the WSGI environment exceeds the limit."""
    return name.startswith(_CLIENT_KEYS) and len(value) > MAX_HEADER


class BodyLimits:
    """Middleware that reads the body of a request, up to the limits.

    It reads the body of every method, because the server would take the rest
    of a chunked body for the next request of the connection.

    The nesting is limited because Ironic gives its threads stacks of 128 KiB
    (``ironic/command/__init__.py``): a deeply nested body would overflow them
    in the JSON parser and crash the process. The application gets a request
    without a body, so that Pecan and other libraries do not parse it;
    ``get_body`` returns the body.
    """

    def __init__(self, app: types.WSGIApplication) -> None:
        self.app = app

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        request = webob.Request(environ)
        if ('HTTP_TRANSFER_ENCODING' in environ
                and not environ.get('wsgi.input_terminated')):
            raise exception.LengthRequired(
                'Transfer-Encoding: this server does not pass on a body of '
                'unknown length; send Content-Length instead')
        _check_encoding(request)
        body = _read_body(request)
        # A PUT without a body is refused by its path: most paths do not allow
        # PUT, and the remaining ones require a body.
        if request.method in ('POST', 'PATCH') or (
                request.method == 'PUT' and body):
            if request.content_type.lower() != 'application/json':
                raise exception.UnsupportedMediaType(
                    'Content-Type: must be application/json; got '
                    + text.quote_value(request.content_type))
            if _count_levels(body) > MAX_DEPTH:
                raise exception.InvalidInput(
                    'body', f'must be nested at most {MAX_DEPTH} levels deep')
        environ[_BODY] = body
        request.body = b''
        # Pecan would parse a form, and fail if its boundary is missing.
        environ.pop('CONTENT_TYPE', None)
        # Responses are always JSON; otherwise Pecan would respond with 406 to
        # a client that prefers something else.
        environ.pop('HTTP_ACCEPT', None)
        return self.app(environ, start_response)


class CloseAfterChunks:
    """Middleware that closes the connection after a chunked body.

    Part of the body may be unread, because a client without a token or with
    malformed chunks is refused before. Ironic's server would take the rest for
    the next request, which may be another client's if a proxy shares its
    connections. The header tells proxies and clients to close the connection.
    Ironic's server ignores it and closes the connection because of the error
    at the end of the response; others would log a traceback.
    """

    def __init__(self, app: types.WSGIApplication) -> None:
        self.app = app

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        if 'HTTP_TRANSFER_ENCODING' not in environ:
            return self.app(environ, start_response)

        def start(status: str, headers: list[tuple[str, str]],
                  *exc_info: Any) -> Any:
            return start_response(
                status, [*headers, ('Connection', 'close')], *exc_info)

        response = self.app(environ, start)
        return _LastResponse(response) if environ.get(
            'SERVER_SOFTWARE', '').startswith('Cheroot/') else response


class _LastResponse:
    """A response after which the server closes the connection."""

    def __init__(self, response: Iterable[bytes]) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._response)

    def close(self) -> None:
        if hasattr(self._response, 'close'):
            self._response.close()
        raise ConnectionAbortedError(
            errno.ECONNABORTED, 'Part of the request body may be unread')


def has_body(environ: types.WSGIEnvironment) -> bool:
    """Return whether the headers of a request announce a body."""
    return ('HTTP_TRANSFER_ENCODING' in environ
            or environ.get('CONTENT_LENGTH') not in (None, '', '0'))


def drain_body(environ: types.WSGIEnvironment, limit: int) -> None:
    """Read and discard the body of a refused request.

    Otherwise the server would close the connection on the unread body, and a
    client that sends all before it reads would not see our response.

    :param limit: maximum number of bytes to read.
    """
    remaining = min(webob.Request(environ).content_length or 0, limit)
    if 'HTTP_TRANSFER_ENCODING' in environ:
        remaining = limit if environ.get('wsgi.input_terminated') else 0
    try:
        while remaining > 0 and (piece := environ['wsgi.input'].read(
                min(remaining, MAX_BODY))):
            remaining -= len(piece)
    except TimeoutError:
        raise  # See _read_body.
    except (OSError, ValueError):
        pass  # There is no more to read.


def get_body(request: webob.Request) -> bytes:
    """Return the body that ``BodyLimits`` has read."""
    body: bytes = request.environ[_BODY]
    return body


def _check_encoding(request: webob.Request) -> None:
    """Refuse a path or a query that is not UTF-8."""
    for part in 'path_info', 'GET':
        try:
            getattr(request, part)
        except UnicodeDecodeError:
            raise exception.InvalidInput('URL', 'must be UTF-8')


def _read_body(request: webob.Request) -> bytes:
    """Return the body of a request.

    :raises: BodyTooLarge; InvalidInput if the body is incomplete.
    """
    environ, length = request.environ, request.content_length
    if (length or 0) > MAX_BODY:
        raise _body_too_large()
    if length is not None and (
            length < 0 or 'HTTP_TRANSFER_ENCODING' in environ):
        raise exception.InvalidInput(
            'Content-Length', 'must be 0 or more, and cannot be combined with '
                              'Transfer-Encoding')
    if (length is None and request.method != 'POST'
            and 'HTTP_TRANSFER_ENCODING' not in environ):
        return b''
    # The stream may contain a chunk of any size, and reference cycles keep a
    # refused request alive until the next garbage collection. The stream is
    # removed from the request so that it can be freed before.
    stream, environ['wsgi.input'] = environ['wsgi.input'], io.BytesIO()
    try:
        # If the length is unknown, one byte beyond the limit shows whether the
        # body is too long.
        body: bytes = stream.read(MAX_BODY + 1 if length is None else length)
    except TimeoutError:
        # The body has stalled. Ironic's server then responds with 408 and
        # closes the connection. After a response of ours it would keep the
        # connection open.
        raise
    except (MemoryError, OverflowError):
        raise _body_too_large()
    except (OSError, ValueError):
        raise exception.InvalidInput(
            'body', 'must be complete, and its chunks well-formed')
    finally:
        del stream
    if len(body) > MAX_BODY:
        raise _body_too_large()
    if length is not None and len(body) < length:
        # The client has disconnected during its request. A node must not be
        # held for it, because nobody would know of the reservation.
        raise exception.InvalidInput(
            'body', f'must be {length} bytes long, as Content-Length says',
            got=len(body))
    return body


def _body_too_large() -> exception.BodyTooLarge:
    return exception.BodyTooLarge(
        f'body: must be at most {MAX_BODY} bytes long')


def _count_levels(body: bytes) -> int:
    """Return the nesting of JSON, without parsing it."""
    depth = deepest = 0
    for token in _TOKENS.finditer(body):
        match token[0]:
            case b'[' | b'{':
                depth += 1
                deepest = max(deepest, depth)
            case b']' | b'}':
                depth -= 1
    return deepest
