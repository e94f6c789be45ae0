# SPDX-License-Identifier: Apache-2.0
"""Which nodes satisfy a request: tables."""

import pytest

from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.matching import constraints
from ironic_reservations.matching import operators
from tests.common import request_keys
from tests.unit.tables import BLAZAR
from tests.unit.tables import UUID
from tests.unit.tables import image
from tests.unit.tables import make_matcher
from tests.unit.tables import make_node
from tests.unit.tables import make_spec
from tests.unit.tables import matches
from tests.unit.tables import specs
from tests.unit.tables import table

# Sizes

GOLD = make_node({'memory_mb': 1024, 'cpus': 8, 'local_gb': 31})


@table(
    ('memory-equal', {'memory_mb': 1024}, GOLD, True),
    ('memory-smaller', {'memory_mb': 1023}, GOLD, True),
    ('memory-larger', {'memory_mb': 1025}, GOLD, False),
    ('vcpus-equal', {'vcpus': 8}, GOLD, True),
    ('vcpus-smaller', {'vcpus': 7}, GOLD, True),
    ('vcpus-larger', {'vcpus': 9}, GOLD, False),
    ('root-equal', {'root_gb': 31}, GOLD, True),
    ('root-larger', {'root_gb': 32}, GOLD, False),
    ('ephemeral-is-added', {'root_gb': 20, 'ephemeral_gb': 11}, GOLD, True),
    ('ephemeral-is-too-much', {'root_gb': 20, 'ephemeral_gb': 12}, GOLD,
     False),
    ('swap-is-rounded-up', {'root_gb': 30, 'swap': 1}, GOLD, True),
    ('swap-is-rounded-up-over', {'root_gb': 31, 'swap': 1}, GOLD, False),
    ('swap-fills-a-gib', {'root_gb': 30, 'swap': 1024}, GOLD, True),
    ('swap-begins-a-gib', {'root_gb': 30, 'swap': 1025}, GOLD, False),
    ('all-disks', {'root_gb': 20, 'ephemeral_gb': 10, 'swap': 2}, GOLD, True),
    ('all-disks-over', {'root_gb': 21, 'ephemeral_gb': 10, 'swap': 2}, GOLD,
     False),
    ('every-size', {'memory_mb': 1024, 'vcpus': 8, 'root_gb': 31}, GOLD,
     True),
    ('one-size-over', {'memory_mb': 1024, 'vcpus': 9, 'root_gb': 31}, GOLD,
     False),
    ('min-ram', {'memory_mb': 1, 'image': {'min_ram': 1024}}, GOLD, True),
    ('min-ram-over', {'memory_mb': 1, 'image': {'min_ram': 1025}}, GOLD,
     False),
    ('min-disk', {'memory_mb': 1, 'image': {'min_disk': 31}}, GOLD, True),
    ('min-disk-over', {'memory_mb': 1, 'image': {'min_disk': 32}}, GOLD,
     False),
    *((f'min-ram-{properties}', {'memory_mb': 0, 'image': {'min_ram': 1}},
       make_node(properties), True)
      for properties in ({}, {'memory_mb': 0}, {'memory_mb': '1GB'})),
    ('min-disk-not-stated', {'image': {'min_disk': 1}},
     make_node({'memory_mb': 1}), True),
    ('not-matched', {
        'memory_mb': 1, 'rxtx_factor': 9.5,
        **request_keys.values(is_in_spec=True, is_compared=False)}, GOLD,
     True),
)
def test_sizes(body, node, expected):
    assert matches(body, node) is expected


# Properties as old rows may contain them, and their numbers.
NUMBERS = {
    '1024': 1024,
    '"1024"': 1024,
    '1024.0': 1024,
    '"1024.0"': 1024,
    '"1024.5"': 1024.5,
    '" 1024 "': 1024,
    '1.024e3': 1024,
    '"12abc"': 0,
    '"0x10"': 0,
    '"-1"': 0,
    '"+1"': 0,
    '"1_000"': 0,
    '"1024."': 0,
    '"\\u0661"': 0,
    '""': 0,
    'null': 0,
    'true': 0,
    '[1024]': 0,
    '{"a": 1024}': 0,
    'NaN': 0,
    'Infinity': 0,
    '1e999': 0,
    '-5': 0,
}


