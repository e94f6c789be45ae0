# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document is current, complete and valid.

``make api-ref`` writes it. ``tests.common.contract`` compares all responses of
other suites with it, and tests/hostile requests that are derived from it.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import sys

import jsonschema_rs
from openstack import resource
import pytest
from schemathesis import openapi as schemathesis

from ironic_reservations import sdk
from ironic_reservations.api import errors
from ironic_reservations.api import routes
from ironic_reservations.api import version
from tests.common import openapi as checks
from tests.common import programs
from tests.unit import test_docs
from tools import openapi

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENT = checks.DOCUMENT
OPERATIONS = [
    pytest.param(path, method, handler, id=handler.__name__)
    for path, handlers in routes.ROUTES.items()
    for method, handler in handlers.items()]


def find(path, method):
    return DOCUMENT['paths'][path][method.lower()]


def body_schema(content):
    """Return a schema of the document, which can be used alone."""
    return {**content['application/json']['schema'],
            'components': DOCUMENT['components']}


def test_document_is_current():
    text = openapi.format_document()
    if os.environ.get('IRONIC_RESERVATIONS_RECORD'):
        openapi.PATH.write_text(text)
    assert openapi.PATH.read_text() == text


def test_document_is_valid():
    schemathesis.from_dict(DOCUMENT).validate()
    assert DOCUMENT['info']['version'] == version.OWN_VERSION


#: SHA-256 of the interface of each version. Only add lines at the end; the
#: last one may change until a release has its version.
DIGESTS = {
    '1.0':
        'f850929750c34f82c7fd6fe124276f0964abe6a794fdb52a3df133f7319ce656',
}


def select_interface(value):
    """Return a part of the document without its texts and examples."""
    if isinstance(value, list):
        return [select_interface(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: select_interface(item) for key, item in value.items()
            if not (key in ('description', 'summary') and isinstance(item, str)
                    or key == 'examples')}


def test_interface_changes_with_the_version():
    text = json.dumps(select_interface(DOCUMENT), sort_keys=True)
    current = version.OWN_VERSION, hashlib.sha256(text.encode()).hexdigest()
    assert [*DIGESTS.items()][-1] == current, (
        'The interface has changed: raise OWN_VERSION and add a line to '
        'DIGESTS, see "Every addition" in the contributor guide')


def test_routes():
    assert {(path, method) for path, operations in DOCUMENT['paths'].items()
            for method in operations} == {
        (path, method.lower()) for path, handlers in routes.ROUTES.items()
        for method in handlers}
    assert len({operation['operationId']
                for operations in DOCUMENT['paths'].values()
                for operation in operations.values()}) == len(OPERATIONS)


@pytest.mark.parametrize(('path', 'method', 'handler'), OPERATIONS)
def test_status_codes(path, method, handler):
    codes = {*find(path, method)['responses']}
    assert codes == {*re.findall(r'\b\d{3}\b', ' '.join(re.findall(
        r'^(?:Normal|Error) response codes: (.*)$',
        ''.join(test_docs.split_call(method, path)), re.MULTILINE)))}
    assert {'400', '401', '403', '406', '503'} < codes
    assert ({'413', '415'} < codes) == (
        'requestBody' in find(path, method))


def test_status_codes_of_errors():
    assert {str(code) for _, code in errors.STATUS} <= {
        code for operations in DOCUMENT['paths'].values()
        for operation in operations.values()
        for code in operation['responses']}


@pytest.mark.parametrize(('path', 'method', 'handler'), OPERATIONS)
def test_parameters(path, method, handler):
    request, _ = test_docs.split_call(method, path)
    names = {(value['in'], value['name'])
             for value in find(path, method)['parameters']
             if '$ref' not in value}
    assert names == {
        (place, name) for place in ('path', 'query', 'header')
        for name in test_docs.names_in(request, place)}
    query, _ = openapi.REQUESTS[handler]
    assert {name for place, name in names if place == 'query'} == {
        *query.schema['properties']}
    assert all(value['description'] for value in find(path, method)[
        'parameters'] if '$ref' not in value)


def list_keys(value):
    """Return the names of all properties of a schema."""
    if isinstance(value, list):
        return set().union(*map(list_keys, value))
    if not isinstance(value, dict):
        return set()
    names = {*value.get('properties', {})}
    if '$ref' in value:
        names |= list_keys(DOCUMENT['components']['schemas'][
            value['$ref'].rpartition('/')[2]])
    return names.union(*map(list_keys, value.values()))


@pytest.mark.parametrize(('path', 'method', 'handler'), OPERATIONS)
def test_keys(path, method, handler):
    """Each key of the API reference is in a body."""
    texts = test_docs.split_call(method, path)
    operation = find(path, method)
    schemas = (operation.get('requestBody', {}), [
        checks.SCHEMAS[path, method.lower(), code]
        for code in operation['responses']])
    for text, schema in zip(texts, schemas, strict=True):
        assert {name.rpartition('.')[2]
                for name in test_docs.names_in(text, 'body')} <= list_keys(
            schema)


@pytest.mark.parametrize(('path', 'method', 'handler'), OPERATIONS)
def test_examples(path, method, handler):
    operation = find(path, method)
    for place in (operation.get('requestBody'),
                  *operation['responses'].values()):
        content = (place or {}).get('content', {})
        for example in content.get('application/json', {}).get(
                'examples', {}).values():
            jsonschema_rs.Draft202012Validator(
                body_schema(content)).validate(example['value'])


def test_all_samples_are_examples():
    text = openapi.PATH.read_text()
    for path in (openapi.SOURCE / 'samples').iterdir():
        assert f'"{path.stem}": {{' in text


@pytest.mark.long
def test_record(tmp_path):
    """With a new parameter, a new key and another sample."""
    tree = tmp_path / 'tree'
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns('.*', 'build'))
    (tree / '.tox').mkdir()
    (tree / '.tox/py3').symlink_to(sys.prefix)
    document = json.loads(openapi.PATH.read_text())
    del document['paths']['/v1/reservations']['get']['parameters'][0]
    del document['components']['schemas']['Reservation']['properties']['state']
    sample = 'samples/reservation-show-response.json'
    for name, value in ('openapi.json', document), (sample, {}):
        (tree / 'api-ref/source' / name).write_text(json.dumps(value))
    # Below make, another make would have the variables of the first.
    programs.run('make', '-o', 'environment', 'api-ref', cwd=tree, env={
        name: value for name, value in os.environ.items()
        if not name.startswith(('MAKE', 'PYTEST'))})
    for name in 'openapi.json', sample:
        assert (tree / 'api-ref/source' / name).read_text() == (
            openapi.SOURCE / name).read_text()


