# SPDX-License-Identifier: Apache-2.0
"""Suggests corrections of unknown names in a form.

An error while looking up a hint is ignored, because the page works without.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from ironic_reservations import sdk
from ironic_reservations.horizon import api
from ironic_reservations.shared import names
from ironic_reservations.shared import spelling

#: Number of profiles that are read for the names in them, unless a name is
#: not among these.
_PROFILES = 100

#: Number of reservations that are read for the names of their hosts.
_RESERVATIONS = 1000


def read_fleet_names(service: sdk.Proxy) -> tuple[names.Names, bool]:
    """Return the names that nodes have, and whether they are complete.

    Resource classes are always complete.
    """
    rows, following = api.read_page(service, '/capacity', limit=_PROFILES)
    fleet_names = names.collect_names(rows)
    if following:
        fleet_names['resource class'] = _read_classes(service)
    return fleet_names, following is None


def check_request(service: sdk.Proxy, spec: dict[str, Any],
                  fleet_names: names.Names,
                  is_complete: bool) -> list[names.Unknown]:
    """Return the names in a request that no node has.

    :param spec: request spec.
    :param fleet_names: see ``read_fleet_names``, with ``is_complete``.
    """
    try:
        pairs = names.list_requirements(spec)
        unknown = names.find_unknown(pairs, fleet_names)
        if unknown and not is_complete:
            rows, _following = api.read_page(service, '/capacity')
            unknown = names.find_unknown(pairs, names.collect_names(rows))
        return unknown + _check_nodes(service, names.list_candidates(spec))
    except api.ERRORS:
        return []


def _check_nodes(service: sdk.Proxy, nodes: list[str]) -> list[names.Unknown]:
    missing = api.find_missing_nodes(service, nodes)
    # Otherwise it may be the name of a node that the user cannot see.
    node_names: Iterable[str] = (
        api.read_node_names(service)
        if missing and api.sees_all(service) else ())
    return [('node', node, spelling.find_closest(node, node_names))
            for node in missing]


def read_filter_names(service: sdk.Proxy) -> dict[str, set[str]]:
    """Return the names that filters can have, by key."""
    try:
        return {key: read(service) for key, read in _READERS.items()}
    except api.ERRORS:
        return {}


def check_filters(service: sdk.Proxy, filters: Mapping[str, str],
                  fleet_names: dict[str, set[str]]) -> list[names.Unknown]:
    """Return the names in filters that no node and no reservation has.

    :param filters: the names by key.
    :param fleet_names: see ``read_filter_names``.
    """
    pairs = [(key.replace('_', ' '), filters[key]) for key in _READERS
             if filters.get(key)]
    unknown = names.find_unknown(pairs, {
        key.replace('_', ' '): values for key, values in fleet_names.items()})
    try:
        # The node may be given by its UUID, or on another page of the list.
        return [hint for kind, name, similar in unknown
                for hint in (_check_nodes(service, [name]) if kind == 'node'
                             else [(kind, name, similar)])]
    except api.ERRORS:
        return []


def _read_classes(service: sdk.Proxy) -> set[str]:
    rows, _following = api.read_page(service, '/capacity',
                                     by='resource_class')
    return {row['resource_class'] for row in rows if row['resource_class']}


def _read_hosts(service: sdk.Proxy) -> set[str]:
    rows, _following = api.read_page(service, limit=_RESERVATIONS,
                                     fields='host')
    return {row['host'] for row in rows if row['host']}


#: Functions that read the names of a filter, by its key.
_READERS = {'resource_class': _read_classes, 'node': api.read_node_names,
            'host': _read_hosts}
