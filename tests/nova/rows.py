# SPDX-License-Identifier: Apache-2.0
"""Rows of ``compute_nodes``, and the hosts that a hash ring names for them."""

from nova import context
from nova import objects
from tooz import hashring


def rows():
    """All there are: ``{hypervisor_hostname: host}``."""
    return {each.hypervisor_hostname: each.host
            for each in objects.ComputeNodeList.get_all(
                context.get_admin_context())}


def ring(nodes, *hosts):
    """As rows(), for hosts that have a row per node."""
    found = hashring.HashRing(hosts, partitions=32)  # as Nova's
    return {node.id: host for node in nodes
            for host in found.get_nodes(node.id.encode())}
