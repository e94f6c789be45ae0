# SPDX-License-Identifier: Apache-2.0
"""What requests may contain: a JSON schema for the body and each query."""

import json
import re

import jsonschema

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import hosts
from ironic_reservations import placing
from ironic_reservations import request_spec
from ironic_reservations import reservations
from ironic_reservations.api import types

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
# What the domains of a group are; a name of a capability has no colon.
_BY = (r'^(?:' + '|'.join(placing.COLUMNS) + '|' + placing.CAPABILITY
       # The names of a node's capabilities are stripped.
       + r'(?! )[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff:,]{1,255}'
       + r'(?<! ))\Z')
_UUID = r'^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z'

# Words separated by commas.
_DIRECTIONS, _KEYS = (
    rf'^(?:{"|".join(words)})(?:,(?:{"|".join(words)}))*\Z'
    for words in (('asc', 'desc'), reservations.SORT_KEYS))

#: The most extra specs, and the most properties of an image.
MAX_KEYS = 1024

#: The most operations of a JSON Patch.
MAX_OPERATIONS = 64

#: Whose a node must be: see matching.Ownership.
OWNERSHIPS = ('any', 'project', 'project_or_none')


def _string(**more):
    """The schema of a name that may be null."""
    return {'type': ['string', 'null'], 'maxLength': 255, 'pattern': _NAME,
            **more}


def _strings(longest):
    """The schema of an object of texts."""
    return {'type': ['object', 'null'],
            # First, because it takes 25 microseconds to look at each.
            'maxProperties': MAX_KEYS, 'propertyNames': _name,
            'additionalProperties': _string(maxLength=longest, pattern=_TEXT)}


_text = {'type': 'string', 'maxLength': 255, 'pattern': _NAME}
_name = {**_text, 'minLength': 1}
_trait = {'type': 'string', 'pattern': _TRAIT}
_number = {'type': ['number', 'null'], 'minimum': 0,
           'maximum': request_spec.MAX_INT}
_integer = {**_number, 'type': ['integer', 'null']}
_uuid = {'type': ['string', 'null'], 'pattern': _UUID}
_some_uuid = {**_uuid, 'type': 'string'}
_policy = {'enum': [*placing.POLICIES, None]}
_by = {'type': ['string', 'null'], 'pattern': _BY}

REQUEST_SPEC = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        'instance_uuid': _uuid,
        'host': _string(minLength=1),
        'memory_mb': _integer,
        'vcpus': _integer,
        'root_gb': _integer,
        'ephemeral_gb': _integer,
        'swap': _integer,
        'vcpu_weight': _integer,
        'rxtx_factor': _number,
        'name': _string(),
        'flavorid': _string(),
        'extra_specs': _strings(1024),
        'image': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'properties': {
                'id': _string(),
                'properties': _strings(1024),
                'min_ram': _integer,
                'min_disk': _integer,
            },
        },
        'resource_class': _string(minLength=1),
        'conductor_group': _string(),
        'shard': _string(minLength=1),
        'candidate_nodes': {
            'type': ['array', 'null'], 'minItems': 1,
            'maxItems': request_spec.MAX_CANDIDATES, 'items': _name,
        },
        # The maximum is [reservations] max_lease: expires_in() checks it.
        'expires_in': {**_integer, 'minimum': 1},
        'project_id': _string(minLength=1),
        'user_id': _string(minLength=1),
        'holder': _uuid,
        'ownership': {'enum': [*OWNERSHIPS, None]},
        'group': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'required': ['uuid'],
            'properties': {'uuid': _some_uuid, 'policy': _policy, 'by': _by},
        },
        'claim': _uuid,
    },
}


def _without(*names):
    """The schemas of a request spec's keys, without some of them."""
    return {name: value for name, value in REQUEST_SPEC['properties'].items()
            if name not in names}


#: Of a node that carries the instance already, and is held without end.
ADOPT = {
    **REQUEST_SPEC, 'required': ['instance_uuid'],
    'properties': {**_without('expires_in', 'claim'),
                   'instance_uuid': _some_uuid}}

#: Several at once.
CREATE_GROUP = {
    'type': 'object',
    'additionalProperties': False,
    'required': ['members', 'request'],
    'properties': {
        'uuid': _uuid,
        # The maximum is [reservations] max_members: members() checks it.
        # Of UUIDs no more are looked at than that may be.
        'members': {'type': ['integer', 'array'], 'minimum': 1,
                    'maximum': request_spec.MAX_INT, 'minItems': 1,
                    'maxItems': conf.MOST_MEMBERS, 'items': _some_uuid},
        'policy': _policy,
        'by': _by,
        'request': {**REQUEST_SPEC, 'properties': _without(
            *request_spec.ENVELOPE, 'group')},
        **{name: REQUEST_SPEC['properties'][name] for name in
           ('host', 'project_id', 'user_id', 'expires_in')},
    },
}

LIST_GROUPS = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        'limit': {'type': 'string', 'pattern': _POSITIVE},
        'marker': _some_uuid,
    },
}

