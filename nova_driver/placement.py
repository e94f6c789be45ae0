# SPDX-License-Identifier: Apache-2.0
"""The allocations of a host's one provider in Placement."""

import functools
import time

from keystoneauth1 import exceptions as ksa_exc
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import vm_states
from nova.scheduler import utils as scheduler_utils
from oslo_log import log as logging
import tenacity

from . import client
from . import conf
from . import fleet

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds until an allocation that could not be made is tried again.
_PAUSE = 600

#: Columns of Nova's compute_nodes in which the resource tracker adds up what
#: instances use. They have 32 bits.
_SUMS = ('vcpus_used', 'memory_mb_used', 'local_gb_used')


def adapt_tracker(tracker, host):
    """Have Nova's resource tracker bear many large instances on one row.

    Nova asks Placement for the allocations of each instance of the provider,
    one by one, at every claim, deletion and periodic task. Only drivers that
    reshape their providers, and PCI devices in Placement, need them. Nor does
    Nova expect that the instances of one row have more than 2 PiB of memory.

    :param tracker: nova.compute.resource_tracker.ResourceTracker.
    :param host: the name of the row.
    """
    reportclient = tracker.reportclient
    allocations = reportclient.get_allocations_for_provider_tree
    update_usage = tracker._update_usage

    @functools.wraps(allocations)
    def get_allocations_for_provider_tree(context, nodename):
        if nodename == host and not CONF.pci.report_in_placement:
            return {}
        return allocations(context, nodename)

    @functools.wraps(update_usage)
    def _update_usage(usage, nodename, sign=1):
        update_usage(usage, nodename, sign)
        row = tracker.compute_nodes[nodename]
        for name in _SUMS:
            setattr(row, name, min(getattr(row, name), fleet.MAX_INT))

    reportclient.get_allocations_for_provider_tree = (
        get_allocations_for_provider_tree)
    tracker._update_usage = _update_usage


class Allocations:
    """The allocations of a host's provider.

    :param reportclient: nova.scheduler.client.report.SchedulerReportClient.
    :param host: the name of the host and of its row.
    :param compute_id: UUID of the row and of the provider.
    """

    def __init__(self, reportclient, host, compute_id):
        self._reportclient = reportclient
        self._host = host
        self._compute_id = compute_id
        # Instance UUID -> time before which a refused allocation is not
        # retried.
        self._next_try = {}

    def read(self):
        """See ``read``."""
        return read(self._reportclient, self._compute_id)

    def put_back(self, present, reservations):
        """Make allocations anew that Nova has lost.

        Nova deletes the allocation of an instance whose rebuild was refused
        or has failed, although the instance stays on the host.

        :param present: what ``read`` has returned.
        :param reservations: a client.Client. Only those instances are given
            an allocation whose nodes this host holds.
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
                held = reservations.get_now(instance.uuid)
                if held and held['host'] == self._host:
                    self._allocate(ctxt, instance)
            # Nova parses whatever Placement, or a proxy, answers.
            except (client.Failure, exception.NovaException,
                    ksa_exc.ClientException, ValueError, KeyError) as e:
                LOG.warning('The allocation that is missing is not made: %s',
                            e, instance=instance)

    def _allocate(self, ctxt, instance):
        refusal = allocate(self._reportclient, ctxt, instance,
                           self._compute_id)
        if refusal is None:
            del self._next_try[instance.uuid]
            LOG.info('The allocation that was missing is made again',
                     instance=instance)
        else:
            LOG.warning('The allocation that is missing is not made: %s',
                        refusal, instance=instance)


def is_at_rest(instance):
    """Whether Nova is not at work on an instance."""
    return (instance.task_state is None
            and instance.vm_state != vm_states.BUILDING)


def read(reportclient, provider):
    """Return a provider's allocations by consumer; None where not known.

    :param provider: its UUID.
    :returns: dict of the UUID of a consumer, which is an instance or a
        migration, and a dict with its ``resources``.
    """
    try:
        answer = reportclient.get(
            f'/resource_providers/{provider}/allocations', version='1.12')
        if answer.status_code == 404:
            return {}  # A host that has never started has no provider yet.
        return answer.json()['allocations']
    except (ksa_exc.ClientException, ValueError, KeyError) as e:
        LOG.warning('The allocations of provider %s are not known: %r',
                    provider, e)
        return None


def allocate(reportclient, ctxt, instance, provider, resources=None):
    """Have an instance's allocation be one of a provider.

    What an instance has of two providers is left alone: Nova is about to
    take it from one to the other.

    :param provider: UUID of the provider.
    :param resources: dict of amounts by resource class; None for what it has
        now, or else what its flavor says.
    :returns: why it is not; None when it is.
    :raises: NovaException or ClientException of keystoneauth1 when Placement
        does not answer, or when another has changed the allocation.
    """
    known = reportclient.get_allocs_for_consumer(ctxt, instance.uuid)
    before = known['allocations']
    if list(before) == [provider]:
        return None
    if len(before) > 1:
        return (f'it has allocations of the providers '
                f'{" and ".join(sorted(before))}')
    for each in before.values():
        resources = resources or each['resources']
    made = reportclient.put_allocations(ctxt, instance.uuid, {
        'allocations': {provider: {
            'resources': resources or scheduler_utils.resources_from_flavor(
                instance, instance.flavor)}},
        'project_id': instance.project_id, 'user_id': instance.user_id,
        'consumer_generation': known.get('consumer_generation')})
    return None if made else (
        f'Placement does not take its allocation from provider {provider}, '
        f'which may have no room yet')


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(
        exception.ResourceProviderUpdateConflict),
    stop=tenacity.stop_after_attempt(4), reraise=True)
def publish(reportclient, row, change):
    """Change the inventory of a row's provider, and nothing else of it.

    Nova's own way writes all providers that this process knows, as they were
    when it began, and other threads change them meanwhile. What Nova has
    cached of this one is older then, and it reads it anew by itself.

    :param row: nova.objects.ComputeNode.
    :param change: function that returns the new inventory, given the old one.
    :returns: the old inventory.
    :raises: ClientException of keystoneauth1 when Placement does not answer;
        ResourceProviderRetrievalFailed without such a provider;
        ResourceProviderUpdateConflict when others keep changing it.
    """
    path = f'/resource_providers/{row.uuid}/inventories'
    answer = reportclient.get(path, version='1.26')
    if answer.status_code != 200:
        raise exception.ResourceProviderRetrievalFailed(uuid=row.uuid)
    known = answer.json()
    done = reportclient.put(path, {
        'resource_provider_generation': known['resource_provider_generation'],
        'inventories': change(known['inventories'])}, version='1.26')
    if done.status_code != 200:
        raise exception.ResourceProviderUpdateConflict(
            uuid=row.uuid, error=done.text,
            generation=known['resource_provider_generation'])
    return known['inventories']


def classes(present):
    """Return the names of the resource classes of which there are any.

    :param present: what ``Allocations.read`` has returned.
    """
    return present and {name for each in present.values()
                        for name in each['resources']}
