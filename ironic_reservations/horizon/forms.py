# SPDX-License-Identifier: Apache-2.0
"""The forms of the pages."""

import argparse
from collections.abc import Iterable
from typing import Any
import uuid

from django import forms
from django.core import validators
from django.utils.translation import gettext_lazy as _

from ironic_reservations import constants
from ironic_reservations.osc import units

#: States of a reservation in the API, with their translations.
STATES = {name: _(name) for name in constants.STATES}


class _Form(forms.Form):
    """A form in the style of Horizon."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ''
        for field in self.fields.values():
            if not isinstance(field.widget, forms.HiddenInput):
                field.widget.attrs.setdefault('class', 'form-control')


def _text(label: str, suggestions: str | None = None,
          placeholder: str | None = None, **kwargs: Any) -> forms.CharField:
    """Return a text field.

    :param suggestions: name of a list of suggestions, see ``_fields.html``.
    """
    attrs: dict[str, Any] = {}
    if suggestions:
        attrs['list'] = f'ir-{suggestions}'
    if placeholder:
        attrs['placeholder'] = placeholder
    return forms.CharField(label=label, required=False, max_length=255,
                           widget=forms.TextInput(attrs), **kwargs)


def _number(label: str, **kwargs: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=0,
                              max_value=2 ** 31 - 1, **kwargs)


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
            ('owner', _('Owner')), ('lessee', _('Lessee'))]


class Reservations(_Form):
    """Filters and order of the list of reservations."""

    state = forms.ChoiceField(
        label=_('State'), required=False,
        choices=[('', _('any')), *STATES.items()])
    node = _text(_('Node'), 'node', _('name or UUID'))
    host = _text(_('Compute host'), 'host')
    resource_class = _text(_('Resource class'), 'resource_class')
    group = _text(_('Group'), placeholder=_('UUID'))
    project_id = _text(_('Project'), 'project', _('name or ID'))
    sort_key = forms.CharField(required=False, widget=forms.HiddenInput)
    sort_dir = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, is_admin: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not is_admin:
            del self.fields['project_id']


class Confirmation(_Form):
    """Only a button."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The page of a request has a second form with the same names.
        super().__init__(*args, auto_id='ir-action-%s', **kwargs)


class Change(Confirmation):
    """The description and the lease of a reservation or a group."""

    description = _text(_('Description'))
    expires_in = _text(
        _('New lease'), help_text=_(
            'For example 12h or 7d from now, or "never". If empty, the lease '
            'stays as it is.'))

    def clean_expires_in(self) -> int | str | None:
        """Return seconds, None for no expiry, or an empty text."""
        text = self.cleaned_data['expires_in']
        return None if text == 'never' else text and _parse_seconds(text)


class Ask(_Form):
    """A request that is only compared with the machines."""

    asked = forms.CharField(widget=forms.HiddenInput, initial='yes')
    resource_class = _text(_('Resource class'), 'resource_class')
    memory_mb = _number(_('Memory (MiB)'))
    vcpus = _number(_('CPUs'))
    root_gb = _number(_('Disk (GiB)'))
    traits = _text(_('Required traits'), 'trait',
                   help_text=_('Separate several with commas.'))
    forbidden = _text(_('Forbidden traits'), 'trait')
    capabilities = _text(
        _('Capabilities'),
        help_text=_('For example boot_mode=uefi, gpus=>= 4 or rack=r1.'))
    conductor_group = _text(_('Conductor group'), 'conductor_group')
    shard = _text(_('Shard'), 'shard')
    candidate_nodes = _text(_('Only these nodes'),
                            placeholder=_('names or UUIDs'))
    extra_specs = forms.CharField(
        label=_('Other extra specs'), required=False, max_length=4096,
        widget=forms.Textarea({'rows': 1}),
        help_text=_('One per line, as in a flavor, for example '
                    'resources:VCPU=0.'))
    project_id = _text(
        _('Owner or lessee'), placeholder=_('project name or ID'))

    def __init__(self, *args: Any, is_admin: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not is_admin:
            del self.fields['project_id']

    def clean(self) -> dict[str, Any]:
        """Require a constraint, as Ironic does."""
        data = super().clean()
        if not any(data.get(name) not in (None, '') for name in (
                'resource_class', 'memory_mb', 'vcpus', 'root_gb', 'traits',
                'forbidden', 'capabilities', 'candidate_nodes',
                'extra_specs')):
            raise validators.ValidationError(
                _('Enter a resource class, a size, a trait, a capability, a '
                  'node or an extra spec.'))
        return data

    def make_request_spec(self) -> dict[str, Any]:
        """Return the request spec."""
        data = self.cleaned_data
        spec = {name: data[name] for name in (
            'resource_class', 'memory_mb', 'vcpus', 'root_gb',
            'conductor_group', 'shard') if data[name] not in (None, '')}
        if specs := self._make_extra_specs():
            spec['extra_specs'] = specs
        if data['candidate_nodes']:
            spec['candidate_nodes'] = _split_list(data['candidate_nodes'])
        if data.get('project_id'):
            spec |= {'project_id': data['project_id'],
                     'ownership': 'project'}
        return spec

    def _make_extra_specs(self) -> dict[str, str]:
        data = self.cleaned_data
        specs = dict(map(_split_pair, filter(str.strip, data[
            'extra_specs'].splitlines())))
        specs |= {f'trait:{name}': word
                  for key, word in (('traits', 'required'),
                                    ('forbidden', 'forbidden'))
                  for name in _split_list(data[key])}
        capabilities = dict(map(_split_pair,
                                _split_list(data['capabilities'])))
        specs |= {f'capabilities:{name}': value
                  for name, value in capabilities.items() if value}
        # Those without a value need only be present.
        if bare := [name for name, value in capabilities.items()
                    if not value]:
            specs['capabilities'] = ','.join(filter(None, (
                specs.get('capabilities'), *bare)))
        return specs


class Reserve(Confirmation):
    """What a reservation or a group has in addition to a request spec."""

    #: Also of the group. Repeating the request reserves nothing else.
    instance_uuid = forms.UUIDField(widget=forms.HiddenInput,
                                    initial=uuid.uuid4)
    members = forms.IntegerField(label=_('Machines'), initial=1, min_value=1)
    expires_in = _text(_('Lease'), help_text=_(
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

    def __init__(self, *args: Any, is_admin: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not is_admin:
            del self.fields['project_id']

    def clean_instance_uuid(self) -> str:
        """Return the UUID as text."""
        return str(self.cleaned_data['instance_uuid'])

    def clean_expires_in(self) -> int | str:
        """Return seconds, or an empty text."""
        text = self.cleaned_data['expires_in']
        return text and _parse_seconds(text)

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


def _parse_seconds(text: str) -> int:
    """Return the seconds of a time such as 10m or 7d."""
    try:
        return units.parse_seconds(text)
    except argparse.ArgumentTypeError as error:
        raise validators.ValidationError(str(error))


def _split_pair(text: str) -> tuple[str, str]:
    """Return the name and the value of ``NAME=VALUE``."""
    name, _equals, value = text.partition('=')
    return name.strip(), value.strip()


def _split_list(text: str) -> list[str]:
    """Return the words between commas."""
    return [word.strip() for word in text.split(',') if word.strip()]
