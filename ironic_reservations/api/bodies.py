# SPDX-License-Identifier: Apache-2.0
"""What the bodies of requests may contain: a JSON schema for each call."""

import json

from ironic_reservations import conf
from ironic_reservations import constants
from ironic_reservations import exception
from ironic_reservations.api import schema
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import hosts

#: The most operations of a JSON Patch.
MAX_OPERATIONS = 64

REQUEST_SPEC = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        'instance_uuid': schema.uuid_or_null,
        'host': schema.string(minLength=1),
        'memory_mb': schema.integer,
        'vcpus': schema.integer,
        'root_gb': schema.integer,
        'ephemeral_gb': schema.integer,
        'swap': schema.integer,
        'vcpu_weight': schema.integer,
        'rxtx_factor': schema.number,
        'name': schema.string(),
        'flavorid': schema.string(),
        'extra_specs': schema.strings(1024),
        'image': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'properties': {
                'id': schema.string(),
                'properties': schema.strings(1024),
                'min_ram': schema.integer,
                'min_disk': schema.integer,
            },
        },
        'resource_class': schema.string(minLength=1),
        'conductor_group': schema.string(),
        'shard': schema.string(minLength=1),
        'candidate_nodes': {
            'type': ['array', 'null'], 'minItems': 1,
            'maxItems': request_spec.MAX_CANDIDATES, 'items': schema.name,
        },
        # The maximum is [reservations] max_lease: expires_in() checks it.
        'expires_in': {**schema.integer, 'minimum': 1},
        'project_id': schema.string(minLength=1),
        'user_id': schema.string(minLength=1),
        'holder': schema.uuid_or_null,
        'ownership': {'enum': [*constants.OWNERSHIPS, None]},
        'group': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'required': ['uuid'],
            'properties': {'uuid': schema.uuid, 'policy': schema.policy,
                           'by': schema.by},
        },
        'claim': schema.uuid_or_null,
    },
}


def _without(*names):
    """The schemas of a request spec's keys, without some of them."""
    return {name: value for name, value in REQUEST_SPEC['properties'].items()
            if name not in names}


create = schema.Validator(REQUEST_SPEC, 'body')

#: The body of POST ?adopt=true: no lease, no claim.
adopt = schema.Validator({
    **REQUEST_SPEC, 'required': ['instance_uuid'],
    'properties': {**_without('expires_in', 'claim'),
                   'instance_uuid': schema.uuid}}, 'body')

#: The body of POST /groups.
create_group = schema.Validator(schema.closed({
    'uuid': schema.uuid_or_null,
    # The maximum is [reservations] max_members: checks.members() looks at
    # it. Of UUIDs no more are looked at than that may be.
    'members': {'type': ['integer', 'array'], 'minimum': 1,
                'maximum': request_spec.MAX_INT, 'minItems': 1,
                'maxItems': conf.MOST_MEMBERS, 'items': schema.uuid},
    'policy': schema.policy,
    'by': schema.by,
    'request': {**REQUEST_SPEC, 'properties': _without(
        *request_spec.ENVELOPE, 'group')},
    **{name: REQUEST_SPEC['properties'][name] for name in
       ('host', 'project_id', 'user_id', 'expires_in')},
}, required=['members', 'request']), 'body')

#: A JSON Patch. What its values may be, ``values`` says.
update = schema.Validator({
    'type': 'array',
    'minItems': 1,
    'maxItems': MAX_OPERATIONS,
    'items': schema.closed({
        'op': {'enum': ['add', 'replace', 'remove']},
        'path': {'enum': ['/host', '/expires_in']},
        'value': {},
    }, required=['op', 'path']),
}, 'body')

values = schema.Validator(schema.closed({
    'host': schema.name,
    'expires_in': {'type': 'integer', 'minimum': 1,
                   'maximum': request_spec.MAX_INT},
}), 'body')

hold_host = schema.Validator(schema.closed({
    'holder': schema.uuid,
    'ttl': {'type': 'integer', 'minimum': hosts.MIN_TTL,
            'maximum': hosts.MAX_TTL},
}, required=['holder', 'ttl']), 'body')


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
