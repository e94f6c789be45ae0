# SPDX-License-Identifier: Apache-2.0
"""Looks up the IDs of projects and users, which options may name."""

import argparse
import contextlib
import functools
from typing import Any

from cliff import columns
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions
from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.shared import spelling
from ironic_reservations.shared import text


class Projects:
    """The names of projects in Keystone, which are read when one is needed.

    :param auth: how to log in; None for the user's own token.
    """

    def __init__(self, cmd: command.Command, auth: Any) -> None:
        self._cmd = cmd
        self._auth = auth
        self._token = client.get_access(cmd)

    def find_name(self, project: str | None) -> str | None:
        """Return the name of a project; None if the user may not read it."""
        if self._token is None or project is None:
            return None
        if project == self._token.project_id:
            return self._token.project_name
        return self._names.get(project)

    def describe(self, project: str) -> str:
        """Return the name; or the ID, if it is unknown or of several domains.

        The name of the user's own project needs no request to Keystone.
        """
        name = self.find_name(project)
        own = self._token and self._token.project_id
        if name is None or (project != own and [
                *self._names.values()].count(name) > 1):
            return project
        return name

    @functools.cached_property
    def _names(self) -> dict[str, str]:
        with contextlib.suppress(sdk_exc.SDKException,
                                 ksa_exc.ClientException):
            return {row['id']: row['name'] for row in read_list(
                self._cmd, 'projects', self._auth)}
        return {}


# cliff 4.2 has no generic one.
class Project(columns.FormattableColumn):  # type: ignore[type-arg]
    """A column that shows a project's name to people, and its ID to programs.
    """

    def __init__(self, project: str, projects: Projects) -> None:
        super().__init__(project)
        self._projects = projects

    def human_readable(self) -> str:
        return text.escape_controls(self._projects.describe(self._value))


def read_list(cmd: command.Command, name: str, auth: Any) -> list[client.Data]:
    """Return a list of Keystone.

    :raises: SDKException, ksa_exc.ClientException.
    """
    response = client.get_sdk(cmd).identity.get(
        f'/{name}', **({'auth': auth} if auth else {}))
    sdk_exc.raise_from_response(response)
    rows: list[client.Data] = response.json()[name]
    return rows


def add_name_options(parser: argparse.ArgumentParser, kind: str,
                     help_text: str, required: bool = False) -> None:
    """Add the options for a project or user, and for its domain.

    :param kind: ``project`` or ``user``, which is also the option's name.
    """
    parser.add_argument(f'--{kind}', metavar=f'<{kind}>', help=help_text,
                        required=required)
    parser.add_argument(f'--{kind}-domain', metavar='<domain>',
                        help=f'Domain of the {kind} (name or ID), if the name '
                             f'exists in several')


def find_ids(cmd: command.Command, args: argparse.Namespace,
             *kinds: str) -> dict[str, str]:
    """Return the IDs of projects and users in the options.

    :returns: ``project_id`` and ``user_id``, if the option has a value.
    """
    return {f'{kind}_id': find_id(cmd, kind, getattr(args, kind),
                                  getattr(args, f'{kind}_domain'))
            for kind in kinds if getattr(args, kind) is not None}


def find_id(cmd: command.Command, kind: str, ident: str,
            domain: str | None = None) -> str:
    """Return the ID of a resource of Keystone.

    Without Keystone, or if the user may not look it up, the name is used as
    the ID, as in other commands, except for the name of the user's project.

    :param kind: ``project``, ``user`` or ``domain``.
    :param ident: name or ID.
    :param domain: name or ID of the domain that contains it, or None.
    :raises: CommandError.
    """
    token = client.get_access(cmd)
    if token is None:
        return ident
    scope = {'domain_id': find_id(cmd, 'domain', domain)} if domain else {}
    try:
        resource = client.find_resource(cmd, 'identity', kind, ident, **scope)
    except exceptions.CommandError as error:
        if isinstance(error.__cause__, sdk_exc.ForbiddenException):
            if (kind, ident) == ('project', token.project_name) and domain in (
                    None, token.project_domain_id, token.project_domain_name):
                return str(token.project_id)
            return ident
        raise exceptions.CommandError(
            f'{error}{_suggest_name(cmd, kind, ident, **scope)}')
    # The SDK does not quote the name in the path. That of a list, such as ".",
    # has no name.
    if resource.name is None:
        raise exceptions.CommandError(
            f'Cannot look up {kind} "{ident}": this is no {kind}')
    resource_id: str = resource.id
    return resource_id


def _suggest_name(cmd: command.Command, kind: str, ident: str,
                  **scope: str) -> str:
    """Return a hint with the closest name of a project, or ''."""
    if kind != 'project':
        return ''
    with contextlib.suppress(sdk_exc.SDKException, ksa_exc.ClientException):
        # Its type includes version 2, which has no projects.
        identity: Any = client.get_sdk(cmd).identity
        similar = spelling.find_closest(ident, {
            project.name for project in identity.projects(**scope)})
        if similar:
            return f' (did you mean {similar}?)'
    return ''
