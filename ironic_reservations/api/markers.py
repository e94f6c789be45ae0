# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes markers, after which the next page of a list begins.

A marker contains the values by which its row is sorted, so it remains valid
when the row is deleted.
"""

import base64
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import datetime
import hashlib
import json
import re
from typing import Any

from oslo_utils import uuidutils

from ironic_reservations import exception

_VERSION = 1

# Text that a database accepts.
_TEXT = re.compile(r'[^\x00\ud800-\udfff]*')

# Functions that check a value, by its type.
_CHECKS: dict[type, Callable[[Any], Any]] = {
    int: lambda number: 0 <= number < 2 ** 63,
    str: _TEXT.fullmatch,
    datetime.datetime: lambda time: time.tzinfo is None,
}


def encode(order: Any, values: Iterable[Any]) -> str:
    """Return the marker of a row.

    :param order: JSON value that identifies the list and its order; ``decode``
        refuses the marker of another order.
    :param values: values by which the row is sorted: integers, texts or naive
        datetimes.
    """
    digest = hashlib.sha256(json.dumps(order).encode()).hexdigest()[:16]
    text = json.dumps(
        [_VERSION, digest, *values], ensure_ascii=False, separators=(',', ':'),
        default=datetime.datetime.isoformat)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')


def decode(marker: str | None, order: Any, kinds: Sequence[type],
           look_up: Callable[[str], list[Any]] | None = None,
           kind: str = '') -> list[Any] | None:
    """Return the values by which the row of a marker is sorted.

    :param marker: a validated parameter; None for the first page.
    :param order: see ``encode``.
    :param kinds: types of the values.
    :param look_up: returns the values of the row with a UUID, in lower case,
        or an empty list. None if a UUID is not a marker of the list.
    :param kind: what the UUID is, for errors.
    :returns: None for the first page.
    :raises: InvalidInput.
    """
    if marker is None:
        return None
    if look_up and uuidutils.is_uuid_like(marker):
        if values := look_up(marker.lower()):
            return values
        raise exception.InvalidInput('marker', f'must be {kind}', got=marker)
    try:
        padding = '=' * (-len(marker) % 4)
        _, _, *values = json.loads(base64.urlsafe_b64decode(marker + padding))
        values = [_convert(kind, value)
                  for kind, value in zip(kinds, values, strict=True)]
        if encode(order, values) == marker:
            return values
    except (ValueError, TypeError, RecursionError):
        pass
    raise exception.InvalidInput(
        'marker', 'must come from the "next" link of a list in the same order'
        + (', or be a UUID' if look_up else ''), got=marker)


def _convert(kind: type, value: Any) -> Any:
    """Return a value of a marker as its type, or raise ValueError."""
    if kind is datetime.datetime:
        value = datetime.datetime.fromisoformat(value)
    if type(value) is not kind or not _CHECKS[kind](value):
        raise ValueError
    return value
