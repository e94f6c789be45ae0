# SPDX-License-Identifier: Apache-2.0
"""Constants that the server and its clients share."""

#: Numbers of nodes in a capacity row; they add up to ``total``.
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

#: States of a reservation. The last one covers all other provision states, to
#: which an operator has moved the node.
STATES = (*PROVISION_STATES, 'unavailable')

#: How reservations end: by request, by time, because the node no longer
#: carries the instance, or because another instance claims the node.
ENDS = ('release', 'expire', 'purge', 'claim')

#: Keys by which a list of reservations can be sorted.
SORT_KEYS = ('id', 'instance_uuid', 'node_uuid', 'host', 'project_id',
             'user_id', 'expires_at', 'created_at', 'updated_at')

#: Ways to compare the sizes of a node with those of a request.
MATCHES = ('exact', 'at_least')

#: Which nodes a request accepts, by their owner and lessee.
OWNERSHIPS = ('any', 'project', 'project_or_none')

#: Policies of a group: one member in each domain; all members in one domain;
#: members spread as evenly as possible; as few domains as possible.
POLICIES = ('spread', 'pack', 'soft-spread', 'soft-pack')

#: Policies of groups by the equivalent policy of Nova's server groups.
SERVER_GROUP_POLICIES = {
    'anti-affinity': 'spread', 'affinity': 'pack',
    'soft-anti-affinity': 'soft-spread', 'soft-affinity': 'soft-pack'}

#: Kinds of notices, with the default of ``cordon``.
NOTICE_KINDS = {'maintenance': True, 'retirement': True, 'fault': False}

#: Why a node is in a pool.
POOL_REASONS = ('create', 'add', 'replace')

#: States of a notice.
NOTICE_STATES = ('planned', 'open', 'closed')

#: Category of the fault that a compute service records after a failed build.
BUILD = 'build'

#: Name of Keystone's limit on all reservations of a project. The limit on a
#: resource class is this name, a colon and the class.
TOTAL_LIMIT = 'baremetal_reservations'

#: An ID that no project has. Ironic refuses to list its reservations for users
#: who see only their own project.
NO_PROJECT = '0' * 32
