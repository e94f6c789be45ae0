# SPDX-License-Identifier: Apache-2.0
"""The pages of the fleet, and the URLs of both panels."""

import collections
from collections.abc import Mapping
import functools
from typing import Any

from django import http
from django.urls import re_path
from django.utils import html
from django.utils.translation import gettext_lazy as _

from ironic_reservations import sdk
from ironic_reservations.horizon import api
from ironic_reservations.horizon import bars
from ironic_reservations.horizon import forms
from ironic_reservations.horizon import groups
from ironic_reservations.horizon import hints
from ironic_reservations.horizon import history
from ironic_reservations.horizon import notices
from ironic_reservations.horizon import pages
from ironic_reservations.horizon import pools
from ironic_reservations.horizon import reservations
from ironic_reservations.shared import names
from ironic_reservations.shared import spelling

#: Maximum number of capacity rows on a page.
_ROWS = 100


class Capacity(pages.Page):
    """Numbers of free and other machines."""

    name = 'index'
    page_title = _('Bare Metal Reservations')
    title = _('Capacity')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Count the whole fleet, and read the rows that match the form."""
        classes, _following = api.read_page(service, '/capacity',
                                            by='resource_class')
        fleet_names, _is_complete = hints.read_fleet_names(service)
        form = forms.Capacity(self.request.GET or None,
                              capabilities=sorted(fleet_names['capability']))
        data = form.cleaned_data if form.is_valid() else {}
        by, resource_class = data.get('by'), data.get('resource_class')
        rows = self.read_page(service, context, '/capacity', by=by,
                              limit=_ROWS, resource_class=resource_class)
        keys = [key for key, _word in bars.PARTS]
        whole = {key: sum(row[key] for row in classes)
                 for key in (*keys, 'total')}
        context.update(
            form=form, by=by, resource_class=resource_class, whole=whole,
            whole_bar=bars.draw_counts(whole),
            suggestions=_list_suggestions(fleet_names),
            rows=self.name_projects(bars.draw_rows(rows), by))
        if resource_class and not rows:
            similar = spelling.find_closest(resource_class,
                                            fleet_names['resource class'])
            context['similar'] = similar and {
                'name': similar,
                'link': self.make_link(resource_class=similar)}


def _list_suggestions(fleet_names: names.Names) -> dict[str, list[str]]:
    """Return sorted names by the key of a form's field."""
    return {kind.replace(' ', '_'): sorted(fleet_names[kind]) for kind in (
        'resource class', 'trait', 'shard', 'conductor group')}


