# SPDX-License-Identifier: Apache-2.0
"""Groups with segments: create, show, refuse, repair and claim."""

import collections

import pytest

from tests.api import test_groups
from tests.common import contract

OURS, GROUPS = test_groups.OURS, test_groups.GROUPS
POD, RACK = 'capability:pod', 'capability:rack'
LEVELS = [{'by': POD, 'policy': 'pack'},
          {'by': RACK, 'policy': 'pack', 'segment': 2}]

no_groups = test_groups.no_groups


def node(pod, rack, **columns):
    names = {'pod': pod, 'rack': rack}
    return {'properties': {'memory_mb': 1024, 'capabilities': ','.join(
        f'{name}:{value}' for name, value in names.items() if value)},
        **columns}


#: Pods p1 and p2 have a rack r1 each; p1 has room for three segments of two.
POOL = [*[node('p1', 'r1')] * 4, *[node('p1', 'r2')] * 3,
        *[node('p2', 'r1')] * 2, node('p2', None), node(None, 'r3'),
        node(None, 'r3')]


@pytest.fixture
def racks(ironic, node_class):
    with ironic.fleet(*({**fields, 'resource_class': node_class}
                        for fields in POOL)) as nodes:
        yield nodes


def create(ironic, node_class, members, levels=LEVELS, status=201, **more):
    return test_groups.create(ironic, node_class, members, status,
                              levels=levels, **more)


def join(ironic, node_class, group, segment, status=201, **more):
    """Add a member to a segment."""
    return ironic.create(status, resource_class=node_class, group={
        'uuid': group['uuid'], 'segment': segment}, **more)


def count(group):
    """Return the number of members by segment and domain."""
    return collections.Counter(
        (row['group']['segment'], *row['group']['domain'])
        for row in group['reservations'])


def test_group(ironic, racks, node_class):
    group = create(ironic, node_class, 6)
    assert list(group) == ['uuid', 'policy', 'by', 'levels', 'project_id',
                           'description', 'created_at', 'health',
                           'reservations']
    assert (group['policy'], group['by']) == (None, None)
    assert group['levels'] == LEVELS
    assert count(group) == {(0, 'p1', 'r2'): 2, (1, 'p1', 'r1'): 2,
                            (2, 'p1', 'r1'): 2}
    member = group['reservations'][0]
    assert set(member['group']) == {'uuid', 'policy', 'by', 'levels', 'domain',
                                    'segment'}
    assert test_groups.show(ironic, group['uuid']) == group
    [row] = ironic.http.get(GROUPS).json()['groups']
    assert (row['segments'], row['members']) == (3, 6)
    assert row['levels'] == LEVELS
    assert row['domains'] == [{'value': ['p1', 'r1'], 'nodes': 4},
                              {'value': ['p1', 'r2'], 'nodes': 2}]


def test_numbers_of_segments_follow_the_order_of_members(
        ironic, racks, node_class):
    instances = sorted(test_groups.new_uuid() for _ in range(4))
    group = create(ironic, node_class, instances)
    segments = {row['instance_uuid']: row['group']['segment']
                for row in group['reservations']}
    assert segments == dict(zip(instances, (0, 0, 1, 1), strict=True))


@pytest.mark.parametrize('policy, members, expected', [
    ('spread', 4, {'p1': 2, 'p2': 2}),
    # Nodes without a pod come last.
    ('soft-spread', 6, {'p1': 4, 'p2': 2}),
    ('soft-spread', 8, {'p1': 6, 'p2': 2}),
    ('soft-pack', 8, {'p1': 6, 'p2': 2}),
    ('soft-pack', 10, {'p1': 6, 'p2': 2, None: 2})])
def test_policies(ironic, racks, node_class, policy, members, expected):
    group = create(ironic, node_class, members, [
        {'by': POD, 'policy': policy}, LEVELS[1]])
    pods = collections.Counter(
        row['group']['domain'][0] for row in group['reservations'])
    assert pods == expected
    for (_, _, rack), number in count(group).items():
        assert number == 2 and rack is not None


def test_one_level_with_segments(ironic, racks, node_class):
    group = create(ironic, node_class, 8, [LEVELS[1]])
    assert {tuple(row['group']['domain']) for row in group['reservations']
            } <= {('r1',), ('r2',), ('r3',)}
    assert set(collections.Counter(
        row['group']['segment'] for row in group['reservations']
    ).values()) == {2}


