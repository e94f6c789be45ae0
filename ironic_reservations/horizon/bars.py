# SPDX-License-Identifier: Apache-2.0
"""Draws counts as bars, and puts explanations into words."""

import dataclasses
import re

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.utils.translation import ngettext

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
    'locked': gettext_lazy('matching, but locked at the moment'),
    'malformed properties': gettext_lazy(
        'matching, but with properties of the wrong type'),
}

#: What nodes lack: a pattern of the constraint, and words after a number.
_CONSTRAINTS = (
    (r'candidate_nodes', gettext_lazy('not among the nodes named')),
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
    (r'ownership=.*',
     gettext_lazy('neither owned nor leased by the project')),
)


def describe(by):
    """Return a constraint or a reason of an explanation in words.

    :returns: text that follows a number of machines.
    """
    if by in _REASONS:
        return str(_REASONS[by])
    for pattern, words in _CONSTRAINTS:
        if match := re.fullmatch(pattern, by, re.DOTALL):
            return str(words) % match.groups() if match.groups() else words
    return _('not matching %s') % by


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
    """A list of Parts."""

    parts: list

    @property
    def label(self):
        """Return the numbers as text, for screen readers."""
        return ', '.join(f'{part.count} {part.word}' for part in self.parts)


def draw_counts(counts, longest=None):
    """Return the Bar of a capacity row.

    :param longest: number that fills the width (default: the total).
    """
    return _draw([(key, str(word), counts[key]) for key, word in PARTS],
                 longest or counts['total'])


def draw_rows(rows):
    """Add a ``bar`` to each capacity row, all on one scale."""
    longest = max((row['total'] for row in rows), default=0)
    return [{**row, 'bar': draw_counts(row, longest),
             'memory_gb': row.get('memory_mb', 0) / 1024} for row in rows]


def draw_domains(domains):
    """Add a ``bar`` to each domain of a group, all on one scale."""
    longest = max((domain['nodes'] for domain in domains), default=0)
    return [{**domain, 'bar': _draw(
        [('reserved', ngettext('member', 'members', domain['nodes']),
          domain['nodes'])], longest)} for domain in domains]


def _draw(counts, longest):
    parts, start = [], 0
    for key, word, count in counts:
        parts.append(Part(key, word, count, *(
            f'{100 * number / (longest or 1):.3f}%'
            for number in (start, count))))
        start += count
    return Bar(parts)


def steps(explanation):
    """Return an explanation as a list of steps.

    :param explanation: ``explanation`` of a dry run.
    :returns: list of dicts of ``nodes`` (number of nodes that this step
        eliminates), ``reason`` (text), and ``bar``.
    """
    left, rows = explanation['considered'], []
    for step in explanation['eliminated']:
        left -= step['nodes']
        rows.append({'nodes': step['nodes'], 'reason': describe(step['by']),
                     'bar': _draw([
                         ('free', _('left'), left),
                         ('gone', _('eliminated'), step['nodes'])],
                         explanation['considered'])})
    return rows


def nearest(explanation):
    """Return the constraint whose removal would help most, or None.

    :returns: dict of ``nodes`` (number of nodes that could be reserved
        without it) and ``reason`` (text).
    """
    best = explanation.get('nearest')
    return best and {'nodes': best['nodes'], 'reason': describe(best['by'])}
