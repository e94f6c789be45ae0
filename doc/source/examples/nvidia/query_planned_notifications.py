# SPDX-License-Identifier: Apache-2.0
"""BFX05-01: list the planned maintenance that is announced to a project."""

import _common


def list_notifications(conn, args):
    """Return maintenance of the project's machines that had a lead time."""
    return {'notification_channel_observable': True, 'notifications': [
        _common.describe_notification(notice, 'planned_maintenance')
        for notice in conn.baremetal_reservations.notices(kind='maintenance')
        if notice.starts_at > notice.created_at]}


_common.run(list_notifications)
