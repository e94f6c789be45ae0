# SPDX-License-Identifier: Apache-2.0
"""Requests, most of them bad, and what the contract says of each.

``verdict`` is written from the documentation of the API alone, and shares
nothing with the application, so that each finds the errors of the other.
"""

import dataclasses
import json
import urllib.parse
import uuid

from tests.common import request_keys

OURS = '/v1/reservations'
NODE_CLASS = 'test.hostile'

KNOWN, HOLDER = str(uuid.uuid4()), str(uuid.uuid4())
LARGEST = 2 ** 31 - 1

TEXTS = ['a', 'x' * 255, 'x' * 256, '', ' ', 'compute-1', '\u6f22',
         '\U0001f600', 'a\nb', 'a\x1b[0m', 'a\x00b', '\ud800', "' OR 1=1 --",
         '%s%n', '../../passwd', '${x}', 'NaN', '\u2028', 'x' * 5000]
SIZES = [0, 1, 1024, LARGEST, LARGEST + 1, -1, 10 ** 40, 1.0, 1.5, True, '1',
         None, float('nan'), float('inf'), [1], {}]
VALUES = [*TEXTS, None, 1, True, [], {}]
EXPRESSIONS = {'>= 2': True, '<or> a <or> b': True, '<in> a': True,
               '<all-in> a b': True, '== x': False, '>=': False,
               '<range-in> [ 1 2 ]': True, '<range-in> 1 2': False,
               's== a': True, '!= 4': True, '<or>': False, 'plain': True}
CLASS_KEYS = ['resources:CUSTOM_TEST_HOSTILE'] * 3 + [
    'resources1:CUSTOM_TEST_HOSTILE', 'resources:MEMORY_MB', 'resources:VGPU',
    'resources:GOLD', 'resources:custom_a']
OWN_SPECS = {
    'reservations:match': ['exact', 'at_least'],
    'reservations:trait:A': ['required', 'forbidden'],
    'reservations:candidate_nodes': ['exact', 'required', 'hostile-1'],
    'reservations:candidate_node': [], 'reservations:': [],
    'reservations:exclude_nodes': []}
UUIDS = [KNOWN, KNOWN.upper(), str(uuid.uuid4()), 'x', '', KNOWN[:-1],
         KNOWN.replace('-', ''), None, 5]
OWNERSHIPS = ['any', 'project', 'project_or_none', None]
POLICIES = ['pack', 'spread', 'soft-pack', 'soft-spread', None]
DOMAINS = ['capability:rack', 'conductor_group', 'shard', 'trait:CUSTOM_',
           None]
SEGMENTS = [f'{KNOWN}:0', f'{HOLDER}:12']
NO_SEGMENTS = [f'{KNOWN}:', f'{KNOWN}:-1', f'{KNOWN}:01', f'{KNOWN}:0:0',
               f'{KNOWN}:\u0663', ':0']


@dataclasses.dataclass
class Request:
    """A request as it is sent.

    :param body: bytes, or None.
    :param value: what the body is the JSON of, if it is.
    :param is_broken: whether HTTP itself is broken, so that the server may say
        what it likes.
    """

    method: str
    path: str
    query: list
    headers: dict
    body: bytes | None = None
    value: object = None
    is_json: bool = False
    is_chunked: bool = False
    is_broken: bool = False

    @property
    def target(self):
        if not self.query:
            return self.path
        return f'{self.path}?{urllib.parse.urlencode(self.query)}'

    def __bytes__(self):
        lines = [f'{self.method} {self.target} HTTP/1.1',
                 *(f'{name}: {value}' for name, value in
                   self.headers.items()), '', '']
        head = '\r\n'.join(lines).encode('utf-8', 'surrogatepass')
        if self.body is None or not self.is_chunked:
            return head + (self.body or b'')
        return head + b''.join(
            b'%x\r\n%s\r\n' % (len(part), part) for part in
            (self.body[:10], self.body[10:]) if part) + b'0\r\n\r\n'


# Bodies


