# SPDX-License-Identifier: Apache-2.0
"""Validates and reads JSON Patches, the bodies of PATCH."""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from ironic_reservations import exception
from ironic_reservations.api import schema

#: Maximum number of operations in a JSON Patch.
MAX_OPERATIONS = 64


def make_body(names: Iterable[str]) -> schema.Validator:
    """Return the Validator of a JSON Patch.

    :param names: keys that it may change. ``make_values`` checks its values.
    """
    return schema.Validator({
        'type': 'array',
        'minItems': 1,
        'maxItems': MAX_OPERATIONS,
        'items': schema.closed_object({
            'op': {'enum': ['add', 'replace', 'remove']},
            'path': {'enum': [f'/{name}' for name in names]},
            'value': {},
        }, required=['op', 'path']),
    }, 'body')


def make_values(properties: dict[str, Any]) -> schema.Validator:
    """Return the Validator of the values in a JSON Patch, which are not null.

    :param properties: schemas of the keys that it may change.
    """
    return schema.Validator(schema.closed_object({
        name: {**value, 'type': value['type'][:-1]}
        for name, value in properties.items()}), 'body')


def read_values(operations: list[dict[str, Any]], validate: schema.Validator,
                required: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values that a JSON Patch sets; None for those it removes.

    :param operations: validated by ``make_body``.
    :param validate: see ``make_values``.
    :param required: keys that cannot be removed.
    :raises: InvalidInput.
    """
    changes: dict[str, Any] = {}
    for number, operation in enumerate(operations):
        name = operation['path'][1:]
        if operation['op'] == 'remove' and name in required:
            raise exception.InvalidInput(
                f'{number}.op', f'must be add or replace for /{name}',
                got='remove')
        if operation['op'] != 'remove' and 'value' not in operation:
            raise exception.InvalidInput(
                f'{number}.value', 'is required with add and replace')
        if (operation['op'] != 'remove' and operation['value'] is None
                and name not in required):
            raise exception.InvalidInput(
                name, 'must not be null; to remove it, use the op "remove"')
        changes[name] = None
        if operation['op'] != 'remove':
            changes |= validate({name: operation['value']})
    return changes
