# SPDX-License-Identifier: Apache-2.0
"""Builds the body of a reservation request from an instance."""

from __future__ import annotations

from collections.abc import Iterable
import functools
import re
from typing import Any

from nova import context as nova_context
from nova import exception
from nova import objects
from nova import utils
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from oslo_log import log as logging

from ironic_reservations.shared import constants
from ironic_reservations.shared import spelling

from . import client
from . import conf
from . import node_faults

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: Prefix of our keys in a server's metadata.
_OURS = 'reservations:'

# The keys that go into the request (spelling.METADATA).
_METADATA = re.compile(f'{_OURS}(?:(claim|candidate_nodes)|(trait):.+)')

#: The length of a server's fault in Nova, and of the prefix that Nova adds:
#: "Build of instance UUID aborted: ".
_FAULT, _ABORTED = 255, 64


def make_unacceptable_error(instance: objects.Instance,
                            reason: str) -> exception.InstanceUnacceptable:
    """Return the error that aborts a build.

    Its message begins with the instance's UUID, as Nova's prefix does, unless
    Nova would then truncate the reason.
    """
    error = exception.InstanceUnacceptable(instance_id=instance.uuid,
                                           reason=reason)
    if _ABORTED + len(error.format_message()) > _FAULT:
        return exception.InstanceUnacceptable(reason)
    return error


def make_build_request(instance: objects.Instance, host: str,
                       partition: dict[str, str | None]) -> client.Request:
    """Return the body of POST /v1/reservations to build an instance.

    :param host: the compute host that builds the instance.
    :param partition: the host's part of the fleet, as
        ``{'conductor_group': …, 'shard': …}``; None for any.
    :raises: InstanceUnacceptable when the server's metadata is not allowed or
        contradicts the flavor, or when the server group cannot be looked up.
    """
    request = {**_describe(instance, host, partition),
               'expires_in': CONF.reservations.lease,
               'ownership': CONF.reservations.ownership}
    nodes = node_faults.list_nodes(instance)
    if nodes:
        request['avoid'] = nodes
    _add_metadata(request, instance)
    # A claimed reservation keeps its group.
    if 'claim' not in request:
        request |= _make_group(instance)
    return request


def make_adopt_request(instance: objects.Instance, host: str,
                       partition: dict[str, str | None]) -> client.Request:
    """Return the body of the request for the node that carries an instance.

    :raises: InstanceUnacceptable when its server group cannot be looked up.
    """
    return {**_describe(instance, host, partition), **_make_group(instance)}


def _describe(instance: objects.Instance, host: str,
              partition: dict[str, str | None]) -> client.Request:
    """Return the keys that depend on instance, flavor and image only."""
    flavor = instance.flavor
    volume_backed = compute_utils.is_volume_backed_instance(
        nova_context.get_admin_context(), instance)
    return {
        'instance_uuid': instance.uuid,
        'host': host,
        'project_id': instance.project_id,
        'user_id': instance.user_id,
        'memory_mb': flavor.memory_mb,
        'vcpus': flavor.vcpus,
        'root_gb': 0 if volume_backed else flavor.root_gb,
        'ephemeral_gb': flavor.ephemeral_gb,
        'swap': flavor.swap,
        'vcpu_weight': flavor.vcpu_weight,
        'rxtx_factor': flavor.rxtx_factor,
        'name': flavor.name,
        'flavorid': flavor.flavorid,
        'extra_specs': dict(flavor.extra_specs),
        'image': _make_image(instance, volume_backed),
        **partition,
    }


def _make_image(instance: objects.Instance,
                volume_backed: bool) -> dict[str, Any]:
    """Return the value of the request's key ``image``."""
    # Read the image's properties from the instance's system metadata, because
    # Nova's ImageMetaProps has only properties that Nova knows, and no
    # forbidden traits. Leave out other metadata: it changes, and the API
    # would treat a changed request as a different one.
    prefix = utils.SM_IMAGE_PROP_PREFIX
    image = utils.get_image_from_system_metadata({
        key: value for key, value in instance.system_metadata.items()
        if key.startswith(prefix)})
    # Nova stores the flavor's root disk as the image's min_disk, unless the
    # flavor has none. It has already checked that the image fits.
    min_disk = (0 if volume_backed or instance.flavor.root_gb
                else int(image.get('min_disk', 0)))
    # Images may have these properties under names of an older Nova.
    properties = instance.image_meta.properties
    renames = {name: properties.get(name) for name in
               ('hw_architecture', 'hw_firmware_type', 'img_hv_type')}
    return {
        'id': instance.image_ref or None,
        'min_ram': int(image.get('min_ram', 0)),
        'min_disk': min_disk,
        'properties': {**image['properties'], **{
            name: value for name, value in renames.items() if value}},
    }


