# SPDX-License-Identifier: Apache-2.0
"""Completes operations that were in progress when a process ended.

Ironic continues a deployment when its client ends, but Nova fails every server
that is unfinished when it starts. So the driver hides these servers from Nova,
and a pool of threads completes their operations with the outcome in Ironic. It
also completes the operations of servers that this host takes over.

Nova 34 is the first release whose driver can hide instances.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from concurrent import futures
import dataclasses
import enum
import time
from typing import TYPE_CHECKING
from typing import Any

from nova import context as nova_context
from nova import exception
from nova import objects
from nova import utils
from nova.compute import task_states
from nova.compute import vm_states
from nova.virt import driver as virt_driver
from nova.virt.ironic import ironic_states
from oslo_log import log as logging

from . import client
from . import conf
from . import endings
from . import timing

if TYPE_CHECKING:
    from nova.compute import manager as compute_manager

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: Whether this Nova lets its driver hide instances when it starts.
SUPPORTED = hasattr(virt_driver.ComputeDriver, 'process_instances_at_startup')

#: Seconds until a deployment fails that Ironic has not started: the last
#: request of the process that ended may still be in transit.
GRACE = 60

#: Seconds after a start within which the host receives queued builds, or the
#: builds wait for one of Nova's threads.
QUEUED = 300

#: The version of Ironic's API that has all of _FACTS.
_MICROVERSION = '1.46'
_FACTS = ('instance_uuid', 'provision_state', 'provision_updated_at',
          'last_error')

_FAILED = ironic_states.DEPLOYFAIL, ironic_states.ERROR

# A node that carries an instance is in these only before it is deployed.
_UNTOUCHED = (
    ironic_states.AVAILABLE, ironic_states.MANAGEABLE, ironic_states.ENROLL,
    ironic_states.VERIFYING, ironic_states.INSPECTING,
    ironic_states.INSPECTWAIT, ironic_states.INSPECTFAIL)

_NOT_BEGUN = 'nova-compute was restarted before deployment began'
_NO_NODE = 'its node was taken away while nova-compute was restarted'
_LOST = ('the request to build it was lost: nova-compute was restarted and '
         'has not received it')
_NOT_KNOWN = ('nova-compute was restarted, and it is not known whether '
              'deployment had begun')


class Outcome(enum.Enum):
    """The state of a build or a rebuild."""

    OPEN = 'Ironic or an operator is working on the node'
    DONE = 'the node was deployed'
    FAILED = 'the node was not deployed, and will not be'
    NOT_BEGUN = 'Ironic has not received the request'


def is_unfinished(instance: objects.Instance) -> bool:
    """Return whether Nova would fail an instance when it starts.

    Nova's instance_build_timeout leaves ERROR with the task "spawning". A
    shelved instance is not included: Nova sets it to ERROR, and it keeps its
    image.
    """
    return (instance.vm_state == vm_states.BUILDING
            or instance.task_state in (task_states.REBUILD_SPAWNING,
                                       task_states.DELETING)
            or (instance.vm_state == vm_states.ERROR
                and instance.task_state == task_states.SPAWNING))


def find_outcome(instance: objects.Instance, node: dict[str, Any] | None,
                 ) -> tuple[Outcome, str | None]:
    """Return the outcome of a build or a rebuild.

    :param instance: with ``task_state`` and ``system_metadata``.
    :param node: _FACTS of the node that is held for it.
    :returns: the outcome and, unless it is OPEN or DONE, the reason.
    """
    rebuilding = instance.task_state == task_states.REBUILD_SPAWNING
    if not rebuilding and instance.task_state != task_states.SPAWNING:
        # Nova saves this task before the driver sends a request to Ironic.
        return Outcome.NOT_BEGUN, _NOT_BEGUN
    if node is None:
        return Outcome.FAILED, _NO_NODE
    state = node['provision_state']
    if state in _UNTOUCHED:
        return Outcome.NOT_BEGUN, _NOT_BEGUN
    if state != ironic_states.ACTIVE and state not in _FAILED:
        return Outcome.OPEN, None
    if rebuilding:
        # The node also had one of these states before the rebuild.
        before = instance.system_metadata.get(endings.REBUILT_FROM)
        if before is None:
            return Outcome.FAILED, _NOT_KNOWN
        if before == str(node['provision_updated_at']):
            return Outcome.NOT_BEGUN, _NOT_BEGUN
    if state == ironic_states.ACTIVE:
        return Outcome.DONE, None
    return Outcome.FAILED, (f'Failed to provision instance {instance.uuid}: '
                            f'{node["last_error"]}')


def get_node_facts(connection: Any, node_uuid: str) -> dict[str, Any]:
    """Return _FACTS of a node.

    The SDK's own node lacks the time of the last change.

    :param connection: the SDK's proxy for Ironic.
    """
    response = connection.get(
        f'/nodes/{node_uuid}', params={'fields': ','.join(_FACTS)},
        microversion=_MICROVERSION)
    response.raise_for_status()
    return response.json()


def find_deployments(reservations: client.Client, host: str) -> dict[str, str]:
    """Return the instances of a host that Ironic is deploying.

    The cost depends on the number of deployments, not of servers.

    :returns: provision states by the UUIDs of the instances.
    :raises: client.Failure.
    """
    return {reservation['instance_uuid']: reservation['provision_state']
            for reservation in reservations.list_by_host(
                host, ['provision_state'], state='deploying')}


def is_complete(instance: objects.Instance) -> bool:
    """Return whether another process has already completed this operation.

    Reads the database, because Nova's Ironic driver refreshes the object
    while it waits.
    """
    try:
        current = objects.Instance.get_by_uuid(
            nova_context.get_admin_context(), instance.uuid,
            expected_attrs=['system_metadata'])
    except exception.InstanceNotFound:
        return False
    if instance.task_state == task_states.REBUILD_SPAWNING or (
            endings.REBUILT_FROM in instance.system_metadata):
        # If it was never saved, this process has not begun.
        return (endings.REBUILT_FROM not in current.system_metadata
                and 'system_metadata' not in instance.obj_what_changed())
    return current.vm_state in (vm_states.ACTIVE, vm_states.STOPPED)


def check_credentials() -> None:
    """Warn of missing credentials to complete operations for a user."""
    for group, service in ('neutron', 'Neutron'), ('cinder', 'Cinder'):
        if not CONF[group].auth_type:
            LOG.warning(
                'Section [%s] of nova.conf has no credentials. Operations '
                'that are in progress when nova-compute is restarted cannot '
                'be completed if they need %s.', group, service)


def _find_not_begun(uuids: Collection[str]) -> list[objects.Instance]:
    """Return the instances in a list that no host has begun to build."""
    return objects.InstanceList.get_by_filters(
        nova_context.get_admin_context(),
        {'uuid': list(uuids), 'vm_state': vm_states.BUILDING, 'host': None,
         'deleted': False}, expected_attrs=[]) if uuids else []


@dataclasses.dataclass
class _Left:
    """An unfinished instance.

    :ivar since: when it was found, by time.monotonic().
    :ivar pacer: decides when to try it again.
    """

    since: float
    pacer: timing.Pacer = dataclasses.field(default_factory=timing.Pacer)


class Completer:
    """Completes the operations of a host that no thread is working on.

    :param host: the name of the compute host.
    :param connect: returns the SDK's proxy for Ironic.
    :param wait: returns when this process certainly serves the host.
    """

    def __init__(self, host: str, reservations: client.Client,
                 connect: Callable[[], Any],
                 manager: compute_manager.ComputeManager,
                 wait: Callable[[], None]):
        self._host = host
        self._client = reservations
        self._connect = connect
        self._endings = endings.Endings(host, manager)
        self._wait = wait
        self._manager = manager
        self._instances: dict[str, _Left] = {}
        # UUIDs of instances that a thread of the pool is working on.
        self._busy: set[str] = set()
        # UUIDs of builds that wait in the host's queue, and until when.
        self._queue: set[str] = set()
        self._queue_end: float = 0
        # Not Nova's own pool for long operations: it runs the builds, which
        # would wait for a hundred tear-downs.
        self._pool = futures.ThreadPoolExecutor(
            CONF.max_concurrent_builds or None, 'completer')
        if SUPPORTED:
            check_credentials()

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def hide(self, instances: list[objects.Instance],
             ) -> list[objects.Instance]:
        """Hide unfinished instances from Nova, and complete them.

        :param instances: instances of this host's compute node.
        :returns: the instances that Nova is to initialize itself.
        """
        if not SUPPORTED:
            return instances
        uuids = {instance.uuid for instance in instances
                 if self._is_ours(instance)
                 and instance.node in (None, self._host)}
        if uuids:
            LOG.info('Host %s is completing operations of instances: %s',
                     self._host, ', '.join(sorted(uuids)))
        self._instances |= {uuid: _Left(time.monotonic()) for uuid in uuids}
        return [instance for instance in instances
                if instance.uuid not in uuids]

    def wait_for_queue(self, consumers: Collection[str]) -> None:
        """Wait for builds in the host's queue that no process has begun.

        Nova would set them to ERROR, and then build them when they come.

        :param consumers: UUIDs of consumers with allocations of this host.
        """
        self._queue = {
            instance.uuid for instance in _find_not_begun(consumers)}
        self._queue_end = time.monotonic() + QUEUED

    def _fail_queue(self, consumers: Collection[str]) -> None:
        """Fail the queued builds that were never received."""
        running = {task['instance_uuid'] for task in
                   list(self._manager._in_progress_tasks.values())}
        missing = self._queue - running
        # An instance that another host builds by now has no allocation here.
        for instance in _find_not_begun(missing & set(consumers)):
            self._busy.add(instance.uuid)
            self._pool.submit(utils.synchronized(instance.uuid)(
                self._fail_missing_build), instance.uuid)
        self._queue &= running

    def _fail_missing_build(self, uuid: str) -> None:
        try:
            for instance in _find_not_begun([uuid]):
                self._endings.fail_queued_build(instance, _LOST)
        finally:
            self._busy.discard(uuid)

    def continue_work(
            self, read_consumers: Callable[[], Collection[str] | None],
            ) -> None:
        """Start to complete operations; called by the driver's thread.

        :param read_consumers: returns the UUIDs of consumers with allocations
            of this host, or None.
        """
        if self._queue and time.monotonic() > self._queue_end:
            consumers = read_consumers()
            if consumers is not None:
                self._fail_queue(consumers)
        due = {uuid for uuid, state in list(self._instances.items())
               if state.pacer.is_due()} - self._busy
        if not due:
            return
        try:
            provision_states = find_deployments(self._client, self._host)
        except client.Failure as e:
            LOG.debug('Could not list the deployments of host %s: %s',
                      self._host, e)
            return
        instances = {instance.uuid: instance for instance in
                     objects.InstanceList.get_by_filters(
                         nova_context.get_admin_context(),
                         {'uuid': list(due), 'deleted': False},
                         expected_attrs=[])}
        for uuid in due:
            if uuid not in instances or not self._is_ours(instances[uuid]):
                self._instances.pop(uuid)
            elif not _is_open(instances[uuid], provision_states.get(uuid)):
                self._busy.add(uuid)
                self._pool.submit(self._complete, uuid)

    def _is_ours(self, instance: objects.Instance) -> bool:
        return instance.host == self._host and is_unfinished(instance)

    def _complete(self, uuid: str) -> None:
        state = self._instances[uuid]
        try:
            finish = utils.synchronized(uuid)(self._complete_with_lock)(
                uuid, state)
            if finish:
                finish()
        except exception.InstanceNotFound:
            pass  # It has been deleted.
        except Exception as e:
            state.pacer.wait(has_stalled=True)
            LOG.warning('Could not complete the operation of instance %s, '
                        'will retry: %r', uuid, e)
            LOG.debug('Traceback:', exc_info=True)
        finally:
            self._busy.discard(uuid)

    def _complete_with_lock(
            self, uuid: str, state: _Left) -> Callable[[], None] | None:
        """Complete the operation of an instance, under Nova's lock of it.

        :returns: a function to call without the lock, or None.
        """
        self._wait()
        instance = objects.Instance.get_by_uuid(
            nova_context.get_admin_context(), uuid,
            expected_attrs=endings.LOADED)
        reservation = self._client.get_now(uuid)
        if not self._is_ours(instance) or (
                reservation and reservation['host'] != self._host):
            return None
        if instance.task_state == task_states.DELETING:
            self._endings.continue_deletion(instance)
            return None
        node = get_node_facts(self._connect(), reservation['node_uuid']
                              ) if reservation else None
        outcome, reason = find_outcome(instance, node)
        if (outcome is Outcome.OPEN
                # It has just been released.
                or node and (node['instance_uuid'] or '').lower() != uuid
                or (outcome is Outcome.NOT_BEGUN
                    and time.monotonic() < state.since + GRACE)):
            return None
        rebuilding = instance.task_state == task_states.REBUILD_SPAWNING
        if outcome is Outcome.DONE and rebuilding:
            return self._endings.finish_rebuild(instance)
        if outcome is Outcome.DONE:
            self._endings.finish_build(instance)
        elif rebuilding:
            self._endings.fail_rebuild(instance, reason)
        else:
            self._endings.fail_build(instance, reason)
        return None


def _is_open(instance: objects.Instance, provision_state: str | None) -> bool:
    """Return whether the operation of an instance is still in progress.

    :param provision_state: of its node, if that is being deployed.
    """
    if instance.task_state == task_states.DELETING:
        # Ironic refuses to tear down a node in this state, which is locked.
        return provision_state == ironic_states.DEPLOYING
    return provision_state is not None
