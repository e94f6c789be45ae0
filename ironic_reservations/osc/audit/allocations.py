# SPDX-License-Identifier: Apache-2.0
"""Kinds of disagreement about allocations and resource providers."""

from collections.abc import Iterator

from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.osc.audit import base
from ironic_reservations.osc.audit import repairs
from ironic_reservations.osc.audit import snapshot


class NoAllocation(base.Kind):
    """A server on its host's single compute node has no allocation in
    Placement.
    """

    name = 'no-allocation'
    instructions = ('Nothing: if its host holds the node, a periodic task of '
                    'the host restores the allocation.')
    exclusions = ('A server whose node another host holds, because that host '
                  'will take the server over.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for instance, server in cloud.servers.items():
            # A failed build without a node needs none.
            if (cloud.is_on_one_row(instance)
                    and not cloud.allocations.get(instance)
                    and (server.status != 'ERROR'
                         or instance in cloud.machines.keys()
                         | cloud.reservations.keys())):
                yield instance, cloud.machines.get(instance), server.host

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        # Another kind reports that the server's host does not hold its node.
        return f'wait: host {finding.host} restores it'

    def may_repair(self, cloud: snapshot.Cloud,
                   finding: snapshot.Finding) -> bool:
        # The condition under which a host restores an allocation.
        return (cloud.is_on_one_row(finding.instance)
                and cloud.find_host(finding.instance) == finding.host
                # Nova may be moving the server between two providers.
                and len(cloud.find_allocations(finding.instance)) < 2)

    def repair(self, cmd: command.Command, details: snapshot.Details,
               finding: snapshot.Finding) -> str:
        """Allocate what the flavor requests, if the host of the server holds
        its node. The host does the same in a periodic task.
        """
        allocations = [*details.allocations['allocations'].values()]
        repairs.put_allocations(
            cmd, details, finding.instance,
            {details.cloud.one_row_providers[finding.host]: {
                'resources': (allocations[0]['resources'] if allocations
                              else repairs.sum_resources(details.server))}},
            details.server['tenant_id'], details.server['user_id'])
        return f'allocated from the provider of host {finding.host}'


class WrongAllocation(NoAllocation):
    """A server on its host's single compute node has an allocation from a
    provider that is neither its host's nor below it. Or a host's provider has
    an allocation for a server that does not exist in Nova.
    """

    name = 'wrong-allocation'
    instructions = ('Unless Nova is moving the server, ``openstack resource '
                    'provider allocation unset`` with the providers that are '
                    'neither the host\'s nor below it. For a server '
                    'that does not exist, ``openstack resource provider '
                    'allocation delete``.')
    exclusions = ('Allocations from two providers, because Nova may be '
                  'moving the server; those of a missing server whose node '
                  'is still reserved or deployed, because there is no room '
                  'for another server; and those of migrations.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for instance, providers in cloud.allocations.items():
            roots = set(map(cloud.find_root, providers))
            server = cloud.servers.get(instance)
            if server is None:
                for uuid in sorted(roots & cloud.compute_nodes.keys()):
                    yield instance, None, cloud.compute_nodes[uuid].host
            # While a server migrates to the host's single compute node, its
            # allocation may be from either of the two providers.
            elif server.is_at_rest and roots - {
                    cloud.one_row_providers.get(server.host),
                    server.compute_node}:
                yield instance, cloud.machines.get(instance), server.host

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        instance = finding.instance
        server = cloud.find_server(instance)
        if server is None:
            if instance in cloud.machines:
                return base.UNLESS_IN_USE + base.format_undeploy(
                    cloud, cloud.machines[instance])
            return (f'unless it belongs to a virtual machine: openstack '
                    f'resource provider allocation delete {instance}')
        providers = ''.join(
            f'--provider {uuid} ' for uuid in sorted(
                cloud.find_allocations(instance)) if cloud.find_root(uuid)
            != cloud.one_row_providers.get(server.host))
        return (f'unless Nova is moving the server: openstack resource '
                f'provider allocation unset {providers}{instance}')

    def may_repair(self, cloud: snapshot.Cloud,
                   finding: snapshot.Finding) -> bool:
        if finding.instance in cloud.servers:
            return super().may_repair(cloud, finding)
        return (finding.instance not in cloud.reservations
                and finding.instance not in cloud.machines
                and cloud.compute_nodes.keys() >= set(map(
                    cloud.find_root,
                    cloud.find_allocations(finding.instance))))

    def repair(self, cmd: command.Command, details: snapshot.Details,
               finding: snapshot.Finding) -> str:
        """Allocate from the provider of the server's host, if that host holds
        the node. Delete the allocation of a server that does not exist.
        """
        if details.server:
            return super().repair(cmd, details, finding)
        compute = client.get_sdk(cmd).compute
        if any(migration.uuid == finding.instance
               for migration in compute.migrations()):
            raise repairs.Refusal('it belongs to a migration')
        repairs.put_allocations(
            cmd, details, finding.instance, {},
            details.allocations['project_id'],
            details.allocations['user_id'])
        return 'deleted'


class StaleComputeNode(base.Kind):
    """A host that has a single compute node also has the compute node of an
    Ironic node, and no server is on it. Or Placement has the provider of an
    Ironic node for which Nova has no compute node.
    """

    name = 'stale-row'
    instructions = ('Wait: a periodic task of the host deletes the compute '
                    'node with its provider. A provider that stays has '
                    'allocations of unknown origin: delete these, then the '
                    'provider.')
    exclusions = ('A compute node, because its host deletes it; a provider '
                  'with allocations, because they may be needed; and all '
                  'while a cell of Nova does not respond, because it may '
                  'have the compute node.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        names = {server.compute_node for server in cloud.servers.values()}
        for row in cloud.compute_nodes.values():
            if (row.name != row.host and row.host in cloud.one_row_providers
                    and row.name not in names):
                yield None, row.name, row.host
        # In per-node mode, a provider has the UUID of the node.
        for uuid in cloud.nodes:
            if uuid in cloud.providers and uuid not in cloud.compute_nodes:
                yield None, uuid, None

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        return f'wait: host {finding.host} deletes it in a periodic task'

    def may_repair(self, cloud: snapshot.Cloud,
                   finding: snapshot.Finding) -> bool:
        # The host deletes a compute node together with its provider.
        return finding.host is None

    def repair(self, cmd: command.Command, details: snapshot.Details,
               finding: snapshot.Finding) -> str:
        """Delete the provider of a node for which Nova has no compute node,
        if nothing is allocated from it.
        """
        compute = client.get_sdk(cmd).compute
        if any(service.status == 'UNKNOWN' for service in compute.services()):
            raise repairs.Refusal(
                'a cell does not respond, and may have the compute node')
        client.request_placement(
            cmd, f'/resource_providers/{finding.node}', 'DELETE')
        return 'provider deleted'
