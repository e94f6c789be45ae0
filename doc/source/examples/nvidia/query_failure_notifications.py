# SPDX-License-Identifier: Apache-2.0
"""BFX06-01: list the failures that were mailed to a project."""

import _common


def list_notifications(conn, args):
    """Return the faults that others have reported of the project's machines.

    A project does not see who has created the notices of others.
    """
    return {'notification_channel_observable': True, 'notifications': [
        {**notification, 'detected_at': notice.created_at}
        for notice, notification in _common.list_notifications(
            conn, args.deliveries, 'node_failure', kind='fault')
        if notice.created_by is None]}


_common.run(list_notifications, 'deliveries')
