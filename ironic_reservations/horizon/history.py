# SPDX-License-Identifier: Apache-2.0
"""The page that shows who had a node."""

from typing import Any

from django.utils.translation import gettext_lazy as _

from ironic_reservations import sdk
from ironic_reservations.horizon import api
from ironic_reservations.horizon import pages
from ironic_reservations.horizon import reservations

_ENDS = {'release': _('released'), 'expire': _('expired'),
         'purge': _('its server was deleted'), 'claim': _('claimed')}


class History(pages.Page):
    """The present reservation of a node, and those that have ended."""

    name = 'history'
    tab = 'reservations'
    page_title = _('Who had {{ node|default:uuid }}')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read one page; the first begins with the present reservation."""
        node = context['uuid']
        rows: list[api.Row] = []
        if not self.request.GET.get('marker'):
            rows, _following = api.read_page(service, node=node)
            context['rows'] = reservations.present_reservations(self, rows)
        context['ends'] = [{
            **row, 'ended': pages.parse_time(row['ended_at']),
            'end_word': _ENDS.get(row['ended_by'], row['ended_by'])}
            for row in self.present_rows(
                self.read_page(service, context, '/history', node=node))]
        # Ironic does not show a project the node of its server.
        context['node'] = next(
            (row['node_name'] for row in [*rows, *context['ends']]
             if row['node_name']), None) or api.read_node_name(service, node)
