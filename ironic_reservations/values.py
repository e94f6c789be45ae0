# SPDX-License-Identifier: Apache-2.0
"""Values that describe a reservation: its node, its state and its user."""

import collections
import dataclasses
import datetime
import functools
import typing

from ironic_reservations.shared import constants

#: Provision states in which a node without an instance can be released.
RELEASABLE = ('available', 'manageable', 'enroll', 'clean failed',
              'inspect failed')

#: Provision states in which a node is at rest, with or without an instance.
AT_REST = ('available', 'manageable', 'active', 'rescue', 'deploy failed',
           'error', 'adopt failed', 'rescue failed', 'unrescue failed',
           'service failed', 'clean failed', 'inspect failed')

#: A time in a request: in UTC, or from now; see ``transaction.find_time``.
Time = datetime.datetime | datetime.timedelta


@dataclasses.dataclass(frozen=True, kw_only=True)
class Purpose:
    """The part of a request that reservations and groups store.

    An attribute that is added here is written by holds, groups, claims and
    adoptions, and read with a reservation or a group.
    """

    project_id: str | None = None
    description: str | None = None


@dataclasses.dataclass(frozen=True)
class Assignment(Purpose):
    """For whom a node is reserved. A request gives it, and it is stored."""

    host: str | None = None
    user_id: str | None = dataclasses.field(default=None, kw_only=True)


@dataclasses.dataclass(frozen=True)
class Reservation(Assignment):
    """A reservation and its node, as they were read.

    An attribute that was not read is None. The request spec is read only to
    show it or to compare it.

    :param id: primary key, never used again.
    :param resource_class: class of the node, as Ironic spells it.
    :param node_owner: project that owns the node, or None.
    :param node_lessee: project that leases the node, or None.
    :param pool_project_id: project that has the node in a pool, or None.
    :param request_spec: canonical JSON text of the request.
    :param health: health of the node's hardware as Ironic reports it; None if
        it is unknown, also where Ironic has no such column.
    :param has_notices: whether the node has planned or open notices.
    :param lock: conductor that has locked the node, or None.
    :param is_allocated: whether an allocation of Ironic has the node.
    :param is_touched: whether work on the node has begun.
    :param is_expired: whether the lease has expired and the node is free.
    :param expires_at: stored expiry time in UTC: see ``effective_expiry``.
    :param group_id: id of the row of its group, or None.
    :param domain: domain of the node in that group: see
        ``group_policy.Levels.join_domain``.
    :param segment: number of its segment in that group, or None.
    """

    id: int | None = None
    instance_uuid: str | None = None
    node_id: int | None = None
    node_uuid: str | None = None
    node_name: str | None = None
    request_spec: str | None = None
    provision_state: str | None = None
    resource_class: str | None = None
    node_owner: str | None = None
    node_lessee: str | None = None
    pool_project_id: str | None = None
    maintenance: bool | None = None
    health: str | None = None
    has_notices: bool | None = None
    lock: str | None = None
    is_allocated: bool | None = None
    is_touched: bool | None = None
    is_expired: bool | None = None
    expires_at: datetime.datetime | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
    group_id: int | None = None
    domain: str | None = None
    segment: int | None = None
    group_uuid: str | None = None
    group_policy: str | None = None
    group_by: str | None = None
    group_segment_levels: str | None = None

    @property
    def title(self) -> str:
        """What it is called in errors."""
        return f'reservation of instance {self.instance_uuid}'

    @property
    def state(self) -> str:
        """State of the reservation, one of ``constants.STATES``."""
        return find_state(self.provision_state)

    @property
    def node_projects(self) -> tuple[str | None, ...]:
        """The projects that own, lease, and have the node in a pool."""
        return self.node_owner, self.node_lessee, self.pool_project_id

    @property
    def effective_expiry(self) -> datetime.datetime | None:
        """Time at which it expires, or None if it does not.

        Only a reserved node expires. The row of a deployed one may still have
        an expiry time, at which nothing is done.
        """
        return self.expires_at if self.state == 'reserved' else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndedReservation(Reservation):
    """A reservation that has ended.

    The name and the owner of the node are those at that moment. Its resource
    class, health and maintenance are the present ones; None if the node was
    deleted, or if the caller may not see it any more.

    :param ended_by: one of ``constants.ENDS``.
    """

    ended_at: datetime.datetime
    ended_by: str


