# SPDX-License-Identifier: Apache-2.0
"""Explains the claim of a server. The API has no dry run of a claim."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from ironicclient import exc
from osc_lib import exceptions
from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.osc import output
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions

#: The key of a server's metadata that names a reservation or a group.
METADATA = 'reservations:claim'

_FIELDS = ('instance_uuid,node_uuid,node_name,host,state,project_id,group,'
           'health,maintenance,notices')

#: Maximum number of nodes in a sentence.
_MAX_NODES = 8

#: Causes in a dry run that do not prevent a claim of the node, and the prefix
#: of others.
_EXPECTED = ('candidate_nodes', 'pool', 'reserved')
_DEDICATED = 'dedicated:'

#: The default of [reservations] refuse_health, which the API does not show.
_REFUSED_HEALTH = ('Critical',)


def explain_claim(cmd: command.Command, claim: str, body: client.Data,
                  **kwargs: Any) -> client.Data:
    """Return columns that show whether a claim can be satisfied.

    :param claim: UUID of a reservation's instance, or of a group, maybe with
        ":" and the number of a segment.
    :param body: the request that is made with the claim.
    :param kwargs: arguments of the requests, such as another ``auth``.
    :returns: ``claim``, a sentence; ``matching_nodes``, a number; and
        ``explanation``, if there are claimable nodes that do not match.
    """
    try:
        # A claim cannot use the reservations of other projects.
        project = body.get('project_id') or scope.find_project(cmd, **kwargs)
        reservations = [row for row in _read_reservations(cmd, claim, **kwargs)
                        if project in (None, row['project_id'])]
    except exceptions.CommandError as error:
        return {'claim': str(error), 'matching_nodes': 0}
    claimable = [row for row in reservations
                 if row['state'] == 'reserved' and row['host'] is None]
    if not reservations:
        text = f'The project has no reservation and no group {claim}'
    elif not claimable:
        text = 'Nothing can be claimed: ' + _join(reservations, _format_state)
    else:
        return _match_nodes(cmd, claimable, body, **kwargs)
    return {'claim': text, 'matching_nodes': 0}


def _read_reservations(cmd: command.Command, claim: str,
                       **kwargs: Any) -> list[client.Data]:
    """Return the reservations that a claim names."""
    uuid, colon, segment = claim.partition(':')
    path = client.build_path(client.PATH, uuid)
    try:
        if not colon:
            return [client.request_ironic(
                cmd, 'GET', f'{path}?fields={_FIELDS}', **kwargs)]
    except exc.NotFound:
        pass
    # A group itself does not show the notices of its members.
    query = {'group': path.rpartition('/')[2], 'fields': _FIELDS}
    return [member for member in client.read_list(
        cmd, 'reservations', query, **kwargs)
        if not colon or str(member['group'].get('segment')) == segment]


def _match_nodes(cmd: command.Command, claimable: list[client.Data],
                 body: client.Data, **kwargs: Any) -> client.Data:
    """Return the columns for reservations that can be claimed."""
    specs = body.get('extra_specs', {})
    lists = [body.get('candidate_nodes'), _split_names(
        specs.get('reservations:candidate_nodes'))]
    candidates = [row for row in claimable
                  if all(names is None or _is_among(row, names)
                         for names in lists)]
    text = 'Can be claimed: ' + _join(claimable, _format_node)
    if not candidates:
        return {'claim': f'{text}; none is one of the candidate nodes',
                'matching_nodes': 0}
    usable = [row for row in candidates if _is_usable(cmd, row, **kwargs)]
    if len(usable) < len(candidates):
        text += ('; in maintenance or retired, with an open cordon or '
                 'critical health: ' + _join([
                     row for row in candidates if row not in usable],
                     _format_node))
    if not usable:
        return {'claim': text, 'matching_nodes': 0}
    nodes = [row['node_uuid'] for row in usable]
    body = {**body, 'candidate_nodes': nodes, 'extra_specs': {
        key: value for key, value in specs.items()
        if key != 'reservations:candidate_nodes'}}
    response = client.request_ironic(
        cmd, 'POST', f'{client.PATH}?dry_run=true', body=body, **kwargs)
    suggestions.report_ignored(cmd, response)
    obstacles = [row for row in response['explanation']['eliminated']
                 if row['by'] not in _EXPECTED
                 and not row['by'].startswith(_DEDICATED)]
    matching = len(nodes) - sum(row['nodes'] for row in obstacles)
    columns = {'claim': f'{text}; {matching} of {len(claimable)} match',
               'matching_nodes': matching}
    if obstacles:
        columns['explanation'] = output.format_explanation({
            'considered': len(nodes), 'eliminated': obstacles})
    return columns


def _split_names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in
                                      text.split(',')]


def _is_among(row: client.Data, names: Sequence[str]) -> bool:
    return row['node_name'] in names or row['node_uuid'].lower() in {
        name.lower() for name in names}


def _is_usable(cmd: command.Command, row: client.Data, **kwargs: Any) -> bool:
    """Return whether the state of a held node allows a claim.

    A dry run counts a node that is in maintenance, retired, cordoned or of a
    refused health as reserved, but a claim of it is refused. A node that the
    user may not see does not count as retired.
    """
    if row['maintenance'] or row['health'] in _REFUSED_HEALTH or any(
            notice['cordon'] and notice['state'] == 'open'
            for notice in row['notices']):
        return False
    try:
        node = client.request_ironic(
            cmd, 'GET', f'/v1/nodes/{row["node_uuid"]}?fields=retired',
            **kwargs)
    except exc.ClientException:
        return True
    return not node.get('retired')


def _join(rows: Sequence[client.Data],
          format_row: Callable[[client.Data], str]) -> str:
    return ', '.join(map(format_row, rows[:_MAX_NODES])) + (
        f' and {len(rows) - _MAX_NODES} more' if rows[_MAX_NODES:] else '')


def _format_node(row: client.Data) -> str:
    name: str = row['node_name'] or row['node_uuid']
    return name


def _format_state(row: client.Data) -> str:
    host = f' and held by {row["host"]}' if row['host'] else ''
    return f'{_format_node(row)} is {row["state"]}{host}'
