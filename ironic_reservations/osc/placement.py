# SPDX-License-Identifier: Apache-2.0
"""What Placement says to a request, before Nova asks any compute host."""

import re
import urllib.parse

from openstack import exceptions as sdk_exc

from ironic_reservations import resources
from ironic_reservations.osc import client

#: Nova leaves out hosts whose service is disabled by this trait.
DISABLED = 'COMPUTE_STATUS_DISABLED'


def traits_of(spec):
    """Return the traits that a server needs, as Placement sees them."""
    specs = {**spec.get('extra_specs', {}),
             **spec.get('image', {}).get('properties', {})}
    return sorted(key.partition(':')[2] for key, word in specs.items()
                  if re.fullmatch(r'trait[\w-]*:\w+', key)
                  and word == 'required')


def why_not(cmd, spec, zone=None):
    """Say why Placement offers no host for a request; None if it does.

    :param spec: the request spec of a server, as the API has it.
    :param zone: the availability zone that was asked for, or None.
    :returns: a sentence.
    :raises: SDKException, for example where the user is no admin.
    """
    amounts, traits = resources.sum_amounts(spec), traits_of(spec)
    aggregates = _aggregates(cmd, zone) if zone else []
    if aggregates is None:
        return f'there is no availability zone {zone}'
    if _offers(cmd, amounts, [*traits, f'!{DISABLED}'], aggregates):
        return None
    for name, amount in amounts.items():
        if not _offers(cmd, {name: amount}):
            return _why_not_of(cmd, name, amount)
    if not _offers(cmd, amounts):
        return (f'no compute host offers {", ".join(sorted(amounts))} '
                f'together')
    for trait in traits:
        if not _offers(cmd, amounts, [trait]):
            return f'no compute host that has room has the trait {trait}'
    if not _offers(cmd, amounts, traits):
        return f'no compute host has all of {", ".join(traits)}'
    if not _offers(cmd, amounts, traits, aggregates):
        return (f'no compute host that has room is in the availability zone '
                f'{zone}')
    return 'the compute service of each host that has room is disabled'


def _why_not_of(cmd, name, amount):
    known = _inventories(cmd, name)
    if known:
        return (f'all of {name} is in use or reserved, on each of '
                f'{len(known)} compute hosts')
    if name in resources.SIZES:
        return (f'no compute host offers {name}, of which the flavor wants '
                f'{amount}: a flavor for bare metal says '
                f'resources:{name}=0 and names a resource class')
    return (f'no compute host offers the resource class {name}: none of its '
            f'nodes is in Ironic, or it is misspelt')


def _aggregates(cmd, zone):
    """Return the aggregates that are an availability zone, by their UUIDs.

    :returns: a list, which is empty for the zone of the hosts that are in no
        other, as Nova does not ask Placement for it; None if there is none.
    """
    compute = cmd.app.client_manager.sdk_connection.compute
    found = [each.uuid for each in compute.aggregates()
             if each.availability_zone == zone]
    return found if found or zone in {
        each.name for each in compute.availability_zones()} else None


def _offers(cmd, amounts, required=(), aggregates=()):
    """Whether a provider has room for resources, and what is required.

    :param aggregates: UUIDs; it must be in one of them, if there are any.
    """
    query = {'resources': ','.join(f'{name}:{amount}' for name, amount
                                   in amounts.items()), 'limit': 1}
    if required:
        query['required'] = ','.join(required)
    if aggregates:
        query['member_of'] = f'in:{",".join(aggregates)}'
    if not amounts:
        return True
    try:
        found = client.placement(
            cmd, f'/allocation_candidates?{urllib.parse.urlencode(query)}')
    except sdk_exc.BadRequestException:
        return False  # It does not know the class, or the trait.
    return bool(found['allocation_requests'])


def _inventories(cmd, name):
    """The providers that have an inventory of a class, a list."""
    return [each['uuid'] for each in client.placement(
        cmd, '/resource_providers')['resource_providers']
        if name in client.placement(
            cmd, f'/resource_providers/{each["uuid"]}/inventories'
        )['inventories']]
