# SPDX-License-Identifier: Apache-2.0
"""Requests that are refused, and the errors that they cause."""

import contextlib
import json
import typing

from tests.common import request_keys

OURS = '/v1/reservations'
# A request that is not refused would hold a free node of this class.
CLASS = 'test-input'
HELD = '11111111-2222-4333-8444-555555555555'
HOST = f'{OURS}/hosts/compute-1'
ITEM = f'{OURS}/{HELD}'
UNKNOWN = '99999999-2222-4333-8444-555555555555'
#: A marker of reservations in the default order.
MARKER = 'WzEsIjg3MTZkN2RmNWQzZDBiNDgiLDFd'
LETTERS = 'aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee'
MAX_INT = 2 ** 31 - 1
LIMIT = 64 * 1024
NUL, SURROGATE = 'a\x00b', 'a\ud800b'
BLANK = ' \u3000'


class Row(typing.NamedTuple):
    id: str
    method: str
    path: str
    headers: dict
    body: typing.Any
    status: int | tuple
    field: str | None


def post(id, body, field, status=400, headers=None, path=OURS):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return Row(id, 'POST', path,
               {'Content-Type': 'application/json', **(headers or {})},
               body, status, field)


def put(id, body, field, status=400, headers=None, path=HOST):
    return post(id, body, field, status, headers, path)._replace(method='PUT')


def patch(id, body, field, status=400, headers=None, path=ITEM):
    return post(id, body, field, status, headers, path)._replace(
        method='PATCH')


def body_with(**more):
    return {'resource_class': CLASS, **more}


def literal(key, text):
    """Return a body with a value that json.dumps would not write."""
    return f'{{"resource_class": "{CLASS}", "{key}": {text}}}'.encode()


def specs(**more):
    return body_with(extra_specs=more)


def spec(key, value):
    return body_with(extra_specs={key: value})


def properties(key, value):
    return body_with(image={'properties': {key: value}})


def field_value(field, value):
    """Return a body in which a dotted field has a value."""
    first, _, rest = field.partition('.')
    return body_with(**{first: {rest: value} if rest else value})


def literal_group(members):
    """Return a group with members that json.dumps would not write."""
    return (f'{{"request": {{"resource_class": "{CLASS}"}}, '
            f'"members": {members}}}').encode()


def nest(depth, opening='[', closing=']'):
    return (opening * depth + closing * depth).encode()


BODIES = [
    post('empty', b'', 'body'),
    post('blank', b' \n', 'body'),
    post('null', None, 'body'),
    post('true', True, 'body'),
    post('number', 1, 'body'),
    post('fraction', 1.5, 'body'),
    post('text', 'x', 'body'),
    post('list', [], 'body'),
    post('list-of-objects', [body_with()], 'body'),
    post('nan-alone', b'NaN', 'body'),
    post('unfinished', b'{"resource_class": "' + CLASS.encode(), 'body'),
    post('brace', b'{', 'body'),
    post('more-behind', json.dumps(body_with()).encode() + b'{}', 'body'),
    post('single-quotes', str(body_with()).encode(), 'body'),
    post('comma', b'{"resource_class": "' + CLASS.encode() + b'",}', 'body'),
    post('control-character', literal('name', '"\n"'), 'body'),
    post('bad-escape', literal('name', '"\\x41"'), 'body'),
    post('leading-zero', literal('vcpus', '01'), 'body'),
    post('form', b'resource_class=' + CLASS.encode(), 'body'),
]

NOTHING_WANTED = [
    post(f'nothing-wanted-{id}', body, 'constrain') for id, body in {
        'empty': {},
        'nulls': {'memory_mb': None, 'resource_class': None,
                  'candidate_nodes': None, 'extra_specs': None},
        'empty-specs': {'extra_specs': {}},
        'null-specs': {'extra_specs': {'a': None}},
        'others': request_keys.values(constrains=False),
        'sizes-of-0': dict.fromkeys(request_keys.SIZES, 0),
        'overridden': {'memory_mb': 1, 'vcpus': 2, 'root_gb': 3,
                       'extra_specs': {'resources:MEMORY_MB': '0',
                                       'resources:VCPU': '0',
                                       'resources1:DISK_GB': '0'}},
        'classes-of-0': {'extra_specs': {'resources:CUSTOM_A': '0',
                                         'resources:VGPU': '0',
                                         'resources:GOLD': '0'}},
        'extra-spec': {'extra_specs': {'hw:cpu_policy': 'dedicated'}},
        'match': {'extra_specs': {'reservations:match': 'exact'}},
        'no-capability': {'extra_specs': {'capabilities': ' ,'}},
        'ownership': {'ownership': 'any'},
        'member': {'group': {'uuid': UNKNOWN, 'policy': 'pack',
                             'by': 'shard'}},
        'property': {'image': {'properties': {'hw_disk_bus': 'scsi'}}},
        'image': {'image': {'id': 'x', 'min_ram': 1}},
        'instance': {'instance_uuid': UNKNOWN},
    }.items()]

UNKNOWN_KEYS = [
    post('unknown-key', body_with(foo=1), 'foo'),
    post('unknown-key-null', body_with(foo=None), 'foo'),
    post('unknown-key-case', body_with(Memory_MB=1), 'Memory_MB'),
    post('unknown-key-space', body_with(**{'host ': 'h'}), 'host '),
    post('unknown-key-empty', body_with(**{'': 1}), ''),
    post('unknown-key-nul', body_with(**{NUL: 1}), 'a'),
    post('unknown-key-surrogate', body_with(**{SURROGATE: 1}), 'a'),
    post('unknown-key-long', body_with(**{'k' * 10000: 1}), 'kkk'),
    post('unknown-key-prototype', body_with(__class__='x'), '__class__'),
    post('unknown-key-nova', {'nova_object.data': body_with()},
         'nova_object.data'),
    post('unknown-image-key', body_with(image={'name': 'x'}), 'image.name'),
    post('unknown-image-key-nul', body_with(image={NUL: 1}), 'image.a'),
    post('state-key', body_with(state='active'), 'state'),
    post('node-key', body_with(node_uuid=UNKNOWN), 'node_uuid'),
]

LEASES = [
    post(f'expires_in-{id}', literal('expires_in', text), 'expires_in')
    for id, text in {
        'zero': '0', 'false': 'false', 'over-max_lease': '2592001',
        '5000-digits': '9' * 5000,
    }.items()
]

DRY_RUN = [
    post('dry-run-unknown-key', body_with(foo=1), 'foo',
         path=f'{OURS}?dry_run=true'),
    post('dry-run-nothing-wanted', {}, 'constrain',
         path=f'{OURS}?dry_run=true'),
    post('dry-run-lease', body_with(expires_in=0), 'expires_in',
         path=f'{OURS}?dry_run=true'),
    post('dry-run-over-max_lease', body_with(expires_in=2592001), 'expires_in',
         path=f'{OURS}?dry_run=true'),
    post('dry-run-size', body_with(memory_mb='1'), 'memory_mb',
         path=f'{OURS}?dry_run=true'),
    post('dry-run-trait', spec('trait:A', 'x'), 'extra_specs.trait:A',
         path=f'{OURS}?dry_run=true'),
]

CAPACITY = [
    Row(f'capacity-{query}', 'GET', f'{OURS}/capacity?{query}', {}, None,
        400, field)
    for query, field in (
        ('foo=1', 'foo'), ('limit=0', 'limit'), ('limit=1&limit=2', 'limit'),
        ('marker=a', 'marker'), (f'marker={UNKNOWN}', 'marker'),
        ('fields=total', 'fields'),
        ('project_id=p', 'project_id'), ('Host=a', 'Host'), ('host=', 'host'),
        ('host=%20', 'host'),
        ('host=%00', 'host'), ('host=' + 'x' * 256, 'host'),
        ('host=a&host=b', 'host'), ('host=a&host=a', 'host'),
        ('by=', 'by'), ('by=total', 'by'), ('by=capability:', 'by'),
        ('by=shard,owner', 'by'), ('trait=', 'trait'),
        ('trait=%00', 'trait'), ('trait=CUSTOM_A&trait=', 'trait'),
        ('trait=not%20a%20trait', 'trait'), ('trait=%ED%A0%80', 'URL'),
        ('resource_class=', 'resource_class'),
        ('resource_class=a&resource_class=b', 'resource_class'),
        ('shard=a&shard=b', 'shard'),
        ('shard=' + 'x' * 256, 'shard'),
        ('conductor_group=%00', 'conductor_group'),
        ('conductor_group=a&conductor_group=', 'conductor_group'),
        ('conductor_group=' + 'x' * 256, 'conductor_group'), ('%ff', 'URL'),
        ('host=%ff', 'URL'))
] + [
    Row(f'capacity-below-{name}', 'GET', f'{OURS}/capacity/{name}', {}, None,
        (400, 404), None) for name in ('x', 'index', 'get', HELD)
]

