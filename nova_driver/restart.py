# SPDX-License-Identifier: Apache-2.0
"""What was in flight when a process ended is taken up by the next one.

Ironic goes on with a deployment while nobody waits for it, but Nova gives up
every server that it finds unfinished when it starts. So those are kept from
Nova, and a pool of threads brings them to the end that Ironic has come to.
The same is done with what a host was given from another that is down.

Nova 34 is the first that lets its driver keep instances back.
"""

from concurrent import futures
import dataclasses
import enum
import time

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

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: Whether this Nova lets its driver keep instances back when it starts.
SUPPORTED = hasattr(virt_driver.ComputeDriver, 'process_instances_at_startup')

#: Seconds until a deployment is given up that Ironic has not begun: the last
#: request of the process that ended may still be on its way.
GRACE = 60

#: Builds that wait in the host's queue come out of it within so many seconds
#: after a start, or wait for one of Nova's threads.
QUEUED = 300

#: The longest pause between two attempts that fail, in seconds.
LONGEST = 60

#: The version of Ironic's API that shows all of _FACTS.
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
_NOT_KNOWN = ('nova-compute was restarted, and whether deployment had begun '
              'is not known')


class Outcome(enum.Enum):
    """What has become of a build or a rebuild."""

    OPEN = 'Ironic is at work on the node, or an operator'
    DONE = 'the node was deployed'
    FAILED = 'it was not, and will not be'
    NOT_BEGUN = 'Ironic was not asked, or not yet'


def is_unfinished(instance):
    """Whether an instance is one that Nova would give up when it starts.

    ERROR while it is spawned is what Nova's instance_build_timeout leaves. A
    shelved instance is left to Nova: it has its image, and is ERROR then.
    """
    return (instance.vm_state == vm_states.BUILDING
            or instance.task_state in (task_states.REBUILD_SPAWNING,
                                       task_states.DELETING)
            or (instance.vm_state == vm_states.ERROR
                and instance.task_state == task_states.SPAWNING))


def outcome(instance, node):
    """Say what has become of a build or a rebuild.

    :param instance: with ``task_state`` and ``system_metadata``.
    :param node: what Ironic shows of the node that is held for it (_FACTS), a
        dict; None without one.
    :returns: an Outcome and, unless it is OPEN or DONE, the reason.
    """
    rebuilt = instance.task_state == task_states.REBUILD_SPAWNING
    if not rebuilt and instance.task_state != task_states.SPAWNING:
        # Nova saves that it is spawned before the driver asks Ironic.
        return Outcome.NOT_BEGUN, _NOT_BEGUN
    if node is None:
        return Outcome.FAILED, _NO_NODE
    state = node['provision_state']
    if state in _UNTOUCHED:
        return Outcome.NOT_BEGUN, _NOT_BEGUN
    if state != ironic_states.ACTIVE and state not in _FAILED:
        return Outcome.OPEN, None
    if rebuilt:
        # It was active, or had failed, before the rebuild, too.
        before = instance.system_metadata.get(endings.REBUILT_FROM)
        if before is None:
            return Outcome.FAILED, _NOT_KNOWN
        if before == str(node['provision_updated_at']):
            return Outcome.NOT_BEGUN, _NOT_BEGUN
    if state == ironic_states.ACTIVE:
        return Outcome.DONE, None
    return Outcome.FAILED, (f'Failed to provision instance {instance.uuid}: '
                            f'{node["last_error"]}')


def facts(connection, node_uuid):
    """Return what Ironic shows of a node (_FACTS), a dict.

    The SDK's own node lacks the time of the last change.

    :param connection: the SDK's proxy for Ironic.
    """
    response = connection.get(
        f'/nodes/{node_uuid}', params={'fields': ','.join(_FACTS)},
        microversion=_MICROVERSION)
    response.raise_for_status()
    return response.json()


