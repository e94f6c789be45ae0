# SPDX-License-Identifier: Apache-2.0
"""Whose reservations a command is shown, and with which token it asks.

Nova and Placement want a token for a project. Ironic, by default, shows all of
itself to a token in system scope alone; Keystone makes that of the former,
without another password.
"""

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from keystoneauth1.identity import v3
from osc_lib import exceptions

from ironic_reservations.osc import client

# No project has this ID.
_NOBODY = '0' * 32


def add_option(parser):
    parser.add_argument(
        '--all-projects', action='store_true',
        help='Show all projects (system scope, admin only)')


def auth(cmd, args, what):
    """Return how to log in to Ironic for a command with ``--all-projects``.

    To somebody with an admin role who does not give the option, and is shown
    a part, it is said of what.

    :param what: what is listed, such as ``reservations``.
    :returns: an authentication; None for the user's own.
    :raises: CommandError.
    """
    if args.all_projects:
        return of_ironic(cmd)
    project = of_a_part(cmd)
    if project is not None:
        print(f'These are the {what} that project {project} sees; '
              f'--all-projects shows all.', file=cmd.app.stderr, flush=True)
    return None


def of_a_part(cmd, admin=True):
    """Return the project of a user who is shown only what that project sees.

    :param admin: whether the user is one with an admin role; None is returned
        for others.
    """
    reference = cmd.app.client_manager.auth_ref
    if reference is None or not reference.project_name:
        return None
    if ('admin' in (reference.role_names or ())) != admin or sees_all(cmd):
        return None
    return reference.project_name


def sees_all(cmd, **kwargs):
    """Whether Ironic shows reservations of all projects.

    :param kwargs: arguments of the request, such as another ``auth``.
    """
    try:
        # Ironic refuses this to users who see only their own project.
        list(client.listed(cmd, 'reservations', {'project_id': _NOBODY},
                           **kwargs))
    except exc.Forbidden:
        return False
    return True


def of_ironic(cmd):
    """Return an authentication that sees all of Ironic.

    :returns: None if the user's own token sees all.
    :raises: CommandError when there is no such authentication.
    """
    if sees_all(cmd):
        return None
    manager = cmd.app.client_manager
    why = 'Ironic refuses it in system scope, too'
    try:
        system = v3.Token(
            manager.auth.auth_url, manager.auth.get_token(manager.session),
            system_scope='all')
        if sees_all(cmd, auth=system):
            return system
    except ksa_exc.ClientException as error:
        why = error
    raise exceptions.CommandError(
        f'Ironic does not show this user all reservations, for which it '
        f'needs the role reader in system scope: {why}')