@dataclasses.dataclass(frozen=True)
class GroupRequest(Purpose):
    """The group that a request names.

    :param uuid: canonical UUID.
    :param policy: one of ``constants.POLICIES``, or None.
    :param by: see ``group_policy.find_domain``; None without a policy.
    :param segment_levels: JSON list of the levels of a new group with
        segments; None for a group without segments. A group with segments has
        no ``policy`` and ``by``.
    :param segments: number of segments of such a group.
    :param segment: number of the segment of an existing group that a member
        joins; otherwise None.
    """

    uuid: str
    policy: str | None = None
    by: str | None = None
    segment_levels: str | None = None
    segments: int | None = None
    segment: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group(GroupRequest):
    """A group as it was read.

    :param id: primary key, never used again.
    :param generation: incremented whenever a member joins or leaves.
    :param request_digest: equal for equal requests for the group.
    :param places: number of live members by segment and domain, if it was
        read. The domain is the text of ``Levels.join_domain``.
    :param has_former_members: whether there are rows of expired or stale
        members, if it was read.
    :param health: number of live members by the health of their nodes, without
        unknown ones, if it was read.
    :param members: the live members without their request specs, if they were
        read.
    """

    id: int
    generation: int
    request_digest: str | None
    created_at: datetime.datetime
    places: collections.Counter[tuple[int | None, str | None]] = (
        dataclasses.field(default_factory=collections.Counter))
    has_former_members: bool = False
    health: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter)
    members: tuple[Reservation, ...] = ()

    #: For the policy rules, which read it of reservations: the owner of a
    #: member's node has no rights on the group.
    node_owner = None

    @property
    def title(self) -> str:
        """What it is called in errors."""
        return f'group {self.uuid}'

    @functools.cached_property
    def domains(self) -> collections.Counter[str | None]:
        """The number of live members by domain; see ``places``."""
        domains: collections.Counter[str | None] = collections.Counter()
        for (_, domain), number in self.places.items():
            domains[domain] += number
        return domains

    def satisfies(self, request: GroupRequest | None) -> bool:
        """Return whether it is the group that a request names."""
        return request is not None and all(
            getattr(self, name) == getattr(request, name) for name in (
                'policy', 'by', 'project_id', 'segment_levels', 'segments'))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoticeTexts:
    """The texts of a notice; nothing depends on them."""

    category: str | None = None
    description: str | None = None
    ticket: str | None = None
    action: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoticeTimes:
    """The times of a notice, in UTC.

    :param starts_at: when it opens.
    :param due_at: when the work should be done; it closes nothing.
    :param latest_start: until when the project that has the node may postpone
        ``starts_at``; None: not at all.
    :param ends_at: when it closes; None: not before somebody closes it.
    """

    starts_at: datetime.datetime
    due_at: datetime.datetime | None = None
    latest_start: datetime.datetime | None = None
    ends_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Notice(NoticeTexts, NoticeTimes):
    """What is wrong with a node, or will be done to it.

    :param uuid: UUID of the request; together with ``node_uuid``, of the
        notice.
    :param number: its place among the notices of the request.
    :param kind: one of ``constants.NOTICE_KINDS``.
    :param cordon: whether an open notice keeps new reservations off the node.
    :param project_id: project that has reported it while it had the node, or
        whose build has failed; None for a notice of an operator, or of the
        owner of the node.
    :param is_failed_build: whether a compute service has recorded a failed
        build on the node.
    :param created_by: user.
    :param state: one of ``constants.NOTICE_STATES``, when it was read.
    :param overdue: whether it is open, and ``due_at`` has passed.
    :param scheduled_at: when a project has chosen ``starts_at``, or None.
    :param node_owner: project that owns the node; None also if the node was
        deleted.
    :param has_node: whether the node still exists.
    """

    id: int
    uuid: str
    number: int
    kind: str
    cordon: bool
    state: str
    overdue: bool
    node_id: int
    node_uuid: str
    node_name: str | None
    node_owner: str | None
    has_node: bool
    scheduled_at: datetime.datetime | None
    project_id: str | None
    is_failed_build: bool
    created_by: str | None
    request_digest: str
    created_at: datetime.datetime
    updated_at: datetime.datetime | None

    def is_shown_to(self, holder: str | None) -> bool:
        """Return whether the project that has reserved the node sees it.

        It sees neither failed builds nor the reports of other projects.
        """
        return holder is not None and (
            holder == self.node_owner
            or self.project_id in (None, holder) and not self.is_failed_build)


