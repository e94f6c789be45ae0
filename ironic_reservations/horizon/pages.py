# SPDX-License-Identifier: Apache-2.0
"""Base classes of the pages of both panels."""

from collections.abc import Sequence
import datetime
from typing import Any

from django import http
from django import shortcuts
from django.utils import dateparse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from horizon import messages
from horizon import views
from horizon.utils import functions

from ironic_reservations import sdk
from ironic_reservations.horizon import api
from ironic_reservations.horizon import forms

# Keys of capacity rows whose values are project IDs.
_PROJECTS = 'owner', 'lessee', 'pool_project_id', 'project_id'


class Page(views.HorizonTemplateView):
    """A page of either panel.

    :ivar is_admin: whether it belongs to the panel under Admin.
    :ivar tabs: classes of the pages that the panel's tabs lead to.
    :cvar tab: name of the list to which the page belongs.
    :cvar path: start of the path in the API of the resource on the page.
    """

    is_admin = False
    tabs: Sequence[type['Page']] = ()
    name = ''
    tab = ''
    path = ''

    @property
    def template_name(self) -> str:
        """Return the template, which is named after the page."""
        return f'baremetal_reservations/{self.name}.html'

    @property
    def namespace(self) -> str:
        """Return the namespace of the panel's URLs."""
        return (f'horizon:{"admin" if self.is_admin else "project"}:'
                f'baremetal_reservations')

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Read the data of the page; an error is shown instead."""
        # Only system scope shows the whole fleet.
        context = super().get_context_data(
            here=self.namespace, is_admin=self.is_admin,
            is_part=self.is_admin and not self.request.user.system_scoped,
            page=self, **kwargs)
        try:
            self.read(api.connect(self.request), context)
        except api.ERRORS as error:
            context['error'] = api.format_error(error)
        return context

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Add the data of the page to the context."""

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
            row.get(key) for row in rows for key in _PROJECTS))
        rows = [{**row, **{key: projects.get(row[key], row[key])
                           for key in _PROJECTS if key in row}}
                for row in rows]
        return [{**row, 'heading': row[by]} for row in rows] if by else rows

    def read_page(self, service: sdk.Proxy, context: dict[str, Any],
                  collection: str, **query: Any) -> list[api.Row]:
        """Return the rows of a page of a list; add links to other pages.

        :param collection: see ``api.read_page``, as for ``query``.
        """
        marker = self.request.GET.get('marker')
        rows, following = api.read_page(
            service, collection, marker=marker,
            **{'limit': functions.get_page_size(self.request), **query})
        if following:
            context['next_page'] = self.make_link(marker=following)
        if marker:
            context['first_page'] = self.make_link()
        return rows

    def present_rows(self, rows: list[api.Row]) -> list[api.Row]:
        """Add the name of the project and times to rows."""
        projects = api.read_project_names(
            self.request, (row['project_id'] for row in rows))
        return [{**row, 'project': projects.get(row['project_id']),
                 'since': parse_time(row['created_at']),
                 'expires': (expires := parse_time(row.get('expires_at'))),
                 'lease': expires and format_lease(expires)} for row in rows]


def parse_time(text: str | None) -> Any:
    """Return a time that a template can show in the user's time zone.

    Those of the years 1 and 9999 may have no equivalent in it, and keep their
    digits.
    """
    if text is None:
        return None
    moment = dateparse.parse_datetime(text)
    try:
        return timezone.localtime(moment)
    except OverflowError:
        return moment.replace(tzinfo=timezone.get_current_timezone())


def format_lease(expires: datetime.datetime) -> str:
    """Return the time until a lease expires, such as ``in 1 h 59 min``."""
    remaining = int((expires - timezone.now()).total_seconds())
    seconds, parts = abs(remaining), []
    for unit, length in ((_('d'), 86400), (_('h'), 3600), (_('min'), 60)):
        number, seconds = divmod(seconds, length)
        if number:
            parts.append(f'{number} {unit}')
    text = ' '.join(parts[:2]) or f'{seconds} {_("s")}'
    lease: str = (_('%s ago') if remaining < 0 else _('in %s')) % text
    return lease


class Action(Page):
    """A page with a form that changes something.

    :cvar form_class: class of the form.
    """

    form_class: type[forms.Confirmation] = forms.Confirmation

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the page, and add the form unless the user has sent one."""
        super().read(service, context)
        context.setdefault('action', self.make_form())

    def post(self, request: http.HttpRequest, **kwargs: Any
             ) -> http.HttpResponse:
        """Make the change; show an error next to the form."""
        form, error = self.make_form(request.POST), None
        if form.is_valid():
            try:
                message, page, *args = self.act(
                    api.connect(request), form.cleaned_data, **kwargs)
            except api.ERRORS as e:
                error = form.use_labels(api.format_error(e))
            else:
                messages.success(request, message)
                return shortcuts.redirect(
                    f'{self.namespace}:{page}', *args)
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


class Change(Action):
    """The form that changes a reservation, a group or a pool.

    :cvar message: message to the user after the change.
    """

    template_name = 'baremetal_reservations/change.html'
    form_class = forms.Change
    message = ''

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the page; the form begins with the current values."""
        super().read(service, context)
        context['action'].begin_with(context['row'])

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Apply all changes of the user, or none."""
        uuid = kwargs['uuid']
        if not data:
            return _('Nothing was changed.'), self.back, uuid
        api.change(service, f'{self.path}{uuid}', data)
        return self.message, self.back, uuid


class Delete(Action):
    """The question whether to release or delete a resource.

    :cvar message: message to the user afterwards, with its UUID.
    """

    message = ''

    def act(self, service: sdk.Proxy, data: dict[str, Any],
            **kwargs: Any) -> tuple[Any, ...]:
        """Delete the resource."""
        api.call(service, 'DELETE', f'/{self.path}{kwargs["uuid"]}')
        return self.message % kwargs['uuid'], self.tab
