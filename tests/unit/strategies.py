# SPDX-License-Identifier: Apache-2.0
"""Valid request bodies, sensible and absurd."""

from hypothesis import strategies as st

from ironic_reservations.matching import request_spec
from tests.common import request_keys

integers = st.none() | st.integers(0, request_spec.MAX_INT) | st.sampled_from(
    [0, 1, 2, request_spec.MAX_INT])


def text(longest=255, least=0):
    """Return texts for values, which may contain any character."""
    return st.text(st.characters(exclude_characters='\0',
                                 exclude_categories=['Cs']),
                   min_size=least, max_size=longest)


def name(longest=255, least=0):
    """Return names, without control characters and line separators."""
    return st.text(st.characters(exclude_categories=['Cs', 'Cc', 'Zl', 'Zp']),
                   min_size=least, max_size=longest)


def ident(longest=255):
    """Return names that are not blank."""
    return name(longest).filter(str.strip)


# Expressions, and texts that resemble them.
_words = st.sampled_from([
    '>=', '<=', '==', '!=', '=', '>', '<', 's==', 's!=', 's<', 's>=', '<in>',
    '<or>', '<all-in>', '<range-in>', '[', ']', '(', ')', '1', '2.5', '-3',
    '1e9', 'nan', 'inf', 'a', 'amd64', ',', ':', '0', 'required',
    'forbidden', 'exact', 'at_least', 'baremetal', 'true'])
values = st.none() | st.lists(_words, max_size=8).map(' '.join) | text(60)

_keys = st.sampled_from([
    'capabilities', 'capabilities:x', 'capabilities:cpu_arch', 'capabilities:',
    'cpu_arch', 'resources:VCPU', 'resources:MEMORY_MB', 'resources:DISK_GB',
    'resources:CUSTOM_X', 'resources1:CUSTOM_Y', 'resources:', 'trait:',
    'trait:CUSTOM_X', 'trait2:CUSTOM_X', 'trait:x', 'reservations:match',
    'reservations:trait:CUSTOM_X', 'reservations:candidate_nodes', 'hw:x',
    'hw_architecture', 'hw_firmware_type', 'hypervisor_type', 'img_hv_type'])
strings = st.none() | st.dictionaries(_keys | name(60, 1), values, max_size=6)


def requests():
    return st.fixed_dictionaries({}, optional={
        **{key: st.none() | name(30, request_keys.KEYS[key].least)
           for key in request_keys.TEXTS},
        **dict.fromkeys(request_keys.IDENTS, st.none() | ident(30)),
        **dict.fromkeys(request_keys.NUMBERS, integers),
        'expires_in': st.none() | st.integers(1, 2592000),
        'rxtx_factor': integers | st.floats(0, 10),
        'instance_uuid': st.none() | st.uuids().map(str),
        'extra_specs': strings,
        'image': st.none() | st.fixed_dictionaries({}, optional={
            'id': st.none() | name(30), 'properties': strings,
            'min_ram': integers, 'min_disk': integers}),
        'candidate_nodes': st.none() | st.lists(ident(30), min_size=1,
                                                max_size=4),
    })
