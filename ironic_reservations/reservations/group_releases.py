# SPDX-License-Identifier: Apache-2.0
"""The members of a group are released, many in a transaction."""

from oslo_db import exception as db_exc
from oslo_log import log
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import transaction

LOG = log.getLogger(__name__)

#: How many members of a group are released in one transaction.
PAGE = 64


def release(uuid, authorize, restricted):
    """Release those members of a group that may be released.

    Many go in one transaction. What is released stays so if others are left.

    :param authorize: called with the Group; it raises when the caller may
        not release it.
    :param restricted: see releases.release.
    :raises: NotFound; Conflict and DeadlineExceeded, which say how many are
        left, also where the database fails after some were released; what
        ``authorize`` raises.
    """
    progress = _Progress(uuid, authorize, restricted)
    try:
        transaction.attempts(progress.go_on)
    except (exception.DeadlineExceeded, db_exc.DBDeadlock) as e:
        if not progress.left:
            raise
        raise progress.unfinished('the time of the request is over') from e
    except (db_exc.DBConnectionError, sa.exc.OperationalError,
            sa.exc.TimeoutError) as e:
        if not progress.left < progress.seen:
            raise
        LOG.error('The database fails while group %s is released', uuid,
                  exc_info=e)
        raise progress.unfinished('the database cannot be used') from e
    if progress.refused:
        raise exception.Conflict(
            f'{len(progress.refused)} of {len(progress.seen)} members of '
            f'group {uuid} cannot be released: '
            f'{next(iter(progress.refused.values()))}')


class _Progress:
    """How far the release of a group has come.

    Members are told apart by the ids of their rows, because a member that an
    instance claims meanwhile is another one.

    :ivar seen: the ids of all members met so far, released ones included;
        empty until the caller was authorized.
    :ivar left: those of them that are not known to be released.
    :ivar refused: those that may not be released, and the Conflict of each.
    """

    def __init__(self, uuid, authorize, restricted):
        self._uuid, self._authorize, self._bound = uuid, authorize, restricted
        self._group = None
        self.seen, self.left, self.refused = set(), set(), {}

    def unfinished(self, why):
        """The error that says how far it came.

        :returns: exception.DeadlineExceeded.
        """
        return exception.DeadlineExceeded(
            f'{len(self.left)} of {len(self.seen)} members of group '
            f'{self._uuid} are left, and {why}; try again.')

    def go_on(self, run):
        """Release page by page, until a round through them finds no more."""
        if self._group is None:
            self._group = groups.get(self._uuid, self._authorize)
            self._meet(self._group.members)
        if run.unsure:
            # What was released is not among the members any more.
            self.left.intersection_update(
                each.id for each in lookup.of_group(self._group.id))
        while self._round(run):
            engine.check_deadline()

    def _round(self, run):
        """Whether there were members that had not been refused before."""
        behind, found = -1, False
        while True:
            page = lookup.of_group(self._group.id, behind, PAGE)
            self._meet(page)
            untried = [each for each in page if each.id not in self.refused]
            if untried:
                found = True
                engine.check_deadline()
                self._release(run, untried)
            if len(page) < PAGE:
                return found
            behind = page[-1].node_id

    def _meet(self, members):
        new = {each.id for each in members} - self.seen
        self.seen |= new
        self.left |= new

    def _release(self, run, page):
        """Release those of a page that may be released."""
        allowed = []
        for each in page:
            try:
                releases.check(each, self._bound)
                allowed.append(each)
            except exception.Conflict as refused:
                self.refused[each.id] = refused
        if not allowed:
            return
        try:
            releases.let_go(run, allowed, self._bound)
        except transaction.Again:
            # One of them is no longer as it was read. The next round reads
            # all of them again.
            return
        self.left.difference_update(each.id for each in allowed)
