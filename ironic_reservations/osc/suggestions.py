# SPDX-License-Identifier: Apache-2.0
"""Hints on standard error: unknown names, and what an empty list was of.

A look-up that fails is silent, because a hint is never the result.
"""

import contextlib
import urllib.parse

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions

from ironic_reservations import names
from ironic_reservations import spelling
from ironic_reservations.osc import client
from ironic_reservations.osc import scope

#: Names are all listed, if there are at most this many and none is similar.
_FEW = 8

#: Number of nodes or reservations that are read for their names.
_SAMPLE = 10000

#: Keys by which capacity is summed, besides capabilities.
_KEYS = ('resource_class', 'owner', 'lessee', 'conductor_group', 'shard')

#: What a caller bound to a project sees.
_SEEN = {'nodes': 'nodes that it owns or leases',
         'reservations': 'its own reservations and those on its nodes',
         'groups': 'its own groups'}


def say(cmd, text):
    """Print a line to standard error."""
    print(text, file=cmd.app.stderr, flush=True)


def report_ignored(cmd, answer):
    """Name the extra specs that the API did not compare with nodes.

    :param answer: data of a response of the API.
    """
    if answer.get('ignored'):
        say(cmd, 'Not compared with nodes: '
                 + ', '.join(map(spelling.add_hint, answer['ignored'])))


def report_unknown(cmd, body, **kwargs):
    """Name what a request asks for, and no node has.

    :param body: dict, the body of a POST.
    :param kwargs: arguments of the look-ups, such as another ``auth``.
    """
    with _silent():
        _report(cmd, _names_in(body), **kwargs)


def report_candidates(cmd, body, **kwargs):
    """Name the candidate nodes of a request that do not exist."""
    with _silent():
        nodes = names.list_candidates(body.get('request', body))
        missing = [node for node in nodes
                   if not _exists(cmd, node, **kwargs)]
        known = _nodes(cmd, **kwargs) if missing else ()
        for node in missing:
            hint = _question(spelling.find_closest(node, known), known)
            say(cmd, f'No node {node} was found.{hint}')


def suggest_key(cmd, by, **kwargs):
    """Name what was probably meant by an unknown key, such as "rack".

    :param by: the key of a group or of ``capacity list --by``; "" for none.
    """
    if not by or by in _KEYS or by.startswith(('capability:', 'trait:')):
        return
    with _silent():
        known = _names(cmd, 'capability', **kwargs)
        name = by if by in known else spelling.find_closest(by, known)
        key = (f'capability:{name}' if name
               else spelling.find_closest(by, _KEYS))
        if key:
            say(cmd, f'There is no key {by}. Did you mean {key}?')


def suggest_filters(cmd, filters, **kwargs):
    """Name what was probably meant by filters that no node satisfies.

    :param filters: see ``report_empty``.
    """
    with _silent():
        _report(cmd, _pairs(filters), few=0, **kwargs)


def _pairs(filters):
    """Return pairs of a kind, such as "resource class", and a name."""
    return [(key.replace('_', ' '), name) for key, value in filters.items()
            if value is not None
            for name in (value if isinstance(value, list) else [value])]


def describe_missing_node(cmd, name, **kwargs):
    """Return a sentence if there is no such node, with the closest name.

    :returns: '' if there is one, or Ironic cannot be asked.
    """
    with _silent():
        if not _exists(cmd, name, **kwargs):
            known = _nodes(cmd, **kwargs)
            similar = spelling.find_closest(name, known)
            return f'There is no node {name}.' + _question(similar, known, 0)
    return ''


