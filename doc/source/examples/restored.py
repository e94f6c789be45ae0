# SPDX-License-Identifier: Apache-2.0
"""Print the nodes that are some server's in Neutron, and not in Ironic.

It reads lines of a node's UUID, its name and its instance's UUID, and prints
lines of a name and the server's UUID. Ironic itself has bound the server's
port to the node, when it has built the server.
"""

import sys

import openstack
from oslo_utils import uuidutils

nodes = {}
for line in sys.stdin:
    uuid, name, instance = line.split()
    nodes[uuid] = name if name != 'None' else uuid, instance
# Ironic has ports of its own, to clean a node and so on.
ports = [port for port in openstack.connect().network.ports()
         if (port.device_owner or '').startswith('compute:')]
for port in ports:
    node = port.binding_host_id or ''
    name, instance = nodes.get(node, (node, None))
    if node in nodes and instance != port.device_id:
        print(name, port.device_id)
    # Else it is the name of a host, on which there are virtual machines.
    elif node not in nodes and uuidutils.is_uuid_like(node):
        print(node, port.device_id, 'not in Ironic')
print(len(nodes), 'nodes,', len(ports), 'ports of servers', file=sys.stderr)
if not (nodes and ports):
    sys.exit('It was asked in the wrong scope, or there are none.')
