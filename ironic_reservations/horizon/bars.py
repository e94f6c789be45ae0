# SPDX-License-Identifier: Apache-2.0
"""Draws counts as bars, and puts explanations into words."""

from collections.abc import Sequence
import dataclasses
import re
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.utils.translation import ngettext

from ironic_reservations.horizon.api import Row
from ironic_reservations.shared import text

#: The parts of a bar in order: a count of a capacity row, and its word.
PARTS = (('free', gettext_lazy('free')),
         ('reserved', gettext_lazy('reserved')),
         ('taken', gettext_lazy('taken')),
         ('out_of_service', gettext_lazy('out of service')))

#: Reasons why a node that matches cannot be reserved, after a number.
_REASONS = {
    'allocated': gettext_lazy('matching, but allocated in Ironic'),
    'reserved': gettext_lazy('matching, but reserved or taken'),
    'maintenance': gettext_lazy('matching, but in maintenance'),
    'not available': gettext_lazy(
        'matching, but being cleaned or otherwise not available'),
    'retired': gettext_lazy('matching, but retired'),
    'health': gettext_lazy('matching, but unhealthy'),
    'power state unknown': gettext_lazy(
        'matching, but in an unknown power state'),
    'child node': gettext_lazy('matching, but part of another node'),
    'deferred action': gettext_lazy('matching, but with a deferred action'),
    'cordoned': gettext_lazy('matching, but kept free by a notice'),
    'prepared': gettext_lazy(
        'matching, but still prepared for another instance'),
    'pool': gettext_lazy('matching, but in a pool'),
    'locked': gettext_lazy('matching, but locked at the moment'),
    'malformed properties': gettext_lazy(
        'matching, but with properties of the wrong type'),
}

#: What nodes lack: a pattern of the constraint, and words after a number.
_CONSTRAINTS = (
    (r'candidate_nodes', gettext_lazy('other than those named')),
    (r'conductor_group=(.*)', gettext_lazy('not in conductor group %s')),
    (r'shard=(.*)', gettext_lazy('not in shard %s')),
    (r'resource_class=(.*)', gettext_lazy('not of resource class %s')),
    (r'resources:(.*)', gettext_lazy('without the resource %s')),
    (r'memory_mb>=(.*)',
     gettext_lazy('with less than %s MiB of memory')),
    (r'vcpus>=(.*)', gettext_lazy('with fewer than %s CPUs')),
    (r'local_gb>=(.*)',
     gettext_lazy('with a disk of less than %s GiB')),
    (r'memory_mb=(.*)', gettext_lazy('without exactly %s MiB of memory')),
    (r'vcpus=(.*)', gettext_lazy('without exactly %s CPUs')),
    (r'local_gb=(.*)', gettext_lazy('without a disk of exactly %s GiB')),
    (r'trait:(.*)=required', gettext_lazy('without the trait %s')),
    (r'trait:(.*)=forbidden', gettext_lazy('with the trait %s')),
    (r'capabilities:(.*)', gettext_lazy('without the capability %s')),
    (r'dedicated:(.*)',
     gettext_lazy('dedicated to requests that require the trait %s')),
    (r'lessee', gettext_lazy('leased by another project')),
    (r'ownership=.*',
     gettext_lazy('that the project does not own, lease or have in a pool')),
)


def describe_cause(by: str) -> str:
    """Return text, to follow a number of machines, for why they are unfit.

    :param by: constraint or reason in an explanation of the API.
    """
    if by in _REASONS:
        return str(_REASONS[by])
    for pattern, words in _CONSTRAINTS:
        if match := re.fullmatch(pattern, by, re.DOTALL):
            return str(words) % match.groups() if match.groups() else words
    return str(_('not matching %s') % by)


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a bar; ``start`` and ``length`` are in percent."""

    key: str
    word: str
    count: int
    start: str
    length: str


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar, with its parts from left to right."""

    parts: list[Part]

    @property
    def label(self) -> str:
        """Return the numbers as text, for screen readers."""
        return ', '.join(f'{part.count} {part.word}' for part in self.parts)


def draw_counts(counts: Row, longest: int | None = None) -> Bar:
    """Draw the bar of a capacity row.

    :param longest: number that fills the width (default: the total).
    """
    return _draw([(key, str(word), counts[key]) for key, word in PARTS],
                 longest or counts['total'])


def draw_rows(rows: list[Row]) -> list[Row]:
    """Add a ``bar`` to each capacity row, all on one scale."""
    longest = max((row['total'] for row in rows), default=0)
    # Pairs, because a template would take a capability "items" for the method.
    return [{**row, 'bar': draw_counts(row, longest),
             'capabilities': [*row.get('capabilities', {}).items()],
             'memory_gb': row.get('memory_mb', 0) / 1024} for row in rows]


def format_domain(domain: str | list[str | None] | None) -> str:
    """Return the domain of a member; see ``text.format_domain``."""
    return text.format_domain(domain, _('none'))


def draw_domains(domains: list[Row]) -> list[Row]:
    """Add a ``bar`` and a ``name`` to each domain of a group.

    All bars are on one scale.
    """
    longest = max((domain['nodes'] for domain in domains), default=0)
    return [{**domain, 'name': format_domain(domain['value']), 'bar': _draw(
        [('reserved', ngettext('member', 'members', domain['nodes']),
          domain['nodes'])], longest)} for domain in domains]


def _draw(counts: Sequence[tuple[str, str, int]], longest: int) -> Bar:
    """Draw a bar.

    :param counts: key, word and number of each part.
    :param longest: number that fills the width.
    """
    parts, start = [], 0
    for key, word, count in counts:
        parts.append(Part(key, word, count, *(
            f'{100 * number / (longest or 1):.3f}%'
            for number in (start, count))))
        start += count
    return Bar(parts)


def list_steps(explanation: dict[str, Any]) -> list[Row]:
    """Return the steps of an explanation.

    :param explanation: ``explanation`` of a dry run.
    :returns: for each step ``nodes`` (number of nodes that it eliminates),
        ``reason`` (text), and ``bar``.
    """
    remaining, rows = explanation['considered'], []
    for step in explanation['eliminated']:
        remaining -= step['nodes']
        rows.append({'nodes': step['nodes'],
                     'reason': describe_cause(step['by']),
                     'bar': _draw([
                         ('free', _('left'), remaining),
                         ('gone', _('eliminated'), step['nodes'])],
                         explanation['considered'])})
    return rows


def describe_nearest(explanation: dict[str, Any]) -> Row | None:
    """Return the constraint whose removal would help most, if there is one.

    :returns: ``nodes`` (number of nodes that could be reserved without it)
        and ``reason`` (text).
    """
    best = explanation.get('nearest')
    return best and {'nodes': best['nodes'],
                     'reason': describe_cause(best['by'])}
