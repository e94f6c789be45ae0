# SPDX-License-Identifier: Apache-2.0
"""Servers of Nova, and the requests that compute hosts make for them."""

import re

from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions
from oslo_utils import uuidutils

from ironic_reservations import constants
from ironic_reservations import spelling
from ironic_reservations.osc import client
from ironic_reservations.osc import options
from ironic_reservations.osc import suggestions


class Ambiguous(exceptions.CommandError):
    """A name fits several servers or nodes."""


def find_by_name(cmd, name):
    """Return the servers of a name, of all projects for an admin.

    :returns: list; empty where Nova cannot be asked.
    """
    # Nova takes the name as a regular expression.
    query = {'details': False, 'name': f'^{re.escape(name)}$'}
    try:
        compute = cmd.app.client_manager.sdk_connection.compute
        try:
            servers = list(compute.servers(all_projects=True, **query))
        except sdk_exc.ForbiddenException:
            servers = compute.servers(**query)
        return [server for server in servers if server.name == name]
    except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
        cmd.log.info('Nova is not asked for servers: %s', error)
        return []


def ambiguous_error(name, idents):
    """Return the error for a name that fits several servers or nodes.

    :param idents: list of texts with their UUIDs.
    """
    return Ambiguous(f'{len(idents)} servers or nodes are called {name}; use '
                     f'a UUID: {", ".join(idents)}')


def find(cmd, ident):
    """Return a server with its fault, by its ID or name.

    :raises: CommandError.
    """
    servers = [] if uuidutils.is_uuid_like(ident) else find_by_name(
        cmd, ident)
    if len(servers) > 1:
        raise ambiguous_error(ident, sorted(f'server {server.id}'
                                            for server in servers))
    server = servers[0] if servers else client.look_up(
        cmd, 'compute', 'server', ident)
    return cmd.app.client_manager.sdk_connection.compute.get_server(server.id)


def request_spec(cmd, server):
    """Return the request spec of a server, from its embedded flavor.

    What its metadata may add is included, because a host that does not allow
    it refuses the build.
    """
    flavor = server.flavor
    spec = {**options.flavor_spec(flavor, root_disk=bool(server.image)),
            'name': flavor.original_name}
    if server.image and server.image.id:
        try:
            spec['image'] = options.image(cmd, server.image.id)
        except exceptions.CommandError:
            # The image may be gone, or another project's.
            spec['image'] = {'id': server.image.id}
    for key, value in (server.metadata or {}).items():
        similar = spelling.find_closest_key(key, spelling.METADATA) or ''
        if similar.startswith('reservations:'):
            suggestions.say(cmd, f'Metadata {key} is ignored (did you mean '
                                 f'{similar}?)')
        elif key == 'reservations:candidate_nodes':
            spec['candidate_nodes'] = [name.strip()
                                       for name in value.split(',')]
        elif key.startswith('reservations:trait:'):
            # The flavor takes precedence.
            spec['extra_specs'].setdefault(key, value)
    return spec


def find_group(cmd, server):
    """Return the UUID and the policy of the group that a server is in.

    :returns: the policy as groups of reservations have it; None for both
        without a group, or where Nova does not show it.
    """
    compute = cmd.app.client_manager.sdk_connection.compute
    for uuid in server.server_groups or ():
        try:
            policy = constants.SERVER_GROUP_POLICIES.get(
                compute.get_server_group(uuid).policy)
        except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
            cmd.log.info('The server group is not known: %s', error)
        else:
            return (uuid, policy) if policy else (None, None)
    return None, None
