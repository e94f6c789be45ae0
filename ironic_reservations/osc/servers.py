# SPDX-License-Identifier: Apache-2.0
"""Reads servers of Nova, and rebuilds the requests of their compute hosts."""

from collections.abc import Iterable
import re
from typing import Any

from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions
from osc_lib.command import command
from oslo_utils import uuidutils

from ironic_reservations.osc import client
from ironic_reservations.osc import options
from ironic_reservations.osc import suggestions
from ironic_reservations.shared import constants
from ironic_reservations.shared import spelling


class Ambiguous(exceptions.CommandError):
    """Several servers or nodes have the same name.

    :param resources: texts with their UUIDs.
    """

    def __init__(self, name: str, resources: Iterable[str]) -> None:
        resources = list(resources)
        super().__init__(
            f'{len(resources)} servers or nodes have the name {name}; use a '
            f'UUID: {", ".join(resources)}')


def find_servers(cmd: command.Command, name: str) -> list[Any]:
    """Return the servers with a name; for an admin, of all projects.

    :returns: an empty list if Nova cannot be read.
    """
    # Nova takes the name as a regular expression.
    query: dict[str, Any] = {'details': False, 'name': f'^{re.escape(name)}$'}
    try:
        if not client.has_service(cmd, 'compute'):
            return []
        compute = client.get_sdk(cmd).compute
        try:
            servers: Iterable[Any] = list(compute.servers(
                all_projects=True, **query))
        except sdk_exc.ForbiddenException:
            servers = compute.servers(**query)
        return [server for server in servers if server.name == name]
    except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
        cmd.log.info('Cannot read servers from Nova: %s', error)
        return []


def find_server(cmd: command.Command, ident: str) -> Any:
    """Return a server, including its fault, by its ID or name.

    :raises: CommandError.
    """
    servers = [] if uuidutils.is_uuid_like(ident) else find_servers(
        cmd, ident)
    if len(servers) > 1:
        raise Ambiguous(ident, sorted(f'server {server.id}'
                                      for server in servers))
    server = servers[0] if servers else client.find_resource(
        cmd, 'compute', 'server', ident)
    return client.get_sdk(cmd).compute.get_server(server.id)


def build_request(cmd: command.Command, server: Any) -> client.Data:
    """Return the request spec of a server, from its embedded flavor.

    Everything that its metadata may add is included, because a host that does
    not allow it refuses the build.
    """
    flavor = server.flavor
    spec = {**options.build_flavor_spec(flavor, root_disk=bool(server.image)),
            'name': flavor.original_name}
    if server.image and server.image.id:
        try:
            spec['image'] = options.build_image(cmd, server.image.id)
        except exceptions.CommandError:
            # The image may be deleted, or belong to another project.
            spec['image'] = {'id': server.image.id}
    for key, value in (server.metadata or {}).items():
        similar = spelling.find_closest_key(key, spelling.METADATA) or ''
        if similar.startswith('reservations:'):
            suggestions.print_hint(
                cmd, f'Metadata {key} is ignored (did you mean {similar}?)')
        elif key == 'reservations:candidate_nodes':
            spec['candidate_nodes'] = [name.strip()
                                       for name in value.split(',')]
        elif key.startswith('reservations:trait:'):
            # The flavor takes precedence.
            spec['extra_specs'].setdefault(key, value)
    return spec


def find_server_group(cmd: command.Command,
                      server: Any) -> tuple[str | None, str | None]:
    """Return the UUID and the policy of a server's group.

    :returns: the policy as groups of reservations have it; None for both
        without a group, or if Nova does not show it.
    """
    compute = client.get_sdk(cmd).compute
    for uuid in server.server_groups or ():
        try:
            policy = constants.SERVER_GROUP_POLICIES.get(
                compute.get_server_group(uuid).policy)
        except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
            cmd.log.info('Cannot read the server group: %s', error)
        else:
            return (uuid, policy) if policy else (None, None)
    return None, None
