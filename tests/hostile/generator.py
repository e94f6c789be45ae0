# SPDX-License-Identifier: Apache-2.0
"""Requests, most of them bad, and what the contract says of each.

``verdict`` is written from the documentation of the API alone, and shares
nothing with the application, so that each finds the errors of the other.
"""

import dataclasses
import json
import urllib.parse
import uuid

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
DOMAINS = ['capability:rack', 'conductor_group', 'shard', None]


@dataclasses.dataclass
class Request:
    """A request as it is sent.

    :param body: bytes, or None.
    :param value: what the body is the JSON of, if it is.
    :param broken: whether HTTP itself is broken, so that the server may say
        what it likes.
    """

    method: str
    path: str
    query: list
    headers: dict
    body: bytes | None = None
    value: object = None
    is_json: bool = False
    chunked: bool = False
    broken: bool = False

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
        if self.body is None or not self.chunked:
            return head + (self.body or b'')
        return head + b''.join(
            b'%x\r\n%s\r\n' % (len(part), part) for part in
            (self.body[:10], self.body[10:]) if part) + b'0\r\n\r\n'


# Bodies


def body(pick):
    """An object such as a POST has, with something odd in it as a rule."""
    if pick.random() < 0.2:
        # Another request of the instance that has a node.
        found = {'memory_mb': 1, 'instance_uuid': KNOWN}
        if pick.random() < 0.4:
            found |= {'host': pick.choice(['compute-1', 'compute-2']),
                      'holder': pick.choice([HOLDER, KNOWN])}
        return found
    found = {}
    for name in ('memory_mb', 'vcpus', 'root_gb', 'ephemeral_gb', 'swap',
                 'vcpu_weight', 'expires_in'):
        if pick.random() < 0.15:
            found[name] = pick.choice([1, 1, 2, None, pick.choice(SIZES)])
    for name in ('host', 'name', 'flavorid', 'conductor_group', 'shard',
                 'project_id', 'user_id'):
        if pick.random() < 0.08:
            found[name] = pick.choice(['a', 'a', pick.choice(VALUES)])
    if pick.random() < 0.6:
        found['resource_class'] = pick.choice(
            [NODE_CLASS] * 4 + [pick.choice(VALUES)])
    if pick.random() < 0.2:
        found['instance_uuid'] = pick.choice(UUIDS)
    if pick.random() < 0.1:
        found['holder'] = pick.choice([HOLDER, *UUIDS])
        found['host'] = pick.choice(['compute-1', *VALUES])
    if pick.random() < 0.1:
        found['candidate_nodes'] = pick.choice(
            [['hostile-1'], [], [''], ['a', 'a'], 'hostile-1', None,
             [pick.choice(VALUES)]])
    if pick.random() < 0.3:
        found['extra_specs'] = pick.choice(
            [specs(pick)] * 4 + [None, [], 'x', {'a': 1}])
    if pick.random() < 0.1:
        found['image'] = pick.choice(
            [{}, None, {'id': 'x'}, {'min_ram': pick.choice(SIZES)},
             {'properties': specs(pick)}, {'what': 1}, [], 'x'])
    if pick.random() < 0.1:
        found['ownership'] = pick.choice([*OWNERSHIPS, *VALUES])
    if pick.random() < 0.1:
        found['group'] = pick.choice([place(pick), *VALUES])
    if pick.random() < 0.05:
        found['claim'] = pick.choice(UUIDS)
    if pick.random() < 0.05:
        found[pick.choice(['what', '', 'Host', 'memory_mb ', 'id'])] = 1
    return found


def place(pick):
    """The group of a reservation, or the part of a new one that is alike."""
    found = {'uuid': pick.choice([KNOWN, *UUIDS])}
    if pick.random() < 0.8:
        found |= {'policy': pick.choice(POLICIES * 3 + VALUES),
                  'by': pick.choice(DOMAINS * 3 + VALUES)}
    if pick.random() < 0.1:
        del found[pick.choice(list(found))]
    if pick.random() < 0.05:
        found['what'] = 1
    return found


def group(pick):
    """Such as the POST of several has, with something odd in it at times."""
    inner = body(pick)
    if pick.random() < 0.7:
        for name in ('instance_uuid', 'host', 'holder', 'expires_in',
                     'project_id', 'user_id', 'group', 'claim'):
            inner.pop(name, None)
    return place(pick) | {
        'members': pick.choice([1, 2, 300, [KNOWN], [KNOWN, KNOWN.upper()],
                                UUIDS, *SIZES]),
        'request': pick.choice([inner] * 8 + [pick.choice(VALUES)])}


