# SPDX-License-Identifier: Apache-2.0
"""The capacity of the fleet."""

import contextlib
import time
import uuid

import pytest

from tests.common import contract

OURS = '/v1/reservations'
CAPACITY = f'{OURS}/capacity'

KEYS = ['resource_class', 'memory_mb', 'vcpus', 'local_gb', 'cpu_arch',
        'capabilities', 'traits', 'conductor_group', 'shard', 'owner',
        'lessee', 'pool_project_id',
        'total', 'free', 'reserved', 'taken', 'out_of_service',
        'claimable']

FRESH = {'Cache-Control': 'no-cache'}

LARGE = {'properties': {'memory_mb': 131072, 'cpus': 64, 'local_gb': 2000,
                        'cpu_arch': 'x86_64',
                        'capabilities': 'boot_mode:uefi,has_gpu'},
         'traits': ['CUSTOM_NVME', 'CUSTOM_GPU']}

SMALL = {'properties': {'memory_mb': 4096, 'cpus': 4, 'local_gb': 100},
         'traits': ['CUSTOM_NVME'], 'owner': 'a-project'}
#: Two large nodes, one small node, and one without any facts.
POOL = [LARGE, LARGE, SMALL, {}]


def counts(rows, name='memory_mb'):
    """Return {value: (total, free, held)}; each value must be unique."""
    numbers = {row[name]: (row['total'], row['free'], row.get('held', 0))
               for row in rows}
    assert len(numbers) == len(rows)
    return numbers


def test_rows(ironic, pool, node_class):
    rows = ironic.capacity(resource_class=node_class)
    assert all(list(row) == KEYS for row in rows)
    common = {'resource_class': node_class, 'conductor_group': '',
              'shard': None, 'lessee': None, 'pool_project_id': None,
              'claimable': 0,
              'reserved': 0, 'taken': 0, 'out_of_service': 0}
    assert rows == [
        {**common, 'memory_mb': 0, 'vcpus': 0, 'local_gb': 0,
         'cpu_arch': None, 'capabilities': {}, 'traits': [], 'owner': None,
         'total': 1, 'free': 1},
        {**common, 'memory_mb': 4096, 'vcpus': 4, 'local_gb': 100,
         'cpu_arch': None, 'capabilities': {}, 'traits': ['CUSTOM_NVME'],
         'owner': 'a-project', 'total': 1, 'free': 1},
        {**common, 'memory_mb': 131072, 'vcpus': 64, 'local_gb': 2000,
         'cpu_arch': 'x86_64',
         'capabilities': {'boot_mode': 'uefi', 'has_gpu': 'true'},
         'traits': ['CUSTOM_GPU', 'CUSTOM_NVME'], 'owner': None,
         'total': 2, 'free': 2}]
    with_host = ironic.capacity(resource_class=node_class, host='compute-1')
    assert with_host == [{**row, 'held': 0} for row in rows]


def test_rows_are_ordered_by_class_and_numbers(ironic, node_class):
    sizes = [9000, 65536, 131072, 8000]
    with ironic.fleet(*(
            {'resource_class': f'{node_class}.{name}',
             'properties': {'memory_mb': size, 'cpus': cpus}}
            for name in 'ba' for size in sizes for cpus in (16, 9))):
        rows = [row for row in ironic.capacity()
                if row['resource_class'].startswith(f'{node_class}.')]
    assert [(row['resource_class'][-1], row['memory_mb'], row['vcpus'])
            for row in rows] == [
        (name, size, cpus) for name in 'ab' for size in sorted(sizes)
        for cpus in (9, 16)]


@pytest.mark.parametrize('method', ['POST', 'PUT', 'PATCH', 'DELETE'])
def test_other_methods(ironic, method):
    response = ironic.http.request(method, CAPACITY, json={'memory_mb': 1})
    contract.check(response, 405)
    assert response.headers['Allow'] == 'GET, HEAD'


# Free and held nodes

@pytest.mark.on('sqlite', 'server')
def test_counts_during_a_reservation(ironic, pool, node_class):
    def large(**query):
        return counts(ironic.capacity(resource_class=node_class,
                                      **query))[131072]

    hold = ironic.create(resource_class=node_class, memory_mb=8192,
                         host='compute-1')
    assert large() == (2, 1, 0)
    assert large(host='compute-1') == (2, 1, 1)
    assert large(host='compute-2') == (2, 1, 0)
    assert large(host='COMPUTE-1') == (2, 1, 0)
    ironic.set_node(hold['node_uuid'], provision_state='active')
    assert large(host='compute-1') == (2, 1, 1)
    # A tear-down releases the node before it is clean.
    ironic.set_node(hold['node_uuid'], provision_state='cleaning',
                    instance_uuid=None)
    assert large(host='compute-1') == (2, 1, 0)
    ironic.set_node(hold['node_uuid'], provision_state='available')
    assert large(host='compute-1') == (2, 2, 0)


