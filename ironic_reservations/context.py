# SPDX-License-Identifier: Apache-2.0
"""The caller of the API, and what the policy allows it."""

import functools

from oslo_context import context
from oslo_log import log

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import policy

LOG = log.getLogger(__name__)


class RequestContext(context.RequestContext):
    """The identity that the authentication has put into the request.

    There is a new one for each request, so what it remembers is never old.
    """

    @functools.cached_property
    def _logged(self):
        return super().get_logging_values()

    def get_logging_values(self):
        # oslo.log asks twice for each line of a request.
        return self._logged

    def to_policy_values(self):
        """Return the credentials that Ironic's default policies look at.

        Ironic's rule ``service_role`` compares the caller's
        ``project_name`` with ``config.service_project_name``.
        """
        values = super().to_policy_values()
        values['project_name'] = self.project_name
        if (conf.CONF.rbac_service_role_elevated_access
                and conf.CONF.rbac_service_project_name is not None):
            values['config.service_project_name'] = (
                conf.CONF.rbac_service_project_name)
        return values

    def authorize(self, rule, reservation=None):
        """Raise an exception unless the policy allows a call.

        :param rule: the last part of the rule's name, such as ``create`` of
            ``baremetal:reservation:create``.
        :param reservation: the values.Reservation that the call is
            about, if it is about one.
        :raises: NotAuthorized.
        """
        if not self.may(rule, reservation):
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

    def may(self, rule, reservation=None):
        """Say whether the policy allows a call; see ``authorize``."""
        # Without Keystone every caller is an administrator, as in Ironic.
        if conf.CONF.auth_strategy != 'keystone':
            return True
        asked = rule, *((None, None) if reservation is None else (
            reservation.project_id, reservation.node_owner))
        if asked not in self._answers:
            self._answers[asked] = self._ask(*asked)
        return self._answers[asked]

    # oslo.policy takes 0.2 ms for an answer, and a hold wants some twice.
    @functools.cached_property
    def _answers(self):
        return {}

    def _ask(self, rule, project_id, node_owner):
        """The answer of oslo.policy.

        :param project_id: whose the reservation is, if it is about one.
        :param node_owner: whose that one's node is.
        """
        values = self.to_policy_values()
        # The credentials are part of the target too, because Ironic's rule
        # service_role looks the name of the service project up there.
        target = dict(values)
        whose = {'reservation.project_id': project_id,
                 'node.owner': node_owner}
        # oslo.policy compares None as the text "None", with which a caller
        # without a project would match. What is missing matches nobody.
        target |= {key: project for key, project in whose.items()
                   if project is not None}
        return policy.get_enforcer().authorize(
            f'baremetal:reservation:{rule}', target, values)

    def restricted_to(self, rule):
        """The project to which the caller's view of the fleet is restricted.

        :param rule: the policy that lifts the restriction.
        :returns: the caller's project, ``""`` when the caller has none (and
            so sees nothing), or None for a caller without restriction.
        """
        return None if self.may(rule) else self.project_id or ''

    def may_use_unowned(self, restricted_to):
        """Whether a caller may hold nodes that nobody owns or leases.

        :param restricted_to: what the method above returns. Who is not
            restricted may hold all nodes, and need not be asked.
        """
        return bool(restricted_to) and self.may('create_unowned')