INTEGERS = [
    post(f'{field}-{id}', field_value(field, value), field)
    for field in (*request_keys.NUMBERS, 'image.min_ram', 'image.min_disk')
    for id, value in {
        'true': True, 'text': '3', 'fraction': 1.5, 'negative': -1,
        'too-big': MAX_INT + 1, 'far-too-big': 10 ** 30,
        'nan': float('nan'), 'infinity': float('inf'),
        'minus-infinity': float('-inf'), 'list': [1], 'object': {},
        'empty': '',
    }.items()
] + [
    post(f'memory-{id}', literal('memory_mb', text), 'memory_mb')
    for id, text in {
        '5000-digits': '9' * 5000, 'minus-5000-digits': '-' + '9' * 5000,
        'half-a-body-of-digits': '1' * 30000, '1e400': '1e400',
        'minus-1e400': '-1e400', '1e10': '1e10', 'huge-exponent':
        '1e999999999999', '5000-decimals': '1.' + '5' * 5000,
    }.items()
] + [
    post('min_ram-5000-digits',
         literal('image', '{"min_ram": %s}' % ('9' * 5000)),
         'image.min_ram'),
    post('unknown-5000-digits', literal('foo', '9' * 5000), 'foo'),
    post('bare-5000-digits', b'9' * 5000, 'body'),
] + [
    post(f'rxtx_factor-{id}', literal('rxtx_factor', text), 'rxtx_factor')
    for id, text in {
        'true': 'true', 'text': '"1.0"', 'negative': '-0.5',
        'too-big': '2147483648', 'nan': 'NaN', 'infinity': 'Infinity',
        '1e400': '1e400', 'list': '[]', '5000-digits': '9' * 5000,
    }.items()
]

STRINGS = [
    post(f'{field}-{id}', field_value(field, value), field)
    for field in (*request_keys.TEXTS, 'image.id')
    for id, value in {
        'too-long': 'x' * 256, 'nul': NUL, 'surrogate': SURROGATE,
        'low-surrogate': '\udc00', 'number': 3, 'true': True,
        'list': ['x'], 'object': {'x': 'y'},
    }.items()
] + [
    post(f'{field}-blank', body_with(**{field: BLANK}), field)
    for field in request_keys.IDENTS
] + [
    post(f'{where}-{id}', field_value(where, {'a': value}), f'{where}.a')
    for where in ('extra_specs', 'image.properties')
    for id, value in {
        'too-long': 'x' * 1025, 'nul': NUL, 'surrogate': SURROGATE,
        'number': 1, 'true': True, 'list': ['x'], 'object': {},
    }.items()
] + [
    post(f'{where}-key-{id}', field_value(where, {key: 'x'}), where)
    for where in ('extra_specs', 'image.properties')
    for id, key in {
        'too-long': 'k' * 256, 'nul': NUL, 'surrogate': SURROGATE,
    }.items()
] + [
    post(f'{field}-is-{id}', field_value(field, value), field)
    for field in ('extra_specs', 'image', 'image.properties')
    for id, value in {'list': [], 'text': 'x', 'number': 1,
                      'true': True}.items()
]

NO_UUIDS = {
    'word': 'x', 'empty': '', 'number': 3, 'true': True, 'list': [HELD],
    'undashed': HELD.replace('-', ''), 'braces': f'{{{HELD}}}',
    'urn': f'urn:uuid:{HELD}', 'newline': HELD + '\n', 'space': HELD + ' ',
    'dashes-elsewhere': HELD.replace('-', '')[:31] + '-----',
    'not-hex': HELD[:-1] + 'g', 'nul': HELD[:-1] + '\x00',
    'surrogate': HELD[:-1] + '\ud800', 'digits-of-others':
    HELD[:-1] + '\u0663', 'long': HELD + '0',
}

UUIDS = [
    post(f'{field}-{id}', body_with(host='h', **{field: value}), field)
    for field in ('instance_uuid', 'holder') for id, value in NO_UUIDS.items()
]

LEASE = {'holder': UNKNOWN, 'ttl': 30}

HOSTS = [
    put(f'hosts-holder-{id}', {**LEASE, 'holder': value}, 'holder')
    for id, value in {**NO_UUIDS, 'null': None}.items()
] + [
    put(f'hosts-ttl-{text}'[:60], f'{{"holder": "{UNKNOWN}", "ttl": {text}}}'
        .encode(), 'ttl') for text in (
            '9', '601', '0', '-30', 'true', 'null', '"30"', '30.5', 'NaN',
            'Infinity', '1e400', '[30]', '{}', '3' * 5000)
] + [
    put(f'hosts-body-{id}', body, field) for id, body, field in (
        ('empty', b'', 'body'), ('list', [], 'body'), ('null', None, 'body'),
        ('nothing', {}, 'holder'), ('no-ttl', {'holder': UNKNOWN}, 'ttl'),
        ('no-holder', {'ttl': 30}, 'holder'),
        ('unknown', {**LEASE, 'host': 'compute-1'}, 'host'),
        ('deep', b'[' * 50000, 'nested'), ('utf-16', '{}'.encode('utf-16'),
                                           'body'))
] + [
    put('hosts-too-long', json.dumps(LEASE).encode().ljust(LIMIT + 1), 'body',
        413),
    put('hosts-type', LEASE, 'application/json', 415,
        {'Content-Type': 'text/plain'}),
    put('hosts-query', LEASE, 'ttl', path=f'{HOST}?ttl=30'),
] + [
    put(f'hosts-path-{name}'[:60], LEASE, field, path=f'{OURS}/hosts/{name}')
    for name, field in (
        ('x' * 256, 'host'), ('%E6%BC%A2' * 256, 'host'), ('/', 'host'),
        ('a%00b', 'host'), ('a%0ab', 'host'), ('a%1b[0m', 'host'),
        ('a%20', 'host'), ('%20', 'host'), ('a%C2%85b', 'host'),
        ('a%E2%80%A8b', 'host'), ('%ff', 'URL'), ('%ED%A0%80', 'URL'))
] + [
    put(f'hosts-path-{id}', LEASE, None, 404, path=path) for id, path in (
        ('below', f'{HOST}/more'), ('slash', f'{OURS}/hosts/a%2fb'),
        ('slashes', f'{HOST}//'))
] + [
    Row(f'hosts-list-{query}'[:60], 'GET', f'{OURS}/hosts?{query}', {}, None,
        400, field) for query, field in (
            ('foo=1', 'foo'), ('host=', 'host'), ('host=%00', 'host'),
            ('host=a&host=b', 'host'), ('limit=0', 'limit'),
            ('limit=x', 'limit'), ('limit=1&limit=1', 'limit'),
            ('marker=', 'marker'), ('marker=%0a', 'marker'),
            ('marker=' + 'x' * 256, 'marker'), ('state=reserved', 'state'),
            ('sort_key=host', 'sort_key'), ('%ff', 'URL'))
] + [
    Row(f'hosts-delete-{query}'[:60], 'DELETE', f'{HOST}?{query}', {}, None,
        400, field) for query, field in (
            ('holder', 'holder'), ('holder=x', 'holder'),
            (f'holder={UNKNOWN}&holder={UNKNOWN}', 'holder'),
            (f'holder={UNKNOWN}%0a', 'holder'),
            (f'Holder={UNKNOWN}', 'Holder'),
            (f'holder={UNKNOWN}&host=h', 'host'))
] + [
    Row('hosts-delete-unknown', 'DELETE', f'{HOST}?holder={UNKNOWN}', {}, None,
        404, 'compute-1'),
    Row('hosts-forget-unknown', 'DELETE', HOST, {}, None, 404, 'compute-1'),
    Row('hosts-get-one', 'GET', HOST, {}, None, 405, None),
]

RACK = 'capability:rack'
LEVEL = {'by': RACK, 'policy': 'pack', 'segment': 2}
POD = {'by': 'capability:pod', 'policy': 'pack'}


