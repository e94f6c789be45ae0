# SPDX-License-Identifier: Apache-2.0
"""The resources in responses that several nouns show."""

from collections.abc import Callable
from collections.abc import Iterable
import json
from typing import Any

from wsme import types as wtypes

from ironic_reservations import values
from ironic_reservations.api import responses
from ironic_reservations.api import schema
from ironic_reservations.api import specs
from ironic_reservations.reservations import dry_runs
from ironic_reservations.shared import constants


class Notice(wtypes.Base):
    """A notice of a node; see ``values.Notice``."""

    uuid = wtypes.text
    kind = responses.Json(enum=list(constants.NOTICE_KINDS))
    cordon = responses.Json(schema.FLAG, type='boolean')
    state = responses.Json(enum=list(constants.NOTICE_STATES))
    overdue = bool
    node_uuid = wtypes.text
    node_name = responses.NULLABLE_TEXT
    starts_at = responses.Time(request=schema.TIME)
    due_at = responses.SETTABLE_TIME
    latest_start = responses.SETTABLE_TIME
    scheduled_at = responses.NULLABLE_TIME
    ends_at = responses.SETTABLE_TIME
    category = responses.settable_text(maxLength=64)
    description = responses.settable_text()
    ticket = responses.settable_text()
    # Only PATCH sets it.
    action = responses.settable_text()
    project_id = responses.NULLABLE_TEXT
    created_by = responses.NULLABLE_TEXT
    created_at = responses.Time()
    updated_at = responses.NULLABLE_TIME


def present_on_node(node_notices: values.NodeNotices,
                    reach: values.Ownership) -> dict[str, Any]:
    """Return the notices of a node, and the number of others, as JSON.

    :param reach: that of the caller.
    """
    return {'notices': [present_notice(notice, reach)
                        for notice in node_notices.shown],
            'more_notices': node_notices.more}


def present_notice(notice: values.Notice, reach: values.Ownership
                   ) -> dict[str, Any]:
    """Return a notice as JSON.

    :param reach: that of the caller. Other projects than the owner of the
        node do not see who has created the notice of an operator, or of the
        owner.
    """
    attributes = {**vars(notice), 'cordon': bool(notice.cordon),
                  'overdue': bool(notice.overdue)}
    if not (reach.has_project(notice.node_owner)
            or reach.has_project(notice.project_id)):
        attributes |= {'project_id': None, 'created_by': None}
    return responses.make_json(Notice, attributes)


# A size of a node, which operators may have set to a fraction.
_SIZE = responses.Json(type='number', minimum=0)


class Profile(wtypes.Base):
    """A capacity row: the numbers of nodes of a hardware profile."""

    resource_class = responses.NULLABLE_TEXT
    memory_mb = _SIZE
    vcpus = _SIZE
    local_gb = _SIZE
    cpu_arch = responses.NULLABLE_TEXT
    capabilities = responses.Json(
        type='object', additionalProperties={'type': 'string'})
    traits = [wtypes.text]
    conductor_group = responses.NULLABLE_TEXT
    shard = responses.NULLABLE_TEXT
    owner = responses.NULLABLE_TEXT
    lessee = responses.NULLABLE_TEXT
    pool_project_id = responses.NULLABLE_TEXT
    total = responses.COUNT
    free = responses.COUNT
    reserved = responses.COUNT
    taken = responses.COUNT
    out_of_service = responses.COUNT
    claimable = responses.COUNT
    # Only if the request names a host.
    held = responses.COUNT
    # Only of sums by project.
    project_id = responses.NULLABLE_TEXT
    healthy = responses.COUNT


class Reservation(wtypes.Base):
    """A node held for an instance; see ``values.Reservation``."""

    instance_uuid = wtypes.text
    node_uuid = wtypes.text
    node_name = responses.NULLABLE_TEXT
    host = responses.NULLABLE_TEXT
    state = responses.Json(enum=[*constants.STATES])
    provision_state = wtypes.text
    resource_class = responses.NULLABLE_TEXT
    health = responses.NULLABLE_TEXT
    maintenance = bool
    project_id = responses.NULLABLE_TEXT
    user_id = responses.NULLABLE_TEXT
    request_spec = responses.Json(
        type='object', properties=specs.omit_keys(*specs.ENVELOPE))
    # Only of a member of a group; levels and segment only with segments.
    group = responses.Json(
        type='object', required=['uuid', 'policy', 'by', 'domain'],
        properties={
            'uuid': schema.UUID, 'policy': schema.POLICY, 'by': schema.BY,
            'levels': responses.LEVELS.schema, 'domain': responses.DOMAIN,
            'segment': {'type': ['integer', 'null']}})
    expires_at = responses.NULLABLE_TIME
    description = responses.NULLABLE_TEXT
    created_at = responses.Time()
    updated_at = responses.NULLABLE_TIME
    # The planned and the open ones of the node, and the number of others. In
    # lists and groups only if requested.
    notices = [Notice]
    more_notices = responses.COUNT
    links = responses.Json(type='array', items=responses.whole_object(
        href={'type': 'string', 'format': 'uri'}, rel={'type': 'string'}))


