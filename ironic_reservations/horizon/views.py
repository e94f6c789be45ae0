# SPDX-License-Identifier: Apache-2.0
"""The pages of both panels."""

from django import shortcuts
from django.urls import path
from django.utils import dateparse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon import messages
from horizon import views
from horizon.utils import functions

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


def _namespace(is_admin):
    """Return the namespace of a panel's URLs."""
    return (f'horizon:{"admin" if is_admin else "project"}:'
            f'baremetal_reservations')


class Page(views.HorizonTemplateView):
    """A page of either panel.

    :ivar is_admin: whether it belongs to the panel under Admin.
    """

    is_admin = False
    name = None

    @property
    def template_name(self):
        """Return the template, which is named after the page."""
        return f'baremetal_reservations/{self.name}.html'

    def get_context_data(self, **kwargs):
        """Read the data of the page; an error is shown instead."""
        # Only system scope shows the whole fleet.
        context = super().get_context_data(
            here=_namespace(self.is_admin), is_admin=self.is_admin,
            is_part=self.is_admin and not self.request.user.system_scoped,
            pages=[page for page in PAGES
                   if self.is_admin or page is not Hosts],
            page=self, **kwargs)
        try:
            self.read(api.reservations(self.request), context)
        except api.ERRORS as error:
            context['error'] = api.error_text(error)
        return context

    def read(self, service, context):
        """Add the data of the page to the context."""
        raise NotImplementedError

    def query(self, **changes):
        """Return the query of this page with other values, for a link."""
        query = self.request.GET.copy()
        for name in ('marker', 'before', *changes):
            query.pop(name, None)
        for name, value in changes.items():
            if value:
                query[name] = value
        return f'?{query.urlencode()}'

    def name_projects(self, rows, by=None):
        """Replace project IDs in capacity rows by names.

        :param by: key of the sums, whose value becomes ``heading``.
        """
        names = api.project_names(self.request, (
            row.get(key) for row in rows for key in ('owner', 'lessee')))
        rows = [{**row, **{key: names.get(row[key], row[key])
                           for key in ('owner', 'lessee') if key in row}}
                for row in rows]
        return [{**row, 'heading': row[by]} for row in rows] if by else rows

    def link_pages(self, context, following):
        """Add the links to other pages of a list."""
        if following:
            context['next_page'] = self.query(marker=following)
        if self.request.GET.get('marker'):
            context['first_page'] = self.query()


class Capacity(Page):
    """Numbers of free and other machines."""

    name = 'index'
    page_title = _('Bare Metal Reservations')
    title = _('Capacity')

    def read(self, service, context):
        """Count the whole fleet, and read the rows that match the form."""
        classes, _following = api.page(service, '/capacity',
                                       by='resource_class')
        known, _is_complete = hints.known_names(service)
        form = forms.Capacity(self.request.GET or None,
                              capabilities=sorted(known['capability']))
        data = form.cleaned_data if form.is_valid() else {}
        by, wanted = data.get('by'), data.get('resource_class')
        rows, following = api.page(
            service, '/capacity', by=by, limit=_ROWS, resource_class=wanted,
            marker=self.request.GET.get('marker'))
        keys = [key for key, _word in bars.PARTS]
        whole = {key: sum(row[key] for row in classes)
                 for key in (*keys, 'total')}
        context.update(
            form=form, by=by, wanted=wanted, whole=whole,
            whole_bar=bars.draw_counts(whole), known=_suggestions(known),
            rows=self.name_projects(bars.draw_rows(rows), by))
        if wanted and not rows:
            similar = spelling.closest(wanted, known['resource class'])
            context['similar'] = similar and {
                'name': similar, 'link': self.query(resource_class=similar)}
        self.link_pages(context, following)


def _suggestions(known):
    """Return sorted names by the key of a form's field."""
    return {kind.replace(' ', '_'): sorted(known[kind]) for kind in (
        'resource class', 'trait', 'shard', 'conductor group')}


class Reservations(Page):
    """The list of reservations."""

    name = 'reservations'
    page_title = title = _('Reservations')

    def read(self, service, context):
        """Read one page; the server filters, sorts and paginates."""
        form = forms.Reservations(self.request.GET, is_admin=self.is_admin)
        context['form'] = form
        if not form.is_valid():
            return
        query = dict(form.cleaned_data)
        # The previous page is read in reverse order, from the first row on.
        before = self.request.GET.get('before')
        key, direction = query['sort_key'], query['sort_dir'] or 'asc'
        if before:
            query['sort_dir'] = {'asc': 'desc'}.get(direction, 'asc')
        marker = before or self.request.GET.get('marker')
        rows, following = api.page(
            service, limit=functions.get_page_size(self.request),
            marker=marker, **query)
        if before:
            rows.reverse()
        context.update(
            columns=self._columns(key, direction),
            rows=present_reservations(self.request, rows),
            is_filtered=any(value for name, value in query.items()
                            if not name.startswith('sort_')))
        if not rows:
            context['similar_names'] = [
                {'kind': kind, 'name': similar, 'link': self.query(
                    **{kind.replace(' ', '_'): similar})}
                for kind, _name, similar in hints.in_filters(service, query)
                if similar]
        self._link_pages(context, rows, before, marker, following is not None)

    def _columns(self, key, direction):
        """Return the headers; each links to the list sorted by it."""
        return [{'title': title, 'key': column, 'is_sorted': key == column,
                 'direction': direction, 'link': column and self.query(
                     sort_key=column, sort_dir=(
                         'desc' if key == column and direction == 'asc'
                         else 'asc'))}
                for column, title in _COLUMNS
                if self.is_admin or column != 'project_id']

    def _link_pages(self, context, rows, before, marker, more):
        if rows and (before or more):
            context['next_page'] = self.query(
                marker=rows[-1]['instance_uuid'])
        if rows and (more if before else marker):
            context['previous_page'] = self.query(
                before=rows[0]['instance_uuid'])
        if marker:
            context['first_page'] = self.query()


