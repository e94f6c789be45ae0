# SPDX-License-Identifier: Apache-2.0
"""Notes and remembers on which nodes an instance could not be built.

Ironic's history shows deployments that failed after Ironic had accepted them.
Earlier failures, such as that of a node without ports, are shown to the driver
only. None of them shows for certain whether the node or the request is the
cause. So the instance avoids the node from then on, and only the first node is
recorded for all instances: see ``builds.Builds.end_attempt``.
"""

from __future__ import annotations

import dataclasses
import re

from nova import objects
from openstack import exceptions as sdk_exc
import requests

#: Responses of Ironic that may be about the node: it refuses the request, no
#: conductor serves the node, or its conductor has an error.
_STATUSES = (400, 404, 500)

#: The requests about the node of a build: method, and path below the node.
#: Those about volumes depend on the instance.
_VALIDATE = 'GET', '/validate'
_DEPLOY = 'PUT', '/states/provision'
_REQUESTS = ('POST', '/vifs'), ('PATCH', ''), _VALIDATE, _DEPLOY
_NODE = re.compile('/?nodes/[^/]+')

#: Interfaces whose validation depends on the node. That of storage depends on
#: the volumes.
_INTERFACES = 'deploy', 'power'

# Key of an instance's system metadata: UUIDs of nodes, the last one at the
# end. The value has at most 255 characters.
_FAILED_NODES = 'reservations_failed_nodes'

#: Maximum number of nodes that an instance remembers.
MAX_NODES = 6


@dataclasses.dataclass
class Attempt:
    """What Ironic has responded to an attempt to build an instance.

    :ivar fault: why it has refused a request about the node; None if it has
        not.
    :ivar is_accepted: whether it has accepted the deployment.
    """

    fault: str | None = None
    is_accepted: bool = False

    def note(self, method: str, url: str,
             response: requests.Response) -> None:
        """Note the response to a request.

        :param url: path below that of Ironic's API.
        """
        request = method, _NODE.sub('', url, count=1)
        if request not in _REQUESTS:
            return
        if response.status_code in _STATUSES:
            self.fault = _get_message(response)
        elif response.ok and request == _VALIDATE:
            self.fault = _find_invalid(response) or self.fault
        elif response.ok and request == _DEPLOY:
            self.is_accepted = True


def _find_invalid(response: requests.Response) -> str | None:
    """Return why a node fails Ironic's validation, or None."""
    results = response.json()
    return '; '.join(
        f'{name}: {results[name]["reason"]}' for name in _INTERFACES
        if not results[name]['result']) or None


def _get_message(response: requests.Response) -> str:
    try:
        sdk_exc.raise_from_response(response)
    except sdk_exc.HttpException as e:
        return e.details or str(e)
    return ''


def list_nodes(instance: objects.Instance) -> list[str]:
    """Return the UUIDs of the last nodes on which an instance has failed."""
    uuids: str = instance.system_metadata.get(_FAILED_NODES, '')
    return uuids.split(',') if uuids else []


def remember(instance: objects.Instance, node_uuid: str) -> None:
    """Add the node on which an instance has failed.

    Nova saves the instance after a failed build.
    """
    uuids = [uuid for uuid in list_nodes(instance) if uuid != node_uuid]
    instance.system_metadata[_FAILED_NODES] = ','.join(
        [*uuids, node_uuid][-MAX_NODES:])


def forget(instance: objects.Instance) -> None:
    """Remove all nodes, because Ironic has accepted a deployment.

    Nova saves the instance after the build.
    """
    instance.system_metadata.pop(_FAILED_NODES, None)
