# SPDX-License-Identifier: Apache-2.0
"""BFX05-01: list the planned maintenance that was mailed to a project."""

import _common


def list_notifications(conn, args):
    """Return maintenance of the project's machines that had a lead time."""
    return {'notification_channel_observable': True, 'notifications': [
        {**notification, 'window_start': notice.starts_at}
        for notice, notification in _common.list_notifications(
            conn, args.deliveries, 'planned_maintenance', kind='maintenance')
        if notice.starts_at > notice.created_at]}


_common.run(list_notifications, 'deliveries')
