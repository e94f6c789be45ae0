# SPDX-License-Identifier: Apache-2.0
"""Finds the names that were probably meant by unknown ones in a form.

A hint that cannot be looked up is left out: it is never the result.
"""

from ironic_reservations import names
from ironic_reservations import spelling
from ironic_reservations.horizon import api

#: Number of profiles that are read for the names in them, unless a name is
#: not among these.
_PROFILES = 100

#: Number of reservations that are read for the names of their hosts.
_RESERVATIONS = 1000


def known_names(service):
    """Return the names that nodes have.

    :returns: dict of sets, see ``names.in_capacity``, and whether they are
        complete. Resource classes always are.
    """
    rows, following = api.page(service, '/capacity', limit=_PROFILES)
    known = names.in_capacity(rows)
    if following:
        known['resource class'] = _classes(service)
    return known, following is None


def in_request(service, spec, known, is_complete):
    """Return the names in a request that no node has.

    :param spec: dict, a request spec.
    :param known: as ``known_names`` returns it, with ``is_complete``.
    :returns: see ``names.unknown``.
    """
    try:
        pairs = names.in_request(spec)
        unknown = names.unknown(pairs, known)
        if unknown and not is_complete:
            rows, _following = api.page(service, '/capacity')
            unknown = names.unknown(pairs, names.in_capacity(rows))
        return unknown + _missing(service, names.candidates(spec))
    except api.ERRORS:
        return []


def _missing(service, nodes):
    missing = api.missing_nodes(service, nodes)
    known = api.node_names(service) if missing else ()
    return [('node', node, spelling.closest(node, known)) for node in missing]


def in_filters(service, filters):
    """Return the names in filters that no node and no reservation has.

    :param filters: dict; ``resource_class``, ``node`` and ``host`` are looked
        at.
    :returns: see ``names.unknown``.
    """
    readers = {'resource_class': _classes, 'node': api.node_names,
               'host': _hosts}
    pairs = [(key.replace('_', ' '), filters[key]) for key in readers
             if filters.get(key)]
    try:
        return names.unknown(pairs, {
            kind: readers[kind.replace(' ', '_')](service)
            for kind, _name in pairs})
    except api.ERRORS:
        return []


def _classes(service):
    rows, _following = api.page(service, '/capacity', by='resource_class')
    return {row['resource_class'] for row in rows if row['resource_class']}


def _hosts(service):
    rows, _following = api.page(service, limit=_RESERVATIONS, fields='host')
    return {row['host'] for row in rows if row['host']}
