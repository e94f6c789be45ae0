# SPDX-License-Identifier: Apache-2.0
"""What a host asks Ironic for, on behalf of an instance."""

import functools
import re

from nova import context as nova_context
from nova import exception
from nova import objects
from nova import utils
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from oslo_log import log as logging

from ironic_reservations import constants
from ironic_reservations import spelling

from . import conf

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: How our keys of a server's metadata begin.
_OURS = 'reservations:'

# Those that are passed on (spelling.METADATA).
_METADATA = re.compile(f'{_OURS}(?:(claim|candidate_nodes)|(trait):.+)')

#: How many characters Nova keeps of a server's fault, and how many of them it
#: uses itself: "Build of instance UUID aborted: ".
_FAULT, _ABORTED = 255, 64


def unacceptable(instance, reason):
    """Return the error that ends a build.

    Its message names the instance, as Nova's own does before it. Where Nova
    would therefore cut the reason off, the reason is the whole message.
    """
    error = exception.InstanceUnacceptable(instance_id=instance.uuid,
                                           reason=reason)
    if _ABORTED + len(error.format_message()) > _FAULT:
        return exception.InstanceUnacceptable(reason)
    return error


def to_build(instance, host, partition):
    """Return the body of POST /v1/reservations for an instance to be built.

    :param host: the compute host that builds the instance.
    :param partition: the host's part of the fleet, as
        ``{'conductor_group': …, 'shard': …}``; None for any.
    :raises: InstanceUnacceptable when what the server's user has chosen is
        not allowed or contradicts the flavor, or when the server group cannot
        be looked up.
    """
    request = {**_described(instance, host, partition),
               'expires_in': CONF.reservations.lease}
    # An Ironic that is not upgraded yet does not know the key.
    if CONF.reservations.ownership != 'any':
        request['ownership'] = CONF.reservations.ownership
    _add_chosen(request, instance)
    # The member of a group that is claimed stays the member of that one.
    if 'claim' not in request:
        request |= _group(instance)
    return request


def to_adopt(instance, host, partition):
    """Return the same for an instance that has a node already.

    :raises: InstanceUnacceptable when its server group cannot be looked up.
    """
    return {**_described(instance, host, partition), **_group(instance)}


def _described(instance, host, partition):
    """What instance, flavor and image say."""
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
        'image': _image(instance, volume_backed),
        **partition,
    }


def _image(instance, volume_backed):
    """Return the value of the request's key ``image``."""
    # The image's properties are taken from the instance's system metadata,
    # because Nova's ImageMetaProps has only those that Nova knows, and no
    # forbidden traits. The metadata that is not the image's is left out,
    # because it changes, and a changed request is another one to the API.
    prefix = utils.SM_IMAGE_PROP_PREFIX
    image = utils.get_image_from_system_metadata({
        key: value for key, value in instance.system_metadata.items()
        if key.startswith(prefix)})
    # Nova stores the flavor's root disk as the image's min_disk, unless the
    # flavor has none, and has checked before that the image fits in there.
    min_disk = (0 if volume_backed or instance.flavor.root_gb
                else int(image.get('min_disk', 0)))
    # Properties that an image may have under a name of an older Nova.
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


def _add_chosen(request, instance):
    """Add what the server's metadata asks for.

    An unshelve ignores what is not allowed, because the server was built with
    it.

    :raises: InstanceUnacceptable when it asks for what [reservations]
        server_metadata does not allow, or contradicts the flavor.
    """
    for key, value in instance.metadata.items():
        match = _METADATA.fullmatch(key)
        kind = match and (match[1] or match[2])
        if not kind:
            continue
        if kind not in CONF.reservations.server_metadata:
            if not _is_unshelved(instance):
                raise unacceptable(
                    instance, f'metadata {key} is not allowed by '
                              f'[reservations] server_metadata')
            LOG.info('Metadata %s is ignored', key, instance=instance)
        elif kind == 'claim':
            request['claim'] = value
        elif kind == 'candidate_nodes':
            request['candidate_nodes'] = [
                name.strip() for name in value.split(',')]
        # An operator who has it in the flavor has the last word.
        elif request['extra_specs'].setdefault(key, value) != value:
            raise unacceptable(instance,
                               f'{key}={value} contradicts its flavor')


def _is_unshelved(instance):
    return instance.vm_state == vm_states.SHELVED_OFFLOADED


def unknown_metadata(instance):
    """Return the keys of a server's metadata that were probably meant for us.

    :returns: list of texts: each key, with the closest known one.
    """
    return [] if _is_unshelved(instance) else [
        spelling.add_hint(key, spelling.METADATA)
        for key in sorted(instance.metadata)
        if not _METADATA.fullmatch(key) and _OURS in (
            key[:len(_OURS)],
            (spelling.find_closest_key(key, spelling.METADATA)
             or '')[:len(_OURS)])]


def warn_of_ignored(request, ignored):
    """Warn of extra specs that are probably misspelt.

    :param ignored: the extra specs that Ironic does not compare with nodes.
    """
    for key in ignored:
        _warn_of_ignored(request['name'], key)


# Each build repeats what the one before it has said of its flavor.
@functools.lru_cache(maxsize=1024)
def _warn_of_ignored(flavor, key):
    similar = spelling.find_closest_key(key)
    if similar:
        LOG.warning('Extra spec %s of flavor %s is not compared with nodes; '
                    'did you mean %s?', key, flavor, similar)


def _group(instance):
    """The key ``group`` of an instance that is in a server group, as a dict.

    :raises: InstanceUnacceptable when that cannot be looked up.
    """
    by = CONF.reservations.server_group_by
    if by is None:
        return {}
    try:
        group = objects.InstanceGroup.get_by_instance_uuid(
            nova_context.get_admin_context(), instance.uuid)
    except exception.InstanceGroupNotFound:
        return {}
    # The cell's conductor reads it, from a database of which that may not
    # know; what comes back then depends on the release of Nova.
    except Exception:
        LOG.exception(
            'Does the conductor of this cell know [api_database]? Without it '
            'nothing can be built with [reservations] server_group_by.',
            instance=instance)
        raise unacceptable(
            instance,
            'whether it is in a server group could not be looked up')
    policy = constants.SERVER_GROUP_POLICIES.get(group.policy)
    if policy is None:
        return {}
    return {'group': {'uuid': group.uuid, 'by': by,
                      'policy': policy}}


def check_traits(has, image_meta):
    """Check that an instance's node has the traits of a new image.

    Nova has checked only that the host has them, and a host has the traits of
    all of its nodes together.

    :param has: the traits of the node.
    :raises: InstanceFaultRollback, which leaves the instance as it is.
    """
    missing = sorted(
        set(image_meta.properties.get('traits_required', [])) - set(has))
    if missing:
        raise exception.InstanceFaultRollback(exception.ImageUnacceptable(
            image_id=image_meta.id,
            reason=f'the node lacks {", ".join(missing)}'))
