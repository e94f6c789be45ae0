# SPDX-License-Identifier: Apache-2.0
"""The verdict on a request: whether nodes match it, and why others do not."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from ironic_reservations import values

#: Added to the message for a caller who sees no node. Usually it is a compute
#: service whose user has a role in a project instead of the system.
SEES_NONE = (' A project sees the nodes that it owns, leases or has in a '
             'pool; compute services need a user with system scope, or with '
             'the service role in the service project if '
             'rbac_service_role_elevated_access is set.')


@dataclasses.dataclass(frozen=True)
class Nearest:
    """The constraint without which most nodes could be held.

    For a pack or a group with segments, it may be the best domain.

    :param by: name of the constraint, or key of the domain.
    :param nodes: number of nodes that could be held, or of members.
    :param value: the domain.
    :param segments: number of segments that the domain has room for.
    """

    by: str
    nodes: int
    value: str | None = None
    segments: int | None = None


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why nodes do not match a request.

    :param considered: number of nodes that the caller sees.
    :param eliminated: numbers of nodes by the first constraint that they do
        not satisfy, otherwise by the reason why they cannot be held. Each
        node counts once.
    :param nearest: None if no constraint makes a difference.
    :param unknown: candidates of the request, if none of them is the name or
        the UUID of a node that its project may know.
    """

    considered: int
    eliminated: Mapping[str, int]
    nearest: Nearest | None = None
    unknown: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Room:
    """The numbers of members or segments that a new group wants and can have.
    """

    wanted: int
    available: int


@dataclasses.dataclass(frozen=True)
class Quota:
    """A limit that a request exceeds.

    :param resource: name of the limit in Keystone.
    :param limit: number of nodes that the project may reserve.
    :param used: number of nodes that it has reserved.
    :param requested: number of nodes that the request adds.
    """

    resource: str
    limit: int
    used: int
    requested: int


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a fleet has the nodes for a request.

    :param matching_nodes: number of nodes that match and can be held now.
        The quota may exclude them if the request is for a group.
    :param members: None for a single node.
    :param segment_size: number of members in each segment of a group with
        segments; otherwise None.
    :param level: key of the domains that have too little room for segments.
    :param domains: each domain with room, as the API shows it, and its number
        of nodes, most nodes first; None for a single node.
    :param quota: limit that alone prevents the request, or None.
    :param retry: whether nodes matched, but were locked or taken at that
        moment, so that the same request may succeed a second later.
    :param reach: the nodes that the caller sees.
    :param ignored: keys of extra specs that are not compared with nodes.
    """

    matching_nodes: int
    explanation: Explanation
    members: Room | None = None
    segment_size: int | None = None
    level: str | None = None
    domains: tuple[tuple[Any, int], ...] | None = None
    quota: Quota | None = None
    retry: bool = False
    reach: values.Ownership = values.ALL
    ignored: tuple[str, ...] = ()

    @property
    def is_enough(self) -> bool:
        """Return whether the request can be fulfilled."""
        if self.members is not None:
            return self.members.available >= self.members.wanted
        return self.matching_nodes > 0

    @property
    def segments(self) -> Room | None:
        """Return the room for segments; None for a group without them."""
        if self.members is None or self.segment_size is None:
            return None
        return Room(self.members.wanted // self.segment_size,
                    self.members.available // self.segment_size)

    def __str__(self) -> str:
        """Return why the request is refused."""
        explanation, members = self.explanation, self.members
        steps = [f'{name} eliminates {number}'
                 for name, number in explanation.eliminated.items()]
        return (
            ('No free node matches the request' if members is None
             or self.is_enough else f'{members.available} of {members.wanted} '
                                    f'members can be held at once')
            + f': of {explanation.considered} nodes, '
            + (', '.join(steps[:5]) or 'none can be seen')
            + (', and more.' if len(steps) > 5 else '.')
            + (f' No node has the name or UUID '
               f'{", ".join(explanation.unknown[:5])}.'
               if explanation.unknown else '')
            + (SEES_NONE if self.reach.is_limited
               and not explanation.considered else ''))