LIST = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        'host': _name,
        'node': _name,
        'project_id': _name,
        'resource_class': _name,
        'state': {'enum': list(reservations.STATES)},
        'fields': _name,
        'limit': {'type': 'string', 'pattern': _POSITIVE},
        'marker': _some_uuid,
        'sort_key': {'type': 'string', 'pattern': _KEYS},
        'sort_dir': {'type': 'string', 'pattern': _DIRECTIONS},
    },
}

SHOW_GROUP = {'type': 'object', 'additionalProperties': False,
              'properties': {'marker': _some_uuid}}

SHOW = {'type': 'object', 'additionalProperties': False,
        'properties': {'fields': _name}}

_boolean = {'type': 'string', 'pattern': _BOOLEAN}

CREATE = {'type': 'object', 'additionalProperties': False,
          'properties': {'dry_run': _boolean, 'adopt': _boolean}}

CAPACITY = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        'host': _name,
        'resource_class': _name,
        'trait': {**_trait, 'type': ['string', 'array'], 'items': _trait},
        'conductor_group': _text,
        'shard': _name,
    },
}

#: A JSON Patch. What its values may be, UPDATE says.
PATCH = {
    'type': 'array',
    'minItems': 1,
    'maxItems': MAX_OPERATIONS,
    'items': {
        'type': 'object',
        'additionalProperties': False,
        'required': ['op', 'path'],
        'properties': {
            'op': {'enum': ['add', 'replace', 'remove']},
            'path': {'enum': ['/host', '/expires_in']},
            'value': {},
        },
    },
}

UPDATE = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        'host': _name,
        'expires_in': {'type': 'integer', 'minimum': 1,
                       'maximum': request_spec.MAX_INT},
    },
}

WRITE = {'type': 'object', 'additionalProperties': False,
         'properties': {'host': _name, 'holder': _some_uuid}}

LIST_HOSTS = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        'host': _name,
        'limit': LIST['properties']['limit'],
        'marker': _name,
    },
}

#: The host in a path.
HOST = {'type': 'object', 'properties': {'host': {**_name, 'pattern': _HOST}}}

HOLD_HOST = {
    'type': 'object',
    'additionalProperties': False,
    'required': ['holder', 'ttl'],
    'properties': {
        'holder': _some_uuid,
        'ttl': {'type': 'integer', 'minimum': hosts.MIN_TTL,
                'maximum': hosts.MAX_TTL},
    },
}

GIVE_UP_HOST = {'type': 'object', 'additionalProperties': False,
                'required': ['holder'], 'properties': {'holder': _some_uuid}}

