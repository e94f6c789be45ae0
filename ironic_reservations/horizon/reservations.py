# SPDX-License-Identifier: Apache-2.0
"""The pages of reservations."""

from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon.utils import functions

from ironic_reservations import sdk
from ironic_reservations.horizon import api
from ironic_reservations.horizon import bars
from ironic_reservations.horizon import forms
from ironic_reservations.horizon import hints
from ironic_reservations.horizon import notices
from ironic_reservations.horizon import pages

#: States in which the API releases a reservation.
_RELEASABLE = ('reserved', 'unavailable')

#: Columns of the list: a sort key or None, and the header.
_COLUMNS = ((None, _('Node')), (None, _('State')),
            ('project_id', _('Project')), ('host', _('Compute host')),
            ('expires_at', _('Lease expires')), ('created_at', _('Since')),
            (None, _('Action')))


# Fields of the list. Notices are shown only if they are requested.
_FIELDS = ('instance_uuid,node_uuid,node_name,host,state,resource_class,'
           'project_id,group,expires_at,description,created_at,health,'
           'maintenance,notices')


class Reservations(pages.Page):
    """The list of reservations."""

    name = 'reservations'
    page_title = title = _('Reservations')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read one page; the server filters, sorts and paginates."""
        form = forms.Reservations(self.request.GET, request=self.request,
                                  is_admin=self.is_admin)
        # Also if the list cannot be read with these filters.
        context.update(form=form, is_filtered=any(
            self.request.GET.get(name) for name in form.fields
            if not name.startswith('sort_')))
        if not form.is_valid():
            return
        query = dict(form.cleaned_data)
        fleet_names = hints.read_filter_names(service)
        context['suggestions'] = {
            key: sorted(values) for key, values in fleet_names.items()}
        # Read the previous page backwards, starting at the first row of the
        # page after it.
        before = self.request.GET.get('before')
        key, direction = query['sort_key'], query['sort_dir'] or 'asc'
        if before:
            query['sort_dir'] = {'asc': 'desc'}.get(direction, 'asc')
        marker = before or self.request.GET.get('marker')
        rows, following = api.read_page(
            service, limit=functions.get_page_size(self.request),
            marker=marker, fields=_FIELDS, **query)
        if before:
            rows.reverse()
        context.update(
            columns=self._list_columns(key, direction),
            rows=present_reservations(self, rows))
        context['suggestions']['project'] = sorted(
            {row['project'] for row in context['rows'] if row['project']})
        if not rows:
            context['unknown'] = [
                {'kind': kind, 'name': name,
                 'similar': similar and {
                     'name': similar, 'link': self.make_link(
                         **{kind.replace(' ', '_'): similar})}}
                for kind, name, similar
                in hints.check_filters(service, query, fleet_names)]
        self._link_pages(context, rows, before, marker, following)

    def _list_columns(self, key: str, direction: str) -> list[dict[str, Any]]:
        """Return the headers; each links to the list sorted by it."""
        return [{'title': title, 'key': column, 'is_sorted': key == column,
                 'direction': direction, 'link': column and self.make_link(
                     sort_key=column, sort_dir=(
                         'desc' if key == column and direction == 'asc'
                         else 'asc'))}
                for column, title in list_columns(self.is_admin)]

    def _link_pages(self, context: dict[str, Any], rows: list[api.Row],
                    before: str | None, marker: str | None,
                    following: str | None) -> None:
        # A marker belongs to the order in which its page was read, so the
        # links to the other direction use UUIDs.
        if rows and (before or following):
            context['next_page'] = self.make_link(
                marker=rows[-1]['instance_uuid'] if before else following)
        if rows and (following if before else marker):
            context['previous_page'] = self.make_link(
                before=rows[0]['instance_uuid'])
        if marker:
            context['first_page'] = self.make_link()


def list_columns(is_admin: bool) -> list[tuple[str | None, Any]]:
    """Return the sort key, or None, and the header of each column."""
    return [column for column in _COLUMNS
            if is_admin or column[0] != 'project_id']


def present_reservations(page: pages.Page,
                         rows: list[api.Row]) -> list[api.Row]:
    """Return reservations with the values that templates show."""
    return [{
        **row, 'state_word': forms.STATES.get(row['state'], row['state']),
        'notices': notices.present_notices(row.get('notices') or []),
        'is_overdue': bool(row['expires']
                           and row['expires'] < timezone.now()),
        'is_releasable': row['state'] in _RELEASABLE}
        for row in page.present_rows(rows)]


class Reservation(pages.Page):
    """One reservation.

    :cvar facts: template that shows its facts.
    :cvar back: page to which its forms lead back.
    """

    facts = 'baremetal_reservations/_facts.html'
    back = 'reservation'
    tab = 'reservations'
    name = 'reservation'
    page_title = _('Reservation')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the reservation with its request."""
        row = service.show(context['uuid']).to_dict()
        context['row'], = present_reservations(self, [row])
        context['row']['request_spec'] = [
            *(row['request_spec'] or {}).items()]
        group = row['group']
        if group:
            context['row']['group'] = {
                'levels': [group], **group,
                'domain': group['domain'] and bars.format_domain(
                    group['domain'])}


class ChangeReservation(pages.Change, Reservation):
    """The form that changes a reservation."""

    name = 'change'
    page_title = _('Change this reservation')
    message = _('The reservation was changed.')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the reservation; only a reserved one has a lease."""
        super().read(service, context)
        if context['row']['state'] != 'reserved':
            del context['action'].fields['expires_in']


class ScheduleNotice(notices.Schedule, Reservation):
    """The form for the node of a reservation."""

    name = 'schedule'

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the reservation; the notice has the window."""
        super().read(service, context)
        self.set_window(context, context['row'])

    def find_node(self, service: sdk.Proxy, **kwargs: str) -> str:
        """Return the UUID of the node of the reservation."""
        node: str = service.show(kwargs['uuid']).node_uuid
        return node


class ReportFault(pages.Action, Reservation):
    """The form that reports a fault of the node."""

    template_name = 'baremetal_reservations/change.html'
    form_class = forms.Report
    name = 'report'
    page_title = _('Report a fault')
    label = _('Report')

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Report the fault; a report of the project gets the cordon."""
        node = service.show(kwargs['uuid']).node_uuid
        values = {name: value for name, value in data.items() if value}
        reports = [*service.notices(
            node=node, kind='fault', state='open',
            project_id=self.request.user.project_id)
        ] if data['cordon'] else []
        if reports:
            del values['uuid']
            service.update_notices(reports[0], **values)
        else:
            service.create_notices('fault', nodes=[node], **values)
        return _('The fault was reported.'), self.back, kwargs['uuid']


class ReleaseReservation(pages.Delete, Reservation):
    """The question whether to release a node."""

    name = 'release'
    page_title = _('Release this node?')
    message = _('The node of instance %s was released.')
