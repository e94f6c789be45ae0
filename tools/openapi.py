# SPDX-License-Identifier: Apache-2.0
"""Makes the OpenAPI document of the API.

Paths and schemas are the application's. Descriptions, status codes, headers
and examples come from the API reference, whose names
``tests/unit/test_docs.py`` compares with the application.
"""

import http
import json
import pathlib
import re
from typing import Any

from wsme import types as wtypes
import yaml

from ironic_reservations.api import capacity
from ironic_reservations.api import errors
from ironic_reservations.api import groups
from ironic_reservations.api import history
from ironic_reservations.api import hosts
from ironic_reservations.api import notices
from ironic_reservations.api import pools
from ironic_reservations.api import reservations
from ironic_reservations.api import resources
from ironic_reservations.api import responses
from ironic_reservations.api import routes
from ironic_reservations.api import schema
from ironic_reservations.api import version

SOURCE = pathlib.Path(__file__).parents[1] / 'api-ref' / 'source'
#: The document, as it is published and installed.
PATH = SOURCE / 'openapi.json'

_REFERENCE = (SOURCE / 'reservations.inc').read_text()
_PARAMETERS = yaml.safe_load((SOURCE / 'parameters.yaml').read_text())

# A row of a table of status codes.
_ROW = re.compile(r'^   \* - (\d{3})\n     - ((?:.+\n(?=       ))*.+\n)',
                  re.MULTILINE)

#: When calls fail with a status, unless they say otherwise.
_FAILURES = dict(_ROW.findall(
    _REFERENCE.partition('\nCreate Reservation\n')[0]))

#: Validators of the query and of the body, by handler.
REQUESTS: dict[Any, tuple[schema.Validator, schema.Validator | None]] = {
    reservations.list_reservations: (reservations.LIST_QUERY, None),
    reservations.create_reservation: (
        reservations.CREATE_QUERY, reservations.CREATE_BODY),
    reservations.show_reservation: (reservations.SHOW_QUERY, None),
    reservations.update_reservation: (
        reservations.WRITE_QUERY, reservations.PATCH_BODY),
    reservations.delete_reservation: (reservations.WRITE_QUERY, None),
    capacity.show_capacity: (capacity.QUERY, None),
    groups.list_groups: (groups.LIST_QUERY, None),
    groups.create_group: (groups.CREATE_QUERY, groups.CREATE_BODY),
    groups.show_group: (groups.SHOW_QUERY, None),
    groups.update_group: (schema.NO_QUERY, groups.PATCH_BODY),
    groups.delete_group: (schema.NO_QUERY, None),
    notices.list_notices: (notices.LIST_QUERY, None),
    notices.create_notices: (schema.NO_QUERY, notices.CREATE_BODY),
    notices.update_notices: (notices.UPDATE_QUERY, notices.PATCH_BODY),
    pools.list_pools: (pools.LIST_QUERY, None),
    pools.create_pool: (pools.CREATE_QUERY, pools.CREATE_BODY),
    pools.show_pool: (pools.SHOW_QUERY, None),
    pools.update_pool: (schema.NO_QUERY, pools.PATCH_BODY),
    pools.delete_pool: (schema.NO_QUERY, None),
    pools.change_nodes: (schema.NO_QUERY, pools.NODES_BODY),
    pools.remove_node: (schema.NO_QUERY, None),
    history.list_history: (history.LIST_QUERY, None),
    hosts.list_host_leases: (hosts.LIST_QUERY, None),
    hosts.acquire_host_lease: (schema.NO_QUERY, hosts.ACQUIRE_BODY),
    hosts.give_up_host_lease: (hosts.GIVE_UP_QUERY, None),
}


def _refer(name: str, *required: str) -> dict[str, Any]:
    """Return a reference to a schema, whose keys may be required."""
    return {'$ref': f'#/components/schemas/{name}',
            **({'required': [*required]} if required else {})}


