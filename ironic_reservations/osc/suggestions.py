# SPDX-License-Identifier: Apache-2.0
"""Prints hints to standard error: unknown names, and causes of empty lists.

Errors of look-ups are ignored, because a hint is never the result.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
from typing import Any
import urllib.parse

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions
from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.osc import scope
from ironic_reservations.shared import names
from ironic_reservations.shared import spelling
from ironic_reservations.shared import text

#: Maximum number of names that are all listed if none is similar.
_FEW = 8

#: Number of nodes or reservations that are read for their names.
_SAMPLE = 10000

#: Keys by which capacity is summed, besides capabilities.
_KEYS = ('resource_class', 'owner', 'lessee', 'pool_project_id',
         'conductor_group', 'shard', 'project_id')

#: Descriptions of what a project-scoped caller can see.
_VISIBLE = {'nodes': 'nodes that it owns, leases or has in a pool',
            'reservations': 'its own reservations and those on its nodes',
            'ended reservations': 'what ended on nodes while it owned them',
            'groups': 'its own groups',
            'pools': 'its own pools',
            'notices': 'notices of nodes that it owns, has reserved or has in '
                       'a pool'}


def print_hint(cmd: command.Command, line: str) -> None:
    """Print a line to standard error."""
    print(text.escape_controls(line), file=cmd.app.stderr, flush=True)


def report_ignored(cmd: command.Command, response: client.Data) -> None:
    """Print the extra specs that the API did not compare with nodes.

    :param response: data of a response of the API.
    """
    if response.get('ignored'):
        print_hint(cmd, 'Not compared with nodes: ' + ', '.join(
            map(spelling.add_hint, response['ignored'])))


def report_unknown(cmd: command.Command, body: client.Data,
                   **kwargs: Any) -> None:
    """Print the names in a request that no node has.

    :param body: body of a POST.
    :param kwargs: arguments of the look-ups, such as another ``auth``.
    """
    with _ignore_errors():
        _report_names(cmd, _list_names(body), **kwargs)


def report_candidates(cmd: command.Command, body: client.Data,
                      **kwargs: Any) -> None:
    """Print the candidate nodes in a request that do not exist."""
    report_missing(cmd, names.list_candidates(body.get('request', body)),
                   **kwargs)


@contextlib.contextmanager
def suggest_all_projects(cmd: command.Command,
                         auth: Any = None) -> Iterator[None]:
    """Print a hint if Ironic refuses a request of an admin in a project.

    :param auth: of the request; None for the user's own token.
    """
    try:
        yield
    except (*client.OUT_OF_SCOPE, exceptions.CommandError) as error:
        # That of EachCommand has a cause.
        if not isinstance(error.__cause__ or error, client.OUT_OF_SCOPE):
            raise
        with _ignore_errors():
            project = auth is None and scope.find_limited_project(cmd)
            if project:
                print_hint(cmd, f'The request was limited to project '
                                f'{project}; use --all-projects for system '
                                f'scope.')
        raise


def send_request(cmd: command.Command, method: str, path: str, auth: Any,
                 **kwargs: Any) -> Any:
    """Send a request to Ironic, see ``suggest_all_projects``.

    :param kwargs: see ``client.request_ironic``.
    """
    with suggest_all_projects(cmd, auth):
        return client.request_ironic(cmd, method, path, auth=auth, **kwargs)


def report_missing(cmd: command.Command, candidates: Iterable[str],
                   **kwargs: Any) -> None:
    """Print the names and UUIDs that no node has."""
    with _ignore_errors():
        missing = [node for node in candidates
                   if not _exists(cmd, node, **kwargs)]
        nodes = _read_guesses(cmd, **kwargs) if missing else set()
        for node in missing:
            hint = _format_hint(spelling.find_closest(node, nodes), nodes)
            print_hint(cmd, f'No node {node} was found.{hint}')


def suggest_key(cmd: command.Command, by: str, **kwargs: Any) -> None:
    """Print the closest key to an unknown one, such as "rack".

    :param by: the key of a group or of ``capacity list --by``; "" for none.
    """
    if not by or by in _KEYS or by.startswith(('capability:', 'trait:')):
        return
    with _ignore_errors():
        capabilities = _read_names(cmd, 'capability', **kwargs)
        name = (by if by in capabilities
                else spelling.find_closest(by, capabilities))
        key = (f'capability:{name}' if name
               else spelling.find_closest(by, _KEYS))
        if key:
            print_hint(cmd, f'There is no key {by}. Did you mean {key}?')


def suggest_filters(cmd: command.Command, filters: client.Data,
                    **kwargs: Any) -> None:
    """Print the closest names to filters that no node satisfies.

    :param filters: see ``report_empty``.
    """
    with _ignore_errors():
        _report_names(cmd, _list_filters(filters), few=0, **kwargs)


def _list_filters(filters: client.Data) -> list[tuple[str, str]]:
    """Return pairs of a kind, such as "resource class", and a name."""
    return [(key.replace('_', ' '), name) for key, value in filters.items()
            if value is not None
            for name in (value if isinstance(value, list) else [value])]


def describe_missing_node(cmd: command.Command, name: str,
                          **kwargs: Any) -> str:
    """Return a sentence if a node does not exist, with the closest name.

    :returns: '' if it exists, or Ironic cannot be read.
    """
    with _ignore_errors():
        if not _exists(cmd, name, **kwargs):
            nodes = _read_guesses(cmd, **kwargs)
            similar = spelling.find_closest(name, nodes)
            return (f'No node {name} was found.'
                    + _format_hint(similar, nodes, 0))
    return ''


def report_empty(cmd: command.Command, rows: Iterable[Any], plural: str,
                 filters: client.Data, **kwargs: Any) -> Iterator[Any]:
    """Yield rows. If there are none, print the filters.

    :param plural: name of the rows, such as ``nodes``.
    :param filters: by key, a name, a list of names, or None.
    :param kwargs: arguments of the look-ups, such as another ``auth``.
    """
    row = None
    for row in rows:
        yield row
    if row is None:
        pairs = _list_filters(filters)
        sentence = ' '.join(
            describe_missing_node(cmd, name, **kwargs)
            for kind, name in pairs if kind == 'node')
        if not sentence:
            details = ', '.join(f'{kind} {name or repr(name)}'
                                f'{_suggest_name(cmd, kind, name, **kwargs)}'
                                for kind, name in pairs)
            sentence = (f'No {plural} found{" with " * bool(details)}'
                        f'{details}.')
        project = None
        if not kwargs.get('auth'):
            with _ignore_errors():
                # scope.choose_auth has informed an admin of the limitation.
                project = scope.find_limited_project(cmd, admin=False)
        print_hint(cmd, sentence + (
            f' Project {project} can see only {_VISIBLE.get(plural, plural)}.'
            if project else ''))


def _suggest_name(cmd: command.Command, kind: str, name: str,
                  **kwargs: Any) -> str:
    with _ignore_errors():
        existing = _read_names(cmd, kind, **kwargs)
        similar = names.find_closest(kind, name, existing)
        if not similar and kind in names.KEYS:
            few_names = _join_few(existing)
            return f' (existing: {few_names})' if few_names else ''
        if similar and names.fold_name(
                kind, similar) != names.fold_name(kind, name):
            return f' (did you mean {similar}?)'
    return ''


def _read_names(cmd: command.Command, kind: str, **kwargs: Any) -> set[str]:
    """Return the existing names of a kind."""
    if kind == 'node':
        return _read_node_names(cmd, **kwargs)
    if kind == 'host':
        return _read_hosts(cmd, **kwargs)
    if kind in (*names.KEYS, 'trait', 'capability'):
        return _read_fleet(cmd, **kwargs).get(kind, set())
    return set()


@contextlib.contextmanager
def _ignore_errors() -> Iterator[None]:
    with contextlib.suppress(exc.ClientException, ksa_exc.ClientException,
                             sdk_exc.SDKException, exceptions.CommandError):
        yield


def _report_names(cmd: command.Command, pairs: Sequence[tuple[str, str]],
                  few: int = _FEW, **kwargs: Any) -> None:
    """Print the names that no node has.

    :param pairs: kinds and names.
    :param few: without a similar name, existing names are listed if there are
        at most this many. With 0, nothing is printed then.
    """
    fleet = _read_fleet(cmd, **kwargs) if pairs else {}
    for kind, name, similar in names.find_unknown(pairs, fleet):
        hint = _format_hint(similar, fleet[kind], few)
        if hint or few:
            print_hint(cmd, f'No node has the {kind} {name}.{hint}')


def _format_hint(similar: str | None, existing: set[str],
                 few: int = _FEW) -> str:
    """Return a sentence with the closest name, or with a few names."""
    if similar:
        return f' Did you mean {similar}?'
    few_names = _join_few(existing, few)
    return '' if few_names is None else f' Known: {few_names}.'


def _join_few(existing: set[str], few: int = _FEW) -> str | None:
    """Return names as text; None for no names, or more than a few."""
    return (', '.join(sorted(existing))
            if 0 < len(existing) <= few else None)


def list_group_keys(body: client.Data) -> list[str]:
    """Return the keys by which a request places a group."""
    return [level['by'] for level in (
        body, body.get('group', {}), *body.get('levels', ()))
        if level.get('by')]


def _list_names(body: client.Data) -> list[tuple[str, str]]:
    """Return the kinds and names in a request."""
    pairs = names.list_requirements(body.get('request', body))
    for by in list_group_keys(body):
        kind, _, name = by.partition(':')
        if kind == 'capability' and (kind, name) not in pairs:
            pairs.append((kind, name))
    return pairs


def _read_fleet(cmd: command.Command, **kwargs: Any) -> names.Names:
    """Return the names that nodes have; empty if the user sees no nodes."""
    rows = client.request_ironic(cmd, 'GET', f'{client.PATH}/capacity',
                                 **kwargs)['capacity']
    return names.collect_names(rows) if rows else {}


def _exists(cmd: command.Command, node: str, **kwargs: Any) -> bool:
    with contextlib.suppress(exc.NotFound):
        client.request_ironic(cmd, 'GET', '/v1/nodes/'
                              + urllib.parse.quote(node, safe='')
                              + '?fields=uuid', **kwargs)
        return True
    return False


def _read_guesses(cmd: command.Command, **kwargs: Any) -> set[str]:
    """Return the names that an unknown name of a node may stand for.

    :returns: an empty set if the name may be that of a node that the user
        cannot see.
    """
    return (_read_node_names(cmd, **kwargs) if scope.sees_all(cmd, **kwargs)
            else set())


def _read_node_names(cmd: command.Command, **kwargs: Any) -> set[str]:
    rows = client.read_list(cmd, 'nodes', {'fields': 'uuid,name'}, _SAMPLE,
                            **kwargs)
    return {row['name'] for row in rows if row['name']}


def _read_hosts(cmd: command.Command, **kwargs: Any) -> set[str]:
    """Return the compute hosts of reservations, of host leases and of Nova."""
    rows = list(client.read_list(cmd, 'reservations', {
        'fields': 'instance_uuid,host'}, _SAMPLE, **kwargs))
    with contextlib.suppress(exc.Forbidden):
        rows += client.read_list(cmd, 'reservations/hosts', {}, **kwargs)
    hosts = {row['host'] for row in rows if row['host']}
    with _ignore_errors():
        hosts |= {service.host for service in client.get_compute(
            cmd).services(binary='nova-compute')}
    return hosts
