# SPDX-License-Identifier: Apache-2.0
"""Projects and users, which options name and requests identify by ID."""

import contextlib

from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions

from ironic_reservations import spelling
from ironic_reservations.osc import client


def add_options(parser, kind, text):
    """Add an option for a project or a user, and one for its domain.

    :param kind: ``project`` or ``user``, which is the option's name, too.
    """
    parser.add_argument(f'--{kind}', metavar=f'<{kind}>', help=text)
    parser.add_argument(f'--{kind}-domain', metavar='<domain>',
                        help=f'Domain of the {kind} (name or ID), where '
                             f'several have one of that name')


def find_ids(cmd, args, *kinds):
    """Return the IDs of what the options of ``add_options`` name.

    :returns: dict of ``project_id`` and ``user_id``, as far as they are given.
    """
    return {f'{kind}_id': find(cmd, kind, getattr(args, kind),
                               getattr(args, f'{kind}_domain'))
            for kind in kinds if getattr(args, kind) is not None}


def find(cmd, kind, ident, domain=None):
    """Return the ID of something that Keystone knows by name or ID.

    Without a Keystone, or if Keystone does not let the user look, the argument
    is taken as the ID, as other commands do.

    :param kind: ``project``, ``user`` or ``domain``.
    :param domain: name or ID of the domain that it belongs to, or None.
    :raises: CommandError.
    """
    if not cmd.app.client_manager.is_service_available('identity'):
        return ident
    scope = {'domain_id': find(cmd, 'domain', domain)} if domain else {}
    try:
        return client.look_up(cmd, 'identity', kind, ident, **scope).id
    except exceptions.CommandError as error:
        if isinstance(error.__cause__, sdk_exc.ForbiddenException):
            return ident
        raise exceptions.CommandError(
            f'{error}{_hint(cmd, kind, ident, **scope)}')


def _hint(cmd, kind, ident, **scope):
    """Return a question after the project that was probably meant, or ''."""
    if kind != 'project':
        return ''
    with contextlib.suppress(sdk_exc.SDKException, ksa_exc.ClientException):
        identity = cmd.app.client_manager.sdk_connection.identity
        similar = spelling.find_closest(ident, {
            project.name for project in identity.projects(**scope)})
        if similar:
            return f' (did you mean {similar}?)'
    return ''