def _page(key: str, row: dict[str, Any], is_last: bool = False
          ) -> dict[str, Any]:
    return {'type': 'object', 'required': [key], 'properties': {
        key: {'type': 'array', 'items': row}, 'next': {
            'type': 'string', 'format': 'uri'}}}


_RESERVATION = _refer('Reservation', *(
    name for name in resources.FIELDS if name != 'group'), 'more_notices')
_GROUP = _refer('Group', 'uuid', 'policy', 'by', 'project_id', 'description',
                'created_at', 'health')
_ONE_GROUP = _refer('Group', *_GROUP['required'], 'reservations')
_DRY_RUN = _refer('DryRun', 'matching_nodes', 'profiles', 'explanation')
_IGNORED = {'properties': {'ignored': responses.TEXTS.schema}}
_ERROR = _refer('Error')
_OVER_QUOTA = _ERROR | {'properties': {'quota': responses.QUOTA.schema}}
_NO_MATCH = _refer('Error', 'error_message', 'explanation') | {'properties': {
    'explanation': responses.EXPLANATION.schema, **_IGNORED['properties']}}
_TOO_FEW = {**_NO_MATCH, 'properties': {
    **_NO_MATCH['properties'], 'members': responses.ROOM.schema,
    'segments': responses.ROOM.schema, 'level': {'type': 'string'}}}
_NOTICES = _page('notices', _refer('Notice', *(
    attribute.name for attribute in wtypes.list_attributes(resources.Notice))))
_POOL = _refer('Pool', *(
    attribute.name for attribute in wtypes.list_attributes(pools.Pool)
    if attribute.name != 'next'))
_LISTED_POOL = _refer('Pool', *(name for name in _POOL['required']
                                if name not in ('request', 'nodes')))

#: Schemas of bodies by handler; of a POST by status. Other errors are _ERROR.
RESPONSES: dict[Any, Any] = {
    reservations.list_reservations: _page(
        'reservations', _refer('Reservation')),
    reservations.create_reservation: {
        '201': _RESERVATION | _IGNORED,
        '200': {'anyOf': [_RESERVATION | _IGNORED, _DRY_RUN]},
        '403': _OVER_QUOTA, '422': _NO_MATCH},
    reservations.show_reservation: _refer('Reservation', 'links'),
    reservations.update_reservation: _RESERVATION,
    capacity.show_capacity: _page('capacity', _refer('Profile')),
    groups.list_groups: _page(
        'groups', _refer('Group', *_GROUP['required'], 'members', 'domains')),
    groups.create_group: {
        '201': _ONE_GROUP | _IGNORED,
        '200': {'anyOf': [_ONE_GROUP | _IGNORED, _refer(
            'DryRun', *_DRY_RUN['required'], 'members', 'domains')]},
        '403': _OVER_QUOTA, '422': _TOO_FEW},
    groups.show_group: _ONE_GROUP,
    groups.update_group: _ONE_GROUP,
    notices.list_notices: _NOTICES,
    notices.create_notices: {'201': _NOTICES, '200': _NOTICES},
    notices.update_notices: _NOTICES,
    pools.list_pools: _page('pools', _LISTED_POOL),
    pools.create_pool: {
        '201': _POOL | _IGNORED,
        '200': {'anyOf': [_POOL | _IGNORED, _refer(
            'DryRun', *_DRY_RUN['required'], 'members', 'domains')]},
        '422': _TOO_FEW},
    pools.show_pool: _POOL,
    pools.update_pool: _POOL,
    pools.change_nodes: {'200': _POOL, '422': _NO_MATCH},
    history.list_history: _page('history', _refer('EndedReservation', *(
        attribute.name
        for attribute in wtypes.list_attributes(history.EndedReservation)
        if attribute.name != 'group'))),
    hosts.list_host_leases: _page('hosts', _refer(
        'Host', *(attribute.name
                  for attribute in wtypes.list_attributes(hosts.Host)))),
    hosts.acquire_host_lease: _refer('Host', 'host', 'holder', 'expires_at'),
}