def group(**more):
    return {'members': 1, 'request': body_with(), **more}


def group_row(id, body, field, **more):
    return post(f'group-{id}', body, field, path=f'{OURS}/groups', **more)


GROUPS = [
    group_row(f'members-{id}', literal_group(text), 'members')
    for id, text in {
        'null': 'null', 'zero': '0', 'negative': '-1', 'true': 'true',
        'text': '"8"', 'fraction': '1.5', 'nan': 'NaN', '1e400': '1e400',
        'none': '[]', 'over-max_members': '257', 'too-big': '2147483648',
        '5000-digits': '9' * 5000, 'object': '{}', 'of-numbers': '[1]',
        'of-null': '[null]', 'twice': f'["{UNKNOWN}", "{UNKNOWN}"]',
        'twice-in-case': json.dumps([LETTERS, LETTERS.upper()]),
        'of-text': '["x"]'}.items()
] + [
    group_row(f'uuid-{id}', group(uuid=value), 'uuid')
    for id, value in NO_UUIDS.items()
] + [
    group_row(f'inside-{key}', group(request=body_with(**{key: value})),
              f'request.{key}')
    for key, value in {
        'group': {'uuid': UNKNOWN}, 'claim': UNKNOWN, 'instance_uuid':
        UNKNOWN, 'holder': UNKNOWN, 'foo': 1, 'memory_mb': -1,
        **request_keys.values(is_in_spec=False)}.items()
] + [
    group_row(id, body, field) for id, body, field in (
        ('empty', b'', 'body'), ('list', [], 'body'), ('nothing', {},
                                                       'members'),
        ('no-request', {'members': 1}, 'request'),
        ('null-request', group(request=None), 'request'),
        ('nothing-wanted', group(request={}), 'constrain'),
        ('sizes-of-0', group(request={'vcpus': 0}), 'request: must constrain'),
        ('unknown-spec', group(request=spec('reservations:x', 'y')),
         'request.extra_specs.reservations:x'),
        ('unknown', group(foo=1), 'foo'),
        ('outside', group(memory_mb=1), 'memory_mb'),
        ('lease', group(expires_in=2592001), 'expires_in'),
        ('host-nul', group(host=NUL), 'host'),
        ('description', group(description='x' * 256), 'description'),
        ('ownership', group(request=body_with(ownership='project')),
         'request.ownership'),
        ('amount', group(request=spec('resources:CUSTOM_A', '2')),
         'request.extra_specs'),
        ('deep', b'[' * 50000, 'nested'))
] + [
    group_row(f'levels-{id}', group(members=2, levels=levels), field)
    for id, levels, field in (
        ('none', [], 'levels'), ('three', [LEVEL] * 3, 'levels'),
        ('object', LEVEL, 'levels'), ('text', 'pack', 'levels'),
        ('of-null', [None], 'levels.0'), ('of-text', ['pack'], 'levels.0'),
        ('empty', [{}], 'levels.0.'), ('no-by', [{'policy': 'pack'}],
                                       'levels.0.by'),
        ('no-policy', [{'by': RACK}], 'levels.0.policy'),
        ('null-policy', [{**LEVEL, 'policy': None}], 'levels.0.policy'),
        ('null-by', [{**LEVEL, 'by': None}], 'levels.0.by'),
        ('by', [{**LEVEL, 'by': 'trait:nvme'}], 'levels.0.by'),
        ('unknown', [{**LEVEL, 'size': 2}], 'levels.0.size'),
        ('two-without-segment', [POD, LEVEL | {'segment': None}],
         'levels.1.segment'),
        ('outer-segment', [LEVEL, LEVEL], 'levels.0.segment'),
        ('spread-segment', [{**LEVEL, 'policy': 'spread'}],
         'levels.0.policy'),
        ('same', [{**POD, 'by': RACK}, LEVEL], 'levels.1.by'),
        ('divides', [{**LEVEL, 'segment': 3}], 'levels.0.segment'),
        *((f'segment-{id}', [{**LEVEL, 'segment': value}],
           'levels.0.segment') for id, value in (
               ('zero', 0), ('negative', -1), ('fraction', 1.5),
               ('true', True), ('text', '2'), ('too-big', MAX_INT + 1))))
] + [
    group_row('levels-and-policy', group(levels=[LEVEL], policy='pack',
                                         by=RACK), 'levels'),
] + [
    post(f'segment-{id}', body_with(group={'uuid': UNKNOWN, **more}),
         'group.segment') for id, more in (
        ('negative', {'segment': -1}), ('fraction', {'segment': 0.5}),
        ('true', {'segment': True}), ('text', {'segment': '0'}),
        ('too-big', {'segment': MAX_INT + 1}),
        ('and-policy', {'segment': 0, 'policy': 'pack', 'by': RACK}))
] + [
    post(f'claim-segment-{id}', body_with(claim=claim), 'claim')
    for id, claim in (
        ('none', f'{UNKNOWN}:'),
        ('negative', f'{UNKNOWN}:-1'), ('leading-zero', f'{UNKNOWN}:01'),
        ('two', f'{UNKNOWN}:0:0'), ('digits', f'{UNKNOWN}:\u0663'),
        ('newline', f'{UNKNOWN}:0\n'), ('long', f'{UNKNOWN}:' + '9' * 5000),
        ('alone', ':0'))
] + [
    row for where, inside, make in (
        ('', '', group), ('one-', 'group.', lambda **more: body_with(
            group={'uuid': UNKNOWN, **more})))
    for row in [
        post(f'group-{where}{id}', make(**more), inside + field,
             path=OURS if where else f'{OURS}/groups')
        for id, more, field in (
            ('policy-alone', {'policy': 'pack'}, 'by'),
            ('by-alone', {'by': RACK}, 'policy'),
            ('policy', {'policy': 'near', 'by': RACK}, 'policy'),
            ('policy-case', {'policy': 'Pack', 'by': RACK}, 'policy'),
            ('policy-list', {'policy': ['pack'], 'by': RACK}, 'policy'),
            *((f'by-{value}', {'policy': 'pack', 'by': value}, 'by')
              for value in ('', 'rack', 'capability', 'capability:',
                            'capability: ', 'capability:rack ',
                            'shards', 'capability:a\nb', 'capability:' +
                            'x' * 256, 3, None, ['shard'])))]
] + [
    post(f'group-one-{id}', body_with(group=value), field)
    for id, value, field in (
        ('list', [], 'group'), ('text', UNKNOWN, 'group'),
        ('empty', {}, 'uuid'), ('unknown', {'uuid': UNKNOWN, 'foo': 1},
                                'foo'),
        *((f'uuid-{id}', {'uuid': value}, 'uuid')
          for id, value in {**NO_UUIDS, 'null': None}.items()))
] + [
    post(f'claim-{id}', body_with(claim=value), 'claim')
    for id, value in NO_UUIDS.items()
] + [
    post('claim-group', body_with(claim=UNKNOWN, group={'uuid': UNKNOWN}),
         'claim'),
    post('claim-dry-run', body_with(claim=UNKNOWN), UNKNOWN, 404,
         path=f'{OURS}?dry_run=true'),
    post('claim-of-a-host-dry-run', body_with(claim=HELD), HELD, 409,
         path=f'{OURS}?dry_run=true'),
    post('claim-adopt', {'instance_uuid': UNKNOWN, 'claim': HELD}, 'claim',
         path=f'{OURS}?adopt=true'),
    post('claim-unknown', body_with(claim=UNKNOWN), UNKNOWN, 404),
    post('claim-of-a-host', body_with(claim=HELD), HELD, 409),
] + [
    post(f'avoid-{id}', body_with(avoid=value), field)
    for id, value, field in (
        ('text', UNKNOWN, 'avoid'), ('name', [UNKNOWN, 'node-1'], 'avoid.1'),
        ('number', [1], 'avoid.0'), ('null', [None], 'avoid.0'),
        ('many', [UNKNOWN] * 17, 'avoid'))
] + [
    post('avoid-adopt', {'instance_uuid': UNKNOWN, 'avoid': []}, 'avoid',
         path=f'{OURS}?adopt=true'),
] + [
    post(f'ownership-{id}', body_with(ownership=value), 'ownership')
    for id, value in (
        ('word', 'own'), ('empty', ''), ('list', ['any']), ('case', 'Any'),
        ('true', True), ('no-project', 'project'),
        ('or-none-no-project', 'project_or_none'))
] + [
    group_row('too-long', json.dumps(group()).encode().ljust(LIMIT + 1),
              'body', status=413),
    group_row('type', group(), 'application/json', status=415,
              headers={'Content-Type': 'text/plain'}),
] + [
    Row(f'group-query-{query}'[:60], method, path + f'?{query}',
        {'Content-Type': 'application/json'},
        json.dumps(group()).encode() if method == 'POST' else None, 400,
        field)
    for method, path, query, field in (
        ('GET', f'{OURS}/groups', 'foo=1', 'foo'),
        ('GET', f'{OURS}/groups', 'limit=0', 'limit'),
        ('GET', f'{OURS}/groups', 'limit=1&limit=1', 'limit'),
        ('GET', f'{OURS}/groups', 'marker=x', 'marker'),
        ('GET', f'{OURS}/groups', f'marker={MARKER}', 'marker'),
        ('GET', f'{OURS}/groups', f'marker={UNKNOWN}', 'marker'),
        ('GET', f'{OURS}/groups', 'project_id=a', 'project_id'),
        ('GET', f'{OURS}/groups', '%ff', 'URL'),
        ('POST', f'{OURS}/groups', 'dry_run=maybe', 'dry_run'),
        ('POST', f'{OURS}/groups', 'adopt=true', 'adopt'),
        ('GET', f'{OURS}/groups/{UNKNOWN}', 'fields=uuid', 'fields'),
        ('DELETE', f'{OURS}/groups/{UNKNOWN}', 'host=h', 'host'))
] + [
    Row(f'group-path-{method}-{path}'[:60], method, f'{OURS}/groups/{path}',
        {}, None, status, field)
    for method in ('GET', 'DELETE')
    for path, status, field in (
        ('x', 400, 'uuid'), ('%20', 400, 'uuid'), (f'{UNKNOWN}%0a', 400,
                                                   'uuid'),
        ('%ff', 400, 'URL'), (UNKNOWN, 404, UNKNOWN),
        (f'{UNKNOWN}/more', 404, None))
]