@pytest.mark.parametrize('text, number', NUMBERS.items(), ids=list(NUMBERS))
def test_size_in_an_old_row(text, number):
    node = make_node(f'{{"memory_mb": {text}}}')
    assert node.sizes['memory_mb'] == number


WITHOUT_SIZES = {
    'null-column': None, 'empty': '', 'object': '{}', 'null': 'null',
    'list': '[{"memory_mb": 1}]', 'string': '"memory_mb"', 'cut': '{"cpus": ',
    'case': '{"MEMORY_MB": 1, "CPUS": 1}', 'deep': '[' * 100_000}


@pytest.mark.parametrize('properties', WITHOUT_SIZES.values(),
                         ids=list(WITHOUT_SIZES))
def test_properties_without_sizes_count_as_0(properties):
    node = make_node(properties)
    assert node.sizes == {'memory_mb': 0, 'vcpus': 0, 'local_gb': 0}
    assert matches({'memory_mb': 0, 'vcpus': 0, 'root_gb': 0}, node)
    assert not matches({'memory_mb': 1}, node)


@pytest.mark.parametrize('digits', [20, 400, 5000])
def test_huge_size_is_no_error(digits):
    node = make_node('{"memory_mb": ' + '9' * digits + '}')
    assert matches({'memory_mb': 3}, node) in (True, False)
    assert make_matcher({'memory_mb': 3}).fit(node) is not None


@table(
    ('memory', {'memory_mb': 9999, 'vcpus': 8,
                'extra_specs': {'resources:MEMORY_MB': '0'}}, GOLD, True),
    ('vcpus', {'memory_mb': 1024, 'vcpus': 99,
               'extra_specs': {'resources:VCPU': '0'}}, GOLD, True),
    ('disk', {'vcpus': 8, 'root_gb': 99,
              'extra_specs': {'resources:DISK_GB': '0'}}, GOLD, True),
    ('others-are-compared', {'memory_mb': 9999, 'vcpus': 8, 'extra_specs': {
        'resources:VCPU': '0', 'resources:DISK_GB': '0'}}, GOLD, False),
    ('numbered-group', {'memory_mb': 9999, 'extra_specs': {
        'resources1:MEMORY_MB': '0'}}, GOLD, True),
    ('image-minimum', {'memory_mb': 1, 'image': {'min_ram': 1025},
                       'extra_specs': {'resources:MEMORY_MB': '0'}},
     GOLD, True),
    ('minimum-of-another-size', {
        'image': {'min_disk': 32},
        'extra_specs': {'resources:MEMORY_MB': '0'}}, GOLD, False),
    ('amount-replaces', {'memory_mb': 9999, 'extra_specs': {
        'resources:MEMORY_MB': '1024'}}, GOLD, True),
    ('amount-replaces-over', {'memory_mb': 1, 'extra_specs': {
        'resources:MEMORY_MB': '1025'}}, GOLD, False),
    ('amount-alone', {'extra_specs': {'resources:VCPU': '9'}}, GOLD, False),
    ('amount-of-all-disks', {
        'root_gb': 99, 'ephemeral_gb': 9, 'swap': 9,
        'extra_specs': {'resources:DISK_GB': '31'}}, GOLD, True),
    ('amounts-are-summed', {'extra_specs': {
        'resources:MEMORY_MB': '1000', 'resources_A:MEMORY_MB': '25'}},
     GOLD, False),
    ('zero-adds-nothing', {'memory_mb': 9999, 'extra_specs': {
        'resources:MEMORY_MB': '0', 'resources1:MEMORY_MB': '1024'}},
     GOLD, True),
    ('amount-as-nova-reads-it', {'memory_mb': 9999, 'extra_specs': {
        'resources:MEMORY_MB': ' +1_024 '}}, GOLD, True),
)
def test_override_of_a_size(body, node, expected):
    assert matches(body, node) is expected


EXACT = {'reservations:match': 'exact'}