def body(pick):
    """Return the object of a POST, usually with something odd in it."""
    if pick.random() < 0.2:
        # Another request of the instance that has a node.
        fields = {'memory_mb': 1, 'instance_uuid': KNOWN}
        if pick.random() < 0.4:
            fields |= {'host': pick.choice(['compute-1', 'compute-2']),
                       'holder': pick.choice([HOLDER, KNOWN])}
        return fields
    fields = {}
    for name in request_keys.NUMBERS:
        if pick.random() < 0.15:
            fields[name] = pick.choice([1, 1, 2, None, pick.choice(SIZES)])
    for name in request_keys.TEXTS:
        if name != 'resource_class' and pick.random() < 0.08:
            fields[name] = pick.choice(['a', 'a', pick.choice(VALUES)])
    if pick.random() < 0.6:
        fields['resource_class'] = pick.choice(
            [NODE_CLASS] * 4 + [pick.choice(VALUES)])
    if pick.random() < 0.2:
        fields['instance_uuid'] = pick.choice(UUIDS)
    if pick.random() < 0.1:
        fields['holder'] = pick.choice([HOLDER, *UUIDS])
        fields['host'] = pick.choice(['compute-1', *VALUES])
    if pick.random() < 0.1:
        fields['avoid'] = pick.choice(
            [[HOLDER], [KNOWN] * 16, [KNOWN] * 17, ['hostile-1'], *VALUES])
    if pick.random() < 0.1:
        fields['candidate_nodes'] = pick.choice(
            [['hostile-1'], [], [''], ['a', 'a'], 'hostile-1', None,
             [pick.choice(VALUES)]])
    if pick.random() < 0.3:
        fields['extra_specs'] = pick.choice(
            [specs(pick)] * 4 + [None, [], 'x', {'a': 1}])
    if pick.random() < 0.1:
        fields['image'] = pick.choice(
            [{}, None, {'id': 'x'}, {'min_ram': pick.choice(SIZES)},
             {'properties': specs(pick)}, {'what': 1}, [], 'x'])
    if pick.random() < 0.1:
        fields['ownership'] = pick.choice([*OWNERSHIPS, *VALUES])
    if pick.random() < 0.1:
        fields['group'] = pick.choice([place(pick), *VALUES])
    if pick.random() < 0.05:
        fields['claim'] = pick.choice(UUIDS + SEGMENTS + NO_SEGMENTS)
    if pick.random() < 0.05:
        fields[pick.choice(['what', '', 'Host', 'memory_mb ', 'id'])] = 1
    return fields


def place(pick):
    """Return the group of a reservation, or that part of a new group."""
    fields = {'uuid': pick.choice([KNOWN, *UUIDS])}
    if pick.random() < 0.8:
        fields |= {'policy': pick.choice(POLICIES * 3 + VALUES),
                   'by': pick.choice(DOMAINS * 3 + VALUES)}
    if pick.random() < 0.2:
        fields['segment'] = pick.choice(SIZES)
    if pick.random() < 0.1:
        del fields[pick.choice(list(fields))]
    if pick.random() < 0.05:
        fields['what'] = 1
    return fields


def group(pick):
    """Return the object of a POST of a group, at times with something odd."""
    inner = body(pick)
    if pick.random() < 0.7:
        for name in ('instance_uuid', 'holder', 'group', 'claim', 'avoid',
                     *request_keys.values(is_in_spec=False)):
            inner.pop(name, None)
    fields = place(pick)
    if pick.random() < 0.3:
        fields.pop('policy', None)
        fields.pop('by', None)
        fields['levels'] = pick.choice([levels(pick)] * 6 + VALUES)
    return fields | {
        'members': pick.choice([1, 2, 300, [KNOWN], [KNOWN, KNOWN.upper()],
                                UUIDS, *SIZES]),
        'request': pick.choice([inner] * 8 + [pick.choice(VALUES)])}


def notice(pick):
    """Return the object of a POST of notices of nodes that do not exist."""
    fields = {'kind': pick.choice(['fault', 'maintenance', 'retirement'] * 4
                                  + VALUES),
              'nodes': pick.choice([['nonsense']] * 6 + [TEXTS] + VALUES)}
    for name in ('uuid', 'by', 'cordon', 'starts_at', 'ends_at', 'category',
                 'description', 'ticket', 'action'):
        if pick.random() < 0.15:
            fields[name] = pick.choice([
                *VALUES, KNOWN, True, '2030-01-01T00:00:00Z',
                {'shard': 'a'}, {'capability:rack': 'r1'}])
    if pick.random() < 0.2:
        del fields['nodes']
    return fields


