# SPDX-License-Identifier: Apache-2.0
"""The instances that are being built, their nodes and leases."""

import dataclasses
import threading

from nova import exception
from oslo_log import log as logging

from . import client
from . import wanted

LOG = logging.getLogger(__name__)

#: The keys of a request by which a host asks in its part of the fleet alone.
_PARTITION = ('conductor_group', 'shard')


@dataclasses.dataclass
class _Build:
    """An instance that is being built, on a node that is held for it."""

    request: dict
    node_uuid: str
    #: Why the build must not go on; None as long as it may.
    lost: str | None = None
    #: Held while the lease is renewed and when the build ends, so that no
    #: lease is renewed, and no node held anew, after that.
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


# Stands for the build of an instance that is not being built any more.
_OVER = _Build({}, '', lost='its build is over')


class Builds:
    """The instances that this nova-compute builds, by UUID.

    Failures of the reservations API become the exceptions that Nova acts
    upon: ``ComputeResourcesUnavailable`` sends a build to the next host,
    ``InstanceUnacceptable`` ends it and shows its message to the user.

    :param reservations: a client.Client.
    :param host: the name of this compute host.
    """

    def __init__(self, reservations, host):
        self._client = reservations
        self._host = host
        self._builds = {}

    def __contains__(self, instance_uuid):
        return instance_uuid in self._builds

    def begin(self, instance, partition):
        """Hold a node for an instance.

        :raises: ComputeResourcesUnavailable, InstanceUnacceptable.
        """
        request = wanted.to_build(instance, self._host, partition)
        unknown = wanted.unknown_metadata(instance)
        if unknown:
            LOG.warning('Unknown metadata is ignored: %s', ', '.join(unknown),
                        instance=instance)
        try:
            try:
                reservation = self._hold(request)
            except client.Conflict as e:
                LOG.info('Releasing what an earlier build has left: %s', e,
                         instance=instance)
                self._client.release(instance.uuid, self._host)
                reservation = self._hold(request)
        except client.Failure as e:
            raise self._verdict(e, instance, request)
        wanted.warn_of_ignored(request, reservation.get('ignored', ()))
        LOG.info('Node %s is reserved until %s', reservation['node_uuid'],
                 reservation['expires_at'], instance=instance)
        self._builds[instance.uuid] = _Build(
            request, reservation['node_uuid'])

    def _hold(self, request):
        """Hold a node.

        :raises: Conflict also when the node that the instance holds already
            is beyond ``reserved``: an earlier build has begun on it.
        """
        reservation = self._client.hold(request)
        if reservation['state'] != 'reserved':
            raise client.Conflict(f'its node is {reservation["state"]} '
                                  f'already')
        return reservation

    def _verdict(self, failure, instance, request):
        """Return the exception by which Nova does what a failure calls for."""
        LOG.warning('No node is reserved: %s', failure, instance=instance)
        ends, reason = self._judge(failure, instance, request)
        unknown = wanted.unknown_metadata(instance)
        if unknown:
            reason += f'; unknown metadata: {", ".join(unknown)}'
        if ends:
            return wanted.unacceptable(instance, reason)
        return exception.ComputeResourcesUnavailable(reason=reason)

    def _judge(self, failure, instance, request):
        """Return whether a failure ends a build, and the reason."""
        if isinstance(failure, client.NoNode):
            LOG.warning('Why none: %s', failure.explanation,
                        instance=instance)
            wanted.warn_of_ignored(request, failure.ignored)
            # Where no other host can find what this one has not found, they
            # are not tried.
            everywhere = self._everywhere(failure, request)
            return bool(everywhere), (everywhere or failure).reason
        if (isinstance(failure, (client.Refused, client.NotFound))
                or isinstance(failure, client.Conflict)
                and request.keys() & {'claim', 'group'}):
            # What is claimed, or the group, is the same for every host.
            return True, str(failure)
        return False, (
            'another reservation of this instance is in the way'
            if isinstance(failure, client.Conflict)
            else 'the node reservation service did not serve this host')

    def _everywhere(self, failure, request):
        """Return why there is no node in the whole fleet.

        :param failure: client.NoNode in this host's part of the fleet.
        :returns: client.NoNode; None when another host may find a node.
        """
        if failure.busy:
            return None
        if not any(request[name] is not None for name in _PARTITION):
            return failure
        if 'claim' in request:
            return None  # There is no dry run of a claim.
        try:
            return self._client.refusal(
                {**request, **dict.fromkeys(_PARTITION)})
        except client.Failure as e:
            LOG.warning('Whether the rest of the fleet has a node is not '
                        'known: %s', e)
            return None

    def renew(self, instance):
        """Renew the lease before something is done to the node.

        :returns: UUID of the node.
        :raises: InstanceUnacceptable when the node is not held any more.
        """
        # The build is not there any more if another thread has deleted the
        # instance meanwhile.
        build = self._builds.get(instance.uuid, _OVER)
        try:
            self._renew(build, self._client.renew)
        except client.Conflict as e:
            build.lost = str(e)
        except client.Failure as e:
            raise self._verdict(e, instance, build.request)
        if build.lost:
            raise wanted.unacceptable(instance, build.lost)
        return build.node_uuid

    def renew_all(self):
        """Renew the leases of all builds.

        What fails is logged and left to the next periodic task. When Ironic
        is unavailable, the other leases are not tried.
        """
        for instance_uuid, build in list(self._builds.items()):
            try:
                self._renew(build, self._client.renew_now)
            except client.Conflict:
                pass  # The deployment has begun, and needs no lease.
            except client.Failure as e:
                LOG.warning('The lease of instance %s is not renewed: %s',
                            instance_uuid, e)
                if isinstance(e, client.Unavailable):
                    return

    def _renew(self, build, renew):
        """Renew the lease of a build, and note when its node was lost.

        Nothing is held anew: the node may have been given to another, or the
        reservation to another host.

        :param renew: the client's method to use, ``renew`` or ``renew_now``.
        """
        with build.lock:
            if build.lost:
                return
            try:
                held = renew(build.request['instance_uuid'], self._host,
                             build.request['expires_in'])
            except client.NotFound as e:
                LOG.error('Node %s is not held any more: %s',
                          build.node_uuid, e)
                held = None
            if held is None or held['node_uuid'] != build.node_uuid:
                build.lost = 'the reservation of its node has ended'

    def end(self, instance):
        """Forget a build: its lease is not renewed any more.

        The node stays held until it is released or the lease ends.
        """
        build = self._builds.pop(instance.uuid, None)
        if build:
            with build.lock:
                build.lost = _OVER.lost


def lost_node(instance):
    """Return the error for a node that has lost its instance.

    :raises: InstanceNotFound when the instance itself has been deleted,
        because Nova then ends its work on it without an error.
    """
    instance.refresh()
    return exception.InstanceDeployFailure(
        f'The node of instance {instance.uuid} was taken away.')
