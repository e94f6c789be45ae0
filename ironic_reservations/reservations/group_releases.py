# SPDX-License-Identifier: Apache-2.0
"""Releases the members of a group, many in one transaction."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence

from oslo_db import exception as db_exc
from oslo_log import log
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import transaction

LOG = log.getLogger(__name__)

#: Number of members that are released in one transaction.
PAGE = 64


def release_group(uuid: str, authorize: Callable[[values.Group], None],
                  reach: values.Ownership) -> None:
    """Release those members of a group that may be released.

    Members that were released stay released, even if other members cannot be.

    :param authorize: raises if the caller may not release the group.
    :param reach: that of the caller.
    :raises: NotFound; Conflict and DeadlineExceeded, which say how many
        members are left, also if the database fails after some were released;
        what ``authorize`` raises.
    """
    progress = _Progress(uuid, authorize, reach)
    try:
        transaction.run_request(progress.release_members)
    except (exception.DeadlineExceeded, db_exc.DBDeadlock) as e:
        if not progress.remaining:
            raise
        raise progress.make_error(
            'the deadline of the request has passed') from e
    except (db_exc.DBConnectionError, sa.exc.OperationalError,
            sa.exc.TimeoutError) as e:
        if not progress.remaining < progress.members:
            raise
        LOG.error('The database has failed during the release of group %s',
                  uuid, exc_info=e)
        raise progress.make_error('the database cannot be used') from e
    if progress.refusals:
        raise exception.Conflict(
            f'{len(progress.refusals)} of {len(progress.members)} members of '
            f'group {uuid} cannot be released: '
            f'{next(iter(progress.refusals.values()))}')


class _Progress:
    """The state of the release of a group.

    Members are identified by the ids of their rows, because a claim replaces a
    member.

    :ivar members: ids of all members so far, including released ones; empty
        until the caller is authorized.
    :ivar remaining: ids of members that may not be released yet.
    :ivar refusals: the Conflict of each member that cannot be released, by
        its id.
    """

    def __init__(self, uuid: str,
                 authorize: Callable[[values.Group], None],
                 reach: values.Ownership) -> None:
        self._uuid, self._authorize = uuid, authorize
        self._reach = reach
        self._group_id: int | None = None
        self._has_released = False
        self.members: set[int | None] = set()
        self.remaining: set[int | None] = set()
        self.refusals: dict[int | None, exception.Conflict] = {}

    def make_error(self, reason: str) -> exception.DeadlineExceeded:
        """Return the error that says how many members remain."""
        return exception.DeadlineExceeded(
            f'{len(self.remaining)} of {len(self.members)} members of group '
            f'{self._uuid} are left, and {reason}; try again.')

    def release_members(self, run: transaction.Run) -> None:
        """Release page by page, until there is no new member."""
        if self._group_id is None:
            group = groups.get_group(self._uuid, self._authorize)
            self._group_id = group.id
            self._add(group.members)
        if run.unsure:
            # Members that were released are no longer in the group.
            self.remaining.intersection_update(
                member.id for member in lookup.find_members(self._group_id))
        while self._release_new(run, self._group_id):
            engine.check_deadline()
        if not (self._has_released or self.refusals or run.unsure):
            # A concurrent request has released all members.
            raise exception.NotFound.of(f'group {self._uuid}')

    def _release_new(self, run: transaction.Run, group_id: int) -> bool:
        """Release members that were not refused before.

        :returns: whether there were any.
        """
        last, has_new = -1, False
        while True:
            page = lookup.find_members(group_id, last, PAGE)
            self._add(page)
            members = [member for member in page
                       if member.id not in self.refusals]
            if members:
                has_new = True
                engine.check_deadline()
                self._release(run, members)
            if len(page) < PAGE:
                return has_new
            last = page[-1].node_id or last

    def _add(self, members: Iterable[values.Reservation]) -> None:
        ids = {member.id for member in members} - self.members
        self.members |= ids
        self.remaining |= ids

    def _release(self, run: transaction.Run,
                 members: Sequence[values.Reservation]) -> None:
        """Release the members that may be released."""
        releasable = []
        for member in members:
            try:
                releases.check_releasable(member, self._reach)
                releasable.append(member)
            except exception.Conflict as error:
                self.refusals[member.id] = error
        if not releasable:
            return
        try:
            releases.write_release(run, releasable, self._reach)
        except transaction.ConcurrentChange:
            # One of them has changed since it was read. The next round reads
            # all of them again.
            return
        self._has_released = True
        self.remaining.difference_update(member.id for member in releasable)
