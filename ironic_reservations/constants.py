# SPDX-License-Identifier: Apache-2.0
"""Constants that the server and its clients share."""

#: Numbers of nodes in a row of the capacity; they add up to ``total``.
NODE_STATES = ('free', 'reserved', 'taken', 'out_of_service')

#: Ironic's provision states by the state of a reservation on such a node.
PROVISION_STATES = {
    'reserved': ('available',),
    'deploying': ('deploying', 'wait call-back', 'deploy hold',
                  'deploy complete', 'rebuild'),
    'active': ('active', 'adopting', 'rescue', 'rescuing', 'rescue wait',
               'rescue failed', 'unrescuing', 'unrescue failed', 'service',
               'servicing', 'service wait', 'service failed',
               'service hold'),
    'releasing': ('deleting', 'deleted', 'undeploy'),
    'error': ('deploy failed', 'error', 'adopt failed'),
}

#: The states of a reservation. The last is for the provision states that are
#: not listed above, to which an operator has moved the node.
STATES = (*PROVISION_STATES, 'unavailable')

#: Keys by which lists of reservations are sorted.
SORT_KEYS = ('id', 'instance_uuid', 'node_uuid', 'host', 'project_id',
             'user_id', 'expires_at', 'created_at', 'updated_at')

#: How the sizes of a node compare with those of a request.
MATCHES = ('exact', 'at_least')

#: Nodes of which owners and lessees a request may have.
OWNERSHIPS = ('any', 'project', 'project_or_none')

#: No two members of a group in one domain; all in one; as even as possible; in
#: as few domains as possible.
POLICIES = ('spread', 'pack', 'soft-spread', 'soft-pack')

#: The policies of Nova's server groups, as groups of reservations have them.
SERVER_GROUP_POLICIES = {
    'anti-affinity': 'spread', 'affinity': 'pack',
    'soft-anti-affinity': 'soft-spread', 'soft-affinity': 'soft-pack'}

#: Keystone's limit on all reservations of a project. The name of a resource
#: class follows after a colon in the limit on that class.
TOTAL_LIMIT = 'baremetal_reservations'
