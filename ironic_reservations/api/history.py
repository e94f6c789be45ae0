# SPDX-License-Identifier: Apache-2.0
"""Handles requests for the history: /v1/reservations/history."""

import datetime
from typing import Any

from wsme import types as wtypes

from ironic_reservations import values
from ironic_reservations.api import markers
from ironic_reservations.api import requests
from ironic_reservations.api import resources
from ironic_reservations.api import responses
from ironic_reservations.api import schema
from ironic_reservations.reservations import history
from ironic_reservations.shared import constants

LIST_QUERY = schema.query_validator(
    node=schema.IDENT, instance_uuid=schema.UUID, project_id=schema.IDENT,
    ended_after=schema.NAME, limit=schema.POSITIVE, marker=schema.MARKER)


class EndedReservation(wtypes.Base):
    """A reservation that has ended; see ``values.EndedReservation``."""

    instance_uuid = wtypes.text
    node_uuid = wtypes.text
    node_name = responses.NULLABLE_TEXT
    node_owner = responses.NULLABLE_TEXT
    host = responses.NULLABLE_TEXT
    resource_class = responses.NULLABLE_TEXT
    health = responses.NULLABLE_TEXT
    maintenance = responses.Json(type=['boolean', 'null'])
    project_id = responses.NULLABLE_TEXT
    user_id = responses.NULLABLE_TEXT
    # Only of a member of a group.
    group = resources.Reservation.group
    expires_at = responses.NULLABLE_TIME
    description = responses.NULLABLE_TEXT
    created_at = responses.Time()
    updated_at = responses.NULLABLE_TIME
    ended_at = responses.Time()
    ended_by = responses.Json(enum=[*constants.ENDS])


def list_history() -> dict[str, Any]:
    """GET /v1/reservations/history"""
    query, caller = requests.read_query(LIST_QUERY), requests.get_caller()
    caller.authorize('list')
    reach = caller.get_reach('list_all')
    limit = responses.pop_limit(query)
    after = markers.decode(
        query.pop('marker', None), 'history', [datetime.datetime, int],
        lambda uuid: history.find_position(uuid, reach),
        'the instance UUID of a reservation that has ended')
    if 'instance_uuid' in query:
        query['instance_uuid'] = query['instance_uuid'].lower()
    if 'ended_after' in query:
        query['ended_after'] = requests.read_moment(
            'ended_after', query['ended_after'])
    rows = history.find_ended(history.Filters(reach, **query),
                              (after[0], after[1]) if after else None,
                              limit + 1)
    return responses.make_page(
        'history', rows, limit, _present,
        lambda row: markers.encode('history', [row.ended_at, row.id]),
        '/history')


def _present(row: values.EndedReservation) -> dict[str, Any]:
    """Return a reservation that has ended as JSON."""
    group = ({} if row.group_uuid is None
             else {'group': resources.present_membership(row)})
    return responses.make_json(EndedReservation, {**vars(row), **group})