def specs(pick):
    found = {}
    for _ in range(pick.randrange(3)):
        kind = pick.randrange(5)
        if kind == 0:
            found[f'capabilities:{pick.choice("abc")}'] = pick.choice(
                list(EXPRESSIONS))
        elif kind == 1:
            found['trait:CUSTOM_A'] = pick.choice(
                ['required', 'forbidden', 'wanted', ''])
        elif kind == 2:
            found[pick.choice(CLASS_KEYS)] = pick.choice(
                ['1', '0', '2', 'x', '-1'])
        elif pick.random() < 0.2:
            found[pick.choice(list(OWN_SPECS))] = pick.choice(
                ['exact', 'required', 'hostile-1', ''])
        elif kind == 3:
            found[pick.choice(['hw:a', 'x' * 255, 'x' * 256, ''])] = 'x'
        else:
            found['hw:b'] = pick.choice(VALUES)
    return found


def valid_text(value, least=0, longest=255, controls=False):
    """Whether the contract takes a text, or null."""
    if value is None:
        return True
    return (isinstance(value, str) and least <= len(value) <= longest
            and all(0xd800 > ord(each) or ord(each) > 0xdfff
                    for each in value) and '\0' not in value
            and (controls or not any(
                ord(each) < 32 or 127 <= ord(each) < 160
                or each in '\u2028\u2029' for each in value)))


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
    sizes = [value.get(name) for name in ('vcpus', 'root_gb', 'ephemeral_gb',
                                          'swap')]
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
            and value.keys() <= {'uuid', 'policy', 'by'}
            and valid_uuid(value.get('uuid'))
            and (value.get('policy') in POLICIES[:-1]
                 and value.get('by') in DOMAINS[:-1]
                 or value.get('policy') is value.get('by') is None))


def valid_body(value, adopt=False, dry_run=False):
    """Whether the contract takes a body."""
    if not isinstance(value, dict):
        return False
    texts = {'host': 1, 'name': 0, 'flavorid': 0, 'conductor_group': 0,
             'shard': 1, 'project_id': 1, 'user_id': 1, 'resource_class': 1}
    sizes = {'memory_mb': 0, 'vcpus': 0, 'root_gb': 0, 'ephemeral_gb': 0,
             'swap': 0, 'vcpu_weight': 0, 'expires_in': 1}
    for key, each in value.items():
        if key == 'extra_specs' and adopt:
            good = valid_specs(each)
        elif key in texts:
            good = valid_text(each, texts[key])
        elif key in sizes:
            good = valid_size(each, sizes[key]) and not (
                key == 'expires_in' and (each or 0) > 2592000)
        elif key == 'holder':
            good = each is None or (
                value.get('host') is not None and valid_uuid(each))
        elif key in ('instance_uuid', 'claim'):
            good = each is None or valid_uuid(each)
        elif key == 'ownership':
            good = each in ('any', None) or (
                each in OWNERSHIPS and value.get('project_id') is not None)
        elif key == 'group':
            good = each is None or valid_place(each)
        elif key == 'candidate_nodes':
            good = each is None or (
                isinstance(each, list) and each != [] and all(
                    one is not None and valid_text(one, 1) for one in each)
                and any(one.strip() for one in each))
        elif key == 'extra_specs':
            good = valid_specs(each) and valid_flavor(each)
        elif key == 'image':
            good = each is None or (
                isinstance(each, dict)
                and each.keys() <= {'id', 'min_ram', 'properties'}
                and valid_size(each.get('min_ram'))
                and valid_specs(each.get('properties')) and all(
                    text in ('required', 'forbidden', None)
                    for key, text in (each.get('properties') or {}).items()
                    if key.startswith('trait:')))
        else:
            good = False
        if not good:
            return False
    if adopt:
        return (value.get('instance_uuid') is not None
                and not {'expires_in', 'claim'} & value.keys())
    if value.get('claim') is not None and (
            dry_run or value.get('group') is not None):
        return False
    return _one_class(value) and (
        value.get('claim') is not None or constrains(value))


def _one_class(value):
    """A node has one class, however often it is asked for."""
    named = value.get('resource_class')
    in_flavor = amounts(value.get('extra_specs')).get('CUSTOM_TEST_HOSTILE')
    return named is None or not in_flavor or named == NODE_CLASS


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
    [('adopt', 'true')], [('holder', HOLDER)], [('holder', 'x')],
    [('holder', KNOWN)], [('host', 'compute-1'), ('holder', HOLDER)]]
