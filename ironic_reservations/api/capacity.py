# SPDX-License-Identifier: Apache-2.0
"""The call of /v1/reservations/capacity."""

import pecan

from ironic_reservations import conf
from ironic_reservations.api import queries
from ironic_reservations.api import requests
from ironic_reservations.api import types
from ironic_reservations.fleet import capacity


def show():
    """GET /v1/reservations/capacity"""
    query = requests.query(queries.capacity)
    traits = query.pop('trait', [])
    caller = requests.caller()
    caller.authorize('capacity')
    rows, age = capacity.capacity(
        max_age=(0 if pecan.request.cache_control.no_cache
                 else conf.CONF.reservations.capacity_ttl),
        restricted_to=caller.restricted_to('list_all'),
        traits=frozenset([traits] if isinstance(traits, str) else traits),
        **query)
    pecan.response.age = int(age)
    return types.present(types.Capacity, {'capacity': rows})
