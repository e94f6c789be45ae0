# SPDX-License-Identifier: Apache-2.0
"""Explanations of refusals, and dry runs."""

import uuid

import pytest

from tests.common import contract

OURS = '/v1/reservations'
DRY_RUN = f'{OURS}?dry_run=true'
#: Eight nodes; the first two have a trait, and all a capability.
POOL = [{'name': f'explained-{number}',
         'properties': {'memory_mb': 1024 * (1 + number // 4), 'cpus': 8,
                        'local_gb': 100, 'capabilities': 'uefi'},
         'traits': ['CUSTOM_GPU'] if number < 2 else []}
        for number in range(8)]


@pytest.fixture(scope='module')
def class_constraint(node_class):
    """The constraint for the class, as an explanation names it."""
    return f'resource_class=CUSTOM_{node_class.upper().replace(".", "_")}'


def dry_run(ironic, **body):
    """Check that a dry run adds up and changes nothing; return its JSON."""
    before = ironic.state()
    response = ironic.http.post(DRY_RUN, json=body)
    contract.check(response, 200)
    assert ironic.state() == before
    assert 'Location' not in response.headers
    verdict = response.json()
    assert list(verdict) == ['matching_nodes', 'profiles', 'explanation']
    check_sum(ironic, verdict['explanation'], verdict['matching_nodes'])
    return verdict


def check_sum(ironic, explanation, matching=0):
    assert explanation.keys() - {'nearest', 'unknown_nodes'} == {
        'considered', 'eliminated'}
    # In a noauth Ironic every caller sees all nodes.
    (count,), = ironic.execute('SELECT COUNT(*) FROM nodes')
    assert explanation['considered'] == count
    assert count == matching + sum(row['nodes']
                                   for row in explanation['eliminated'])
    assert all(list(row) == ['by', 'nodes'] and row['nodes']
               for row in explanation['eliminated'])


def refuse(ironic, retry=False, **body):
    """Check a refusal, and a dry run of it; return the explanation."""
    before = ironic.state()
    response = ironic.http.post(OURS, json=body)
    text = contract.check(response, 422)
    assert ironic.state() == before
    assert response.headers.get('Retry-After') == ('1' if retry else None)
    explanation = response.json()['explanation']
    check_sum(ironic, explanation)
    verdict = dry_run(ironic, **body)
    assert verdict['explanation'] == explanation
    assert verdict['matching_nodes'] == 0
    # The error text names the number of nodes and the first obstacle.
    assert str(explanation['considered']) in text
    for row in explanation['eliminated'][:1]:
        assert row['by'] in text and str(row['nodes']) in text
    assert '\n' not in text and '{' not in text
    return explanation


def count_by_constraint(explanation, class_constraint):
    """Return {by: nodes} of the nodes of the class, in order."""
    return {row['by']: row['nodes'] for row in explanation['eliminated']
            if row['by'] != class_constraint}


def test_dry_run(ironic, pool, node_class):
    verdict = dry_run(ironic, resource_class=node_class, memory_mb=2048)
    assert verdict['matching_nodes'] == 4
    profile, = verdict['profiles']
    assert profile == {
        'resource_class': node_class, 'memory_mb': 2048, 'vcpus': 8,
        'local_gb': 100, 'cpu_arch': None, 'capabilities': {'uefi': 'true'},
        'traits': [], 'conductor_group': '', 'shard': None, 'owner': None,
        'lessee': None, 'pool_project_id': None, 'total': 4, 'free': 4,
        'claimable': 0, 'reserved': 0, 'taken': 0, 'out_of_service': 0}


def test_profiles_are_sorted_by_fit(ironic, node_class):
    own_class = f'{node_class}.fit'
    sizes = [262144, 9000, 131072, 65536]
    with ironic.fleet(*({'resource_class': own_class,
                         'properties': {'memory_mb': size}}
                        for size in sizes)):
        profiles = dry_run(ironic, resource_class=own_class,
                           memory_mb=8000)['profiles']
    assert [profile['memory_mb'] for profile in profiles] == sorted(sizes)
    # Among equal sizes, those with the fewest unrequested capabilities.
    texts = ['a:1,b:1', 'z:1', 'a:1,b:1,c:1']
    with ironic.fleet(*({'resource_class': own_class, 'properties': {
            'memory_mb': 9000, 'capabilities': text}} for text in texts)):
        profiles = dry_run(ironic, resource_class=own_class)['profiles']
    assert [len(profile['capabilities']) for profile in profiles] == [1, 2, 3]


IGNORED = {'capabilites:rack': 'r1', 'foo': 'bar', 'resources:GOLD': '0',
           'resources:VGPU': '0', 'resources:MEMORY_MB': '0'}


@pytest.mark.parametrize('path', [OURS, f'{OURS}/groups'])
def test_ignored_extra_specs(ironic, pool, node_class, path):
    def post(status, query='', **more):
        spec = {'resource_class': node_class, 'extra_specs': IGNORED, **more}
        response = ironic.http.post(f'{path}{query}', json={
            'instance_uuid': instance, **spec} if path == OURS else {
                'uuid': instance, 'members': 1, 'request': spec})
        contract.check(response, status)
        return response.json()

    instance = str(uuid.uuid4())
    ignored = ['capabilites:rack', 'foo', 'resources:GOLD']
    assert post(200, '?dry_run=true')['ignored'] == ignored
    assert post(422, vcpus=999)['ignored'] == ignored
    assert post(201)['ignored'] == post(200)['ignored'] == ignored
    assert 'ignored' not in ironic.http.get(
        path.replace(OURS, f'{OURS}/{instance}') if path == OURS
        else f'{path}/{instance}').json()
    instance = str(uuid.uuid4())
    assert 'ignored' not in post(201, extra_specs={'capabilities': 'uefi'})


@pytest.mark.parametrize('word, status', [
    ('true', 200), ('True', 200), ('false', 201), ('False', 201)])
def test_values_of_dry_run(ironic, pool, node_class, word, status):
    response = ironic.http.post(f'{OURS}?dry_run={word}',
                                json={'resource_class': node_class})
    contract.check(response, status)
    rows = ironic.rows()
    assert len(rows) == (status == 201)


def test_dry_run_of_an_instance_with_a_node(ironic, pool, node_class):
    body = {'resource_class': node_class, 'memory_mb': 2048,
            'instance_uuid': str(uuid.uuid4())}
    contract.check(ironic.http.post(OURS, json=body), 201)
    assert dry_run(ironic, **body)['matching_nodes'] == 3


def test_matching_nodes_can_be_held(ironic, pool, node_class):
    body = {'resource_class': node_class, 'memory_mb': 2048}
    for number in (4, 3, 2, 1):
        assert dry_run(ironic, **body)['matching_nodes'] == number
        contract.check(ironic.http.post(OURS, json=body), 201)
    refuse(ironic, **body)


def test_locked_nodes(ironic, pool, node_class, class_constraint):
    for node in pool:
        ironic.set_node(node.id, reservation='conductor-1')
    body = {'resource_class': node_class, 'memory_mb': 2048}
    explanation = refuse(ironic, retry=True, **body)
    assert count_by_constraint(explanation, class_constraint) == {
        'memory_mb>=2048': 4, 'locked': 4}
    verdict = dry_run(ironic, **body)
    assert [profile['free'] for profile in verdict['profiles']] == [4]
    # A locked node that would not match anyway is no reason to retry.
    refuse(ironic, resource_class=node_class, memory_mb=8192)
    for node in pool[4:]:
        ironic.set_node(node.id, maintenance=True)
    refuse(ironic, **body)
    ironic.set_node(pool[7].id, reservation=None, maintenance=False)
    assert dry_run(ironic, **body)['matching_nodes'] == 1
    contract.check(ironic.http.post(OURS, json=body), 201)


def test_candidates(ironic, pool, node_class, class_constraint):
    names = [pool[0].name, pool[4].id, 'nobody']
    verdict = dry_run(ironic, candidate_nodes=names)
    assert verdict['matching_nodes'] == 2
    considered = verdict['explanation']['considered']
    assert verdict['explanation']['eliminated'] == [
        {'by': 'candidate_nodes', 'nodes': considered - 2}]
    assert 'unknown_nodes' not in verdict['explanation']
    explanation = refuse(ironic, candidate_nodes=names, memory_mb=2048,
                         extra_specs={'trait:CUSTOM_GPU': 'required'})
    assert explanation['eliminated'] == [
        {'by': 'candidate_nodes', 'nodes': considered - 2},
        {'by': 'memory_mb>=2048', 'nodes': 1},
        {'by': 'trait:CUSTOM_GPU=required', 'nodes': 1}]


def test_candidates_in_extra_specs(ironic, pool):
    body = {'candidate_nodes': [pool[0].name, pool[1].name],
            'extra_specs': {'reservations:candidate_nodes':
                            f'{pool[1].id}, {pool[2].name}'}}
    assert dry_run(ironic, **body)['matching_nodes'] == 1
    ironic.set_node(pool[1].id, maintenance=True)
    explanation = refuse(ironic, **body)
    assert explanation['eliminated'] == [
        {'by': 'candidate_nodes', 'nodes': explanation['considered'] - 1},
        {'by': 'maintenance', 'nodes': 1}]


def test_unknown_candidate(ironic, pool):
    explanation = refuse(ironic, candidate_nodes=['nobody'], memory_mb=2048)
    assert explanation['eliminated'] == [
        {'by': 'candidate_nodes', 'nodes': explanation['considered']}]
    # Without candidate_nodes, four nodes match.
    assert explanation['nearest'] == {'by': 'candidate_nodes', 'nodes': 4}
    assert explanation['unknown_nodes'] == ['nobody']
    response = ironic.http.post(OURS, json={'candidate_nodes': ['nobody']})
    assert ('No node has the name or UUID nobody.'
            in response.json()['error_message'])


@pytest.mark.parametrize('project_id, ownership, is_known', [
    ('owner', 'project', True), ('other', 'any', True),
    ('other', 'project', False), ('other', 'project_or_none', False)])
def test_candidate_of_another_project(ironic, pool, project_id, ownership,
                                      is_known):
    """Its name reads as one that no node has."""
    ironic.set_node(pool[0].id, owner='owner', maintenance=True)
    for name in pool[0].name, pool[0].id.upper():
        explanation = refuse(ironic, candidate_nodes=[name, 'nobody'],
                             project_id=project_id, ownership=ownership)
        assert explanation.get('unknown_nodes', []) == (
            [] if is_known else sorted([name, 'nobody']))


@pytest.mark.on('sqlite', 'server')
def test_special_characters(ironic, pool):
    text = 'x\'"; DROP TABLE nodes; -- %s %(a)s {0} \u00e4\U0001f600'
    refused_by = {'capabilities': text, f'capabilities:{text}': text}
    response = ironic.http.post(OURS, json={
        'shard': text, 'conductor_group': text, 'memory_mb': 1,
        'candidate_nodes': [text], 'extra_specs': refused_by})
    contract.check(response, 422)
    check_sum(ironic, response.json()['explanation'])


#: Nodes of another project that carry an instance: the columns, and the reason
#: if only the ownership excludes them.
CARRIERS = [({'provision_state': 'active'}, 'reserved'),
            ({'provision_state': 'available'}, 'reserved'),
            ({'provision_state': 'deploy failed'}, 'reserved'),
            ({'is_allocated': True}, 'allocated')]


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('ownership', ['project', 'project_or_none'])
@pytest.mark.parametrize('columns, reason', CARRIERS, ids=str)
def test_ownership_of_a_node_in_use(ironic, node_class, ownership, columns,
                                    reason):
    """Ironic leases it to the project of its server."""
    own_class = f'{node_class}.used'
    columns = {'lessee': 'other', **columns}
    with ironic.fleet({'resource_class': own_class},
                      {'resource_class': own_class}) as [node, free]:
        if columns.pop('is_allocated', False):
            ironic.allocate(node)
        ironic.set_node(node.id, instance_uuid=str(uuid.uuid4()), **columns)
        ironic.set_node(free.id, lessee='other')
        request = {'resource_class': own_class, 'project_id': 'p',
                   'ownership': ownership}
        eliminated = refuse(ironic, **request)['eliminated']
        # The node has a second reason here.
        others = refuse(ironic, **request, memory_mb=4096)['eliminated']
    assert eliminated[-2:] == [{'by': f'ownership={ownership}', 'nodes': 1},
                               {'by': reason, 'nodes': 1}]
    assert others[-1] == {'by': 'memory_mb>=4096', 'nodes': 2}
