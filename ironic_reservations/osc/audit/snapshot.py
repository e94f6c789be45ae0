# SPDX-License-Identifier: Apache-2.0
"""Values that Nova, Placement, the reservations and Ironic report."""

import dataclasses
import functools
from typing import Any
from typing import NamedTuple

from ironic_reservations.osc import client

#: Provision states in which a node is at rest and has an instance on its
#: disks.
DEPLOYED = ('active', 'rescue', 'rescue failed', 'unrescue failed',
            'service', 'service failed', 'service hold')


class Server(NamedTuple):
    """A server of Nova.

    :param host: the compute host, or None.
    :param compute_node: its ``hypervisor_hostname``: the host's name or, in
        per-node mode, the UUID of the node; None while it is on no host.
    :param status: ``UNKNOWN`` if its cell cannot be reached.
    :param task: its ``task_state``, or None.
    :param project: None if it is unknown.
    """

    host: str | None
    compute_node: str | None
    status: str
    task: str | None = None
    project: str | None = None

    @property
    def is_at_rest(self) -> bool:
        """Whether no operation of Nova can explain a disagreement."""
        return self.task is None and self.status not in ('BUILD', 'UNKNOWN')


class Reservation(NamedTuple):
    """A reservation.

    :param node: UUID of the node.
    :param host: the compute host that holds it, or None.
    :param state: its state in the API.
    :param is_expired: whether its lease has expired.
    :param project: ID of its project, or None.
    """

    node: str
    host: str | None
    state: str
    is_expired: bool = False
    project: str | None = None


class Node(NamedTuple):
    """A node of Ironic.

    :param instance: its ``instance_uuid``, or None.
    :param state: its provision state.
    :param has_allocation: whether it has an allocation in Ironic.
    :param cleaning: commands that remove what a tenant has left on a free
        node.
    :param lessee: ID of the project that leases it, or None.
    :param has_overdue_notice: whether one of its notices is overdue.
    :param cordon_project: ID of a project that has set an open cordon, or
        None.
    """

    name: str | None
    instance: str | None
    state: str
    has_allocation: bool = False
    cleaning: tuple[str, ...] = ()
    lessee: str | None = None
    has_overdue_notice: bool = False
    cordon_project: str | None = None

    @property
    def is_deployed(self) -> bool:
        return self.state in DEPLOYED


class Pool(NamedTuple):
    """A pool.

    :param project: ID of the project that may reserve its nodes.
    """

    uuid: str
    project: str


class ComputeNode(NamedTuple):
    """A compute node of Nova, which its API calls a hypervisor.

    :param host: the compute host.
    :param name: the host's name if it is the host's single compute node, or
        the UUID of a node.
    :param is_down: whether Nova shows the host as down.
    """

    host: str
    name: str
    is_down: bool = False