def list_patterns(value):
    if isinstance(value, dict):
        if isinstance(value.get('pattern'), str):
            yield value['pattern']
        value = [*value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from list_patterns(inner)


@pytest.mark.parametrize('pattern', sorted({*list_patterns(DOCUMENT)}))
def test_patterns_are_those_of_ecmascript(pattern):
    """They compile without Python, and mean the same there."""
    assert jsonschema_rs.Draft202012Validator({'pattern': pattern})
    assert not re.search(r'\\[AZ]|\(\?[ims]', pattern)


RESOURCES = [value for value in vars(sdk).values()
             if isinstance(value, type)
             and issubclass(value, resource.Resource) and value.base_path]


def list_own_keys(schema):
    """Return the properties of the object that a schema describes."""
    parts = [part for key in ('allOf', 'anyOf', 'oneOf')
             for part in schema.get(key, ())]
    if '$ref' in schema:
        parts.append(DOCUMENT['components']['schemas'][
            schema['$ref'].rpartition('/')[2]])
    return {*schema.get('properties', {})}.union(*map(list_own_keys, parts))


@pytest.mark.parametrize('cls', RESOURCES)
def test_sdk_has_all_keys(cls):
    path = f'/v1{cls.base_path}'
    schemas = [checks.SCHEMAS[path, 'get', '200']['properties'][
        cls.resources_key]['items']]
    if cls.allow_create:
        schemas += [body_schema(find(path, 'POST')['requestBody']['content']),
                    checks.SCHEMAS[path, 'post', '201']]
    # All resources of the SDK have an ID and a name.
    assert {*cls._body_mapping()} == {'id', 'name'}.union(
        *map(list_own_keys, schemas))


@pytest.mark.parametrize('cls', RESOURCES)
def test_sdk_has_all_query_parameters(cls):
    assert {*cls._query_mapping._mapping} == {
        parameter['name']
        for parameter in find(f'/v1{cls.base_path}', 'GET')['parameters']
        if parameter.get('in') == 'query'}