#: Resources in responses, and the calls whose reference describes their keys.
_COMPONENTS: dict[Any, tuple[str, ...]] = {
    resources.Reservation: ('show_reservation',),
    resources.DryRun: ('create_group', 'create_reservation'),
    groups.Group: ('list_groups', 'show_group'),
    resources.Notice: ('list_notices',),
    pools.Pool: ('list_pools', 'show_pool'),
    history.EndedReservation: ('list_history',),
    hosts.Host: ('list_host_leases',),
    resources.Profile: ('show_capacity',),
}

# Parameters whose text is a value of another type.
_TYPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (schema.BOOLEAN, {'type': 'boolean'}),
    (schema.POSITIVE, {'type': 'integer', 'minimum': 1,
                       'maximum': 999_999_999})]

_RESPONSE_HEADERS = {
    version.HEADER: 'Version of the Bare Metal API that was used.',
    version.MIN_HEADER: 'Lowest version of the Bare Metal API.',
    version.MAX_HEADER: 'Highest version of the Bare Metal API.',
    version.OWN_HEADER: 'Version of the Reservations API.',
    'x-openstack-request-id': 'Identifies the request in the log.',
}

_VERSION_PARAMETER = {
    'name': version.HEADER, 'in': 'header', 'required': False,
    'description': 'Version of the Bare Metal API. No version changes the '
                   'behaviour of these calls. The last one of a list with '
                   'commas counts.',
    'schema': {'type': 'string', 'default': version.MIN_VERSION, 'pattern':
               r'^(?:.*,)?[ \t]*(?:latest|1\.[1-9][0-9]*)?[ \t]*$'}}


class Call:
    """The text of a call in the API reference."""

    def __init__(self, method: str, path: str) -> None:
        before, _, rest = _REFERENCE.partition(
            f'.. rest_method::  {method} {path}\n')
        self.title = before.split('\n')[-4]
        text = rest.split('.. rest_method::')[0]
        self.text = re.split(r'\n.*\n===+\n', text)[0]
        self.description = _make_markdown(self.text.strip().split('\n\n')[0])
        # Names of parameters and texts by the sections' titles.
        self.sections: dict[str, str] = {}
        title = ''
        for part in re.split(r'\n(?=.+\n---+\n)', self.text):
            if title_match := re.match(r'(.+)\n---+\n', part):
                title = title_match[1]
            self.sections[title] = part

    @property
    def codes(self) -> list[str]:
        """The status codes of responses, the normal ones first."""
        return re.findall(r'\d{3}', ' '.join(re.findall(
            r'^(?:Normal|Error) response codes: (.*)$', self.text,
            re.MULTILINE)))

    def find_parameters(self, in_: str, section: str = '') -> dict[str, str]:
        """Return the keys of parameters by their names.

        :param section: beginning of the titles of sections.
        """
        return {name: key for title, text in self.sections.items()
                if title.startswith(section) for name, key in re.findall(
                    r'^   - (\S+): (\S+)$', text, re.MULTILINE)
                if _PARAMETERS[key]['in'] == in_}

    def find_examples(self, code: str) -> dict[str, dict[str, Any]]:
        """Return the examples of a response, or with '' of the request."""
        examples: dict[str, dict[str, Any]] = {}
        for title, text in self.sections.items():
            number = re.search(r'---\n+(?:The status is )?(\d{3})\b', text)
            place = '' if title == 'Request' else (
                number[1] if number else self.codes[0])
            if place == code:
                examples |= {
                    pathlib.PurePath(name).stem: {
                        'summary': summary, 'value': json.loads(
                            (SOURCE / name).read_text())}
                    for summary, name in re.findall(
                        r'\*\*Example: (.*)\*\*\n\n'
                        r'\.\. literalinclude:: (\S+)', text)}
        return examples


