# SPDX-License-Identifier: Apache-2.0
"""Reservations and limits of projects: ``reservation list --usage``."""

import collections

from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc

from ironic_reservations import resources
from ironic_reservations.constants import TOTAL_LIMIT as TOTAL
from ironic_reservations.osc import output

COLUMNS = ('project_id', 'resource_class', 'reservations', 'limit')


def rows(cmd, reservations, auth):
    """Yield rows of COLUMNS; the first of a project is for all classes.

    A project without reservations has rows only if it is the user's own.

    :param reservations: dicts of ``project_id`` and ``resource_class``.
    :param auth: how to log in; None for the user's own.
    """
    numbers = collections.Counter()
    for row in reservations:
        for name in resources.limit_names(row['resource_class']):
            numbers[row['project_id'], name] += 1
    defaults, limits = _limits(cmd, auth)
    own = cmd.app.client_manager.auth_ref
    if own is not None and own.project_id:
        for name in (TOTAL, *defaults, *(
                name for project, name in limits if project
                == own.project_id)):
            numbers[own.project_id, name] += 0
    for project, name in sorted(numbers, key=str):
        yield (project, output.Text(*(
            (None, 'all') if name == TOTAL
            else [name.removeprefix(f'{TOTAL}:')] * 2)),
            numbers[project, name],
            limits.get((project, name), defaults.get(name)))


def _limits(cmd, auth):
    """Read Keystone's limits.

    :returns: the default limits by name, and those of single projects by
        project and name; both are empty where they cannot be read.
    """
    if not cmd.app.client_manager.is_service_available('identity'):
        return {}, {}
    try:
        defaults, limits = [_listed(cmd, name, auth) for name in (
            'registered_limits', 'limits')]
    except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
        cmd.log.warning('The limits are not known: %s', error)
        return {}, {}
    return ({each['resource_name']: each['default_limit']
             for each in defaults if _is_ours(each)},
            {(each['project_id'], each['resource_name']):
             each['resource_limit'] for each in limits if _is_ours(each)})


def _listed(cmd, name, auth):
    response = cmd.app.client_manager.sdk_connection.identity.get(
        f'/{name}', **({'auth': auth} if auth else {}))
    sdk_exc.raise_from_response(response)
    return response.json()[name]


def _is_ours(limit):
    return limit['resource_name'].partition(':')[0] == TOTAL
