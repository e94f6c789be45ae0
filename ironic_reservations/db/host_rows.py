# SPDX-License-Identifier: Apache-2.0
"""The statements on the leases of compute hosts."""

import sqlalchemy as sa

from ironic_reservations.db import expressions as expr
from ironic_reservations.db import functions as fn
from ironic_reservations.db import models

hosts = models.host_leases
standbys = models.standbys
reservations = models.reservations


def host_leases(longest, host=None, marker=None):
    """The leases of hosts in the order of their names, as ``hosts.Lease``.

    :param longest: see ``_live_host``.
    :param host: only this one's.
    :param marker: only of those behind this host.
    """
    query = sa.select(
        hosts.c.host, hosts.c.holder, hosts.c.expires_at,
        hosts.c.created_at, hosts.c.updated_at,
        _live_host(longest).label('live')).order_by(hosts.c.host)
    if host is not None:
        query = query.where(expr.equal(hosts.c.host, host))
    return query if marker is None else query.where(hosts.c.host > marker)


def details(longest, host=None, marker=None):
    """The same, with what an operator wants to know of each.

    SELECT ..., created_at AS since,
           (SELECT COUNT(*) FROM reservations_standbys
            WHERE host = reservations_hosts.host AND expires_at > <now>),
           (SELECT COUNT(*) FROM reservations JOIN nodes ...
            WHERE host = reservations_hosts.host)
    FROM reservations_hosts
    """
    waiting = sa.select(sa.func.count()).where(
        expr.equal(standbys.c.host, hosts.c.host),
        standbys.c.expires_at > fn.utcnow())
    held = sa.select(sa.func.count()).join_from(
        reservations, models.nodes, expr.CARRIED
    ).where(expr.equal(reservations.c.host, hosts.c.host), expr.LIVE)
    return host_leases(longest, host, marker).add_columns(
        # A successor writes it anew.
        hosts.c.created_at.label('since'),
        *(query.correlate(hosts).scalar_subquery().label(name)
          for name, query in (('standbys', waiting), ('reservations', held))))


def _live_host(longest):
    """Leases that nobody else may take over.

    :param longest: seconds that a lease may last. One that lasts longer was
        written before the clock was set back; it is not to keep a host
        without a process for as long as that.
    """
    return sa.and_(hosts.c.expires_at > fn.utcnow(),
                   hosts.c.expires_at <= fn.seconds_from_now(longest))


def new_host(host, holder, ttl):
    """Lease a host that nobody holds."""
    return sa.insert(hosts).values(
        host=host, holder=holder, expires_at=fn.seconds_from_now(ttl),
        serial=0, created_at=fn.utcnow())


def renew_host(host, holder, ttl):
    """Let a lease last for so many seconds from now, be it over or not."""
    return _lease_host(host, holder, ttl).values(updated_at=fn.utcnow())


def take_host(host, before, holder, ttl, longest):
    """Take a lease over that has ended, or touch no row.

    UPDATE reservations_hosts
    SET holder = :holder, expires_at = <now> + :ttl, serial = serial + 1, ...
    WHERE host = :host AND holder = :before AND NOT <live>
    """
    return _lease_host(host, before, ttl).where(
        sa.not_(_live_host(longest))).values(
            holder=holder, created_at=fn.utcnow(), updated_at=None)


def _lease_host(host, holder, ttl):
    return sa.update(hosts).where(_held_host(host, holder)).values(
        expires_at=fn.seconds_from_now(ttl), serial=hosts.c.serial + 1)


def delete_host(host, holder):
    """Delete a lease of this holder."""
    return sa.delete(hosts).where(_held_host(host, holder))


def _held_host(host, holder):
    return sa.and_(expr.equal(hosts.c.host, host), hosts.c.holder == holder)


def forget_host(host, holder, longest):
    """Delete a lease that has ended, or touch no row."""
    return delete_host(host, holder).where(sa.not_(_live_host(longest)))


def standby(host, holder, seconds):
    """Whether a process is noted to wait for so many seconds from now on.

    There is no row where it is not noted at all.
    """
    return sa.select(
        standbys.c.expires_at > fn.seconds_from_now(seconds)
    ).where(_standby(host, holder))


def new_standby(host, holder, ttl):
    """Note that a process waits, until so many seconds from now."""
    return sa.insert(standbys).values(
        host=host, holder=holder, expires_at=fn.seconds_from_now(ttl))


def renew_standby(host, holder, ttl):
    """The same of one that is noted already."""
    return sa.update(standbys).where(_standby(host, holder)).values(
        expires_at=fn.seconds_from_now(ttl))


def delete_standbys(host, holder=None):
    """Delete what is noted of those that wait no more, and of this one."""
    return sa.delete(standbys).where(
        expr.equal(standbys.c.host, host),
        sa.or_(standbys.c.holder == holder,
               standbys.c.expires_at <= fn.utcnow()))


def _standby(host, holder):
    return sa.and_(expr.equal(standbys.c.host, host),
                   standbys.c.holder == holder)


def of_holder(host, holder):
    """The values for the two statements below."""
    return {'of_host': host, 'of_holder': holder}


_HOLDS = sa.and_(_held_host(sa.bindparam('of_host', type_=sa.String),
                            sa.bindparam('of_holder', type_=sa.String)),
                 hosts.c.expires_at > fn.utcnow())

#: Whether a holder has a host's lease, and it is not over.
HOLDS_HOST = sa.select(hosts.c.serial).where(_HOLDS)

#: The same, certain until the COMMIT; see transaction.fence.
#:
#: UPDATE reservations_hosts SET serial = serial + 1
#: WHERE host = :of_host AND holder = :of_holder AND expires_at > <now>
FENCE = sa.update(hosts).where(_HOLDS).values(serial=hosts.c.serial + 1)
