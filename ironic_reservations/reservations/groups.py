# SPDX-License-Identifier: Apache-2.0
"""Groups as a whole: all members held at once or none, listed.

All nodes of a new group are held in one transaction, in the order of their
ids, in which every such transaction locks them. What it goes by was read
before; if one node was lost to another meanwhile, none is held, and the
search begins again.
"""

import collections
import contextlib
import dataclasses
import math

from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import groups as group_rows
from ironic_reservations.fleet import count
from ironic_reservations.fleet import explanation
from ironic_reservations.fleet import search
from ironic_reservations.matching import counted_as
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quota as quotas
from ironic_reservations.reservations import searching
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import updates
from ironic_reservations.reservations import values

#: Of how many groups the members are counted at once.
MEMBERS_AT_ONCE = 100


@dataclasses.dataclass(frozen=True)
class Request:
    """A new group.

    :param named: membership.Named.
    :param instances: canonical UUIDs, one for each member.
    :param request_digest: of what is asked for, to tell a repeated request.
    :param owner: values.Owner.
    :param lease: seconds, or None for no end.
    :param quota: quota.Quota, by which its members are limited.
    """

    named: membership.Named
    instances: tuple[str, ...]
    request_digest: str
    owner: values.Owner
    lease: int | None
    quota: 'quotas.Quota' = dataclasses.field(default_factory=quotas.Quota)


def create(matcher, request):
    """Hold a node for each member of a new group, or for none.

    Asking again for the same begins the leases of its members anew.

    :param matcher: matching.Matcher that each node must satisfy.
    :param request: Request.
    :returns: the Group with its members, and True when this call has made it.
    :raises: NoMatchingNode; QuotaExceeded when there were enough nodes;
        Conflict when there is another group of this UUID, or a member holds
        a node already, or one that the project may use no longer;
        DeadlineExceeded.
    """
    return obtain.obtain(_New(matcher, request))


class _New(searching.Searched):
    """An ask for all nodes of a new group: see ``obtain``."""

    # The nodes that are left do not tell whether the group is there already.
    asks_first = True

    def __init__(self, matcher, request):
        super().__init__()
        self.matcher, self.quota = matcher, request.quota
        self.owner, self.lease = request.owner, request.lease
        self.request_digest = request.request_digest
        self._named, self._instances = request.named, request.instances

    def known(self, run):
        """The answer where the group has members already.

        :returns: None where it has none.
        :raises: Conflict when they are not this request's, or the project may
            use the node of one no longer, or an instance has a node already;
            Again when the last of them has just gone.
        """
        before = membership.load(self._named.uuid)
        if before is not None and before.domains:
            return self._repeat(run, before)
        self.place = membership.Place(self._named, before)
        if run.tries:
            for carried in lookup.carried(*self._instances):
                if not carried.lapsed:
                    raise lookup.in_use(carried.instance_uuid)
        return None

    def _repeat(self, run, before):
        own = _key(before.id) in run.pending
        if not own and not (
                before.is_named(self._named)
                and before.request_digest == self.request_digest
                and before.domains.total() >= len(self._instances)
                and self.matcher.restricted_to in (None, before.project_id)):
            raise membership.in_use(before.uuid)
        group = _again(before)
        if own:
            run.settle(_key(before.id))
            return group, True
        restricted = self.matcher.restricted_to is not None
        if restricted:
            # All are judged before the first is renewed, because a refused
            # request changes nothing.
            for member in group.members:
                updates.check_usable(member, self.matcher.holds_unowned)
        for member in group.members:
            # What a compute host has claimed has a lease of that host's own.
            if member.host in (None, self.owner.host) and updates.is_renewable(
                    member, self.lease, restricted):
                with contextlib.suppress(transaction.Again):
                    updates.change(run, member, {'lease': self.lease},
                                   events.RENEWED, member.host)
        return _again(before), False

    def sets(self):
        """See ``obtain``."""
        named = self.matcher.spec.candidate_nodes
        if named and self.counted is None:
            self.counted, self.fresh = count.fresh(named), True
        self.prepare()
        nodes = self._choose()
        self.in_vain = not nodes
        if nodes:
            yield [obtain.Pick(instance_uuid, node) for instance_uuid, node
                   in zip(self._instances, nodes, strict=True)]

    def _choose(self):
        """The nodes to hold, in the order of their ids.

        :returns: list of matching.Node; empty where there are not enough.
        """
        by, policy = self._named.by, self._named.policy
        matcher = self.quota.narrow(self.matcher)
        remaining = self.quota.remaining
        by_domain, taken = collections.defaultdict(list), collections.Counter()
        matches = matcher.matching(self.counted, by)
        plan = group_policy.plan(
            policy,
            group_policy.capacities(matches, by, matcher.fit, remaining),
            len(self._instances)) or {}
        for kind, profiles in matches:
            for profile in profiles:
                if (where := profile.domain(by)) in plan:
                    by_domain[where].append((kind, [profile]))
        chosen = []
        for where, members in plan.items():
            found = {}
            for node in search.among(matcher, by_domain[where], self.fresh):
                # A statement that reads many profiles also finds nodes of
                # other domains.
                counts_as = counted_as(node.resource_class)
                if (group_policy.domain(node, by) == where
                        and node.id not in found
                        and taken[counts_as] < remaining(node.resource_class)):
                    found[node.id] = node
                    taken[counts_as] += 1
                if len(found) == members:
                    break
            else:
                return []
            chosen += found.values()
        return sorted(chosen, key=lambda node: node.id)

    def verdict(self):
        """See searching.Searched."""
        found = explanation.verdict_on_group(
            self.matcher, self.counted, self._named, len(self._instances))
        members = found['members']
        return found, members['available'] >= members['wanted']

    def record_events(self, tx, group_id, reservations, picks):
        """See ``obtain``."""
        row = tx.execute(group_rows.group(self._named.uuid)).one()
        for member in reservations:
            tx.emits(_key(group_id), events.HELD, member)
        return membership.Group(**row._mapping, members=tuple(reservations))


