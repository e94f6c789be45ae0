# SPDX-License-Identifier: Apache-2.0
"""Handles requests for notices: /v1/reservations/notices."""

import hashlib
import json
from typing import Any

from oslo_utils import uuidutils

from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.api import markers
from ironic_reservations.api import patches
from ironic_reservations.api import requests
from ironic_reservations.api import resources
from ironic_reservations.api import responses
from ironic_reservations.api import schema
from ironic_reservations.reservations import notice_lookup
from ironic_reservations.reservations import notice_updates
from ironic_reservations.reservations import notices
from ironic_reservations.reservations import targets
from ironic_reservations.shared import constants

LIST_QUERY = schema.query_validator(
    uuid=schema.UUID, node=schema.IDENT,
    kind={'enum': list(constants.NOTICE_KINDS)},
    state={'enum': list(constants.NOTICE_STATES)},
    ticket=schema.NAME, overdue=schema.BOOLEAN, project_id=schema.IDENT,
    limit=schema.POSITIVE, marker=schema.MARKER)

UPDATE_QUERY = schema.query_validator(node=schema.IDENT)

#: Schemas of the keys that PATCH can change.
CHANGEABLE = responses.list_settable(resources.Notice)

CREATE_BODY = schema.Validator(schema.closed_object({
    'uuid': schema.UUID_OR_NULL,
    'kind': {'enum': list(constants.NOTICE_KINDS)},
    # _find_targets() checks [reservations] max_members.
    'nodes': {'type': ['array', 'null'], 'minItems': 1,
              'maxItems': conf.MOST_MEMBERS, 'items': schema.IDENT},
    'by': {'type': ['object', 'null'], 'minProperties': 1, 'maxProperties': 1,
           'propertyNames': schema.LEVEL_BY,
           'additionalProperties': schema.NAME},
    **{name: value for name, value in CHANGEABLE.items() if name != 'action'},
}, required=['kind']), 'body')

PATCH_BODY = patches.make_body(CHANGEABLE)

PATCH_VALUES = patches.make_values(CHANGEABLE)

#: Keys that PATCH cannot remove, because a notice always has them.
_NOT_REMOVED = ('cordon', 'starts_at')

#: Times that PATCH can set to "now".
_NOW = ('starts_at', 'ends_at')


def create_notices() -> dict[str, Any]:
    """POST /v1/reservations/notices"""
    requests.read_query(schema.NO_QUERY)
    caller = requests.get_caller()
    authority = _make_authority(caller)
    if authority.reach.project_id == '':
        # The caller is neither an operator nor has a project.
        caller.authorize('notices')
    request = _read_request(caller, requests.read_body(CREATE_BODY))
    rows, is_new = notices.create_notices(request, authority)
    responses.set_created(
        is_new, responses.make_url(f'/notices?uuid={request.uuid}'))
    return _present_all(rows, authority.reach)


def _make_authority(caller: context.RequestContext) -> targets.Authority:
    reach = caller.get_reach('notices')
    return targets.Authority(
        may_write=lambda target: (not reach.is_limited
                                  or caller.may('notices', target)),
        may_report=lambda target: caller.may('update', target),
        reach=reach)


def _read_request(caller: context.RequestContext,
                  body: dict[str, Any]) -> notices.Request:
    """Return the request in a body.

    :raises: InvalidInput.
    """
    kind, nodes, by = body['kind'], body.get('nodes'), body.get('by')
    if (nodes is None) == (by is None):
        raise exception.InvalidInput(
            'nodes', 'is required, or by instead; not both')
    cordon = body.get('cordon')
    if cordon is None:
        cordon = constants.NOTICE_KINDS[kind]
    identity = {name: value for name, value in body.items()
                if name != 'uuid' and value is not None} | {'cordon': cordon}
    is_failed_build = (
        (kind, body.get('category')) == ('fault', constants.BUILD)
        and not cordon and not any(
            body.get(name) for name in (*notices.TIMES, 'ticket'))
        and len(nodes or ()) == 1 and caller.may('create_restricted'))
    return notices.Request(
        uuid=(body.get('uuid') or uuidutils.generate_uuid()).lower(),
        kind=kind, cordon=cordon, nodes=tuple(nodes or ()),
        domain=next(iter(by.items())) if by else None,
        times={name: requests.read_time(name, body)
               for name in notices.TIMES},
        texts=requests.read_fields(values.NoticeTexts, body),
        digest=hashlib.sha256(json.dumps(
            identity, sort_keys=True).encode()).hexdigest(),
        created_by=caller.user_id, is_failed_build=is_failed_build)


def list_notices() -> dict[str, Any]:
    """GET /v1/reservations/notices"""
    query, caller = requests.read_query(LIST_QUERY), requests.get_caller()
    caller.authorize('list')
    reach = caller.get_reach('notices')
    limit = responses.pop_limit(query)
    after = markers.decode(
        query.pop('marker', None), 'notices', [int],
        lambda uuid: notice_lookup.find_position(uuid, reach),
        'the UUID of a notice')
    if 'uuid' in query:
        query['uuid'] = query['uuid'].lower()
    rows = notice_lookup.find_notices(
        query, reach, after[0] if after else None, limit + 1)
    return responses.make_page(
        'notices', rows, limit,
        lambda notice: resources.present_notice(notice, reach),
        lambda notice: markers.encode('notices', [notice.id]), '/notices')


def update_notices(uuid: str) -> dict[str, Any]:
    """PATCH /v1/reservations/notices/{uuid}"""
    node = requests.read_query(UPDATE_QUERY).get('node')
    authority = _make_authority(requests.get_caller())
    changes = patches.read_values(
        requests.read_body(PATCH_BODY), PATCH_VALUES, _NOT_REMOVED)
    for name in notices.TIMES & changes.keys():
        changes[name] = (
            notices.AT_ONCE if changes[name] == 'now' and name in _NOW
            else requests.read_time(name, changes))
    return _present_all(
        notice_updates.update_notices(uuid, node, changes, authority),
        authority.reach)


def _present_all(rows: list[values.Notice],
                 reach: values.Ownership) -> dict[str, Any]:
    return {'notices': [resources.present_notice(notice, reach)
                        for notice in rows]}