#: A caller with a holder must name the host, and have its lease.
HOLDERS = [
    Row(f'holder-{method}-{query}', method, f'{ITEM}?{query}',
        {'Content-Type': 'application/json'},
        body, status, field)
    for method, body in (
        ('PATCH', b'[{"op": "remove", "path": "/expires_in"}]'),
        ('DELETE', None))
    for query, status, field in (
        (f'holder={UNKNOWN}', 400, 'holder'),
        ('host=h&holder=', 400, 'holder'),
        ('host=h&holder=x', 400, 'holder'),
        (f'host=h&holder={UNKNOWN}&holder={UNKNOWN}', 400, 'holder'),
        (f'host=h&holder={UNKNOWN}', 412, UNKNOWN))
] + [
    post(f'holder-{id}', body_with(**body), 'holder')
    for id, body in {'alone': {'holder': UNKNOWN},
                     'null-host': {'holder': UNKNOWN, 'host': None}}.items()
] + [
    post('holder-dry-run', body_with(holder=UNKNOWN), 'holder',
         path=f'{OURS}?dry_run=true'),
    post('holder-adopt', {'instance_uuid': UNKNOWN, 'holder': UNKNOWN},
         'holder', path=f'{OURS}?adopt=true'),
    post('holder-of-nothing', body_with(holder=UNKNOWN, host='h'), UNKNOWN,
         412),
]

ADOPTIONS = [
    post(f'adopt-{id}', body, field, path=f'{OURS}?{query}')
    for id, query, body, field in (
        ('nothing', 'adopt=true', {}, 'instance_uuid'),
        *((f'{field}-{value}', 'adopt=true',
           {'instance_uuid': HELD, field: value}, field)
          for field, value in (
              ('instance_uuid', None), ('instance_uuid', 'x'),
              ('expires_in', 5), ('expires_in', None), ('memory_mb', '5'),
              ('host', ''))),
        ('trait', 'adopt=true', {'instance_uuid': HELD, 'image': {
            'properties': {'trait:A': 'maybe'}}},
         'image.properties.trait:A'),
        *((query, query, {'instance_uuid': HELD}, field)
          for query, field in (
              ('adopt=true&dry_run=true', 'dry_run'),
              ('adopt=true&dry_run=false', 'dry_run'),
              ('adopt=yes', 'adopt'), ('adopt=', 'adopt'),
              ('adopt=true&adopt=true', 'adopt'))))
]


def op(kind, path, *value):
    return {'op': kind, 'path': path, **({'value': value[0]} if value else {})}


def host(name):
    return op('replace', '/host', name)


def lease(seconds):
    return op('replace', '/expires_in', seconds)


PATCHES = [
    patch(f'patch-{number}-{field}', body, field)
    for number, (body, field) in enumerate((
        ({}, 'body'), ([], 'body'), (None, 'body'), ('x', 'body'),
        ([1], '0'), ([{}], '0'), ([{'op': 'replace'}], '0'),
        ([{'path': '/host'}], '0'), ([op('test', '/host', 'x')], '0.op'),
        ([op('move', '/host', 'x')], '0.op'),
        ([op('replace', '/state', 'x')], '0.path'),
        ([op('replace', 'host', 'x')], '0.path'),
        ([op('replace', '/host/', 'x')], '0.path'),
        ([op('remove', '/host')], '0.op'),
        ([op('add', '/description')], '0.value'),
        ([op('add', '/description', None)], 'description'),
        ([op('add', '/description', 'x' * 256)], 'description'),
        ([op('add', '/description', 'a\nb')], 'description'),
        ([op('replace', '/host')], '0.value'),
        ([lease(5), op('add', '/expires_in')], '1.value'),
        ([{**host('x'), 'from': '/host'}], '0.from'),
        *(([host(name)], 'host') for name in (
            '', BLANK, None, 5, 'a\n', 'x' * 256, '\ud800')),
        *(([lease(seconds)], 'expires_in') for seconds in (
            0, -1, None, True, '60', 1.5, 2592001, 2 ** 31, float('nan')))))
] + [
    patch(f'patch-{query}', [lease(50)], field, path=f'{ITEM}?{query}')
    for query, field in (('what=1', 'what'), ('host=', 'host'),
                         ('host=a&host=b', 'host'),
                         ('dry_run=true', 'dry_run'))
] + [
    patch(f'patch-group-{id}', body, field, path=f'{OURS}/groups/{UNKNOWN}')
    for id, body, field in (
        ('empty', [], 'body'), ('host', [host('x')], '0.path'),
        ('test', [op('test', '/description', 'x')], '0.op'),
        ('value', [op('add', '/expires_in')], '0.value'),
        ('lease', [lease(2592001)], 'expires_in'),
        ('description', [op('add', '/description', 'x' * 256)],
         'description'))
] + [
    patch('patch-type', [], 'application/json', 415,
          {'Content-Type': 'application/json-patch+json'}),
]

# The node does not exist, so that a request that is not refused fails, too.
_NOTICE = {'kind': 'fault', 'nodes': ['nonsense']}
_YEAR_ZERO = '0001-01-01T00:00:00+14:00'
_BAD_TEXTS = ('2030-01-01\x0000:00:00Z', '2030-01-01\ud80000:00:00Z')
# Times from now, each with the key that is wrong.
_RELATIVE = [*(({'in': value}, 'in') for value in (
    None, -1, 1.5, '600', True, 2 ** 31)), ({}, 'in'), (
        {'in': 1, 'at': 2}, 'at')]

