# SPDX-License-Identifier: Apache-2.0
"""The pages, which both panels have."""

from django import shortcuts
from django.urls import path
from django.utils import dateparse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon import messages
from horizon import views
from horizon.utils import functions

from ironic_reservations.horizon import api
from ironic_reservations.horizon import bars
from ironic_reservations.horizon import forms

#: So many rows of the capacity are on a page.
_ROWS = 100

#: In these states the API may let go of a node.
_RELEASABLE = ('reserved', 'unavailable')

#: The columns of the list: a key to sort by or None, and its header.
_COLUMNS = ((None, _('Node')), (None, _('State')),
            ('project_id', _('Project')), ('host', _('Compute host')),
            ('expires_at', _('Lease ends')), ('created_at', _('Since')),
            (None, _('Action')))


def _namespace(is_admin):
    """How the pages of a panel are named."""
    return (f'horizon:{"admin" if is_admin else "project"}:'
            f'baremetal_reservations')


class Page(views.HorizonTemplateView):
    """A page of either panel.

    :ivar is_admin: whether it is of the panel under Admin.
    """

    is_admin = False
    name = None

    @property
    def template_name(self):
        """The template has the name of the page."""
        return f'baremetal_reservations/{self.name}.html'

    def get_context_data(self, **kwargs):
        """Read what the page shows; what cannot be read is said instead."""
        # Under Admin only whoever is in system scope sees all.
        context = super().get_context_data(
            here=_namespace(self.is_admin), is_admin=self.is_admin,
            is_part=self.is_admin and not self.request.user.system_scoped,
            pages=[page for page in PAGES
                   if self.is_admin or page is not Hosts],
            page=self, **kwargs)
        try:
            self.read(api.reservations(self.request), context)
        except api.ERRORS as error:
            context['error'] = api.sentence(error)
        return context

    def read(self, service, context):
        """Put into the context what the page shows."""
        raise NotImplementedError

    def query(self, **changes):
        """Return the query of this page, with other values, for a link."""
        query = self.request.GET.copy()
        for name in ('marker', 'before', *changes):
            query.pop(name, None)
        for name, value in changes.items():
            if value:
                query[name] = value
        return f'?{query.urlencode()}'

    def named(self, rows, by=None):
        """Put names of projects into rows of the capacity.

        :param by: what the rows are sums by, whose value is then ``named``.
        """
        names = api.project_names(self.request, (
            row.get(key) for row in rows for key in ('owner', 'lessee')))
        found = []
        for row in rows:
            row = {**row, **{key: names.get(row[key], row[key])
                             for key in ('owner', 'lessee') if key in row}}
            found.append({**row, 'named': row[by]} if by else row)
        return found

    def turn(self, context, following):
        """Put the links to other pages of a list into the context."""
        if following:
            context['next_page'] = self.query(marker=following)
        if self.request.GET.get('marker'):
            context['first_page'] = self.query()


class Capacity(Page):
    """What the fleet can give, at a glance."""

    name = 'index'
    page_title = _('Bare Metal Reservations')
    title = _('Capacity')

    def read(self, service, context):
        """Count the whole fleet, and then the rows that are asked for."""
        classes, _none = api.page(service, '/capacity', by='resource_class')
        known = _known(service, classes)
        form = forms.Capacity(self.request.GET or None,
                              capabilities=known['capabilities'])
        given = form.cleaned_data if form.is_valid() else {}
        rows, following = api.page(
            service, '/capacity', by=given.get('by'), limit=_ROWS,
            marker=self.request.GET.get('marker'),
            resource_class=given.get('resource_class'))
        keys = [key for key, _word in bars.PARTS]
        whole = {key: sum(each[key] for each in classes)
                 for key in (*keys, 'total')}
        context.update(
            form=form, by=given.get('by'), whole=whole,
            whole_bar=bars.of_counts(whole), suggestions=known,
            rows=self.named(bars.of_rows(rows), given.get('by')))
        self.turn(context, following)


def _known(service, classes):
    """What is suggested to who fills in a form, from part of the fleet."""
    profiles, _none = api.page(service, '/capacity', limit=_ROWS)
    return {
        'classes': sorted(each['resource_class'] for each in classes
                          if each['resource_class']),
        'traits': sorted({trait for each in profiles
                          for trait in each['traits']}),
        'capabilities': sorted({name for each in profiles
                                for name in each['capabilities']})}


