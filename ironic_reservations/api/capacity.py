# SPDX-License-Identifier: Apache-2.0
"""The call of /v1/reservations/capacity."""

import pecan

from ironic_reservations import conf
from ironic_reservations.api import answers
from ironic_reservations.api import queries
from ironic_reservations.api import requests
from ironic_reservations.fleet import capacity


def show():
    """GET /v1/reservations/capacity"""
    query = requests.query(queries.capacity)
    by, traits = (_listed(query.pop(name, [])) for name in ('by', 'trait'))
    limit = answers.limit(query) if 'limit' in query else None
    marker = query.pop('marker', None)
    caller = requests.caller()
    caller.authorize('capacity')
    restricted_to = caller.restricted_to('list_all')
    rows, age = capacity.capacity(
        0 if pecan.request.cache_control.no_cache
        else conf.CONF.reservations.capacity_ttl,
        capacity.Filter(restricted_to=restricted_to,
                        unowned=caller.may_use_unowned(restricted_to),
                        traits=frozenset(traits), **query),
        limit and limit + 1, marker, tuple(dict.fromkeys(by)))
    pecan.response.age = int(age)
    # A row has plain values only. With thousands of profiles it would take
    # longer to present each than to count them.
    if limit is None:
        return {'capacity': [row.shown for row in rows]}
    return answers.page('capacity', rows, limit, lambda row: row.shown,
                        'marker', '/capacity')


def _listed(given):
    """A parameter that may be repeated, as a list."""
    return [given] if isinstance(given, str) else given
