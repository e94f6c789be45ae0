# SPDX-License-Identifier: Apache-2.0
"""The forms of the pages."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import re
from typing import Any
import uuid

from django import forms
from django import http
from django.core import validators
from django.utils import dateformat
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ironic_reservations.horizon import api
from ironic_reservations.osc import units
from ironic_reservations.shared import constants
from ironic_reservations.shared import extra_specs

#: States of a reservation in the API, with their translations.
STATES = {name: _(name) for name in constants.STATES}

#: Likewise, of notices: their kinds and states.
NOTICE_KINDS = {name: _(name) for name in constants.NOTICE_KINDS}
NOTICE_STATES = {name: _(name) for name in constants.NOTICE_STATES}

#: Texts of a notice, with the words before them.
NOTICE_TEXTS = {'description': '', 'action': _('done:'),
                'ticket': _('ticket')}

#: Times of a notice besides its start and end, with the words before them.
NOTICE_TIMES = {'due_at': _('due'), 'latest_start': _('latest start'),
                'scheduled_at': _('time chosen by the project on')}

#: The format of an input of the type datetime-local.
_LOCAL_TIME = '%Y-%m-%dT%H:%M'

_CAPABILITY = re.compile(r'([^\s=:,<>!]+)\s*(?:[=:](.+))?', re.DOTALL)
#: A field of the API at the start of an error, or anywhere in it.
_FIELD = re.compile(
    r'\A(\w++)[.\d]*+(?=: )|\b[^\W_]++(?:_[^\W_]++)++')
_EXTRA_SPEC = re.compile(r'([^=]*[^=\s])\s*+=\s*+(.*)', re.DOTALL)

#: Ownerships in the API, with their translations.
_OWNERSHIPS = (
    ('', _('default')), ('any', _('of any owner or lessee')),
    ('project', _('of the project')),
    ('project_or_none', _('of the project or of nobody')))


class _Form(forms.Form):
    """A form in the style of Horizon."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ''
        for field in self.fields.values():
            if not isinstance(field.widget, (
                    forms.HiddenInput, forms.CheckboxInput)):
                field.widget.attrs.setdefault('class', 'form-control')