def pool(pick):
    """Return the object of a POST of a pool, or of its nodes."""
    if pick.random() < 0.3:
        return {pick.choice(['node', 'replaces', *TEXTS[:2]]):
                pick.choice(['nonsense'] * 3 + VALUES)}
    return {**group(pick),
            'project_id': pick.choice(['p'] * 6 + VALUES),
            'members': pick.choice([100, 200] * 4 + VALUES),
            'expires_at': pick.choice(['2030-01-01T00:00:00Z', None] * 4
                                      + VALUES)}


def levels(pick):
    """Return the levels of a group, at times with something odd."""
    return [
        {'by': pick.choice(DOMAINS[:-1] * 3 + VALUES),
         'policy': pick.choice(['pack'] * 6 + POLICIES + VALUES),
         **({'segment': pick.choice([1] * 4 + SIZES)}
            if pick.random() < 0.5 else {}),
         **({'what': 1} if pick.random() < 0.05 else {})}
        for _ in range(pick.choice([1, 2, 2, 2, 0, 3]))]


def specs(pick):
    fields = {}
    for _ in range(pick.randrange(3)):
        kind = pick.randrange(5)
        if kind == 0:
            fields[f'capabilities:{pick.choice("abc")}'] = pick.choice(
                list(EXPRESSIONS))
        elif kind == 1:
            fields['trait:CUSTOM_A'] = pick.choice(
                ['required', 'forbidden', 'wanted', ''])
        elif kind == 2:
            fields[pick.choice(CLASS_KEYS)] = pick.choice(
                ['1', '0', '2', 'x', '-1'])
        elif pick.random() < 0.2:
            fields[pick.choice(list(OWN_SPECS))] = pick.choice(
                ['exact', 'required', 'hostile-1', ''])
        elif kind == 3:
            fields[pick.choice(['hw:a', 'x' * 255, 'x' * 256, ''])] = 'x'
        else:
            fields['hw:b'] = pick.choice(VALUES)
    return fields


def valid_text(value, least=0, longest=255, controls=False):
    """Return whether the contract allows a text, or null."""
    if value is None:
        return True
    return (isinstance(value, str) and least <= len(value) <= longest
            and all(0xd800 > ord(character) or ord(character) > 0xdfff
                    for character in value) and '\0' not in value
            and (controls or not any(
                ord(character) < 32 or 127 <= ord(character) < 160
                or character in '\u2028\u2029' for character in value)))


def valid_size(value, least=0):
    if value is None:
        return True
    # 1.0 is an integer in JSON Schema, true is not.
    return (not isinstance(value, bool) and isinstance(value, int | float)
            and value == value and value not in (float('inf'),)
            and value == int(value) and least <= value <= LARGEST)


def valid_specs(value):
    if value is None:
        return True
    if not isinstance(value, dict):
        return False
    for key, text in value.items():
        if not key or not valid_text(key) or not valid_text(
                text, longest=1024, controls=True):
            return False
    return True


def valid_flavor(value):
    """What extra specs mean, beyond their form; null is absent."""
    for key, text in (value or {}).items():
        if text is None:
            continue
        if key.startswith('capabilities:') and not EXPRESSIONS[text]:
            return False
        if key.startswith('trait:') and text not in ('required', 'forbidden'):
            return False
        if key.startswith('reservations:') and text not in OWN_SPECS[key]:
            return False
    return all(
        amount is not None and (not amount or name in ('MEMORY_MB', 'VGPU')
                                or name.startswith('CUSTOM_')
                                and amount == 1)
        for name, amount in amounts(value).items())


def valid_properties(value, adopt):
    """What properties of an image mean, beyond their form."""
    return all(
        text is None or (adopt or not key.startswith('reservations:')) and (
            text in ('required', 'forbidden') or not key.startswith('trait:'))
        for key, text in (value or {}).items())


def amounts(specs):
    """The sums of resources by class; None for one that is no amount."""
    sums = {}
    for key, text in (specs or {}).items():
        if key.startswith('resources') and text is not None:
            name = key.partition(':')[2]
            sums[name] = (sums.get(name, 0) + int(text)
                          if text in ('0', '1', '2')
                          and sums.get(name, 0) is not None else None)
    return sums