class Hosts(pages.Page):
    """The compute hosts that have a host lease."""

    name = 'hosts'
    page_title = title = _('Compute hosts')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read one page."""
        rows = self.read_page(service, context, '/hosts')
        context['rows'] = [
            {**row, **{name: pages.parse_time(row.get(name))
                       for name in ('since', 'created_at', 'expires_at')},
             'lease': pages.format_lease(pages.parse_time(row['expires_at']))}
            for row in rows]
        context['has_standbys'] = any('standbys' in row for row in rows)


class Ask(pages.Action):
    """The machines that a request matches, and why the others do not.

    The query of the URL has the request, and a POST reserves a machine.
    """

    name = 'ask'
    page_title = title = _('What would match?')
    form_class = forms.Reserve

    @functools.cached_property
    def query(self) -> forms.Ask:
        """Return the form with the request."""
        return forms.Ask(self.request.GET or None, request=self.request,
                         is_admin=self.is_admin)

    def make_spec(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request spec.

        :param data: valid values of the form that reserves, or nothing.
        """
        spec = self.query.make_request_spec()
        project = data.get('project_id') or spec.get('project_id')
        if project:
            spec = {'ownership': 'project_or_none', **spec,
                    'project_id': project}
        if data.get('ownership'):
            spec['ownership'] = data['ownership']
        return spec

    def make_form(self, *args: Any, **kwargs: Any) -> forms.Confirmation:
        """Return the form that reserves, for the project of the query."""
        spec = self.query.make_request_spec()
        form = super().make_form(
            *args, request=self.request, is_admin=self.is_admin,
            initial={**spec, 'project_id': self.query['project_id'].value()}
            if 'project_id' in spec else {}, **kwargs)
        if 'project_id' in spec and form.is_bound and form.is_valid():
            spec = self.make_spec(form.cleaned_data)
            for name, value in self.make_spec({}).items():
                if spec[name] != value:
                    form.add_error(name, _(
                        'This contradicts "Owner or lessee" in the request.'))
        return form

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Make a dry run, which reserves nothing."""
        fleet_names, is_complete = hints.read_fleet_names(service)
        context.update(form=self.query, suggestions={
            **_list_suggestions(fleet_names), 'by': [
                *(f'capability:{name}'
                  for name in sorted(fleet_names['capability'])),
                'conductor_group', 'shard']})
        if not self.query.is_valid():
            return
        # A dry run counts the fleet, so a link in another site makes none.
        if self.request.headers.get('Sec-Fetch-Site', 'none') not in (
                'none', 'same-origin'):
            context['is_foreign'] = True
            return
        spec = self.make_spec({})
        result = service.dry_run(**spec)
        explanation = result['explanation']
        context.update(
            result=result, considered=explanation['considered'],
            steps=bars.list_steps(explanation),
            ignored=[spelling.add_hint(key)
                     for key in result.get('ignored', ())],
            rows=self.name_projects(
                bars.draw_rows(result['profiles'][:_ROWS])))
        action = context.setdefault('action', self.make_form())
        members = action.cleaned_data['members'] if action.is_valid() else 1
        if result['matching_nodes'] < members:
            context['nearest'] = bars.describe_nearest(explanation)
        if (self.is_admin and not context['is_part']
                and 'ownership' not in spec):
            context['owners'] = self.name_projects(
                _sum_owners(result['profiles']))
        # Users who see no node would get a hint for every name.
        context['unknown'] = explanation['considered'] and (
            hints.check_request(service, spec, fleet_names, is_complete))

    def post(self, request: http.HttpRequest, **kwargs: Any
             ) -> http.HttpResponse:
        """Reserve a machine if the query is complete."""
        if not self.query.is_valid():
            return self.get(request, **kwargs)
        return super().post(request, **kwargs)

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **_kwargs: Any) -> tuple[Any, ...]:
        """Reserve a machine or a group."""
        spec = self.make_spec(data)
        attrs = {key: value for key, value in data.items()
                 if value and key not in ('project_id', 'ownership')}
        members = attrs.pop('members')
        if members > 1 or attrs.keys() & {'policy', 'by', 'levels'}:
            if 'project_id' in spec:
                attrs['project_id'] = spec.pop('project_id')
            group = service.create_group(
                members, spec, uuid=attrs.pop('instance_uuid'), **attrs)
            result, rows = ('group', group.id), group.reservations
            message = _('The group was reserved.')
        else:
            reservation = service.create(**{**attrs, **spec})
            result, rows = ('reservation', reservation.id), [reservation]
            message = html.format_html(
                _('<bdi>{}</bdi> was reserved.'),
                reservation.node_name or reservation.node_uuid)
        if self.is_admin and spec.get('ownership', 'any') == 'any':
            message = html.format_html(
                '{}{}', message, self._describe_owners(service, rows))
        return message, *result

    def _describe_owners(self, service: sdk.Proxy,
                         rows: list[sdk.Reservation]) -> str:
        """Return sentences with the owners and lessees of reserved nodes."""
        pairs = self.name_projects(api.read_owners(
            service, [row.node_uuid for row in rows]))
        words: str = html.format_html_join(
            '', ' {}: <bdi>{}</bdi>.', dict.fromkeys(
                (word, pair[key]) for key, word in (
                    ('owner', _('Owner')), ('lessee', _('Lessee')))
                for pair in pairs if pair[key]))
        return words


def _sum_owners(rows: list[api.Row]) -> list[api.Row]:
    """Return numbers of free nodes by owner and lessee, if they have one."""
    free: collections.Counter[tuple[str | None, str | None]] = (
        collections.Counter())
    for row in rows:
        if row['owner'] or row['lessee']:
            free[row['owner'], row['lessee']] += row['free']
    return [{'owner': owner, 'lessee': lessee, 'free': number}
            for (owner, lessee), number in free.most_common() if number]


def make_urls(is_admin: bool) -> list[Any]:
    """Return the URLs of a panel.

    Each panel needs its own patterns, because Horizon decorates them with
    what the panel requires.
    """
    tabs = [Capacity, reservations.Reservations, groups.Groups,
            pools.Pools, notices.Notices, *([Hosts] if is_admin else []), Ask]
    # Ironic may store UUIDs in capitals.
    uuid = '(?P<uuid>[0-9a-fA-F-]{36})'
    # ... and those of nodes without dashes.
    node = '(?P<uuid>[^/]+)'
    routes = [
        *(('' if page is Capacity else f'{page.name}/', page)
          for page in tabs),
        *((f'groups/{uuid}/{end}', page) for end, page in (
            ('', groups.Group), ('change/', groups.ChangeGroup),
            ('release/', groups.ReleaseGroup))),
        (f'nodes/{node}/history/', history.History),
        (f'pools/{uuid}/', pools.Pool),
        (f'pools/{uuid}/replace/{node.replace("uuid", "node")}/',
         pools.ReplaceNode),
        *([] if is_admin else [(
            f'pools/{uuid}/schedule/{node.replace("uuid", "node")}/'
            f'{uuid.replace("uuid", "notice")}/', pools.ScheduleNotice)]),
        *((f'pools/{uuid}/{end}', page) for end, page in (
            ('change/', pools.ChangePool), ('delete/', pools.DeletePool))
          if is_admin),
        *((f'reservations/{uuid}/{end}', page) for end, page in (
            ('', reservations.Reservation),
            ('change/', reservations.ChangeReservation),
            ('release/', reservations.ReleaseReservation))),
        *((f'reservations/{uuid}/{end}', page) for end, page in (
            ('report/', reservations.ReportFault),
            (f'schedule/{uuid.replace("uuid", "notice")}/',
             reservations.ScheduleNotice)) if not is_admin),
        ('notices/cordon/', notices.Cordon),
        (f'notices/{node}/uncordon/', notices.Uncordon),
        (f'notices/{node}/change/{uuid.replace("uuid", "notice")}/',
         notices.ChangeNotice)]
    return [re_path(f'^{route}$', page.as_view(is_admin=is_admin, tabs=tabs),
                    name=page.name) for route, page in routes]
