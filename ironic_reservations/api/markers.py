# SPDX-License-Identifier: Apache-2.0
"""Markers: where the next page of a list begins.

A marker carries the values by which its row is sorted, so that it stays valid
when the row is deleted.
"""

import base64
import datetime
import hashlib
import json
import re

from ironic_reservations import exception
from ironic_reservations.api import schema

_VERSION = 1

# A database takes no other text.
_TEXT = re.compile(r'[^\x00\ud800-\udfff]*')


def encode(order, values):
    """Return the marker of a row.

    :param order: the list and its order, as JSON: a marker of another order
        is refused.
    :param values: what the row is sorted by: whole numbers, texts or naive
        datetimes.
    """
    order = hashlib.sha256(json.dumps(order).encode()).hexdigest()[:16]
    text = json.dumps(
        [_VERSION, order, *values], ensure_ascii=False, separators=(',', ':'),
        default=datetime.datetime.isoformat)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')


def decode(marker, order, kinds, look_up=None):
    """Return the values by which the row of a marker is sorted.

    :param marker: of a query, validated; None for the first page.
    :param order: see ``encode``.
    :param kinds: the types of the values.
    :param look_up: returns the values of a row by its UUID; None where a UUID
        is no marker.
    :returns: list; None for the first page.
    :raises: InvalidInput; what ``look_up`` raises.
    """
    if marker is None:
        return None
    if look_up and re.fullmatch(schema.UUID, marker):
        return look_up(marker.lower())
    try:
        padding = '=' * (-len(marker) % 4)
        _, _, *values = json.loads(base64.urlsafe_b64decode(marker + padding))
        values = [_value(kind, value)
                  for kind, value in zip(kinds, values, strict=True)]
        if encode(order, values) == marker:
            return values
    except (ValueError, TypeError, RecursionError):
        pass
    raise exception.InvalidInput(
        'marker', 'must come from the "next" of a list in the same order'
        + (', or be a UUID' if look_up else ''))


def _value(kind, value):
    if kind is datetime.datetime:
        value = datetime.datetime.fromisoformat(value)
    if (type(value) is not kind
            or kind is int and not 0 <= value < 2 ** 63
            or kind is str and not _TEXT.fullmatch(value)
            or kind is datetime.datetime and value.tzinfo):
        raise ValueError
    return value
