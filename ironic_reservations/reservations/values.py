# SPDX-License-Identifier: Apache-2.0
"""What a reservation is, in which states, and for whom: values alone."""

import dataclasses
import datetime
import typing

from ironic_reservations import constants

#: In these a node is at rest and bears no instance: it may be let go.
RELEASABLE = ('available', 'manageable', 'enroll', 'clean failed',
              'inspect failed')

#: In these it is at rest, whether or not it bears an instance.
AT_REST = ('available', 'manageable', 'active', 'rescue', 'deploy failed',
           'error', 'adopt failed', 'rescue failed', 'unrescue failed',
           'service failed', 'clean failed', 'inspect failed')


@dataclasses.dataclass(frozen=True)
class Assignment:
    """For whom a node is reserved. A request gives it, and it is stored.

    A column of this kind that requests give is added here: every write and
    every read takes it from here.
    """

    host: str | None = None
    project_id: str | None = None
    user_id: str | None = None


@dataclasses.dataclass(frozen=True)
class Reservation(Assignment):
    """A node held for an instance, as it is now.

    An attribute that was not read is None, such as the request spec wherever
    more than one reservation is read and none is compared or shown.

    :param id: primary key, never used again.
    :param provision_state: Ironic's word for where the node is.
    :param resource_class: of the node, as Ironic spells it.
    :param node_owner: the project that owns the node, or None.
    :param node_lessee: the project that leases the node, or None.
    :param request_spec: canonical JSON text of what was asked for.
    :param lock: the conductor that has the node's lock, or None.
    :param is_allocated: whether the node has an allocation of Ironic's.
    :param is_touched: whether something has begun on the node.
    :param is_expired: whether the lease is over and the node is free again.
    :param expires_at: what is stored: see ``ends_at``.
    :param group_id: the row of the group that it is a member of, or None.
    :param domain: of the node in that group: see group_policy.find_domain.
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
    group_uuid: str | None = None
    group_policy: str | None = None
    group_by: str | None = None

    @property
    def state(self):
        """One of ``constants.STATES``."""
        return state_of(self.provision_state)

    @property
    def ends_at(self):
        """When its lease is over, which is told as ``expires_at``.

        It is None where the reservation does not end by itself. Of a node
        that is past ``reserved`` the time of the lease may still be stored,
        but nothing will be done when it comes.
        """
        return self.expires_at if self.state == 'reserved' else None


def state_of(provision_state):
    """Return the state, one of ``constants.STATES``, of a reservation."""
    for state, provision_states in constants.PROVISION_STATES.items():
        if provision_state in provision_states:
            return state
    return constants.STATES[-1]


class Actor(typing.NamedTuple):
    """The compute host in whose name a request writes.

    :param host: its name; None where the caller names no host.
    :param holder: UUID of the process that says it is this host. A request
        of another process than the one that holds the host's lease is
        refused. None for a caller who does not say it, and is not refused.
    """

    host: str | None = None
    holder: str | None = None


#: The actor of a request that writes in no host's name.
NOBODY = Actor()