def _add_metadata(request: client.Request,
                  instance: objects.Instance) -> None:
    """Add the choices in the server's metadata to a request.

    An unshelve ignores keys that are not allowed, because the server was
    built with them.

    :raises: InstanceUnacceptable when [reservations] server_metadata does not
        allow a key, or a key contradicts the flavor.
    """
    for key, value in instance.metadata.items():
        match = _METADATA.fullmatch(key)
        kind = match and (match[1] or match[2])
        if not kind:
            continue
        if kind not in CONF.reservations.server_metadata:
            if not _is_unshelve(instance):
                raise make_unacceptable_error(
                    instance, f'metadata {key} is not allowed by '
                              f'[reservations] server_metadata')
            LOG.info('Ignored metadata %s, which [reservations] '
                     'server_metadata does not allow', key, instance=instance)
        elif kind == 'claim':
            request['claim'] = value
        elif kind == 'candidate_nodes':
            request['candidate_nodes'] = [
                name.strip() for name in value.split(',')]
        # The operator's flavor takes precedence.
        elif request['extra_specs'].setdefault(key, value) != value:
            raise make_unacceptable_error(
                instance, f'{key}={value} contradicts its flavor')


def _is_unshelve(instance: objects.Instance) -> bool:
    is_offloaded: bool = instance.vm_state == vm_states.SHELVED_OFFLOADED
    return is_offloaded


def find_unknown_metadata(instance: objects.Instance) -> list[str]:
    """Return keys of a server's metadata that are probably misspelt.

    Each is followed by the most similar valid key.
    """
    return [] if _is_unshelve(instance) else [
        spelling.add_hint(key, spelling.METADATA)
        for key in sorted(instance.metadata)
        if not _METADATA.fullmatch(key) and _OURS in (
            key[:len(_OURS)],
            (spelling.find_closest_key(key, spelling.METADATA)
             or '')[:len(_OURS)])]


def warn_of_ignored_specs(request: client.Request,
                          ignored: Iterable[str]) -> None:
    """Log a warning for extra specs that are probably misspelt.

    :param ignored: the extra specs that Ironic does not compare with nodes.
    """
    for key in ignored:
        _warn_of_ignored_spec(request['name'], key)


# One warning is enough for all builds with the same flavor.
@functools.lru_cache(maxsize=1024)
def _warn_of_ignored_spec(flavor: str, key: str) -> None:
    similar = spelling.find_closest_key(key)
    if similar:
        LOG.warning('Extra spec %s of flavor %s is not compared with nodes; '
                    'did you mean %s?', key, flavor, similar)


def _make_group(instance: objects.Instance) -> client.Request:
    """Return the key ``group``; nothing without a server group.

    :raises: InstanceUnacceptable when the group cannot be looked up.
    """
    by = CONF.reservations.server_group_by
    if by is None:
        return {}
    try:
        group = objects.InstanceGroup.get_by_instance_uuid(
            nova_context.get_admin_context(), instance.uuid)
    except exception.InstanceGroupNotFound:
        return {}
    # The cell's conductor reads it from the API database. If that is not
    # configured, the error depends on the release of Nova.
    except Exception:
        LOG.exception(
            'Could not look up the server group. [reservations] '
            'server_group_by requires [api_database] in the configuration of '
            'this cell\'s conductor.', instance=instance)
        raise make_unacceptable_error(
            instance, 'its server group could not be looked up')
    policy = constants.SERVER_GROUP_POLICIES.get(group.policy)
    if policy is None:
        return {}
    return {'group': {'uuid': group.uuid, 'by': by,
                      'policy': policy}}


def check_traits(node_traits: Iterable[str],
                 image_meta: objects.ImageMeta) -> None:
    """Check that an instance's node has the traits of a new image.

    Nova has checked only the host's traits, which are the union of its nodes'
    traits.

    :raises: InstanceFaultRollback, which leaves the instance unchanged.
    """
    missing = sorted(
        set(image_meta.properties.get('traits_required', []))
        - set(node_traits))
    if missing:
        raise exception.InstanceFaultRollback(exception.ImageUnacceptable(
            image_id=image_meta.id,
            reason=f'the node lacks {", ".join(missing)}'))