NOTICES = [
    post(f'notice-{number}-{field}', body, field, path=f'{OURS}/notices')
    for number, (body, field) in enumerate((
        ([], 'body'), ({}, 'kind'), (_NOTICE, 'nodes.0'),
        ({'kind': 'fault'}, 'nodes'),
        ({**_NOTICE, 'by': {'shard': 'x'}}, 'nodes'),
        *(({**_NOTICE, 'nodes': value}, 'nodes')
          for value in ([], {}, 'x', [''], [BLANK], [None], ['a\n'],
                        ['x'] * 1025)),
        *(({'kind': 'fault', 'by': value}, 'by') for value in (
            {}, [], 'shard', {'rack': 'r1'}, {'shard': ''}, {'shard': None},
            {'shard': 'a', 'conductor_group': 'b'}, {'shard': 'nonsense'})),
        *(({**_NOTICE, 'kind': value}, 'kind') for value in (
            None, '', 'FAULT', 'nonsense', 1, ['fault'])),
        *(({**_NOTICE, 'uuid': value}, 'uuid') for value in ('x', '', 1)),
        *(({**_NOTICE, 'cordon': value}, 'cordon') for value in (
            0, 1, 'true', [])),
        *(({**_NOTICE, name: value}, name)
          for name in ('starts_at', 'ends_at') for value in (
              '', 'now', 'x' * 65, 60, True, '2030-01-01', _YEAR_ZERO,
              '2030-01-01T00:00:00', '2030-13-01T00:00:00Z', 'Z',
              *_BAD_TEXTS)),
        *(({**_NOTICE, 'ends_at': value}, f'ends_at.{key}')
          for value, key in _RELATIVE),
        ({**_NOTICE, 'category': 'x' * 65}, 'category'),
        *(({**_NOTICE, name: value}, name)
          for name in ('category', 'description', 'ticket')
          for value in ('x' * 256, 'a\nb', SURROGATE, 1, [])),
        *(({**_NOTICE, name: 'x'}, name)
          for name in ('action', 'state', 'node', 'created_by'))))
] + [
    patch(f'patch-notice-{number}-{field}', body, field,
          path=f'{OURS}/notices/{UNKNOWN}')
    for number, (body, field) in enumerate((
        ([], 'body'), ([op('replace', '/kind', 'fault')], '0.path'),
        ([op('test', '/ticket', 'x')], '0.op'),
        ([op('add', '/cordon')], '0.value'),
        *(([op('remove', f'/{name}')], '0.op')
          for name in ('cordon', 'starts_at')),
        *(([op('add', '/cordon', value)], 'cordon')
          for value in (None, 1, 'true')),
        *(([op('add', f'/{name}', value)], name)
          for name in ('starts_at', 'ends_at')
          for value in (None, 60, 'tomorrow', 'Now', '2030-01-01',
                        _YEAR_ZERO, *_BAD_TEXTS)),
        *(([op('add', '/starts_at', value)], f'starts_at.{key}')
          for value, key in _RELATIVE),
        *(([op('add', f'/{name}', value)], name)
          for name in ('category', 'description', 'ticket', 'action')
          for value in (None, 1, 'x' * 256, 'a\nb'))))
] + [
    patch('patch-notice-query', [op('add', '/ticket', 'x')], 'host',
          path=f'{OURS}/notices/{UNKNOWN}?host=a'),
    patch('patch-notice-node', [op('add', '/ticket', 'x')], 'node',
          path=f'{OURS}/notices/{UNKNOWN}?node=%20'),
    patch('patch-notice-path', [op('add', '/ticket', 'x')], 'uuid',
          path=f'{OURS}/notices/x'),
    post('notice-query', _NOTICE, 'dry_run',
         path=f'{OURS}/notices?dry_run=true'),
] + [
    Row(f'notices-{query}'[:40], 'GET', f'{OURS}/notices?{query}', {}, None,
        400, query.partition('=')[0])
    for query in ('uuid=x', 'node=', 'node=%20', 'kind=x', 'kind=', 'state=x',
                  'ticket=', 'limit=0', 'limit=x', 'marker=x!',
                  f'marker={UNKNOWN}', f'marker={MARKER}', 'what=1',
                  'kind=fault&kind=fault')
]

# The class does not exist, so that a request that is not refused fails, too.
_POOL = {'project_id': 'p', 'members': 1,
         'request': {'resource_class': 'nonsense'}}
_POOL_NODES = f'{OURS}/pools/{UNKNOWN}/nodes'

POOLS = [
    post(f'pool-{number}-{field}', body, field, path=f'{OURS}/pools')
    for number, (body, field) in enumerate((
        ([], 'body'), ({}, 'members'),
        *(({name: value for name, value in _POOL.items() if name != key}, key)
          for key in _POOL),
        *(({**_POOL, 'project_id': value}, 'project_id')
          for value in (None, '', BLANK, 1, 'a\nb', 'x' * 256)),
        *(({**_POOL, 'members': value}, 'members')
          for value in (None, 0, -1, 1.5, '3', True, 257, ['x'])),
        *(({**_POOL, 'uuid': value}, 'uuid') for value in ('x', '', 1)),
        *(({**_POOL, 'expires_at': value}, 'expires_at') for value in (
            '', 'now', 'x' * 65, 60, True, '2030-01-01', _YEAR_ZERO,
            '2030-01-01T00:00:00', '2001-01-01T00:00:00Z', {'in': 0},
            *_BAD_TEXTS)),
        *(({**_POOL, 'expires_at': value}, f'expires_at.{key}')
          for value, key in _RELATIVE),
        *(({**_POOL, 'description': value}, 'description')
          for value in ('x' * 256, 'a\nb', SURROGATE, 1, [])),
        ({**_POOL, 'policy': 'pack'}, 'by'),
        ({**_POOL, 'by': 'shard'}, 'policy'),
        ({**_POOL, 'policy': 'pack', 'by': 'rack'}, 'by'),
        ({**_POOL, 'levels': []}, 'levels'),
        *(({**_POOL, name: 'x'}, name)
          for name in ('host', 'user_id', 'expires_in', 'nodes')),
        *(({**_POOL, 'request': value}, field) for value, field in (
            (None, 'request'), ({}, 'request'), ([], 'request'),
            ({'memory_mb': -1}, 'request.memory_mb'),
            ({'claim': UNKNOWN}, 'request.claim'),
            ({'group': {'uuid': UNKNOWN}}, 'request.group'),
            ({'instance_uuid': UNKNOWN}, 'request.instance_uuid')))))
] + [
    patch(f'patch-pool-{number}-{field}', body, field,
          path=f'{OURS}/pools/{UNKNOWN}')
    for number, (body, field) in enumerate((
        ([], 'body'), ([op('replace', '/project_id', 'p')], '0.path'),
        ([op('test', '/description', 'x')], '0.op'),
        ([op('add', '/expires_at')], '0.value'),
        *(([op('add', '/expires_at', value)], 'expires_at')
          for value in (None, 60, 'now', '2030-01-01', *_BAD_TEXTS)),
        *(([op('add', '/description', value)], 'description')
          for value in (None, 1, 'x' * 256, 'a\nb'))))
] + [
    post(f'pool-nodes-{number}-{field}', body, field, path=_POOL_NODES)
    for number, (body, field) in enumerate((
        ([], 'body'), ({}, 'node'), ({'node': None}, 'node'),
        ({'node': 'a', 'replaces': 'b'}, 'node'), ({'node': ''}, 'node'),
        ({'node': BLANK}, 'node'), ({'replaces': BLANK}, 'replaces'),
        ({'node': 1}, 'node'), ({'replaces': ['a']}, 'replaces'),
        ({'nodes': ['a']}, 'nodes')))
] + [
    post('pool-query', _POOL, 'force', path=f'{OURS}/pools?force=true'),
    post('pool-dry-run', _POOL, 'dry_run', path=f'{OURS}/pools?dry_run=1'),
    post('pool-nodes-query', {'node': 'a'}, 'x', path=f'{_POOL_NODES}?x=1'),
    Row('pool-show-query', 'GET', f'{OURS}/pools/{UNKNOWN}?fields=uuid', {},
        None, 400, 'fields'),
    Row('pool-path', 'GET', f'{OURS}/pools/x', {}, None, 400, 'uuid'),
] + [
    Row(f'pools-{query}'[:40], 'GET', f'{OURS}/pools?{query}', {}, None,
        400, query.partition('=')[0])
    for query in ('node=', 'node=%20', 'project_id=', 'project_id=%20',
                  'limit=0', 'limit=x', 'marker=x!',
                  f'marker={UNKNOWN}', f'marker={MARKER}', 'what=1',
                  'node=a&node=b')
]

CANDIDATES = [
    post(f'candidate_nodes-{id}', {'candidate_nodes': value},
         'candidate_nodes')
    for id, value in {
        'empty': [], 'text': 'node-1', 'object': {}, 'true': True,
        'of-null': [None], 'of-number': [3], 'of-list': [['x']],
        'of-empty': [''], 'too-long': ['x' * 256], 'nul': [NUL],
        'surrogate': [SURROGATE], 'of-blanks': ['  '],
    }.items()] + [
    post(f'candidate_nodes-in-specs-{id}',
         spec('reservations:candidate_nodes', value),
         'extra_specs.reservations:candidate_nodes')
    for id, value in {'empty': '', 'blank': ' ', 'commas': ', ,'}.items()]

