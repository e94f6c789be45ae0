# SPDX-License-Identifier: Apache-2.0
"""Bounds on a request that hold before anything of it is parsed."""

import errno
import io
import re

import webob

from ironic_reservations import exception

#: The most bytes of a request's body, and levels of nesting of its JSON.
MAX_BODY, MAX_DEPTH = 64 * 1024, 20

#: The most characters of a query and of the value of a header. What WebOb
#: reads them with takes quadratic time:
#: https://github.com/Pylons/webob/blob/main/src/webob/compat.py (unquote)
#: https://github.com/python/cpython/blob/3.11/Lib/cgi.py (_parseparam)
MAX_HEADER = 16 * 1024

# A bracket, or a whole string, since brackets inside of strings do not count.
# A string that is never closed reaches to the end of the text. The quantifiers
# are possessive, so that no body makes the search go back and take quadratic
# time.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|[][{}]', re.DOTALL)

# How the keys of the WSGI environment begin that have a query or a header.
_OF_CLIENTS = ('HTTP_', 'CONTENT_', 'QUERY_STRING')

# A key of the WSGI environment: the body that was read here.
_BODY = 'ironic_reservations.body'


class Headers:
    """Middleware that refuses a long query or header before it is parsed."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        for name, value in environ.items():
            if is_too_long(name, value):
                header = name.removeprefix('HTTP_').replace('_', '-').title()
                raise exception.InvalidInput(
                    'query' if name == 'QUERY_STRING' else header,
                    f'must be at most {MAX_HEADER} characters long')
        return self.app(environ, start_response)


def is_too_long(name, value):
    """Whether a variable of the WSGI environment is refused by its length."""
    return name.startswith(_OF_CLIENTS) and len(value) > MAX_HEADER


class Limits:
    """Middleware that reads the body of a request, within bounds.

    It reads the bodies of all methods, because what is left of a chunked body
    would be taken for the next request of the connection.

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
        body = _read(request)
        # Most paths know no PUT, and none knows one without a body: what it
        # lacks is for the path to say.
        if request.method in ('POST', 'PATCH') or (
                request.method == 'PUT' and body):
            if request.content_type.lower() != 'application/json':
                raise exception.UnsupportedMediaType(
                    'Content-Type: must be application/json')
            if _depth(body) > MAX_DEPTH:
                raise exception.InvalidInput(
                    'body', f'must be nested at most {MAX_DEPTH} levels deep')
        environ[_BODY] = body
        request.body = b''
        # Answers are JSON whatever the client prefers; Pecan would answer
        # another preference with 406.
        environ.pop('HTTP_ACCEPT', None)
        return self.app(environ, start_response)


class EndOfChunked:
    """Middleware that ends the connection after a request with a chunked body.

    Such a body is not always read to its end: a client without a token, or
    one that sends malformed chunks, is refused before. Ironic's server would
    take the rest of the body for the next request, which may be another
    client's where a proxy shares its connections. The header tells proxies
    and clients to close the connection; the server itself goes by the error
    alone, which it meets when all is sent.
    """

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        if 'HTTP_TRANSFER_ENCODING' not in environ:
            return self.app(environ, start_response)

        def start(status, headers, *exc_info):
            return start_response(
                status, [*headers, ('Connection', 'close')], *exc_info)

        return _Last(self.app(environ, start))


class _Last:
    """An answer after which the connection is to be closed."""

    def __init__(self, answer):
        self._answer = answer

    def __iter__(self):
        return iter(self._answer)

    def close(self):
        if hasattr(self._answer, 'close'):
            self._answer.close()
        raise ConnectionAbortedError(
            errno.ECONNABORTED, 'The body may not have been read to its end')


def has_body(environ):
    """Whether a request says that it has a body."""
    return ('HTTP_TRANSFER_ENCODING' in environ
            or environ.get('CONTENT_LENGTH') not in (None, '', '0'))


def drain(environ, most):
    """Read the body of a request that is refused, and forget it.

    A client that sends its body before it looks for an answer would else meet
    a broken connection, as servers close one with a body that nobody reads.

    :param most: bytes; what is left of a longer body is the server's to deal
        with.
    """
    length = webob.Request(environ).content_length
    left = min(length, most) if length is not None else (
        most if 'HTTP_TRANSFER_ENCODING' in environ else 0)
    try:
        while left > 0 and (piece := environ['wsgi.input'].read(
                min(left, MAX_BODY))):
            left -= len(piece)
    except TimeoutError:
        raise  # See _read.
    except (OSError, ValueError):
        pass  # There is no more to read.


def body(request):
    """Return the body of a request that Limits has read, bytes."""
    return request.environ[_BODY]


def _check_text(request):
    """Refuse a path or a query that is not UTF-8 before anyone reads it."""
    for part in 'path_info', 'GET':
        try:
            getattr(request, part)
        except UnicodeDecodeError:
            raise exception.InvalidInput('URL', 'must be UTF-8')


def _read(request):
    """Read the body of a request; raise unless it is whole and short."""
    environ, length = request.environ, request.content_length
    if (length or 0) > MAX_BODY:
        raise _too_large()
    if length is not None and (
            length < 0 or 'HTTP_TRANSFER_ENCODING' in environ):
        raise exception.InvalidInput(
            'Content-Length', 'must be a length, and without chunks')
    if (length is None and request.method != 'POST'
            and 'HTTP_TRANSFER_ENCODING' not in environ):
        return b''
    # The server may have read a chunk of any size into the stream. A refused
    # request lives on in cycles of references until the garbage is collected;
    # the stream is not to live on with it.
    stream, environ['wsgi.input'] = environ['wsgi.input'], io.BytesIO()
    try:
        # A body of unknown length is read one byte past the limit, because
        # only that byte shows whether the body is too long or just fits.
        body = stream.read(MAX_BODY + 1 if length is None else length)
    except TimeoutError:
        # The body has stalled. Ironic's server then answers 408 and closes
        # the connection, which it would not do after an answer of ours.
        raise
    except (MemoryError, OverflowError):
        raise _too_large()
    except (OSError, ValueError):
        raise exception.InvalidInput('body', 'must be readable HTTP')
    finally:
        del stream
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