def constrains(value):
    """Whether a request says anything of the node."""
    specs = {key: text for key, text in (value.get('extra_specs')
                                         or {}).items() if text is not None}
    resources = amounts(specs)
    exact = specs.get('reservations:match') == 'exact'
    sizes = [value.get(name) for name in request_keys.SIZES
             if name != 'memory_mb']
    # An override of 0 counts unless the sizes are to be equal.
    if exact or resources.get('MEMORY_MB') != 0:
        sizes.append(value.get('memory_mb'))
    properties = (value.get('image') or {}).get('properties') or {}
    return bool(
        any(sizes) or any(resources.values())
        or value.get('resource_class') is not None
        or value.get('candidate_nodes') is not None
        or any(key.startswith(('capabilities:', 'trait:',
                               'reservations:trait:',
                               'reservations:candidate_nodes'))
               for key in specs)
        or any(text is not None for key, text in properties.items()
               if key.startswith('trait:')))


def valid_uuid(value):
    return value in (HOLDER, KNOWN, KNOWN.upper(), UUIDS[2])


def valid_place(value):
    return (isinstance(value, dict)
            and value.keys() <= {'uuid', 'policy', 'by', 'segment'}
            and valid_uuid(value.get('uuid'))
            and valid_size(value.get('segment'))
            and (value.get('segment') is None
                 or value.get('policy') is value.get('by') is None)
            and (value.get('policy') in POLICIES[:-1]
                 and value.get('by') in DOMAINS[:-1]
                 or value.get('policy') is value.get('by') is None))


def valid_body(value, adopt=False, dry_run=False):
    """Return whether the contract allows a body."""
    if not isinstance(value, dict):
        return False
    for key, item in value.items():
        if key == 'extra_specs' and adopt:
            good = valid_specs(item)
        elif key in request_keys.TEXTS:
            good = valid_text(item, request_keys.KEYS[key].least) and (
                item is None or key not in request_keys.IDENTS
                or item.strip() != '')
        elif key in request_keys.NUMBERS:
            good = valid_size(item, request_keys.KEYS[key].least) and not (
                key == 'expires_in' and (item or 0) > 2592000)
        elif key == 'holder':
            good = item is None or (
                value.get('host') is not None and valid_uuid(item))
        elif key in ('instance_uuid', 'claim'):
            good = item is None or valid_uuid(item) or (
                key == 'claim' and item in SEGMENTS)
        elif key == 'avoid':
            good = item is None or isinstance(item, list) and (
                len(item) <= 16 and all(map(valid_uuid, item)))
        elif key == 'ownership':
            good = item in ('any', None) or (
                item in OWNERSHIPS and value.get('project_id') is not None)
        elif key == 'group':
            good = item is None or valid_place(item)
        elif key == 'candidate_nodes':
            good = item is None or (
                isinstance(item, list) and item != [] and all(
                    one is not None and valid_text(one, 1) and one.strip()
                    for one in item))
        elif key == 'extra_specs':
            good = valid_specs(item) and valid_flavor(item)
        elif key == 'image':
            good = item is None or (
                isinstance(item, dict)
                and item.keys() <= {'id', 'min_ram', 'properties'}
                and valid_size(item.get('min_ram'))
                and valid_specs(item.get('properties'))
                and valid_properties(item.get('properties'), adopt))
        else:
            good = False
        if not good:
            return False
    if adopt:
        return (value.get('instance_uuid') is not None
                and not {'expires_in', 'claim', 'avoid'} & value.keys())
    if value.get('claim') is not None and (
            dry_run or value.get('group') is not None):
        return False
    return _one_class(value) and (
        value.get('claim') is not None or constrains(value))


def _one_class(value):
    """Return whether a body requests one class only."""
    name = value.get('resource_class')
    in_flavor = amounts(value.get('extra_specs')).get('CUSTOM_TEST_HOSTILE')
    return name is None or not in_flavor or name == NODE_CLASS


# Requests


CONTENT_TYPES = ['application/json'] * 30 + [
    'application/json; charset=utf-8', 'text/plain', 'APPLICATION/JSON', '',
    'application/xml', 'application/json-patch+json', '\u6f22', 'a' * 3000]
VERSIONS = [None] * 30 + ['latest', '1.1', '1.50', '9.9', 'x', '1.', '-1.1',
                          '1.1.1', '1' * 500]