@table(
    ('equal', {'memory_mb': 1024, 'extra_specs': EXACT}, GOLD, True),
    ('smaller', {'memory_mb': 1023, 'extra_specs': EXACT}, GOLD, False),
    ('larger', {'memory_mb': 1025, 'extra_specs': EXACT}, GOLD, False),
    ('vcpus', {'vcpus': 7, 'extra_specs': EXACT}, GOLD, False),
    ('disk', {'root_gb': 30, 'extra_specs': EXACT}, GOLD, False),
    ('disks-added', {'root_gb': 20, 'ephemeral_gb': 10, 'swap': 1,
                     'extra_specs': EXACT}, GOLD, True),
    ('only-sizes-given', {'vcpus': 8, 'extra_specs': EXACT}, GOLD, True),
    ('zero-is-not-compared', {'vcpus': 8, 'memory_mb': 0,
                              'extra_specs': EXACT}, GOLD, True),
    ('amount-is-compared', {'memory_mb': 1024, 'extra_specs': {
        **EXACT, 'resources:MEMORY_MB': '1000'}}, GOLD, False),
    ('amount-is-equal', {'memory_mb': 1, 'extra_specs': {
        **EXACT, 'resources:MEMORY_MB': '1024'}}, GOLD, True),
    ('min-ram-not-stated', {
        'vcpus': 8, 'image': {'min_ram': 512}, 'extra_specs': EXACT},
     make_node({'cpus': 8}), True),
    ('compares-what-an-override-skips', {'memory_mb': 1023, 'extra_specs': {
        **EXACT, 'resources:MEMORY_MB': '0'}}, GOLD, False),
    ('compares-what-an-override-skips-equal', {
        'memory_mb': 1024,
        'extra_specs': {**EXACT, 'resources:MEMORY_MB': '0'}}, GOLD, True),
    ('min-ram-stays-a-minimum', {
        'memory_mb': 1024, 'image': {'min_ram': 512}, 'extra_specs': EXACT},
     GOLD, True),
    ('min-disk-stays-a-minimum', {
        'memory_mb': 1024, 'image': {'min_disk': 1}, 'extra_specs': EXACT},
     GOLD, True),
    ('min-ram-over', {
        'memory_mb': 1024, 'image': {'min_ram': 1025}, 'extra_specs': EXACT},
     GOLD, False),
    ('decimal-string', {'memory_mb': 1024, 'extra_specs': EXACT},
     make_node({'memory_mb': '1024.0'}), True),
)
def test_exact_sizes(body, node, expected):
    assert matches(body, node) is expected


@pytest.mark.parametrize('option, extra_spec, expected', [
    ('exact', None, False), ('at_least', None, True),
    ('exact', 'at_least', True), ('at_least', 'exact', False)])
def test_extra_spec_overrides_the_option(option, extra_spec, expected):
    body = {'memory_mb': 1000,
            'extra_specs': {'reservations:match': extra_spec}}
    assert matches(body, GOLD, match=option) is expected


# Resource class

@table(
    ('same', {'resource_class': 'baremetal.gold'}, 'baremetal.gold', True),
    ('case', {'resource_class': 'Baremetal.Gold'}, 'baremetal.gold', True),
    ('normalized-request', {'resource_class': 'CUSTOM_BAREMETAL_GOLD'},
     'baremetal.gold', True),
    ('normalized-node', {'resource_class': 'baremetal.gold'},
     'CUSTOM_BAREMETAL_GOLD', True),
    ('other-punctuation', {'resource_class': 'baremetal.gold'},
     'baremetal-gold', True),
    ('another', {'resource_class': 'baremetal.gold'}, 'baremetal.silver',
     False),
    ('node-without', {'resource_class': 'baremetal.gold'}, None, False),
    ('node-empty', {'resource_class': 'baremetal.gold'}, '', False),
    ('any', {'memory_mb': 0}, None, True),
    ('resources', specs({'resources:CUSTOM_BAREMETAL_GOLD': '1'}),
     'baremetal.gold', True),
    ('resources-another', specs({'resources:CUSTOM_BAREMETAL_GOLD': '1'}),
     'baremetal.silver', False),
    ('resources-0', specs({'resources:CUSTOM_BAREMETAL_GOLD': '0'}),
     'baremetal.silver', True),
    ('resources-numbered', specs({'resources7:CUSTOM_GOLD': '1'}), 'silver',
     False),
    ('resources-named-group', specs({'resources_BM:CUSTOM_GOLD': '1'}),
     'silver', False),
    ('same-class-twice', specs({'resources:CUSTOM_GOLD': '1'},
                               resource_class='gold'), 'gold', True),
    ('standard-resource', specs({'resources:PCPU': '4'}), 'gold', False),
    ('standard-resource-0', specs({'resources:PCPU': '0'}), 'gold', True),
    ('class-and-groups-of-0', specs({
        'resources:CUSTOM_GOLD': '1', 'resources1:CUSTOM_GOLD': '0',
        'resources:CUSTOM_SILVER': '0'}), 'gold', True),
    ('unknown-class-0', specs({'resources:GOLD': '0'}), 'silver', True),
)
def test_resource_class(body, node, expected):
    assert matches(body, make_node(resource_class=node)) is expected