def deploying(reservations, host):
    """Return what Ironic deploys for a host.

    It costs as much as there is, however many servers the host has.

    :param reservations: client.Client.
    :returns: dict of the provision states by the UUIDs of the instances.
    :raises: client.Failure.
    """
    return {each['instance_uuid']: each['provision_state']
            for each in reservations.held_by(host, ['provision_state'],
                                             state='deploying')}


def is_ended(instance):
    """Whether another process has ended what this one does to an instance.

    The database is asked, and not the object, because Nova's Ironic driver
    reads that anew while it waits.
    """
    try:
        known = objects.Instance.get_by_uuid(
            nova_context.get_admin_context(), instance.uuid,
            expected_attrs=['system_metadata'])
    except exception.InstanceNotFound:
        return False
    if instance.task_state == task_states.REBUILD_SPAWNING or (
            endings.REBUILT_FROM in instance.system_metadata):
        # Where it was not saved, it is this process that has not begun.
        return (endings.REBUILT_FROM not in known.system_metadata
                and 'system_metadata' not in instance.obj_what_changed())
    return known.vm_state in (vm_states.ACTIVE, vm_states.STOPPED)


def check_credentials():
    """Warn where what a user has asked for could not be ended for the user."""
    for group, service in ('neutron', 'Neutron'), ('cinder', 'Cinder'):
        if not CONF[group].auth_type:
            LOG.warning(
                'Section [%s] of nova.conf has no credentials, so that what '
                'is in flight when nova-compute is restarted cannot be ended '
                'where %s is needed for it.', group, service)


def _not_begun(uuids):
    """Return those of these instances that no host has begun to build."""
    return objects.InstanceList.get_by_filters(
        nova_context.get_admin_context(),
        {'uuid': list(uuids), 'vm_state': vm_states.BUILDING, 'host': None,
         'deleted': False}, expected_attrs=[]) if uuids else []


@dataclasses.dataclass
class _Left:
    """An instance that is unfinished.

    :ivar since: when it was found, by time.monotonic().
    :ivar due: when it is looked at again.
    :ivar pause: seconds from the last attempt that failed to the next.
    """

    since: float
    due: float = 0
    pause: float = 0