def test_one_level_without_segments_is_a_policy(ironic, racks, node_class):
    group = create(ironic, node_class, 2, [{'by': RACK, 'policy': 'spread'}])
    assert (group['policy'], group['by']) == ('spread', RACK)
    assert 'levels' not in group


@pytest.mark.parametrize('levels, members, segments, level, nearest', [
    (LEVELS, 8, 3, POD, {'by': POD, 'value': 'p1', 'nodes': 6,
                         'segments': 3}),
    ([LEVELS[0], {**LEVELS[1], 'segment': 4}], 8, 1, RACK,
     {'by': POD, 'value': 'p1', 'nodes': 4, 'segments': 1}),
    ([{'by': POD, 'policy': 'spread'}, LEVELS[1]], 6, 2, POD,
     {'by': POD, 'value': 'p1', 'nodes': 6, 'segments': 3}),
    ([{**LEVELS[1], 'segment': 5}], 5, 1, None, None)])
def test_refusal(ironic, racks, node_class, levels, members, segments, level,
                 nearest):
    if level is None:
        # Rack r1 has nodes of two pods, which one level does not distinguish.
        assert len(create(ironic, node_class, members,
                          levels)['reservations']) == 5
        return
    response = ironic.http.post(GROUPS, json={
        'members': members, 'levels': levels,
        'request': {'resource_class': node_class}})
    contract.check(response, 422)
    body, size = response.json(), levels[1]['segment']
    assert body['segments'] == {'wanted': members // size,
                                'available': segments}
    assert body['members'] == {'wanted': members,
                               'available': segments * size}
    assert body['level'] == level
    assert body['explanation']['nearest'] == nearest
    assert test_groups.is_empty(ironic)


@pytest.mark.parametrize('members, levels, field', [
    (4, [], 'levels'),
    (4, [*LEVELS, LEVELS[1]], 'levels'),
    (4, [LEVELS[0], {'by': RACK, 'policy': 'pack'}], 'levels.1.segment'),
    (4, [{**LEVELS[0], 'segment': 2}, LEVELS[1]], 'levels.0.segment'),
    (4, [LEVELS[0], {**LEVELS[1], 'policy': 'spread'}], 'levels.1.policy'),
    (5, LEVELS, 'levels.1.segment'),
    (4, [LEVELS[0], {**LEVELS[1], 'segment': 0}], 'levels.1.segment'),
    (4, [LEVELS[0], {**LEVELS[1], 'segment': 1.5}], 'levels.1.segment'),
    (4, [LEVELS[1] | {'by': POD}, LEVELS[1]], 'levels.0.segment'),
    (4, [LEVELS[0] | {'by': RACK}, LEVELS[1]], 'levels.1.by'),
    (4, [{'policy': 'pack'}], 'levels.0.by'),
    (4, [{'by': RACK}], 'levels.0.policy'),
    (4, [{'by': 'rack', 'policy': 'pack'}], 'levels.0.by'),
    (4, [{**LEVELS[1], 'size': 2}], 'levels.0.size'),
])
def test_invalid_levels(ironic, node_class, members, levels, field):
    text = create(ironic, node_class, members, levels, 400)
    assert text.startswith(f'{field}: ')


def test_levels_with_a_policy(ironic, node_class):
    text = create(ironic, node_class, 4, status=400, policy='pack', by=RACK)
    assert text.startswith('levels: ')


def test_repeat(ironic, racks, node_class):
    instances = [test_groups.new_uuid() for _ in range(4)]
    ident = test_groups.new_uuid()
    group = create(ironic, node_class, instances, uuid=ident)
    assert create(ironic, node_class, instances, status=200,
                  uuid=ident) == group
    for levels in ([{'by': POD, 'policy': 'soft-pack'}, LEVELS[1]],
                   [LEVELS[0], {**LEVELS[1], 'segment': 1}], [LEVELS[1]]):
        create(ironic, node_class, instances, levels, 409, uuid=ident)


def test_repair(ironic, racks, node_class):
    """A node in the same rack of the same pod replaces one that died."""
    group = create(ironic, node_class, 4)
    victim = next(row for row in group['reservations']
                  if row['group']['segment'] == 0)
    join(ironic, node_class, group, 0, 409)
    ironic.delete(victim['instance_uuid'])
    member = join(ironic, node_class, group, 0)
    assert member['group'] == victim['group']
    assert test_groups.show(ironic, group['uuid'])['levels'] == LEVELS
    # The next node of this rack would be a third member.
    join(ironic, node_class, group, 0, 409)
    again = join(ironic, node_class, group, 0, 200,
                 instance_uuid=member['instance_uuid'])
    assert again == member


