# SPDX-License-Identifier: Apache-2.0
"""Hints on standard error: unknown names, and what an empty list was of.

A look-up that fails is silent, because a hint is never the result.
"""

import contextlib
import re
import urllib.parse

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions

from ironic_reservations import spelling
from ironic_reservations.osc import client
from ironic_reservations.osc import scope

#: Names are all listed, if there are at most so many and none is similar.
_FEW = 8

#: Number of nodes or reservations that are read for their names.
_SAMPLE = 10000

#: Columns of the capacity with one name per row.
_COLUMNS = {'resource class': 'resource_class', 'shard': 'shard',
            'conductor group': 'conductor_group'}

#: Capabilities that Nova and the API know without a node that states them.
_IMPLICIT = {'cpu_arch', 'hypervisor_type', 'hypervisor_version',
             'memory_mb', 'vcpus', 'local_gb'}

#: Keys by which capacity is summed, besides capabilities.
_KEYS = ('resource_class', 'owner', 'lessee', 'conductor_group', 'shard')

# A value that is an expression, see oslo_utils.specs_matcher.
_OPERATOR = re.compile(r'\s*(?:<|>|=|!=|s[!=<>])')

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
                 + ', '.join(map(spelling.with_hint, answer['ignored'])))


def report_unknown(cmd, body, **kwargs):
    """Name what a request asks for, and no node has.

    :param body: dict, the body of a POST.
    :param kwargs: arguments of the look-ups, such as another ``auth``.
    """
    with _silent():
        _report(cmd, _names_in(body), **kwargs)


def report_candidates(cmd, body, **kwargs):
    """Name the candidate nodes of a request that do not exist."""
    spec = body.get('request', body)
    names = spec.get('candidate_nodes') or spec.get('extra_specs', {}).get(
        'reservations:candidate_nodes', '').split(',')
    with _silent():
        missing = [name for name in map(str.strip, names)
                   if name and not _exists(cmd, name, **kwargs)]
        known = _nodes(cmd, **kwargs) if missing else ()
        for name in missing:
            say(cmd, f'No node {name} was found.{_closest(name, known)}')


def suggest_key(cmd, by, **kwargs):
    """Name what was probably meant by an unknown key, such as "rack".

    :param by: the key of a group or of ``capacity list --by``; "" for none.
    """
    if not by or by in _KEYS or by.startswith(('capability:', 'trait:')):
        return
    with _silent():
        names = _names(cmd, 'capability', **kwargs)
        name = by if by in names else spelling.closest(by, names)
        key = f'capability:{name}' if name else spelling.closest(by, _KEYS)
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
    return [(key.replace('_', ' '), name) for key, names in filters.items()
            if names is not None
            for name in (names if isinstance(names, list) else [names])]


def suggest_node(cmd, name, **kwargs):
    """Return a question after the node that was probably meant, or ''."""
    with _silent():
        similar = spelling.closest(name, _nodes(cmd, **kwargs))
        if similar:
            return f' Did you mean {similar}?'
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
        text = ', '.join(
            f'{kind} {name or repr(name)}{_hint(cmd, kind, name, **kwargs)}'
            for kind, name in _pairs(filters))
        project = None
        if not kwargs.get('auth'):
            with _silent():
                # scope.auth has informed an admin that this is a part.
                project = scope.of_a_part(cmd, admin=False)
        say(cmd, f'No {what} found{" with " * bool(text)}{text}.' + (
            f' Project {project} is shown only {_SEEN.get(what, what)}.'
            if project else ''))


def _hint(cmd, kind, name, **kwargs):
    with _silent():
        similar = spelling.closest(name, _names(cmd, kind, **kwargs))
        if similar and _fold(kind, similar) != _fold(kind, name):
            return f' (did you mean {similar}?)'
    return ''


def _names(cmd, kind, **kwargs):
    """Return the names of a kind that there are."""
    if kind == 'node':
        return _nodes(cmd, **kwargs)
    if kind == 'host':
        return _hosts(cmd, **kwargs)
    if kind in (*_COLUMNS, 'trait', 'capability'):
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
        so many. With 0, nothing is said then.
    """
    fleet = _fleet(cmd, **kwargs) if pairs else {}
    for kind, name in pairs:
        known = fleet.get(kind)
        if known is not None and _fold(kind, name) not in {
                _fold(kind, other) for other in known}:
            hint = _closest(name, known, few)
            if hint or few:
                say(cmd, f'No node has the {kind} {name}.{hint}')


def _fold(kind, name):
    """Return a name without the differences that the API disregards."""
    if kind == 'resource class':
        name = re.sub('[^A-Z0-9]', '_', name.upper())
        return f'CUSTOM_{name.removeprefix("CUSTOM_")}'
    return name.lower() if kind == 'conductor group' else name


def _closest(name, known, few=_FEW):
    """Return a sentence on what was probably meant; empty if unclear."""
    similar = spelling.closest(name, known)
    if similar:
        return f' Did you mean {similar}?'
    return (f' Known: {", ".join(sorted(known))}.'
            if 0 < len(known) <= few else '')


def group_key(body):
    """Return the key by which a request places a group, or ""."""
    return body.get('by') or body.get('group', {}).get('by') or ''


def _names_in(body):
    """Return the names in a request, a list of pairs of kind and name."""
    spec = body.get('request', body)
    pairs = [(kind, spec[key]) for kind, key in _COLUMNS.items()
             if spec.get(key)]
    if group_key(body).startswith('capability:'):
        pairs += [('capability', group_key(body).removeprefix('capability:'))]
    specs = {**spec.get('image', {}).get('properties', {}),
             **spec.get('extra_specs', {})}
    for key, value in specs.items():
        group, _, name = key.removeprefix('reservations:').partition(':')
        if group.startswith('resources') and name.startswith('CUSTOM_'):
            pairs += [('resource class', name)] * (str(value) != '0')
        elif group.startswith('trait'):
            pairs += [('trait', name)] * (value != 'forbidden')
        elif group == 'capabilities':
            texts = ([f'{name}:{value}'] if name
                     else map(str.strip, str(value).split(',')))
            for text in texts:
                pairs += _capability(*text.partition(':')[::2])
    return list(dict.fromkeys(pairs))


def _capability(name, value):
    if name and name not in _IMPLICIT:
        yield 'capability', name
        if value and not _OPERATOR.match(value):
            yield _value_of(name), value


def _value_of(name):
    """Return the kind of the values of a capability."""
    return f'capability {name} with the value'


def _fleet(cmd, **kwargs):
    """Return the names that nodes have, a dict of sets by kind.

    It is empty if the user sees no nodes.
    """
    rows = client.request(cmd, 'GET', f'{client.PATH}/capacity',
                          **kwargs)['capacity']
    if not rows:
        return {}
    fleet = {kind: {row[key] for row in rows if row[key]}
             for kind, key in _COLUMNS.items()}
    fleet['trait'] = {trait for row in rows for trait in row['traits']}
    fleet['capability'] = set()
    for row in rows:
        for name, value in row['capabilities'].items():
            fleet['capability'].add(name)
            fleet.setdefault(_value_of(name), set()).add(str(value))
    return fleet


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
