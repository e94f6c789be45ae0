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
from ironic_reservations import resources
from ironic_reservations.db import engine
from ironic_reservations.db import group_rows
from ironic_reservations.fleet import search
from ironic_reservations.matching import explanation
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import searching
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import updates

#: Of how many groups the members are counted at once.
MEMBERS_AT_ONCE = 100


def create(matcher, request):
    """Hold a node for each member of a new group, or for none.

    Asking again for the same begins the leases of its members anew.

    :param matcher: matching.Matcher that each node must satisfy.
    :param request: obtain.Request with the group and its digest.
    :returns: the Group with its members, and True when this call has made it.
    :raises: NoMatchingNode; QuotaExceeded when there were enough nodes;
        Conflict when there is another group of this UUID, or a member holds
        a node already, or one that the project may use no longer;
        DeadlineExceeded.
    """
    return obtain.obtain(_New(matcher, request))


class _New(obtain.Ask):
    """An ask for all nodes of a new group."""

    # The nodes that are left do not tell whether the group is there already.
    asks_first = True

    def __init__(self, matcher, request):
        super().__init__(matcher, request)
        self._finder = searching.Finder(matcher, request.quota)

    def known(self, run):
        """The answer where the group has members already.

        :returns: None where it has none.
        :raises: Conflict when they are not this request's, or the project may
            use the node of one no longer, or an instance has a node already;
            Again when the last of them has just gone.
        """
        request = self.request
        before = membership.load(request.group.uuid)
        if before is not None and before.domains:
            return self._repeat(run, before)
        self.place = membership.Place(request.group, before)
        if run.tries:
            for carried in lookup.carried(*request.instances):
                if not carried.is_expired:
                    raise lookup.in_use(carried.instance_uuid)
        return None

    def _repeat(self, run, before):
        request = self.request
        if not (before.is_named(request.group)
                and before.request_digest == request.digest
                and before.domains.total() >= len(request.instances)
                and self.matcher.restricted_to in (None, before.project_id)):
            raise membership.in_use(before.uuid)
        group = _again(before)
        if run.unsure:
            return group, False
        restricted = self.matcher.restricted_to is not None
        if restricted:
            # All are judged before the first is renewed, because a refused
            # request changes nothing.
            for member in group.members:
                updates.check_usable(member, self.matcher.holds_unowned)
        for member in group.members:
            # What a compute host has claimed has a lease of that host's own.
            if member.host in (None, request.assignment.host) and (
                    updates.is_renewable(member, request.lease, restricted)):
                with contextlib.suppress(transaction.Again):
                    updates.change(run, member, {'lease': request.lease},
                                   events.RENEWED, member.host)
        return _again(before), False

    def sets(self):
        """See obtain.Ask."""
        finder, instances = self._finder, self.request.instances
        finder.count_candidates()
        finder.prepare(self._judge)
        nodes = self._choose()
        finder.in_vain = not nodes
        if nodes:
            yield [obtain.Pick(instance_uuid, node) for instance_uuid, node
                   in zip(instances, nodes, strict=True)]

    def _choose(self):
        """Return the nodes to hold, in the order of their ids.

        :returns: list of matching.Node; empty where there are not enough.
        """
        quota, group = self.request.quota, self.request.group
        by, remaining = group.by, quota.remaining
        matcher = quota.narrow(self.matcher)
        by_domain, taken = collections.defaultdict(list), collections.Counter()
        matches = matcher.find_profiles(self._finder.counted, by)
        plan = group_policy.plan_members(
            group.policy,
            group_policy.count_room(matches, by, matcher.fit, remaining),
            len(self.request.instances)) or {}
        for profile_group, profiles in matches:
            for profile in profiles:
                if (where := profile.find_domain(by)) in plan:
                    by_domain[where].append((profile_group, [profile]))
        chosen = []
        for where, members in plan.items():
            nodes = {}
            for node in search.find_nodes_among(
                    matcher, by_domain[where], self._finder.fresh):
                # A statement that reads many profiles also finds nodes of
                # other domains.
                counts_as = resources.limit_names(node.resource_class)
                if (group_policy.find_domain(node, by) == where
                        and node.id not in nodes
                        and taken[counts_as] < remaining(node.resource_class)):
                    nodes[node.id] = node
                    taken[counts_as] += 1
                if len(nodes) == members:
                    break
            else:
                return []
            chosen += nodes.values()
        return sorted(chosen, key=lambda node: node.id)

    def _judge(self):
        verdict = explanation.explain_group(
            self.matcher, self._finder.counted, self.request.group,
            len(self.request.instances))
        members = verdict['members']
        return verdict, members['available'] >= members['wanted']

    def answer(self, tx, reservations, picks):
        """See obtain.Ask."""
        row = tx.execute(
            group_rows.select_group(self.request.group.uuid)).one()
        for member in reservations:
            tx.emits(events.HELD, member)
        return membership.Group(**row._mapping, members=tuple(reservations))


def _again(before):
    """A group with its members, after they were read without them.

    :raises: Again when it is gone, or another has its UUID by now.
    """
    for row in engine.fetch_rows(group_rows.select_group(before.uuid)):
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
    for row in engine.fetch_rows(group_rows.select_group(uuid)):
        group = membership.Group(**row._mapping)
        authorize(group)
        members = lookup.of_group(row.id)
        if members:
            return dataclasses.replace(group, members=tuple(members))
    raise not_found(uuid)


def not_found(uuid):
    return exception.NotFound(f'No group {uuid} could be found.')


@engine.retry
def find_marker(uuid, restricted_to=None):
    """Return the id of a group that is a marker.

    :raises: InvalidInput when there is no such group.
    """
    for row in engine.fetch_rows(group_rows.select_group(uuid)):
        if restricted_to in (None, row.project_id):
            return row.id
    raise exception.InvalidInput('marker', 'must be the UUID of a group')


@engine.retry
def find(limit, restricted_to=None, after=None, room=math.inf):
    """Groups that have members, in the order in which they were begun.

    :param limit: how many at most.
    :param restricted_to: when given, only this project's.
    :param after: only those behind the group of this id; None for all.
    :param room: how many characters of the names of domains are of use; no
        more are read once there are as many.
    :returns: list of membership.Group with their ``domains``.
    """
    found, length = [], 0
    while True:
        wanted = min(limit - len(found), MEMBERS_AT_ONCE)
        rows = engine.fetch_rows(group_rows.select_live_groups(
            restricted_to, after, wanted))
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
    for group_id, domain, number in rows and engine.fetch_rows(
            group_rows.select_domains([row.id for row in rows])):
        domains[group_id][domain] = number
    return [membership.Group(**row._mapping, domains=domains[row.id])
            for row in rows if row.id in domains]
