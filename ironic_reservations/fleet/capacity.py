# SPDX-License-Identifier: Apache-2.0
"""What the fleet can still give: the answer of /v1/reservations/capacity."""

import dataclasses
import hashlib
import itertools
import operator
import typing

from ironic_reservations import constants
from ironic_reservations import matching
from ironic_reservations import resources
from ironic_reservations.fleet import counts as fleet
from ironic_reservations.matching import group_policy

#: What rows can be summed by, beside ``capability:NAME``.
COLUMNS = ('resource_class', 'owner', 'lessee', 'conductor_group', 'shard')

#: The counts of a row; the last only where a host was asked for.
_COUNTS = ('total', *constants.NODE_STATES, 'claimable', 'held')


class Row(typing.NamedTuple):
    """A row of the capacity.

    :param position: texts by which rows are sorted.
    :param content: the row itself, a dict.
    """

    position: list
    content: dict


@dataclasses.dataclass(frozen=True)
class Filter:
    """Which nodes the capacity is asked of.

    :param restricted_to: a project: only nodes that it owns or leases.
    :param unowned: with that also nodes that nobody owns or leases.
    :param resource_class: only of this class, in any spelling.
    :param traits: only with all of these.
    :param conductor_group: only in this group; ``""`` is the default one.
    :param shard: only in this shard.
    :param host: whose holds are counted as ``held``. They are, wherever
        their nodes are now: a node with an instance stays its host's when
        its conductor group changes.
    """

    restricted_to: str | None = None
    unowned: bool = False
    resource_class: str | None = None
    traits: frozenset = frozenset()
    conductor_group: str | None = None
    shard: str | None = None
    host: str | None = None

    def is_of_interest(self, node):
        """Whether the caller has asked of such nodes, wherever they are."""
        return (matching.is_visible(node.owner, node.lessee,
                                    self.restricted_to, self.unowned)
                and node.traits.issuperset(self.traits)
                and (self.resource_class is None or matching.has_class(
                    node.resource_class,
                    resources.normalize_class(
                        self.resource_class))))

    def is_inside(self, node):
        """Whether they are in the group and the shard asked for."""
        return ((self.conductor_group is None or node.conductor_group.lower()
                 == self.conductor_group.lower())
                and self.shard in (None, node.shard))

    def counts(self, profile):
        """The numbers of a profile, by ``_COUNTS``; None where it has none."""
        held = () if self.host is None else (sum(
            profile.held.get((self.host, state), 0)
            for state in constants.NODE_STATES),)
        if not self.is_inside(profile.group.node):
            # Of such nodes only those that the host holds are counted.
            return (*held, *(profile.held.get((self.host, state), 0)
                             for state in constants.NODE_STATES), 0, *held
                    ) if any(held) else None
        total, free, reserved = profile.total, profile.free, profile.reserved
        return (total, free, reserved, profile.taken,
                total - free - reserved - profile.taken, profile.claimable,
                *held)


def list_rows(max_age, asked, limit=None, after=None, by=()):
    """What the fleet can give, profile by profile.

    :param max_age: seconds that the counts may be old.
    :param asked: Filter.
    :param limit: how many rows at most; None for all.
    :param after: position of the last row of the page before.
    :param by: sum the rows that are equal in these, each one of ``COLUMNS``
        or ``capability:NAME``.
    :returns: list of Row, and the age of the counts in seconds.
    """
    counted, age = fleet.get_fleet(max_age, with_hosts=asked.host is not None)
    groups = [group for group in counted.groups
             if asked.is_of_interest(group.node)]
    found = (_yield_sums(groups, by, asked.counts) if by
             else _yield_rows(groups, asked.counts))
    if after is not None:
        found = (row for row in found if row.position > after)
    return list(itertools.islice(found, limit)), age


def list_matching_rows(matches, fit):
    """Profiles in the same form, with nothing held, the best fit first.

    :param matches: what Matcher.find_profiles returns.
    :param fit: function of a matching.Node, equal within a profile group.
    """
    fits = {}
    for group, _ in matches:
        fits.setdefault(_make_key(group.node), fit(group.node))
    return [row.content for row in _yield_rows(
        [group for group, _ in matches], Filter().counts, dict(matches),
        order=lambda key: (fits[key], _make_sort_text(key)))]