METHODS = (['POST'] * 10 + ['GET'] * 6 + ['DELETE'] * 3 + ['PATCH'] * 3
           + ['PUT'] * 3 + ['HEAD', 'OPTIONS', 'TRACE', 'FOO', 'post'])


def request(pick):
    """One request."""
    made = Request(pick.choice(METHODS), pick.choice(PATHS),
                   pick.choice(QUERIES), {'Host': 'x'})
    version = pick.choice(VERSIONS)
    if version is not None:
        made.headers['X-OpenStack-Ironic-API-Version'] = version
    for name, value in (
            ('X-HTTP-Method-Override', 'DELETE'), ('Accept', 'text/html'),
            ('Cache-Control', 'no-cache'), ('Origin', 'http://evil.test'),
            ('X-Forwarded-For', 'a\tb'), ('X-Auth-Token', 'nonsense'),
            ('X-Roles', 'admin'), ('OpenStack-System-Scope', 'all'),
            ('Accept-Encoding', 'gzip'), ('If-None-Match', '*'),
            ('Range', 'bytes=0-1'), ('X-Long', 'x' * 4000),
            ('OpenStack-API-Version', 'baremetal 1.58')):
        if pick.random() < 0.04:
            made.headers[name] = value
    if made.method in ('POST', 'PUT', 'PATCH') or pick.random() < 0.1:
        _add_body(pick, made)
    return made


def patch(pick):
    """Operations such as a PATCH has, with something odd in them."""
    return [{
        'op': pick.choice(['replace'] * 4 + ['add', 'remove', 'test', None]),
        'path': pick.choice(['/host', '/expires_in'] * 4 + VALUES),
        'value': pick.choice(['compute-1', 60] * 2
                             + [pick.choice(VALUES), pick.choice(SIZES)])}
        for _ in range(pick.choice([1, 1, 1, 0, 2, 500]))]


def lease(pick):
    """Such as the PUT of a host has, with something odd in it at times."""
    found = {'holder': pick.choice([HOLDER] * 6 + UUIDS),
             'ttl': pick.choice([10, 30, 600] * 4 + SIZES)}
    if pick.random() < 0.1:
        found[pick.choice(['host', '', 'what'])] = 'x'
    return found


def _add_body(pick, made):
    made.headers['Content-Type'] = pick.choice(CONTENT_TYPES)
    posted = group if '/groups' in made.path else body
    made.value = {'PATCH': patch, 'PUT': lease}.get(made.method, posted)(pick)
    made.is_json = True
    made.body = json.dumps(made.value).encode()
    kind = pick.random()
    if kind < 0.15:
        made.is_json = False
        made.body = pick.choice([
            b'', b'{', b'[]', b'null', b'"x"', b'1', b'[' * 30 + b']' * 30,
            b'[' * 60000, b'{"a":' * 5000, b'\xff\xfe', b'\x00',
            b'{"memory_mb": 1' + b'0' * 5000 + b'}', b'{}' + b' ' * 70000,
            made.body[:-1], made.body + b'}', made.body + made.body,
            made.body.decode().encode('utf-16'), b'"' * 60000])
    made.chunked = pick.random() < 0.15
    if made.chunked:
        made.headers['Transfer-Encoding'] = 'chunked'
        return
    length = len(made.body)
    if pick.random() < 0.02:
        made.broken = True
        length = pick.choice(['x', -1, '1, 2', 10 ** 30, ''])
    made.headers['Content-Length'] = length


# What the contract says


def is_ours(made):
    """Whether we answer it; a whole URL Ironic's server refuses by itself."""
    path = urllib.parse.unquote(made.path)
    return path == OURS or path.startswith(f'{OURS}/')


def verdict(made):
    """Whether a request must be refused (True), must not (False), or either.

    Only what is a POST of the collection is judged: the others are answered
    by what there is.
    """
    if made.method != 'POST' or made.path not in (OURS, f'{OURS}/'):
        return None
    if 'OpenStack-API-Version' in made.headers:
        # It goes before the other one.
        return None
    version = made.headers.get('X-OpenStack-Ironic-API-Version')
    if version not in (None, 'latest', '1.1', '1.50'):
        return True
    adopt = made.query == [('adopt', 'true')]
    if not adopt and made.query not in ([], [('dry_run', 'true')]):
        return True
    content_type = made.headers['Content-Type'].partition(';')[0]
    if content_type.lower() != 'application/json' or not made.is_json:
        return True
    if adopt:
        # There may be no node that carries it.
        return not valid_body(made.value, adopt=True) or None
    refused = not valid_body(made.value, dry_run=bool(made.query))
    # There may be nothing of that name to claim.
    return refused or (None if made.value.get('claim') else False)
