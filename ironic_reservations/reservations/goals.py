# SPDX-License-Identifier: Apache-2.0
"""What a request needs, the search for it, and why there is nothing to find.

A hold, a new group, a new pool and the replacement of a pool's node search
with a goal, in the loop of ``transaction``. A dry run only explains a goal,
and a claim, which reads its few nodes, needs none.

The search refuses a request only by a count of the fleet that began after the
request. If such a count has matching nodes, but the search finds none, they
are read again: this read shows whether they have malformed properties, or are
excluded by the quota, or were taken in between, in which case the request
searches again. The transaction may also refuse it, because of its quota.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import time

from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import verdicts
from ironic_reservations.fleet import comparison
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import domains
from ironic_reservations.fleet import explanation
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import search
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import quotas
from ironic_reservations.shared import resources

#: Number of times that a request searches again because concurrent requests
#: have taken the nodes that a fresh count calls free.
MAX_TAKEN = 3

#: Maximum number of reservations that a request expires when it has counted
#: the fleet.
EXPIRED_AT_ONCE = 20


@dataclasses.dataclass(frozen=True)
class Goal:
    """The nodes that a request needs.

    :param matcher: each node must satisfy it.
    :param members: number of nodes of a new group or pool, which are chosen
        together; None for one node.
    :param levels: those of the new group or pool.
    :param usage: of the limits of the project.
    :param place: the group that the nodes join, as it was read, or the new
        group. Its policy narrows the choice of one node.
    """

    matcher: matching.Matcher
    members: int | None = None
    levels: group_policy.Levels = group_policy.Levels()
    usage: quotas.Usage = quotas.Usage()
    place: membership.Place = membership.Place()

    def narrow(self, fleet: profiles.Fleet, with_limits: bool = False
               ) -> matching.Matcher:
        """Return the matcher of the nodes that the group's policy allows.

        :param with_limits: whether also the limits have to allow them.
        """
        matcher = self.matcher
        if with_limits:
            matcher = self.usage.narrow(matcher, self.members or 1)
        # The members of a new group are chosen together, by its levels.
        return (self.place.narrow(matcher, fleet) if self.members is None
                else matcher)

    def choose(self, fleet: profiles.Fleet
               ) -> Iterator[Sequence[matching.Node]]:
        """Yield the nodes to take together, the best first.

        Stop iterating after taking them. Requesting the next ones means that
        one of them was lost to another request.
        """
        matcher = self.narrow(fleet, with_limits=True)
        if self.members is not None:
            yield from domains.find_members(
                matcher, fleet, self.levels, self.members)
            return
        for node in search.find_nodes(matcher, fleet):
            yield [node]

    def explain(self, fleet: profiles.Fleet) -> verdicts.Verdict:
        """Return whether a fleet has the nodes, and why the others do not do.

        Nodes that the limits exclude do not match. If only with them there
        would be enough, the verdict has the quota.
        """
        matcher = self.narrow(fleet)
        verdict = self._explain(matcher, fleet)
        limited_matcher = self.narrow(fleet, with_limits=True)
        if not verdict.is_enough or limited_matcher == matcher:
            return verdict
        limited_verdict = self._explain(limited_matcher, fleet)
        return (limited_verdict if limited_verdict.is_enough else
                dataclasses.replace(limited_verdict, quota=self.usage.explain(
                    comparison.find_profiles(matcher, fleet),
                    self.members or 1)))

    def _explain(self, matcher: matching.Matcher, fleet: profiles.Fleet
                 ) -> verdicts.Verdict:
        return (explanation.explain_request(matcher, fleet)
                if self.members is None else explanation.explain_group(
                    matcher, fleet, self.levels, self.members))


class Search:
    """The search of one request, over all its attempts.

    Each attempt goes this way, with a Goal of what it has just read:

    1. Count the fleet. A recent count is sufficient at first, and until it
       has nothing more to yield. A node that is named needs none.
    2. If nothing was found before, count again, and explain the new count: a
       request that it does not satisfy is refused.
    3. Yield nodes, the best first. The caller tries to take them.
    4. If there was none, although a fresh count has them, read them again, and
       explain a corrected copy of the count: the request is refused, unless
       the copy has enough, or they have just been taken or locked.
    5. The caller starts over.

    The nodes that an attempt has lost, and the deadline, are kept by
    ``db.engine`` for all of them.
    """

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._fleet: profiles.Fleet | None = None
        # Whether the count began after this request, which others may share.
        self._is_fresh = False
        # Whether the last attempt has found nothing.
        self._found_nothing = False
        # Number of times that the nodes of a fresh count were taken before the
        # search found them.
        self._taken = 0

    def find(self, goal: Goal) -> Iterator[Sequence[matching.Node]]:
        """Yield the nodes to take together, the best first.

        :raises: NoMatchingNode; QuotaExceeded if only a limit excludes nodes;
            DeadlineExceeded if only locked nodes are left.
        """
        if self._fleet is None:
            self._fleet = self._count(goal)
        elif self._found_nothing:
            self._fleet = self._recount(goal)
        is_empty = True
        for nodes in goal.choose(self._fleet):
            self._found_nothing = is_empty = False
            yield nodes
        self._found_nothing = is_empty
        if is_empty and self._is_fresh:
            self._check(goal, self._fleet)

    def _count(self, goal: Goal) -> profiles.Fleet:
        spec, use = goal.matcher.spec, goal.matcher.use
        if use != matching.TO_HOLD:  # To join a pool.
            expiry.expire_leases()
        elif not spec.candidate_nodes:
            fleet, is_new = counts.get_recent_fleet()
            if is_new:
                expiry.expire_leases(EXPIRED_AT_ONCE)
            return fleet
        elif goal.members is None:
            return profiles.Fleet(())
        self._is_fresh = True
        return counts.get_fresh_fleet(spec.candidate_nodes, use=use)

    def _recount(self, goal: Goal) -> profiles.Fleet:
        """Count the fleet again, and check that it has enough nodes.

        :raises: NoMatchingNode; DeadlineExceeded.
        """
        expiry.expire_leases()
        fleet = counts.get_fresh_fleet(
            goal.matcher.spec.candidate_nodes,
            None if self._is_fresh else self._start, goal.matcher.use)
        self._is_fresh = True
        verdict = goal.explain(fleet)
        # Whether the quota alone is the cause is decided by reading the nodes.
        if not verdict.is_enough and verdict.quota is None:
            search.check_lost(goal.narrow(fleet))
            raise exception.NoMatchingNode(dataclasses.replace(
                verdict, retry=verdict.retry or self._taken > 0))
        return fleet

    def _check(self, goal: Goal, fleet: profiles.Fleet) -> None:
        """Read the nodes of a fresh count after a search found none of them.

        :raises: NoMatchingNode, QuotaExceeded; DeadlineExceeded; nothing if
            the request should search again.
        """
        matcher = goal.narrow(fleet)
        search.check_lost(matcher)
        verdict = goal.explain(fleet)
        if not verdict.is_enough and verdict.quota is None:
            return
        copy, is_taken = search.correct_count(
            matcher, goal.narrow(fleet, with_limits=True), fleet)
        verdict = goal.explain(copy)
        if verdict.is_enough:
            return
        if is_taken and self._taken < MAX_TAKEN:
            self._taken += 1
            return
        # Another limit allows nodes of other classes, which were taken.
        if verdict.quota is not None and (
                not is_taken or verdict.quota.resource
                in resources.limit_names(goal.matcher.spec.resource_class)):
            raise exception.QuotaExceeded(verdict.quota)
        raise exception.NoMatchingNode(dataclasses.replace(
            verdict, retry=verdict.retry or is_taken))