PATHS = [OURS] * 40 + [
    f'{OURS}/', f'{OURS}/capacity', f'{OURS}/capacity/', f'{OURS}/{KNOWN}',
    f'{OURS}/{KNOWN}/', f'{OURS}/{KNOWN.upper()}', f'{OURS}/not-a-uuid',
    f'{OURS}/{KNOWN}/x', f'{OURS}//', f'{OURS}/%2e%2e', f'{OURS}/..',
    f'{OURS}/%2F{KNOWN}', f'{OURS}/{KNOWN};a=b', f'{OURS}/{KNOWN}.json',
    f'{OURS}/%00', f'{OURS}/%0d%0aX:%20y', f'{OURS}/%ff',
    f'{OURS}/' + 'x' * 900,
    f'{OURS}/{KNOWN}%20', f'http://example.test{OURS}',
    f'http://example.test{OURS}/{KNOWN}', f'{OURS}/groups',
    *[f'{OURS}/groups'] * 6, f'{OURS}/groups/', f'{OURS}/groups/{KNOWN}',
    f'{OURS}/groups/{KNOWN}', f'{OURS}/groups/x', f'{OURS}/groups/{KNOWN}/x',
    f'{OURS}/groups/%00', f'{OURS}/groups/%ff', f'{OURS}/groups//',
    *[f'{OURS}/notices'] * 6, f'{OURS}/notices/{KNOWN}',
    f'{OURS}/notices/{KNOWN}', f'{OURS}/notices/x', f'{OURS}/notices/%00',
    *[f'{OURS}/history'] * 3, f'{OURS}/history/x',
    *[f'{OURS}/pools'] * 6, f'{OURS}/pools/{KNOWN}', f'{OURS}/pools/x',
    *[f'{OURS}/pools/{KNOWN}/nodes'] * 3, f'{OURS}/pools/{KNOWN}/nodes/a',
    f'{OURS}/pools/{KNOWN}/nodes/%00', f'{OURS}/pools/{KNOWN}/nodes/%ff',
    f'{OURS}/hosts', f'{OURS}/hosts/', f'{OURS}/hosts/compute-1',
    f'{OURS}/hosts/compute-1', f'{OURS}/hosts/compute-2.a.b/',
    f'{OURS}/hosts/a%20', f'{OURS}/hosts/a%2Fb', f'{OURS}/hosts/%00',
    f'{OURS}/hosts/%E6%BC%A2', f'{OURS}/hosts/%ff', f'{OURS}/hosts//',
    f'{OURS}/hosts/..', f'{OURS}/hosts/' + 'x' * 256]
QUERIES = [[]] * 60 + [
    [('limit', '1')], [('limit', '0')], [('limit', '-1')], [('limit', 'x')],
    [('limit', '9' * 50)], [('limit', '0' * 5000 + '1')],
    [('marker', KNOWN)], [('marker', 'x')],
    [('sort_key', 'id')], [('sort_key', 'x')], [('sort_dir', 'up')],
    [('fields', 'host')], [('fields', 'x')], [('fields', '')],
    [('state', 'reserved')], [('state', 'x')], [('host', 'a')],
    [('host', '')], [('host', 'a\n')], [('what', '1')], [('', '')],
    [('host', 'a'), ('host', 'b')], [('dry_run', 'true')],
    [('dry_run', 'maybe')], [('_method', 'DELETE')], [('trait', 'CUSTOM_A')],
    [('trait', 'x')], [('resource_class', NODE_CLASS)], [('node', '\0')],
    [('ended_after', '9')], [('ended_after', '9' * 50)],
    [('instance_uuid', KNOWN)], [('instance_uuid', 'x')],
    [('adopt', 'true')], [('holder', HOLDER)], [('holder', 'x')],
    [('holder', KNOWN)], [('host', 'compute-1'), ('holder', HOLDER)]]
METHODS = (['POST'] * 10 + ['GET'] * 6 + ['DELETE'] * 3 + ['PATCH'] * 3
           + ['PUT'] * 3 + ['HEAD', 'OPTIONS', 'TRACE', 'FOO', 'post'])


