# SPDX-License-Identifier: Apache-2.0
"""The nodes of the fleet, counted: /v1/reservations/capacity."""

import pecan
from wsme import types as wtypes

from ironic_reservations import conf
from ironic_reservations.api import answers
from ironic_reservations.api import markers
from ironic_reservations.api import requests
from ironic_reservations.api import schema
from ironic_reservations.fleet import capacity

QUERY = schema.query(
    host=schema.name,
    resource_class=schema.name,
    trait={**schema.trait, 'type': ['string', 'array'],
           'items': schema.trait},
    conductor_group=schema.text,
    shard=schema.name,
    by={**schema.row_key, 'type': ['string', 'array'],
        'items': schema.row_key},
    limit=schema.positive,
    marker=schema.marker,
)


class Profile(wtypes.Base):
    """A hardware profile: nodes that no request can distinguish, counted."""

    resource_class = wtypes.text
    memory_mb = answers.Json()
    vcpus = answers.Json()
    local_gb = answers.Json()
    cpu_arch = wtypes.text
    capabilities = answers.Json()
    traits = [wtypes.text]
    conductor_group = wtypes.text
    shard = wtypes.text
    owner = wtypes.text
    lessee = wtypes.text
    total = int
    free = int
    reserved = int
    taken = int
    out_of_service = int
    claimable = int
    # Only where the request names a host.
    held = int


def show():
    """GET /v1/reservations/capacity"""
    query = requests.query(QUERY)
    by, traits = (_list(query.pop(name, [])) for name in ('by', 'trait'))
    limit = answers.limit(query) if 'limit' in query else None
    # Rows of sums by other keys have other positions.
    order = ['capacity', *by]
    after = markers.decode(query.pop('marker', None), order,
                           [str] if by else [str, str])
    caller = requests.caller()
    caller.authorize('capacity')
    restricted_to = caller.restricted_to('list_all')
    rows, age = capacity.list_rows(
        0 if pecan.request.cache_control.no_cache
        else conf.CONF.reservations.capacity_ttl,
        capacity.Filter(restricted_to=restricted_to,
                        unowned=caller.may_use_unowned(restricted_to),
                        traits=frozenset(traits), **query),
        limit and limit + 1, after, tuple(dict.fromkeys(by)))
    pecan.response.age = int(age)
    # A row is JSON already. With thousands of profiles it would take longer
    # to present each than to count them.
    if limit is None:
        return {'capacity': [row.content for row in rows]}
    return answers.page('capacity', rows, limit, lambda row: row.content,
                        lambda last: markers.encode(order, last.position),
                        '/capacity')


def _list(value):
    """Return the values of a parameter that may be repeated, as a list."""
    return [value] if isinstance(value, str) else value
