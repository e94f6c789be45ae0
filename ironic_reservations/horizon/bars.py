# SPDX-License-Identifier: Apache-2.0
"""Counts as bars, and an explanation as steps."""

import dataclasses
import re

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.utils.translation import ngettext

#: The parts of a bar, in their order: the key of the counts, and its word.
PARTS = (('free', gettext_lazy('free')), ('reserved', gettext_lazy('held')),
         ('taken', gettext_lazy('taken')),
         ('out_of_service', gettext_lazy('out of service')))

#: Why a node that matches cannot be held. A count stands before it.
_REASONS = {
    'allocated': gettext_lazy('matching, but with an allocation of Ironic'),
    'reserved': gettext_lazy('matching, but held or in use already'),
    'maintenance': gettext_lazy('matching, but in maintenance'),
    'not available': gettext_lazy(
        'matching, but being cleaned or otherwise not available'),
    'retired': gettext_lazy('matching, but retired'),
    'health': gettext_lazy('matching, but of bad health'),
    'power state unknown': gettext_lazy(
        'matching, but in a power state that Ironic does not know'),
    'child node': gettext_lazy('matching, but part of another node'),
    'locked': gettext_lazy('matching, but worked on at this moment'),
    'malformed properties': gettext_lazy(
        'matching, but with properties of the wrong type'),
}

#: What a node lacks: a pattern of the constraint, and what follows a count.
_CONSTRAINTS = (
    (r'candidate_nodes', gettext_lazy('not among the nodes named')),
    (r'conductor_group=(.*)', gettext_lazy('not in conductor group %s')),
    (r'shard=(.*)', gettext_lazy('not in shard %s')),
    (r'resource_class=(.*)', gettext_lazy('not of resource class %s')),
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


def _said(by):
    """Return a constraint or a reason of the API in words."""
    if by in _REASONS:
        return str(_REASONS[by])
    for pattern, words in _CONSTRAINTS:
        if found := re.fullmatch(pattern, by, re.DOTALL):
            return str(words) % found.groups() if found.groups() else words
    return _('not matching %s') % by


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a bar; where it begins and how long it is, in percent."""

    key: str
    word: str
    count: int
    begin: str
    length: str


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar, and what it says to those who do not see it."""

    parts: list
    total: int

    @property
    def said(self):
        """Return all of it as a text."""
        return ', '.join(f'{part.count} {part.word}' for part in self.parts)


def of_counts(counts, longest=None):
    """Return the Bar of free, held, taken and out of service.

    :param counts: a row of the capacity.
    :param longest: the number that fills all the room; by default the total.
    """
    return _bar([(key, str(word), counts[key]) for key, word in PARTS],
                longest or counts['total'])


def of_rows(rows):
    """Put into each row of the capacity its ``bar``, to one scale."""
    longest = max((row['total'] for row in rows), default=0)
    return [{**row, 'bar': of_counts(row, longest),
             'memory_gb': row.get('memory_mb', 0) / 1024} for row in rows]


def of_domains(domains):
    """Return the domains of a group with a Bar for each, to one scale."""
    longest = max((each['nodes'] for each in domains), default=0)
    return [{**each, 'bar': _bar(
        [('reserved', ngettext('member', 'members', each['nodes']),
          each['nodes'])], longest)} for each in domains]


def _bar(parts, longest):
    found, begin = [], 0
    for key, word, count in parts:
        found.append(Part(key, word, count, *(
            f'{100 * each / (longest or 1):.3f}%' for each in (begin, count))))
        begin += count
    return Bar(found, begin)


def steps(why):
    """Return an explanation as steps, each with what is left after it.

    :param why: ``explanation`` of a dry run.
    :returns: list of dicts of ``nodes`` (how many fall away), ``said`` (why)
        and ``bar`` (how many are left, and how many fall away).
    """
    left, found = why['considered'], []
    for each in why['eliminated']:
        left -= each['nodes']
        found.append({'nodes': each['nodes'], 'said': _said(each['by']),
                      'bar': _bar([
                          ('free', _('left'), left),
                          ('gone', _('fall away'), each['nodes'])],
                          why['considered'])})
    return found


def nearest(why):
    """Return the constraint that keeps most nodes from being held, or None."""
    best = why.get('nearest')
    return best and {'nodes': best['nodes'], 'said': _said(best['by']),
                     'by': best['by']}
