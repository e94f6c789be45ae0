# SPDX-License-Identifier: Apache-2.0
"""Asks Placement why Nova finds no compute host for a request."""

from collections.abc import Mapping
from collections.abc import Sequence
import re
import urllib.parse

from openstack import exceptions as sdk_exc
from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.shared import resources

#: Trait of hosts whose compute service is disabled, which Nova excludes.
DISABLED = 'COMPUTE_STATUS_DISABLED'


def list_required_traits(spec: client.Data) -> list[str]:
    """Return the traits that Nova requests from Placement."""
    specs = {**spec.get('extra_specs', {}),
             **spec.get('image', {}).get('properties', {})}
    return sorted(key.partition(':')[2] for key, word in specs.items()
                  if re.fullmatch(r'trait[\w-]*:\w+', key)
                  and word == 'required')


def explain_refusal(cmd: command.Command, spec: client.Data,
                    zone: str | None = None) -> str | None:
    """Return why Placement offers no host for a request; None if it does.

    :param spec: request spec of a server.
    :param zone: requested availability zone, or None.
    :raises: SDKException, for example if the user is no admin.
    """
    amounts = resources.sum_amounts(spec)
    traits = list_required_traits(spec)
    aggregates = _find_aggregates(cmd, zone) if zone else []
    if aggregates is None:
        return f'there is no availability zone {zone}'
    if _has_candidate(cmd, amounts, [*traits, f'!{DISABLED}'], aggregates):
        return None
    for name, amount in amounts.items():
        if not _has_candidate(cmd, {name: amount}):
            return _explain_class(cmd, name, amount)
    if not _has_candidate(cmd, amounts):
        return (f'no compute host offers {", ".join(sorted(amounts))} '
                f'together')
    for trait in traits:
        if not _has_candidate(cmd, amounts, [trait]):
            return f'no compute host that has room has the trait {trait}'
    if not _has_candidate(cmd, amounts, traits):
        return f'no compute host has all of {", ".join(traits)}'
    if not _has_candidate(cmd, amounts, traits, aggregates):
        return (f'no compute host that has room is in the availability zone '
                f'{zone}')
    return 'the compute service of each host that has room is disabled'


def _explain_class(cmd: command.Command, name: str, amount: int) -> str:
    providers = _find_providers(cmd, name)
    if providers:
        return (f'all of {name} is in use or reserved, on each of '
                f'{len(providers)} compute hosts')
    if name in resources.SIZES:
        return (f'no compute host offers {name}, but the flavor requests '
                f'{amount}: for bare metal, set resources:{name}=0 and '
                f'request a resource class')
    return (f'no compute host offers the resource class {name}: it is '
            f'misspelt, or no node in Ironic has it')


def _find_aggregates(cmd: command.Command, zone: str) -> list[str] | None:
    """Return the UUIDs of the aggregates of an availability zone.

    :returns: an empty list for the default zone, which Nova does not request
        from Placement; None if the zone does not exist.
    """
    compute = client.get_sdk(cmd).compute
    aggregates = [aggregate.uuid for aggregate in compute.aggregates()
                  if aggregate.availability_zone == zone]
    return aggregates if aggregates or zone in {
        row.name for row in compute.availability_zones()} else None


def _has_candidate(cmd: command.Command, amounts: Mapping[str, int],
                   traits: Sequence[str] = (),
                   aggregates: Sequence[str] = ()) -> bool:
    """Return whether Placement has a provider for a request.

    :param traits: required traits, and forbidden traits with ``!``.
    :param aggregates: UUIDs of aggregates, one of which must have the
        provider; empty for any.
    """
    query = {'resources': ','.join(f'{name}:{amount}' for name, amount
                                   in amounts.items()), 'limit': 1}
    if traits:
        query['required'] = ','.join(traits)
    if aggregates:
        query['member_of'] = f'in:{",".join(aggregates)}'
    if not amounts:
        return True
    try:
        response = client.request_placement(
            cmd, f'/allocation_candidates?{urllib.parse.urlencode(query)}')
    except sdk_exc.BadRequestException:
        return False  # The class or the trait is unknown.
    return bool(response['allocation_requests'])


def _find_providers(cmd: command.Command, name: str) -> list[str]:
    """Return the providers that have an inventory of a resource class."""
    providers = client.request_placement(
        cmd, '/resource_providers')['resource_providers']
    return [provider['uuid'] for provider in providers
            if name in client.request_placement(
                cmd, f'/resource_providers/{provider["uuid"]}/inventories'
            )['inventories']]
