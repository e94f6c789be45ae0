# SPDX-License-Identifier: Apache-2.0
"""What belongs to another project is seen by none but those who may."""

import json
import uuid

import pytest

from tests.common import answers
from tests.common import personas

OURS, ANY = personas.OURS, personas.ANY

@pytest.mark.parametrize('persona, whose', [
    ('system-reader', {'a', 'b', 'none'}), ('system-service',
                                            {'a', 'b', 'none'}),
    ('elevated-service', {'a', 'b', 'none'}), ('a-admin', {'a'}),
    ('a-reader', {'a'}), ('b-member', {'b'}), ('service', set())])
def test_list(cloud, persona, whose):
    def listed(**query):
        return {each['instance_uuid']
                for each in cloud.get(persona, OURS, **query)['reservations']}
    uuids = {cloud.names[each] for each in whose}
    assert listed() == uuids
    for query in ({'host': 'h'}, {'state': 'reserved'},
                  {'resource_class': 'gold'}, {'sort_key': 'project_id'}):
        assert listed(**query) == uuids
    for name, node in (('a', 'of-a-1'), ('b', 'of-b-1'), ('none', 'free-1')):
        assert listed(node=node) == {cloud.names[name]} & uuids


@pytest.mark.parametrize('persona', ['a-admin', 'a-reader', 'service'])
def test_list_of_another_project(cloud, persona):
    for project in '{project_b}', 'unknown':
        cloud.refused(persona, 403, 'GET', f'{OURS}?project_id={project}')
    own = personas.PERSONAS[persona][1]
    cloud.get(persona, OURS, project_id=cloud.projects[own])


def same(cloud, persona, status, method, path, **kwargs):
    """The texts for others' instances, and for one that is unknown."""
    unknown = str(uuid.uuid4())
    others = {'a-member': ('b', 'none'), 'b-member': ('a', 'none'),
              'domain-admin': ('a', 'b', 'none'),
              'service': ('a', 'b', 'none'),
              'unscoped': ('a', 'b', 'none')}[persona]
    return {cloud.refused(persona, status, method,
                          path.format(instance=each), **kwargs
                          ).replace(each, 'UUID')
            for each in (unknown, *(cloud.names[name] for name in others))}


@pytest.mark.parametrize('persona', [
    'a-member', 'b-member', 'service', 'domain-admin', 'unscoped'])
@pytest.mark.parametrize('method, query', [
    ('GET', ''), ('GET', '?fields=host'), ('DELETE', ''),
    ('DELETE', '?host=h')])
def test_anothers_is_like_none(cloud, persona, method, query):
    before = cloud.ironic.state()
    assert len(same(cloud, persona, 404, method,
                    f'{OURS}/{{instance}}{query}')) == 1
    assert cloud.ironic.state() == before


def test_post_says_the_same_whoever_holds_it(cloud):
    of_b = cloud.hold('b-member')
    carried = str(uuid.uuid4())
    cloud.set_node('free-2', instance_uuid=carried)
    before = cloud.ironic.state()
    faults = {
        cloud.refused('a-member', 409, 'POST', OURS, json={
            **body, 'instance_uuid': instance}).replace(instance, 'UUID')
        for instance, body in [
            (cloud.names['a'], {'memory_mb': 2}),
            (cloud.names['b'], {'memory_mb': 2}),
            (of_b['instance_uuid'], of_b['request_spec']),
            (cloud.names['none'], ANY), (carried, ANY)]}
    assert cloud.ironic.state() == before
    fault, = faults
    for hint in (*cloud.nodes, *cloud.nodes.values(),
                 *cloud.projects.values()):
        assert hint not in fault


def test_anothers_node_is_like_none(cloud):
    """Neither a refusal nor a dry run tells that there is such a node."""
    def verdict(query, node):
        response = cloud.callers['a-member'].post(
            f'{OURS}{query}', json={'candidate_nodes': [node]})
        return response.status_code, response.text.replace(node, 'NODE')
    b_uuid = next(each for each, name in cloud.nodes.items()
                  if name == 'of-b-2')
    for query in '', '?dry_run=true':
        verdicts = {verdict(query, node) for node in (
            'unknown', str(uuid.uuid4()), 'of-b-1', 'of-b-2', b_uuid,
            'free-2')}
        assert len(verdicts) == 1


@pytest.mark.parametrize('persona, considered, free', [
    ('system-admin', 8, 5), ('elevated-service', 8, 5), ('a-member', 4, 3),
    ('b-member', 2, 1)])
def test_explanation_counts_what_the_caller_may_see(cloud, persona,
                                                    considered, free):
    fault = cloud.request(persona, 'POST', OURS, json={'memory_mb': 1025})
    answers.check(fault, 422)
    dry_run = cloud.request(persona, 'POST', f'{OURS}?dry_run=true',
                            json={'memory_mb': 1025})
    explanation = fault.json()['explanation']
    assert explanation == dry_run.json()['explanation']
    assert explanation['considered'] == considered
    assert sum(each['nodes'] for each in explanation['eliminated']) == (
        considered)
    assert explanation['nearest']['nodes'] == free
    assert f'of {considered} nodes' in json.loads(
        fault.json()['error_message'])['faultstring']


@pytest.mark.parametrize('persona, held', [
    ('system-reader', 3), ('a-reader', 1), ('b-member', 1), ('service', 0)])
def test_capacity_counts_a_hosts_nodes_that_the_caller_may_see(
        cloud, persona, held):
    response = cloud.request(persona, 'GET', f'{OURS}/capacity?host=h',
                             headers={'Cache-Control': 'no-cache'})
    answers.check(response, 200)
    assert sum(each['held']
               for each in response.json()['capacity']) == held


def test_dry_run_shows_own_profiles(cloud):
    dry_run = cloud.request('a-member', 'POST', f'{OURS}?dry_run=true',
                            json=ANY).json()
    a = cloud.projects['a']
    assert {(each['owner'], each['lessee'])
            for each in dry_run['profiles']} == {(a, None), ('lessor', a)}
