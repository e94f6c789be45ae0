# SPDX-License-Identifier: Apache-2.0
"""The pages of both panels."""

from typing import Any

from django import http
from django import shortcuts
from django.urls import path
from django.utils import dateparse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon import messages
from horizon import views
from horizon.utils import functions

from ironic_reservations import names
from ironic_reservations import sdk
from ironic_reservations import spelling
from ironic_reservations.horizon import api
from ironic_reservations.horizon import bars
from ironic_reservations.horizon import forms
from ironic_reservations.horizon import hints

#: Maximum number of capacity rows on a page.
_ROWS = 100

#: States in which the API releases a reservation.
_RELEASABLE = ('reserved', 'unavailable')

#: Columns of the list: a sort key or None, and the header.
_COLUMNS = ((None, _('Node')), (None, _('State')),
            ('project_id', _('Project')), ('host', _('Compute host')),
            ('expires_at', _('Lease expires')), ('created_at', _('Since')),
            (None, _('Action')))


def _namespace(is_admin: bool) -> str:
    """Return the namespace of a panel's URLs."""
    return (f'horizon:{"admin" if is_admin else "project"}:'
            f'baremetal_reservations')


class Page(views.HorizonTemplateView):
    """A page of either panel.

    :ivar is_admin: whether it belongs to the panel under Admin.
    """

    is_admin = False
    name = ''

    @property
    def template_name(self) -> str:
        """Return the template, which is named after the page."""
        return f'baremetal_reservations/{self.name}.html'

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Read the data of the page; an error is shown instead."""
        # Only system scope shows the whole fleet.
        context = super().get_context_data(
            here=_namespace(self.is_admin), is_admin=self.is_admin,
            is_part=self.is_admin and not self.request.user.system_scoped,
            pages=[page for page in PAGES
                   if self.is_admin or page is not Hosts],
            page=self, **kwargs)
        try:
            self.read(api.connect(self.request), context)
        except api.ERRORS as error:
            context['error'] = api.format_error(error)
        return context

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Add the data of the page to the context."""
        raise NotImplementedError

    def make_link(self, **changes: Any) -> str:
        """Return a link to this page with other values in its query."""
        query = self.request.GET.copy()
        for name in ('marker', 'before', *changes):
            query.pop(name, None)
        for name, value in changes.items():
            if value:
                query[name] = value
        return f'?{query.urlencode()}'

    def name_projects(self, rows: list[api.Row],
                      by: str | None = None) -> list[api.Row]:
        """Replace project IDs in capacity rows by names.

        :param by: key that the rows are grouped by. Its value becomes
            ``heading``.
        """
        projects = api.read_project_names(self.request, (
            row.get(key) for row in rows for key in ('owner', 'lessee')))
        rows = [{**row, **{key: projects.get(row[key], row[key])
                           for key in ('owner', 'lessee') if key in row}}
                for row in rows]
        return [{**row, 'heading': row[by]} for row in rows] if by else rows

    def link_pages(self, context: dict[str, Any],
                   following: str | None) -> None:
        """Add the links to other pages of a list."""
        if following:
            context['next_page'] = self.make_link(marker=following)
        if self.request.GET.get('marker'):
            context['first_page'] = self.make_link()


class Capacity(Page):
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