def _key(group_id):
    """The key of the events of a group in Run.pending."""
    return 'group', group_id


def _again(before):
    """A group with its members, after they were read without them.

    :raises: Again when it is gone, or another has its UUID by now.
    """
    for row in engine.rows(group_rows.group(before.uuid)):
        members = lookup.of_group(row.id)
        if row.id == before.id and members:
            return membership.Group(**row._mapping, members=tuple(members))
    raise transaction.Again()


@engine.retry
def get(uuid, authorize=lambda group: None):
    """A group with its members.

    :param authorize: called with the Group, without its members, before they
        are read, because the time that they take would tell the caller of a
        group that it may not see. It raises when the caller may not do this
        to the group.
    :returns: membership.Group.
    :raises: NotFound when there is none, or none of its members is left; what
        ``authorize`` raises.
    """
    for row in engine.rows(group_rows.group(uuid)):
        group = membership.Group(**row._mapping)
        authorize(group)
        members = lookup.of_group(row.id)
        if members:
            return dataclasses.replace(group, members=tuple(members))
    raise not_found(uuid)


def not_found(uuid):
    return exception.NotFound(f'No group {uuid} could be found.')


@engine.retry
def find(limit, restricted_to=None, marker=None, room=math.inf):
    """Groups that have members, in the order in which they were begun.

    :param limit: how many at most.
    :param restricted_to: when given, only this project's.
    :param marker: UUID of the last group of the page before.
    :param room: how many characters of the names of domains are of use; no
        more are read once there are as many.
    :returns: list of membership.Group with their ``domains``.
    :raises: InvalidInput when there is no such marker.
    """
    after = None
    if marker is not None:
        found = engine.rows(group_rows.group(marker))
        if not found or restricted_to not in (None, found[0].project_id):
            raise exception.InvalidInput('marker',
                                         'must be the UUID of a group')
        after = found[0].id
    found, length = [], 0
    while True:
        wanted = min(limit - len(found), MEMBERS_AT_ONCE)
        rows = engine.rows(group_rows.live_groups(restricted_to, after,
                                                  wanted))
        # Members may go between the two statements; a page that is not full
        # would be taken for the last one.
        for each in _counted(rows):
            found.append(each)
            length += sum(len(name or '') for name in each.domains)
        if len(rows) < wanted or len(found) == limit or length > room:
            return found
        after = rows[-1].id


def _counted(rows):
    """membership.Group of each of those rows that have members."""
    domains = collections.defaultdict(collections.Counter)
    for group_id, domain, number in rows and engine.rows(
            group_rows.domains([row.id for row in rows])):
        domains[group_id][domain] = number
    return [membership.Group(**row._mapping, domains=domains[row.id])
            for row in rows if row.id in domains]