def test_repair_without_a_node_in_the_domain(ironic, racks, node_class):
    group = create(ironic, node_class, 2, [
        {'by': POD, 'policy': 'pack'}, {**LEVELS[1], 'segment': 2}])
    one, other = group['reservations']
    domain = one['group']['domain']
    ironic.delete(other['instance_uuid'])
    for row in ironic.execute(
            'SELECT uuid, properties FROM nodes WHERE instance_uuid IS NULL '
            'AND resource_class = :c', c=node_class):
        if f'pod:{domain[0]},rack:{domain[1]}"' in row.properties:
            ironic.set_node(row.uuid, maintenance=True)
    response = ironic.http.post(OURS, json={
        'resource_class': node_class,
        'group': {'uuid': group['uuid'], 'segment': 0}})
    contract.check(response, 422)
    for by, value in zip((POD, RACK), domain, strict=True):
        assert f'group:segment={by}={value} eliminates' in response.text
    assert test_groups.show(ironic, group['uuid'])['reservations'] == [one]


@pytest.mark.parametrize('policy', ['pack', 'spread'])
def test_repair_of_a_segment_without_members(
        ironic, racks, node_class, policy):
    """It may go to any domain that the outer policy allows."""
    group = create(ironic, node_class, 4, [
        {'by': POD, 'policy': policy}, LEVELS[1]])
    for row in group['reservations']:
        if row['group']['segment'] == 1:
            ironic.delete(row['instance_uuid'])
    rest = {row['group']['domain'][0] for row in group['reservations']
            if row['group']['segment'] == 0}
    members = [join(ironic, node_class, group, 1) for _ in range(2)]
    [domain] = {tuple(member['group']['domain']) for member in members}
    assert (domain[0] in rest) == (policy == 'pack')
    join(ironic, node_class, group, 1, 409)


def test_repaired_segment_is_where_all_of_it_fits(ironic, node_class):
    """That precedes the fit of its first member."""
    def nodes(memory_mb, rack, number):
        fields = node('p1', rack, resource_class=node_class)
        fields['properties']['memory_mb'] = memory_mb
        return [fields] * number

    with ironic.fleet(*nodes(1000, 'r1', 3), *nodes(1000, 'r2', 1),
                      *nodes(2000, 'r3', 3)) as fleet:
        group = create(ironic, node_class, 6, [
            LEVELS[0], {**LEVELS[1], 'segment': 3}])
        victims = [row for row in group['reservations']
                   if row['group']['domain'] == ['p1', 'r1']]
        for row in victims:
            ironic.delete(row['instance_uuid'])
        ironic.set_node(fleet[0].id, maintenance=True)
        for row in group['reservations']:
            if row not in victims:
                ironic.delete(row['instance_uuid'])
                break
        number = victims[0]['group']['segment']
        with ironic.fleet(*nodes(4000, 'r4', 3)):
            ironic.capacity()
            assert [join(ironic, node_class, group, number)['group']['domain']
                    for _ in range(3)] == [['p1', 'r4']] * 3


def test_soft_policy_counts_segments(ironic, node_class):
    """Not the members that they still have."""
    with ironic.fleet(*(node(f'p{number % 2}', f'r{number % 4}',
                             resource_class=node_class)
                        for number in range(12))):
        group = create(ironic, node_class, 12, [
            {'by': POD, 'policy': 'soft-spread'},
            {**LEVELS[1], 'segment': 3}])
        by_pod = collections.defaultdict(set)
        for row in group['reservations']:
            by_pod[row['group']['domain'][0]].add(row['group']['segment'])
        victim = min(by_pod['p0'])
        numbers = collections.Counter()
        for row in group['reservations']:
            place = row['group']
            numbers[place['segment']] += 1
            is_second = numbers[place['segment']] > 1
            if place['segment'] == victim or (
                    place['domain'][0] == 'p1' and is_second):
                ironic.delete(row['instance_uuid'])
        ironic.capacity()
        assert join(ironic, node_class, group, victim)[
            'group']['domain'][0] == 'p0'


