# SPDX-License-Identifier: Apache-2.0
"""The pages of groups."""

from typing import Any

from django.utils.translation import gettext_lazy as _

from ironic_reservations import sdk
from ironic_reservations.horizon import bars
from ironic_reservations.horizon import pages
from ironic_reservations.horizon import reservations


class Groups(pages.Page):
    """The list of groups, with their members by domain."""

    name = 'groups'
    page_title = title = _('Groups')

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read one page."""
        context['rows'] = [
            # A group with segments has its policies in its levels.
            {**row, 'levels': row.get('levels', [row]),
             'domains': bars.draw_domains(row['domains'])}
            for row in self.present_rows(
                self.read_page(service, context, '/groups'))]


class Group(pages.Page):
    """One group with its members."""

    name = 'group'
    page_title = _('Group')
    facts = 'baremetal_reservations/_group.html'
    back = 'group'
    tab = 'groups'
    path = 'groups/'

    def read(self, service: sdk.Proxy, context: dict[str, Any]) -> None:
        """Read the group."""
        row = service.show_group(context['uuid']).to_dict()
        rows = reservations.present_reservations(
            self, row['reservations'])
        row, = self.present_rows([row])
        context.update(
            row={**row, 'levels': row['levels'] or [row]},
            rows=[{**member, 'domain': member['group']['domain']
                   and bars.format_domain(member['group']['domain'])}
                  for member in rows],
            columns=[{'title': title} for _key, title
                     in reservations.list_columns(self.is_admin)])


class ChangeGroup(pages.Change, Group):
    """The form that changes a group."""

    name = 'change-group'
    page_title = _('Change this group')
    message = _('The group was changed.')


class ReleaseGroup(pages.Delete, Group):
    """The question whether to release a group."""

    name = 'release-group'
    page_title = _('Release this group?')
    message = _('The group %s was released.')