@dataclasses.dataclass(frozen=True)
class Cloud:
    """All values of one cloud.

    :param servers: servers by UUID.
    :param reservations: reservations by the UUID of the instance.
    :param nodes: nodes by UUID.
    :param compute_nodes: compute nodes of bare metal only, by UUID, which is
        also that of the resource provider.
    :param providers: UUID of the root of each resource provider's tree, by
        the UUID of the provider.
    :param allocations: UUIDs of resource providers by the UUID of the
        consumer, at least for the providers of one-row hosts and those below.
    :param pools: pools by the UUID of the node.
    :param has_nova: False for an Ironic without Nova, which has only
        reservations and nodes.
    """

    servers: dict[str, Server] = dataclasses.field(default_factory=dict)
    reservations: dict[str, Reservation] = dataclasses.field(
        default_factory=dict)
    nodes: dict[str, Node] = dataclasses.field(default_factory=dict)
    compute_nodes: dict[str, ComputeNode] = dataclasses.field(
        default_factory=dict)
    providers: dict[str, str] = dataclasses.field(default_factory=dict)
    allocations: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    pools: dict[str, Pool] = dataclasses.field(default_factory=dict)
    has_nova: bool = True

    @functools.cached_property
    def hosts(self) -> set[str]:
        """Names of the compute hosts of bare metal."""
        return {row.host for row in self.compute_nodes.values()}

    def knows(self, host: str) -> bool:
        """Return whether any value names a compute host."""
        return host in (
            self.hosts | {server.host for server in self.servers.values()}
            | {row.host for row in self.reservations.values()})

    @functools.cached_property
    def one_row_providers(self) -> dict[str | None, str]:
        """UUIDs of the compute nodes of one-row hosts, by host."""
        return {row.host: uuid for uuid, row in self.compute_nodes.items()
                if row.name == row.host}

    @functools.cached_property
    def hosts_up(self) -> set[str]:
        """Names of the compute hosts whose service is up."""
        return {row.host for row in self.compute_nodes.values()
                if not row.is_down}

    @functools.cached_property
    def hosts_migrated_back(self) -> set[str | None]:
        """Hosts that migrated to one-row mode, and back to per-node mode.

        Only the reservations that they had made distinguish them from a host
        that never migrated. These stay until the servers are deleted.
        """
        rows = {row[:2] for row in self.compute_nodes.values()}
        return {server.host for instance, server in self.servers.items()
                if server.compute_node in self.nodes
                and (server.host, server.compute_node) in rows
                and server.host not in self.one_row_providers
                and self.find_host(instance) == server.host}

    @functools.cached_property
    def machines(self) -> dict[str, str]:
        """UUIDs of the nodes that carry an instance, by the instance."""
        return {node.instance: uuid for uuid, node in self.nodes.items()
                if node.instance}

    def is_busy(self, instance: str) -> bool:
        """Return whether Nova is working on the server of an instance."""
        return (instance in self.servers
                and not self.servers[instance].is_at_rest)

    def is_on_one_row(self, instance: str | None) -> bool:
        """Return whether a server is at rest on a one-row host."""
        server = self.find_server(instance)
        return (server is not None and server.is_at_rest
                and server.compute_node == server.host
                and server.host in self.one_row_providers)

    def find_server(self, instance: str | None) -> Server | None:
        """Return the server of an instance, or None."""
        return self.servers.get(instance) if instance else None

    def find_reservation(self, instance: str | None) -> Reservation | None:
        """Return the reservation of an instance, or None."""
        return self.reservations.get(instance) if instance else None

    def find_allocations(self, instance: str | None) -> set[str]:
        """Return the providers from which an instance has allocations."""
        return self.allocations.get(instance, set()) if instance else set()

    def find_root(self, provider: str) -> str:
        """Return the provider of a compute node above a provider."""
        return self.providers.get(provider, provider)

    def find_host(self, instance: str | None) -> str | None:
        """Return the host that holds the node of an instance, or None."""
        reservation = self.find_reservation(instance)
        return reservation.host if reservation else None

    def format_node(self, uuid: str | None) -> str | None:
        """Return the name of a node, or its UUID if it has no name."""
        node = self.nodes.get(uuid) if uuid else None
        return node and node.name or uuid

    def find_state(self, uuid: str | None) -> str | None:
        """Return the provision state of a node, or None."""
        node = self.nodes.get(uuid) if uuid else None
        return node.state if node else None


class Finding(NamedTuple):
    """A disagreement; every field but the kind may be None.

    :param kind: a key of ``kinds.KINDS``.
    :param instance: UUID of the instance.
    :param node: UUID of the node.
    :param host: the compute host of the instance, the node or the compute
        node.
    """

    kind: str
    instance: str | None
    node: str | None
    host: str | None


class Details(NamedTuple):
    """Values for one finding, read right before the repair.

    :param cloud: a Cloud that has only these.
    :param reservation: the reservation in our API; empty without one.
    :param server: the server in Nova's API; empty without one.
    :param allocations: the allocations of the instance in Placement; empty if
        the finding has no instance.
    :param auth: how to log in to Ironic; see ``scope.find_full_auth``.
    """

    cloud: Cloud
    reservation: client.Data
    server: client.Data
    allocations: client.Data
    auth: Any