# Traits

@table(
    ('required-there', specs({'trait:CUSTOM_A': 'required'}), 'A', True),
    ('required-among-others', specs({'trait:CUSTOM_A': 'required'}), 'AB',
     True),
    ('required-missing', specs({'trait:CUSTOM_A': 'required'}), 'B', False),
    ('required-both', specs({'trait:CUSTOM_A': 'required',
                             'trait:CUSTOM_B': 'required'}), 'A', False),
    ('forbidden-there', specs({'trait:CUSTOM_A': 'forbidden'}), 'AB', False),
    ('forbidden-missing', specs({'trait:CUSTOM_A': 'forbidden'}), 'B', True),
    ('contradiction', specs({'trait:CUSTOM_A': 'required',
                             'trait1:CUSTOM_A': 'forbidden'}), 'A', False),
    ('numbered-required', specs({'trait2:CUSTOM_A': 'required'}), 'B', False),
    ('numbered-forbidden', specs({'trait2:CUSTOM_A': 'forbidden'}), 'A',
     False),
    ('unseen-by-placement-required',
     specs({'reservations:trait:CUSTOM_A': 'required'}), 'B', False),
    ('unseen-by-placement-forbidden',
     specs({'reservations:trait:CUSTOM_A': 'forbidden'}), 'A', False),
    ('unseen-by-placement-satisfied',
     specs({'reservations:trait:CUSTOM_A': 'forbidden'}), 'B', True),
    ('image-required', image(**{'trait:CUSTOM_A': 'required'}), 'B', False),
    ('image-required-there', image(**{'trait:CUSTOM_A': 'required'}), 'A',
     True),
    ('image-forbidden', image(**{'trait:CUSTOM_A': 'forbidden'}), 'A', False),
    ('none-asked', {'memory_mb': 0}, 'AB', True),
)
def test_traits(body, node, expected):
    traits = frozenset(f'CUSTOM_{name}' for name in node)
    assert matches(body, make_node(traits=traits)) is expected


# Capabilities

@table(
    ('bare-true', 'key', 'key:true', True),
    ('bare-any-value', 'key', 'key:7', True),
    ('bare-on-node-too', 'key', 'key', True),
    ('bare-false', 'key', 'key:false', False),
    ('bare-False', 'key', 'key:False', False),
    ('bare-no', 'key', 'key:no', False),
    ('bare-0', 'key', 'key:0', False),
    ('bare-missing', 'key', 'other:true', False),
    ('bare-no-prefix', 'key', 'keys:true', False),
    ('two-bare', 'key,other', 'key:1,other:1', True),
    ('two-bare-one-missing', 'key,other', 'key:1', False),
    ('pair', 'key:value', 'key:value', True),
    ('pair-another', 'key:value', 'key:values', False),
    ('pair-missing', 'key:value', '', False),
    ('pair-of-true', 'key:true', 'key', True),
    ('mixed', 'other,key:value', 'key:value,other:1', True),
    ('mixed-spaces', ' other , key : value ', ' key : value , other:1 ',
     True),
    ('value-with-colon', 'key:a:b', 'key:a:b', True),
    ('empty-items', 'key,,', 'key:1', True),
    ('operator-in-a-pair', 'key:>= 4', 'key:5', True),
)
def test_capabilities_in_one_word(body, node, expected):
    node = make_node({'capabilities': node})
    assert matches(specs({'capabilities': body}), node) is expected


