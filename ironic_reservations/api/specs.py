# SPDX-License-Identifier: Apache-2.0
"""The keys of requests for nodes that several nouns have: schemas, values."""

import dataclasses
import json
from typing import Any

from oslo_utils import uuidutils

from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.api import patches
from ironic_reservations.api import requests
from ironic_reservations.api import schema
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import request_spec
from ironic_reservations.shared import constants
from ironic_reservations.shared import text

#: Keys that only system-scope and service callers may give.
OWNER = ('host', 'project_id', 'user_id')

#: Schemas of the keys that PATCH can change.
CHANGEABLE: dict[str, Any] = {
    'host': schema.IDENT_OR_NULL,
    # read_lease() checks [reservations] max_lease, the maximum.
    'expires_in': {**schema.INTEGER, 'minimum': 1},
    'description': schema.nullable_text(),
}

#: Maximum number of nodes that a request avoids.
MAX_AVOIDED = 16

#: Schemas of the keys of a body that are not in the request spec. Requests
#: that differ only in these are equal.
ENVELOPE: dict[str, Any] = {
    **CHANGEABLE,
    'instance_uuid': schema.UUID_OR_NULL,
    'project_id': schema.IDENT_OR_NULL,
    'user_id': schema.IDENT_OR_NULL,
    'holder': schema.UUID_OR_NULL,
    'claim': schema.CLAIM,
    'avoid': {'type': ['array', 'null'], 'maxItems': MAX_AVOIDED,
              'items': schema.NAME},
}

REQUEST_SPEC: dict[str, Any] = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        **ENVELOPE,
        'memory_mb': schema.INTEGER,
        'vcpus': schema.INTEGER,
        'root_gb': schema.INTEGER,
        'ephemeral_gb': schema.INTEGER,
        'swap': schema.INTEGER,
        'vcpu_weight': schema.INTEGER,
        'rxtx_factor': schema.NUMBER,
        'name': schema.nullable_text(),
        'flavorid': schema.nullable_text(),
        'extra_specs': schema.text_map(1024),
        'image': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'properties': {
                'id': schema.nullable_text(),
                'properties': schema.text_map(1024),
                'min_ram': schema.INTEGER,
                'min_disk': schema.INTEGER,
            },
        },
        'resource_class': schema.nullable_text(minLength=1),
        'conductor_group': schema.nullable_text(),
        'shard': schema.nullable_text(),
        'candidate_nodes': {
            'type': ['array', 'null'], 'minItems': 1,
            'maxItems': request_spec.MAX_CANDIDATES, 'items': schema.IDENT,
        },
        'ownership': {'enum': [*constants.OWNERSHIPS, None]},
        'group': {
            'type': ['object', 'null'],
            'additionalProperties': False,
            'required': ['uuid'],
            'properties': {'uuid': schema.UUID, 'policy': schema.POLICY,
                           'by': schema.BY, 'segment': schema.INTEGER},
        },
    },
}


def omit_keys(*names: str) -> dict[str, Any]:
    """Return the schemas of the keys of a request spec without some keys."""
    return {name: value for name, value in REQUEST_SPEC['properties'].items()
            if name not in names}


#: Schemas of the keys that describe the nodes of a new group or pool.
NODES: dict[str, Any] = {
    'policy': schema.POLICY,
    'by': schema.BY,
    'levels': {
        'type': ['array', 'null'], 'minItems': 1, 'maxItems': 2,
        'items': schema.LEVEL,
    },
    'request': {**REQUEST_SPEC, 'properties': omit_keys(*ENVELOPE, 'group')},
}

PATCH_VALUES = patches.make_values(CHANGEABLE)


