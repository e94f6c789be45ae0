# SPDX-License-Identifier: Apache-2.0
"""A face of the modules of statements, while their users move to these."""

import sqlalchemy as sa

from ironic_reservations.db import functions as fn
from ironic_reservations.db import models
from ironic_reservations.db.expressions import *  # noqa: F403
from ironic_reservations.db.groups import *  # noqa: F403
from ironic_reservations.db.hosts import *  # noqa: F403
from ironic_reservations.db.nodes import *  # noqa: F403
from ironic_reservations.db.projects import *  # noqa: F403
from ironic_reservations.db.reservations import *  # noqa: F403

_SHARED = models.fleet_count
_THE_ROW = _SHARED.c.id == 1


def shared_count():
    """The newest count that a worker of any API host has published: a row."""
    return sa.select(
        _SHARED.c.counted_at, _SHARED.c.cost,
        (fn.epoch() - _SHARED.c.counted_at).label('age')).where(_THE_ROW)


def shared_profiles():
    """What that worker has counted, and when it did: a row."""
    return sa.select(_SHARED.c.counted_at, _SHARED.c.profiles).where(_THE_ROW)


def begin_count(seconds):
    """Become the one worker that counts, or touch no row.

    UPDATE reservations_fleet SET counting_until = <now> + :seconds
    WHERE id = 1 AND <nobody is counting>

    A time that is further away was written before the clock was set back.
    """
    left = _SHARED.c.counting_until - fn.epoch()
    return sa.update(_SHARED).where(
        _THE_ROW, sa.or_(left <= 0, left > seconds),
    ).values(counting_until=fn.epoch() + seconds)


def publish_count(profiles, cost):
    """Publish a count that has just ended, and let others count again.

    :param profiles: text.
    :param cost: seconds that it took.
    """
    return sa.update(_SHARED).where(_THE_ROW).values(
        **_published(profiles, cost))


def first_count(profiles, cost):
    """The same where nothing was published yet."""
    return sa.insert(_SHARED).values(id=1, **_published(profiles, cost))


def _published(profiles, cost):
    return {'counted_at': fn.epoch() - cost, 'cost': cost,
            'counting_until': 0, 'profiles': profiles}