@dataclasses.dataclass(frozen=True)
class NodeNotices:
    """The planned and the open notices of a node, as a response shows them.

    :param more: number of those that are not shown.
    """

    shown: tuple[Notice, ...] = ()
    more: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolNode:
    """A node of a pool.

    :param state: one of ``constants.NODE_STATES``.
    :param is_healthy: whether it is not in maintenance, its health is not
        refused, and it has no open notice other than of a failed build.
    :param domain: see ``Reservation``.
    :param reason: why it is in the pool, one of ``constants.POOL_REASONS``.
    :param replaces: UUID of the node that it has replaced, or None.
    :param instance_uuid: instance for which it is reserved, or None.
    :param project_id: project of that reservation.
    """

    id: int
    uuid: str
    name: str | None
    resource_class: str | None
    node_owner: str | None
    domain: str | None
    segment: int | None
    joined_at: datetime.datetime
    reason: str
    replaces: str | None
    state: str
    health: str | None
    is_healthy: bool
    instance_uuid: str | None
    project_id: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool(GroupRequest):
    """Nodes that only one project may reserve, as they were read.

    :param project_id: never None.
    :param request_spec: canonical JSON text of the request.
    :param request_digest: equal for equal requests for the pool.
    :param generation: incremented by every write.
    :param expires_at: in UTC; None for no expiry.
    :param nodes: in the order of their ids, if they were read.
    :param summary: numbers of nodes: ``total``, by state, and ``healthy``.
    """

    id: int
    request_spec: str
    request_digest: str
    generation: int
    expires_at: datetime.datetime | None
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    nodes: tuple[PoolNode, ...] = ()
    summary: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter)

    #: For the policy rules, as in Group.
    node_owner = None

    @property
    def title(self) -> str:
        """What it is called in errors."""
        return f'pool {self.uuid}'


def find_state(provision_state: str | None) -> str:
    """Return the state of a reservation, one of ``constants.STATES``."""
    for state, provision_states in constants.PROVISION_STATES.items():
        if provision_state in provision_states:
            return state
    return constants.STATES[-1]


@dataclasses.dataclass(frozen=True)
class Ownership:
    """Whose nodes a caller may see, or a request may hold.

    A request gets no node in a pool of another project, whatever its kind;
    the caller sees it if the project owns it.

    :param project_id: the project; None for none.
    :param kind: ``any``: all nodes. ``project``: those that the project owns,
        leases, or has in a pool. ``project_or_none``: these, and those that
        nobody owns, leases or has in a pool. ``pool``: those in its pools.
    """

    project_id: str | None = None
    kind: str = 'any'

    @property
    def is_limited(self) -> bool:
        """Whether it excludes nodes. A caller's then depends on its project.
        """
        return self.kind != 'any'

    def covers(self, *projects: str | None) -> bool:
        """Return whether it includes a node.

        :param projects: those that own the node, lease it, and have it in a
            pool; None for each that does not exist.
        """
        if self.kind == 'pool':
            return self.project_id == projects[-1]
        return (not self.is_limited or self.project_id in projects
                or self.kind == 'project_or_none' and not any(
                    project is not None for project in projects))

    def has_project(self, project_id: str | None) -> bool:
        """Return whether it includes what belongs to a project."""
        return not self.is_limited or self.project_id == project_id


#: What a caller sees who is not restricted to its project.
ALL = Ownership()


class Actor(typing.NamedTuple):
    """The compute host that sends a request.

    :param host: its name, or None if the request names no host.
    :param holder: UUID of the process that claims to serve the host. The
        request is refused unless this process holds the host's lease. None
        if the request does not name it; it is not refused then.
    """

    host: str | None = None
    holder: str | None = None


#: The actor of a request that names no host.
NOBODY = Actor()
