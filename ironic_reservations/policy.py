# SPDX-License-Identifier: Apache-2.0
"""The policy rules of the API and their defaults.

The defaults are Ironic's for allocations, and allow compute services what the
Nova driver needs. Operators override them in the policy file of Ironic.
"""

from collections.abc import Callable
import functools
import inspect
import types
from typing import Any

from oslo_policy import policy
from oslo_utils import importutils

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
_HOSTS = '/v1/reservations/hosts'
_GROUPS = '/v1/reservations/groups'
_GROUP = '/v1/reservations/groups/{uuid}'


def _rule(name: str, check: str, description: str, method: str, path: str,
          *operations: dict[str, str]) -> policy.DocumentedRuleDefault:
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
          'Reserve a node that the project owns or leases.',
          'POST', _COLLECTION, {'method': 'POST', 'path': _GROUPS}),
    _rule('create_restricted', SYSTEM_MEMBER,
          'Reserve any node, for any host, project and user; release a node '
          'in maintenance in any state, and one on which a build may be '
          'starting.',
          'POST', _COLLECTION),
    _rule('create_unowned', '!',
          'Reserve a node that nobody owns or leases, with the ownership '
          'project_or_none, and count such nodes; applies to project-scoped '
          'callers. Set a quota before you allow it.',
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
          'Show a reservation or a group.',
          'GET', _ONE, {'method': 'GET', 'path': _GROUP}),
    _rule('list', ANY_READER,
          "List the reservations and groups of the caller's project, and the "
          'reservations on nodes that it owns.',
          'GET', _COLLECTION, {'method': 'GET', 'path': _GROUPS}),
    _rule('list_all', SYSTEM_READER,
          'List the reservations and groups of all projects.',
          'GET', _COLLECTION, {'method': 'GET', 'path': _GROUPS}),
    _rule('delete', f'{SYSTEM_MEMBER} or ({OWNER_MEMBER}) or '
                    f'({NODE_OWNER_MEMBER})',
          'Release a reservation or a group; claim a reservation.',
          'DELETE', _ONE, {'method': 'DELETE', 'path': _GROUP}),
    _rule('capacity', ANY_READER,
          'Show the capacity of the nodes that the caller may see.',
          'GET', f'{_COLLECTION}/capacity'),
    _rule('hosts', SYSTEM_MEMBER,
          'Acquire, give up and list host leases.',
          'GET', _HOSTS,
          *({'method': method, 'path': f'{_HOSTS}/{{host}}'}
            for method in ('PUT', 'DELETE'))),
]


@functools.cache
def get_enforcer() -> policy.Enforcer:
    """Return the enforcer, which reads the policy file on first use."""
    cache_signatures(importutils.try_import('oslo_policy._checks'))
    enforcer = policy.Enforcer(conf.CONF)
    enforcer.register_defaults(rules)
    return enforcer


def cache_signatures(checks: Any) -> None:
    """Let oslo.policy inspect the method of each kind of check only once.

    oslo.policy inspects it for each check that it evaluates, which takes more
    than half of the time of an answer. "A change of oslo.policy" in
    contributor.rst describes a change that makes this unnecessary.

    :param checks: oslo.policy's module of checks. If it does not use the
        module ``inspect``, it is not changed.
    """
    if getattr(checks, 'inspect', None) is inspect:
        checks.inspect = types.SimpleNamespace(**{
            **vars(inspect), 'getfullargspec': lambda method: _inspect(
                getattr(method, '__func__', method))})


@functools.cache
def _inspect(function: Callable[..., Any]) -> inspect.FullArgSpec:
    # The function, because a method refers to a check of rules that may have
    # been replaced, and the cache would keep it.
    return inspect.getfullargspec(function)


def list_rules() -> list[policy.RuleDefault]:
    """Return the rules for oslopolicy-sample-generator."""
    return rules