def make_document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths = {path: {method.lower(): _make_operation(method, path, handler)
                    for method, handler in handlers.items()}
             for path, handlers in routes.ROUTES.items()}
    document: dict[str, Any] = _translate_patterns({
        'openapi': '3.1.0',
        'info': {
            'title': 'Reservations of the Bare Metal API',
            'version': version.OWN_VERSION,
            'description': 'Clients have to ignore unknown keys in responses.',
            'license': {'name': 'Apache-2.0', 'identifier': 'Apache-2.0'}},
        'servers': [{
            'url': '{endpoint}', 'variables': {'endpoint': {
                'default': 'http://127.0.0.1:6385',
                'description': 'Endpoint of the Bare Metal API, without '
                               '"/v1".'}}}],
        'security': [{'token': []}, {'password': []}],
        'paths': paths,
        'components': {
            'schemas': {
                **{type_.__name__: _make_component(type_, calls)
                   for type_, calls in _COMPONENTS.items()},
                'Error': _make_error()},
            'responses': {code: _make_response(code) for code in _FAILURES},
            'parameters': {'version': _VERSION_PARAMETER},
            'headers': {
                name: {'description': text, 'schema': {'type': 'string'}}
                for name, text in _RESPONSE_HEADERS.items()},
            'securitySchemes': {
                'token': {'type': 'apiKey', 'in': 'header',
                          'name': 'X-Auth-Token',
                          'description': 'Token of Keystone.'},
                'password': {'type': 'http', 'scheme': 'basic',
                             'description': 'With auth_strategy http_basic.'}},
        },
    })
    return document


def _make_operation(method: str, path: str, handler: Any) -> dict[str, Any]:
    call = Call(method, path)
    query, body = REQUESTS[handler]
    names = {place: call.find_parameters(place)
             for place in ('path', 'query', 'body')}
    operation: dict[str, Any] = {
        'operationId': handler.__name__,
        'tags': [handler.__module__.rpartition('.')[2]],
        'summary': call.title, 'description': call.description,
        'parameters': [
            *(_make_parameter('path', name, routes.NAMES.schema[
                'properties'][name], names)
              for name in re.findall(r'{(\w+)}', path)),
            *(_make_parameter('query', name, value, names)
              for name, value in query.schema['properties'].items()),
            *({'name': name, 'in': 'header',
               'description': _describe(key), 'schema': {'type': 'string'}}
              for name, key in call.find_parameters(
                  'header', 'Request').items()),
            {'$ref': '#/components/parameters/version'}]}
    if body is not None:
        operation['requestBody'] = {'required': True, 'content': _make_content(
            _add_descriptions(body.schema, names['body']),
            call.find_examples(''))}
    operation['responses'] = {
        code: {'$ref': f'#/components/responses/{code}'}
        if code in _FAILURES and response == _make_response(code)
        else response
        for code in call.codes
        for response in [_make_response(code, call, handler)]}
    return operation


def _make_parameter(place: str, name: str, value: dict[str, Any],
                    names: dict[str, dict[str, str]]) -> dict[str, Any]:
    if 'items' in value:  # It may be repeated.
        value = {'type': 'array', 'items': value['items']}
    return {'name': name, 'in': place, 'required': place == 'path',
            'description': _describe(names[place][name])
            if name in names[place] else '', 'schema': next(
                (type_ for text, type_ in _TYPES if value == text), value)}


def _make_response(code: str, call: Call | None = None,
                   handler: Any = None) -> dict[str, Any]:
    """Return a response of a call, or by default of all."""
    rows = _FAILURES | dict(_ROW.findall(call.text if call else ''))
    headers = {'Retry-After': 'retry_after'} if (
        int(code) in errors.RETRY_AFTER) else {}
    if call and code < '300':
        headers = call.find_parameters('header', 'Response')
        headers.pop('Retry-After', None)
    response: dict[str, Any] = {
        'description': _make_markdown(
            rows.get(code, f'{http.HTTPStatus(int(code)).phrase}.')),
        'headers': {
            **{name: {'$ref': f'#/components/headers/{name}'}
               for name in _RESPONSE_HEADERS},
            **{name: {'description': _describe(key),
                      'schema': {'type': _PARAMETERS[key]['type']}}
               for name, key in headers.items()}}}
    if code != '204':
        bodies = RESPONSES.get(handler, {})
        response['content'] = _make_content(
            bodies.get(code, _ERROR if code > '300' else bodies),
            call.find_examples(code) if call else {})
    return response