def present_reservations(request, rows):
    """Return reservations with the values that templates show."""
    names = api.project_names(request, (row['project_id'] for row in rows))
    return [_present_reservation(row, names) for row in rows]


def _present_reservation(row, names):
    expires = row['expires_at'] and dateparse.parse_datetime(
        row['expires_at'])
    return {
        **row, 'state_word': forms.STATES.get(row['state'], row['state']),
        'project': names.get(row['project_id']), 'expires': expires,
        'since': dateparse.parse_datetime(row['created_at']),
        'is_overdue': bool(expires and expires < timezone.now()),
        'is_releasable': row['state'] in _RELEASABLE}


class Reservation(Page):
    """One reservation."""

    name = 'reservation'
    page_title = _('Reservation')

    def read(self, service, context):
        """Read it with its request."""
        row = service.show(str(context['instance_uuid'])).to_dict()
        context['row'], = present_reservations(self.request, [row])


class Groups(Page):
    """The list of groups, with their members by domain."""

    name = 'groups'
    page_title = title = _('Groups')

    def read(self, service, context):
        """Read one page."""
        rows, following = api.page(
            service, '/groups', limit=functions.get_page_size(self.request),
            marker=self.request.GET.get('marker'))
        names = api.project_names(self.request, (row['project_id']
                                                 for row in rows))
        context['rows'] = [
            {**row, 'project': names.get(row['project_id']),
             'domains': bars.draw_domains(row['domains']),
             'since': dateparse.parse_datetime(row['created_at'])}
            for row in rows]
        self.link_pages(context, following)


class Hosts(Page):
    """The compute hosts that have a host lease."""

    name = 'hosts'
    page_title = title = _('Compute hosts')

    def read(self, service, context):
        """Read one page."""
        rows, following = api.page(
            service, '/hosts', limit=functions.get_page_size(self.request),
            marker=self.request.GET.get('marker'))
        context['rows'] = [
            {**row, **{name: row.get(name) and dateparse.parse_datetime(
                row[name]) for name in ('since', 'created_at', 'expires_at')}}
            for row in rows]
        context['has_standbys'] = any('standbys' in row for row in rows)
        self.link_pages(context, following)


class Ask(Page):
    """Which machines a request matches, and why the others do not."""

    name = 'ask'
    page_title = title = _('What would match?')

    def read(self, service, context):
        """Make a dry run, which reserves nothing."""
        known, is_complete = hints.known_names(service)
        form = forms.Ask(self.request.GET or None, is_admin=self.is_admin)
        context.update(form=form, known=_suggestions(known))
        if form.is_valid():
            spec = form.request()
            result = service.dry_run(**spec)
            explanation = result['explanation']
            context.update(
                result=result, considered=explanation['considered'],
                steps=bars.steps(explanation),
                nearest=bars.nearest(explanation),
                ignored=[spelling.with_hint(key)
                         for key in result.get('ignored', ())],
                rows=self.name_projects(
                    bars.draw_rows(result['profiles'][:_ROWS])))
            # Where the user sees no node, no name is known.
            context['unknown'] = explanation['considered'] and (
                hints.in_request(service, spec, known, is_complete))


class Release(Reservation):
    """Confirms that a node is to be released."""

    name = 'release'
    page_title = _('Release this node?')

    def post(self, request, instance_uuid, **_kwargs):
        """Release it, and return to the list with the outcome."""
        try:
            api.reservations(request).release(str(instance_uuid),
                                              ignore_missing=False)
        except api.ERRORS as error:
            messages.error(request, api.error_text(error))
        else:
            messages.success(request, _(
                'The node of instance %s was released.') % instance_uuid)
        return shortcuts.redirect(f'{_namespace(self.is_admin)}:reservations')


#: The tabs in order.
PAGES = (Capacity, Reservations, Groups, Hosts, Ask)


def urls(is_admin):
    """Return the URLs of a panel.

    Each panel needs its own patterns, because Horizon decorates them with
    what the panel requires.
    """
    return [
        *(path('' if page is Capacity else f'{page.name}/',
               page.as_view(is_admin=is_admin), name=page.name)
          for page in PAGES if is_admin or page is not Hosts),
        path('reservations/<uuid:instance_uuid>/',
             Reservation.as_view(is_admin=is_admin), name='reservation'),
        path('reservations/<uuid:instance_uuid>/release/',
             Release.as_view(is_admin=is_admin), name='release')]