# The end of a value in a text by which rows are sorted, and of one of its
# parts. They are less than all that can be in a value.
_END, _END_OF_PART = '\1', '\2'

# The most characters of such a text, which stands in a URL.
_LONGEST = 256


def _make_sort_text(key):
    """Return a text that sorts as a key: numbers by their size, None first."""
    return _bound_text(_END.join(map(_format_value, key)))


def _format_value(value):
    match value:
        case None:
            return ''
        case str():
            return f'!{value}'
        case tuple():
            return _END_OF_PART.join(value)
    return f'{int(value):018}' + f'{value % 1:.17f}'[1:].rstrip('.0')


def _bound_text(text):
    """Return a text if a marker can carry it, otherwise its start and digest.

    Rows are sorted by it, and two different texts stay different.
    """
    if len(text) <= _LONGEST and text.isascii() and '\0' not in text:
        return text  # Nearly all texts: each profile has one.
    start = text[:_LONGEST].encode(errors='replace').decode().replace(
        '\0', '?')
    return text if start == text else start + hashlib.sha256(
        text.encode(errors='surrogatepass')).hexdigest()[:32]


def _sort_keys(keys, order):
    """Return pairs of ``order(key)`` and the key, sorted by the former."""
    return sorted(((order(key), key) for key in keys),
                  key=operator.itemgetter(0))


def _yield_rows(groups, counts, among=None, order=_make_sort_text):
    """Yield the Row of each profile, sorted.

    Profiles whose facts are spelled otherwise and mean the same share a row.

    :param counts: function of a profile: see Filter.counts.
    :param among: lists of the profiles by profile group; None for all.
    :param order: function of what ``_key`` returns.
    """
    alike = {}
    for group in groups:
        alike.setdefault(_make_key(group.node), []).append(group)
    for position, of_kind in _sort_keys(alike, order):
        found = {}
        for group in alike[of_kind]:
            for profile in (group.profiles if among is None
                            or among[group] == [group.whole]
                            else among[group]):
                _add_numbers(
                    found, tuple(sorted(profile.capabilities.items())),
                    counts(profile))
        node = alike[of_kind][0].node
        for text, capabilities in _sort_keys(found, lambda pairs: _bound_text(
                _END_OF_PART.join(itertools.chain.from_iterable(pairs)))):
            yield Row([position, text], {
                'resource_class': node.resource_class, **node.sizes,
                'cpu_arch': node.cpu_arch,
                'capabilities': dict(capabilities),
                'traits': sorted(node.traits),
                'conductor_group': node.conductor_group, 'shard': node.shard,
                'owner': node.owner, 'lessee': node.lessee,
                **dict(zip(_COUNTS, found[capabilities], strict=False))})


def _make_key(node):
    """All that a request can tell of a node but capabilities' values."""
    return (node.resource_class, *node.sizes.values(), node.cpu_arch,
            tuple(sorted(node.traits)), node.conductor_group, node.shard,
            node.owner, node.lessee, tuple(sorted(node.capabilities)))


def _yield_sums(groups, by, counts):
    """Yield Rows that are sums, in order of the keys."""
    named = [group_policy.find_capability(each) for each in by]
    found = {}
    for group in groups:
        values = [_get_value(group.node, each) for each in by]
        for profile in group.profiles if any(named) else [group.whole]:
            _add_numbers(found, tuple(
                value if name is None else profile.capabilities.get(name)
                for name, value in zip(named, values, strict=True)),
                counts(profile))
    for position, key in _sort_keys(found, _make_sort_text):
        yield Row([position], {**dict(zip(by, key, strict=True)),
                        **dict(zip(_COUNTS, found[key], strict=False))})


def _get_value(node, by):
    if by not in COLUMNS:
        return node.capability(by.removeprefix(group_policy.CAPABILITY))
    value = getattr(node, by)
    # Groups of conductors that differ by case alone are the same to Ironic.
    return value.lower() if by == 'conductor_group' else value


def _add_numbers(found, key, numbers):
    if numbers is not None:
        before = found.get(key)
        found[key] = numbers if before is None else tuple(
            map(operator.add, before, numbers))
