# SPDX-License-Identifier: Apache-2.0
"""The kind of disagreement about pools."""

from collections.abc import Iterator

from ironic_reservations.osc.audit import base
from ironic_reservations.osc.audit import snapshot


class PoolConflict(base.Kind):
    """A node of a pool carries an instance of another project, because it was
    deployed through Ironic's own API or by a host with one compute node per
    node. These ignore pools.
    """

    name = 'pool-conflict'
    needs_nova = False
    instructions = ('Nothing, if the pool can wait: when the instance is '
                    'deleted, the node is free for the pool. Otherwise '
                    'replace the node in the pool with ``openstack baremetal '
                    'reservation pool replace``; the instance keeps it.')

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[base.Place]:
        for uuid, pool in cloud.pools.items():
            node = cloud.nodes.get(uuid)
            if node is None or node.instance is None:
                continue
            reservation = cloud.find_reservation(node.instance)
            server = cloud.find_server(node.instance)
            projects = [owner.project for owner in (reservation, server)
                        if owner]
            project = next(filter(None, projects), node.lessee)
            if project not in (None, pool.project):
                owner = server or reservation
                yield node.instance, uuid, owner and owner.host

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        pool = cloud.pools[str(finding.node)]
        return (f'unless pool {pool.uuid} can wait until the instance is '
                f'deleted: openstack baremetal reservation pool replace '
                f'{pool.uuid} {cloud.format_node(finding.node)}')