class Reservations(Page):
    """Who holds what, and until when."""

    name = 'reservations'
    page_title = title = _('Reservations')

    def read(self, service, context):
        """Read one page; the server filters, sorts and cuts."""
        form = forms.Reservations(self.request.GET, is_admin=self.is_admin)
        context['form'] = form
        if not form.is_valid():
            return
        query = dict(form.cleaned_data)
        # To go back, the list is read the other way round from where we are.
        before = self.request.GET.get('before')
        key, direction = query['sort_key'], query['sort_dir'] or 'asc'
        if before:
            query['sort_dir'] = {'asc': 'desc'}.get(direction, 'asc')
        marker = before or self.request.GET.get('marker')
        rows, following = api.page(
            service, limit=functions.get_page_size(self.request),
            marker=marker, **query)
        more = following is not None
        if before:
            rows.reverse()
        context.update(
            columns=[{'title': title, 'key': each, 'is_sorted': key == each,
                      'direction': direction, 'link': each and self.query(
                          sort_key=each, sort_dir=(
                              'desc' if key == each and direction == 'asc'
                              else 'asc'))} for each, title in _COLUMNS
                     if self.is_admin or each != 'project_id'],
            rows=shown(self.request, rows),
            is_filtered=any(value for name, value in query.items()
                            if not name.startswith('sort_')))
        if rows and (before or more):
            context['next_page'] = self.query(
                marker=rows[-1]['instance_uuid'])
        if rows and (more if before else marker):
            context['previous_page'] = self.query(
                before=rows[0]['instance_uuid'])
        if marker:
            context['first_page'] = self.query()


def shown(request, rows):
    """Return reservations with what is told of them in words."""
    names = api.project_names(request, (row['project_id'] for row in rows))
    return [_shown(row, names) for row in rows]


def _shown(row, names):
    ends = row['expires_at'] and dateparse.parse_datetime(row['expires_at'])
    return {
        **row, 'said': forms.STATES.get(row['state'], row['state']),
        'project': names.get(row['project_id']), 'ends': ends,
        'since': dateparse.parse_datetime(row['created_at']),
        'is_overdue': bool(ends and ends < timezone.now()),
        'is_releasable': row['state'] in _RELEASABLE}


class Reservation(Page):
    """All of one reservation."""

    name = 'reservation'
    page_title = _('Reservation')

    def read(self, service, context):
        """Read it whole, with what was asked for."""
        row = service.show(str(context['instance_uuid'])).to_dict()
        context['row'], = shown(self.request, [row])


class Groups(Page):
    """What is held together, by domain."""

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
             'domains': bars.of_domains(row['domains']),
             'since': dateparse.parse_datetime(row['created_at'])}
            for row in rows]
        self.turn(context, following)


class Hosts(Page):
    """Which processes are compute hosts."""

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
        self.turn(context, following)


class Ask(Page):
    """What would match, and why the rest does not."""

    name = 'ask'
    page_title = title = _('What would match?')

    def read(self, service, context):
        """Ask a dry run, which holds nothing."""
        classes, _none = api.page(service, '/capacity', by='resource_class')
        form = forms.Ask(self.request.GET or None, is_admin=self.is_admin)
        context.update(form=form, suggestions=_known(service, classes))
        if form.is_valid():
            found = service.dry_run(**form.request())
            why = found['explanation']
            context.update(
                found=found, considered=why['considered'],
                steps=bars.steps(why), nearest=bars.nearest(why),
                rows=self.named(bars.of_rows(found['profiles'][:_ROWS])))


class Release(Reservation):
    """Ask before a node is let go."""

    name = 'release'
    page_title = _('Release this node?')

    def post(self, request, instance_uuid, **_kwargs):
        """Let go of it, and return to the list; a refusal is told there."""
        try:
            api.reservations(request).release(str(instance_uuid),
                                              ignore_missing=False)
        except api.ERRORS as error:
            messages.error(request, api.sentence(error))
        else:
            messages.success(request, _(
                'The node of instance %s is free again.') % instance_uuid)
        return shortcuts.redirect(f'{_namespace(self.is_admin)}:reservations')


#: What the tabs show, in this order.
PAGES = (Capacity, Reservations, Groups, Hosts, Ask)


def urls(is_admin):
    """Return the URLs of a panel.

    Each panel needs patterns of its own, because Horizon decorates them with
    what the panel demands.
    """
    return [
        *(path('' if page is Capacity else f'{page.name}/',
               page.as_view(is_admin=is_admin), name=page.name)
          for page in PAGES if is_admin or page is not Hosts),
        path('reservations/<uuid:instance_uuid>/',
             Reservation.as_view(is_admin=is_admin), name='reservation'),
        path('reservations/<uuid:instance_uuid>/release/',
             Release.as_view(is_admin=is_admin), name='release')]
