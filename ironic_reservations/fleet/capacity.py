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

from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.fleet import comparison
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import profiles
from ironic_reservations.matching import group_policy
from ironic_reservations.shared import constants
from ironic_reservations.shared import resources

#: Keys by which rows can be summed, besides ``capability:NAME``.
COLUMNS = ('resource_class', 'owner', 'lessee', 'pool_project_id',
           'conductor_group', 'shard', 'project_id')

# The key by which nodes are summed by the project that has them.
_PROJECT = 'project_id'

# What a project must not know of a node that is reserved for it but that it
# may not see. It knows the hardware, so the class and capabilities are shown.
_HIDDEN_KEYS = {*COLUMNS} - {_PROJECT, 'resource_class'}

#: Numbers in a row; the last only if a host was requested.
_COUNTS = ('total', *constants.NODE_STATES, 'claimable', 'held')

#: Values by which profiles or sums are distinguished.
_Key = tuple[Any, ...]

#: Values of ``_COUNTS``.
_Numbers = tuple[int, ...]

# The states of nodes whose lessee is shown, and of the others: Ironic sets the
# lessee of a taken node to the project of its server.
_WITH_LESSEE = tuple(
    state for state in constants.NODE_STATES if state != 'taken')
_WITHOUT_LESSEE = ('taken',)


class Row(typing.NamedTuple):
    """A row of the capacity.

    :param position: texts by which rows are sorted.
    :param content: JSON object of the row.
    """

    position: list[Any]
    content: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Filter:
    """Selects the nodes whose capacity is requested.

    :param reach: only nodes that it includes.
    :param resource_class: only this class, in any spelling.
    :param traits: only nodes with all of these.
    :param conductor_group: only this group; ``""`` is the default group.
    :param shard: only this shard.
    :param host: the host whose nodes are counted as ``held``. They are
        counted in any conductor group and shard, because a node with an
        instance stays with its host when its conductor group changes.
    """

    reach: values.Ownership = values.ALL
    resource_class: str | None = None
    traits: frozenset[str] = frozenset()
    conductor_group: str | None = None
    shard: str | None = None
    host: str | None = None

    def sees(self, node: matching.Node) -> bool:
        """Return whether the caller may see a node."""
        return self.reach.covers(*node.projects)

    def matches(self, node: matching.Node, is_reserved: bool = False) -> bool:
        """Return whether a node is requested, wherever it is.

        :param is_reserved: whether the node is reserved for the caller. Such
            a node matches even if the caller may not see it, unless a filter
            would reveal one of its facts.
        """
        return ((self.sees(node) or is_reserved and not self.traits
                 and self.conductor_group is None and self.shard is None)
                and node.traits.issuperset(self.traits)
                and (self.resource_class is None or matching.has_class(
                    node.resource_class,
                    resources.normalize_class(
                        self.resource_class))))

    def is_inside(self, node: matching.Node) -> bool:
        """Return whether a node is in the requested group and shard."""
        return ((self.conductor_group is None or node.conductor_group.lower()
                 == self.conductor_group.strip().lower())
                and self.shard in (None, node.shard))

    def count_nodes(self, profile: profiles.Profile,
                    states: Sequence[str] = constants.NODE_STATES
                    ) -> _Numbers | None:
        """Return the numbers of nodes of a profile that are in some states.

        :returns: None if there are none.
        """
        counts, claimable = profile.count_states(), profile.claimable
        host_counts = {} if self.host is None else {
            state: profile.held.get((self.host, state), 0) for state in states}
        if not self.is_inside(profile.facts.node):
            # Only the nodes that the host holds are counted here.
            counts, claimable = host_counts, 0
        numbers = [counts.get(state, 0) if state in states else 0
                   for state in constants.NODE_STATES]
        if not any(numbers):
            return None
        return (sum(numbers), *numbers,
                claimable if 'reserved' in states else 0,
                *([] if self.host is None else [sum(host_counts.values())]))


