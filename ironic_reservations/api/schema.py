# SPDX-License-Identifier: Apache-2.0
"""Validates requests by JSON schemas, and has the parts of schemas.

The schemas are in the modules of the nouns.
"""

from collections.abc import Callable
from typing import Any

import jsonschema

from ironic_reservations import exception
from ironic_reservations.fleet import capacity
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import request_spec
from ironic_reservations.shared import constants

# A UUID of ours or of Nova's. Ironic accepts other spellings for its nodes;
# see uuidutils.is_uuid_like.
_UUID_PATTERN = r'[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}'

# Text must not contain NUL, which ends a string in some databases, nor lone
# surrogates, which cannot be encoded as UTF-8. A name must not contain control
# characters or line separators either, because it is written to logs and
# terminals. Patterns end with \Z because $ also matches before a newline at
# the end.
_TEXT = r'^[^\x00\ud800-\udfff]*\Z'
_NAME = r'^[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*\Z'
# Names of hosts and nodes, and IDs of projects and users, are not blank.
_IDENT = _NAME.replace('^', r'^(?=\s*\S)', 1)
# MariaDB ignores a space at the end when it compares names.
_HOST = _IDENT.replace(r'\Z', r'(?<! )\Z')
_TRAIT = r'^[A-Z0-9_]{1,255}\Z'
_BOOLEAN = r'^(?i:true|false)\Z'
_POSITIVE = r'^0{0,9}[1-9][0-9]{0,8}\Z'
# "capability:" and the name of a capability, which has no colon, and no space
# at its ends.
_CAPABILITY = (
    group_policy.CAPABILITY
    + r'(?! )[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff:,]{1,255}(?<! )')
# Keys of the domains of groups, and keys by which capacity rows are summed.
_BY = (rf'^(?:{"|".join((*group_policy.COLUMNS, _CAPABILITY))}'
       rf'|{group_policy.TRAIT}[A-Z0-9_]{{1,255}})\Z')
_ROW_KEY = rf'^(?:{"|".join((*capacity.COLUMNS, _CAPABILITY))})\Z'
_UUID = rf'^{_UUID_PATTERN}\Z'
_CLAIM = rf'^{_UUID_PATTERN}(?::(?:0|[1-9][0-9]{{0,8}}))?\Z'
# URL-safe base64; also matches a UUID.
_MARKER = r'^[A-Za-z0-9_-]+\Z'

# Words separated by commas.
_DIRECTIONS, _KEYS = (
    rf'^(?:{"|".join(words)})(?:,(?:{"|".join(words)}))*\Z'
    for words in (('asc', 'desc'), constants.SORT_KEYS))

#: Maximum number of extra specs, and of properties of an image.
MAX_KEYS = 1024

NAME = {'type': 'string', 'maxLength': 255, 'pattern': _NAME,
        'minLength': 1}
TEXT = {'type': 'string', 'maxLength': 255, 'pattern': _NAME}
IDENT = {**NAME, 'pattern': _IDENT}
IDENT_OR_NULL = {**IDENT, 'type': ['string', 'null']}
HOST = {**NAME, 'pattern': _HOST}
TRAIT = {'type': 'string', 'pattern': _TRAIT}
NUMBER = {'type': ['number', 'null'], 'minimum': 0,
          'maximum': request_spec.MAX_INT}
INTEGER = {**NUMBER, 'type': ['integer', 'null']}
#: A time: a text for ``requests.read_time``, or seconds from now.
TIME = {'type': ['string', 'object', 'null'], 'maxLength': 64,
        'pattern': _NAME,
        'additionalProperties': False, 'required': ['in'],
        'properties': {'in': {**INTEGER, 'type': 'integer'}}}
FLAG = {'type': ['boolean', 'null']}
UUID = {'type': 'string', 'pattern': _UUID}
MARKER = {'type': 'string', 'maxLength': 8192, 'pattern': _MARKER}
UUID_OR_NULL = {**UUID, 'type': ['string', 'null']}
POLICY: dict[str, Any] = {'enum': [*constants.POLICIES, None]}
BY = {'type': ['string', 'null'], 'pattern': _BY}
LEVEL_POLICY: dict[str, Any] = {'enum': list(constants.POLICIES)}
LEVEL_BY = {'type': 'string', 'pattern': _BY}
ROW_KEY = {'type': 'string', 'pattern': _ROW_KEY}
CLAIM = {'type': ['string', 'null'], 'pattern': _CLAIM}
BOOLEAN = {'type': 'string', 'pattern': _BOOLEAN}
POSITIVE = {'type': 'string', 'pattern': _POSITIVE}
SORT_KEY = {'type': 'string', 'pattern': _KEYS}
SORT_DIR = {'type': 'string', 'pattern': _DIRECTIONS}


def nullable_text(**keywords: Any) -> dict[str, Any]:
    """Return the schema of a name, or of another text, or null."""
    return {'type': ['string', 'null'], 'maxLength': 255, 'pattern': _NAME,
            **keywords}


def text_map(max_length: int) -> dict[str, Any]:
    """Return the schema of an object of texts, or null."""
    return {'type': ['object', 'null'],
            # First, because the check of each key takes 25 microseconds.
            'maxProperties': MAX_KEYS, 'propertyNames': NAME,
            'additionalProperties': nullable_text(maxLength=max_length,
                                                  pattern=_TEXT)}


