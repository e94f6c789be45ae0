# SPDX-License-Identifier: Apache-2.0
"""The holds of the instances that are being built, and their leases."""

import dataclasses
import threading

from nova import context as nova_context
from nova import exception
from nova import utils
from nova.compute import utils as compute_utils
from oslo_log import log as logging

from . import client
from .conf import CONF

LOG = logging.getLogger(__name__)


def request_for(instance, host, partition):
    """The body of POST /v1/reservations for an instance.

    :param partition: ``conductor_group`` and ``shard`` of this host; None
        for any.
    """
    flavor = instance.flavor
    volume_backed = compute_utils.is_volume_backed_instance(
        nova_context.get_admin_context(), instance)
    return {
        'instance_uuid': instance.uuid,
        'host': host,
        'project_id': instance.project_id,
        'user_id': instance.user_id,
        'expires_in': CONF.reservations.lease,
        'memory_mb': flavor.memory_mb,
        'vcpus': flavor.vcpus,
        'root_gb': 0 if volume_backed else flavor.root_gb,
        'ephemeral_gb': flavor.ephemeral_gb,
        'swap': flavor.swap,
        'vcpu_weight': flavor.vcpu_weight,
        'rxtx_factor': flavor.rxtx_factor,
        'name': flavor.name,
        'flavorid': flavor.flavorid,
        'extra_specs': flavor.extra_specs,
        'image': _image(instance, volume_backed),
        **partition,
    }


def _image(instance, volume_backed):
    # The raw properties: Nova's object knows only its own, and it lacks
    # forbidden traits. Other system metadata is no image's, and changes.
    prefix = utils.SM_IMAGE_PROP_PREFIX
    image = utils.get_image_from_system_metadata({
        key: value for key, value in instance.system_metadata.items()
        if key.startswith(prefix)})
    # Nova notes the flavor's root disk as the image's minimum, unless the
    # flavor has none; it has seen to it that the image needs no more.
    min_disk = (0 if volume_backed or instance.flavor.root_gb
                else int(image.get('min_disk', 0)))
    # What may be there by an older name.
    properties = instance.image_meta.properties
    known = {name: properties.get(name) for name in
             ('hw_architecture', 'hw_firmware_type', 'img_hv_type')}
    return {
        'id': instance.image_ref or None,
        'min_ram': int(image.get('min_ram', 0)),
        'min_disk': min_disk,
        'properties': {**image['properties'], **{
            name: value for name, value in known.items() if value}},
    }


@dataclasses.dataclass
class _Build:
    request: dict
    node_uuid: str
    #: Why the build must not go on; None while all is well.
    lost: str | None = None
    #: Nothing is renewed while it is released, nor after.
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


_OVER = _Build({}, '', lost='its build is over')


class Builds:
    """What this process builds, and where.

    Failures of the reservation service become what Nova acts upon:
    ``ComputeResourcesUnavailable`` sends a build to the next host,
    ``InstanceUnacceptable`` ends it with its message.

    :param reservations: a client.Client.
    """

    def __init__(self, reservations, host):
        self._client = reservations
        self._host = host
        self._builds = {}

    def __contains__(self, instance_uuid):
        return instance_uuid in self._builds

    def begin(self, instance, partition):
        """Hold a node for an instance."""
        request = request_for(instance, self._host, partition)
        try:
            try:
                reservation = self._hold(request)
            except client.Conflict as e:
                LOG.info('Releasing what an earlier build has left: %s', e,
                         instance=instance)
                self._client.release(instance.uuid, self._host)
                reservation = self._hold(request)
        except client.Failure as e:
            raise self._verdict(e, instance, partition)
        LOG.info('Node %s is reserved until %s', reservation['node_uuid'],
                 reservation['expires_at'], instance=instance)
        self._builds[instance.uuid] = _Build(
            request, reservation['node_uuid'])

    def _hold(self, request):
        reservation = self._client.hold(request)
        if reservation['state'] != 'reserved':
            raise client.Conflict(f'node {reservation["node_uuid"]} is '
                                  f'{reservation["state"]} already')
        return reservation

    @staticmethod
    def _verdict(failure, instance, partition):
        LOG.warning('No node is reserved: %s', failure, instance=instance)
        if isinstance(failure, client.NoNode):
            LOG.warning('Why none: %s', failure.explanation,
                        instance=instance)
            everywhere = not any(
                each is not None for each in partition.values())
            if everywhere and not failure.busy:
                # No other host sees more nodes than this one.
                return exception.InstanceUnacceptable(
                    instance_id=instance.uuid, reason=failure.reason)
            return exception.ComputeResourcesUnavailable(
                reason=failure.reason)
        if isinstance(failure, client.Refused):
            return exception.InstanceUnacceptable(
                instance_id=instance.uuid, reason=str(failure))
        return exception.ComputeResourcesUnavailable(
            reason='another reservation of this instance is in the way'
            if isinstance(failure, client.Conflict)
            else 'the node reservation service did not serve this host')

    def renew(self, instance):
        """Renew the lease before something is done to the node.

        :returns: UUID of the node.
        :raises: InstanceUnacceptable when the node is not held any more.
        """
        # Deleted by another thread, if it is not there any more.
        build = self._builds.get(instance.uuid, _OVER)
        try:
            self._renew(build, self._client.hold)
        except client.Failure as e:
            raise self._verdict(e, instance, {})
        if build.lost:
            raise exception.InstanceUnacceptable(
                instance_id=instance.uuid, reason=build.lost)
        return build.node_uuid

    def renew_all(self):
        """Renew all leases, as far as that can be done now."""
        for instance_uuid, build in list(self._builds.items()):
            try:
                self._renew(build, self._client.renew)
            except client.Failure as e:
                LOG.warning('The lease of instance %s is not renewed: %s',
                            instance_uuid, e)
                if isinstance(e, client.Unavailable):
                    return

    @staticmethod
    def _renew(build, hold):
        with build.lock:
            if build.lost:
                return
            try:
                held = hold(build.request)
            except (client.NoNode, client.Conflict) as e:
                LOG.error('Node %s is not held any more: %s',
                          build.node_uuid, e)
                held = None
            if held is None or held['node_uuid'] != build.node_uuid:
                build.lost = 'the reservation of its node has ended'

    def end(self, instance):
        """Renew no more; what is held stays held."""
        build = self._builds.pop(instance.uuid, None)
        if build:
            with build.lock:
                build.lost = _OVER.lost