# The number of other notices is always next to the notices.
FIELDS = tuple(attribute.name
               for attribute in wtypes.list_attributes(Reservation)
               if attribute.name != 'more_notices')

#: Default fields of reservations in lists and groups. A request spec, or all
#: notices, may be a thousand times as long as all other fields.
LIST_FIELDS = tuple(name for name in FIELDS
                    if name not in ('request_spec', 'notices'))

# Fields that are computed from attributes of a values.Reservation: a function,
# and the attributes that it reads. All other fields are attributes.
_COMPUTED: dict[str, tuple[Callable[[values.Reservation], Any],
                           tuple[str, ...]]] = {
    'state': (lambda reservation: reservation.state, ('provision_state',)),
    'request_spec': (
        lambda reservation: json.loads(
            reservation.request_spec),  # type: ignore[arg-type]  # was read
        ('request_spec',)),
    'group': (
        lambda reservation: present_membership(reservation),
        ('group_uuid', 'group_policy', 'group_by', 'group_segment_levels',
         'domain', 'segment')),
    'maintenance': (lambda reservation: bool(reservation.maintenance),
                    ('maintenance',)),
    # Only a reserved node has an expiry time.
    'expires_at': (lambda reservation: reservation.effective_expiry,
                   ('expires_at', 'provision_state')),
    'links': (lambda reservation: [{
        'href': responses.make_url(f'/{reservation.instance_uuid}'),
        'rel': 'self'}], ('instance_uuid',)),
}


def present_membership(reservation: values.Reservation) -> dict[str, Any]:
    """Return the group of a reservation as JSON."""
    group = {'uuid': reservation.group_uuid,
             'policy': reservation.group_policy, 'by': reservation.group_by}
    if reservation.group_segment_levels is None:
        return group | {'domain': reservation.domain}
    return group | {
        'levels': json.loads(reservation.group_segment_levels),
        'domain': json.loads(reservation.domain or 'null'),
        'segment': reservation.segment}


class DryRun(wtypes.Base):
    """The result of a dry run; see ``dry_runs.dry_run``."""

    matching_nodes = responses.COUNT
    profiles = [Profile]
    explanation = responses.EXPLANATION
    # Only for a new group.
    members = responses.ROOM
    domains = responses.DOMAINS
    # Only for a new group with segments; the level only if there are too few.
    segments = responses.ROOM
    level = wtypes.text
    # Only if nothing but the quota prevents the hold.
    quota = responses.QUOTA
    # Only if there are extra specs that are not compared with nodes.
    ignored = responses.TEXTS


def list_attributes(fields: Iterable[str]) -> set[str]:
    """Return the attributes of a values.Reservation that fields need."""
    return {attribute for name in fields for attribute in (
        ('node_id', 'has_notices') if name == 'notices'
        else _COMPUTED[name][1] if name in _COMPUTED else (name,))}


def present_reservation(reservation: values.Reservation,
                        fields: Iterable[str] = FIELDS) -> dict[str, Any]:
    """Return a reservation as JSON.

    :param fields: names of the fields to show; links are always shown, and
        notices only by ``_make_presenter``.
    """
    names = {*fields, 'links'} - {'notices'}
    if reservation.group_uuid is None:
        names.discard('group')
    return responses.make_json(Reservation, {
        name: _COMPUTED[name][0](reservation) if name in _COMPUTED
        else getattr(reservation, name) for name in names})


def present_dry_run(result: dry_runs.DryRun) -> dict[str, Any]:
    """Return the result of a dry run as JSON.

    The domains of a group may occupy half of the response, and the profiles
    the rest.
    """
    verdict = result.verdict
    items = responses.present_verdict(verdict) | {
        'matching_nodes': verdict.matching_nodes, 'profiles': []}
    if verdict.domains is not None:
        items['domains'] = responses.fit_rows(
            verdict.domains,
            lambda domain: {'value': domain[0], 'nodes': domain[1]},
            responses.MAX_PAGE // 2)
    if verdict.quota is not None:
        items['quota'] = vars(verdict.quota)
    response = responses.make_json(DryRun, items)
    response['profiles'] = responses.fit_rows(
        result.profiles,
        lambda profile: responses.make_json(Profile, profile),
        responses.MAX_PAGE - responses.count_bytes(response))
    return response