def _make_content(body: dict[str, Any],
                  examples: dict[str, Any]) -> dict[str, Any]:
    return {'application/json': {
        'schema': body, **({'examples': examples} if examples else {})}}


def _make_error() -> dict[str, Any]:
    """Return the schema of ``errors.make_envelope``."""
    return {'type': 'object', 'required': ['error_message'], 'properties': {
        'error_message': {
            'type': 'string', 'contentMediaType': 'application/json',
            'contentSchema': responses.whole_object(
                faultcode={'enum': ['Client', 'Server']},
                faultstring={'type': 'string'},
                debuginfo={'type': 'null'})}}}


def _make_component(type_: Any, calls: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of a resource, with the reference's descriptions."""
    names: dict[str, str] = {}
    for path, handlers in routes.ROUTES.items():
        for method, handler in handlers.items():
            if handler.__name__ in calls:
                names |= Call(method, path).find_parameters('body', 'Response')
    result = _add_descriptions({
        'type': 'object', 'properties': {
            attribute.name: _make_schema(attribute.datatype)
            for attribute in wtypes.list_attributes(type_)}}, names)
    if type_ is resources.Profile:
        # With "by".
        result['patternProperties'] = {
            '^capability:': responses.NULLABLE_TEXT.schema}
    return result


def _make_schema(datatype: Any) -> dict[str, Any]:
    """Return the JSON schema of a type of WSME."""
    if isinstance(datatype, responses.Json):
        return datatype.schema
    if hasattr(datatype, 'item_type'):
        return {'type': 'array', 'items': _make_schema(datatype.item_type)}
    if datatype in _COMPONENTS:
        return _refer(datatype.__name__)
    if isinstance(datatype, type) and issubclass(datatype, wtypes.Base):
        return responses.whole_object(**{
            attribute.name: _make_schema(attribute.datatype)
            for attribute in wtypes.list_attributes(datatype)})
    return {'type': {str: 'string', bool: 'boolean'}[datatype]}


def _add_descriptions(value: dict[str, Any], names: dict[str, str],
                      prefix: str = '') -> dict[str, Any]:
    """Return a schema whose properties have descriptions.

    :param names: keys of parameters by the dotted names of properties.
    """
    if 'items' in value:
        return {**value,
                'items': _add_descriptions(value['items'], names, prefix)}
    if 'properties' not in value:
        return value
    return {**value, 'properties': {
        name: {**({'description': _describe(names[prefix + name])}
                  if prefix + name in names else {}),
               **_add_descriptions(inner, names, f'{prefix}{name}.')}
        for name, inner in value['properties'].items()}}


def _describe(key: str) -> str:
    return _make_markdown(_PARAMETERS[key]['description'])


def _make_markdown(text: str) -> str:
    """Return a text of the reference as Markdown, on one line."""
    text = re.sub(r'`([^`]+)`_', r'\1', ' '.join(text.split()))
    return text.replace('``', '`')


def _translate_patterns(value: Any) -> Any:
    """Return a document with patterns as in ECMAScript, where $ is the end.

    They do not exclude lone surrogates, which many libraries cannot compile.
    """
    if isinstance(value, dict):
        return {key: inner.replace(r'\Z', '$').replace(r'\ud800-\udfff', '')
                if key == 'pattern' and isinstance(inner, str)
                else _translate_patterns(inner)
                for key, inner in value.items()}
    return ([_translate_patterns(inner) for inner in value]
            if isinstance(value, list) else value)


def format_document() -> str:
    return json.dumps(make_document(), indent=1, ensure_ascii=False) + '\n'
