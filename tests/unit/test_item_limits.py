# SPDX-License-Identifier: Apache-2.0
"""Limits of the number of items in a request."""

import pytest

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.api import groups
from ironic_reservations.api import reservations
from ironic_reservations.matching import request_spec
from tests.unit import tables

UUID = '5a4ac6d9-0c1a-4b6d-8d6b-{:012x}'


def capabilities(value):
    return lambda size: tables.specs({
        f'capabilities:{number}': value for number in range(size)})


def traits(size):
    """Return traits, half of them in the flavor, the rest in the image."""
    names = [f'trait:CUSTOM_{number}' for number in range(size)]
    return {**tables.image(**dict.fromkeys(names[::2], 'required')),
            'extra_specs': dict.fromkeys(names[1::2], 'forbidden')}


@pytest.mark.parametrize('body', [
    capabilities(''), capabilities(' '), capabilities('a'),
    lambda size: tables.specs({'capabilities': ','.join(
        f'{number:x}' for number in range(size))}),
    lambda size: tables.specs({'capabilities:a': 'b ' * size}),
    traits,
], ids=['empty', 'blank', 'word', 'names', 'words', 'traits'])
def test_most_words(body):
    tables.make_spec(body(request_spec.MAX_WORDS))
    with pytest.raises(exception.InvalidInput) as error:
        tables.make_spec(body(request_spec.MAX_WORDS + 1))
    assert error.value.field == 'extra_specs'
    assert 'must have at most 256' in str(error.value)


@pytest.mark.parametrize('validate, body, field', [
    (reservations.CREATE_BODY,
     lambda size: {'candidate_nodes': list(map(str, range(size)))},
     'candidate_nodes'),
    (groups.CREATE_BODY,
     lambda size: {'members': [UUID.format(number) for number in range(size)],
                   'request': {'memory_mb': 1}}, 'members'),
    (reservations.CREATE_BODY,
     lambda size: {'extra_specs': {str(number): '' for number in
                                   range(size)}}, 'extra_specs'),
    (reservations.CREATE_BODY,
     lambda size: {'image': {'properties': {
         str(number): '' for number in range(size)}}}, 'image.properties'),
], ids=['candidates', 'members', 'extra specs', 'properties'])
def test_longest_lists(validate, body, field):
    validate(body(1024))
    with pytest.raises(exception.InvalidInput) as error:
        validate(body(1025))
    assert error.value.field == field
    assert 'at most 1024' in str(error.value)


def test_option_for_members_is_limited():
    conf.register_opts()
    with pytest.raises(ValueError, match='1024'):
        conf.CONF.set_override('max_members', 1025, 'reservations')
