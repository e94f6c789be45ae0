# SPDX-License-Identifier: Apache-2.0
"""The leases of compute hosts: /v1/reservations/hosts."""

import operator

from wsme import types as wtypes

from ironic_reservations.api import answers
from ironic_reservations.api import requests
from ironic_reservations.api import schema
from ironic_reservations.reservations import host_leases

LIST_QUERY = schema.query(
    host=schema.name, limit=schema.positive, marker=schema.name)

HOLD_BODY = schema.Validator(schema.closed({
    'holder': schema.uuid,
    'ttl': {'type': 'integer', 'minimum': host_leases.MIN_TTL,
            'maximum': host_leases.MAX_TTL},
}, required=['holder', 'ttl']), 'body')

GIVE_UP_QUERY = schema.query(holder=schema.uuid)


class Host(wtypes.Base):
    """The lease of a compute host: a ``host_leases.HostLease``."""

    host = wtypes.text
    holder = wtypes.text
    live = bool
    expires_at = answers.Time()
    created_at = answers.Time()
    updated_at = answers.Time()
    since = answers.Time()
    standbys = int
    reservations = int


def find():
    """GET /v1/reservations/hosts"""
    query = requests.query(LIST_QUERY)
    requests.caller().authorize('hosts')
    limit = answers.limit(query)
    leases = host_leases.find_leases(limit + 1, **query)
    return answers.page('hosts', leases, limit,
                        lambda lease: answers.present(Host, vars(lease)),
                        operator.attrgetter('host'), '/hosts')


def hold(host):
    """PUT /v1/reservations/hosts/{host}"""
    requests.query(schema.NO_QUERY)
    requests.caller().authorize('hosts')
    body = requests.body(HOLD_BODY)
    lease = host_leases.acquire_lease(
        host, body['holder'].lower(), int(body['ttl']))
    return answers.present(Host, {
        name: getattr(lease, name)
        for name in ('host', 'holder', 'expires_at')})


def give_up(host):
    """DELETE /v1/reservations/hosts/{host}"""
    holder = requests.query(GIVE_UP_QUERY).get('holder')
    requests.caller().authorize('hosts')
    if holder is None:
        host_leases.delete_expired_lease(host)
    else:
        host_leases.give_up_lease(host, holder.lower())
    answers.no_content()
