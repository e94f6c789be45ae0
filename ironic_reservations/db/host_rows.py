# SPDX-License-Identifier: Apache-2.0
"""Statements on host leases and standby processes."""

from typing import Any

import sqlalchemy as sa

from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models
from ironic_reservations.db import node_counts

hosts = models.host_leases
standbys = models.standbys
reservations = models.reservations
nodes = models.nodes


def select_host_leases(longest: int, host: str | None = None,
                       marker: str | None = None) -> sa.Select[Any]:
    """Select host leases, for ``host_leases.HostLease``, by host.

    :param longest: see ``_is_live``.
    :param host: only the lease of this host.
    :param marker: only leases of later hosts.
    """
    query = sa.select(
        hosts.c.host, hosts.c.holder, hosts.c.expires_at,
        hosts.c.created_at, hosts.c.updated_at,
        _is_live(longest).label('live')).order_by(hosts.c.host)
    if host is not None:
        query = query.where(expressions.equals_text(hosts.c.host, host))
    return query if marker is None else query.where(hosts.c.host > marker)


def select_host_lease_details(longest: int, host: str | None = None,
                              marker: str | None = None) -> sa.Select[Any]:
    """Select host leases with details for operators.

    SELECT ..., created_at AS since,
           (SELECT COUNT(*) FROM reservations_standbys
            WHERE host = reservations_hosts.host AND expires_at > <now>),
           (SELECT COUNT(*) FROM reservations JOIN nodes ...
            WHERE host = reservations_hosts.host)
    FROM reservations_hosts
    """
    waiting = sa.select(sa.func.count()).where(
        expressions.equals_text(standbys.c.host, hosts.c.host),
        standbys.c.expires_at > functions.utcnow())
    live = sa.select(sa.func.count()).join_from(
        reservations, models.nodes, expressions.CARRIED
    ).where(expressions.equals_text(reservations.c.host, hosts.c.host),
            expressions.LIVE)
    return select_host_leases(longest, host, marker).add_columns(
        # A new holder overwrites it.
        hosts.c.created_at.label('since'),
        *(query.correlate(hosts).scalar_subquery().label(name)
          for name, query in (('standbys', waiting), ('reservations', live))))


def _is_live(longest: int) -> sa.ColumnElement[bool]:
    """Return the condition that no other process may acquire the lease.

    :param longest: maximum duration of a lease in seconds. A longer lease was
        written before the clock was set back, and must not leave the host
        without a process.
    """
    return sa.and_(hosts.c.expires_at > functions.utcnow(),
                   hosts.c.expires_at <= functions.seconds_from_now(longest))


def insert_host_lease(host: str, holder: str, ttl: int) -> sa.Insert:
    """Acquire the lease of a host that has none, for a number of seconds."""
    return sa.insert(hosts).values(
        host=host, holder=holder, expires_at=functions.seconds_from_now(ttl),
        serial=0, created_at=functions.utcnow())


def renew_host_lease(host: str, holder: str, ttl: int) -> sa.Update:
    """Extend a lease, expired or not, to a number of seconds from now."""
    return _extend_host_lease(host, holder, ttl).values(
        updated_at=functions.utcnow())


def take_over_host_lease(host: str, before: str, holder: str, ttl: int,
                         longest: int) -> sa.Update:
    """Acquire a lease that has expired; otherwise change no row.

    UPDATE reservations_hosts
    SET holder = :holder, expires_at = <now> + :ttl, serial = serial + 1, ...
    WHERE host = :host AND holder = :before AND NOT <live>

    :param before: previous holder.
    """
    return _extend_host_lease(host, before, ttl).where(
        sa.not_(_is_live(longest))).values(
            holder=holder, created_at=functions.utcnow(), updated_at=None)


def _extend_host_lease(host: str, holder: str, ttl: int) -> sa.Update:
    return sa.update(hosts).where(_is_held_by(host, holder)).values(
        expires_at=functions.seconds_from_now(ttl), serial=hosts.c.serial + 1)


def delete_host_lease(host: str, holder: str) -> sa.Delete:
    """Delete a lease of this holder."""
    return sa.delete(hosts).where(_is_held_by(host, holder))


def _is_held_by(host: Any, holder: Any) -> sa.ColumnElement[bool]:
    return sa.and_(expressions.equals_text(hosts.c.host, host),
                   hosts.c.holder == holder)


def delete_expired_host_lease(host: str, holder: str,
                              longest: int) -> sa.Delete:
    """Delete a lease that has expired; otherwise change no row."""
    return delete_host_lease(host, holder).where(sa.not_(_is_live(longest)))


def select_standby(host: str, holder: str, seconds: int) -> sa.Select[Any]:
    """Select whether the row of a standby lasts for a number of seconds."""
    return sa.select(
        standbys.c.expires_at > functions.seconds_from_now(seconds)
    ).where(_is_standby(host, holder))


def insert_standby(host: str, holder: str, ttl: int) -> sa.Insert:
    """Insert the row of a standby, which expires after some seconds."""
    return sa.insert(standbys).values(
        host=host, holder=holder, expires_at=functions.seconds_from_now(ttl))


def renew_standby(host: str, holder: str, ttl: int) -> sa.Update:
    """Extend the row of a standby to a number of seconds from now."""
    return sa.update(standbys).where(_is_standby(host, holder)).values(
        expires_at=functions.seconds_from_now(ttl))


def delete_standbys(host: str, holder: str | None = None) -> sa.Delete:
    """Delete the expired rows of standbys of a host, and that of a holder."""
    return sa.delete(standbys).where(
        expressions.equals_text(standbys.c.host, host),
        sa.or_(standbys.c.holder == holder,
               standbys.c.expires_at <= functions.utcnow()))


def _is_standby(host: str, holder: str) -> sa.ColumnElement[bool]:
    return sa.and_(expressions.equals_text(standbys.c.host, host),
                   standbys.c.holder == holder)


def bind_holder(host: str | None, holder: str | None) -> dict[str, Any]:
    """Return the parameters for the two statements below."""
    return {'host_name': host, 'holder_id': holder}


_HAS_LEASE = sa.and_(
    _is_held_by(sa.bindparam('host_name', type_=sa.String),
                sa.bindparam('holder_id', type_=sa.String)),
    hosts.c.expires_at > functions.utcnow())

#: Select a row if a process has the host lease, and it has not expired.
SELECT_HOST_LEASE = sa.select(hosts.c.serial).where(_HAS_LEASE)

#: Verify that the process has the lease, and lock the row until the COMMIT:
#: see Transaction.check_fence.
#:
#: UPDATE reservations_hosts SET serial = serial + 1
#: WHERE host = :host_name AND holder = :holder_id AND expires_at > <now>
FENCE = sa.update(hosts).where(_HAS_LEASE).values(serial=hosts.c.serial + 1)


def count_by_host() -> list[tuple[Any, ...]]:
    """Count the live reservations of each host.

    SELECT host, provision_state, COUNT(*) FROM reservations JOIN nodes ...
    GROUP BY host, provision_state

    :returns: tuples of host, provision state of the nodes, and the number.
    """
    return node_counts.count_groups(
        reservations.join(nodes, sa.and_(expressions.CARRIED,
                                         expressions.LIVE)),
        reservations.c.host, nodes.c.provision_state)