@table(
    ('equal', 'value', 'value', True),
    ('case', 'value', 'Value', False),
    ('substring', 'val', 'value', False),
    ('surrounding-space', ' value ', 'value', True),
    ('plain-with-a-space', 'Dell Inc.', 'Dell Inc.', True),
    ('plain-with-a-space-another', 'Dell Inc.', 'Dell', False),
    ('plain-beginning-with-s', 'servers', 'servers', True),
    ('plain-number', '4', '4', True),
    ('plain-number-is-text', '4', '4.0', False),
    ('s==', 's== abc', 'abc', True),
    ('s==-another', 's== abc', 'abcd', False),
    ('s!=', 's!= abc', 'abd', True),
    ('s!=-same', 's!= abc', 'abc', False),
    ('s<', 's< b', 'a', True),
    ('s<-not', 's< b', 'b', False),
    ('s<=', 's<= b', 'b', True),
    ('s>', 's> a', 'b', True),
    ('s>=', 's>= b', 'a', False),
    ('=-is-at-least', '= 4', '5', True),
    ('=-less', '= 4', '3', False),
    ('==', '== 4', '4.0', True),
    ('==-another', '== 4', '5', False),
    ('!=', '!= 4', '5', True),
    ('!=-same', '!= 4', '4', False),
    ('<', '< 4', '3', True),
    ('<-not', '< 4', '4', False),
    ('<=', '<= 4', '4', True),
    ('>', '> 4', '5', True),
    ('>=', '>= 4', '4', True),
    ('>=-numeric-not-text', '>= 4', '10', True),
    ('>=-less', '>= 4', '3', False),
    ('>=-no-space', '>=4', '4', True),
    ('in', '<in> b', 'abc', True),
    ('in-not', '<in> d', 'abc', False),
    ('or-first', '<or> a <or> b', 'a', True),
    ('or-second', '<or> a <or> b', 'b', True),
    ('or-neither', '<or> a <or> b', 'c', False),
    ('all-in', '<all-in> aes mmx', "['mmx', 'aes', 'sse']", True),
    ('all-in-one-missing', '<all-in> aes mmx', "['aes']", False),
    ('range', '<range-in> [ 10 20 ]', '20', True),
    ('range-open', '<range-in> [ 10 20 )', '20', False),
    ('range-outside', '<range-in> [ 10 20 ]', '21', False),
    ('range-float', '<range-in> ( 10 20 ]', '10.5', True),
    ('missing', 's!= abc', None, False),
    # Values that the operator cannot parse do not match.
    ('>=-of-a-word', '>= 4', 'abc', False),
    ('>=-of-nothing', '>= 4', '', False),
    ('!=-of-a-word', '!= 4', 'abc', False),
    ('<-of-a-word', '< 4', 'abc', False),
    ('all-in-of-a-word', '<all-in> aes', 'aes', False),
    ('all-in-of-no-list', '<all-in> aes', '4', False),
    ('range-of-a-word', '<range-in> [ 1 9 ]', 'abc', False),
    ('range-of-a-list', '<range-in> [ 1 9 ]', "['5']", False),
)
def test_capability(body, node, expected):
    constraint = operators.Expression.parse('capabilities:key', body)
    assert constraints.satisfies(constraint, node) is expected


def test_capability_of_a_node():
    node = make_node({'capabilities': 'other:9,key:5'})
    for text, expected in (('5', True), ('9', False), ('>= 5', True),
                           ('>= 6', False), ('<or> 4 <or> 5', True)):
        assert matches(specs({'capabilities:key': text}), node) is expected


@pytest.mark.parametrize('value', [
    'abc', '', '4 GiB', '0x4', '[4]', "['aes'", '__import__("os")',
    '(' * 5000, '[' * 5000, '-' * 5000 + '1', '1' * 5000, '{}', 'None',
    "['a'] * 3", '\x00', '9' * 400, 'nan'], ids=lambda text: repr(text)[:20])
@pytest.mark.parametrize('text', [
    '>= 4', '= 4', '== 4', '<all-in> b', '<range-in> [ 3 5 ]'])
def test_value_that_an_operator_cannot_parse_is_no_error(text, value):
    constraint = operators.Expression.parse('capabilities:key', text)
    assert constraints.satisfies(constraint, value) in (True, False)


