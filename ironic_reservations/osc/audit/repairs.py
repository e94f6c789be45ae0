# SPDX-License-Identifier: Apache-2.0
"""What "audit --repair" mends, and on which conditions.

Only reservations, allocations and resource providers are written. Nothing of
a node is, so no machine notices a repair. Other programs write meanwhile, so
the service that takes a write guards it: a reservation is made only of a node
that carries the instance already, a lease can end only where nothing is
deployed, an allocation is changed only in the generation of its consumer that
was read, and a provider that has allocations is not deleted.
"""

import datetime
import typing

from ironic_reservations.osc import client
from ironic_reservations.osc import placement


class Refusal(Exception):
    """A repair that is otherwise allowed must not be made right now."""


class Repair(typing.NamedTuple):
    """How Findings of one kind are repaired.

    :param may: function of a Cloud and a Finding that says whether the
        Finding is repaired; else it is left to a human.
    :param do: function of the command, a ``reader.Now`` and the Finding. It
        makes the repair, and returns in a few words what it has done. It
        raises Refusal and what the clients of the services raise.
    """

    may: typing.Callable
    do: typing.Callable


def may_adopt(cloud, finding):
    node = cloud.nodes.get(finding.node)
    return (_is_on_one_row(cloud, finding.instance)
            and node is not None and node.is_deployed)


def adopt(cmd, now, finding):
    """Make the reservation of the node that carries a server.

    The request spec lacks the properties of the image, because Nova's API
    does not show which ones the image had when the server was built. The
    next step that compares the node with an image is a rebuild, and it
    stores them.
    """
    server = now.server
    image = server['image']
    client.request(
        cmd, 'POST', f'{client.PATH}?adopt=true', auth=now.auth, body={
            'instance_uuid': finding.instance,
            'host': finding.host,
            'project_id': server['tenant_id'],
            'user_id': server['user_id'],
            'name': server['flavor']['original_name'],
            **_spec_of(server),
            **({'image': {'id': image['id']}} if image else {})})
    return f'host {finding.host} holds it again'


def may_end_lease(cloud, finding):
    # A host that this Nova does not know may be a host of another Nova, which
    # has the server.
    return (finding.host in cloud.hosts
            and cloud.reservations[finding.instance].state == 'reserved')


def end_lease(cmd, now, finding):
    """Let the lease of a reservation end now.

    Unlike a deletion, this gives the node back only if nothing was begun on
    it. A host that is building after all learns that the lease is over before
    it writes to the node.
    """
    ends = now.held['expires_at']
    if ends and (datetime.datetime.fromisoformat(ends)
                 <= datetime.datetime.now(datetime.UTC)):
        raise Refusal('its lease is over, but something was begun on the node')
    client.request(
        cmd, 'PATCH', f'{client.PATH}/{finding.instance}'
                      f'?host={finding.host}', auth=now.auth,
        body=[{'op': 'add', 'path': '/expires_in', 'value': 1}])
    return 'its lease is ended'


def may_allocate(cloud, finding):
    """Decide as a host does that makes an allocation anew or takes over."""
    held = cloud.reservations.get(finding.instance)
    return (_is_on_one_row(cloud, finding.instance)
            and held is not None and held.host == finding.host
            # Nova may be about to move allocations from two providers to one
            # of them.
            and len(cloud.allocations.get(finding.instance, ())) < 2)


def allocate(cmd, now, finding):
    """Make the allocation of a server one from its host's provider."""
    before = [each['resources'] for each in
              now.allocations['allocations'].values()]
    _put(cmd, now, finding, {now.cloud.own_rows[finding.host]: {
        'resources': before[0] if before else resources_of(now.server)}},
        now.server['tenant_id'], now.server['user_id'])
    return f'allocated from the provider of host {finding.host}'


def may_mend_allocation(cloud, finding):
    if finding.instance in cloud.servers:
        return may_allocate(cloud, finding)
    return (finding.instance not in cloud.reservations
            and finding.instance not in cloud.machines
            and cloud.allocations[finding.instance] <= cloud.rows.keys())


def mend_allocation(cmd, now, finding):
    if now.server:
        return allocate(cmd, now, finding)
    compute = cmd.app.client_manager.sdk_connection.compute
    if any(each.uuid == finding.instance for each in compute.migrations()):
        raise Refusal('it is that of a migration')
    _put(cmd, now, finding, {}, now.allocations['project_id'],
         now.allocations['user_id'])
    return 'deleted'


def _put(cmd, now, finding, allocations, project_id, user_id):
    client.placement(cmd, f'/allocations/{finding.instance}', 'PUT', json={
        'allocations': allocations, 'project_id': project_id,
        'user_id': user_id,
        'consumer_generation': now.allocations.get('consumer_generation')})


def resources_of(server):
    """Return what the flavor of a server asks of Placement, a dict."""
    return placement.resources_of(_spec_of(server))


def _spec_of(server):
    """Return the request spec of a server, as far as Nova's API tells it."""
    flavor = server['flavor']
    return {'memory_mb': flavor['ram'], 'vcpus': flavor['vcpus'],
            # Nova shows the empty string for a server that was booted from a
            # volume.
            'root_gb': flavor['disk'] if server['image'] else 0,
            'ephemeral_gb': flavor['ephemeral'], 'swap': flavor['swap'],
            'extra_specs': flavor.get('extra_specs', {})}


def may_delete_provider(cloud, finding):
    # A provider that has a row is deleted by the host, with the row.
    return finding.host is None


def delete_provider(cmd, now, finding):
    """Delete the provider of a node for which Nova has no row."""
    compute = cmd.app.client_manager.sdk_connection.compute
    if any(each.status == 'UNKNOWN' for each in compute.services()):
        raise Refusal('a cell does not answer, and may have the row')
    client.placement(cmd, f'/resource_providers/{finding.node}', 'DELETE')
    return 'its provider is deleted'


def _is_on_one_row(cloud, instance):
    server = cloud.servers.get(instance)
    return (server is not None and server.at_rest
            and server.row == server.host and server.host in cloud.own_rows)


#: By kind. Findings of the other kinds take somebody's judgement.
REPAIRS = {
    'no-server': Repair(may_end_lease, end_lease),
    'no-reservation': Repair(may_adopt, adopt),
    'no-allocation': Repair(may_allocate, allocate),
    'wrong-allocation': Repair(may_mend_allocation, mend_allocation),
    'stale-row': Repair(may_delete_provider, delete_provider),
}
