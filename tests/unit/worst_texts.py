# SPDX-License-Identifier: Apache-2.0
"""Texts of clients and of nodes' owners that are meant to take long.

There is one for each regular expression and each loop that such a text meets,
our own and those of the libraries that read it in our process: tables of a
name and a function of a length, which makes the text.
"""

import contextlib
import itertools
import json
import uuid

from oslo_middleware import cors
from oslo_middleware import http_proxy_to_wsgi
import webob
import webob.exc

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import middleware
from ironic_reservations import text
from ironic_reservations.api import bodies
from ironic_reservations.api import checks
from ironic_reservations.matching import constraints
from ironic_reservations.matching import expression
from ironic_reservations.matching import request_spec
from tests.unit import tables

HOSTS = '/v1/reservations/hosts'
#: Is refused without a look into the database.
REFUSED = '/v1/reservations/not-a-uuid'
UUID = str(uuid.UUID(int=7))
ORIGIN = 'http://dashboard.example'


def _fill(one):
    """A function that makes a dict of so many bytes of JSON.

    :param one: function of a number, which returns a key and a value.
    """
    def make(length):
        found = {}
        for number in itertools.count():
            key, value = one(number)
            length -= len(json.dumps([key, value]))
            if length < 0:
                return found
            found[key] = value
    return make


# Values of nodes

