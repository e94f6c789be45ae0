# SPDX-License-Identifier: Apache-2.0
"""What several repairs share.

Only reservations, allocations and resource providers are written, and nothing
of a node, so no repair affects a machine. Because other programs write at the
same time, the service that takes a write guards it: a reservation is made only
of a node that carries the instance already, a lease can expire only where
nothing is deployed, an allocation is changed only in the generation of its
consumer that was read, and a provider that has allocations is not deleted.
"""

from ironic_reservations import resources
from ironic_reservations.osc import client
from ironic_reservations.osc import options


class Refusal(Exception):
    """The repair is currently unsafe."""


def build_spec(server):
    """Return the request spec of a server, as far as Nova's API shows it.

    It lacks the properties of the image that the server was built from. The
    next step that compares the node with an image is a rebuild, which stores
    them.
    """
    # Nova shows the empty string for a server that was booted from a volume.
    return options.flavor_spec(server['flavor'], bool(server['image']))


def resources_of(server):
    """Return what the flavor of a server requests from Placement, a dict."""
    return resources.sum_amounts(build_spec(server))


def put_allocations(cmd, now, instance, allocations, project_id, user_id):
    """Replace the allocations of an instance, unless they have changed."""
    client.placement(cmd, f'/allocations/{instance}', 'PUT', json={
        'allocations': allocations, 'project_id': project_id,
        'user_id': user_id,
        'consumer_generation': now.allocations.get('consumer_generation')})