class _ProjectForm(_Form):
    """A form in which admins name a project.

    :param request: of the user who sends the form.
    """

    def __init__(self, *args: Any, request: http.HttpRequest, is_admin: bool,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request = request
        if not is_admin:
            del self.fields['project_id']

    def clean_project_id(self) -> str:
        """Return the ID of the project, or an empty text."""
        project: str = self.cleaned_data['project_id']
        try:
            return project and api.find_project_id(self._request, project)
        except ValueError as error:
            raise validators.ValidationError(str(error))


class _Uuid(forms.UUIDField):
    """The UUID of a request, so that repeating it makes nothing else."""

    def __init__(self) -> None:
        super().__init__(widget=forms.HiddenInput, initial=uuid.uuid4)

    def clean(self, value: Any) -> str:
        """Return the UUID as text."""
        return str(super().clean(value))


class _Parsed(forms.CharField):
    """A text field with another value than its text, such as a time.

    :param parse: returns the value of a text that is not empty.
    """

    def __init__(self, *args: Any, parse: Callable[[str], Any],
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parse = parse

    def clean(self, value: Any) -> Any:
        """Return the parsed text, or an empty text."""
        text = super().clean(value)
        try:
            return text and self._parse(text)
        except argparse.ArgumentTypeError as error:
            raise validators.ValidationError(str(error))


class _Names(forms.CharField):
    """A text field of names between commas."""

    def clean(self, value: Any) -> list[str]:
        """Return the names."""
        text = super().clean(value)
        names = [name.strip() for name in text.split(',') if name.strip()]
        if text and not names:
            raise validators.ValidationError(
                _('Enter names between the commas.'))
        return names


def _text(label: str, suggestions: str | None = None,
          placeholder: str | None = None,
          field: type[forms.CharField] = forms.CharField,
          **kwargs: Any) -> forms.CharField:
    """Return a text field.

    :param suggestions: name of a list of suggestions, see ``_fields.html``.
    """
    attrs: dict[str, Any] = {}
    if suggestions:
        attrs['list'] = f'ir-{suggestions}'
    if placeholder:
        attrs['placeholder'] = placeholder
    return field(label=label, required=False, max_length=255,
                 widget=forms.TextInput(attrs), **kwargs)


def _number(label: str, **kwargs: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=0,
                              max_value=2 ** 31 - 1, **kwargs)


def _choice(label: str, words: dict[str, Any]) -> forms.ChoiceField:
    """Return a field that chooses one of some names, or any.

    :param words: translations of the names.
    """
    return forms.ChoiceField(label=label, required=False,
                             choices=[('', _('any')), *words.items()])


class Capacity(_Form):
    """Filters and grouping of the capacity."""

    by = forms.ChoiceField(label=_('Group by'), required=False)
    resource_class = _text(_('Resource class'), 'resource_class')

    def __init__(self, *args: Any, capabilities: Iterable[str] = (),
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields['by'].choices = [
            ('', _('Hardware profile')),
            ('resource_class', _('Resource class')),
            *((f'capability:{name}', name) for name in capabilities),
            ('conductor_group', _('Conductor group')), ('shard', _('Shard')),
            ('owner', _('Owner')), ('lessee', _('Lessee')),
            ('pool_project_id', _('Project of the pool')),
            ('project_id', _('Project'))]


class Reservations(_ProjectForm):
    """Filters and order of the list of reservations."""

    state = _choice(_('State'), STATES)
    node = _text(_('Node'), 'node', _('name or UUID'))
    host = _text(_('Compute host'), 'host')
    resource_class = _text(_('Resource class'), 'resource_class')
    group = _text(_('Group'), placeholder=_('UUID'))
    project_id = _text(_('Project'), 'project', _('name or ID'))
    sort_key = forms.CharField(required=False, widget=forms.HiddenInput)
    sort_dir = forms.CharField(required=False, widget=forms.HiddenInput)


class Notices(_Form):
    """Filters of the list of notices."""

    state = _choice(_('State'), NOTICE_STATES)
    kind = _choice(_('Kind'), NOTICE_KINDS)
    node = _text(_('Node'), 'node', _('name or UUID'))
    ticket = _text(_('Ticket'))
    overdue = _choice(_('Overdue'), {'true': _('yes'), 'false': _('no')})


class Confirmation(_Form):
    """Only a button."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The page of a request has a second form with the same names.
        super().__init__(*args, auto_id='ir-action-%s', **kwargs)

    def begin_with(self, values: Mapping[str, Any]) -> None:
        """Set the first values of a form that the user has not sent yet."""
        if not self.is_bound:
            self.initial = values

    def use_labels(self, error: str) -> str:
        """Return an error of the API with the labels of the form's fields."""
        def find_label(match: re.Match[str]) -> str:
            name = match[1] or match[0]
            return str(self[name].label) if name in self.fields else match[0]
        return _FIELD.sub(find_label, error)


class Change(Confirmation):
    """The description and the lease of a reservation or a group."""

    # The form contains the values that it shows, to determine which of them
    # the user has changed.
    description = _text(_('Description'), show_hidden_initial=True)
    expires_in = _text(
        _('New lease'), field=_Parsed, parse=lambda text: (
            None if text == 'never' else units.parse_seconds(text)),
        help_text=_('For example 12h or 7d from now, or "never". If empty, '
                    'the lease stays as it is.'))

    def clean(self) -> dict[str, Any]:
        """Return the values that differ from what was shown."""
        data = super().clean()
        return {name: data[name] for name in self.changed_data
                if name in data}


class ChangePool(Change):
    """The description and the expiry of a pool."""

    expires_in = None
    expires_at = _text(
        _('Expires at'), field=_Parsed, parse=units.parse_time,
        show_hidden_initial=True, help_text=_(
            'For example 30d from now, or 2027-03-31T18:00:00Z. If empty, the '
            'pool does not expire.'))


class Cordon(Confirmation):
    """A notice with a cordon of nodes, or of those of a domain."""

    uuid = _Uuid()
    nodes = _text(_('Nodes'), field=_Names, placeholder=_('names or UUIDs'),
                  help_text=_('Separate several with commas.'))
    by = _text(_('Or a domain'), field=_Parsed, parse=units.parse_domain,
               help_text=_('For example capability:rack=r7.'))
    kind = forms.ChoiceField(label=_('Kind'), choices=[*NOTICE_KINDS.items()])
    starts_at = _text(
        _('From'), field=_Parsed, parse=units.parse_time, help_text=_(
            'For example 2d from now, or 2027-03-31T18:00:00Z. If empty, '
            'now.'))
    latest_start = _text(
        _('Latest start'), field=_Parsed, parse=units.parse_time, help_text=_(
            'Until then, the project that has the node may choose when the '
            'work begins.'))
    due_at = _text(
        _('Due'), field=_Parsed, parse=units.parse_time, help_text=_(
            'When the work should be done, for example 4h from now, or '
            '2027-03-31T18:00:00Z. From then on, the notice is overdue.'))
    ticket = _text(_('Ticket'))
    description = _text(_('Description'), help_text=_(
        'The project that has the node sees it.'))

    def clean(self) -> dict[str, Any]:
        """Require either nodes or a domain."""
        data = super().clean()
        if not self.errors and bool(data['nodes']) == bool(data['by']):
            raise validators.ValidationError(
                _('Enter either nodes or a domain.'))
        return data


class ChangeNotice(Change):
    """The times and texts of a notice."""

    expires_in = None
    starts_at = _text(_('From'), field=_Parsed, parse=units.parse_time,
                      show_hidden_initial=True)
    latest_start = _text(_('Latest start'), field=_Parsed,
                         parse=units.parse_time, show_hidden_initial=True)
    due_at = _text(_('Due'), field=_Parsed, parse=units.parse_time,
                   show_hidden_initial=True)
    ends_at = _text(
        _('Until'), field=_Parsed, show_hidden_initial=True,
        parse=lambda text: text if text == 'now' else units.parse_time(text),
        help_text=_('"now" closes the notice.'))
    ticket = _text(_('Ticket'), show_hidden_initial=True)
    action = _text(_('What was done'), show_hidden_initial=True)


class Schedule(Confirmation):
    """When planned work on a node begins."""

    starts_at = forms.DateTimeField(
        label=_('Begin at'), required=False, widget=forms.DateTimeInput(
            {'type': 'datetime-local'}, _LOCAL_TIME))
    now = forms.BooleanField(label=_('Begin now'), required=False)

    def set_window(self, last: datetime.datetime) -> None:
        """Limit the time that a browser accepts.

        :param last: the last one, in the user's time zone.
        """
        first = timezone.localtime() + datetime.timedelta(minutes=1)
        field = self.fields['starts_at']
        field.widget.attrs.update(min=first.strftime(_LOCAL_TIME),
                                  max=last.strftime(_LOCAL_TIME))
        field.help_text = _('In your time zone, at the latest %s.') % (
            dateformat.format(last, 'Y-m-d H:i T'))

    def clean(self) -> dict[str, Any]:
        """Return the time as the API expects it."""
        data = super().clean()
        if self.errors:
            return data
        if bool(data['starts_at']) == data['now']:
            raise validators.ValidationError(
                _('Enter either a time or "Begin now".'))
        return {'at': 'now' if data['now'] else data['starts_at'].isoformat()}


class Report(Confirmation):
    """A fault of a node that the project has."""

    uuid = _Uuid()
    category = _text(_('Category'), placeholder=_('for example gpu or disk'))
    description = _text(_('Description'))
    cordon = forms.BooleanField(
        label=_('Give back: keep new reservations off it'), required=False,
        help_text=_('After you have deleted your server, nobody gets this '
                    'machine until an operator has looked at it.'))


class Uncordon(Confirmation):
    """What was done to a node."""

    action = _text(_('What was done'))


class Ask(_ProjectForm):
    """A request that is only compared with the machines."""

    asked = forms.CharField(widget=forms.HiddenInput, initial='yes')
    resource_class = _text(_('Resource class'), 'resource_class')
    memory_mb = _number(_('Memory (MiB)'))
    vcpus = _number(_('CPUs'))
    root_gb = _number(_('Disk (GiB)'))
    traits = _text(_('Required traits'), 'trait', field=_Names,
                   help_text=_('Separate several with commas.'))
    forbidden = _text(_('Forbidden traits'), 'trait', field=_Names)
    capabilities = _text(
        _('Capabilities'), field=_Names,
        help_text=_('For example boot_mode=uefi, gpus=>= 4 or rack=r1.'))
    conductor_group = _text(_('Conductor group'), 'conductor_group')
    shard = _text(_('Shard'), 'shard')
    candidate_nodes = _text(_('Only these nodes'), field=_Names,
                            placeholder=_('names or UUIDs'))
    ordered = forms.BooleanField(
        label=_('In this order'), required=False, help_text=_(
            'Try these nodes in the order given instead of by fit.'))
    extra_specs = forms.CharField(
        label=_('Other extra specs'), required=False, max_length=4096,
        widget=forms.Textarea({'rows': 1}),
        help_text=_('One per line, as in a flavor, for example '
                    'resources:VCPU=0.'))
    project_id = _text(
        _('Owner or lessee'), placeholder=_('project name or ID'))

    def clean_capabilities(self) -> list[tuple[str, str | None]]:
        """Return names and values; None if any value will do."""
        return [(match[1], match[2] and match[2].strip()) for match in (
            _match(_CAPABILITY, text, _(
                '"%s" must be a name, or a name and a value, such as '
                'gpus=>= 4.')) for text in self.cleaned_data['capabilities'])]

    def clean_extra_specs(self) -> list[tuple[str, str]]:
        """Return keys and values."""
        return [(match[1], match[2]) for match in (
            _match(_EXTRA_SPEC, line.strip(), _(
                '"%s" must be a key and a value, such as resources:VCPU=0.'))
            for line in self.cleaned_data['extra_specs'].splitlines()
            if line.strip())]

    def clean(self) -> dict[str, Any]:
        """Require a constraint, as Ironic does, and each only once."""
        data = super().clean()
        if self.errors:
            return data
        specs = data['extra_specs']
        constraints = [
            *(key for key in extra_specs.KEYS if data.get(key) not in (
                None, '', [])),
            *(f'trait {name}' for name in data['traits'] + data['forbidden']),
            *(f'capability {name}' for name, _value in data['capabilities'])]
        if not constraints and not specs:
            raise validators.ValidationError(
                _('Enter a resource class, a size, a trait, a capability, a '
                  'node or an extra spec.'))
        name = _find_repeated([key for key, _value in specs]
                              ) or _find_repeated([
                                  *constraints, *dict.fromkeys(
                                      f'{kind} {name}'.strip()
                                      for item in specs for kind, name, _value
                                      in extra_specs.read_constraints(*item))])
        if name:
            raise validators.ValidationError(
                _('Given more than once: %s.') % (
                    self.fields[name].label if name in self.fields else name))
        return data

    def make_request_spec(self) -> dict[str, Any]:
        """Return the request spec."""
        data = self.cleaned_data
        spec = {name: data[name] for name in (
            'resource_class', 'memory_mb', 'vcpus', 'root_gb',
            'conductor_group', 'shard', 'candidate_nodes')
            if data[name] not in (None, '', [])}
        if specs := self._make_extra_specs():
            spec['extra_specs'] = specs
        if data.get('project_id'):
            spec |= {'project_id': data['project_id'],
                     'ownership': 'project'}
        return spec

    def _make_extra_specs(self) -> dict[str, str]:
        data = self.cleaned_data
        specs = dict(data['extra_specs'])
        if data['ordered']:
            specs['reservations:candidates'] = 'ordered'
        specs |= {f'trait:{name}': word
                  for key, word in (('traits', 'required'),
                                    ('forbidden', 'forbidden'))
                  for name in data[key]}
        specs |= {f'capabilities:{name}': value
                  for name, value in data['capabilities'] if value}
        # Those without a value need only be present.
        if bare := [name for name, value in data['capabilities']
                    if not value]:
            specs['capabilities'] = ','.join(filter(None, (
                specs.get('capabilities'), *bare)))
        return specs


class Reserve(Confirmation, _ProjectForm):
    """The values of a reservation or a group besides its request spec."""

    #: Also of the group.
    instance_uuid = _Uuid()
    members = forms.IntegerField(label=_('Machines'), initial=1, min_value=1)
    expires_in = _text(
        _('Lease'), field=_Parsed, parse=units.parse_seconds, help_text=_(
            'For example 12h or 7d. If empty, the default of the cloud.'))
    description = _text(_('Description'))
    policy = forms.ChoiceField(
        label=_('Group policy'), required=False, help_text=_(
            'Whether the machines are in one domain (pack) or in different '
            'ones (spread).'),
        choices=[('', _('none')), *((name, name)
                                    for name in constants.POLICIES)])
    by = _text(_('Domains of the group'), 'by', help_text=_(
        'For example capability:rack, conductor_group or shard.'))
    segment = _number(_('Machines per segment'), help_text=_(
        'Divides the group into segments, each in one domain.'))
    segment_by = _text(_('Domains of segments'), 'by', help_text=_(
        'For example capability:rack. With a group policy, that policy then '
        'applies to segments.'))
    project_id = _text(_('For the project'), placeholder=_('name or ID'))
    ownership = forms.ChoiceField(
        label=_('Ownership'), required=False, choices=_OWNERSHIPS,
        help_text=_('The default for a project is: of the project or of '
                    'nobody. Without a project, it is any.'))

    def __init__(self, *args: Any, is_admin: bool, **kwargs: Any) -> None:
        super().__init__(*args, is_admin=is_admin, **kwargs)
        if not is_admin:
            del self.fields['ownership']

    def clean(self) -> dict[str, Any]:
        """Make levels of the policy and the segments."""
        data = super().clean()
        policy, by, segment, segment_by = (
            data.pop(name, None)
            for name in ('policy', 'by', 'segment', 'segment_by'))
        outer = {name: value for name, value in (
            ('by', by), ('policy', policy)) if value}
        if segment is None and not segment_by:
            return {**data, **outer}
        inner = {'by': segment_by, 'policy': 'pack', 'segment': segment}
        return {**data, 'levels': [*([outer] if outer else []), {
            name: value for name, value in inner.items()
            if value not in (None, '')}]}


def _match(pattern: re.Pattern[str], text: str,
           message: str) -> re.Match[str]:
    """Return the match of a whole text, or raise ValidationError."""
    match = pattern.fullmatch(text)
    if not match:
        raise validators.ValidationError(message % text)
    return match


def _find_repeated(names: Sequence[str]) -> str | None:
    """Return the first text that occurs again."""
    return next((name for number, name in enumerate(names)
                 if name in names[:number]), None)