VALUES = {
    'word': lambda n: 'a' * n,
    'blanks': lambda n: ' ' * n + 'x',
    'word, blanks': lambda n: 'a' + ' ' * n + '~',
    'item, blanks': lambda n: '[a' + ' ' * n + 'x',
    'no item, blanks': lambda n: '[' + ' ' * n + 'x',
    'items': lambda n: '[' + 'a,' * (n // 2) + '~',
    'items, blanks': lambda n: '[' + "'a'  ,  " * (n // 8) + '~',
    'list': lambda n: '[' + "'a'," * (n // 4) + ']',
    'commas': lambda n: '[a' + ' ,' * (n // 2) + ']',
    'open string': lambda n: "['" + 'a' * n,
    'open strings': lambda n: "['" * (n // 2),
    'minus': lambda n: '-' * n,
    'dots': lambda n: '.' * n,
    'digits': lambda n: '1' * n,
    'integers': lambda n: '[' + ('1' * 4300 + ',') * (n // 4300) + ']',
    'fraction': lambda n: '1.' + '1' * n,
    'hexadecimal': lambda n: '0x' + 'f' * n,
    'exponent': lambda n: '1e' + '1' * n,
    'complex': lambda n: '1' * n + 'j',
    'no-break spaces': lambda n: '\xa0' * n + '1',
    'nearly found': lambda n: ('a' * 999 + 'b') * (n // 1000),
}

EXPRESSIONS = (
    '>= 4', '= 4', 's< b', '<in> ' + 'a' * 999 + 'c',
    '<or> ' + ' <or> '.join('a' * 120), '<all-in> ' + 'b ' * 255,
    '<range-in> [ 1 2 ]', 'plain')


def _compare(wanted, value):
    return lambda: constraints.satisfies(wanted, value)


#: What a node's value is compared with, and the value.
COMPARISONS = {
    f'{wanted[:12]} with {name}':
        lambda n, wanted=wanted, make=make: _compare(
            expression.Expression.parse('capabilities:k', wanted), make(n))
    for wanted in EXPRESSIONS for name, make in VALUES.items()}


# Properties of nodes

def _capabilities(value):
    return json.dumps({'capabilities': value})


PROPERTIES = {
    'capabilities': lambda n: _capabilities('a:b,' * (n // 4)),
    'other capabilities': lambda n: _capabilities(
        ','.join(f'{each}:b' for each in range(n // 8))),
    'commas': lambda n: _capabilities(',' * n),
    'colons': lambda n: _capabilities(':' * n),
    'blanks': lambda n: _capabilities(' ,' * (n // 2)),
    'blanks in a value': lambda n: _capabilities('k:' + ' ' * n + 'x'),
    'items in a value': lambda n: _capabilities('k:[a' + ' ' * n + 'x'),
    'size of blanks': lambda n: json.dumps({'memory_mb': ' ' * n + 'x'}),
    'size, blanks': lambda n: json.dumps({'memory_mb': '1' + ' ' * n + 'x'}),
    'fraction': lambda n: json.dumps({'memory_mb': '1.' + '1' * n}),
    'fraction, word': lambda n: json.dumps({'memory_mb': f'1.{"1" * n}x'}),
    'number': lambda n: '{"memory_mb":' + '1' * n + '}',
    'numbers': lambda n: '{"memory_mb":[' + ','.join(
        ['1' * 4300] * (n // 4300)) + ']}',
    'float': lambda n: '{"memory_mb":1.' + '1' * n + '}',
    'keys': lambda n: json.dumps({str(each): 1 for each in range(n // 8)}),
    'architecture': lambda n: json.dumps({'cpu_arch': ' ' * n + 'x'}),
    'levels': lambda n: '[' * n,
}

_ASKED = tables.make_matcher({
    'memory_mb': 1, 'vcpus': 1, 'root_gb': 1,
    'image': {'properties': {'hw_firmware_type': 'uefi'}},
    'extra_specs': {'capabilities:k': '<all-in> a', 'cpu_arch': '<all-in> a',
                    'capabilities': 'a,k'}})


def _read(properties):
    def read():
        node = tables.make_node(properties)
        _ASKED.matches(node)
        _ASKED.fit(node)
        _ASKED.explain([(node, None, 1)])
    return read


# Bodies

def _specs(make):
    return lambda n: json.dumps({'memory_mb': 1, 'extra_specs': make(n)})


def _of_image(make):
    return lambda n: json.dumps({'memory_mb': 1, 'image': {
        'properties': make(n)}})


BODIES = {
    'extra specs': _specs(_fill(lambda i: (f'{i}', ''))),
    'capabilities': _specs(_fill(lambda i: (f'capabilities:{i}', ''))),
    'long values': _specs(_fill(lambda i: (f'capabilities:{i}', 'a' * 1024))),
    'blanks': _specs(_fill(lambda i: (f'capabilities:{i}',
                                      '<or> ' + ' ' * 1000 + 'a'))),
    'tabs': _specs(_fill(lambda i: (f'capabilities:{i}',
                                    '<or>' + '\t' * 1000 + 'a'))),
    'blanks, no operator': _specs(_fill(lambda i: (f'capabilities:{i}',
                                                   ' ' * 1000 + 'x'))),
    'operators': _specs(_fill(lambda i: (f'capabilities:{i}',
                                         '<in> ' + '<' * 1000))),
    'numbers': _specs(_fill(lambda i: (f'capabilities:{i}',
                                       f'<range-in> [ {"1" * 900} 1 ]'))),
    'traits': _specs(_fill(lambda i: (f'trait:{i}', 'required'))),
    'long names': _specs(_fill(lambda i: (f'trait{i}{"a" * 240}', 'x'))),
    'resources': _specs(_fill(lambda i: (f'resources:{i}', '1'))),
    'classes': _specs(_fill(lambda i: (f'resources:CUSTOM_{i}', '1'))),
    'long groups': _specs(_fill(lambda i: (f'resources{i}{"a" * 240}', '1'))),
    'properties': _of_image(_fill(lambda i: (f'{i}', ''))),
    'traits of an image': _of_image(_fill(lambda i: (f'trait:{i}',
                                                     'required'))),
    'candidates': lambda n: json.dumps({
        'candidate_nodes': list(map(str, range(n // 9)))}),
    'UUIDs': lambda n: json.dumps({'candidate_nodes': [
        str(uuid.UUID(int=each)) for each in range(n // 40)]}),
    'long name': lambda n: json.dumps({'name': 'a' * n}),
    'domain': lambda n: json.dumps({'memory_mb': 1, 'group': {
        'uuid': UUID, 'by': 'capability:' + ' ' * n}}),
    'backslashes': lambda n: '{"name":"' + '\\"' * (n // 2),
    'surrogates': lambda n: '{"name":"' + '\\ud800' * (n // 6) + '"}',
    'space': lambda n: '{' + ' ' * n + '}',
    'digits': lambda n: '{"memory_mb":' + '1' * n + '}',
    'fraction': lambda n: '{"rxtx_factor":1.' + '1' * n + '}',
    'exponent': lambda n: '{"rxtx_factor":1e' + '1' * n + '}',
    'list': lambda n: '{"name":[' + '1,' * (n // 2) + '1]}',
    'constants': lambda n: '{"name":[' + 'NaN,' * (n // 4) + '1]}',
    'same keys': lambda n: '{' + '"a":1,' * (n // 6) + '"a":1}',
    'unknown keys': lambda n: json.dumps({str(i): 1 for i in range(n // 10)}),
}


def _parse(body):
    def parse():
        # What is known already costs nothing.
        expression.Expression.parse.cache_clear()
        try:
            spec = request_spec.RequestSpec.from_dict(
                bodies.create(bodies.parse(body.encode())))
        except exception.InvalidInput:
            return
        matching.Matcher(spec).explain([(tables.make_node(), None, 1)])
    return parse


MEMBERS = {
    'members': lambda n: json.dumps({
        'members': [str(uuid.UUID(int=each)) for each in range(n // 40)],
        'request': {'memory_mb': 1}}),
}


def _parse_group(body):
    def parse():
        try:
            bodies.create_group(bodies.parse(body.encode()))
        except exception.InvalidInput:
            pass
    return parse


def _operations(**operation):
    one = json.dumps(operation)
    return lambda n: '[' + ','.join([one] * (n // (len(one) + 1))) + ']'


PATCHES = {
    'of leases': _operations(op='replace', path='/expires_in', value=1),
    'of hosts': _operations(op='replace', path='/host', value='a'),
    'without values': _operations(op='remove', path='/expires_in'),
}


def _patch(body):
    def patch():
        try:
            checks.changes(bodies.update(
                bodies.parse(body.encode())))
        except exception.InvalidInput:
            pass
    return patch


LINES = {
    'controls': lambda n: '\x85' * n,
    'plain': lambda n: 'a' * n,
    'ideographs': lambda n: '\u6f22' * n,
}


def _print(line):
    return lambda: text.escape_controls(line)


# Requests as a whole

def _repeat(part, end=''):
    return lambda n: part * (n // len(part)) + end


_WORDS = {
    'letters': _repeat('a'), 'digits': _repeat('1'), 'commas': _repeat(','),
    'blanks': lambda n: 'a ' + ' ' * n + '~', 'colons': _repeat('a:'),
    'items': _repeat('a,'), 'items, blanks': _repeat('a ,'),
    'semicolons': _repeat(';'), 'parameters': _repeat('a=b;', '('),
    'quote, semicolons': lambda n: 'a/b; c="' + ';' * n,
    'quotes': _repeat(';"'), 'escapes': _repeat('\\"'),
    'equals': _repeat('a='), 'assigned': _repeat('a="'),
    'percents': _repeat('%'), 'bytes': _repeat('\xe6\xbc\xa2'),
    'slashes': _repeat('/'), 'dots': _repeat('../'),
    'versions': _repeat('x 1,'), 'version': lambda n: '1.' + '1' * n,
    'form': lambda n: 'multipart/form-data; boundary=' + ';' * n,
    'of bare metal': lambda n: 'baremetal 1.' + '1' * n,
    'types': _repeat('a/b,'), 'types, parameters': lambda n: (
        'a/b' + ';a=b' * (n // 4) + '('),
}

_HEADERS = (
    'HTTP_ACCEPT', 'HTTP_CACHE_CONTROL', 'HTTP_COOKIE', 'HTTP_FORWARDED',
    'HTTP_HOST', 'HTTP_IF_MODIFIED_SINCE', 'HTTP_IF_NONE_MATCH',
    'HTTP_OPENSTACK_API_VERSION', 'HTTP_ORIGIN', 'HTTP_RANGE',
    'HTTP_TRANSFER_ENCODING', 'HTTP_X_FORWARDED_FOR',
    'HTTP_X_FORWARDED_HOST', 'HTTP_X_OPENSTACK_IRONIC_API_VERSION',
    'HTTP_X_OPENSTACK_REQUEST_ID', 'CONTENT_LENGTH', 'CONTENT_TYPE')

_QUERIES = {
    'percents': _repeat('%'), 'letters': _repeat('%61'),
    'parameters': _repeat('a=b&'), 'ampersands': _repeat('&', 'a'),
    'traits': _repeat('trait=A&', 'unknown=1'),
    'keys': lambda n: 'sort_key=' + 'id,' * (n // 3) + 'x',
    'directions': lambda n: 'sort_dir=' + 'asc,' * (n // 4) + 'x',
    'fields': lambda n: 'fields=' + 'host,' * (n // 5),
    'limit': lambda n: 'limit=' + '0' * n, 'bytes': _repeat('\x85'),
}

_PREFLIGHT = {'PATH_INFO': HOSTS, 'REQUEST_METHOD': 'OPTIONS',
              'HTTP_ORIGIN': ORIGIN,
              'HTTP_ACCESS_CONTROL_REQUEST_METHOD': 'GET'}

#: WSGI environments.
REQUESTS = {
    **{f'{header} {name}': lambda n, header=header, make=make: {
        'PATH_INFO': f'{HOSTS}/x', 'REQUEST_METHOD': 'PUT', header: make(n)}
       for header in _HEADERS for name, make in _WORDS.items()},
    **{f'path {name}': lambda n, make=make: {
        'PATH_INFO': f'/v1/reservations/{make(n)}'}
       for name, make in _WORDS.items()},
    **{f'query {name}': lambda n, make=make: {
        'PATH_INFO': REFUSED, 'QUERY_STRING': make(n)}
       for name, make in _QUERIES.items()},
    **{f'preflight {name}': lambda n, make=make: {
        **_PREFLIGHT, 'HTTP_ACCESS_CONTROL_REQUEST_HEADERS': make(n)}
       for name, make in _WORDS.items()},
    **{f'brackets {name}': lambda n, part=part: {
        'PATH_INFO': REFUSED, 'REQUEST_METHOD': 'POST',
        'CONTENT_TYPE': 'application/json', 'body': part * (n // len(part))}
       for name, part in {
           'open': '[', 'objects': '{"a":', 'both': '[]', 'quotes': '"',
           'backslashes': '\\"', 'strings': '"a'}.items()},
}


def _send(application, environ):
    environ = dict(environ)
    body = environ.pop('body', '').encode()

    def send():
        request = webob.Request(
            {**webob.Request.blank('/').environ, **environ})
        if body:
            request.body = body
        request.get_response(application)
    return send


#: What is done with each: function of the text that returns a call.
CALLS = {
    **{f'value: {name}': make for name, make in COMPARISONS.items()},
    **{f'{where}: {name}': lambda n, prepare=prepare, make=make: prepare(
        make(n))
       for where, prepare, texts in (
           ('node', _read, PROPERTIES), ('body', _parse, BODIES),
           ('group', _parse_group, MEMBERS), ('patch', _patch, PATCHES),
           ('log', _print, LINES))
       for name, make in texts.items()},
}


@contextlib.contextmanager
def application():
    """The plugin, without authentication and with all that may read a header.
    """
    conf.register_opts()
    # These register their options.
    cors.CORS(None, conf.CONF)
    http_proxy_to_wsgi.HTTPProxyToWSGI(None, conf.CONF)
    options = (('auth_strategy', 'noauth', None),
               ('allowed_origin', [ORIGIN], 'cors'),
               ('enable_proxy_headers_parsing', True, 'oslo_middleware'))
    for option in options:
        conf.CONF.set_override(*option)
    try:
        yield middleware.ReservationsMiddleware(webob.exc.HTTPNotFound())
    finally:
        for name, _, group in options:
            conf.CONF.clear_override(name, group)


def send(application, name):
    """Function of the length of a text that returns a call of a request.

    :param name: one of ``REQUESTS``.
    """
    return lambda n: _send(application, REQUESTS[name](n))