class Unfinished:
    """The instances of a host whose tasks nobody is at work on.

    :param host: the name of the compute host.
    :param reservations: client.Client.
    :param connect: function without arguments that returns the SDK's proxy.
    :param manager: nova.compute.manager.ComputeManager.
    :param wait: function without arguments that returns when this process is
        certainly the host.
    """

    def __init__(self, host, reservations, connect, manager, wait):
        self._host = host
        self._client = reservations
        self._connect = connect
        self._endings = endings.Endings(host, manager)
        self._wait = wait
        self._manager = manager
        # _busy are the UUIDs of what a thread of the pool is at work on.
        self._left, self._busy = {}, set()
        # UUIDs of builds that wait in the host's queue, and until when.
        self._queued, self._queued_until = set(), 0
        # Nova's own pool for what takes long runs the builds, which a
        # hundred tear-downs would keep waiting.
        self._pool = futures.ThreadPoolExecutor(
            CONF.max_concurrent_builds or None, 'unfinished')
        if SUPPORTED:
            check_credentials()

    def stop(self):
        self._pool.shutdown(wait=False, cancel_futures=True)

    def keep_back(self, instances):
        """Take those up that are unfinished.

        :param instances: list of those of this host's row.
        :returns: list of those that Nova is to initialize itself.
        """
        if not SUPPORTED:
            return instances
        left = {each.uuid for each in instances
                if each.host == self._host and is_unfinished(each)
                and each.node in (None, self._host)}
        if left:
            LOG.info('Host %s takes up what was in flight: %s', self._host,
                     ', '.join(sorted(left)))
        self._left |= {uuid: _Left(time.monotonic()) for uuid in left}
        return [each for each in instances if each.uuid not in left]

    def wait_for_queue(self, consumers):
        """Let builds come out of the host's queue that no process has begun.

        Nova would set them to ERROR, and then build them when they come.

        :param consumers: UUIDs of what has allocations of this host.
        """
        self._queued = {each.uuid for each in _not_begun(consumers)}
        self._queued_until = time.monotonic() + QUEUED

    def _end_queue(self, consumers):
        """End the builds that have not come out of the queue."""
        begun = {each['instance_uuid'] for each in
                 list(self._manager._in_progress_tasks.values())}
        lost = self._queued - begun
        # What another host was to build since has no allocation here.
        for each in _not_begun(lost & set(consumers)):
            self._busy.add(each.uuid)
            self._pool.submit(
                utils.synchronized(each.uuid)(self._end_lost), each.uuid)
        self._queued &= begun

    def _end_lost(self, uuid):
        try:
            for instance in _not_begun([uuid]):
                self._endings.not_begun(instance, _LOST)
        finally:
            self._busy.discard(uuid)

    def go_on(self, consumers):
        """Look at what is left; the driver's own thread does it.

        :param consumers: function without arguments that returns the UUIDs
            of what has allocations of this host, or None.
        """
        now = time.monotonic()
        if self._queued and now > self._queued_until:
            found = consumers()
            if found is not None:
                self._end_queue(found)
        due = {uuid for uuid, left in list(self._left.items())
               if left.due <= now} - self._busy
        if not due:
            return
        try:
            now_deploying = deploying(self._client, self._host)
        except client.Failure as e:
            LOG.debug('What host %s deploys is not known: %s', self._host, e)
            return
        known = {each.uuid: each for each in
                 objects.InstanceList.get_by_filters(
                     nova_context.get_admin_context(),
                     {'uuid': list(due), 'deleted': False},
                     expected_attrs=[])}
        for uuid in due:
            if uuid not in known or not self._is_left(known[uuid]):
                self._left.pop(uuid)
            elif not _is_open(known[uuid], now_deploying.get(uuid)):
                self._busy.add(uuid)
                self._pool.submit(self._take_up, uuid)

    def _is_left(self, instance):
        return instance.host == self._host and is_unfinished(instance)

    def _take_up(self, uuid):
        left = self._left[uuid]
        try:
            end = utils.synchronized(uuid)(self._end)(uuid, left)
            if end:
                end()
        except exception.InstanceNotFound:
            pass  # It has been deleted meanwhile.
        except Exception as e:
            left.pause = min(2 * left.pause + 1, LONGEST)
            left.due = time.monotonic() + left.pause
            LOG.warning('Instance %s is taken up again later: %r', uuid, e)
            LOG.debug('Where it was raised:', exc_info=True)
        finally:
            self._busy.discard(uuid)

    def _end(self, uuid, left):
        """End what was begun with an instance, under Nova's lock of it.

        :returns: what is to be called afterwards without that, or None.
        """
        self._wait()
        instance = objects.Instance.get_by_uuid(
            nova_context.get_admin_context(), uuid,
            expected_attrs=endings.LOADED)
        held = self._client.get_now(uuid)
        if not self._is_left(instance) or (
                held and held['host'] != self._host):
            return None
        if instance.task_state == task_states.DELETING:
            return self._endings.delete(instance)
        node = held and facts(self._connect(), held['node_uuid'])
        found, reason = outcome(instance, node)
        if (found is Outcome.OPEN
                # It has just been released.
                or node and node['instance_uuid'] != uuid
                or (found is Outcome.NOT_BEGUN
                    and time.monotonic() < left.since + GRACE)):
            return None
        rebuilt = instance.task_state == task_states.REBUILD_SPAWNING
        if found is Outcome.DONE:
            return (self._endings.rebuilt if rebuilt
                    else self._endings.built)(instance)
        return (self._endings.not_rebuilt if rebuilt
                else self._endings.not_built)(instance, reason)


def _is_open(instance, provision_state):
    """Whether an instance need not be looked at more closely.

    :param provision_state: of its node, if it is being deployed, else None.
    """
    if instance.task_state == task_states.DELETING:
        # The node is locked then, and Ironic would refuse to tear it down.
        return provision_state == ironic_states.DEPLOYING
    return provision_state is not None
