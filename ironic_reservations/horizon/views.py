# SPDX-License-Identifier: Apache-2.0
"""The pages of the fleet, and the URLs of both panels."""

from typing import Any

from django import http
from django.urls import path
from django.utils import dateparse
from django.utils.translation import gettext_lazy as _
from horizon.utils import functions

from ironic_reservations import names
from ironic_reservations import sdk
from ironic_reservations import spelling
from ironic_reservations.horizon import api
from ironic_reservations.horizon import bars
from ironic_reservations.horizon import forms
from ironic_reservations.horizon import groups
from ironic_reservations.horizon import hints
from ironic_reservations.horizon import pages
from ironic_reservations.horizon import reservations

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
        rows, following = api.read_page(
            service, '/capacity', by=by, limit=_ROWS,
            resource_class=resource_class,
            marker=self.request.GET.get('marker'))
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
        self.link_pages(context, following)


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
        rows, following = api.read_page(
            service, '/hosts', limit=functions.get_page_size(self.request),
            marker=self.request.GET.get('marker'))
        context['rows'] = [
            {**row, **{name: row.get(name) and dateparse.parse_datetime(
                row[name]) for name in ('since', 'created_at', 'expires_at')}}
            for row in rows]
        context['has_standbys'] = any('standbys' in row for row in rows)
        self.link_pages(context, following)


class Ask(pages.Action):
    """The machines that a request matches, and why the others do not.

    The query of the URL has the request, and a POST reserves a machine.
    """

    name = 'ask'
    page_title = title = _('What would match?')
    form_class = forms.Reserve

    def make_spec(self, form: forms.Ask) -> dict[str, Any]:
        """Return the request spec, with the ID of its project."""
        spec = form.make_request_spec()
        if 'project_id' in spec:
            spec['project_id'] = api.find_project_id(
                self.request, spec['project_id'])
        return spec

    def make_form(self, *args: Any, **kwargs: Any) -> forms.Confirmation:
        """Return the form that reserves a machine."""
        return super().make_form(*args, is_admin=self.is_admin, **kwargs)

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Make a dry run, which reserves nothing."""
        fleet_names, is_complete = hints.read_fleet_names(service)
        form = forms.Ask(self.request.GET or None, is_admin=self.is_admin)
        context.update(form=form, suggestions={
            **_list_suggestions(fleet_names), 'by': [
                *(f'capability:{name}'
                  for name in sorted(fleet_names['capability'])),
                'conductor_group', 'shard']})
        if form.is_valid():
            spec = self.make_spec(form)
            result = service.dry_run(**spec)
            explanation = result['explanation']
            context.update(
                result=result, considered=explanation['considered'],
                steps=bars.list_steps(explanation),
                nearest=bars.describe_nearest(explanation),
                ignored=[spelling.add_hint(key)
                         for key in result.get('ignored', ())],
                rows=self.name_projects(
                    bars.draw_rows(result['profiles'][:_ROWS])))
            if result['matching_nodes']:
                context.setdefault('action', self.make_form())
            # A user who sees no node would get a hint for every name.
            context['unknown'] = explanation['considered'] and (
                hints.check_request(service, spec, fleet_names, is_complete))

    def post(self, request: http.HttpRequest, **kwargs: Any
             ) -> http.HttpResponse:
        """Reserve a machine if the query is complete."""
        self.query = forms.Ask(request.GET, is_admin=self.is_admin)
        if not self.query.is_valid():
            return self.get(request, **kwargs)
        return super().post(request, **kwargs)

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **_kwargs: Any) -> tuple[Any, ...]:
        """Reserve a machine or a group."""
        spec = self.make_spec(self.query)
        attrs = {key: value for key, value in data.items() if value}
        if 'project_id' in attrs:
            attrs['project_id'] = api.find_project_id(
                self.request, attrs['project_id'])
        members = attrs.pop('members')
        if members > 1 or attrs.keys() & {'policy', 'by', 'levels'}:
            if 'project_id' in spec:
                attrs['project_id'] = spec.pop('project_id')
            group = service.create_group(
                members, spec, uuid=attrs.pop('instance_uuid'), **attrs)
            return _('The group was reserved.'), 'group', group.id
        reservation = service.create(**{**attrs, **spec})
        return (_('%s was reserved.') % reservation.node_name,
                'reservation', reservation.id)


def make_urls(is_admin: bool) -> list[Any]:
    """Return the URLs of a panel.

    Each panel needs its own patterns, because Horizon decorates them with
    what the panel requires.
    """
    tabs = [Capacity, reservations.Reservations, groups.Groups,
            *([Hosts] if is_admin else []), Ask]
    routes = [
        *(('' if page is Capacity else f'{page.name}/', page)
          for page in tabs),
        *((f'groups/<uuid:uuid>/{end}', page) for end, page in (
            ('', groups.Group), ('change/', groups.ChangeGroup),
            ('release/', groups.ReleaseGroup))),
        *((f'reservations/<uuid:uuid>/{end}', page) for end, page in (
            ('', reservations.Reservation),
            ('change/', reservations.ChangeReservation),
            ('release/', reservations.ReleaseReservation)))]
    return [path(route, page.as_view(is_admin=is_admin, tabs=tabs),
                 name=page.name) for route, page in routes]