def closed_object(properties: dict[str, Any],
                  **keywords: Any) -> dict[str, Any]:
    """Return the schema of an object that allows no other properties."""
    return {'type': 'object', 'additionalProperties': False, **keywords,
            'properties': properties}


#: A level of a group; only the last one has a segment.
LEVEL = closed_object({
    'by': LEVEL_BY, 'policy': LEVEL_POLICY,
    'segment': {**INTEGER, 'minimum': 1},
}, required=['by', 'policy'])


_PATTERNS = {
    _TEXT: 'be text without NUL and lone surrogates',
    _NAME: 'be text without control characters',
    _IDENT: 'be text without control characters, and not blank',
    _HOST: 'be text without control characters and without a space at its '
           'end, and not blank',
    _UUID: 'be a UUID such as 5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e',
    _MARKER: 'consist of A-Z, a-z, 0-9, _ and -',
    _TRAIT: 'be a trait, which consists of A-Z, 0-9 and _',
    _BOOLEAN: 'be true or false',
    _POSITIVE: 'be an integer from 1 to 999999999',
    _DIRECTIONS: 'be one of asc, desc, or several of them, separated by '
                 'commas',
    _KEYS: f'be one of {", ".join(constants.SORT_KEYS)}, or several of them, '
           f'separated by commas',
    _BY: f'be one of {", ".join(group_policy.COLUMNS)}, capability:NAME, '
         f'where NAME is that of a capability, or trait:PREFIX, where PREFIX '
         f'is the beginning of traits',
    _ROW_KEY: f'be one of {", ".join(capacity.COLUMNS)}, or capability:NAME, '
              f'where NAME is that of a capability',
    _CLAIM: 'be a UUID, or the UUID of a group, ":" and the number of a '
            'segment',
}

_TYPES = {'array': 'a list', 'boolean': 'true or false',
          'integer': 'an integer', 'null': 'null',
          'number': 'a number', 'object': 'an object', 'string': 'a string'}

# Texts for error messages: the continuation of "must" for each keyword of a
# schema, given its value.
_REQUIREMENTS: dict[str, Callable[[Any], str | None]] = {
    'type': lambda value: 'be ' + ' or '.join(
        _TYPES[type_] for type_ in
        ([value] if isinstance(value, str) else value)),
    'minimum': lambda value: f'be at least {value}',
    'maximum': lambda value: f'be at most {value}',
    'minLength': lambda value: 'not be empty' if value == 1 else (
        f'have at least {value} characters'),
    'maxLength': lambda value: f'have at most {value} characters',
    'required': lambda value: 'have the keys ' + ' and '.join(value),
    'minItems': lambda value: 'not be empty' if value == 1 else (
        f'have at least {value} items'),
    'maxItems': lambda value: f'have at most {value} items',
    'minProperties': lambda value: 'not be empty' if value == 1 else (
        f'have at least {value} keys'),
    'maxProperties': lambda value: (
        f'have at most {value} key{"" if value == 1 else "s"}'),
    'enum': lambda value: 'be one of ' + ', '.join(
        str(member) for member in value if member is not None),
    'pattern': _PATTERNS.get,
}

# Keywords that limit a length.
_LENGTHS = {'maxLength', 'maxItems', 'maxProperties'}


def describe_requirement(keyword: str, value: Any) -> str | None:
    """Return what a keyword of a schema requires, in words.

    :returns: the end of a sentence that begins with "must"; None for a keyword
        or a pattern without words.
    """
    describe = _REQUIREMENTS.get(keyword)
    return describe and describe(value)


class Validator:
    """A compiled schema, whose errors name the field and what it must be.

    :param schema: a JSON schema.
    :param whole: name of the whole value in errors, such as ``body``.
    """

    def __init__(self, schema: dict[str, Any], whole: str) -> None:
        self.schema = schema
        self._validator = jsonschema.Draft202012Validator(schema)
        self._whole = whole

    def __call__(self, value: Any) -> Any:
        """Return the value if it is valid.

        :raises: InvalidInput for the first error.
        """
        for error in self._validator.iter_errors(value):
            raise self._make_error(error)
        return value

    def _make_error(self, error: jsonschema.ValidationError
                    ) -> exception.InvalidInput:
        """Return the error that names the invalid field, and the reason."""
        path = [str(part) for part in error.absolute_path]
        keyword, value = error.validator, error.instance
        if keyword == 'required':
            missing = next(key for key in error.validator_value
                           if key not in value)
            return exception.InvalidInput(
                '.'.join([*path, missing]), 'is required')
        if keyword == 'additionalProperties':
            known_keys = error.schema.get('properties', {})
            unknown = next(key for key in value if key not in known_keys)
            return exception.InvalidInput(
                '.'.join([*path, unknown[:64]]) or '""',
                'is not allowed; allowed: '
                + (', '.join(known_keys) or 'none'))
        if 'propertyNames' in error.absolute_schema_path:
            path.append(value[:64])
        words = describe_requirement(keyword, error.validator_value)
        if keyword == 'type' and self._whole == 'query':
            words = 'not be repeated'
        return exception.InvalidInput(
            '.'.join(path) or self._whole,
            f'must {words}' if words
            else f'must satisfy "{keyword}" of its schema',
            got=len(value) if keyword in _LENGTHS else value)


def query_validator(**properties: Any) -> Validator:
    """Return the Validator of a query with these parameters."""
    return Validator(closed_object(properties), 'query')


#: The query of a call without parameters.
NO_QUERY = query_validator()