#: Keys below "reservations:", and texts of the message.
OWN_SPECS = [
    post(f'own-spec-{key}', spec(f'reservations:{key}', 'node-1'), text)
    for key, text in (
        ('candidate_node', 'did you mean reservations:candidate_nodes?'),
        ('Match', 'did you mean reservations:match?'),
        ('traits:CUSTOM_X', 'did you mean reservations:trait:CUSTOM_X?'),
        ('trait', 'did you mean reservations:trait:T?'),
        ('exclude_nodes', 'not one of reservations:candidate_nodes, '
                          'reservations:candidates, reservations:match, '
                          'reservations:trait:T'),
        ('claim', 'extra_specs.reservations:claim'),
        ('', 'extra_specs.reservations:'))
] + [
    post('own-spec-of-a-dry-run', spec('reservations:foo', 'x'),
         'extra_specs.reservations:foo', path=f'{OURS}?dry_run=true'),
] + [
    post(f'own-property-{key}', properties(f'reservations:{key}', value),
         f'image.properties.reservations:{key}')
    for key, value in (('nonsense', 'x'), ('match', 'exact'), ('', ''),
                       ('trait:CUSTOM_X', 'required'),
                       ('candidate_nodes', 'node-1'))
]

#: The same key twice in one object, at any level.
KEYS_TWICE = [
    post(f'key-twice-{id}', literal(key, text), 'twice')
    for id, key, text in (
        ('at-the-top', 'name', '"a", "name": "b"'),
        ('with-equal-values', 'resource_class', f'"{CLASS}"'),
        ('by-an-escape', 'name', r'"a", "n\u0061me": "b"'),
        ('in-extra-specs', 'extra_specs', '{"a": "1", "b": "2", "a": "1"}'),
        ('in-properties', 'image',
         '{"properties": {"a": "1", "a": null}}'),
        ('in-an-unknown-key', 'x', '[[{"a": 1, "a": 2}]]'))
] + [
    post('key-twice-in-a-group',
         f'{{"members": 1, "members": 2, "request": '
         f'{{"resource_class": "{CLASS}"}}}}'.encode(), 'twice',
         path=f'{OURS}/groups'),
    post('key-twice-in-levels',
         f'{{"members": 1, "request": {{"resource_class": "{CLASS}"}}, '
         f'"levels": [{{"by": "shard", "policy": "pack", "policy": "spread"}}]'
         f'}}'.encode(), 'twice', path=f'{OURS}/groups'),
    post('key-twice-in-an-adoption',
         f'{{"instance_uuid": "{HELD}", "host": "a", "host": "b"}}'.encode(),
         'twice', path=f'{OURS}?adopt=true'),
    patch('key-twice-in-a-patch',
          b'[{"op": "add", "path": "/description", "value": "a", '
          b'"value": "b"}]', 'twice'),
    patch('key-twice-in-the-patch-of-a-group',
          b'[{"op": "add", "path": "/description", "value": "a", '
          b'"path": "/expires_in"}]', 'twice',
          path=f'{OURS}/groups/{UNKNOWN}'),
    put('key-twice-in-a-lease',
        f'{{"holder": "{UNKNOWN}", "ttl": 30, "ttl": 60}}'.encode(), 'twice'),
]

WORDS = [
    post(f'{field}-{key}-{word or "empty"}',
         field_value(field, {key: word}), f'{field}.{key}')
    for field, key, words in (
        ('extra_specs', 'trait:CUSTOM_X',
         ('', 'maybe', 'Required', 'required ', 'preferred')),
        ('extra_specs', 'trait1:CUSTOM_X', ('maybe',)),
        ('extra_specs', 'trait_RACK:CUSTOM_X', ('maybe',)),
        ('extra_specs', 'reservations:trait:CUSTOM_X', ('', 'maybe')),
        ('image.properties', 'trait:CUSTOM_X', ('', 'maybe')),
        ('extra_specs', 'reservations:candidates',
         ('', 'Ordered', 'true', 'by fit')),
        ('extra_specs', 'reservations:match',
         ('', 'almost', 'EXACT', 'at-least')),
    )
    for word in words
] + [
    post(f'trait-name-{id}', spec(f'trait:{name}', 'required'), 'trait:')
    for id, name in {'none': '', 'lower-case': 'custom_x', 'space': 'A B',
                     'not-ascii': 'CUSTOM_\u00c9'}.items()
] + [
    post(f'trait-name-of-an-image-{id}',
         properties(f'trait:{name}', 'forbidden'), f'properties.trait:{name}')
    for id, name in {'none': '', 'lower-case': 'x'}.items()
] + [
    post(f'trait-name-proposed-{name}', spec(f'trait:{name}', 'required'),
         f'did you mean {proposal}?')
    for name, proposal in (
        ('nvme', 'CUSTOM_NVME'), ('custom_gpu', 'CUSTOM_GPU'),
        ('CUSTOM_gpu', 'CUSTOM_GPU'), ('hw_cpu_x86_vmx', 'HW_CPU_X86_VMX'))
]

EXPRESSIONS = [
    post(f'expression-{text}', spec('capabilities:x', text),
         'extra_specs.capabilities:x')
    for text in ('>= x', '>=', '= x', '== ', '== 4x', '!= x', '<= a b',
                 's==', 's== a b', 's!= ', 's>=', '<in>', '<in> a b', '<or>',
                 '<or> a b', '<or> a <or>', '<all-in>', '<range-in>',
                 '<range-in> [ 1', '<range-in> [ 1 ]', '<range-in> [ 5 1 ]',
                 '<range-in> [ a b ]', '<range-in> { 1 2 }',
                 '<range-in> 1 2', '>= 1 2')
] + [
    post('expression-many-brackets',
         spec('capabilities:x', '<range-in> ' + '[' * 1000),
         'extra_specs.capabilities:x'),
    post('expression-many-operators',
         spec('capabilities:x', '<or> ' * 200),
         'extra_specs.capabilities:x'),
    post('expression-in-list', specs(capabilities='a,b:>= x'),
         'extra_specs.capabilities'),
    post('expression-cpu-arch', specs(cpu_arch='>= x'),
         'extra_specs.cpu_arch'),
    post('expression-capability-cpu-arch',
         spec('capabilities:cpu_arch', '<or>'),
         'extra_specs.capabilities:cpu_arch'),
    post('expression-image-arch', properties('hw_architecture', '<in>'),
         'image.properties.hw_architecture'),
    post('capability-without-name', specs(capabilities='a,:b'),
         'extra_specs.capabilities'),
]

RESOURCES = [
    post(f'resources-{key}-{amount or "empty"}'[:80],
         {'extra_specs': {f'{key}': amount}}, f'extra_specs.{key}')
    for key, amounts in (
        ('resources:CUSTOM_TEST_INPUT',
         ('', '2', '-1', '1.0', 'one', '1 1', '0x1', '\u00b2', '1' * 1000)),
        ('resources1:CUSTOM_TEST_INPUT', ('2', 'x')),
        ('resources_NET:CUSTOM_TEST_INPUT', ('2',)),
        ('resources:MEMORY_MB', ('', 'x', '-1', '1.5', '2147483648')),
        ('resources:VCPU', ('x',)),
        ('resources:DISK_GB', ('x',)),
        ('resources:VGPU', ('x', '-1')),
        ('resources:GOLD', ('1', 'x', '-1')),
        ('resources:custom_gold', ('1',)),
        ('resources:CUSTOM_gold', ('1',)),
        ('resources:CUSTOM_', ('1',)),
        ('resources:', ('1',)),
    )
    for amount in amounts
] + [
    post(f'closest-class-{name}', spec(f'resources:{name}', '1'),
         f'did you mean resources:{closest}?')
    for name, closest in (
        ('vgpu', 'VGPU'), ('MEMORY_MBS', 'MEMORY_MB'),
        ('BAREMETAL_GPU', 'CUSTOM_BAREMETAL_GPU'),
        ('custom_x', 'CUSTOM_X'), ('custom-gold', 'CUSTOM_GOLD'),
        ('baremetal.gold', 'CUSTOM_BAREMETAL_GOLD'))
] + [
    post('amounts-of-a-class', {'extra_specs': {
        'resources1:CUSTOM_TEST_INPUT': '1',
        'resources2:CUSTOM_TEST_INPUT': '1'}}, 'must be 0 or 1'),
    post('amounts-of-a-size', {'extra_specs': {
        'resources1:VCPU': str(MAX_INT), 'resources2:VCPU': '1'}},
         'must be at most'),
] + [
    post('two-classes', spec('resources:CUSTOM_OTHER', '1'),
         'resource_class'),
    post('two-classes-in-specs',
         {'extra_specs': {'resources:CUSTOM_A': '1',
                          'resources:CUSTOM_B': '1'}}, 'resource_class'),
    post('two-classes-in-groups',
         {'extra_specs': {'resources1:CUSTOM_A': '1',
                          'resources2:CUSTOM_B': '1'}}, 'resource_class'),
]

