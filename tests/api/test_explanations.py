# SPDX-License-Identifier: Apache-2.0
"""Why no node matches, and what a dry run finds."""

import uuid

import pytest

from tests.common import answers

OURS = '/v1/reservations'
DRY_RUN = f'{OURS}?dry_run=true'
#: Eight nodes; the first two have a trait, and all a capability.
POOL = [{'name': f'explained-{number}',
         'properties': {'memory_mb': 1024 * (1 + number // 4), 'cpus': 8,
                        'local_gb': 100, 'capabilities': 'uefi'},
         'traits': ['CUSTOM_GPU'] if number < 2 else []}
        for number in range(8)]


@pytest.fixture(scope='module')
def of_class(node_class):
    """How an explanation names the class."""
    return f'resource_class=CUSTOM_{node_class.upper().replace(".", "_")}'


def dry_run(ironic, **body):
    """Ask for a dry run; it adds up and leaves no trace."""
    before = ironic.state()
    response = ironic.http.post(DRY_RUN, json=body)
    answers.check(response, 200)
    assert ironic.state() == before
    assert 'Location' not in response.headers
    verdict = response.json()
    assert list(verdict) == ['matching_nodes', 'profiles', 'explanation']
    check(ironic, verdict['explanation'], verdict['matching_nodes'])
    return verdict


def check(ironic, explanation, matching=0):
    assert list(explanation) == ['considered', 'eliminated', 'nearest']
    # In a noauth Ironic every caller sees all nodes.
    (count,), = ironic.execute('SELECT COUNT(*) FROM nodes')
    assert explanation['considered'] == count
    assert count == matching + sum(each['nodes']
                                   for each in explanation['eliminated'])
    assert all(list(each) == ['by', 'nodes'] and each['nodes']
               for each in explanation['eliminated'])


def refused(ironic, retry=False, **body):
    """Ask for what there is not; a dry run says the same."""
    before = ironic.state()
    response = ironic.http.post(OURS, json=body)
    text = answers.check(response, 422)
    assert ironic.state() == before
    assert response.headers.get('Retry-After') == ('1' if retry else None)
    explanation = response.json()['explanation']
    check(ironic, explanation)
    verdict = dry_run(ironic, **body)
    assert verdict['explanation'] == explanation
    assert verdict['matching_nodes'] == 0
    # For people: what was looked at and what keeps it from being held.
    assert str(explanation['considered']) in text
    for each in explanation['eliminated'][:1]:
        assert each['by'] in text and str(each['nodes']) in text
    assert '\n' not in text and '{' not in text
    return explanation


def eliminated(explanation, of_class):
    """{by: nodes} of the own nodes, in order."""
    return {each['by']: each['nodes'] for each in explanation['eliminated']
            if each['by'] != of_class}


def test_dry_run(ironic, pool, node_class):
    verdict = dry_run(ironic, resource_class=node_class, memory_mb=2048)
    assert verdict['matching_nodes'] == 4
    profile, = verdict['profiles']
    assert profile == {
        'resource_class': node_class, 'memory_mb': 2048, 'vcpus': 8,
        'local_gb': 100, 'cpu_arch': None, 'capabilities': {'uefi': 'true'},
        'traits': [], 'conductor_group': '', 'shard': None, 'owner': None,
        'lessee': None, 'total': 4, 'free': 4, 'held': 0,
        'claimable': 0, 'reserved': 0, 'taken': 0, 'out_of_service': 0}


@pytest.mark.parametrize('word, status', [
    ('true', 200), ('True', 200), ('false', 201), ('False', 201)])
def test_dry_run_or_not(ironic, pool, node_class, word, status):
    response = ironic.http.post(f'{OURS}?dry_run={word}',
                                json={'resource_class': node_class})
    answers.check(response, status)
    rows = ironic.rows()
    assert len(rows) == (status == 201)


def test_dry_run_of_an_instance_that_holds_a_node(ironic, pool, node_class):
    body = {'resource_class': node_class, 'memory_mb': 2048,
            'instance_uuid': str(uuid.uuid4())}
    answers.check(ironic.http.post(OURS, json=body), 201)
    assert dry_run(ironic, **body)['matching_nodes'] == 3


def test_first_constraint_that_is_not_satisfied(ironic, pool, node_class,
                                                of_class):
    explanation = refused(
        ironic, resource_class=node_class, memory_mb=2048,
        extra_specs={'trait:CUSTOM_GPU': 'required'})
    assert eliminated(explanation, of_class) == {
        'memory_mb>=2048': 4, 'trait:CUSTOM_GPU=required': 4}
    assert explanation['nearest'] == {'by': 'trait:CUSTOM_GPU=required',
                                      'nodes': 4}


def test_locks_are_the_last_obstacle(ironic, pool, node_class, of_class):
    for node in pool:
        ironic.set_node(node.id, reservation='conductor-1')
    body = {'resource_class': node_class, 'memory_mb': 2048}
    explanation = refused(ironic, retry=True, **body)
    assert eliminated(explanation, of_class) == {'memory_mb>=2048': 4,
                                                 'locked': 4}
    verdict = dry_run(ironic, **body)
    assert [profile['free'] for profile in verdict['profiles']] == [4]
    # One that would not do anyway is no reason to come again.
    refused(ironic, resource_class=node_class, memory_mb=8192)
    for node in pool[4:]:
        ironic.set_node(node.id, maintenance=True)
    refused(ironic, **body)
    ironic.set_node(pool[7].id, reservation=None, maintenance=False)
    assert dry_run(ironic, **body)['matching_nodes'] == 1
    answers.check(ironic.http.post(OURS, json=body), 201)


def test_candidates(ironic, pool, node_class, of_class):
    wanted = [pool[0].name, pool[4].id, 'nobody']
    verdict = dry_run(ironic, candidate_nodes=wanted)
    assert verdict['matching_nodes'] == 2
    considered = verdict['explanation']['considered']
    assert verdict['explanation']['eliminated'] == [
        {'by': 'candidate_nodes', 'nodes': considered - 2}]
    explanation = refused(ironic, candidate_nodes=wanted, memory_mb=2048,
                          extra_specs={'trait:CUSTOM_GPU': 'required'})
    assert explanation['eliminated'] == [
        {'by': 'candidate_nodes', 'nodes': considered - 2},
        {'by': 'memory_mb>=2048', 'nodes': 1},
        {'by': 'trait:CUSTOM_GPU=required', 'nodes': 1}]


def test_class_that_nobody_has(ironic, pool):
    explanation = refused(ironic, resource_class='nobodys')
    assert explanation['eliminated'] == [
        {'by': 'resource_class=CUSTOM_NOBODYS',
         'nodes': explanation['considered']}]
    assert explanation['nearest']['by'] == 'resource_class=CUSTOM_NOBODYS'
