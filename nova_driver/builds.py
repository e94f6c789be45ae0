# SPDX-License-Identifier: Apache-2.0
"""Holds nodes for builds, renews the leases, and cleans nodes."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import threading
from typing import Any

from nova import exception
from nova import objects
from nova.virt.ironic import ironic_states
from oslo_log import log as logging

from . import client
from . import conf
from . import node_faults
from . import wanted

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: The keys of a request that restrict it to the host's part of the fleet.
_PARTITION = ('conductor_group', 'shard')


@dataclasses.dataclass
class _Build:
    """An instance that is being built on a node that is held for it."""

    request: client.Request
    node_uuid: str
    #: Why the build must not continue; None as long as it may.
    abort_reason: str | None = None
    #: Serializes renewals with the end of the build, after which nothing may
    #: be renewed.
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


# The build of an instance that is no longer being built.
_NO_BUILD = _Build({}, '', abort_reason='its build has ended')


class Builds:
    """The instances that this nova-compute builds, by UUID.

    Failures of the reservations API are converted to exceptions of Nova:
    after ``ComputeResourcesUnavailable`` it tries the next host, after
    ``InstanceUnacceptable`` it aborts the build and shows the message to the
    user.

    :param host: the name of this compute host.
    """

    def __init__(self, reservations: client.Client, host: str):
        self._client = reservations
        self._host = host
        self._builds: dict[str, _Build] = {}

    def __contains__(self, instance_uuid: str) -> bool:
        return instance_uuid in self._builds

    def begin(self, instance: objects.Instance,
              partition: dict[str, str | None],
              release: Callable[[], None]) -> None:
        """Hold a node for an instance.

        :param release: releases the node that an earlier build of the
            instance has left.
        :raises: ComputeResourcesUnavailable, InstanceUnacceptable; the errors
            of ``release``.
        """
        request = wanted.make_build_request(instance, self._host, partition)
        unknown = wanted.find_unknown_metadata(instance)
        if unknown:
            LOG.warning('Ignored unknown metadata: %s', ', '.join(unknown),
                        instance=instance)
        try:
            try:
                reservation = self._hold(request)
            except client.Conflict as e:
                LOG.info('Releasing the node of an earlier build: %s', e,
                         instance=instance)
                release()
                reservation = self._hold(request)
        except client.Failure as e:
            raise self._convert_failure(e, instance, request)
        wanted.warn_of_ignored_specs(request, reservation.get('ignored', ()))
        LOG.info('Node %s is reserved until %s', reservation['node_uuid'],
                 reservation['expires_at'], instance=instance)
        self._builds[instance.uuid] = _Build(
            request, reservation['node_uuid'])

    def _hold(self, request: client.Request) -> client.Reservation:
        """Hold a node.

        :raises: Conflict also when the instance already holds a node and its
            state is not ``reserved``: an earlier build has started on it.
        """
        reservation = self._client.hold(request)
        if reservation['state'] != 'reserved':
            raise client.Conflict(
                f'its node is already {reservation["state"]}')
        return reservation

    def _convert_failure(
            self, failure: client.Failure, instance: objects.Instance,
            request: client.Request) -> exception.NovaException:
        """Return the exception for Nova, and log the failure."""
        LOG.warning('Could not reserve a node: %s', failure,
                    instance=instance)
        is_final, reason = self._judge(failure, instance, request)
        unknown = wanted.find_unknown_metadata(instance)
        if unknown:
            reason += f'; unknown metadata: {", ".join(unknown)}'
        if is_final:
            return wanted.make_unacceptable_error(instance, reason)
        return exception.ComputeResourcesUnavailable(reason=reason)

    def _judge(self, failure: client.Failure, instance: objects.Instance,
               request: client.Request) -> tuple[bool, str]:
        """Return whether a failure aborts the build, and the reason."""
        if isinstance(failure, client.NoNode):
            LOG.warning('No node matched: %s', failure.explanation,
                        instance=instance)
            wanted.warn_of_ignored_specs(request, failure.ignored)
            # Do not try other hosts if none of them can find a node either.
            refusal = self._find_global_refusal(failure, request)
            return bool(refusal), (refusal or failure).reason
        if (isinstance(failure, (client.Refused, client.NotFound))
                or isinstance(failure, client.Conflict)
                and request.keys() & {'claim', 'group'}):
            # The claim or group is the same for every host.
            return True, str(failure)
        return False, (
            'this instance already has another reservation'
            if isinstance(failure, client.Conflict)
            else 'the node reservation service did not serve this host')

    def _find_global_refusal(self, failure: client.NoNode,
                             request: client.Request) -> client.NoNode | None:
        """Return why no node of the whole fleet matches.

        :param failure: the refusal in this host's part of the fleet.
        :returns: None when another host may find a node.
        """
        if failure.busy:
            return None
        if not any(request[name] is not None for name in _PARTITION):
            return failure
        try:
            return self._client.refusal(
                {**request, **dict.fromkeys(_PARTITION)})
        except client.Failure as e:
            LOG.warning('Could not search the rest of the fleet: %s', e)
            return None

    def renew(self, instance: objects.Instance) -> str:
        """Renew the lease before changing the node.

        :returns: UUID of the node.
        :raises: InstanceUnacceptable when the node is no longer held.
        """
        # Another thread may have deleted the instance, and ended the build.
        build = self._builds.get(instance.uuid, _NO_BUILD)
        try:
            self._renew(build, self._client.renew)
        except client.Conflict as e:
            build.abort_reason = str(e)
        except client.Failure as e:
            raise self._convert_failure(e, instance, build.request)
        if build.abort_reason:
            raise wanted.make_unacceptable_error(instance, build.abort_reason)
        return build.node_uuid

    def renew_all(self) -> None:
        """Renew the leases of all builds.

        Failures are logged, and the next periodic task retries. When Ironic
        is unavailable, the remaining leases are skipped.
        """
        for instance_uuid, build in list(self._builds.items()):
            try:
                self._renew(build, self._client.renew_now)
            except client.Conflict:
                pass  # Deployment has started, and needs no lease.
            except client.Failure as e:
                LOG.warning('Could not renew the lease of instance %s: %s',
                            instance_uuid, e)
                if isinstance(e, client.Unavailable):
                    return

    def _renew(self, build: _Build,
               renew: Callable[..., client.Reservation]) -> None:
        """Renew the lease of a build, and abort the build if it lost its node.

        Do not hold another node: the reservation may have moved to another
        host.

        :param renew: the client's method to use, ``renew`` or ``renew_now``.
        """
        with build.lock:
            if build.abort_reason:
                return
            reservation = None
            try:
                reservation = renew(
                    build.request['instance_uuid'], self._host,
                    build.request['expires_in'])
            except client.NotFound as e:
                LOG.error('Lost the reservation of node %s: %s',
                          build.node_uuid, e)
            if not reservation or reservation['node_uuid'] != build.node_uuid:
                build.abort_reason = 'its node is no longer reserved for it'

    def end_attempt(self, instance: objects.Instance,
                    attempt: node_faults.Attempt) -> None:
        """Remember the node of a failed attempt if it may be the cause.

        The first of the instance's nodes is recorded, and other instances get
        other nodes if they can. A request that no node satisfies fails on
        others, too, so these are not recorded. The node is still held: the
        next attempt cannot get it before.

        :param instance: an ownership.OnNode, unless the attempt has sent no
            request.
        """
        if attempt.is_accepted:
            # Ironic's own history shows why its deployment has failed.
            node_faults.forget(instance)
        if attempt.fault is None:
            return
        LOG.warning('Node %s could not be deployed: %s', instance.node,
                    attempt.fault, instance=instance)
        is_first = not node_faults.list_nodes(instance)
        node_faults.remember(instance, instance.node)
        try:
            if is_first:
                self._client.record_failed_build(instance.node, attempt.fault)
        except client.Failure as e:
            LOG.warning('Could not record the fault of node %s: %s',
                        instance.node, e, instance=instance)

    def end(self, instance: objects.Instance) -> None:
        """Forget a build, and stop renewing its lease.

        The node stays held until it is released or the lease expires.
        """
        build = self._builds.pop(instance.uuid, None)
        if build:
            with build.lock:
                build.abort_reason = _NO_BUILD.abort_reason


def make_lost_node_error(
        instance: objects.Instance) -> exception.InstanceDeployFailure:
    """Return the error for an instance whose node was taken away.

    :raises: InstanceNotFound when the instance itself has been deleted,
        because Nova then stops without an error.
    """
    instance.refresh()
    return exception.InstanceDeployFailure(
        f'The node of instance {instance.uuid} was taken away.')


def clean_node(ironic: Any, instance: objects.Instance) -> None:
    """Clean up a node as the parent does, but keep its instance_uuid.

    The parent clears that too, which would free the node without its
    reservation. Here the DELETE of the reservation does both. The parent also
    ignores errors, which would leave something on a free node.

    If nothing of the instance is on the node, no conductor is needed.

    :param ironic: the connection of the SDK.
    :param instance: an ownership.OnNode.
    :raises: client.Conflict when the node is locked; errors of the SDK.
    """
    node = ironic.get_node(instance.node, fields=(
        'uuid', 'instance_uuid', 'instance_info', 'power_state',
        'reservation'))
    if node.reservation:
        # A request of this build that timed out may still be in progress.
        raise client.Conflict('its node is locked')
    targets = list(ironic.volume_targets(node=node.id))
    if targets and node.power_state == ironic_states.POWER_ON:
        # Ironic deletes them only while the machine is off.
        ironic.set_node_power_state(
            node.id, ironic_states.POWER_OFF, wait=True,
            timeout=CONF.ironic.api_max_retries
            * CONF.ironic.api_retry_interval)
    for target in targets:
        ironic.delete_volume_target(target)
    # Detach all VIFs of the node, not only those in Nova's database, because
    # nova-compute may have been killed between attaching a VIF and storing it.
    for vif in _list_vifs(ironic, node.id):
        ironic.detach_vif_from_node(node.id, vif)
    # A node with instance_info keeps its reservation even after the lease has
    # expired, so until this call no other instance can get it.
    if (node.instance_info
            and (node.instance_id or '').lower() == instance.uuid):
        ironic.update_node(node, instance_info={})


def _list_vifs(ironic: Any, node_uuid: str) -> list[str]:
    """Return the VIFs on the ports and port groups of a node.

    Ironic would ask the node's conductor for a list of VIFs. It reads these
    from its database, even if no conductor serves the node.
    """
    query = {'node': node_uuid, 'fields': ['internal_info', 'extra']}
    vifs = [port.internal_info.get('tenant_vif_port_id')
            or port.extra.get('vif_port_id')
            for port in (*ironic.ports(**query), *ironic.port_groups(**query))]
    return list(filter(None, vifs))