def list_rows(max_age: float, node_filter: Filter, limit: int | None = None,
              after: list[Any] | None = None,
              by: Sequence[str] = ()) -> tuple[list[Row], float]:
    """List how many nodes are left in each profile.

    :param max_age: maximum age of the counts in seconds.
    :param limit: maximum number of rows; None for all.
    :param after: position of the last row of the previous page.
    :param by: sum the rows that are equal in these keys, each one of
        ``COLUMNS`` or ``capability:NAME``. With ``project_id``, a filter that
        is restricted to a project counts all nodes that it has. Those that it
        may not see have None for ``_HIDDEN_KEYS``.
    :returns: rows, and the age of the counts in seconds.
    """
    fleet, age = counts.get_fleet(
        max_age, with_hosts=node_filter.host is not None,
        with_projects=_PROJECT in by)
    return _list_page(fleet, node_filter, limit, after, by), age


@counts.pause_garbage_collection()
def _list_page(fleet: profiles.Fleet, node_filter: Filter, limit: int | None,
               after: list[Any] | None, by: Sequence[str]) -> list[Row]:
    groups = fleet.groups
    if _PROJECT in by and node_filter.reach.is_limited:
        groups = tuple(group for group in groups if group.facts.facts[_PROJECT]
                       == node_filter.reach.project_id)
    groups = tuple(group for group in groups
                   if node_filter.matches(group.node, _PROJECT in by))
    rows = (_yield_sums(groups, by, node_filter) if by
            else _yield_rows(groups, node_filter))
    if after is not None:
        rows = (row for row in rows if row.position > after)
    return list(itertools.islice(rows, limit))


def list_matching_rows(matcher: matching.Matcher, fleet: profiles.Fleet
                       ) -> list[dict[str, Any]]:
    """List the rows of profiles that match, best fit first, without holds."""
    matches = comparison.find_profiles(matcher, fleet)
    return [row.content for row in _yield_rows(
        [group for group, _ in matches], Filter(), dict(matches),
        lambda key, node: (matcher.fit_alone(node), _make_sort_text(key)))]


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


def _yield_rows(
        groups: Iterable[profiles.ProfileGroup], node_filter: Filter,
        among: dict[profiles.ProfileGroup, list[profiles.Profile]]
        | None = None,
        make_position: Callable[[_Key, matching.Node], Any] = (
            lambda key, node: _make_sort_text(key))
) -> Iterator[Row]:
    """Yield the rows of profiles, sorted.

    Profiles whose facts are spelled differently and mean the same share a row,
    as do taken nodes that differ only in their lessee.

    :param among: profiles by profile group; None for all.
    :param make_position: function of the result of ``_make_key``, and of a
        node that it was made of.
    """
    # Profiles of many groups share a dict of capabilities.
    keys: dict[int, _Key] = {}
    capabilities_by_key: dict[_Key, dict[str, str]] = {}
    parts_by_key = _divide_groups(groups)
    for position, part_key in sorted((
            (min(make_position(key, group.node) for group, _ in parts), key)
            for key, parts in parts_by_key.items()),
            key=operator.itemgetter(0)):
        sums: dict[_Key, _Numbers] = {}
        for group, states in parts_by_key[part_key]:
            for profile in (group.profiles if among is None
                            or among[group] == [group.whole]
                            else among[group]):
                capabilities = profile.capabilities
                key = keys.get(id(capabilities))
                if key is None:
                    key = keys[id(capabilities)] = _make_capabilities_key(
                        capabilities)
                    capabilities_by_key[key] = dict(key[1:])
                _add_numbers(sums, key,
                             node_filter.count_nodes(profile, states))
        node, lessee = parts_by_key[part_key][0][0].node, part_key[-1]
        head = {'resource_class': node.resource_class, **node.sizes,
                'cpu_arch': node.cpu_arch}
        tail = {'traits': sorted(node.traits),
                'conductor_group': node.conductor_group, 'shard': node.shard,
                'owner': node.owner, 'lessee': lessee,
                'pool_project_id': node.pool_project_id}
        for key in sorted(sums):
            yield Row([position, key[0]], {
                **head, 'capabilities': capabilities_by_key[key], **tail,
                **dict(zip(_COUNTS, sums[key], strict=False))})