_PATTERNS = {
    _TEXT: 'text without NUL and without lone surrogates',
    _NAME: 'text without control characters',
    _HOST: 'text without control characters and without a space at its end',
    _UUID: 'a UUID such as 5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e',
    _TRAIT: 'a trait: A-Z, 0-9 and _',
    _BOOLEAN: 'true or false',
    _POSITIVE: 'a positive number',
    _DIRECTIONS: 'one of asc, desc, or several, separated by commas',
    _KEYS: f'one of {", ".join(reservations.SORT_KEYS)}, or several, '
           f'separated by commas',
    _BY: 'conductor_group, shard, or capability: and the name of one',
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


create_body = Validator(REQUEST_SPEC, 'body')
adopt_body = Validator(ADOPT, 'body')
create_group_body = Validator(CREATE_GROUP, 'body')
list_groups_query = Validator(LIST_GROUPS, 'query')
list_query = Validator(LIST, 'query')
show_query = Validator(SHOW, 'query')
show_group_query = Validator(SHOW_GROUP, 'query')
create_query = Validator(CREATE, 'query')
adopt_query = Validator({**CREATE, 'properties': {'adopt': _boolean}},
                        'query')
capacity_query = Validator(CAPACITY, 'query')
write_query = Validator(WRITE, 'query')
list_hosts_query = Validator(LIST_HOSTS, 'query')
hold_host_body = Validator(HOLD_HOST, 'body')
give_up_host_query = Validator(GIVE_UP_HOST, 'query')
no_query = Validator({'type': 'object', 'additionalProperties': False},
                     'query')
_host = Validator(HOST, 'path')
_patch = Validator(PATCH, 'body')
_update = Validator(UPDATE, 'body')


dry_run_query = Validator({**CREATE, 'properties': {'dry_run': _boolean}},
                          'query')


def uuid(text, name='instance_uuid'):
    """Return the UUID that a path names, in lower case.

    :raises: InvalidInput when it is no UUID.
    """
    if not re.match(_UUID, text):
        raise exception.InvalidInput(name, f'must be {_PATTERNS[_UUID]}')
    return text.lower()


def group(given):
    """Return policy and domain that a request gives its group.

    :param given: dict that may have ``policy`` and ``by``.
    :returns: dict of both, None and None where there is no policy.
    :raises: InvalidInput when there is one of them alone.
    """
    found = {name: given.get(name) for name in ('policy', 'by')}
    missing = [name for name, value in found.items() if value is None]
    if len(missing) == 1:
        raise exception.InvalidInput(
            missing[0], 'must be given: policy and by, both or neither')
    return found


def members(given):
    """Return the instances for which nodes are to be held at once.

    :param given: how many there are, or their UUIDs.
    :returns: list of UUIDs in lower case, or how many to make.
    :raises: InvalidInput when there are too many, or two are the same.
    """
    most = conf.CONF.reservations.max_members
    number = len(given) if isinstance(given, list) else int(given)
    if number > most:
        raise exception.InvalidInput('members', f'must be at most {most}' + (
            ' UUIDs' if isinstance(given, list) else ''))
    if not isinstance(given, list):
        return number
    found = sorted({each.lower() for each in given})
    if len(found) < number:
        raise exception.InvalidInput('members',
                                     'must be UUIDs that differ')
    return found


def host(name):
    """Return the host that a path names.

    :raises: InvalidInput when it cannot be one.
    """
    return _host({'host': name})['host']


def holder(given):
    """Return as whom a body or a query writes for a host.

    :returns: UUID in lower case, or None where it does not say.
    :raises: InvalidInput when it does not name the host.
    """
    if given.get('holder') is None:
        return None
    if given.get('host') is None:
        raise exception.InvalidInput(
            'holder', 'must come with the host that it holds')
    return given['holder'].lower()


def expires_in(body, required=False):
    """Return the lease that a request asks for, or gets by default.

    :param required: whether there must be one.
    :returns: seconds, or None for a reservation without end.
    :raises: InvalidInput when there is none, or when it exceeds
        [reservations] max_lease.
    """
    longest, seconds = conf.CONF.reservations.max_lease, body.get('expires_in')
    if seconds is None:
        seconds = min(conf.CONF.reservations.default_lease, longest) or None
        if required and seconds is None:
            raise exception.InvalidInput('expires_in',
                                         f'must be given, at most {longest}')
        return seconds
    return _lease(seconds)


def _lease(seconds):
    longest = conf.CONF.reservations.max_lease
    if seconds is None or seconds > longest:
        raise exception.InvalidInput('expires_in',
                                     f'must be at most {longest}')
    return int(seconds)


def changes(body, required=False):
    """Return what a JSON Patch makes of a reservation.

    :param body: the parsed body.
    :param required: whether there must be a lease.
    :returns: dict of ``host``, and of ``lease`` in seconds, which is None for
        no end: those of them that change.
    :raises: InvalidInput.
    """
    found = {}
    for number, each in enumerate(_patch(body)):
        name = each['path'][1:]
        if each['op'] == 'remove' and name != 'expires_in':
            raise exception.InvalidInput(f'{number}.op', 'must be replace')
        if each['op'] != 'remove' and 'value' not in each:
            raise exception.InvalidInput(f'{number}.value', 'must be given')
        found[name] = None
        if each['op'] != 'remove':
            found |= _update({name: each['value']})
    if 'expires_in' in found:
        seconds = found.pop('expires_in')
        if required or seconds is not None:
            seconds = _lease(seconds)
        found['lease'] = seconds
    return found


def fields(text):
    """Return the names of the fields that a query asks for.

    :param text: names separated by commas, or None.
    :returns: list of names, or None for all.
    :raises: InvalidInput for a field that a reservation does not have.
    """
    if text is None:
        return None
    names = [name.strip() for name in text.split(',')]
    for name in names:
        if name not in types.FIELDS:
            raise exception.InvalidInput(
                'fields', f'must be of {", ".join(types.FIELDS)}')
    return names


def order(query):
    """Take out of a query how its rows are to be sorted.

    :param query: dict, validated. A key without a direction is sorted as the
        key before.
    :returns: dict of directions by key, the key that decides first first.
    :raises: InvalidInput for a key twice, or a direction without a key.
    """
    keys = query.pop('sort_key', 'id').split(',')
    directions = query.pop('sort_dir', 'asc').split(',')
    if len(set(keys)) < len(keys):
        raise exception.InvalidInput('sort_key', 'must be keys that differ')
    if len(directions) > len(keys):
        raise exception.InvalidInput('sort_dir',
                                     'must be at most one for each sort_key')
    directions += directions[-1:] * (len(keys) - len(directions))
    return dict(zip(keys, directions, strict=True))


def parse(body):
    """Parse a JSON body.

    NaN and Infinity, which Python's parser accepts although they are not
    JSON, become a value that no schema allows, so that the schema's error
    names the field.

    :param body: bytes whose length and nesting are bounded (see ``limits``).
    :raises: InvalidInput when the body is not JSON in UTF-8.
    """
    try:
        return json.loads(body.decode('utf-8'),
                          parse_constant=lambda constant: object(),
                          # Python refuses to parse integers of more than
                          # 4,300 digits; twenty suffice to be over every
                          # maximum.
                          parse_int=lambda digits: int(digits[:20]))
    except ValueError as error:
        raise exception.InvalidInput('body', f'must be valid JSON: {error}')
