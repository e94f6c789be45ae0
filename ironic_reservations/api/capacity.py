# SPDX-License-Identifier: Apache-2.0
"""The call of /v1/reservations/capacity."""

import pecan

from ironic_reservations import conf
from ironic_reservations.api import answers
from ironic_reservations.api import markers
from ironic_reservations.api import queries
from ironic_reservations.api import requests
from ironic_reservations.fleet import capacity


def show():
    """GET /v1/reservations/capacity"""
    query = requests.query(queries.capacity)
    by, traits = (_listed(query.pop(name, [])) for name in ('by', 'trait'))
    limit = answers.limit(query) if 'limit' in query else None
    # Rows of sums by other keys have other positions.
    order = ['capacity', *by]
    after = markers.decode(query.pop('marker', None), order,
                           [str] if by else [str, str])
    caller = requests.caller()
    caller.authorize('capacity')
    restricted_to = caller.restricted_to('list_all')
    rows, age = capacity.capacity(
        0 if pecan.request.cache_control.no_cache
        else conf.CONF.reservations.capacity_ttl,
        capacity.Filter(restricted_to=restricted_to,
                        unowned=caller.may_use_unowned(restricted_to),
                        traits=frozenset(traits), **query),
        limit and limit + 1, after, tuple(dict.fromkeys(by)))
    pecan.response.age = int(age)
    # A row has plain values only. With thousands of profiles it would take
    # longer to present each than to count them.
    if limit is None:
        return {'capacity': [row.shown for row in rows]}
    return answers.page('capacity', rows, limit, lambda row: row.shown,
                        lambda last: markers.encode(order, last.position),
                        '/capacity')


def _listed(given):
    """A parameter that may be repeated, as a list."""
    return [given] if isinstance(given, str) else given