#: Columns of a node, and the number that counts it.
STATES = [
    ({}, 'free'), ({'reservation': 'conductor-1'}, 'free'),
    ({'instance_uuid': 'i'}, 'reserved'),
    ({'instance_uuid': 'i', 'maintenance': True}, 'reserved'),
    ({'allocation_id': 1}, 'reserved'),
    ({'instance_uuid': 'i', 'provision_state': 'deploying'}, 'taken'),
    ({'instance_uuid': 'i', 'provision_state': 'active',
      'maintenance': True}, 'taken'),
    ({'instance_uuid': 'i', 'provision_state': None}, 'reserved'),
    ({'instance_uuid': 'i', 'provision_state': 'manageable'}, 'reserved'),
    ({'instance_uuid': 'i', 'provision_state': 'deploy failed'}, 'taken'),
    ({'provision_state': 'deploy failed'}, 'out_of_service'),
    ({'provision_state': 'active'}, 'taken'),
    ({'provision_state': 'deleting', 'maintenance': True}, 'taken'),
    ({'provision_state': 'cleaning'}, 'out_of_service'),
    ({'allocation_id': 1, 'provision_state': 'active'}, 'taken'),
    ({'maintenance': True}, 'out_of_service'),
    ({'retired': True}, 'out_of_service'),
    ({'power_state': None}, 'out_of_service'),
    ({'parent_node': 'i'}, 'out_of_service'),
]


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('fields, count', STATES, ids=str)
def test_each_node_is_counted_once(ironic, node_class, fields, count):
    fields = dict(fields)
    is_allocated = fields.pop('allocation_id', None)
    for name in fields.keys() & {'instance_uuid', 'parent_node'}:
        fields[name] = str(uuid.uuid4())
    own_class = f'{node_class}.one'
    with ironic.fleet({'resource_class': own_class}) as [node]:
        if is_allocated:
            ironic.allocate(node)
        ironic.set_node(node.id, **fields)
        [row] = ironic.capacity(resource_class=own_class)
    assert {name: row[name] for name in (
        'free', 'reserved', 'taken', 'out_of_service')} == {
        'free': 0, 'reserved': 0, 'taken': 0, 'out_of_service': 0, count: 1}


RACKS = [{**LARGE, 'properties': {**LARGE['properties'],
                                  'capabilities': f'gpu,rack:{rack}'},
          'shard': shard}
         for rack, shard in (('r1', 'a'), ('r1', 'b'), ('r2', 'a'))] + [SMALL]


@contextlib.contextmanager
def racks(ironic, node_class):
    """Create those nodes; yields their resource class."""
    own_class = f'{node_class}.racks'
    with ironic.fleet(*({**node, 'resource_class': own_class}
                        for node in RACKS)):
        yield own_class


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('by, expected', [
    (['shard'], [(None, 1), ('a', 2), ('b', 1)]),
    (['capability:rack'], [(None, 1), ('r1', 2), ('r2', 1)]),
    (['capability:gpu', 'capability:gpu'], [(None, 1), ('true', 3)]),
    (['capability:cpu_arch'], [(None, 1), ('x86_64', 3)]),
    (['capability:none'], [(None, 4)]),
    (['conductor_group'], [('', 4)]),
    (['lessee'], [(None, 4)]),
    (['owner'], [(None, 3), ('a-project', 1)]),
    (['capability:rack', 'shard'], [
        (None, None, 1), ('r1', 'a', 1), ('r1', 'b', 1), ('r2', 'a', 1)]),
], ids=str)
def test_sums(ironic, node_class, by, expected):
    with racks(ironic, node_class) as own_class:
        rows = ironic.capacity(resource_class=own_class, by=by)
    assert sorted(([row[name] for name in dict.fromkeys(by)] + [row['total']]
                   for row in rows), key=repr) == sorted(
        map(list, expected), key=repr)
    assert all({*row} == {*by, *KEYS[12:]} and row['free'] == row['total']
               for row in rows)


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('query', [{}, {'by': ['capability:rack', 'shard']}],
                         ids=str)
