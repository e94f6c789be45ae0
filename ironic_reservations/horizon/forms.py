# SPDX-License-Identifier: Apache-2.0
"""The forms of the pages."""

from django import forms
from django.core import validators
from django.utils.translation import gettext_lazy as _

#: A reservation's states: the server's words, and what they mean.
STATES = {
    'reserved': _('reserved'), 'deploying': _('deploying'),
    'active': _('in use'), 'releasing': _('being torn down'),
    'error': _('failed'), 'unavailable': _('taken out by an operator'),
}


class _Form(forms.Form):
    """A form in the look of Horizon."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # Pages of a list have several forms.
        self.label_suffix = ''
        for field in self.fields.values():
            if not isinstance(field.widget, forms.HiddenInput):
                field.widget.attrs.setdefault('class', 'form-control')


def _text(label, suggestions=None, **kwargs):
    """A field of text, with the ID of a list of suggestions."""
    attrs = {'list': suggestions} if suggestions else {}
    return forms.CharField(label=label, required=False, max_length=255,
                           widget=forms.TextInput(attrs), **kwargs)


def _number(label):
    return forms.IntegerField(
        label=label, required=False, min_value=0, max_value=2 ** 31 - 1)


class Capacity(_Form):
    """What the rows of the capacity are, and of which nodes."""

    by = forms.ChoiceField(label=_('One row for each'), required=False)
    resource_class = _text(_('Only of resource class'), 'ir-classes')

    def __init__(self, *args, capabilities=(), **kwargs):
        super().__init__(*args, **kwargs)
        self.fields['by'].choices = [
            ('', _('Hardware profile')),
            ('resource_class', _('Resource class')),
            *((f'capability:{name}', name) for name in capabilities),
            ('conductor_group', _('Conductor group')), ('shard', _('Shard')),
            ('owner', _('Owner')), ('lessee', _('Lessee'))]


class Reservations(_Form):
    """Which reservations a list has, and in which order."""

    state = forms.ChoiceField(
        label=_('State'), required=False,
        choices=[('', _('any')), *STATES.items()])
    node = _text(_('Node (name or UUID)'))
    host = _text(_('Compute host'))
    resource_class = _text(_('Resource class'))
    project_id = _text(_('Project (ID)'))
    sort_key = forms.CharField(required=False, widget=forms.HiddenInput)
    sort_dir = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args, is_admin, **kwargs):
        super().__init__(*args, **kwargs)
        if not is_admin:
            del self.fields['project_id']


class Ask(_Form):
    """What a machine must be, for a question that holds nothing."""

    asked = forms.CharField(widget=forms.HiddenInput, initial='yes')
    resource_class = _text(_('Resource class'), 'ir-classes')
    memory_mb = _number(_('Memory (MiB)'))
    vcpus = _number(_('CPUs'))
    root_gb = _number(_('Disk (GiB)'))
    traits = _text(_('Traits it must have'), 'ir-traits',
                   help_text=_('Several are separated by commas.'))
    forbidden = _text(_('Traits it must not have'), 'ir-traits')
    capabilities = _text(
        _('Capabilities'),
        help_text=_('Such as boot_mode=uefi, gpus=>= 4 or rack=r1.'))
    conductor_group = _text(_('Conductor group'))
    shard = _text(_('Shard'))
    candidate_nodes = _text(_('Only these nodes (names or UUIDs)'))
    project_id = _text(
        _('Only what this project owns or leases (ID)'))

    def __init__(self, *args, is_admin, **kwargs):
        super().__init__(*args, **kwargs)
        if not is_admin:
            del self.fields['project_id']

    def clean(self):
        """See that something is asked for, before Ironic says so."""
        given = super().clean()
        if not any(given.get(name) not in (None, '') for name in (
                'resource_class', 'memory_mb', 'vcpus', 'root_gb', 'traits',
                'forbidden', 'capabilities', 'candidate_nodes')):
            raise validators.ValidationError(
                _('Say what the machine must be: a resource class, a size, a '
                  'trait, a capability or a node.'))
        return given

    def request(self):
        """Return the request spec that the form asks for."""
        given = self.cleaned_data
        specs = {f'trait:{name}': word
                 for key, word in (('traits', 'required'),
                                   ('forbidden', 'forbidden'))
                 for name in _words(given[key])}
        for each in _words(given['capabilities']):
            name, _equals, value = each.partition('=')
            specs[f'capabilities:{name.strip()}'] = value.strip()
        bare = [name for name, value in specs.items() if not value]
        for name in bare:
            del specs[name]
        if bare:
            specs['capabilities'] = ','.join(
                name.removeprefix('capabilities:') for name in bare)
        found = {name: given[name] for name in (
            'resource_class', 'memory_mb', 'vcpus', 'root_gb',
            'conductor_group', 'shard') if given[name] not in (None, '')}
        if specs:
            found['extra_specs'] = specs
        if given['candidate_nodes']:
            found['candidate_nodes'] = _words(given['candidate_nodes'])
        if given.get('project_id'):
            found |= {'project_id': given['project_id'],
                      'ownership': 'project'}
        return found


def _words(text):
    return [word.strip() for word in text.split(',') if word.strip()]