@pytest.mark.parametrize('text, expected', [
    ('key:value', {'key': 'value'}),
    ('key', {'key': 'true'}),
    ('a:1,b:2', {'a': '1', 'b': '2'}),
    (' a : b c ,d', {'a': 'b c', 'd': 'true'}),
    ('', {}), (None, {}), (7, {}), (['key'], {}), (',:,', {}),
], ids=repr)
def test_capabilities_of_a_node(text, expected):
    assert make_node({'capabilities': text}).capabilities == expected


# Architecture

@table(
    ('extra-spec', specs({'cpu_arch': 'x86_64'}), 'x86_64', True),
    ('extra-spec-another', specs({'cpu_arch': 'x86_64'}), 'aarch64', False),
    ('capability', specs({'capabilities:cpu_arch': 'x86_64'}), 'x86_64',
     True),
    ('capability-another', specs({'capabilities:cpu_arch': 'x86_64'}),
     'aarch64', False),
    ('capabilities', specs({'capabilities': 'cpu_arch:x86_64'}), 'aarch64',
     False),
    ('image', image(hw_architecture='x86_64'), 'x86_64', True),
    ('image-another', image(hw_architecture='x86_64'), 'aarch64', False),
    ('image-and-flavor-differ', {
        **image(hw_architecture='x86_64'),
        'extra_specs': {'cpu_arch': 'aarch64'}}, 'x86_64', False),
    ('alias-asked', specs({'cpu_arch': 'amd64'}), 'x86_64', True),
    ('alias-of-the-image', image(hw_architecture='amd64'), 'x86_64', True),
    ('alias-of-the-node', specs({'cpu_arch': 'x86_64'}), 'amd64', True),
    ('alias-i686', specs({'cpu_arch': 'i386'}), 'i686', True),
    ('case', specs({'cpu_arch': 'X86_64'}), 'AMD64', True),
    ('node-states-none', specs({'cpu_arch': 'x86_64'}), None, False),
    ('node-states-empty', specs({'cpu_arch': 'x86_64'}), '', False),
    ('node-states-a-number', specs({'cpu_arch': '64'}), 64, False),
    ('operator', specs({'capabilities:cpu_arch': '<or> amd64 <or> aarch64'}),
     'x86_64', True),
    ('operator-s==', specs({'capabilities:cpu_arch': 's== amd64'}), 'x86_64',
     True),
    ('operator-another', specs({'capabilities:cpu_arch': 's!= amd64'}),
     'x86_64', False),
    ('any', {'memory_mb': 0}, None, True),
)
def test_architecture(body, node, expected):
    assert matches(body, make_node({'cpu_arch': node})) is expected


def test_capability_cpu_arch_is_not_the_architecture():
    node = make_node({'capabilities': 'cpu_arch:x86_64'})
    assert not matches(specs({'cpu_arch': 'x86_64'}), node)


# Attributes of the host, and sizes, as capabilities

@table(
    ('type', specs({'capabilities:hypervisor_type': 'ironic'}), {}, True),
    ('type-among', specs({'capabilities': 'hypervisor_type:ironic'}), {},
     True),
    ('type-bare', specs({'capabilities': 'hypervisor_type'}), {}, True),
    ('type-operator', specs({
        'capabilities:hypervisor_type': '<or> qemu <or> ironic'}), {}, True),
    ('type-another', specs({'capabilities:hypervisor_type': 'qemu'}), {},
     False),
    ('version', specs({'capabilities:hypervisor_version': '>= 1'}), {}, True),
    ('version-another', specs({'capabilities:hypervisor_version': '2'}), {},
     False),
    ('memory', specs({'capabilities:memory_mb': '>= 1024'}),
     {'memory_mb': 1024}, True),
    ('memory-over', specs({'capabilities:memory_mb': '>= 1025'}),
     {'memory_mb': 1024}, False),
    ('memory-equal', specs({'capabilities:memory_mb': '1024'}),
     {'memory_mb': '1024.0'}, True),
    ('memory-not-stated', specs({'capabilities': 'memory_mb'}), {}, False),
    ('vcpus', specs({'capabilities:vcpus': '<or> 8 <or> 16'}), {'cpus': 8},
     True),
    ('disk', specs({'capabilities:local_gb': 's== 100'}),
     {'local_gb': 100}, True),
    # Capabilities of the node take precedence.
    ('stated', specs({'capabilities:hypervisor_type': 'ironic'}),
     {'capabilities': 'hypervisor_type:qemu'}, False),
    ('stated-size', specs({'capabilities:memory_mb': '>= 1024'}),
     {'memory_mb': 9999, 'capabilities': 'memory_mb:512'}, False),
    ('stated-size-instead', specs({'capabilities:memory_mb': '>= 1024'}),
     {'capabilities': 'memory_mb:2048'}, True),
    ('stated-too-long', specs({'capabilities:hypervisor_type': 'ironic'}),
     {'capabilities': 'hypervisor_type:' + 'x' * 2000}, False),
)
def test_host_attributes(body, node, expected):
    assert matches(body, make_node(node)) is expected


