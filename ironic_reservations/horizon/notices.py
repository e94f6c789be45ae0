# SPDX-License-Identifier: Apache-2.0
"""The pages of notices: what is wrong with nodes, or will be done to them."""

from typing import Any

from django.utils import html
from django.utils.translation import gettext_lazy as _

from ironic_reservations import sdk
from ironic_reservations.horizon import api
from ironic_reservations.horizon import forms
from ironic_reservations.horizon import pages


def present_notices(rows: list[api.Row]) -> list[api.Row]:
    """Return notices with the values that templates show."""
    return [{**row, 'kind_word': forms.NOTICE_KINDS.get(
                 row['kind'], row['kind']),
             'state_word': forms.NOTICE_STATES.get(
                 row['state'], row['state']),
             'texts': [(word, row[name])
                       for name, word in forms.NOTICE_TEXTS.items()
                       if row[name]],
             **{name: pages.parse_time(row[name])
                for name in row if name.endswith('_at')}} for row in rows]


class Notices(pages.Page):
    """The list of nodes with notices."""

    name = 'notices'
    page_title = title = _('Notices')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read one page; open notices, unless the form says otherwise."""
        query = self.request.GET
        form = context['form'] = forms.Notices(
            query if 'state' in query else {'state': 'open', **query.dict()})
        if not form.is_valid():
            return
        context['rows'] = present_notices(self.read_page(
            service, context, '/notices', **form.cleaned_data))


class Cordon(pages.Action):
    """The form that keeps new reservations off a node."""

    template_name = 'baremetal_reservations/cordon.html'
    form_class = forms.Cordon
    tab = 'notices'
    name = 'cordon'
    page_title = _('Cordon this node')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the notices of the node that are not closed."""
        context.setdefault('action', self.make_form())
        # A page of all notices may have only closed ones.
        context['rows'] = present_notices([
            row for state in ('open', 'planned') for row in api.read_page(
                service, '/notices', node=context['uuid'], state=state)[0]])

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Create a notice with a cordon."""
        notice, = service.create_notices(
            'maintenance', nodes=[kwargs['uuid']],
            **{name: value for name, value in data.items() if value})
        return html.format_html(
            _('Node <bdi>{}</bdi> was cordoned.'),
            notice.node_name or notice.node_uuid), self.tab


class Uncordon(Cordon):
    """The form that ends the cordons of a node."""

    form_class = forms.Uncordon
    name = 'uncordon'
    page_title = _('Uncordon this node')

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Close all open notices with a cordon."""
        changes = {name: value for name, value in data.items() if value}
        cordons = [notice for notice in service.notices(
            node=kwargs['uuid'], state='open') if notice.cordon]
        for notice in cordons:
            service.close_notices(notice, **changes)
        message = (_('Node %s was uncordoned.') if cordons
                   else _('Node %s had no open cordon.'))
        return message % kwargs['uuid'], self.tab
