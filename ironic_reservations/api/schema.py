# SPDX-License-Identifier: Apache-2.0
"""The parts of the JSON schemas of requests, and the errors of schemas.

Each noun's module has its own schemas.
"""

import jsonschema

from ironic_reservations import constants
from ironic_reservations import exception
from ironic_reservations.fleet import capacity
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import request_spec

#: A UUID anywhere in a text.
UUID = r'[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}'

# Text may not contain NUL, which ends a string in some databases, nor a lone
# surrogate, which cannot be encoded as UTF-8. A name may not contain any
# control character or line separator either: names stand in logs and on
# terminals. Patterns end with \Z, because $ would also match before a newline
# at the end.
_TEXT = r'^[^\x00\ud800-\udfff]*\Z'
_NAME = r'^[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*\Z'
# MariaDB takes a name with a space at its end for the one without.
_HOST = _NAME.replace(r'\Z', r'(?<! )\Z')
_TRAIT = r'^[A-Z0-9_]{1,255}\Z'
_BOOLEAN = r'^(?i:true|false)\Z'
_POSITIVE = r'^0{0,9}[1-9][0-9]{0,8}\Z'
# The name of a capability of a node: it has no colon, and is stripped.
_CAPABILITY = (
    group_policy.CAPABILITY
    + r'(?! )[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff:,]{1,255}(?<! )')
# What the domains of a group are, and what rows of the capacity are summed by.
_BY, _ROW_KEY = (rf'^(?:{"|".join((*columns, _CAPABILITY))})\Z'
                 for columns in (group_policy.COLUMNS, capacity.COLUMNS))
_UUID = rf'^{UUID}\Z'
# URL-safe base64, in which a UUID is, too.
_MARKER = r'^[A-Za-z0-9_-]+\Z'

# Words separated by commas.
_DIRECTIONS, _KEYS = (
    rf'^(?:{"|".join(words)})(?:,(?:{"|".join(words)}))*\Z'
    for words in (('asc', 'desc'), constants.SORT_KEYS))

#: The most extra specs, and the most properties of an image.
MAX_KEYS = 1024

name = {'type': 'string', 'maxLength': 255, 'pattern': _NAME, 'minLength': 1}
text = {'type': 'string', 'maxLength': 255, 'pattern': _NAME}
host = {**name, 'pattern': _HOST}
trait = {'type': 'string', 'pattern': _TRAIT}
number = {'type': ['number', 'null'], 'minimum': 0,
          'maximum': request_spec.MAX_INT}
integer = {**number, 'type': ['integer', 'null']}
uuid = {'type': 'string', 'pattern': _UUID}
marker = {'type': 'string', 'maxLength': 8192, 'pattern': _MARKER}
uuid_or_null = {**uuid, 'type': ['string', 'null']}
policy = {'enum': [*constants.POLICIES, None]}
by = {'type': ['string', 'null'], 'pattern': _BY}
row_key = {'type': 'string', 'pattern': _ROW_KEY}
boolean = {'type': 'string', 'pattern': _BOOLEAN}
positive = {'type': 'string', 'pattern': _POSITIVE}
sort_key = {'type': 'string', 'pattern': _KEYS}
sort_dir = {'type': 'string', 'pattern': _DIRECTIONS}


def string(**more):
    """Return the schema of a name that may be null."""
    return {'type': ['string', 'null'], 'maxLength': 255, 'pattern': _NAME,
            **more}


def strings(longest):
    """Return the schema of an object of texts."""
    return {'type': ['object', 'null'],
            # First, because it takes 25 microseconds to look at each.
            'maxProperties': MAX_KEYS, 'propertyNames': name,
            'additionalProperties': string(maxLength=longest, pattern=_TEXT)}


def closed(properties, **more):
    """Return the schema of an object that has no other properties."""
    return {'type': 'object', 'additionalProperties': False, **more,
            'properties': properties}


_PATTERNS = {
    _TEXT: 'text without NUL and without lone surrogates',
    _NAME: 'text without control characters',
    _HOST: 'text without control characters and without a space at its end',
    _UUID: 'a UUID such as 5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e',
    _MARKER: 'A-Z, a-z, 0-9, _ and -',
    _TRAIT: 'a trait: A-Z, 0-9 and _',
    _BOOLEAN: 'true or false',
    _POSITIVE: 'a positive number',
    _DIRECTIONS: 'one of asc, desc, or several, separated by commas',
    _KEYS: f'one of {", ".join(constants.SORT_KEYS)}, or several, '
           f'separated by commas',
    **{pattern: f'one of {", ".join(columns)}, or capability: and the name of '
                f'one' for pattern, columns in (
                    (_BY, group_policy.COLUMNS),
                    (_ROW_KEY, capacity.COLUMNS))},
}

# What each keyword of a schema requires, given the keyword's value.
_REQUIREMENTS = {
    'type': lambda value: ' or '.join(
        [value] if isinstance(value, str) else value),
    'minimum': lambda value: f'at least {value}',
    'maximum': lambda value: f'at most {value}',
    'minLength': lambda value: f'at least {value} characters long',
    'maxLength': lambda value: f'at most {value} characters long',
    'required': lambda value: 'an object with ' + ' and '.join(value),
    'minItems': lambda value: f'a list of at least {value}',
    'maxItems': lambda value: f'a list of at most {value}',
    'maxProperties': lambda value: f'an object with at most {value} keys',
    'enum': lambda value: 'one of ' + ', '.join(
        str(each) for each in value if each is not None),
    'pattern': _PATTERNS.get,
}


def requirement(keyword, value):
    """Say in words what a keyword of a schema requires.

    :returns: the end of a sentence that begins with "must be"; None for a
        keyword or a pattern that nobody has put into words.
    """
    words = _REQUIREMENTS.get(keyword)
    return words and words(value)


class Validator:
    """A compiled schema, whose errors name the field and what it must be.

    :param schema: the JSON schema, a dict.
    :param whole: what to call the value as a whole, ``body`` or ``query``.
    """

    def __init__(self, schema, whole):
        self.schema = schema
        self._validator = jsonschema.Draft202012Validator(schema)
        self._whole = whole

    def __call__(self, value):
        """Return the value if it is valid.

        :raises: InvalidInput, for the first error that is found.
        """
        for error in self._validator.iter_errors(value):
            raise exception.InvalidInput(*self._explain(error))
        return value

    def _explain(self, error):
        """The field at fault and what it must be, from jsonschema's error."""
        path = [str(part) for part in error.absolute_path]
        field = '.'.join(path) or self._whole
        if error.validator == 'additionalProperties':
            known = error.schema.get('properties', {})
            unknown = next(key for key in error.instance if key not in known)
            return ('.'.join([*path, unknown[:64]]) or '""',
                    'is not known here; known are: '
                    + (', '.join(known) or 'none'))
        if 'propertyNames' in error.absolute_schema_path:
            field = '.'.join([*path, error.instance[:64]])
        words = requirement(error.validator, error.validator_value)
        return field, (f'must be {words}' if words else
                       f'does not satisfy "{error.validator}" of its schema')


def query(**properties):
    """Return the Validator of a query with these parameters."""
    return Validator(closed(properties), 'query')


#: The query of a call without parameters.
NO_QUERY = query()