def test_pages(ironic, node_class, query):
    with racks(ironic, node_class) as own_class:
        query = {**query, 'resource_class': own_class}
        whole = ironic.capacity(**query)
        for limit in (1, 3, 4, 5):
            pages = [*ironic.pages(CAPACITY, 'capacity', **query, limit=limit)]
            assert sum(pages, []) == whole
            assert len(pages) == -(-len(whole) // limit)


@pytest.mark.parametrize('query', [{}, {'by': 'capability:rack'}], ids=str)
@pytest.mark.parametrize('rack', [
    'r', 'x' * 1000, '\U0001F600' * 1000, '\ud800', '\0'],
    ids=['short', 'long', 'longest', 'surrogate', 'NUL'])
def test_pages_while_rows_are_deleted(ironic, node_class, rack, query):
    """Each row is listed once; the marker's own row may be gone."""
    own_class = f'{node_class}.gone'
    names = [f'{rack}{number}' for number in '32154']
    with ironic.fleet(*(
            {'resource_class': own_class, 'properties': {
                'capabilities': f'rack:{name}', 'memory_mb': 1024}}
            for name in names)) as nodes:
        query = {**query, 'resource_class': own_class}
        whole, rows = ironic.capacity(**query), []
        for page in ironic.pages(CAPACITY, 'capacity', limit=2, **query):
            rows += page
            last = names.index(page[-1].get('capability:rack')
                               or page[-1]['capabilities']['rack'])
            ironic.set_node(nodes[last].id,
                            resource_class=f'{node_class}.other')
    assert rows == whole and len(rows) == 5


@pytest.mark.on('sqlite', 'server')
def test_hold_whose_node_has_changed(ironic, pool, node_class):
    """A hold counts for its host when its conductor group has changed."""
    for node in pool:
        ironic.set_node(node.id, conductor_group='rack-7', shard='a')
    hold = ironic.create(resource_class=node_class, memory_mb=8192,
                         conductor_group='rack-7', host='compute-1')
    ironic.set_node(hold['node_uuid'], conductor_group='rack-8', shard='b')
    for query in ({'conductor_group': 'rack-7'}, {'shard': 'a'},
                  {'conductor_group': 'Rack-7', 'shard': 'a'}):
        rows = ironic.capacity(resource_class=node_class,
                               host='compute-1', **query)
        assert counts([row for row in rows
                       if row['memory_mb'] == 131072], 'shard') == {
            'a': (1, 1, 0), 'b': (1, 0, 1)}
        [row] = [row for row in rows if row['shard'] == 'b']
        assert (row['reserved'], row['taken']) == (1, 0)
        rows = ironic.capacity(resource_class=node_class,
                               host='compute-2', **query)
        assert {row['shard'] for row in rows} == {'a'}
    # The other filters also apply to such nodes.
    assert ironic.capacity(resource_class='another', host='compute-1',
                           shard='a') == []
    assert ironic.capacity(resource_class=node_class, shard='a',
                           host='compute-1', trait='CUSTOM_ELSE') == []
    # Nodes of one profile share a row with the group's own nodes.
    ironic.set_node(hold['node_uuid'], conductor_group='rack-7', shard='a')
    assert counts(ironic.capacity(resource_class=node_class, shard='a',
                                  host='compute-1'))[131072] == (2, 1, 1)


#: Nodes that are equal but for their lessee and the count that they belong to.
#: Ironic sets the lessee of the first three: the project of a server.
LEASED = [('a', 'taken'), ('b', 'taken'), ('c', 'taken'), (None, 'taken'),
          (None, 'free'), ('b', 'free'), ('b', 'reserved'), ('b', 'taken'),
          ('d', 'out_of_service')]


@contextlib.contextmanager
def leased(ironic, node_class):
    """Create those nodes, some held by a host; yields their resource class."""
    own_class = f'{node_class}.leased'
    with ironic.fleet(*({**LARGE, 'resource_class': own_class, 'lessee': name}
                        for name, _ in LEASED)) as nodes:
        for node, (_, count) in zip(nodes, LEASED, strict=True):
            if count in ('taken', 'reserved'):
                ironic.create(candidate_nodes=[node.id], host='compute-1')
            ironic.set_node(node.id, provision_state={
                'taken': 'active', 'out_of_service': 'manageable'}.get(
                    count, 'available'))
        yield own_class


def count_by_lessee(rows):
    """Return {lessee: {count: number}}; each lessee must be unique."""
    numbers = {row['lessee']: {name: row[name] for name in (
        'free', 'reserved', 'taken', 'out_of_service', 'held', 'claimable')
        if row.get(name)} for row in rows}
    assert len(numbers) == len(rows)
    assert all(row['total'] == sum(row[name] for name in KEYS[13:17])
               for row in rows)
    return numbers


@pytest.mark.on('sqlite', 'server')
def test_lessee_of_a_taken_node_is_left_out(ironic, node_class):
    """Otherwise each project with a server would have a row."""
    expected = {None: {'free': 1, 'taken': 5, 'held': 5},
                'b': {'free': 1, 'reserved': 1, 'held': 1},
                'd': {'out_of_service': 1}}
    with leased(ironic, node_class) as own_class:
        query = {'resource_class': own_class, 'host': 'compute-1'}
        rows = ironic.capacity(**query)
        assert count_by_lessee(rows) == expected
        pages = ironic.pages(CAPACITY, 'capacity', **query, limit=1)
        assert [row for page in pages for row in page] == rows
        # Nodes of other groups that the host holds are counted in the same
        # way.
        assert count_by_lessee(ironic.capacity(
            **query, conductor_group='other')) == {
                None: {'taken': 5, 'held': 5}, 'b': {'reserved': 1, 'held': 1}}
        response = ironic.http.post(f'{OURS}?dry_run=true', json={
            'resource_class': own_class})
        contract.check(response, 200)
        rows = ironic.capacity(resource_class=own_class)
        assert sorted(response.json()['profiles'], key=str) == sorted(
            rows, key=str) and len(rows) == 3


@pytest.mark.parametrize('by', [[], ['owner']], ids=str)
def test_lessee_of_a_taken_node_by_lessee(ironic, node_class, by):
    with leased(ironic, node_class) as own_class:
        rows = ironic.capacity(resource_class=own_class, host='compute-1',
                               by=['lessee', *by])
    assert count_by_lessee(rows) == {
        None: {'free': 1, 'taken': 1, 'held': 1},
        'a': {'taken': 1, 'held': 1}, 'c': {'taken': 1, 'held': 1},
        'b': {'free': 1, 'reserved': 1, 'taken': 2, 'held': 3},
        'd': {'out_of_service': 1}}


# Filters

@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('spell', [
    str, str.upper, lambda name: name.replace('.', '-'),
    lambda name: 'CUSTOM_' + name.upper().replace('.', '_')],
    ids=['same', 'upper', 'dash', 'normal'])
def test_spelling_of_the_resource_class(ironic, pool, node_class, spell):
    rows = ironic.capacity(resource_class=spell(node_class))
    assert counts(rows).keys() == {0, 4096, 131072}
    assert {row['resource_class'] for row in rows} == {node_class}


@pytest.mark.parametrize('traits, expected', [
    ('CUSTOM_NVME', {4096, 131072}), ('CUSTOM_GPU', {131072}),
    (['CUSTOM_NVME', 'CUSTOM_GPU'], {131072}),
    (['CUSTOM_NVME', 'CUSTOM_NVME'], {4096, 131072}),
    ('CUSTOM_ELSE', set()), (['CUSTOM_NVME', 'CUSTOM_ELSE'], set())],
    ids=str)
def test_traits(ironic, pool, node_class, traits, expected):
    assert counts(ironic.capacity(resource_class=node_class,
                                  trait=traits)).keys() == expected


@pytest.mark.on('sqlite', 'server')
def test_conductor_group_and_shard(ironic, pool, node_class):
    ironic.set_node(pool[0].id, conductor_group='Rack-7', shard='a')
    ironic.set_node(pool[1].id, shard='A')

    def pairs(**query):
        return [(row['conductor_group'], row['shard'])
                for row in ironic.capacity(resource_class=node_class,
                                           trait='CUSTOM_GPU', **query)]

    assert set(pairs()) == {('Rack-7', 'a'), ('', 'A')}
    assert pairs(conductor_group='') == [('', 'A')]
    for group in ('Rack-7', 'rack-7', 'RACK-7', ' rack-7 '):
        assert pairs(conductor_group=group) == [('Rack-7', 'a')]
    assert pairs(conductor_group='rack') == []
    assert pairs(shard='a') == [('Rack-7', 'a')]
    assert pairs(shard='A') == [('', 'A')]
    assert pairs(shard='b') == pairs(shard='a ') == []
    assert pairs(shard='a', conductor_group='') == []


@pytest.mark.on('sqlite', 'server')
def test_empty_shard(ironic, pool, node_class):
    """It is a value, and that of a node without a shard is another one."""
    ironic.set_node(pool[0].id, shard='')
    ironic.set_node(pool[1].id, shard=' ')
    request = {'resource_class': node_class, 'shard': ''}
    row, = ironic.capacity(**request)
    assert (row['shard'], row['free']) == ('', 1)
    row, = ironic.capacity(resource_class=node_class, shard=' ')
    assert row['shard'] == ' '
    response = ironic.http.post('/v1/reservations?dry_run=true', json=request)
    contract.check(response, 200)
    assert response.json()['matching_nodes'] == 1
    hold = ironic.create(**request)
    assert hold['node_uuid'] == pool[0].id
    assert hold['request_spec'] == request
    ironic.create(422, **request)
    again = {'instance_uuid': hold['instance_uuid']}
    ironic.create(200, **request, **again)
    ironic.create(409, resource_class=node_class, **again)
    # It is no domain.
    assert {row['shard'] for row in ironic.capacity(
        resource_class=node_class, by='shard')} == {'', ' ', None}


# Age

@pytest.fixture
def cache(start):
    """The application with an hour as capacity_ttl."""
    with start({'reservations': {'capacity_ttl': 3600}}) as cache:
        yield cache


def test_age(ironic, cache, pool, node_class):
    query = {'host': 'compute-1', 'resource_class': node_class}

    def get(**headers):
        response = cache.http.get(CAPACITY, params=query, headers=headers)
        contract.check(response, 200)
        return int(response.headers['Age']), response.json()

    age, first = get(**FRESH)
    assert age == 0
    ironic.set_node(pool[2].id, maintenance=True)
    ages = [age]
    while ages[-1] < 1 and len(ages) < 100:
        time.sleep(0.1)
        age, capacity = get()
        assert capacity == first
        ages.append(age)
    assert ages[-1] >= 1 and ages == sorted(ages)
    age, fresh = get(**FRESH)
    assert age == 0
    assert fresh != first
    age, capacity = get()
    assert capacity == fresh
    assert age < ages[-1]


@pytest.mark.parametrize('value', [
    'no-cache', 'NO-CACHE', 'max-age=9, no-cache', 'no-store', 'max-age=x',
    'no-cache="', '=', ',,', '"', 'max-age'])
def test_any_cache_control(cache, pool, value):
    response = cache.http.get(CAPACITY, headers={'Cache-Control': value})
    contract.check(response, 200)
    assert int(response.headers['Age']) >= 0


def test_cache_expires(ironic, start, pool, node_class):
    """After capacity_ttl, a request without Cache-Control recounts."""
    with start({'reservations': {'capacity_ttl': 1}}) as application:
        ironic.set_node(pool[2].id, maintenance=True)
        change_time = time.monotonic()
        for _ in range(150):
            request_time = time.monotonic()
            response = application.http.get(
                CAPACITY, params={'resource_class': node_class})
            contract.check(response, 200)
            age = int(response.headers['Age'])
            assert age <= 1
            if request_time - (age + 1) > change_time:
                numbers = counts(response.json()['capacity'])
                assert numbers[4096] == (1, 0, 0)
                return
            time.sleep(0.1)
    raise AssertionError('It is never recounted')


# Traits

@pytest.mark.on('sqlite', 'server')
def test_long_lists_of_traits(ironic, node_class):
    """MySQL cuts GROUP_CONCAT at 1,024 bytes."""
    traits = [f'CUSTOM_{number:02}_{"X" * 100}' for number in range(30)]
    with ironic.fleet({'resource_class': node_class, 'traits': traits},
                      {'resource_class': node_class,
                       'traits': [*traits, 'CUSTOM_Z']}):
        rows = ironic.capacity(trait=traits[-1])
        assert sorted(row['traits'] for row in rows) == [
            traits, [*traits, 'CUSTOM_Z']]
        assert counts(ironic.capacity(trait='CUSTOM_Z')) == {0: (1, 1, 0)}
        hold = ironic.create(memory_mb=0, extra_specs={
            'trait:CUSTOM_Z': 'required', f'trait:{traits[-1]}': 'required'})
        assert counts(ironic.capacity(trait='CUSTOM_Z')) == {0: (1, 0, 0)}
        contract.check(ironic.http.delete(
            f'{OURS}/{hold["instance_uuid"]}'), 204)


# By project

@pytest.fixture
def class_of_six(node_class):
    return f'{node_class}.six'


@pytest.fixture
def projects(ironic, class_of_six):
    """Six nodes in two racks: p1 has three, p2 one, no project one."""
    with ironic.fleet(*(
            {'name': f'by-{number}', 'resource_class': class_of_six,
             'properties': {'memory_mb': 1024,
                            'capabilities': f'rack:r{number % 2}'}}
            for number in range(6))) as nodes:
        for number, project in enumerate(('p1', 'p1', 'p1', 'p2', None)):
            ironic.create(candidate_nodes=[f'by-{number}'], expires_in=600,
                          project_id=project, host='compute-1')
        yield nodes
    ironic.execute('DELETE FROM reservations_notices')


def by_project(ironic, class_of_six, *names, **query):
    """Return {project: (total, healthy, *<other numbers>)}."""
    return {row['project_id']: tuple(
                row[name] for name in ('total', 'healthy', *names))
            for row in ironic.capacity(resource_class=class_of_six,
                                       by='project_id', **query)}


@pytest.mark.on('sqlite', 'server')
def test_numbers_per_project(ironic, projects, class_of_six):
    rows = ironic.capacity(resource_class=class_of_six, by='project_id')
    assert rows == [
        {'project_id': project, 'total': total, 'free': free,
         'reserved': total - free, 'taken': 0, 'out_of_service': 0,
         'claimable': 0, 'healthy': total}
        for project, total, free in ((None, 2, 1), ('p1', 3, 0), ('p2', 1, 0))]
    ironic.set_node(projects[0].id, provision_state='active')
    assert by_project(ironic, class_of_six, 'taken', 'held', host='compute-1'
                      ) == {'p1': (3, 3, 1, 3), 'p2': (1, 1, 0, 1),
                            None: (2, 2, 0, 1)}
    assert [(row['capability:rack'], row['project_id'], row['total'])
            for row in ironic.capacity(
                resource_class=class_of_six,
                by=['capability:rack', 'project_id'])] == [
        ('r0', None, 1), ('r0', 'p1', 2), ('r1', None, 1), ('r1', 'p1', 1),
        ('r1', 'p2', 1)]
    # A free node belongs to no project any more.
    ironic.expire(ironic.find_instance(projects[3].id))
    assert by_project(ironic, class_of_six, 'free') == {
        'p1': (3, 3, 0), None: (3, 3, 2)}
    # Other rows have neither of the two.
    assert all(list(row) == KEYS
               for row in ironic.capacity(resource_class=class_of_six))
    row, = ironic.capacity(resource_class=class_of_six, by='resource_class')
    assert 'healthy' not in row


@pytest.mark.on('sqlite', 'server')
def test_healthy_nodes(ironic, projects, class_of_six):
    def count():
        return by_project(ironic, class_of_six)

    for columns in ({'maintenance': True}, {'health': 'Critical'}):
        ironic.set_node(projects[0].id, **columns)
        assert count() == {'p1': (3, 2), 'p2': (1, 1), None: (2, 2)}
        ironic.set_node(projects[0].id, maintenance=None, health='Warning')
        assert count()['p1'] == (3, 3)
    for body, healthy in (
            ({'kind': 'fault'}, 2), ({'kind': 'maintenance'}, 2),
            ({'kind': 'fault', 'starts_at': '9999-01-01T00:00Z'}, 3)):
        response = ironic.http.post(f'{OURS}/notices', json={
            'nodes': ['by-1'], **body})
        contract.check(response, 201)
        assert count() == {'p1': (3, healthy), 'p2': (1, 1), None: (2, 2)}
        ironic.execute('DELETE FROM reservations_notices')


def test_pages_of_projects(ironic, projects, class_of_six):
    assert [[row['project_id'] for row in page] for page in ironic.pages(
        CAPACITY, 'capacity', resource_class=class_of_six, by='project_id',
        limit=2)] == [[None, 'p1'], ['p2']]


@pytest.mark.parametrize('query', [
    {'by': 'project'}, {'by': 'PROJECT_ID'}, {'project_id': 'p1'},
    {'by': 'healthy'}], ids=str)
def test_no_other_keys(ironic, query):
    contract.check(ironic.http.get(CAPACITY, params=query), 400)