# Requirements of an image

@table(
    ('baremetal', image(hypervisor_type='baremetal'), None, True),
    ('ironic', image(hypervisor_type='ironic'), None, True),
    ('case', image(hypervisor_type='Baremetal'), None, True),
    ('img_hv_type', image(img_hv_type='baremetal'), None, True),
    ('another', image(hypervisor_type='kvm'), None, False),
    ('img_hv_type-another', image(img_hv_type='qemu'), None, False),
    ('empty', image(hypervisor_type=''), None, False),
    ('one-of-both-another', image(hypervisor_type='baremetal',
                                  img_hv_type='kvm'), None, False),
)
def test_hypervisor_type(body, node, expected):
    assert matches(body, make_node(node)) is expected


@table(
    ('same', image(hw_firmware_type='uefi'), 'boot_mode:uefi', True),
    ('another', image(hw_firmware_type='uefi'), 'boot_mode:bios', False),
    ('case', image(hw_firmware_type='UEFI'), 'boot_mode:Uefi', True),
    ('node-states-none', image(hw_firmware_type='uefi'), 'a:b', True),
    ('not-asked', image(), 'boot_mode:bios', True),
)
def test_firmware_type(body, node, expected):
    assert matches(body, make_node({'capabilities': node})) is expected


# Location of a node

@table(
    ('same', {'conductor_group': 'rack-7'}, 'rack-7', True),
    ('case-asked', {'conductor_group': 'RACK-7'}, 'rack-7', True),
    ('case-node', {'conductor_group': 'rack-7'}, 'Rack-7', True),
    ('another', {'conductor_group': 'rack-7'}, 'rack-8', False),
    ('default-group', {'conductor_group': ''}, '', True),
    ('default-group-is-no-other', {'conductor_group': ''}, 'rack-7', False),
    ('not-the-default-group', {'conductor_group': 'rack-7'}, '', False),
    ('null-is-any', {'conductor_group': None}, 'rack-7', True),
)
def test_conductor_group(body, node, expected):
    body = {'memory_mb': 0, **body}
    assert matches(body, make_node(conductor_group=node)) is expected


@table(
    ('same', {'shard': 'a'}, 'a', True),
    ('case', {'shard': 'A'}, 'a', False),
    ('another', {'shard': 'a'}, 'b', False),
    ('node-in-none', {'shard': 'a'}, None, False),
    ('null-is-any', {'shard': None}, 'a', True),
)
def test_shard(body, node, expected):
    assert matches({'memory_mb': 0, **body}, make_node(shard=node)) is expected


@table(
    ('uuid', {'candidate_nodes': [UUID]}, 'node-1', True),
    ('uuid-upper-case', {'candidate_nodes': [UUID.upper()]}, 'node-1', True),
    ('name', {'candidate_nodes': ['node-1']}, 'node-1', True),
    ('name-case', {'candidate_nodes': ['NODE-1']}, 'node-1', False),
    ('one-of-several', {'candidate_nodes': ['x', 'node-1']}, 'node-1', True),
    ('another', {'candidate_nodes': ['node-2']}, 'node-1', False),
    ('nameless', {'candidate_nodes': ['node-1']}, None, False),
    ('flavor-name', specs({'reservations:candidate_nodes': 'node-1'}),
     'node-1', True),
    ('flavor-uuid', specs({'reservations:candidate_nodes': UUID}), None,
     True),
    ('flavor-several', specs({'reservations:candidate_nodes': 'x, node-1'}),
     'node-1', True),
    ('flavor-another', specs({'reservations:candidate_nodes': 'node-2'}),
     'node-1', False),
    ('both', {'candidate_nodes': ['node-1'], 'extra_specs': {
        'reservations:candidate_nodes': 'node-1,node-2'}}, 'node-1', True),
    ('only-in-one', {'candidate_nodes': ['node-1'], 'extra_specs': {
        'reservations:candidate_nodes': 'node-2'}}, 'node-1', False),
)
def test_candidate_nodes(body, node, expected):
    assert matches(body, make_node(name=node)) is expected


