# SPDX-License-Identifier: Apache-2.0
"""The policy rules of the API and their defaults.

The defaults are Ironic's for allocations, and grant compute services what the
Nova driver needs. Operators override them in the policy file of Ironic.
"""

import functools

from oslo_policy import policy

from ironic_reservations import conf

# rule:service_role is Ironic's. It allows the service role in the service
# project if [DEFAULT] rbac_service_role_elevated_access is set.
SERVICE = '(role:service and system_scope:all) or rule:service_role'
SYSTEM_MEMBER = f'(role:member and system_scope:all) or {SERVICE}'
SYSTEM_READER = f'(role:reader and system_scope:all) or {SERVICE}'
OWNER_MEMBER = 'role:member and project_id:%(reservation.project_id)s'
OWNER_READER = 'role:reader and project_id:%(reservation.project_id)s'
# The project that owns the machine; its lessee does not see who else uses it.
NODE_OWNER_MEMBER = 'role:member and project_id:%(node.owner)s'
NODE_OWNER_READER = 'role:reader and project_id:%(node.owner)s'
ANY_READER = 'role:reader or role:service'

_COLLECTION = '/v1/reservations'
_ONE = '/v1/reservations/{instance_uuid}'
_HISTORY = '/v1/reservations/history'
_HOSTS = '/v1/reservations/hosts'
_HOST = '/v1/reservations/hosts/{host}'
_GROUPS = '/v1/reservations/groups'
_NOTICES = '/v1/reservations/notices'
_POOLS = '/v1/reservations/pools'
_POOL = '/v1/reservations/pools/{uuid}'
_GROUP = '/v1/reservations/groups/{uuid}'


def _rule(name: str, check: str, description: str, method: str, path: str,
          *operations: 'policy.Operation') -> policy.DocumentedRuleDefault:
    return policy.DocumentedRuleDefault(
        name=f'baremetal:reservation:{name}', check_str=check,
        scope_types=['system', 'project'], description=description,
        operations=[{'method': method, 'path': path}, *operations])


rules = [
    # Ironic's rule under Ironic's name, so that an override in the policy
    # file changes both.
    policy.RuleDefault(
        'service_role',
        'role:service and project_name:%(config.service_project_name)s',
        description='Rule to match service role usage with a service '
                    'project.'),
    _rule('create', f'{SYSTEM_MEMBER} or role:member',
          'Reserve a node that the project owns, leases or has in a pool.',
          'POST', _COLLECTION, {'method': 'POST', 'path': _GROUPS}),
    _rule('create_restricted', SYSTEM_MEMBER,
          'Reserve any node, for any host, project and user; release a node '
          'in maintenance in any state, and one on which a build may be '
          'starting.',
          'POST', _COLLECTION),
    _rule('create_unowned', '!',
          'Reserve a node that nobody owns, leases or has in a pool, with the '
          'ownership project_or_none, and count such nodes; applies to '
          'project-scoped callers. Set a quota before you allow it.',
          'POST', _COLLECTION, {'method': 'POST', 'path': _GROUPS},
          {'method': 'GET', 'path': f'{_COLLECTION}/capacity'}),
    _rule('adopt', SYSTEM_MEMBER,
          'Adopt a node that carries an instance already.',
          'POST', f'{_COLLECTION}?adopt=true'),
    _rule('update', f'{SYSTEM_MEMBER} or ({OWNER_MEMBER})',
          'Change the lease and the description of a reservation or a group; '
          'with create_restricted, also the host of a reservation.',
          'PATCH', _ONE, {'method': 'PATCH', 'path': _GROUP}),
    _rule('get', f'{SYSTEM_READER} or ({OWNER_READER}) or '
                 f'({NODE_OWNER_READER})',
          'Show a reservation, a group or a pool.',
          'GET', _ONE, {'method': 'GET', 'path': _GROUP},
          {'method': 'GET', 'path': _POOL}),
    _rule('list', ANY_READER,
          "List the reservations, groups and pools of the caller's project, "
          'the reservations on nodes that it owns, and what ended on a node '
          'while it owned it.',
          'GET', _COLLECTION, {'method': 'GET', 'path': _GROUPS},
          {'method': 'GET', 'path': _POOLS},
          {'method': 'GET', 'path': _HISTORY}),
    _rule('list_all', SYSTEM_READER,
          'List the reservations, groups and pools of all projects, and the '
          'history.',
          'GET', _COLLECTION, {'method': 'GET', 'path': _GROUPS},
          {'method': 'GET', 'path': _POOLS},
          {'method': 'GET', 'path': _HISTORY}),
    _rule('delete', f'{SYSTEM_MEMBER} or ({OWNER_MEMBER}) or '
                    f'({NODE_OWNER_MEMBER})',
          'Release a reservation or a group; claim a reservation.',
          'DELETE', _ONE, {'method': 'DELETE', 'path': _GROUP}),
    _rule('capacity', ANY_READER,
          'Show the capacity of the nodes that the caller may see.',
          'GET', f'{_COLLECTION}/capacity'),
    _rule('hosts', SYSTEM_MEMBER,
          'Acquire, give up and list host leases.',
          'GET', _HOSTS, {'method': 'PUT', 'path': _HOST},
          {'method': 'DELETE', 'path': _HOST}),
    _rule('pools', 'rule:baremetal:reservation:create_restricted',
          'Create, change and delete pools, and add nodes.',
          'POST', _POOLS, {'method': 'PATCH', 'path': _POOL},
          {'method': 'DELETE', 'path': _POOL},
          {'method': 'POST', 'path': f'{_POOL}/nodes'}),
    _rule('pools_replace', 'rule:baremetal:reservation:create_restricted',
          'Replace a node of a pool by another one, and remove a node; with '
          'its last node, the pool is deleted.',
          'POST', f'{_POOL}/nodes',
          {'method': 'DELETE', 'path': f'{_POOL}/nodes/{{node}}'}),
    _rule('notices', 'rule:baremetal:reservation:create_restricted or '
                     f'({NODE_OWNER_MEMBER})',
          'Create and change any notice of a node, and see all. Without it, a '
          'project may report faults of nodes that it has reserved or has in '
          'a pool, and move planned notices that have latest_start.',
          'POST', _NOTICES, {'method': 'GET', 'path': _NOTICES},
          {'method': 'PATCH', 'path': f'{_NOTICES}/{{uuid}}'}),
]


@functools.cache
def get_enforcer() -> policy.Enforcer:
    """Return the enforcer, which reads the policy file on first use."""
    enforcer = policy.Enforcer(conf.CONF)
    enforcer.register_defaults(rules)
    return enforcer


def list_rules() -> list[policy.RuleDefault]:
    """Return the rules for oslopolicy-sample-generator."""
    return rules
