# SPDX-License-Identifier: Apache-2.0
"""How much a request may ask for."""

import pytest

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.api import groups
from ironic_reservations.api import reservations
from ironic_reservations.matching import request_spec
from tests.unit import tables

UUID = '5a4ac6d9-0c1a-4b6d-8d6b-{:012x}'


def capabilities(value):
    return lambda number: tables.specs({
        f'capabilities:{each}': value for each in range(number)})


def traits(number):
    """Half of them in the flavor, the others in the image."""
    names = [f'trait:CUSTOM_{each}' for each in range(number)]
    return {**tables.image(**dict.fromkeys(names[::2], 'required')),
            'extra_specs': dict.fromkeys(names[1::2], 'forbidden')}


@pytest.mark.parametrize('body', [
    capabilities(''), capabilities(' '), capabilities('a'),
    lambda number: tables.specs({'capabilities': ','.join(
        f'{each:x}' for each in range(number))}),
    lambda number: tables.specs({'capabilities:a': 'b ' * number}),
    traits,
], ids=['empty', 'blank', 'word', 'names', 'words', 'traits'])
def test_words(body):
    tables.make_spec(body(request_spec.MAX_WORDS))
    with pytest.raises(exception.InvalidInput) as caught:
        tables.make_spec(body(request_spec.MAX_WORDS + 1))
    assert caught.value.field == 'extra_specs'
    assert 'must have at most 256' in str(caught.value)


@pytest.mark.parametrize('most, validate, body, field', [
    (1024, reservations.CREATE_BODY,
     lambda number: {'candidate_nodes': list(map(str, range(number)))},
     'candidate_nodes'),
    (1024, groups.CREATE_BODY,
     lambda number: {'members': [UUID.format(each) for each in range(number)],
                     'request': {'memory_mb': 1}}, 'members'),
    (1024, reservations.CREATE_BODY,
     lambda number: {'extra_specs': {str(each): '' for each in
                                     range(number)}}, 'extra_specs'),
    (1024, reservations.CREATE_BODY,
     lambda number: {'image': {'properties': {
         str(each): '' for each in range(number)}}}, 'image.properties'),
], ids=['candidates', 'members', 'extra specs', 'properties'])
def test_lists(most, validate, body, field):
    validate(body(most))
    with pytest.raises(exception.InvalidInput) as caught:
        validate(body(most + 1))
    assert caught.value.field == field
    assert 'at most 1024' in str(caught.value)


def test_groups_cannot_be_configured_to_be_larger():
    conf.register_opts()
    with pytest.raises(ValueError, match='1024'):
        conf.CONF.set_override('max_members', 1025, 'reservations')