# Bodies that are only too deep; brackets in strings do not count.
DEPTH = [
    post('depth-21-lists', nest(21), 'nested'),
    post('depth-21-objects', nest(21, '{"a":', '}'), 'nested'),
    post('depth-20-lists', nest(20), 'object'),
    post('depth-21-inside',
         literal('foo', '[' * 20 + ']' * 20), 'nested'),
    post('depth-20-inside', literal('foo', '[' * 19 + ']' * 19), 'foo'),
    post('depth-50000', b'[' * 50000, 'nested'),
    post('depth-25000-closed', nest(25000), 'nested'),
    post('depth-objects', b'{"a":' * 13000, 'nested'),
    post('depth-mixed', b'[{"a":' * 10000, 'nested'),
    post('depth-behind-a-string',
         b'{"a": "\\\\", "b": ' + b'[' * 50000, 'nested'),
    post('depth-behind-a-quote',
         b'{"a": "\\"", "b": ' + b'[' * 50000, 'nested'),
    post('depth-closing', b']' * 50000 + b'[' * 10000, None),
    post('depth-in-text', body_with(name='[' * 300), 'name'),
    post('open-string', b'{"a": "' + b'\\"' * 30000, 'body'),
    post('open-string-backslashes', b'{"a": "' + b'\\' * 60000, 'body'),
    post('open-string-odd', b'{"a": "' + b'\\\\"' * 20000, 'body'),
    post('many-quotes', b'"' * 60000, 'body'),
    post('many-strings', b'"\\"",' * 10000, 'body'),
    post('depth-utf-16', ('[' * 20000).encode('utf-16'), None),
]

SIZE = [
    post('one-byte-too-long',
         json.dumps(body_with()).encode().ljust(LIMIT + 1), 'body', 413),
    post('text-too-long', body_with(name='x' * LIMIT), 'body', 413),
    post('brackets-too-long', b'[' * 100000, 'body', 413),
    post('too-long-and-no-json', b'x' * (LIMIT + 1), 'body', 413,
         {'Content-Type': 'text/plain'})._replace(status=(413, 415),
                                                  field=None),
]

ENCODINGS = [
    post(f'encoding-{id}', body, 'body') for id, body in {
        'utf-16': json.dumps(body_with()).encode('utf-16'),
        'utf-16-le': json.dumps(body_with()).encode('utf-16-le'),
        'utf-16-be': json.dumps(body_with()).encode('utf-16-be'),
        'utf-32': json.dumps(body_with()).encode('utf-32'),
        'utf-8-bom': json.dumps(body_with()).encode('utf-8-sig'),
        'utf-7': b'+AHs-}',
        'latin-1': literal('name', '"\u00e9"').decode().encode('latin-1'),
        'not-utf-8': literal('name', '"?"').replace(b'?', b'\xff\xfe'),
        'overlong': literal('name', '"?"').replace(b'?', b'\xc0\xaf'),
        'surrogate': literal('name', '"?"').replace(b'?', b'\xed\xa0\x80'),
        'cut': literal('name', '"?"').replace(b'?', b'\xf0\x9f\x98'),
        'raw-nul': literal('name', '"?"').replace(b'?', b'\x00'),
        'gzip': b'\x1f\x8b\x08\x00',
    }.items()
] + [
    post('encoding-utf-16-said', json.dumps(body_with()).encode('utf-16'),
         'body', headers={'Content-Type': 'application/json; charset=utf-16'})
]

TYPES = [
    post(f'type-{content_type or "none"}', body_with(), 'application/json',
         415, {'Content-Type': content_type})
    for content_type in (
        None, 'text/plain', 'text/json', 'application/xml', '*/*',
        'application/json-patch+json', 'application/x-www-form-urlencoded',
        'multipart/form-data; boundary=x', 'application/jsonp',
        'nonsense', ';', 'application/', '\xff')
]

QUERIES = [
    Row(f'query-{query}'[:60], 'GET', f'{OURS}?{query}', {}, None, 400, field)
    for field, queries in {
        'limit': ('limit', 'limit=', 'limit=0', 'limit=-1', 'limit=x',
                  'limit=1.5', 'limit=1e3', 'limit=%2B1', 'limit=1%20',
                  'limit=%D9%A3', 'limit=0x10', 'limit=99999999999999999999',
                  'limit=' + '9' * 5000, 'limit=1&limit=2',
                  'limit=1&limit=1', 'limit=true', 'limit=None'),
        'marker': ('marker', 'marker=', 'marker=x', f'marker={UNKNOWN}',
                   f'marker={HELD}%0a', f'marker={HELD}&marker={HELD}',
                   'marker=1', f'marker={MARKER}&sort_key=host',
                   f'marker={MARKER}&sort_dir=desc', f'marker={MARKER[:-1]}',
                   f'marker={MARKER}A', f'marker={MARKER}=',
                   f'marker={MARKER.swapcase()}', 'marker=' + 'A' * 8193),
        'state': ('state', 'state=', 'state=gone', 'state=available',
                  'state=RESERVED', 'state=reserved,active',
                  'state=reserved&state=active', 'state=%00'),
        'group': ('group', 'group=', 'group=x', f'group={UNKNOWN}%0a',
                  f'group={UNKNOWN}&group={UNKNOWN}'),
        'expires_before': (
            'expires_before', 'expires_before=', 'expires_before=-1',
            'expires_before=1d', 'expires_before=tomorrow',
            'expires_before=9999999999', 'expires_before=1.5',
            'expires_before=2030-13-01T00:00:00Z',
            'expires_before=2030-12-31', 'expires_before=2030-12-31T18:00',
            'expires_before=0001-01-01T00:00:00%2B23:00',
            'expires_before=%D9%A3', 'expires_before=' + '9' * 5000,
            'expires_before=1&expires_before=2'),
        'sort_key': ('sort_key=', 'sort_key=x', 'sort_key=state',
                     'sort_key=node_name', 'sort_key=request_spec',
                     'sort_key=host&sort_key=id', 'sort_key=id%20desc',
                     'sort_key=__class__', 'sort_key=id;--',
                     'sort_key=host,', 'sort_key=host,state',
                     'sort_key=host,%20id', 'sort_key=host,id,host',
                     'sort_key=hostid'),
        'sort_dir': ('sort_dir=', 'sort_dir=up', 'sort_dir=ASC',
                     'sort_dir=asc,', 'sort_dir=asc,desc',
                     'sort_key=id,host&sort_dir=asc,asc,asc',
                     'sort_dir=asc&sort_dir=asc'),
        'fields': ('fields', 'fields=', 'fields=x', 'fields=host,',
                   'fields=host,x', 'fields=__class__', 'fields=node_id',
                   'fields=host&fields=state', 'fields=' + '[' * 200,
                   'fields=%00'),
        'host': ('host', 'host=', 'host=%20', 'host=a&host=b', 'host=%00',
                 'host=' + 'x' * 256),
        'node': ('node=', 'node=%20', 'node=%00', 'node=a&node=b',
                 'node=' + 'x' * 256),
        'project_id': ('project_id=', 'project_id=%20', 'project_id=%00',
                       'project_id=' + 'x' * 256),
        'resource_class': ('resource_class=', 'resource_class=%00',
                           'resource_class=a&resource_class=b'),
        'foo': ('foo', 'foo=1', 'foo=1&foo=2', 'limit=1&foo=1'),
        'Limit': ('Limit=1',),
        'detail': ('detail=true',),
        'instance_uuid': (f'instance_uuid={HELD}',),
        'URL': ('%ff', 'host=%ff', 'host=%C0%AF', 'host=%ED%A0%80',
                'foo=%80', '%F0%9F=1'),
        None: ('=', '=1', '&=&', '[]=1', '%00=1', '%0d%0aX=1', '%s%n=1'),
    }.items()
    for query in queries
] + [
    Row(f'query-one-{query}'[:60], 'GET', f'{ITEM}?{query}', {}, None, 400,
        field)
    for query, field in (('host=h', 'host'), ('foo=1', 'foo'),
                         ('fields=', 'fields'), ('fields=x', 'fields'),
                         ('fields=host&fields=host', 'fields'),
                         ('limit=1', 'limit'), ('%ff', 'URL'))
] + [
    Row(f'query-delete-{query}'[:60], 'DELETE', f'{ITEM}?{query}', {}, None,
        400, field)
    for query, field in (('foo=1', 'foo'), ('host', 'host'),
                         ('host=', 'host'), ('host=%20', 'host'),
                         ('host=%00', 'host'),
                         ('host=h&host=h', 'host'), ('host=%ff', 'URL'),
                         ('force=true', 'force'), ('Host=h', 'Host'),
                         ('host=' + 'h' * 256, 'host'))
] + [
    post(f'query-post-{query}', body_with(), field, path=f'{OURS}?{query}')
    for query, field in (('foo=1', 'foo'), ('host=h', 'host'),
                         ('dry_run=1', 'dry_run'), ('dry_run', 'dry_run'),
                         ('dry_run=', 'dry_run'), ('dry_run=maybe', 'dry_run'),
                         ('dry_run=true&dry_run=true', 'dry_run'),
                         ('dry_run=true&foo=1', 'foo'),
                         ('%ff', 'URL'))
]

