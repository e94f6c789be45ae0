# SPDX-License-Identifier: Apache-2.0
"""The calls below /v1/reservations/hosts."""

import functools
import operator

from ironic_reservations.api import answers
from ironic_reservations.api import bodies
from ironic_reservations.api import queries
from ironic_reservations.api import requests
from ironic_reservations.api import types
from ironic_reservations.reservations import hosts


def find():
    """GET /v1/reservations/hosts"""
    query = requests.query(queries.find_hosts)
    requests.caller().authorize('hosts')
    limit = answers.limit(query)
    return answers.page('hosts', hosts.find(limit + 1, **query), limit,
                        functools.partial(types.present, types.Host),
                        operator.attrgetter('host'), '/hosts')


def hold(host):
    """PUT /v1/reservations/hosts/{host}"""
    requests.query(queries.nothing)
    requests.caller().authorize('hosts')
    body = requests.body(bodies.hold_host)
    lease = hosts.hold(host, body['holder'].lower(), int(body['ttl']))
    return types.present(types.Host, lease, ('host', 'holder', 'expires_at'))


def give_up(host):
    """DELETE /v1/reservations/hosts/{host}"""
    holder = requests.query(queries.give_up_host).get('holder')
    requests.caller().authorize('hosts')
    if holder is None:
        hosts.forget(host)
    else:
        hosts.give_up(host, holder.lower())
    answers.no_content()
