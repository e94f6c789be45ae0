# SPDX-License-Identifier: Apache-2.0
"""Checks responses against the published OpenAPI document."""

import functools
import json
import pathlib
import re
import urllib.parse

import jsonschema
import referencing
from referencing import jsonschema as dialects

DOCUMENT = json.loads(pathlib.Path(
    __file__).parents[2].joinpath('api-ref/source/openapi.json').read_text())

_URI = 'urn:openapi'
_PATTERNS = {path: re.compile(re.sub('{[^}]*}', '[^/]+', path) + '/?')
             for path in DOCUMENT['paths']}


def _close(value, is_resource=False):
    """Return a schema that allows only the keys in the document.

    :param is_resource: whether it is part of the responses that refer to it,
        which are closed.
    """
    if isinstance(value, list):
        return [_close(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    copy = {}
    for key, inner in value.items():
        if key == 'properties':
            copy[key] = {name: _close(schema)
                         for name, schema in inner.items()}
        else:
            copy[key] = _close(inner)
    if not is_resource and ('properties' in value or '$ref' in value):
        copy.setdefault('unevaluatedProperties', False)
    return copy


def _list_schemas():
    """Yield the schemas of bodies by operation and status."""
    for path, operations in DOCUMENT['paths'].items():
        for method, operation in operations.items():
            for code, response in operation['responses'].items():
                if '$ref' in response:
                    response = DOCUMENT['components']['responses'][code]
                yield (path, method, code), response.get('content', {}).get(
                    'application/json', {}).get('schema')


#: Schemas of bodies by path, method and status; None without a body.
SCHEMAS = dict(_list_schemas())
_REGISTRY = referencing.Registry().with_resource(
    _URI, referencing.Resource(
        {'components': {'schemas': {
            name: _close(schema, is_resource=True) for name, schema in
            DOCUMENT['components']['schemas'].items()}}},
        dialects.DRAFT202012))


@functools.cache
def _make_validator(operation):
    return jsonschema.Draft202012Validator(json.loads(json.dumps(
        _close(SCHEMAS[operation])).replace('"#/', f'"{_URI}#/')),
        registry=_REGISTRY)


def check(response):
    """Check the status and the body of a response of a documented call."""
    url = getattr(response.request, 'url', None)
    method = response.request.method.lower()
    if url is None:
        return
    text = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    path = next((path for path, pattern in _PATTERNS.items()
                 if pattern.fullmatch(text)), None)
    if path is None or method not in DOCUMENT['paths'][path]:
        return
    operation = path, method, str(response.status_code)
    assert operation in SCHEMAS, f'not documented: {operation}'
    if SCHEMAS[operation] is not None:
        _make_validator(operation).validate(response.json())
