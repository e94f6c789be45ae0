# SPDX-License-Identifier: Apache-2.0
"""The caller of the API, and what the policy allows it."""

import functools
import typing
from typing import Any

from oslo_context import context
from oslo_log import log

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import policy
from ironic_reservations import values

LOG = log.getLogger(__name__)


class Owned(typing.Protocol):
    """A reservation, a group or a pool, as the policy needs it."""

    @property
    def project_id(self) -> str | None: ...

    @property
    def node_owner(self) -> str | None: ...


class Resource(Owned, typing.Protocol):
    """What a request names, with its title for errors."""

    @property
    def title(self) -> str: ...


def allow_all(target: Resource) -> None:
    """Authorize every caller: the default of functions that authorize."""


class RequestContext(context.RequestContext):
    """The identity of the caller, which the authentication has checked.

    Each request creates one, so cached values are never out of date.
    """

    @functools.cached_property
    def _logging_values(self) -> dict[str, Any]:
        return super().get_logging_values()

    def get_logging_values(self) -> dict[str, Any]:
        """Return the values for lines of the log."""
        # oslo.log calls this twice for each line of a request.
        return self._logging_values

    def to_policy_values(self) -> dict[str, Any]:
        """Return the credentials that Ironic's default policies read.

        Ironic's rule ``service_role`` compares the caller's
        ``project_name`` with ``config.service_project_name``.
        """
        # A dict, because oslo.context's own mapping is slow, and warns of each
        # use of a name that is added to it.
        values = dict(super().to_policy_values())
        values['project_name'] = self.project_name
        if (conf.CONF.rbac_service_role_elevated_access
                and conf.CONF.rbac_service_project_name is not None):
            values['config.service_project_name'] = (
                conf.CONF.rbac_service_project_name)
        return values

    def authorize(self, rule: str, target: Owned | None = None) -> None:
        """Check that the policy allows a call.

        :param rule: last part of the rule's name, such as ``create`` in
            ``baremetal:reservation:create``.
        :param target: reservation or group that the call reads or changes.
        :raises: NotAuthorized.
        """
        if not self.may(rule, target):
            LOG.debug(
                'Policy baremetal:reservation:%(rule)s refuses user '
                '%(user)s of project %(project)s, system scope %(system)s, '
                'with the roles %(roles)s',
                {'rule': rule, 'user': self.user_id,
                 'project': self.project_id, 'system': self.system_scope,
                 'roles': self.roles})
            raise exception.NotAuthorized(
                f'Access was denied to the following resource: '
                f'baremetal:reservation:{rule}')

    def may(self, rule: str, target: Owned | None = None) -> bool:
        """Return whether the policy allows a call; see ``authorize``."""
        # Without Keystone every caller is an administrator, as in Ironic.
        if conf.CONF.auth_strategy != 'keystone':
            return True
        question = rule, *((None, None) if target is None else (
            target.project_id, target.node_owner))
        if question not in self._results:
            self._results[question] = self._evaluate(*question)
        return self._results[question]

    @functools.cached_property
    def _policy_values(self) -> dict[str, Any]:
        return self.to_policy_values()

    # oslo.policy takes 0.1 ms per check, and a hold repeats some checks.
    @functools.cached_property
    def _results(self) -> dict[tuple[str, str | None, str | None], bool]:
        return {}

    def _evaluate(self, rule: str, project_id: str | None,
                  node_owner: str | None) -> bool:
        """Return the result of oslo.policy.

        :param project_id: project of the reservation, if the call has one.
        :param node_owner: project that owns its node.
        """
        # The target includes the credentials, because Ironic's rule
        # service_role reads the name of the service project from it.
        target = dict(self._policy_values)
        projects = {'reservation.project_id': project_id,
                    'node.owner': node_owner}
        # oslo.policy turns None into the text "None", and would match it with
        # a caller without a project. A missing key matches nobody.
        target |= {key: project for key, project in projects.items()
                   if project is not None}
        return policy.get_enforcer().authorize(
            f'baremetal:reservation:{rule}', target,
            # oslo.policy adds a key.
            dict(self._policy_values))

    def get_reach(self, rule: str) -> values.Ownership:
        """Return whose nodes, and what belongs to whom, the caller sees.

        :param rule: the policy that allows it to see everything.
        :returns: for a project-scoped caller, that of its project; of the
            project ``""`` for a caller without a project, who sees nothing.
        """
        if self.may(rule):
            return values.ALL
        project_id = self.project_id or ''
        return values.Ownership(
            project_id, 'project_or_none'
            if project_id and self.may('create_unowned') else 'project')
