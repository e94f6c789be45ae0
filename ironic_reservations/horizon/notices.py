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
    return [{**row, **times, 'kind_word': forms.NOTICE_KINDS.get(
                 row['kind'], row['kind']),
             'state_word': forms.NOTICE_STATES.get(
                 row['state'], row['state']),
             'texts': [(word, row[name])
                       for name, word in forms.NOTICE_TEXTS.items()
                       if row[name]],
             'times': [(word, times[name])
                       for name, word in forms.NOTICE_TIMES.items()
                       if times.get(name)]}
            for row in rows for times in [
                {name: pages.parse_time(row[name]) for name in row
                 if name.endswith('_at') or name == 'latest_start'}]]


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
    """The form that keeps new reservations off nodes.

    The query of the URL may name one.
    """

    form_class = forms.Cordon
    tab = 'notices'
    name = 'cordon'
    page_title = _('Cordon nodes')
    label = _('Cordon')
    text = _('A cordoned node gets no new reservations until it is '
             'uncordoned. Servers on it continue.')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the notices of the node in the query."""
        node = self.request.GET.get('node')
        super().read(service, context)
        context['action'].begin_with({'nodes': node})
        if node:
            context['rows'] = _read_current(service, node)

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **_kwargs: Any) -> tuple[Any, ...]:
        """Create a notice with a cordon for each node."""
        rows = service.create_notices(cordon=True, **{
            name: value for name, value in data.items() if value})
        message = (_('Cordon planned: <bdi>{}</bdi>.')
                   if rows[0].state == 'planned'
                   else _('Cordoned: <bdi>{}</bdi>.'))
        return html.format_html(
            message, rows[0].node_name or rows[0].node_uuid
            if len(rows) == 1 else _('%d nodes') % len(rows)), self.tab


class ChangeNotice(pages.Action):
    """The form that changes or closes the notice of a node."""

    template_name = 'baremetal_reservations/cordon.html'
    form_class = forms.ChangeNotice
    tab = 'notices'
    name = 'change-notice'
    page_title = _('Change the notice of {{ rows.0.node_name|default:uuid }}')
    label = _('Save')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the notice; the form begins with the current values."""
        rows, _following = api.read_page(
            service, '/notices', node=context['uuid'], uuid=context['notice'])
        super().read(service, context)
        context['action'].begin_with(rows[0] if rows else {})
        context['rows'] = present_notices(rows)

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Apply all changes of the user, or none."""
        if not data:
            return _('Nothing was changed.'), self.tab
        service.update_notices(kwargs['notice'], kwargs['uuid'], **{
            name: value or None for name, value in data.items()})
        return _('The notice was changed.'), self.tab


class Uncordon(pages.Action):
    """The form that ends the cordons of a node."""

    template_name = 'baremetal_reservations/cordon.html'
    form_class = forms.Uncordon
    tab = 'notices'
    name = 'uncordon'
    page_title = _('Uncordon {{ node|default:uuid }}')
    label = _('Uncordon')
    text = _('All open notices with a cordon of this node are closed. It can '
             'be reserved again if nothing else prevents it.')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the notices of the node."""
        super().read(service, context)
        context['node'] = api.read_node_name(service, context['uuid'])
        context['rows'] = _read_current(service, context['uuid'])

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
        return (message % api.read_node_name(service, kwargs['uuid']),
                self.tab)


class Schedule(pages.Action):
    """The form that chooses when planned work on a node begins."""

    template_name = 'baremetal_reservations/change.html'
    form_class = forms.Schedule
    page_title = _('Choose the time')

    def set_window(self, context: dict[str, Any], node: api.Row) -> None:
        """Limit the time in the form to that of the notice.

        :param node: a reservation, or a node of a pool, with its notices.
        """
        for notice in node['notices']:
            if notice['uuid'] == context['notice'] and notice['latest_start']:
                context['action'].set_window(notice['latest_start'])

    def find_node(self, service: sdk.Proxy, **kwargs: str) -> str:
        """Return the UUID of the node that the URL names."""
        raise NotImplementedError

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Move the notice of this node."""
        service.schedule_notices(kwargs['notice'], **data,
                                 node=self.find_node(service, **kwargs))
        return _('The time was chosen.'), self.back, kwargs['uuid']


def _read_current(service: sdk.Proxy, node: str) -> list[api.Row]:
    """Return the open and planned notices of a node."""
    # A page of all notices may have only closed ones.
    return present_notices([
        row for state in ('open', 'planned') for row in api.read_page(
            service, '/notices', node=node, state=state)[0]])
