# SPDX-License-Identifier: Apache-2.0
"""Values that Nova, Placement, the reservations and Ironic report."""

import dataclasses
import functools
import typing

#: Provision states in which a node is at rest and has an instance on its
#: disks.
DEPLOYED = ('active', 'rescue', 'rescue failed', 'unrescue failed',
            'service', 'service failed', 'service hold')


class Server(typing.NamedTuple):
    """A server of Nova.

    :param host: the compute host, or None.
    :param row: its ``hypervisor_hostname``: the host's name, or on a row per
        node the UUID of the node; None as long as it is on no host.
    :param status: ``UNKNOWN`` where its cell cannot be reached.
    :param task: its ``task_state``, or None.
    """

    host: str | None
    row: str | None
    status: str
    task: str | None = None

    @property
    def at_rest(self):
        """Return whether no operation of Nova can explain a disagreement."""
        return self.task is None and self.status not in ('BUILD', 'UNKNOWN')


class Reservation(typing.NamedTuple):
    """A reservation.

    :param node: UUID of the node.
    :param host: the compute host that holds it, or None.
    :param state: its state in the API.
    :param lapsed: whether its lease has expired.
    """

    node: str
    host: str | None
    state: str
    lapsed: bool = False


class Node(typing.NamedTuple):
    """A node of Ironic.

    :param instance: its ``instance_uuid``, or None.
    :param state: its provision state.
    :param allocated: whether it has an allocation in Ironic.
    """

    name: str | None
    instance: str | None
    state: str
    allocated: bool = False

    @property
    def is_deployed(self):
        return self.state in DEPLOYED


class Row(typing.NamedTuple):
    """A compute node of Nova, which its API calls a hypervisor.

    :param host: the compute host.
    :param name: the host's name if it is the host's one row, or the UUID of
        a node.
    :param is_down: whether Nova shows the host as down.
    """

    host: str
    name: str
    is_down: bool = False


@dataclasses.dataclass(frozen=True)
class Cloud:
    """All values of one cloud.

    :param servers: Servers by UUID.
    :param reservations: Reservations by the UUID of the instance.
    :param nodes: Nodes by UUID.
    :param rows: Rows of bare metal only, by UUID, which is also that of the
        resource provider.
    :param providers: set of the UUIDs of all resource providers.
    :param allocations: sets of UUIDs of resource providers by the UUID of
        the consumer, at least for the providers of the hosts' own rows.
    :param has_nova: False for an Ironic without Nova, which has only
        reservations and nodes.
    """

    servers: dict = dataclasses.field(default_factory=dict)
    reservations: dict = dataclasses.field(default_factory=dict)
    nodes: dict = dataclasses.field(default_factory=dict)
    rows: dict = dataclasses.field(default_factory=dict)
    providers: set = dataclasses.field(default_factory=set)
    allocations: dict = dataclasses.field(default_factory=dict)
    has_nova: bool = True

    @functools.cached_property
    def hosts(self):
        """Names of the compute hosts of bare metal."""
        return {row.host for row in self.rows.values()}

    def knows(self, host):
        """Return whether anything names a compute host."""
        return host in self.hosts or any(
            value.host == host for value in (*self.servers.values(),
                                             *self.reservations.values()))

    @functools.cached_property
    def own_rows(self):
        """UUIDs of the hosts' single rows, by the name of the host."""
        return {row.host: uuid for uuid, row in self.rows.items()
                if row.name == row.host}

    @functools.cached_property
    def up(self):
        """Names of the compute hosts whose service is up."""
        return {row.host for row in self.rows.values()
                if not row.is_down}

    @functools.cached_property
    def switched_back(self):
        """Hosts that migrated to one row, and back to a row per node.

        Only the reservations that they had made distinguish them from a host
        that never migrated. These stay until the servers are deleted.
        """
        rows = {row[:2] for row in self.rows.values()}
        return {server.host for instance, server in self.servers.items()
                if server.row in self.nodes
                and (server.host, server.row) in rows
                and server.host not in self.own_rows
                and self.holder(instance) == server.host}

    @functools.cached_property
    def machines(self):
        """UUIDs of the nodes that carry an instance, by the instance."""
        return {node.instance: uuid for uuid, node in self.nodes.items()
                if node.instance}

    def busy(self, instance):
        """Return whether Nova is working on the server of an instance."""
        return (instance in self.servers
                and not self.servers[instance].at_rest)

    def is_on_own_row(self, instance):
        """Return whether a server is at rest on its host's single row."""
        server = self.servers.get(instance)
        return (server is not None and server.at_rest
                and server.row == server.host
                and server.host in self.own_rows)

    def holder(self, instance):
        """Return the host of the reservation of an instance, or None."""
        reservation = self.reservations.get(instance)
        return reservation.host if reservation else None

    def node_name(self, uuid):
        """Return the name of a node, or its UUID if it has no name."""
        node = self.nodes.get(uuid)
        return node and node.name or uuid

    def node_state(self, uuid):
        """Return the provision state of a node, or None."""
        node = self.nodes.get(uuid)
        return node.state if node else None
