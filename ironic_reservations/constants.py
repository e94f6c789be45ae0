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

#: The policies of Nova's server groups, as groups of reservations have them.
SERVER_GROUP_POLICIES = {
    'anti-affinity': 'spread', 'affinity': 'pack',
    'soft-anti-affinity': 'soft-spread', 'soft-affinity': 'soft-pack'}
