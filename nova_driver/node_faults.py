# SPDX-License-Identifier: Apache-2.0
"""Finds out whether a build has failed because of its node.

Ironic's history shows deployments that failed after Ironic had accepted them.
Earlier failures, such as that of a node without ports, are shown to the driver
only, and every further build would fail on the same node.
"""

from __future__ import annotations

from collections.abc import Iterator
import re

from nova import exception
from openstack import exceptions as sdk_exc

#: Responses of Ironic that may be about the node: it refuses the request, no
#: conductor serves the node, or its conductor has an error.
_STATUSES = (400, 404, 500)

#: Words in the reasons of failures that another node would have, too.
_OUTSIDE = re.compile(
    'image|glance|network|neutron|volume|cinder', re.IGNORECASE)

#: The message of Nova's driver about a node that fails Ironic's validation.
_VALIDATION = re.compile(
    r'failed to validate\. \(deploy: (?P<deploy>.*), power: (?P<power>.*), '
    # Storage depends on the volumes of the instance.
    r'storage: .*\)', re.DOTALL)

#: The reason of an interface that passes it.
_VALID = 'No Error'


def find_reason(error: BaseException) -> str | None:
    """Return why a node could not be prepared for its instance.

    :param error: the exception of a method of Nova's Ironic driver.
    :returns: None if the cause is, or may be, outside of the node.
    """
    reasons = [reason for reason in _list_reasons(error)
               if not _OUTSIDE.search(reason)]
    return '; '.join(reasons) or None


def _list_reasons(error: BaseException) -> Iterator[str]:
    if isinstance(error, exception.ValidationError):
        match = _VALIDATION.search(error.format_message())
        for name, reason in (match.groupdict() if match else {}).items():
            if reason != _VALID:
                yield f'{name}: {reason}'
        return
    # Nova's driver raises an error of its own while it handles Ironic's.
    for cause in error, error.__context__:
        if isinstance(cause, sdk_exc.HttpException):
            if (cause.status_code in _STATUSES
                    and '/volume/' not in (cause.url or '')):
                yield cause.details or str(cause)
            return
