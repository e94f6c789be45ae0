# SPDX-License-Identifier: Apache-2.0
"""Lists how many nodes are left, for /v1/reservations/capacity."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import hashlib
import itertools
import operator
import typing
from typing import Any

from ironic_reservations import constants
from ironic_reservations import garbage
from ironic_reservations import matching
from ironic_reservations import resources
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import profiles
from ironic_reservations.matching import group_policy

if typing.TYPE_CHECKING:
    from ironic_reservations.matching import matcher

#: Keys by which rows can be summed, besides ``capability:NAME``.
COLUMNS = ('resource_class', 'owner', 'lessee', 'conductor_group', 'shard')

#: Numbers in a row; the last only if a host was requested.
_COUNTS = ('total', *constants.NODE_STATES, 'claimable', 'held')

#: Values by which profiles or sums are distinguished.
_Key = tuple[Any, ...]

#: Values of ``_COUNTS``.
_Numbers = tuple[int, ...]

#: Returns the numbers of a profile; None if it is left out.
_Counter = Callable[[profiles.Profile], _Numbers | None]


class Row(typing.NamedTuple):
    """A row of the capacity.

    :param position: texts by which rows are sorted.
    :param content: JSON object of the row.
    """

    position: list[Any]
    content: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Filter:
    """The nodes of which the capacity is requested.

    :param restricted_to: a project: only nodes that it owns or leases.
    :param unowned: with ``restricted_to``, also nodes without owner and
        lessee.
    :param resource_class: only this class, in any spelling.
    :param traits: only nodes with all of these.
    :param conductor_group: only this group; ``""`` is the default group.
    :param shard: only this shard.
    :param host: the host whose nodes are counted as ``held``. They are
        counted in any conductor group and shard, because a node with an
        instance stays with its host when its conductor group changes.
    """

    restricted_to: str | None = None
    unowned: bool = False
    resource_class: str | None = None
    traits: frozenset[str] = frozenset()
    conductor_group: str | None = None
    shard: str | None = None
    host: str | None = None

    def matches(self, node: matching.Node) -> bool:
        """Return whether a node is requested, wherever it is."""
        return (matching.is_visible(node.owner, node.lessee,
                                    self.restricted_to, self.unowned)
                and node.traits.issuperset(self.traits)
                and (self.resource_class is None or matching.has_class(
                    node.resource_class,
                    resources.normalize_class(
                        self.resource_class))))

    def is_inside(self, node: matching.Node) -> bool:
        """Return whether a node is in the requested group and shard."""
        return ((self.conductor_group is None or node.conductor_group.lower()
                 == self.conductor_group.lower())
                and self.shard in (None, node.shard))

    def count_nodes(self, profile: profiles.Profile) -> _Numbers | None:
        """Return the numbers of a profile; None if it is left out."""
        by_state: list[int] = [] if self.host is None else [
            profile.held.get((self.host, state), 0)
            for state in constants.NODE_STATES]
        host_total = () if self.host is None else (sum(by_state),)
        if not self.is_inside(profile.facts.node):
            # Only the nodes that the host holds are counted here.
            return ((*host_total, *by_state, 0, *host_total)
                    if any(host_total) else None)
        total, free, reserved = profile.total, profile.free, profile.reserved
        return (total, free, reserved, profile.taken,
                total - free - reserved - profile.taken, profile.claimable,
                *host_total)


def list_rows(max_age: float, node_filter: Filter, limit: int | None = None,
              after: list[Any] | None = None,
              by: Sequence[str] = ()) -> tuple[list[Row], float]:
    """List how many nodes are left in each profile.

    :param max_age: maximum age of the counts in seconds.
    :param limit: maximum number of rows; None for all.
    :param after: position of the last row of the previous page.
    :param by: sum the rows that are equal in these keys, each one of
        ``COLUMNS`` or ``capability:NAME``.
    :returns: rows, and the age of the counts in seconds.
    """
    fleet, age = counts.get_fleet(
        max_age, with_hosts=node_filter.host is not None)
    return _list_page(fleet, node_filter, limit, after, by), age


@garbage.pause_collection
def _list_page(fleet: profiles.Fleet, node_filter: Filter, limit: int | None,
               after: list[Any] | None, by: Sequence[str]) -> list[Row]:
    groups = [group for group in fleet.groups
              if node_filter.matches(group.node)]
    rows = (_yield_sums(groups, by, node_filter.count_nodes) if by
            else _yield_rows(groups, node_filter.count_nodes))
    if after is not None:
        rows = (row for row in rows if row.position > after)
    return list(itertools.islice(rows, limit))


@garbage.pause_collection
def list_matching_rows(matches: 'list[matcher.Match]',
                       fit: Callable[[matching.Node], tuple[Any, ...]]
                       ) -> list[dict[str, Any]]:
    """List the rows of profiles that match, best fit first, without holds.

    :param matches: result of ``Matcher.find_profiles``.
    :param fit: function of a node, equal within a profile group.
    """
    fits: dict[_Key, tuple[Any, ...]] = {}
    for group, _ in matches:
        fits.setdefault(_make_key(group.node), fit(group.node))
    return [row.content for row in _yield_rows(
        [group for group, _ in matches], Filter().count_nodes, dict(matches),
        make_position=lambda key: (fits[key], _make_sort_text(key)))]


# The end of a value in a text by which rows are sorted, and the end of a part
# of a value. They sort before all characters of values.
_END, _END_OF_PART = '\1', '\2'

# Maximum length of such a text, which is part of a URL.
_LONGEST = 256


def _make_sort_text(key: _Key) -> str:
    """Return a text that sorts as a key: numbers by their size, None first."""
    return _shorten(_END.join(map(_format_value, key)))


def _format_value(value: Any) -> str:
    match value:
        case None:
            return ''
        case str():
            return f'!{value}'
        case tuple():
            return _END_OF_PART.join(value)
    return f'{int(value):018}' + f'{value % 1:.17f}'[1:].rstrip('.0')


def _shorten(text: str) -> str:
    """Return a text that a marker can contain, or its start and a digest.

    Rows are sorted by it, and two different texts stay different.
    """
    if len(text) <= _LONGEST and text.isascii() and '\0' not in text:
        return text  # Fast path, taken by nearly all profiles.
    start = text[:_LONGEST].encode(errors='replace').decode().replace(
        '\0', '?')
    return text if start == text else start + hashlib.sha256(
        text.encode(errors='surrogatepass')).hexdigest()[:32]


def _sort_keys(keys: Iterable[_Key], make_position: Callable[[_Key], Any]
               ) -> list[tuple[Any, _Key]]:
    """Return pairs of a position and a key, sorted by position."""
    return sorted(((make_position(key), key) for key in keys),
                  key=operator.itemgetter(0))


def _yield_rows(
        groups: Iterable[profiles.ProfileGroup], count: _Counter,
        among: dict[profiles.ProfileGroup, list[profiles.Profile]]
        | None = None,
        make_position: Callable[[_Key], Any] = _make_sort_text
) -> Iterator[Row]:
    """Yield the rows of profiles, sorted.

    Profiles whose facts are spelled differently and mean the same share a row.

    :param among: profiles by profile group; None for all.
    :param make_position: function of the result of ``_make_key``.
    """
    # Profiles of many groups share a dict of capabilities.
    keys: dict[int, _Key] = {}
    capabilities_by_key: dict[_Key, dict[str, str]] = {}
    groups_by_key: dict[_Key, list[profiles.ProfileGroup]] = {}
    for group in groups:
        groups_by_key.setdefault(_make_key(group.node), []).append(group)
    for position, group_key in _sort_keys(groups_by_key, make_position):
        sums: dict[_Key, _Numbers] = {}
        for group in groups_by_key[group_key]:
            for profile in (group.profiles if among is None
                            or among[group] == [group.whole]
                            else among[group]):
                capabilities = profile.capabilities
                key = keys.get(id(capabilities))
                if key is None:
                    key = keys[id(capabilities)] = _make_capabilities_key(
                        capabilities)
                    capabilities_by_key[key] = dict(key[1:])
                _add_numbers(sums, key, count(profile))
        node = groups_by_key[group_key][0].node
        head = {'resource_class': node.resource_class, **node.sizes,
                'cpu_arch': node.cpu_arch}
        tail = {'traits': sorted(node.traits),
                'conductor_group': node.conductor_group, 'shard': node.shard,
                'owner': node.owner, 'lessee': node.lessee}
        for key in sorted(sums):
            yield Row([position, key[0]], {
                **head, 'capabilities': capabilities_by_key[key], **tail,
                **dict(zip(_COUNTS, sums[key], strict=False))})


def _make_capabilities_key(capabilities: dict[str, str]) -> _Key:
    """Return a text that sorts as capabilities do, and the pairs of them."""
    pairs = sorted(capabilities.items())
    return _shorten(_END_OF_PART.join(
        itertools.chain.from_iterable(pairs))), *pairs


def _make_key(node: matching.Node) -> _Key:
    """Return the facts of a node except the values of capabilities."""
    return (node.resource_class, *node.sizes.values(), node.cpu_arch,
            tuple(sorted(node.traits)), node.conductor_group, node.shard,
            node.owner, node.lessee, tuple(sorted(node.capabilities)))


def _yield_sums(groups: Iterable[profiles.ProfileGroup],
                by: Collection[str], count: _Counter) -> Iterator[Row]:
    """Yield sums by the values of keys, sorted by the values."""
    names = [group_policy.find_capability(key) for key in by]
    sums: dict[_Key, _Numbers] = {}
    for group in groups:
        values = [_get_value(group.node, key) for key in by]
        for profile in group.profiles if any(names) else [group.whole]:
            _add_numbers(sums, tuple(
                value if name is None else profile.capabilities.get(name)
                for name, value in zip(names, values, strict=True)),
                count(profile))
    for position, key in _sort_keys(sums, _make_sort_text):
        yield Row([position], {**dict(zip(by, key, strict=True)),
                               **dict(zip(_COUNTS, sums[key], strict=False))})


def _get_value(node: matching.Node, key: str) -> str | None:
    if key not in COLUMNS:
        return node.capability(key.removeprefix(group_policy.CAPABILITY))
    value = getattr(node, key)
    # Ironic ignores the case of conductor groups.
    return value.lower() if key == 'conductor_group' else value


def _add_numbers(sums: dict[_Key, _Numbers], key: _Key,
                 numbers: _Numbers | None) -> None:
    if numbers is not None:
        before = sums.get(key)
        sums[key] = numbers if before is None else tuple(
            map(operator.add, before, numbers))