class Reservations(Page):
    """The list of reservations."""

    name = 'reservations'
    page_title = title = _('Reservations')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read one page; the server filters, sorts and paginates."""
        form = forms.Reservations(self.request.GET, is_admin=self.is_admin)
        context['form'] = form
        if not form.is_valid():
            return
        query = dict(form.cleaned_data)
        if query.get('project_id'):
            query['project_id'] = api.find_project_id(
                self.request, query['project_id'])
        fleet_names = hints.read_filter_names(service)
        context['suggestions'] = {
            key: sorted(values) for key, values in fleet_names.items()}
        # Also if the list cannot be read with these filters.
        context['is_filtered'] = any(
            value for name, value in query.items()
            if not name.startswith('sort_'))
        # Read the previous page backwards, starting at the first row of the
        # page after it.
        before = self.request.GET.get('before')
        key, direction = query['sort_key'], query['sort_dir'] or 'asc'
        if before:
            query['sort_dir'] = {'asc': 'desc'}.get(direction, 'asc')
        marker = before or self.request.GET.get('marker')
        rows, following = api.read_page(
            service, limit=functions.get_page_size(self.request),
            marker=marker, **query)
        if before:
            rows.reverse()
        context.update(
            columns=self._columns(key, direction),
            rows=present_reservations(self.request, rows))
        context['suggestions']['project'] = sorted(
            {row['project'] for row in context['rows'] if row['project']})
        if not rows:
            context['unknown'] = [
                {'kind': kind, 'name': name,
                 'similar': similar and {
                     'name': similar, 'link': self.make_link(
                         **{kind.replace(' ', '_'): similar})}}
                for kind, name, similar
                in hints.check_filters(query, fleet_names)]
        self._link_pages(context, rows, before, marker, following)

    def _columns(self, key: str, direction: str) -> list[dict[str, Any]]:
        """Return the headers; each links to the list sorted by it."""
        return [{'title': title, 'key': column, 'is_sorted': key == column,
                 'direction': direction, 'link': column and self.make_link(
                     sort_key=column, sort_dir=(
                         'desc' if key == column and direction == 'asc'
                         else 'asc'))}
                for column, title in _COLUMNS
                if self.is_admin or column != 'project_id']

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


def present_reservations(request: http.HttpRequest,
                         rows: list[api.Row]) -> list[api.Row]:
    """Return reservations with the values that templates show."""
    projects = api.read_project_names(
        request, (row['project_id'] for row in rows))
    return [_present_reservation(row, projects) for row in rows]


def _present_reservation(row: api.Row, projects: dict[str, str]) -> api.Row:
    expires = row['expires_at'] and dateparse.parse_datetime(
        row['expires_at'])
    return {
        **row, 'state_word': forms.STATES.get(row['state'], row['state']),
        'project': projects.get(row['project_id']), 'expires': expires,
        'since': dateparse.parse_datetime(row['created_at']),
        'is_overdue': bool(expires and expires < timezone.now()),
        'is_releasable': row['state'] in _RELEASABLE}


class Reservation(Page):
    """One reservation.

    :cvar facts: template of what is known about it.
    :cvar back: page of the list.
    """

    facts = 'baremetal_reservations/_facts.html'
    back = 'reservations'
    name = 'reservation'
    page_title = _('Reservation')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the reservation with its request."""
        row = service.show(str(context['instance_uuid'])).to_dict()
        context['row'], = present_reservations(self.request, [row])
        group = row['group']
        if group:
            context['row']['group'] = {
                'levels': [group], **group,
                'domain': group['domain'] and bars.format_domain(
                    group['domain'])}


class Groups(Page):
    """The list of groups, with their members by domain."""

    name = 'groups'
    page_title = title = _('Groups')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read one page."""
        rows, following = api.read_page(
            service, '/groups', limit=functions.get_page_size(self.request),
            marker=self.request.GET.get('marker'))
        projects = api.read_project_names(
            self.request, (row['project_id'] for row in rows))
        context['rows'] = [
            {**row, 'project': projects.get(row['project_id']),
             # A group with segments has its policies in its levels.
             'levels': row.get('levels', [row]),
             'domains': bars.draw_domains(row['domains']),
             'since': dateparse.parse_datetime(row['created_at'])}
            for row in rows]
        self.link_pages(context, following)


class Group(Page):
    """One group with its members."""

    name = 'group'
    page_title = _('Group')
    facts = 'baremetal_reservations/_group.html'
    back = 'groups'

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the group."""
        row = service.show_group(str(context['group_uuid'])).to_dict()
        rows = present_reservations(self.request, row['reservations'])
        projects = api.read_project_names(self.request, [row['project_id']])
        context.update(
            row={**row, 'levels': row['levels'] or [row],
                 'project': projects.get(row['project_id']),
                 'since': dateparse.parse_datetime(row['created_at'])},
            rows=[{**member, 'domain': member['group']['domain']
                   and bars.format_domain(member['group']['domain'])}
                  for member in rows],
            columns=[{'title': title} for column, title in _COLUMNS
                     if self.is_admin or column != 'project_id'])


class Hosts(Page):
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


