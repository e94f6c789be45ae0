# SPDX-License-Identifier: Apache-2.0
"""The allocations and the inventory of a host's provider in Placement."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
import functools
import time
from typing import TYPE_CHECKING
from typing import Any

from keystoneauth1 import exceptions as ksa_exc
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import vm_states
from nova.scheduler import utils as scheduler_utils
from nova.scheduler.client import report as report_client
from oslo_log import log as logging
import tenacity

from ironic_reservations.shared import resources as shared_resources

from . import client
from . import conf
from . import fleet

if TYPE_CHECKING:
    from nova.compute import resource_tracker

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds until the next attempt to restore an allocation.
_PAUSE = 600

#: Columns of Nova's compute_nodes in which the resource tracker sums up what
#: instances use and leave. They have 32 bits.
_SUMS = ('vcpus_used', 'memory_mb_used', 'local_gb_used', 'free_ram_mb',
         'free_disk_gb')


def adapt_tracker(tracker: resource_tracker.ResourceTracker,
                  host: str) -> None:
    """Patch Nova's resource tracker to scale to many instances per host.

    Nova reads the allocations of each instance of the provider from
    Placement, one by one, at every claim, deletion and periodic task. Only
    drivers that reshape their providers, and PCI devices in Placement, need
    them. Nova also expects at most 2 PiB of memory per compute node, and its
    scheduler logs a warning for each request if more disk space is available
    than Nova has not given to instances: flavors may be larger than nodes.

    :param host: the name of the host and of its compute node.
    """
    reportclient = tracker.reportclient
    allocations = reportclient.get_allocations_for_provider_tree
    update = tracker._update

    @functools.wraps(allocations)
    def get_allocations_for_provider_tree(
            context: Any, nodename: str) -> dict[str, Any]:
        if nodename == host and not CONF.pci.report_in_placement:
            return {}
        return allocations(context, nodename)

    @functools.wraps(update)
    def _update(context: Any, compute_node: objects.ComputeNode,
                *args: Any, **kwargs: Any) -> None:
        if compute_node.hypervisor_hostname == host:
            for name in _SUMS:
                setattr(compute_node, name, max(-fleet.MAX_INT, min(
                    getattr(compute_node, name), fleet.MAX_INT)))
            compute_node.disk_available_least = min(
                compute_node.disk_available_least, compute_node.free_disk_gb)
        update(context, compute_node, *args, **kwargs)

    reportclient.get_allocations_for_provider_tree = (
        get_allocations_for_provider_tree)
    tracker._update = _update


class Allocations:
    """The allocations of a host's provider.

    :param host: the name of the host and of its compute node.
    :param compute_id: UUID of the compute node and of the provider.
    """

    def __init__(self, reportclient: report_client.SchedulerReportClient,
                 host: str, compute_id: str):
        self._reportclient = reportclient
        self._host = host
        self._compute_id = compute_id
        # When to retry a refused allocation, by the instance's UUID.
        self._next_try: dict[str, float] = {}

    def read(self) -> dict[str, dict[str, Any]] | None:
        """See ``read_allocations``."""
        return read_allocations(self._reportclient, self._compute_id)

    def restore(self, present: Collection[str],
                reservations: client.Client) -> None:
        """Restore allocations that Nova has deleted.

        Nova deletes the allocation of an instance whose rebuild was refused
        or has failed, although the instance stays on the host.

        :param present: UUIDs of the consumers that ``read`` has returned.
        :param reservations: only instances whose nodes this host holds get an
            allocation.
        """
        ctxt = nova_context.get_admin_context()
        for instance in objects.InstanceList.get_by_host_and_node(
                ctxt, self._host, self._host, expected_attrs=[]):
            if (instance.uuid in present
                    or self._next_try.get(instance.uuid, 0) > time.monotonic()
                    or not is_at_rest(instance)
                    or vm_states.allow_resource_removal(instance.vm_state)):
                continue
            self._next_try[instance.uuid] = time.monotonic() + _PAUSE
            try:
                reservation = reservations.get_now(instance.uuid)
                if reservation and reservation['host'] == self._host:
                    self._allocate(ctxt, instance)
            # Nova parses any response of Placement, or of a proxy.
            except (client.Failure, exception.NovaException,
                    ksa_exc.ClientException, ValueError, KeyError) as e:
                LOG.warning('Could not restore a missing allocation: %s', e,
                            instance=instance)

    def _allocate(self, ctxt: nova_context.RequestContext,
                  instance: objects.Instance) -> None:
        refusal = allocate(self._reportclient, ctxt, instance,
                           self._compute_id)
        if refusal is None:
            del self._next_try[instance.uuid]
            LOG.info('Restored a missing allocation', instance=instance)
        else:
            LOG.warning('Could not restore a missing allocation: %s', refusal,
                        instance=instance)


def is_at_rest(instance: objects.Instance) -> bool:
    """Return whether Nova is not working on an instance."""
    return (instance.task_state is None
            and instance.vm_state != vm_states.BUILDING)


def read_allocations(reportclient: report_client.SchedulerReportClient,
                     provider: str) -> dict[str, dict[str, Any]] | None:
    """Return a provider's allocations; None if they cannot be read.

    :param provider: its UUID.
    :returns: dicts with ``resources`` by the UUID of the consumer, which is
        an instance or one of Nova's migrations.
    """
    try:
        response = reportclient.get(
            f'/resource_providers/{provider}/allocations', version='1.12')
        if response.status_code == 404:
            return {}  # A host that has never started has no provider yet.
        return response.json()['allocations']
    except (ksa_exc.ClientException, ValueError, KeyError) as e:
        LOG.warning('Could not read the allocations of provider %s: %r',
                    provider, e)
        return None


def allocate(reportclient: report_client.SchedulerReportClient,
             ctxt: nova_context.RequestContext, instance: objects.Instance,
             provider: str, resources: dict[str, int] | None = None,
             ) -> str | None:
    """Move an instance's allocation to a provider.

    An instance with allocations of two providers is left alone: Nova is about
    to move it from one to the other.

    :param provider: UUID of the provider.
    :param resources: amounts by resource class; None for the present ones, or
        without an allocation those of its flavor.
    :returns: why it was not moved; None on success.
    :raises: NovaException or ClientException of keystoneauth1 when Placement
        does not respond, or when a concurrent request has changed the
        allocation.
    """
    response = reportclient.get_allocs_for_consumer(ctxt, instance.uuid)
    before = response['allocations']
    if list(before) == [provider]:
        return None
    if len(before) > 1:
        return (f'it has allocations of the providers '
                f'{" and ".join(sorted(before))}')
    for allocation in before.values():
        resources = resources or allocation['resources']
    success = reportclient.put_allocations(ctxt, instance.uuid, {
        'allocations': {provider: {
            'resources': resources or _read_flavor(instance)}},
        'project_id': instance.project_id, 'user_id': instance.user_id,
        'consumer_generation': response.get('consumer_generation')})
    return None if success else (
        f'Placement refuses its allocation from provider {provider}, which '
        f'may have no room yet')


def _read_flavor(instance: objects.Instance) -> dict[str, int]:
    """Return what an instance's flavor requests from its host's provider."""
    return {name: amount for name, amount
            in scheduler_utils.resources_from_flavor(
                instance, instance.flavor).items()
            if not shared_resources.is_blazar_class(name)}


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(
        exception.ResourceProviderUpdateConflict),
    stop=tenacity.stop_after_attempt(4), reraise=True)
def update_inventory(
        reportclient: report_client.SchedulerReportClient,
        compute_node: objects.ComputeNode,
        change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Change only the inventory of a compute node's provider.

    Nova's own function writes all providers from this process's cache, while
    other threads change them. Nova's cache of this provider becomes stale,
    and Nova refreshes it.

    :param change: returns the new inventory, given the old one.
    :returns: the old inventory.
    :raises: ClientException of keystoneauth1 when Placement does not respond;
        ResourceProviderRetrievalFailed without such a provider;
        ResourceProviderUpdateConflict when concurrent requests keep changing
        it.
    """
    uuid = compute_node.uuid
    path = f'/resource_providers/{uuid}/inventories'
    response = reportclient.get(path, version='1.26')
    if response.status_code != 200:
        raise exception.ResourceProviderRetrievalFailed(uuid=uuid)
    before = response.json()
    generation = before['resource_provider_generation']
    response = reportclient.put(path, {
        'resource_provider_generation': generation,
        'inventories': change(before['inventories'])}, version='1.26')
    if response.status_code != 200:
        raise exception.ResourceProviderUpdateConflict(
            uuid=uuid, error=response.text, generation=generation)
    return before['inventories']


def get_resource_classes(allocations: dict[str, dict[str, Any]] | None,
                         ) -> set[str] | None:
    """Return the names of the resource classes in allocations.

    :param allocations: from ``read_allocations``.
    """
    return None if allocations is None else {
        name for allocation in allocations.values()
        for name in allocation['resources']}