def test_invalid_repairs(ironic, racks, node_class):
    group = create(ironic, node_class, 4)
    for segment in 2, 99:
        assert 'segment' in join(ironic, node_class, group, segment, 409)
    text = ironic.create(400, resource_class=node_class,
                         group={'uuid': group['uuid']})
    assert text.startswith('group.segment: is required')
    for more, status in (({'policy': 'pack', 'by': RACK}, 409),
                         ({'policy': 'pack', 'by': RACK, 'segment': 0}, 400),
                         ({'segment': -1}, 400), ({'segment': 'a'}, 400)):
        ironic.create(status, resource_class=node_class,
                      group={'uuid': group['uuid'], **more})
    unknown = {'uuid': test_groups.new_uuid()}
    join(ironic, node_class, unknown, 0, 404)
    plain = test_groups.create(ironic, node_class, 1)
    join(ironic, node_class, plain, 0, 409)
    test_groups.release(ironic, group['uuid'])
    join(ironic, node_class, group, 0, 404)


def test_claim_of_a_segment(ironic, racks, node_class):
    group = create(ironic, node_class, 4)
    uuid = group['uuid']
    claims = [ironic.create(resource_class=node_class, host='compute-1',
                            claim=f'{uuid}:1') for _ in range(2)]
    for member in claims:
        assert member['group']['segment'] == 1
    assert 'can be claimed' in ironic.create(
        409, resource_class=node_class, claim=f'{uuid}:1')
    assert 'no members' in ironic.create(
        409, resource_class=node_class, claim=f'{uuid}:7')
    ironic.create(404, resource_class=node_class,
                  claim=f'{test_groups.new_uuid()}:0')
    for claim in (f'{uuid}:', f'{uuid}:-1', f'{uuid}:x', f'{uuid}:01',
                  uuid[1:]):
        text = ironic.create(400, resource_class=node_class, claim=claim)
        assert text.startswith('claim: must be a UUID, or')
    assert ironic.create(resource_class=node_class, claim=uuid.upper())[
        'group']['segment'] == 0
    assert sum(count(test_groups.show(ironic, uuid)).values()) == 4


def test_dry_run(ironic, racks, node_class):
    def dry_run(members):
        return create(ironic, node_class, members, status=200,
                      query='?dry_run=true')
    response = dry_run(6)
    assert response['segments'] == {'wanted': 3, 'available': 3}
    assert response['members'] == {'wanted': 6, 'available': 6}
    assert 'level' not in response
    assert response['domains'][0] == {'value': ['p1', 'r1'], 'nodes': 4}
    assert dry_run(8)['level'] == POD
    assert test_groups.is_empty(ironic)


def test_domains_by_traits(ironic, node_class):
    with ironic.fleet(*({
            'resource_class': node_class, 'traits': traits} for traits in (
                ['CUSTOM_NET_A'], ['CUSTOM_NET_A'], ['CUSTOM_NET_B'],
                ['CUSTOM_NET_A', 'CUSTOM_NET_B'], ['CUSTOM_OTHER'], []))):
        by = 'trait:CUSTOM_NET_'
        group = test_groups.create(ironic, node_class, 2, policy='pack', by=by)
        assert test_groups.domains(group['reservations']) == {
            'CUSTOM_NET_A': 2}
        test_groups.create(ironic, node_class, 2, 422, policy='pack', by=by)
        one = ironic.create(resource_class=node_class, group={
            'uuid': test_groups.new_uuid(), 'policy': 'spread', 'by': by})
        assert one['group']['domain'] == 'CUSTOM_NET_B'


def test_repair_of_another_projects_group(ironic, racks, node_class):
    """A request for a project reads the same as for an unknown group."""
    group = create(ironic, node_class, 4, project_id='p')
    ironic.delete(group['reservations'][0]['instance_uuid'])
    segment = group['reservations'][0]['group']['segment']
    unknown = join(ironic, node_class, {'uuid': test_groups.new_uuid()}, 0,
                   404, project_id='q')
    text = join(ironic, node_class, group, segment, 404, project_id='q')
    assert text.partition(' ')[0] == unknown.partition(' ')[0]
    # tests/api/test_groups.py has other callers.
    assert 'belongs to another project, p: ' in join(
        ironic, node_class, group, segment, 404)
    join(ironic, node_class, group, segment, project_id='p')