class _Action(Page):
    """A page with a form that changes something.

    :cvar form_class: class of the form.
    """

    form_class: type[forms.Confirmation] = forms.Confirmation

    def post(self, request: http.HttpRequest, **kwargs: Any
             ) -> http.HttpResponse:
        """Make the change; show an error next to the form."""
        form, error = self.make_form(request.POST), None
        if form.is_valid():
            try:
                message, page, *args = self.act(
                    api.connect(request), form.cleaned_data, **kwargs)
            except api.ERRORS as e:
                error = api.format_error(e)
            else:
                messages.success(request, message)
                return shortcuts.redirect(
                    f'{_namespace(self.is_admin)}:{page}', *args)
        return self.render_to_response(self.get_context_data(
            action=form, error=error, **kwargs))

    def make_form(self, *args: Any, **kwargs: Any) -> forms.Confirmation:
        """Return the form; the arguments are those of its class."""
        return self.form_class(*args, **kwargs)

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Make the change.

        :param data: values of the form.
        :returns: a message for the user, and the name of the page to show,
            with its arguments.
        """
        raise NotImplementedError


class Ask(_Action):
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
        if members > 1 or 'policy' in attrs or 'by' in attrs:
            if 'project_id' in spec:
                attrs['project_id'] = spec.pop('project_id')
            group = service.create_group(
                members, spec, uuid=attrs.pop('instance_uuid'), **attrs)
            return _('The group was reserved.'), 'group', group.id
        reservation = service.create(**{**attrs, **spec})
        return (_('%s was reserved.') % reservation.node_name,
                'reservation', reservation.id)


class Change(_Action, Reservation):
    """The form that changes a reservation."""

    name = 'change'
    page_title = _('Change this reservation')
    form_class = forms.Change

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the reservation; the form begins with its description."""
        super().read(service, context)
        context.setdefault('action', forms.Change(initial={
            'description': context['row']['description']}))

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Renew the lease if a new one is given, and set the description."""
        instance_uuid = str(kwargs['instance_uuid'])
        if data['expires_in'] != '':
            service.renew(instance_uuid, data['expires_in'])
        service.describe(instance_uuid, data['description'] or None)
        return _('The reservation was changed.'), 'reservations'


class Release(_Action, Reservation):
    """The question whether to release a node."""

    name = 'release'
    page_title = _('Release this node?')

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Release the node."""
        instance_uuid = str(kwargs['instance_uuid'])
        service.release(instance_uuid, ignore_missing=False)
        return (_('The node of instance %s was released.') % instance_uuid,
                'reservations')


class ChangeGroup(_Action, Group):
    """The form that changes a group."""

    name = 'change-group'
    template_name = 'baremetal_reservations/change.html'
    page_title = _('Change this group')
    form_class = forms.Change

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the group; the form begins with its description."""
        super().read(service, context)
        context.setdefault('action', forms.Change(initial={
            'description': context['row']['description']}))

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Renew the leases if a new one is given, and set the description."""
        group_uuid = str(kwargs['group_uuid'])
        if data['expires_in'] != '':
            service.renew_group(group_uuid, data['expires_in'])
        service.describe_group(group_uuid, data['description'] or None)
        return _('The group was changed.'), 'group', group_uuid


class ReleaseGroup(_Action, Group):
    """The question whether to release a group."""

    name = 'release-group'
    page_title = _('Release this group?')

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Release the members."""
        group_uuid = str(kwargs['group_uuid'])
        service.release_group(group_uuid, ignore_missing=False)
        return _('The group %s was released.') % group_uuid, 'groups'


#: The tabs in order.
PAGES = (Capacity, Reservations, Groups, Hosts, Ask)


def make_urls(is_admin: bool) -> list[Any]:
    """Return the URLs of a panel.

    Each panel needs its own patterns, because Horizon decorates them with
    what the panel requires.
    """
    return [
        *(path('' if page is Capacity else f'{page.name}/',
               page.as_view(is_admin=is_admin), name=page.name)
          for page in PAGES if is_admin or page is not Hosts),
        *(path(f'groups/<uuid:group_uuid>/{end}',
               page.as_view(is_admin=is_admin), name=page.name)
          for end, page in (('', Group), ('change/', ChangeGroup),
                            ('release/', ReleaseGroup))),
        path('reservations/<uuid:instance_uuid>/',
             Reservation.as_view(is_admin=is_admin), name='reservation'),
        path('reservations/<uuid:instance_uuid>/change/',
             Change.as_view(is_admin=is_admin), name='change'),
        path('reservations/<uuid:instance_uuid>/release/',
             Release.as_view(is_admin=is_admin), name='release')]
