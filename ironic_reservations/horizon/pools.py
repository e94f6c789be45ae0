# SPDX-License-Identifier: Apache-2.0
"""The pages of pools: nodes that only one project may reserve."""

from typing import Any

from django.conf import settings
from django.utils.translation import gettext_lazy as _
from openstack_dashboard import policy

from ironic_reservations import sdk
from ironic_reservations.horizon import api
from ironic_reservations.horizon import bars
from ironic_reservations.horizon import forms
from ironic_reservations.horizon import notices
from ironic_reservations.horizon import pages

#: States of nodes in the API, with their translations.
_STATES = dict(bars.PARTS)


def _present_pool(row: api.Row) -> api.Row:
    """Return a pool with the values that templates show.

    :param row: of ``present_rows``.
    """
    return {**row, 'bar': bars.draw_counts(row['summary']),
            # A pool with segments has its policies in its levels.
            'levels': row['levels'] or [row]}


class Pools(pages.Page):
    """The list of pools, with the numbers of their nodes by state."""

    name = 'pools'
    page_title = title = _('Pools')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read one page."""
        context['rows'] = [*map(_present_pool, self.present_rows(
            self.read_page(service, context, '/pools')))]


class Pool(pages.Page):
    """One pool with its nodes."""

    name = 'pool'
    page_title = _('Pool')
    facts = 'baremetal_reservations/_pool.html'
    back = 'pool'
    tab = 'pools'
    path = 'pools/'

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the pool."""
        row = service.show_pool(context['uuid']).to_dict()
        context['row'], = map(_present_pool, self.present_rows([row]))
        context.update(
            may_replace=self._may_replace(row['project_id']),
            request_spec=[*row['request'].items()],
            nodes=[{**node, 'state_word': _STATES[node['state']],
                    'domain': node['domain']
                    and bars.format_domain(node['domain']),
                    'notices': notices.present_notices(node['notices'])}
                   for node in row['nodes']])

    def _may_replace(self, project_id: str) -> bool:
        """Return whether to offer the replacement of a node.

        Projects may replace no node by default, but Horizon allows what it
        has no policy for.
        """
        rule = 'baremetal', 'baremetal:reservation:pools_replace'
        return self.is_admin or (
            'baremetal' in settings.POLICY_FILES and policy.check(
                [rule], self.request, {'reservation.project_id': project_id}))


class ChangePool(pages.Change, Pool):
    """The form that changes a pool."""

    form_class = forms.ChangePool
    name = 'change-pool'
    page_title = _('Change this pool')
    message = _('The pool was changed.')


class DeletePool(pages.Delete, Pool):
    """The question whether to delete a pool."""

    template_name = 'baremetal_reservations/confirm-pool.html'
    name = 'delete-pool'
    page_title = _('Delete this pool?')
    text = _('Other projects may reserve its machines. Servers keep theirs.')
    label = _('Delete the pool')
    message = _('The pool %s was deleted.')


class ReplaceNode(pages.Action, Pool):
    """The question whether to replace a node of a pool by another one."""

    template_name = 'baremetal_reservations/confirm-pool.html'
    name = 'replace-node'
    page_title = _('Replace this machine?')
    text = _('The machine leaves the pool, and a free one that matches the '
             'request of the pool joins it. A server on the machine keeps '
             'it.')
    label = _('Replace the machine')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the pool, and show only the node to replace."""
        super().read(service, context)
        context['nodes'] = [node for node in context['nodes']
                            if node['uuid'] == context['node']]

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Replace the node in one request."""
        api.call(service, 'POST', f'/pools/{kwargs["uuid"]}/nodes',
                 json={'replaces': kwargs['node']})
        return (_('Node %s was replaced.') % kwargs['node'], self.back,
                kwargs['uuid'])


class ScheduleNotice(notices.Schedule, Pool):
    """The form for an idle node of a pool."""

    name = 'schedule-node'

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the pool; the notice has the window."""
        super().read(service, context)
        for node in context['nodes']:
            if node['uuid'] == context['node']:
                self.set_window(context, node)

    def find_node(self, service: sdk.Proxy, **kwargs: str) -> str:
        """Return the UUID of the node."""
        return kwargs['node']