def select_spec(body: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a body that are the request spec.

    They are the identity of the request, so UUIDs are in lower case.
    """
    spec = {key: value for key, value in body.items() if key not in ENVELOPE}
    if spec.get('group') is not None:
        spec['group'] = {**spec['group'],
                         'uuid': spec['group']['uuid'].lower()}
    return spec


def read_permitted_assignment(caller: context.RequestContext,
                              body: dict[str, Any]) -> values.Assignment:
    """Return the assignment in a body, by default to the caller.

    :raises: NotAuthorized if the caller must not reserve for others.
    """
    keys = [key for key in OWNER if body.get(key) is not None]
    if keys and not caller.may('create_restricted'):
        raise exception.NotAuthorized(
            f'{", ".join(keys)}: only system-scope and service callers may '
            f'reserve nodes for others; leave it out to reserve for yourself.')
    return requests.read_fields(
        values.Assignment, body, project_id=caller.project_id,
        user_id=caller.user_id)


def read_avoid(caller: context.RequestContext,
               body: dict[str, Any]) -> frozenset[str]:
    """Return the UUIDs of the nodes that a request avoids, in lower case.

    :raises: NotAuthorized, InvalidInput.
    """
    uuids = body.get('avoid')
    if uuids is None:
        return frozenset()
    if not caller.may('create_restricted'):
        raise exception.NotAuthorized(
            'avoid: only system-scope and service callers may name nodes to '
            'avoid; leave it out.')
    for number, uuid in enumerate(uuids):
        if not uuidutils.is_uuid_like(uuid):
            raise exception.InvalidInput(
                f'avoid.{number}', 'must be the UUID of a node', got=uuid)
    return frozenset(map(str.lower, uuids))


def read_lease(reach: values.Ownership, body: dict[str, Any]) -> int | None:
    """Return the lease in a body, or the default.

    :param reach: that of the caller.
    :returns: seconds, or None for a reservation that does not expire.
    :raises: InvalidInput; see ``check_lease``.
    """
    options, seconds = conf.CONF.reservations, body.get('expires_in')
    if seconds is None:
        seconds = min(options.default_lease, options.max_lease) or None
    return check_lease(seconds, reach)


def check_lease(seconds: float | None, reach: values.Ownership) -> int | None:
    """Return a lease as an integer number of seconds.

    :param seconds: None for no lease.
    :param reach: that of the caller. A project-scoped caller needs a lease if
        [reservations] require_lease is set.
    :raises: InvalidInput if there is no lease, or if it exceeds
        [reservations] max_lease.
    """
    options = conf.CONF.reservations
    maximum = (f'at most {options.max_lease} '
               f'({text.format_duration(options.max_lease)}), see '
               f'[reservations] max_lease')
    if seconds is None:
        if reach.is_limited and options.require_lease:
            raise exception.InvalidInput(
                'expires_in', f'is required, because [reservations] '
                              f'require_lease is set; it must be {maximum}')
        return None
    if seconds > options.max_lease:
        raise exception.InvalidInput(
            'expires_in', f'must be {maximum}', got=seconds)
    return int(seconds)


def read_changes(operations: list[dict[str, Any]],
                 reach: values.Ownership = values.ALL) -> dict[str, Any]:
    """Return the changes of a JSON Patch.

    :param operations: validated by ``PATCH_BODY``.
    :param reach: that of the caller. A project-scoped caller must keep a lease
        if [reservations] require_lease is set.
    :returns: see ``updates.update_reservation``.
    :raises: InvalidInput.
    """
    changes = patches.read_values(operations, PATCH_VALUES, ('host',))
    if 'expires_in' in changes:
        changes['lease'] = check_lease(
            changes.pop('expires_in'), reach)
    return changes


def read_group(group: dict[str, Any], uuid: str,
               project_id: str | None) -> values.GroupRequest:
    """Return the group that a request names.

    :param group: may have the keys ``policy`` and ``by``, or ``segment``.
    :param project_id: project that the group belongs to.
    :raises: InvalidInput if only one of policy and by is set, or one of them
        and segment.
    """
    policy, by = group.get('policy'), group.get('by')
    segment = group.get('segment')
    if segment is not None and (policy, by) != (None, None):
        raise exception.InvalidInput(
            'segment', 'cannot be combined with policy and by, which the '
                       'group already has')
    if policy is None and by is not None:
        raise exception.InvalidInput('policy', 'is required with by')
    if by is None and policy is not None:
        raise exception.InvalidInput('by', 'is required with policy')
    return requests.read_fields(values.GroupRequest, {
        **group, 'uuid': uuid, 'project_id': project_id,
        'segment': None if segment is None else int(segment)})


def read_levels(levels: list[dict[str, Any]],
                group: values.GroupRequest,
                members: int) -> values.GroupRequest:
    """Return a new group with the levels that a request names.

    :param levels: one or two objects with the keys ``by``, ``policy`` and
        maybe ``segment``, the outer level first.
    :param group: the group without levels.
    :param members: number of members.
    :raises: InvalidInput.
    """
    *outer, inner = levels
    size, field = inner.get('segment'), f'levels.{len(outer)}'
    if group.policy is not None:
        raise exception.InvalidInput(
            'levels', 'cannot be combined with policy and by')
    if any(level.get('segment') is not None for level in outer):
        raise exception.InvalidInput(
            'levels.0.segment', 'is allowed only in the last level')
    if size is None:
        if outer:
            raise exception.InvalidInput(
                f'{field}.segment', 'is required with two levels')
        return dataclasses.replace(
            group, policy=inner['policy'], by=inner['by'])
    if inner['policy'] != group_policy.PACK:
        raise exception.InvalidInput(
            f'{field}.policy', 'must be pack with segment',
            got=inner['policy'])
    if members % size:
        raise exception.InvalidInput(
            f'{field}.segment', f'must divide the number of members, '
                                f'{members}', got=size)
    if outer and outer[0]['by'] == inner['by']:
        raise exception.InvalidInput(
            f'{field}.by', 'must differ from that of the first level',
            got=inner['by'])
    return dataclasses.replace(
        group, segments=members // int(size), segment_levels=json.dumps([
            {name: int(value) if name == 'segment' else value
             for name, value in sorted(level.items()) if value is not None}
            for level in levels]))


def read_membership(body: dict[str, Any],
                    project_id: str | None) -> values.GroupRequest | None:
    """Return the group that a reservation is to join.

    :raises: InvalidInput.
    """
    group = body.get('group')
    if group is None:
        return None
    with requests.prefix_field('group'):
        return read_group(group, group['uuid'].lower(), project_id)


def make_matcher(reach: values.Ownership, project_id: str | None,
                 spec: dict[str, Any],
                 use: matching.Use = matching.TO_HOLD,
                 avoid: frozenset[str] = frozenset()) -> matching.Matcher:
    """Return the Matcher of a validated request spec.

    :param reach: that of the caller.
    :param project_id: project of the reservation.
    :param use: what the node is for. A claim need not constrain it, and may
        claim a dedicated one.
    :param avoid: see ``matching.Matcher``.
    :raises: NotAuthorized, InvalidInput.
    """
    kind = spec.get('ownership') or ('project' if reach.is_limited else 'any')
    if reach.is_limited and kind not in ('project', reach.kind):
        raise exception.NotAuthorized(
            f'ownership: "{kind}" is not allowed. Only system-scope and '
            f'service callers may reserve nodes that their project does not '
            f'own, lease or have in a pool; the policy '
            f'baremetal:reservation:create_unowned may allow '
            f'"project_or_none".')
    if kind != 'any' and project_id is None and not reach.is_limited:
        raise exception.InvalidInput(
            'ownership', 'must be any for a reservation without project_id',
            got=kind)
    return matching.Matcher(
        request_spec.RequestSpec.from_dict(
            spec, conf.CONF.reservations.match,
            required=use != matching.TO_CLAIM),
        reach, values.Ownership(
            reach.project_id if reach.is_limited else project_id, kind),
        dedicated=() if use == matching.TO_CLAIM else tuple(
            conf.CONF.reservations.dedicated_traits), use=use, avoid=avoid)
