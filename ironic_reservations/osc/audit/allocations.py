# SPDX-License-Identifier: Apache-2.0
"""Kinds of disagreement about allocations and resource providers."""

from ironic_reservations.osc import client
from ironic_reservations.osc.audit import base
from ironic_reservations.osc.audit import repairs


class NoAllocation(base.Kind):
    """A server on its host's single compute node has no allocation in
    Placement.
    """

    name = 'no-allocation'
    instructions = ('Nothing: if its host holds the node, a periodic task of '
                    'the host makes the allocation again.')
    exclusions = ('A server whose node another host holds, because that host '
                  'is going to take the server over.')

    def find(self, cloud):
        for instance, server in cloud.servers.items():
            # A failed build without a machine needs none.
            if (cloud.is_on_own_row(instance)
                    and not cloud.allocations.get(instance)
                    and (server.status != 'ERROR'
                         or instance in cloud.machines.keys()
                         | cloud.reservations.keys())):
                yield instance, cloud.machines.get(instance), server.host

    def advice(self, cloud, finding):
        # The host of the server does not hold its node, which is a finding
        # of another kind.
        return f'wait: host {finding.host} makes it again'

    def may_repair(self, cloud, finding):
        # The same condition under which a host makes an allocation.
        return (cloud.is_on_own_row(finding.instance)
                and cloud.holder(finding.instance) == finding.host
                # Nova may be about to move allocations from two providers to
                # one of them.
                and len(cloud.allocations.get(finding.instance, ())) < 2)

    def repair(self, cmd, now, finding):
        """Allocate what the flavor requests, if the host of the server holds
        its node. The host does the same some time later.
        """
        allocations = [*now.allocations['allocations'].values()]
        repairs.put_allocations(
            cmd, now, finding.instance,
            {now.cloud.own_rows[finding.host]: {
                'resources': (allocations[0]['resources'] if allocations
                              else repairs.resources_of(now.server))}},
            now.server['tenant_id'], now.server['user_id'])
        return f'allocated from the provider of host {finding.host}'


class WrongAllocation(NoAllocation):
    """A server on its host's single compute node has an allocation from
    another provider, alone or in addition. Or a host's provider has an
    allocation for a server that does not exist in Nova.
    """

    name = 'wrong-allocation'
    instructions = ('``openstack resource provider allocation unset`` with '
                    'the providers that are not the host\'s. For a server '
                    'that does not exist, ``openstack resource provider '
                    'allocation delete``.')
    exclusions = ('Allocations from two providers, because Nova may be '
                  'moving the server; those of a missing server whose node '
                  'is still reserved or deployed, because there is no room '
                  'for another server; and those of migrations.')

    def find(self, cloud):
        for instance, providers in cloud.allocations.items():
            server = cloud.servers.get(instance)
            if server is None:
                for uuid in sorted(providers & cloud.rows.keys()):
                    yield instance, None, cloud.rows[uuid].host
            # While a server is brought from a row per node to the host's one
            # row, its allocation may be from either of the two providers.
            elif server.at_rest and providers - {
                    cloud.own_rows.get(server.host), server.row}:
                yield instance, cloud.machines.get(instance), server.host

    def advice(self, cloud, finding):
        instance = finding.instance
        server = cloud.servers.get(instance)
        if server is None:
            if instance in cloud.machines:
                return base.undeploy(cloud, cloud.machines[instance])
            return (f'unless it is of a virtual machine: openstack resource '
                    f'provider allocation delete {instance}')
        providers = sorted(cloud.allocations[instance]
                           - {cloud.own_rows.get(server.host)})
        return ('openstack resource provider allocation unset '
                + ''.join(f'--provider {uuid} ' for uuid in providers)
                + instance)

    def may_repair(self, cloud, finding):
        if finding.instance in cloud.servers:
            return super().may_repair(cloud, finding)
        return (finding.instance not in cloud.reservations
                and finding.instance not in cloud.machines
                and cloud.allocations[finding.instance] <= cloud.rows.keys())

    def repair(self, cmd, now, finding):
        """Allocate from the provider of the server's host, if that host holds
        the node. Delete the allocation of a server that does not exist.
        """
        if now.server:
            return super().repair(cmd, now, finding)
        compute = cmd.app.client_manager.sdk_connection.compute
        if any(migration.uuid == finding.instance
               for migration in compute.migrations()):
            raise repairs.Refusal('it is that of a migration')
        repairs.put_allocations(
            cmd, now, finding.instance, {}, now.allocations['project_id'],
            now.allocations['user_id'])
        return 'deleted'


class StaleRow(base.Kind):
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
                  'with allocations, because somebody may need them; and '
                  'all while a cell of Nova does not answer, because it may '
                  'have the compute node.')

    def find(self, cloud):
        rows = {server.row for server in cloud.servers.values()}
        for row in cloud.rows.values():
            if (row.name != row.host and row.host in cloud.own_rows
                    and row.name not in rows):
                yield None, row.name, row.host
        # The provider of a row per node has the UUID of the node.
        for uuid in cloud.nodes:
            if uuid in cloud.providers and uuid not in cloud.rows:
                yield None, uuid, None

    def advice(self, cloud, finding):
        return f'wait: host {finding.host} deletes it in a periodic task'

    def may_repair(self, cloud, finding):
        # A provider that has a row is deleted by the host, with the row.
        return finding.host is None

    def repair(self, cmd, now, finding):
        """Delete the provider of a node for which Nova has no compute node,
        if nothing is allocated from it.
        """
        compute = cmd.app.client_manager.sdk_connection.compute
        if any(service.status == 'UNKNOWN' for service in compute.services()):
            raise repairs.Refusal(
                'a cell does not answer, and may have the row')
        client.placement(cmd, f'/resource_providers/{finding.node}', 'DELETE')
        return 'its provider is deleted'