def _divide_groups(groups: Iterable[profiles.ProfileGroup]) -> dict[
        _Key, list[tuple[profiles.ProfileGroup, Sequence[str]]]]:
    """Return profile groups, with states of their nodes, by their rows' key.

    The nodes of a group that are in other states have another key.
    """
    parts_by_key: dict[_Key, list[
        tuple[profiles.ProfileGroup, Sequence[str]]]] = {}
    for group in groups:
        node, lessee = group.node, group.node.lessee
        for key, states in (
                [(_make_key(node, None), constants.NODE_STATES)]
                if lessee is None else
                [(_make_key(node, lessee), _WITH_LESSEE),
                 (_make_key(node, None), _WITHOUT_LESSEE)]):
            parts_by_key.setdefault(key, []).append((group, states))
    return parts_by_key


def _make_capabilities_key(capabilities: dict[str, str]) -> _Key:
    """Return a text that sorts as capabilities do, and the pairs of them."""
    pairs = sorted(capabilities.items())
    return _shorten(_END_OF_PART.join(
        itertools.chain.from_iterable(pairs))), *pairs


def _make_key(node: matching.Node, lessee: str | None) -> _Key:
    """Return the facts in a row of a node, except values of capabilities."""
    return (node.resource_class, *node.sizes.values(), node.cpu_arch,
            tuple(sorted(node.traits)), node.conductor_group, node.shard,
            node.owner, node.pool_project_id,
            tuple(sorted(node.capabilities)), lessee)


def _yield_sums(groups: Iterable[profiles.ProfileGroup],
                by: Collection[str], node_filter: Filter) -> Iterator[Row]:
    """Yield sums by the values of keys, sorted by the values."""
    names = [group_policy.find_capability(key) for key in by]
    counts = [*_COUNTS[:len(_COUNTS) - (node_filter.host is None)],
              *['healthy'] * (_PROJECT in by)]
    sums: dict[_Key, _Numbers] = {}
    for group in groups:
        is_visible = node_filter.sees(group.node)
        values = [_get_value(group, key)
                  if is_visible or key not in _HIDDEN_KEYS else None
                  for key in by]
        is_healthy = group.facts.facts.get('healthy') == '1'
        for profile in group.profiles if any(names) else [group.whole]:
            numbers = node_filter.count_nodes(profile)
            _add_numbers(sums, tuple(
                value if name is None else profile.capabilities.get(name)
                for name, value in zip(names, values, strict=True)),
                numbers and (*numbers, numbers[0] if is_healthy else 0))
    for position, key in sorted(((_make_sort_text(key), key) for key in sums),
                                key=operator.itemgetter(0)):
        yield Row([position], {**dict(zip(by, key, strict=True)),
                               **dict(zip(counts, sums[key], strict=False))})


def _get_value(group: profiles.ProfileGroup, key: str) -> str | None:
    if key == _PROJECT:
        return group.facts.facts[_PROJECT]
    node = group.node
    if key not in COLUMNS:
        return node.capability(key.removeprefix(group_policy.CAPABILITY))
    if key == 'conductor_group':
        # Ironic ignores the case of conductor groups.
        return node.conductor_group.lower()
    value: str | None = getattr(node, key)
    return value


def _add_numbers(sums: dict[_Key, _Numbers], key: _Key,
                 numbers: _Numbers | None) -> None:
    if numbers is not None:
        before = sums.get(key)
        sums[key] = numbers if before is None else tuple(
            map(operator.add, before, numbers))
