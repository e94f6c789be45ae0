# SPDX-License-Identifier: Apache-2.0
"""Who is asking."""

from oslo_context import context

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import policy


class RequestContext(context.RequestContext):
    """The caller as the authentication middleware has left it."""

    def to_policy_values(self):
        """The credentials that Ironic's default policies look at."""
        values = super().to_policy_values()
        values['project_name'] = self.project_name
        if (conf.CONF.rbac_service_role_elevated_access
                and conf.CONF.rbac_service_project_name is not None):
            values['config.service_project_name'] = (
                conf.CONF.rbac_service_project_name)
        return values

    def authorize(self, rule, project_id=None):
        """Go on only if policy allows it.

        :param rule: ``create``, ``list`` ... of ``baremetal:reservation``.
        :param project_id: of the reservation that it is about.
        :raises: NotAuthorized.
        """
        if not self.may(rule, project_id):
            raise exception.NotAuthorized(
                f'Access was denied to the following resource: '
                f'baremetal:reservation:{rule}')

    def may(self, rule, project_id=None):
        """Whether policy allows something."""
        # As in Ironic: without Keystone every caller is an administrator.
        if conf.CONF.auth_strategy != 'keystone':
            return True
        values = self.to_policy_values()
        # Ironic's rules look the service project up in the target.
        return policy.get_enforcer().authorize(
            f'baremetal:reservation:{rule}',
            {**values, 'reservation.project_id': project_id}, values)

    def restricted_to(self, rule):
        """The project to which the caller's view of the fleet is restricted.

        :param rule: the policy that lifts the restriction.
        :returns: the caller's project, ``""`` when the caller has none (and
            so sees nothing), or None for a caller without restriction.
        """
        return None if self.may(rule) else self.project_id or ''
