# SPDX-License-Identifier: Apache-2.0
"""The simple keys of a request: numbers and texts, one row for each key.

The tests of validation, of the identity of a request, of its storage and of
the options of commands take them from here. Keys with a structure, and what is
special about a key, have tests of their own.
"""

import typing


class Key(typing.NamedTuple):
    """A key of the body of a POST.

    :ivar value: a valid value, other than the default.
    :ivar least: the smallest number, or the length of the shortest text.
    :ivar option: of the commands that hold nodes, with the value.
    :ivar is_in_spec: whether the key is part of the request spec, and so of
        the identity of the request.
    :ivar is_compared: whether it is compared with nodes.
    :ivar constrains: whether the key alone makes a valid request.
    """

    value: int | str
    least: int = 0
    option: str | None = None
    is_in_spec: bool = True
    is_compared: bool = True
    constrains: bool = True


def stored(value, least=0, option=None):
    """Return a key that is neither compared nor part of the identity."""
    return Key(value, least, option, False, False, False)


KEYS = {
    'memory_mb': Key(512, option='--ram 512'),
    'vcpus': Key(2, option='--vcpus 2'),
    'root_gb': Key(10, option='--disk 10'),
    'ephemeral_gb': Key(5, option='--ephemeral 5'),
    'swap': Key(256, option='--swap 256'),
    'vcpu_weight': Key(9, is_compared=False, constrains=False),
    'expires_in': stored(600, 1),
    'resource_class': Key('gold', 1),
    'conductor_group': Key('', option="--conductor-group ''",
                           constrains=False),
    'shard': Key('rack-7', option='--shard rack-7', constrains=False),
    'name': Key('bm.small', is_compared=False, constrains=False),
    'flavorid': Key('7', is_compared=False, constrains=False),
    'host': stored('compute-1', 1, '--host compute-1'),
    'project_id': stored('west', 1, '--project west --project-domain a'),
    'user_id': stored('ann', 1, '--user ann --user-domain b'),
    'description': stored('for Friday', option="--description 'for Friday'"),
}

#: Keys whose values are not blank.
IDENTS = ('host', 'project_id', 'user_id')

NUMBERS = [name for name, key in KEYS.items() if isinstance(key.value, int)]
TEXTS = [name for name in KEYS if name not in NUMBERS]
SIZES = [name for name in NUMBERS if KEYS[name].is_compared]


def values(**conditions):
    """Return the values of the keys whose attributes are equal to these.

    For example, ``values(is_in_spec=False)``.
    """
    return {name: key.value for name, key in KEYS.items()
            if all(getattr(key, attribute) == value
                   for attribute, value in conditions.items())}
