# SPDX-License-Identifier: Apache-2.0
"""Finds the reservation of an instance, a node or a server."""

import argparse
from collections.abc import Sequence
import contextlib
from typing import Any
import urllib.parse

from ironicclient import exc
from osc_lib import exceptions
from osc_lib.command import command
from oslo_utils import uuidutils

from ironic_reservations.osc import client
from ironic_reservations.osc import scope
from ironic_reservations.osc import servers
from ironic_reservations.osc import suggestions

#: Fields that identify a reservation to people and to the API.
IDENTIFIERS = ('instance_uuid', 'node_uuid', 'node_name')

#: The argument that identifies a reservation, and its help.
ARGUMENT = ('instance-or-node',
            'UUID of the instance, name or UUID of its node, or name of the '
            'server')


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that identifies a reservation to a parser."""
    name, help_text = ARGUMENT
    parser.add_argument('reservation', metavar=f'<{name}>', help=help_text)


def build_path(reservation: client.Data) -> str:
    """Return the path of a reservation below the API's endpoint."""
    return f'{client.PATH}/{reservation["instance_uuid"]}'


class IsGroup(exceptions.CommandError):
    """A UUID is that of a group instead of an instance."""


def find_reservation(cmd: command.Command, ident: str, fields: Sequence[str],
                     auth: Any = None, unique: bool = True) -> client.Data:
    """Return the reservation of an instance, a node or a server.

    :param ident: UUID of the instance, UUID or name of the node, or name of
        the server.
    :param fields: fields to return, including IDENTIFIERS.
    :param auth: how to log in to Ironic; None for the user's own token.
    :param unique: whether a node's name is refused if a server has the same.
    :raises: exc.NotFound or CommandError.
    """
    try:
        return _find_visible(cmd, ident, {'fields': ','.join(fields)}, auth,
                             unique)
    except (servers.Ambiguous, IsGroup):
        raise
    except (exc.NotFound, exceptions.CommandError):
        project = auth is None and scope.find_limited_project(cmd)
        if not project:
            raise
    raise exceptions.CommandError(
        f'No reservation of {ident} is visible to project {project}; use '
        f'--all-projects to search all projects.')


def _find_visible(cmd: command.Command, ident: str, query: client.Data,
                  auth: Any, unique: bool) -> client.Data:
    missing: Exception | None = None
    if uuidutils.is_uuid_like(ident):
        try:
            return read_reservation(cmd, ident, query, auth)
        except exc.NotFound as error:
            missing = error
    rows = list(client.read_list(
        cmd, 'reservations', {'node': ident, **query}, auth=auth))
    instances = [] if missing or rows and not unique else [
        server.id for server in servers.find_servers(cmd, ident)]
    instances = sorted({*instances} - {row['instance_uuid'].lower()
                                       for row in rows})
    if len(rows) + len(instances) > 1:
        raise servers.Ambiguous(ident, [
            *(f'instance {row["instance_uuid"]}' for row in rows),
            *(f'server {uuid}' for uuid in instances)])
    if rows:
        return rows[0]
    if instances:
        return read_reservation(cmd, instances[0], query, auth)
    if missing:
        _check_is_no_group(cmd, ident, auth)
    raise missing or exceptions.CommandError(
        suggestions.describe_missing_node(cmd, ident, auth=auth)
        or f'No reservation of node {ident} could be found.')


def _check_is_no_group(cmd: command.Command, uuid: str, auth: Any) -> None:
    """Raise IsGroup if a UUID is that of a group."""
    path = client.build_path(f'{client.PATH}/groups', uuid)
    with contextlib.suppress(exc.ClientException):
        client.request_ironic(cmd, 'GET', path, auth=auth)
        words = f'{uuid} --all-projects' if auth else uuid
        raise IsGroup(
            f'{uuid} belongs to a group, not to an instance. Use "openstack '
            f'baremetal reservation group {{show,set,delete}} {words}", or '
            f'"openstack baremetal reservation list --group {words}".')


def read_reservation(cmd: command.Command, instance: str, query: client.Data,
                     auth: Any = None) -> client.Data:
    """Return the reservation of an instance.

    :raises: exc.NotFound.
    """
    data: client.Data = client.request_ironic(
        cmd, 'GET', f'{client.build_path(client.PATH, instance)}?'
                    + urllib.parse.urlencode(query), auth=auth)
    return data
