# SPDX-License-Identifier: Apache-2.0
"""What "audit --repair" mends, and on which conditions.

Reservations, allocations and providers are written, and nothing of a node: no
machine notices. Each write is guarded by the service that takes it, because
the others go on meanwhile: a reservation is made only of a node that carries
the instance already, a lease can end only where nothing is deployed, an
allocation is changed by its consumer's generation, and a provider that has
allocations is not deleted.
"""

import collections
import datetime
import re
import typing

from openstack import exceptions as sdk_exc

from ironic_reservations.osc import client

#: Of Placement, the first with generations of consumers and with allocations
#: that may be empty.
PLACEMENT = '1.28'


class Refusal(Exception):
    """Something that is so right now speaks against a repair."""


class Now(typing.NamedTuple):
    """What concerns one finding, read right before it is repaired.

    :param cloud: audit.Cloud with only that.
    :param held: the reservation as our API has it; None without one.
    :param server: the server as Nova's API has it; None without one.
    :param allocations: what Placement answers for the consumer.
    :param auth: how to log in to Ironic; see ``audit.auth_of_ironic``.
    """

    cloud: typing.Any
    held: dict | None
    server: dict | None
    allocations: dict | None
    auth: typing.Any


class Repair(typing.NamedTuple):
    """How findings of a kind are repaired.

    :param may: function of a Cloud and a Finding that says whether this one
        is repaired, or is left to a human.
    :param do: function of the command, a Now and the Finding that repairs it
        and returns what it has done, in a few words.
    """

    may: typing.Callable
    do: typing.Callable


def placement(cmd, path, method='GET', **kwargs):
    """Send one request to Placement.

    :returns: the answer's data.
    :raises: Refusal when it is a conflict, SDKException after other errors.
    """
    response = cmd.app.client_manager.sdk_connection.placement.request(
        path, method, microversion=PLACEMENT, **kwargs)
    if response.status_code == 409:
        # The SDK does not find the reason in it.
        raise Refusal(response.json()['errors'][0]['detail'].strip())
    sdk_exc.raise_from_response(response)
    return response.json() if response.content else None


# A reservation.


def may_adopt(cloud, finding):
    node = cloud.nodes.get(finding.node)
    return (_is_on_one_row(cloud, finding.instance)
            and node is not None and node.is_deployed)


def adopt(cmd, now, finding):
    """Make the reservation of the node that carries a server.

    Nova's API does not show which properties its image had when the server
    was built, so they are left out of the request spec. A rebuild, which is
    the next to compare a node with an image, stores them.
    """
    server, flavor = now.server, now.server['flavor']
    # Of a server that was booted from a volume it is the empty string.
    image = server['image']
    client.request(
        cmd, 'POST', f'{client.PATH}?adopt=true', auth=now.auth, body={
            'instance_uuid': finding.instance,
            'host': finding.host,
            'project_id': server['tenant_id'],
            'user_id': server['user_id'],
            'memory_mb': flavor['ram'],
            'vcpus': flavor['vcpus'],
            'root_gb': flavor['disk'] if image else 0,
            'ephemeral_gb': flavor['ephemeral'],
            'swap': flavor['swap'],
            'name': flavor['original_name'],
            'extra_specs': flavor.get('extra_specs', {}),
            **({'image': {'id': image['id']}} if image else {})})
    return f'host {finding.host} holds it again'


# A lease.


def may_end_lease(cloud, finding):
    # The servers of a host that this Nova does not know may be another
    # Nova's.
    return (finding.host in cloud.hosts
            and cloud.reservations[finding.instance].state == 'reserved')


def end_lease(cmd, now, finding):
    """Let the lease of a reservation end now.

    Unlike a deletion this gives back only a node on which nothing was begun,
    and a host that is building all the same learns it before it writes.
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


# An allocation.


def may_allocate(cloud, finding):
    """As a host that makes an allocation anew, or takes a server over."""
    held = cloud.reservations.get(finding.instance)
    return (_is_on_one_row(cloud, finding.instance)
            and held is not None and held.host == finding.host
            # What a server has of two providers Nova may be about to take
            # from one to the other.
            and len(cloud.allocations.get(finding.instance, ())) < 2)


def allocate(cmd, now, finding):
    """Have the allocation of a server be one of its host's provider."""
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
    placement(cmd, f'/allocations/{finding.instance}', 'PUT', json={
        'allocations': allocations, 'project_id': project_id,
        'user_id': user_id,
        'consumer_generation': now.allocations.get('consumer_generation')})


def resources_of(server):
    """What the flavor of a server asks of Placement, by Nova's rules.

    They are those of ``resources_from_flavor`` in
    https://opendev.org/openstack/nova/src/branch/master/nova/scheduler/utils.py

    :returns: dict of amounts by resource class.
    """
    flavor, asked = server['flavor'], collections.Counter()
    for key, amount in flavor.get('extra_specs', {}).items():
        if match := re.fullmatch(r'resources[\w-]*:(\w+)', key):
            asked[match[1]] += int(amount)
    disk = flavor['ephemeral'] + -(-flavor['swap'] // 1024)
    sizes = {'VCPU': flavor['vcpus'], 'MEMORY_MB': flavor['ram'],
             'DISK_GB': disk + (flavor['disk'] if server['image'] else 0)}
    return {name: amount for name, amount in {**sizes, **asked}.items()
            if amount}


# A provider.


def may_delete_provider(cloud, finding):
    # That of a row is deleted with the row, by its host.
    return finding.host is None


def delete_provider(cmd, now, finding):
    """Delete the provider of a node for which Nova has no row."""
    compute = cmd.app.client_manager.sdk_connection.compute
    if any(each.status == 'UNKNOWN' for each in compute.services()):
        raise Refusal('a cell does not answer, and may have the row')
    placement(cmd, f'/resource_providers/{finding.node}', 'DELETE')
    return 'its provider is deleted'


def _is_on_one_row(cloud, instance):
    server = cloud.servers.get(instance)
    return (server is not None and server.at_rest
            and server.row == server.host and server.host in cloud.own_rows)
