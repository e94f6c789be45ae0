# SPDX-License-Identifier: Apache-2.0
"""Chooses the token for requests to Ironic.

Nova and Placement require a token for a project. By default, Ironic shows all
reservations only to a token in system scope, which Keystone issues in exchange
for the project's, without another password.
"""

import argparse
from typing import Any

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from keystoneauth1 import plugin
from keystoneauth1.identity import v3
from osc_lib import exceptions
from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.shared import constants


def add_all_projects(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--all-projects`` to a parser."""
    parser.add_argument(
        '--all-projects', action='store_true',
        help='Use system scope, which includes all projects (admin only)')


def add_option(name: str, auth: Any) -> str:
    """Return the name of another command, with the option if it needs it.

    :param auth: the authentication of this command, see ``find_auth``.
    """
    return f'{name} --all-projects' if auth else name


def find_auth(cmd: command.Command,
              args: argparse.Namespace) -> plugin.BaseAuthPlugin | None:
    """Return the authentication for a command with ``--all-projects``.

    :returns: None for the user's own token.
    :raises: CommandError.
    """
    return find_full_auth(cmd) if args.all_projects else None


def find_project(cmd: command.Command, auth: Any = None) -> str | None:
    """Return the ID of the project of requests that name none.

    :param auth: of the requests; None for the user's own token.
    """
    token = None if auth else client.get_access(cmd)
    return None if token is None else token.project_id


def choose_auth(cmd: command.Command, args: argparse.Namespace,
                rows: str) -> plugin.BaseAuthPlugin | None:
    """Return the authentication for a list with ``--all-projects``.

    Without the option, an admin is informed that the list is limited to a
    project.

    :param rows: name of the listed resources, such as ``reservations``.
    :returns: None for the user's own token.
    :raises: CommandError.
    """
    if args.all_projects:
        return find_full_auth(cmd)
    project = find_limited_project(cmd)
    if project is not None:
        print(f'Only {rows} visible to project {project} are shown; use '
              f'--all-projects to show all.', file=cmd.app.stderr, flush=True)
    return None


def find_limited_project(cmd: command.Command,
                         admin: bool = True) -> str | None:
    """Return the project to which the user's view is limited.

    :param admin: whether the user must have an admin role, or must not.
    :returns: None if the user sees all projects, or ``admin`` does not fit.
    """
    reference = client.get_access(cmd)
    if reference is None or not reference.project_name:
        return None
    if ('admin' in (reference.role_names or ())) != admin or sees_all(cmd):
        return None
    return reference.project_name


def sees_all(cmd: command.Command, **kwargs: Any) -> bool:
    """Return whether Ironic shows the reservations of all projects.

    :param kwargs: arguments of the request, such as another ``auth``.
    """
    try:
        list(client.read_list(cmd, 'reservations', {
            'project_id': constants.NO_PROJECT}, **kwargs))
    except exc.Forbidden:
        return False
    return True


def find_full_auth(cmd: command.Command) -> plugin.BaseAuthPlugin | None:
    """Return an authentication that sees all of Ironic.

    :returns: None if the user's own token sees all.
    :raises: CommandError if there is no such authentication.
    """
    if sees_all(cmd):
        return None
    if client.get_access(cmd) is None:
        raise exceptions.CommandError(
            'Ironic does not show all reservations to this user, and there '
            'is no Keystone to request a token in system scope from.')
    # Like all of Keystone's plugins, it has an auth_url.
    session: Any = client.get_sdk(cmd).session
    reason: object = 'Ironic refuses it in system scope, too'
    try:
        system = v3.Token(session.auth.auth_url, session.get_token(),
                          system_scope='all')
        if sees_all(cmd, auth=system):
            return system
    except ksa_exc.ClientException as error:
        reason = error
    raise exceptions.CommandError(
        f'Ironic does not show all reservations to this user, who needs the '
        f'role reader in system scope: {reason}')
