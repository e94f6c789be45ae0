# SPDX-License-Identifier: Apache-2.0
"""The statements on the leases of compute hosts."""

import sqlalchemy as sa

from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models

hosts = models.host_leases
standbys = models.standbys
reservations = models.reservations


def select_host_leases(longest, host=None, marker=None):
    """The leases of hosts in the order of their names, as ``hosts.Lease``.

    :param longest: see ``_live_host``.
    :param host: only this one's.
    :param marker: only of those behind this host.
    """
    query = sa.select(
        hosts.c.host, hosts.c.holder, hosts.c.expires_at,
        hosts.c.created_at, hosts.c.updated_at,
        _is_live(longest).label('live')).order_by(hosts.c.host)
    if host is not None:
        query = query.where(expressions.equals_text(hosts.c.host, host))
    return query if marker is None else query.where(hosts.c.host > marker)


def select_host_lease_details(longest, host=None, marker=None):
    """The same, with what an operator wants to know of each.

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
    held = sa.select(sa.func.count()).join_from(
        reservations, models.nodes, expressions.CARRIED
    ).where(expressions.equals_text(reservations.c.host, hosts.c.host),
            expressions.LIVE)
    return select_host_leases(longest, host, marker).add_columns(
        # A successor writes it anew.
        hosts.c.created_at.label('since'),
        *(query.correlate(hosts).scalar_subquery().label(name)
          for name, query in (('standbys', waiting), ('reservations', held))))


def _is_live(longest):
    """Leases that nobody else may take over.

    :param longest: seconds that a lease may last. One that lasts longer was
        written before the clock was set back; it is not to keep a host
        without a process for as long as that.
    """
    return sa.and_(hosts.c.expires_at > functions.utcnow(),
                   hosts.c.expires_at <= functions.seconds_from_now(longest))


def insert_host_lease(host, holder, ttl):
    """Lease a host that nobody holds."""
    return sa.insert(hosts).values(
        host=host, holder=holder, expires_at=functions.seconds_from_now(ttl),
        serial=0, created_at=functions.utcnow())


def renew_host_lease(host, holder, ttl):
    """Let a lease last for so many seconds from now, be it over or not."""
    return _extend_host_lease(host, holder, ttl).values(
        updated_at=functions.utcnow())


def take_over_host_lease(host, before, holder, ttl, longest):
    """Take a lease over that has ended, or touch no row.

    UPDATE reservations_hosts
    SET holder = :holder, expires_at = <now> + :ttl, serial = serial + 1, ...
    WHERE host = :host AND holder = :before AND NOT <live>
    """
    return _extend_host_lease(host, before, ttl).where(
        sa.not_(_is_live(longest))).values(
            holder=holder, created_at=functions.utcnow(), updated_at=None)


def _extend_host_lease(host, holder, ttl):
    return sa.update(hosts).where(_is_held_by(host, holder)).values(
        expires_at=functions.seconds_from_now(ttl), serial=hosts.c.serial + 1)


def delete_host_lease(host, holder):
    """Delete a lease of this holder."""
    return sa.delete(hosts).where(_is_held_by(host, holder))


def _is_held_by(host, holder):
    return sa.and_(expressions.equals_text(hosts.c.host, host),
                   hosts.c.holder == holder)


def delete_expired_host_lease(host, holder, longest):
    """Delete a lease that has ended, or touch no row."""
    return delete_host_lease(host, holder).where(sa.not_(_is_live(longest)))


def select_standby(host, holder, seconds):
    """Whether a process is noted to wait for so many seconds from now on.

    There is no row where it is not noted at all.
    """
    return sa.select(
        standbys.c.expires_at > functions.seconds_from_now(seconds)
    ).where(_is_standby(host, holder))


def insert_standby(host, holder, ttl):
    """Note that a process waits, until so many seconds from now."""
    return sa.insert(standbys).values(
        host=host, holder=holder, expires_at=functions.seconds_from_now(ttl))


def renew_standby(host, holder, ttl):
    """The same of one that is noted already."""
    return sa.update(standbys).where(_is_standby(host, holder)).values(
        expires_at=functions.seconds_from_now(ttl))


def delete_standbys(host, holder=None):
    """Delete what is noted of those that wait no more, and of this one."""
    return sa.delete(standbys).where(
        expressions.equals_text(standbys.c.host, host),
        sa.or_(standbys.c.holder == holder,
               standbys.c.expires_at <= functions.utcnow()))


def _is_standby(host, holder):
    return sa.and_(expressions.equals_text(standbys.c.host, host),
                   standbys.c.holder == holder)


def bind_holder(host, holder):
    """The values for the two statements below."""
    return {'of_host': host, 'of_holder': holder}


_HAS_LEASE = sa.and_(_is_held_by(sa.bindparam('of_host', type_=sa.String),
                            sa.bindparam('of_holder', type_=sa.String)),
                 hosts.c.expires_at > functions.utcnow())

#: Whether a holder has a host's lease, and it is not over.
SELECT_HOST_LEASE = sa.select(hosts.c.serial).where(_HAS_LEASE)

#: The same, certain until the COMMIT; see transaction.fence.
#:
#: UPDATE reservations_hosts SET serial = serial + 1
#: WHERE host = :of_host AND holder = :of_holder AND expires_at > <now>
FENCE = sa.update(hosts).where(_HAS_LEASE).values(serial=hosts.c.serial + 1)
