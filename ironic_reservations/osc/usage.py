# SPDX-License-Identifier: Apache-2.0
"""Counts reservations by project and limit: ``reservation list --usage``."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.osc import identity
from ironic_reservations.osc import output
from ironic_reservations.shared import constants
from ironic_reservations.shared import resources

COLUMNS = ('project_id', 'project_name', 'resource_class', 'reservations',
           'limit')

#: Default limits by name, and limits of projects by project and name.
_Limits = tuple[dict[str, int], dict[tuple[str, str], int]]


def list_usage(cmd: command.Command, reservations: Iterable[client.Data],
               auth: Any) -> Iterator[client.Data]:
    """Yield rows of COLUMNS; the first of a project is for all classes.

    A project without reservations has rows only if it is the user's own.

    :param reservations: ``project_id`` and ``resource_class`` of each.
    :param auth: how to log in; None for the user's own token.
    """
    total = constants.TOTAL_LIMIT
    numbers: collections.Counter[tuple[Any, str]] = collections.Counter()
    for row in reservations:
        for name in resources.limit_names(row['resource_class']):
            numbers[row['project_id'], name] += 1
    defaults, limits = _read_limits(cmd, auth)
    reference = client.get_access(cmd)
    if reference is not None and reference.project_id:
        for name in (total, *defaults, *(
                name for project, name in limits
                if project == reference.project_id)):
            numbers[reference.project_id, name] += 0
    projects = identity.Projects(cmd, auth)
    for project, name in sorted(numbers, key=str):
        node_class = name.removeprefix(f'{total}:')
        yield dict(zip(COLUMNS, (
            project, projects.find_name(project),
            output.Text(None, 'all') if name == total
            else output.Text(node_class, node_class),
            numbers[project, name],
            limits.get((project, name), defaults.get(name))), strict=True))


def _read_limits(cmd: command.Command, auth: Any) -> _Limits:
    """Read the limits in Keystone; they are empty if that fails."""
    if client.get_access(cmd) is None:
        return {}, {}
    try:
        defaults, limits = [identity.read_list(cmd, name, auth) for name in (
            'registered_limits', 'limits')]
    except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
        cmd.log.warning('Cannot read the limits: %s', error)
        return {}, {}
    return ({limit['resource_name']: limit['default_limit']
             for limit in defaults if _is_for_reservations(limit)},
            {(limit['project_id'], limit['resource_name']):
             limit['resource_limit']
             for limit in limits if _is_for_reservations(limit)})


def _is_for_reservations(limit: client.Data) -> bool:
    name = limit['resource_name'].partition(':')[0]
    is_ours: bool = name == constants.TOTAL_LIMIT
    return is_ours