@pytest.mark.parametrize('key', [
    f'resources:{BLAZAR}', f'resources1:{BLAZAR}', 'hw:cpu_policy',
    'quota:vif_outbound', 'aggregate_instance_extra_specs:x',
    'key', 'resources', 'trait', 'capabilities:', 'capabilities_x:key',
    'capabilites:rack', 'Reservations:match'])
def test_other_extra_specs_are_ignored(key):
    spec = make_spec({'extra_specs': {key: 'dedicated', 'a': 'b'}})
    assert spec.ignored == tuple(sorted((key, 'a')))
    assert matching.Matcher(spec).matches(make_node())


@pytest.mark.parametrize('key, value', [
    ('capabilities', 'a'), ('capabilities:a', 'b'), ('cpu_arch', 'x86_64'),
    ('trait:CUSTOM_A', 'required'), ('trait1:CUSTOM_A', 'forbidden'),
    ('reservations:trait:CUSTOM_A', 'forbidden'),
    ('reservations:match', 'exact'), ('reservations:candidate_nodes', 'a'),
    ('resources:MEMORY_MB', '0'), ('resources:VCPU', '4'),
    ('resources:VGPU', '0'), ('resources:VGPU', '1'),
    ('resources:CUSTOM_RESERVATION_5F0E8D3C', '1'),
    ('resources:CUSTOM_A', '0'), ('resources_X:CUSTOM_A', '1'),
    ('absent', None)])
def test_keys_with_a_meaning_are_not_ignored(key, value):
    assert make_spec({'extra_specs': {key: value}}).ignored == ()


def test_class_of_blazar_is_not_compared():
    body = specs({'resources:CUSTOM_GOLD': '1', f'resources:{BLAZAR}': '1'})
    assert matches(body, make_node(resource_class='gold'))
    assert not matches(body, make_node(resource_class='silver'))
    with pytest.raises(exception.InvalidInput, match='must be one class'):
        make_spec(specs({'resources:CUSTOM_GOLD': '1',
                         'resources:CUSTOM_RESERVATION_A': '1'}))


@pytest.mark.parametrize('text', ['', ' ', ',', ' , '])
def test_no_capability_is_ignored(text):
    assert make_spec({'extra_specs': {'capabilities': text}}).ignored == (
        'capabilities',)


@pytest.mark.parametrize('name', ['GOLD', 'custom_gold', 'CUSTOM_gold', '',
                                  'CUSTOM_', 'vgpu'])
def test_unknown_class_of_amount_0_is_ignored(name):
    key = f'resources:{name}'
    assert make_spec({'extra_specs': {key: '0'}}).ignored == (key,)


# Visibility

@pytest.mark.parametrize('owner, lessee, expected', [
    ('mine', None, True), (None, 'mine', True), ('yours', 'mine', True),
    ('mine', 'yours', True), ('yours', None, False), (None, None, False),
    ('', None, False), ('Mine', 'mine ', False)])
def test_project_sees_nodes_that_it_owns_or_leases(owner, lessee, expected):
    spec = make_spec({'memory_mb': 0})
    node = make_node(owner=owner, lessee=lessee)
    for kind, is_visible in (
            ('project', expected), ('any', True),
            ('project_or_none', expected or owner is lessee is None)):
        ownership = values.Ownership('mine', kind)
        assert ownership.covers(owner, lessee) is is_visible
        assert matching.Matcher(
            spec, reach=ownership).is_visible(node) is is_visible
        assert matching.Matcher(
            spec, ownership=ownership).matches(node) is is_visible
