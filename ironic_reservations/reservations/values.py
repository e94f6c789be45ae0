# SPDX-License-Identifier: Apache-2.0
"""Values that describe a reservation: its node, its state and its user."""

import dataclasses
import datetime
import typing

from ironic_reservations import constants

#: Provision states in which a node without an instance can be released.
RELEASABLE = ('available', 'manageable', 'enroll', 'clean failed',
              'inspect failed')

#: Provision states in which a node is at rest, with or without an instance.
AT_REST = ('available', 'manageable', 'active', 'rescue', 'deploy failed',
           'error', 'adopt failed', 'rescue failed', 'unrescue failed',
           'service failed', 'clean failed', 'inspect failed')


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
    :param request_spec: canonical JSON text of the request.
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
    maintenance: bool | None = None
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
    def state(self) -> str:
        """State of the reservation, one of ``constants.STATES``."""
        return find_state(self.provision_state)

    @property
    def effective_expiry(self) -> datetime.datetime | None:
        """Time at which it expires, or None if it does not.

        Only a reserved node expires. The row of a deployed one may still have
        an expiry time, at which nothing is done.
        """
        return self.expires_at if self.state == 'reserved' else None


def find_state(provision_state: str | None) -> str:
    """Return the state of a reservation, one of ``constants.STATES``."""
    for state, provision_states in constants.PROVISION_STATES.items():
        if provision_state in provision_states:
            return state
    return constants.STATES[-1]


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