PATHS = [
    Row(f'path-{method}-{path}', method, f'{OURS}/{path}', {}, None, 400,
        'instance_uuid')
    for method in ('GET', 'DELETE')
    for path in ('x', HELD[:-1], HELD + '0', HELD.replace('-', ''),
                 f'%7B{HELD}%7D', f'{HELD}%0a', f'{HELD}%00', '%00', '%20',
                 f'{HELD}.json', '%2e%2e', '%f0%9f%98%80',
                 'node-1', 'None', '%27%20OR%201=1', 'x' * 5000)
] + [
    # Some servers unquote the slash, and some do not.
    Row('path-quoted-slash', 'GET', f'{OURS}/..%2fnodes', {}, None,
        (400, 404), None),
    Row('path-quoted-slash-delete', 'DELETE', f'{OURS}/..%2fnodes', {}, None,
        (400, 404), None),
    Row('path-not-utf-8', 'GET', f'{OURS}/%ff', {}, None, 400, 'URL'),
    Row('path-surrogate', 'GET', f'{OURS}/%ED%A0%80', {}, None, 400, 'URL'),
    Row('path-not-utf-8-delete', 'DELETE', f'{OURS}/%ff', {}, None, 400,
        'URL'),
    Row('path-unknown', 'GET', f'{OURS}/{UNKNOWN}', {}, None, 404, UNKNOWN),
    Row('path-unknown-delete', 'DELETE', f'{OURS}/{UNKNOWN}', {}, None, 404,
        UNKNOWN),
    Row('path-other-host', 'DELETE', f'{ITEM}?host=other', {}, None, 404,
        HELD),
    Row('path-below', 'GET', f'{ITEM}/more', {}, None, 404, None),
    Row('path-below-delete', 'DELETE', f'{ITEM}/more', {}, None, 404, None),
    Row('path-below-far', 'GET', f'{ITEM}' + '/x' * 500, {}, None, 404, None),
] + [
    # Names in our code are not names of reservations.
    Row(f'path-{name}', 'GET', f'{OURS}/{name}', {}, None, (400, 404), None)
    for name in ('index', 'list', 'create', 'get', 'delete', '_lookup',
                 '_default', '_route', '__class__', '__init__')
] + [
    Row(f'path-one-{name}', 'GET', f'{ITEM}/{name}', {}, None, (400, 404),
        None)
    for name in ('index', 'get', 'delete', '_visible_to', 'instance_uuid')
]

METHODS = [
    Row(f'method-{method}-{id}', method, path,
        {'Content-Type': 'application/json'}, body, 405, None)
    for id, path, methods in (
        ('all', OURS, ('PUT', 'PATCH', 'DELETE', 'TRACE', 'FOO')),
        ('one', ITEM, ('PUT', 'POST', 'FOO')),
        ('hosts', f'{OURS}/hosts',
         ('PUT', 'PATCH', 'POST', 'DELETE', 'FOO')),
        ('host', HOST, ('PATCH', 'POST', 'FOO')),
        ('history', f'{OURS}/history',
         ('PUT', 'PATCH', 'POST', 'DELETE', 'FOO')),
        ('groups', f'{OURS}/groups', ('PUT', 'PATCH', 'DELETE', 'FOO')),
        ('group', f'{OURS}/groups/{UNKNOWN}',
         ('PUT', 'POST', 'FOO')),
        ('notices', f'{OURS}/notices', ('PUT', 'PATCH', 'DELETE', 'FOO')),
        ('notice', f'{OURS}/notices/{UNKNOWN}',
         ('GET', 'PUT', 'POST', 'DELETE', 'FOO')),
        ('pools', f'{OURS}/pools', ('PUT', 'PATCH', 'DELETE', 'FOO')),
        ('pool', f'{OURS}/pools/{UNKNOWN}', ('PUT', 'POST', 'FOO')),
        ('pool-nodes', f'{OURS}/pools/{UNKNOWN}/nodes',
         ('GET', 'PUT', 'PATCH', 'DELETE', 'FOO')),
        ('pool-node', f'{OURS}/pools/{UNKNOWN}/nodes/a',
         ('GET', 'PUT', 'PATCH', 'POST', 'FOO')),
        ('capacity', f'{OURS}/capacity',
         ('PUT', 'PATCH', 'POST', 'DELETE', 'FOO')))
    for method in methods
    for body in (b'{}',)
]

VERSIONS = [
    Row(f'version-{value}'[:40], 'GET', OURS,
        {'X-OpenStack-Ironic-API-Version': value}, None, 406, None)
    for value in ('abc', '1', '1.', '.1', '1.1.1', '1.99999', '0.1', '1.0',
                  '2.1', '1.-5', '-1.1', '1.x', '1,1', 'newest',
                  '1.' + '9' * 5000, '\xff', '1.\xb2')
] + [
    Row(f'version-openstack-{value}', 'GET', OURS,
        {'X-OpenStack-Ironic-API-Version': None,
         'OpenStack-API-Version': value}, None, 406, None)
    for value in ('baremetal x', 'baremetal 1.99999', 'baremetal 1')
] + [
    Row('version-of-a-post', *post('', body_with(), None, 406, {
        'X-OpenStack-Ironic-API-Version': '1.99999'})[1:]),
    Row('version-of-a-delete', 'DELETE', ITEM,
        {'X-OpenStack-Ironic-API-Version': 'x'}, None, 406, None),
]

ROWS = (BODIES + NOTHING_WANTED + UNKNOWN_KEYS + LEASES + DRY_RUN
        + CAPACITY + INTEGERS + STRINGS + UUIDS + HOSTS + GROUPS
        + HOLDERS + ADOPTIONS + PATCHES + NOTICES + POOLS + CANDIDATES
        + OWN_SPECS + WORDS + EXPRESSIONS
        + KEYS_TWICE + RESOURCES + DEPTH + SIZE + ENCODINGS + TYPES
        + QUERIES + PATHS + METHODS + VERSIONS)
assert len({row.id for row in ROWS}) == len(ROWS)

#: The text of these errors begins with the name of the bad field.
AT_FAULT = {row.id for row in (LEASES + CAPACITY + ADOPTIONS + PATCHES
                               + NOTICES + POOLS) if row.status == 400}


@contextlib.contextmanager
def fleet(ironic):
    """Provide a free node and a held one."""
    with ironic.fleet({'resource_class': CLASS},
                      {'resource_class': CLASS}) as nodes:
        ironic.create(instance_uuid=HELD, resource_class=CLASS, host='h')
        yield nodes


def send(http, row):
    return http.request(
        row.method, row.path, data=row.body,
        headers={name: value if value is None else value.encode('latin-1')
                 for name, value in row.headers.items()})
