# SPDX-License-Identifier: Apache-2.0
"""Explanations of why no node matches: counts that sum up, in order."""

import dataclasses
import json
import random

import pytest

from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.api import responses
from ironic_reservations.matching import request_spec
from tests.unit import tables

NAMES = ['candidate_nodes', 'conductor_group=rack', 'shard=a',
         'resource_class=CUSTOM_GOLD', 'hypervisor_type=qemu',
         'resources:VGPU=3',
         'memory_mb>=1024', 'vcpus>=8', 'local_gb>=25',
         'image:memory_mb>=512', 'image:local_gb>=10',
         'trait:CUSTOM_A=required',
         'trait:CUSTOM_B=required', 'trait:CUSTOM_C=forbidden',
         'capabilities:gpu', 'capabilities:ssd=4',
         'capabilities:hypervisor_type s== ironic',
         'capabilities:memory_mb >= 512', 'capabilities:memory_mb >= 512',
         'capabilities:maker=Dell Inc.', 'capabilities:raid >= 2',
         'capabilities:cpu_arch=x86_64', 'capabilities:boot_mode=uefi']


def matcher(**body):
    return matching.Matcher(request_spec.RequestSpec.from_dict(body))


def list_names(**body):
    *names, pool = [
        constraint.name for constraint in matcher(**body).constraints]
    assert pool == 'pool'
    return names


def node(memory=4096, resource_class='gold', traits=(), **more):
    return matching.Node(
        1, 'uuid', resource_class=resource_class, traits=frozenset(traits),
        properties=json.dumps({'memory_mb': memory, 'cpus': 8}), **more)


def explain(matcher_, *groups):
    """Explain, and check rules that apply to all explanations."""
    explanation = responses.present_explanation(matcher_.explain(groups))
    assert [*explanation][:2] == ['considered', 'eliminated']
    assert explanation.keys() <= {'considered', 'eliminated', 'nearest',
                                  'unknown_nodes'}
    assert explanation['considered'] == sum(count for *_, count in groups)
    matches = sum(count for node, reason, count in groups
                  if not reason and matcher_.matches(node))
    assert explanation['considered'] == matches + sum(
        entry['nodes'] for entry in explanation['eliminated'])
    for entry in explanation['eliminated']:
        assert list(entry) == ['by', 'nodes'] and entry['nodes'] > 0
    # It is JSON, and does not depend on the order of the nodes.
    assert json.loads(json.dumps(explanation)) == explanation
    assert responses.present_explanation(
        matcher_.explain(groups[::-1])) == explanation
    return explanation


def eliminated(explanation):
    return {entry['by']: entry['nodes']
            for entry in explanation['eliminated']}


def test_names_are_stable():
    assert list_names(**tables.FULL_BODY) == NAMES


def test_names_do_not_depend_on_the_order_of_the_request():
    def reverse(value):
        if not isinstance(value, dict):
            return value
        return {key: reverse(value[key]) for key in reversed(value)}

    names = list_names(**reverse(tables.FULL_BODY))
    assert sorted(names) == sorted(NAMES)
    assert names[:14] == NAMES[:14]


def test_exact_sizes_have_other_names():
    names = list_names(
        memory_mb=1, vcpus=2, root_gb=3,
        extra_specs={'reservations:match': 'exact'})
    assert names == ['memory_mb=1', 'vcpus=2', 'local_gb=3']


GOLD = {'resource_class': 'gold', 'memory_mb': 8192}


@pytest.mark.parametrize('body, nodes, by, nearest', [
    pytest.param({'memory_mb': 1}, [], {}, None, id='no node'),
    pytest.param({'memory_mb': 1}, [(node(), None, 3)], {}, None,
                 id='all match'),
    pytest.param(
        {'candidate_nodes': ['a'],
         'extra_specs': {'reservations:candidate_nodes': 'b'}},
        [(node(name='a'), None, 1), (node(name='c'), None, 1)],
        {'candidate_nodes': 2}, ('candidate_nodes', 2),
        id='two lists of candidates'),
    pytest.param(
        {'extra_specs': {'capabilities': 'gpu:1', 'capabilities:gpu': '1'}},
        [(node(), None, 2)], {'capabilities:gpu=1': 2},
        ('capabilities:gpu=1', 2), id='same capability twice'),
    pytest.param(
        {'memory_mb': 1, 'image': {'properties': {'img_hv_type': 'QEMU'}}},
        [(node(), None, 2)], {'hypervisor_type=qemu': 2},
        ('hypervisor_type=qemu', 2), id='foreign hypervisor'),
    pytest.param(
        GOLD, [(node(), None, 1), (node(8192, 'silver'), None, 1)],
        {'memory_mb>=8192': 1, 'resource_class=CUSTOM_GOLD': 1},
        ('resource_class=CUSTOM_GOLD', 1), id='two equally near: the first'),
    pytest.param(
        GOLD, [(node(resource_class='silver'), None, 9)],
        {'resource_class=CUSTOM_GOLD': 9}, None, id='none alone is near'),
])
def test_explanation(body, nodes, by, nearest):
    explanation = explain(matcher(**body), *nodes)
    assert eliminated(explanation) == by
    assert explanation.get('nearest') == (
        nearest and dict(zip(('by', 'nodes'), nearest, strict=True)))
    assert nearest or 'nearest' not in explanation