def request(pick):
    """Return a random request."""
    message = Request(pick.choice(METHODS), pick.choice(PATHS),
                      pick.choice(QUERIES), {'Host': 'x'})
    version = pick.choice(VERSIONS)
    if version is not None:
        message.headers['X-OpenStack-Ironic-API-Version'] = version
    for name, value in (
            ('X-HTTP-Method-Override', 'DELETE'), ('Accept', 'text/html'),
            ('Cache-Control', 'no-cache'), ('Origin', 'http://evil.test'),
            ('X-Forwarded-For', 'a\tb'), ('X-Auth-Token', 'nonsense'),
            ('X-Roles', 'admin'), ('OpenStack-System-Scope', 'all'),
            ('Accept-Encoding', 'gzip'), ('If-None-Match', '*'),
            ('Range', 'bytes=0-1'), ('X-Long', 'x' * 4000),
            ('OpenStack-API-Version', 'baremetal 1.58')):
        if pick.random() < 0.04:
            message.headers[name] = value
    if message.method in ('POST', 'PUT', 'PATCH') or pick.random() < 0.1:
        _add_body(pick, message)
    return message


def patch(pick):
    """Return the operations of a PATCH, with something odd in them."""
    return [
        {'op': pick.choice(['replace'] * 4 + ['add', 'remove', 'test', None]),
         'path': pick.choice(['/host', '/expires_in', '/description',
                              '/cordon', '/ends_at'] * 3 + VALUES),
         'value': pick.choice(['compute-1', 60] * 2
                              + [pick.choice(VALUES), pick.choice(SIZES)])}
        for _ in range(pick.choice([1, 1, 1, 0, 2, 500]))]


def lease(pick):
    """Return the object of a PUT of a host, at times with something odd."""
    fields = {'holder': pick.choice([HOLDER] * 6 + UUIDS),
              'ttl': pick.choice([10, 30, 600] * 4 + SIZES)}
    if pick.random() < 0.1:
        fields[pick.choice(['host', '', 'what'])] = 'x'
    return fields


def _add_body(pick, message):
    message.headers['Content-Type'] = pick.choice(CONTENT_TYPES)
    make_value = (group if '/groups' in message.path else
                  notice if '/notices' in message.path else
                  pool if '/pools' in message.path else body)
    message.value = {'PATCH': patch, 'PUT': lease}.get(
        message.method, make_value)(pick)
    message.is_json = True
    message.body = json.dumps(message.value).encode()
    kind = pick.random()
    if kind < 0.15:
        message.is_json = False
        message.body = pick.choice([
            b'', b'{', b'[]', b'null', b'"x"', b'1', b'[' * 30 + b']' * 30,
            b'[' * 60000, b'{"a":' * 5000, b'\xff\xfe', b'\x00',
            b'{"memory_mb": 1' + b'0' * 5000 + b'}', b'{}' + b' ' * 70000,
            message.body[:-1], message.body + b'}', message.body * 2,
            message.body.decode().encode('utf-16'), b'"' * 60000])
    message.is_chunked = pick.random() < 0.15
    if message.is_chunked:
        message.headers['Transfer-Encoding'] = 'chunked'
        return
    length = len(message.body)
    if pick.random() < 0.02:
        message.is_broken = True
        length = pick.choice(['x', -1, '1, 2', 10 ** 30, ''])
    message.headers['Content-Length'] = length


# What the contract says


def is_ours(message):
    """Return whether our application answers: Ironic refuses whole URLs."""
    path = urllib.parse.unquote(message.path)
    return path == OURS or path.startswith(f'{OURS}/')


def verdict(message):
    """Return whether a request must be refused; None if it may be.

    Only a POST of the collection is judged: the response to others depends on
    the state.
    """
    if message.method != 'POST' or message.path not in (OURS, f'{OURS}/'):
        return None
    if 'OpenStack-API-Version' in message.headers:
        # It takes precedence over the other header.
        return None
    version = message.headers.get('X-OpenStack-Ironic-API-Version')
    if version not in (None, 'latest', '1.1', '1.50'):
        return True
    adopt = message.query == [('adopt', 'true')]
    if not adopt and message.query not in ([], [('dry_run', 'true')]):
        return True
    content_type = message.headers['Content-Type'].partition(';')[0]
    if content_type.lower() != 'application/json' or not message.is_json:
        return True
    if adopt:
        # Perhaps no node carries the instance.
        return not valid_body(message.value, adopt=True) or None
    is_refused = not valid_body(message.value, dry_run=bool(message.query))
    # Perhaps there is nothing to claim, or no group with such a segment.
    return is_refused or (None if message.value.get('claim') or (
        message.value.get('group') or {}).get('segment') is not None
        else False)