def report_empty(cmd, rows, what, filters, **kwargs):
    """Yield rows. If there are none, say what was looked for.

    :param what: what a row is, in the plural.
    :param filters: dict of names, of lists of names or of None, by what they
        are of.
    :param kwargs: arguments of the look-ups, such as another ``auth``.
    """
    row = None
    for row in rows:
        yield row
    if row is None:
        pairs = _pairs(filters)
        sentence = ' '.join(
            describe_missing_node(cmd, name, **kwargs)
            for kind, name in pairs if kind == 'node')
        if not sentence:
            text = ', '.join(f'{kind} {name or repr(name)}'
                             f'{_hint(cmd, kind, name, **kwargs)}'
                             for kind, name in pairs)
            sentence = f'No {what} found{" with " * bool(text)}{text}.'
        project = None
        if not kwargs.get('auth'):
            with _silent():
                # scope.auth has informed an admin that this is a part.
                project = scope.of_a_part(cmd, admin=False)
        say(cmd, sentence + (
            f' Project {project} is shown only {_SEEN.get(what, what)}.'
            if project else ''))


def _hint(cmd, kind, name, **kwargs):
    with _silent():
        similar = names.find_closest(kind, name, _names(cmd, kind, **kwargs))
        if similar and names.fold_name(
                kind, similar) != names.fold_name(kind, name):
            return f' (did you mean {similar}?)'
    return ''


def _names(cmd, kind, **kwargs):
    """Return the names of a kind that there are."""
    if kind == 'node':
        return _nodes(cmd, **kwargs)
    if kind == 'host':
        return _hosts(cmd, **kwargs)
    if kind in (*names.KEYS, 'trait', 'capability'):
        return _fleet(cmd, **kwargs).get(kind, ())
    return ()


@contextlib.contextmanager
def _silent():
    with contextlib.suppress(exc.ClientException, ksa_exc.ClientException,
                             sdk_exc.SDKException, exceptions.CommandError):
        yield


def _report(cmd, pairs, few=_FEW, **kwargs):
    """Print the names that no node has.

    :param pairs: list of pairs of a kind and a name.
    :param few: without a similar name, names are listed if there are at most
        this many. With 0, nothing is said then.
    """
    fleet = _fleet(cmd, **kwargs) if pairs else {}
    for kind, name, similar in names.find_unknown(pairs, fleet):
        hint = _question(similar, fleet[kind], few)
        if hint or few:
            say(cmd, f'No node has the {kind} {name}.{hint}')


def _question(similar, known, few=_FEW):
    """Return a sentence on what was probably meant; empty if unclear."""
    if similar:
        return f' Did you mean {similar}?'
    return (f' Known: {", ".join(sorted(known))}.'
            if 0 < len(known) <= few else '')


def group_key(body):
    """Return the key by which a request places a group, or ""."""
    return body.get('by') or body.get('group', {}).get('by') or ''


def _names_in(body):
    """Return the names in a request, a list of pairs of kind and name."""
    pairs = names.list_requirements(body.get('request', body))
    kind, _, name = group_key(body).partition(':')
    return pairs + [(kind, name)] * (
        kind == 'capability' and (kind, name) not in pairs)


def _fleet(cmd, **kwargs):
    """Return the names that nodes have, a dict of sets by kind.

    It is empty if the user sees no nodes.
    """
    rows = client.request(cmd, 'GET', f'{client.PATH}/capacity',
                          **kwargs)['capacity']
    return names.collect_names(rows) if rows else {}


def _exists(cmd, node, **kwargs):
    with contextlib.suppress(exc.NotFound):
        return client.request(cmd, 'GET', '/v1/nodes/'
                              + urllib.parse.quote(node, safe='')
                              + '?fields=uuid', **kwargs)


def _nodes(cmd, **kwargs):
    rows = client.listed(cmd, 'nodes', {'fields': 'uuid,name'}, _SAMPLE,
                         **kwargs)
    return {row['name'] for row in rows if row['name']}


def _hosts(cmd, **kwargs):
    """Return the compute hosts that have reservations or a host lease."""
    rows = list(client.listed(cmd, 'reservations', {
        'fields': 'instance_uuid,host'}, _SAMPLE, **kwargs))
    with contextlib.suppress(exc.Forbidden):
        rows += client.listed(cmd, 'reservations/hosts', {}, **kwargs)
    return {row['host'] for row in rows if row['host']}