def test_example_of_the_documentation():
    gpu_matcher = matcher(extra_specs={'trait:CUSTOM_GPU': 'required'})
    gpu = node(traits=['CUSTOM_GPU'])
    assert explain(gpu_matcher, (node(), None, 31), (node(), 'reserved', 437),
                   (gpu, 'locked', 12)) == {
        'considered': 480,
        'eliminated': [{'by': 'trait:CUSTOM_GPU=required', 'nodes': 468},
                       {'by': 'locked', 'nodes': 12}],
        'nearest': {'by': 'trait:CUSTOM_GPU=required', 'nodes': 31}}


def test_node_counts_for_the_first_constraint_that_it_violates():
    explanation = explain(
        matcher(resource_class='gold', memory_mb=8192,
                extra_specs={'trait:CUSTOM_A': 'required'}),
        (node(resource_class='silver'), None, 1),
        (node(), 'maintenance', 2), (node(memory=8192), None, 4),
        (node(memory=8192, traits=['CUSTOM_A']), 'maintenance', 8))
    assert explanation['eliminated'] == [
        {'by': 'resource_class=CUSTOM_GOLD', 'nodes': 1},
        {'by': 'memory_mb>=8192', 'nodes': 2},
        {'by': 'trait:CUSTOM_A=required', 'nodes': 4},
        {'by': 'maintenance', 'nodes': 8}]
    assert explanation['nearest'] == {'by': 'trait:CUSTOM_A=required',
                                      'nodes': 4}


@pytest.mark.parametrize('reasons', [
    random.Random(seed).sample(matching.REASONS, len(matching.REASONS))
    for seed in range(10)], ids=str)
def test_order_of_reasons(reasons):
    explanation = explain(
        matcher(memory_mb=1),
        *((node(), reason, number) for number, reason
          in enumerate(reasons, start=1)))
    assert [entry['by'] for entry in explanation['eliminated']] == [
        'pool', 'allocated', 'reserved', 'maintenance', 'not available',
        'retired', 'power state unknown', 'child node', 'health',
        'deferred action', 'cordoned', 'prepared', 'locked']
    assert 'nearest' not in explanation


def test_dedicated_traits():
    """They are named as the nodes have them, after all other constraints."""
    dedicated_matcher = dataclasses.replace(
        matcher(memory_mb=4096, extra_specs={'trait:CUSTOM_A': 'required'}),
        dedicated=('CUSTOM_A', 'CUSTOM_POOL_*', 'CUSTOM_Z'))

    def group(number, *traits, reason=None, **more):
        return node(traits=['CUSTOM_A', 'CUSTOM_B', *traits],
                    **more), reason, number

    assert explain(
        dedicated_matcher, group(1), group(2, 'CUSTOM_POOL_2'),
        group(4, 'CUSTOM_POOL_1'), group(8, 'CUSTOM_POOL_1', 'CUSTOM_Z'),
        group(16, 'CUSTOM_POOL_1', reason='reserved'),
        group(32, 'CUSTOM_POOL_2', memory=1024),
        group(64, 'CUSTOM_POOLS', 'CUSTOM_ZZ', 'X_CUSTOM_Z'),
        group(128, reason='locked')) == {
            'considered': 255,
            'eliminated': [{'by': 'memory_mb>=4096', 'nodes': 32},
                           {'by': 'dedicated:CUSTOM_POOL_1', 'nodes': 28},
                           {'by': 'dedicated:CUSTOM_POOL_2', 'nodes': 2},
                           {'by': 'locked', 'nodes': 128}],
            'nearest': {'by': 'dedicated:CUSTOM_POOL_1', 'nodes': 69}}


def test_nearest_is_the_only_cause_for_most_free_nodes():
    explanation = explain(
        matcher(resource_class='gold', memory_mb=8192),
        # Most of them violate two constraints.
        (node(resource_class='silver'), None, 100),
        (node(resource_class='silver', memory=8192), None, 3),
        (node(), None, 2),
        # These are not free.
        (node(), 'reserved', 50), (node(), 'locked', 50))
    assert explanation['nearest'] == {
        'by': 'resource_class=CUSTOM_GOLD', 'nodes': 3}
    assert eliminated(explanation) == {
        'resource_class=CUSTOM_GOLD': 103, 'memory_mb>=8192': 102}


def test_nodes_of_other_projects_are_left_out():
    project_matcher = matching.Matcher(
        request_spec.RequestSpec.from_dict({'memory_mb': 8192}),
        values.Ownership('mine', 'project'))
    assert responses.present_explanation(project_matcher.explain([
        (node(), None, 1), (node(owner='yours'), 'reserved', 2),
        (node(owner='mine'), None, 4), (node(lessee='mine'), None, 8),
        (node(8192, owner='yours', lessee='mine'), 'locked', 16)])) == {
        'considered': 28,
        'eliminated': [{'by': 'memory_mb>=8192', 'nodes': 12},
                       {'by': 'locked', 'nodes': 16}],
        'nearest': {'by': 'memory_mb>=8192', 'nodes': 12}}
