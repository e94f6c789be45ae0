# SPDX-License-Identifier: Apache-2.0
"""Handles requests for host leases: /v1/reservations/hosts."""

from typing import Any

from wsme import types as wtypes

from ironic_reservations import exception
from ironic_reservations.api import markers
from ironic_reservations.api import requests
from ironic_reservations.api import responses
from ironic_reservations.api import schema
from ironic_reservations.reservations import host_leases

LIST_QUERY = schema.query_validator(
    host=schema.IDENT, limit=schema.POSITIVE, marker={
        **schema.NAME, 'maxLength': schema.MARKER['maxLength']})

ACQUIRE_BODY = schema.Validator(schema.closed_object({
    'holder': schema.UUID,
    'ttl': {'type': 'integer', 'minimum': host_leases.MIN_TTL,
            'maximum': host_leases.MAX_TTL},
}, required=['holder', 'ttl']), 'body')

GIVE_UP_QUERY = schema.query_validator(holder=schema.UUID)


class Host(wtypes.Base):
    """The lease of a compute host; see ``host_leases.HostLease``."""

    host = wtypes.text
    holder = wtypes.text
    live = bool
    expires_at = responses.Time()
    created_at = responses.Time()
    updated_at = responses.NULLABLE_TIME
    since = responses.Time()
    standbys = responses.COUNT
    reservations = responses.COUNT


def list_host_leases() -> dict[str, Any]:
    """GET /v1/reservations/hosts"""
    query = requests.read_query(LIST_QUERY)
    requests.get_caller().authorize('hosts')
    limit = responses.pop_limit(query)
    after = _read_marker(query.pop('marker', None))
    return responses.make_page(
        'hosts', host_leases.find_leases(limit + 1, after, **query), limit,
        lambda lease: responses.make_json(Host, vars(lease)),
        lambda lease: markers.encode('hosts', [lease.host]), '/hosts')


def _read_marker(marker: str | None) -> str | None:
    """Return the last host of the previous page; None for the first page.

    :param marker: marker of that host, or its name.
    :raises: InvalidInput.
    """
    if marker is not None and host_leases.find_leases(1, host=marker):
        return marker
    try:
        after = markers.decode(marker, 'hosts', [str])
    except exception.InvalidInput:
        raise exception.InvalidInput(
            'marker', 'must come from a "next" link, or be a compute host in '
                      'the list', got=marker)
    return after[0] if after else None


def acquire_host_lease(host: str) -> dict[str, Any]:
    """PUT /v1/reservations/hosts/{host}"""
    requests.read_query(schema.NO_QUERY)
    requests.get_caller().authorize('hosts')
    body = requests.read_body(ACQUIRE_BODY)
    lease = host_leases.acquire_lease(
        host, body['holder'].lower(), int(body['ttl']))
    return responses.make_json(Host, {
        name: getattr(lease, name)
        for name in ('host', 'holder', 'expires_at')})


def give_up_host_lease(host: str) -> None:
    """DELETE /v1/reservations/hosts/{host}"""
    holder = requests.read_query(GIVE_UP_QUERY).get('holder')
    requests.get_caller().authorize('hosts')
    if holder is None:
        host_leases.delete_expired_lease(host)
    else:
        host_leases.give_up_lease(host, holder.lower())
    responses.set_no_content()
