# SPDX-License-Identifier: Apache-2.0
"""Handles requests for the capacity: /v1/reservations/capacity."""

from typing import Any

import pecan

from ironic_reservations import conf
from ironic_reservations.api import markers
from ironic_reservations.api import requests
from ironic_reservations.api import responses
from ironic_reservations.api import schema
from ironic_reservations.fleet import capacity

QUERY = schema.query_validator(
    host=schema.IDENT,
    resource_class=schema.NAME,
    trait={**schema.TRAIT, 'type': ['string', 'array'],
           'items': schema.TRAIT},
    conductor_group=schema.TEXT,
    shard=schema.TEXT,
    by={**schema.ROW_KEY, 'type': ['string', 'array'],
        'items': schema.ROW_KEY},
    limit=schema.POSITIVE,
    marker=schema.MARKER,
)


def show_capacity() -> dict[str, Any]:
    """GET /v1/reservations/capacity"""
    query = requests.read_query(QUERY)
    by, traits = (_make_list(query.pop(name, [])) for name in ('by', 'trait'))
    limit = responses.pop_limit(query) if 'limit' in query else None
    # The positions of rows depend on the keys by which they are summed.
    order = ['capacity', *by]
    after = markers.decode(query.pop('marker', None), order,
                           [str] if by else [str, str])
    caller = requests.get_caller()
    caller.authorize('capacity')
    rows, age = capacity.list_rows(
        0 if pecan.request.cache_control.no_cache
        else conf.CONF.reservations.capacity_ttl,
        capacity.Filter(reach=caller.get_reach('list_all'),
                        traits=frozenset(traits), **query),
        limit and limit + 1, after, tuple(dict.fromkeys(by)))
    pecan.response.age = int(age)
    # A row is JSON already, because thousands of rows would take longer to
    # convert than to count.
    if limit is None:
        return {'capacity': [row.content for row in rows]}
    return responses.make_page(
        'capacity', rows, limit, lambda row: row.content,
        lambda row: markers.encode(order, row.position), '/capacity')


def _make_list(value: str | list[str]) -> list[str]:
    """Return the values of a parameter that may be repeated."""
    return [value] if isinstance(value, str) else value
