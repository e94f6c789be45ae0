# SPDX-License-Identifier: Apache-2.0
"""What a server's claim would take over. The API has no dry run of a claim."""

from ironicclient import exc
from osc_lib import exceptions

from ironic_reservations.osc import client
from ironic_reservations.osc import output
from ironic_reservations.osc import suggestions

#: The key of a server's metadata that names a reservation or a group.
METADATA = 'reservations:claim'

_FIELDS = 'instance_uuid,node_uuid,node_name,host,state,project_id'

#: Number of nodes that are named one by one.
_FEW = 8

#: In a dry run, nodes that only these eliminate match the request otherwise.
_EXPECTED = ('candidate_nodes', 'reserved')


def explain(cmd, uuid, body, **kwargs):
    """Return columns that say whether a claim can be satisfied.

    :param uuid: of a reservation's instance, or of a group.
    :param body: the request that is made with the claim.
    :param kwargs: arguments of the requests, such as another ``auth``.
    :returns: dict of ``claim``, a sentence; ``matching_nodes``, a number; and
        ``explanation``, if there are claimable nodes that do not match.
    """
    try:
        # The API does not show a claim the reservations of other projects.
        project = body.get('project_id')
        reservations = [row for row in _find(cmd, uuid, **kwargs)
                        if project in (None, row['project_id'])]
    except exceptions.CommandError as error:
        return {'claim': str(error), 'matching_nodes': 0}
    claimable = [row for row in reservations
                 if row['state'] == 'reserved' and row['host'] is None]
    if not reservations:
        text = f'No reservation and no group {uuid} of the project was found'
    elif not claimable:
        text = 'Nothing can be claimed: ' + _join(reservations, _state)
    else:
        return _match(cmd, claimable, body, **kwargs)
    return {'claim': text, 'matching_nodes': 0}


def _find(cmd, uuid, **kwargs):
    """Return the reservations that a claim names; an empty list if none."""
    path = client.path(client.PATH, uuid)
    try:
        return [client.request(cmd, 'GET', f'{path}?fields={_FIELDS}',
                               **kwargs)]
    except exc.NotFound:
        pass
    path = client.path(f'{client.PATH}/groups', uuid)
    try:
        group = client.request(cmd, 'GET', path, **kwargs)
    except exc.NotFound:
        return []
    return client.whole(cmd, group, **kwargs)['reservations']


def _match(cmd, claimable, body, **kwargs):
    """Return the columns for reservations that can be claimed."""
    specs = body.get('extra_specs', {})
    named = [body.get('candidate_nodes'), _split(
        specs.get('reservations:candidate_nodes'))]
    candidates = [row for row in claimable
                  if all(names is None or _is_among(row, names)
                         for names in named)]
    text = 'Can be claimed: ' + _join(claimable, _node)
    if not candidates:
        return {'claim': f'{text}; none is one of the candidate nodes',
                'matching_nodes': 0}
    usable = [row for row in candidates if _is_usable(cmd, row, **kwargs)]
    if len(usable) < len(candidates):
        text += '; in maintenance or retired: ' + _join(
            [row for row in candidates if row not in usable], _node)
    if not usable:
        return {'claim': text, 'matching_nodes': 0}
    nodes = [row['node_uuid'] for row in usable]
    body = {**body, 'extra_specs': {
        key: value for key, value in specs.items()
        if key != 'reservations:candidate_nodes'}}
    answer = client.request(
        cmd, 'POST', f'{client.PATH}?dry_run=true',
        body={**body, 'candidate_nodes': nodes}, **kwargs)
    suggestions.report_ignored(cmd, answer)
    obstacles = [row for row in answer['explanation']['eliminated']
                 if row['by'] not in _EXPECTED]
    matching = len(nodes) - sum(row['nodes'] for row in obstacles)
    columns = {'claim': f'{text}; {matching} of {len(claimable)} match',
               'matching_nodes': matching}
    if obstacles:
        columns['explanation'] = output.explanation({
            'considered': len(nodes), 'eliminated': obstacles})
    return columns


def _split(text):
    return None if text is None else [name.strip() for name in
                                      text.split(',')]


def _is_among(row, names):
    return row['node_name'] in names or row['node_uuid'] in {
        name.lower() for name in names}


def _is_usable(cmd, row, **kwargs):
    """Whether a held node is neither in maintenance nor retired.

    The dry run of a claim would say so; that of a hold counts such a node as
    reserved. A node that the user may not see is not judged.
    """
    try:
        node = client.request(
            cmd, 'GET', f'/v1/nodes/{row["node_uuid"]}?fields='
                        'maintenance,retired', **kwargs)
    except exc.ClientException:
        return True
    return not (node.get('maintenance') or node.get('retired'))


def _join(rows, text):
    return ', '.join(map(text, rows[:_FEW])) + (
        f' and {len(rows) - _FEW} more' if rows[_FEW:] else '')


def _node(row):
    return row['node_name'] or row['node_uuid']


def _state(row):
    host = f' and held by {row["host"]}' if row['host'] else ''
    return f'{_node(row)} is {row["state"]}{host}'
