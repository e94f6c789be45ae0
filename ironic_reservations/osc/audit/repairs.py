# SPDX-License-Identifier: Apache-2.0
"""Functions that several repairs share.

Repairs write only reservations, allocations and resource providers, never
nodes, so no repair affects a machine. Because other programs write at the same
time, the service guards each write: a reservation is made only of a node that
carries the instance already, a lease can expire only where nothing is
deployed, an allocation is changed only if the generation of its consumer has
not changed since it was read, and a provider that has allocations is not
deleted.
"""

from collections.abc import Mapping
from typing import Any

from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.osc import options
from ironic_reservations.osc.audit import snapshot
from ironic_reservations.shared import resources


class Refusal(Exception):
    """The repair is currently unsafe."""


def build_server_spec(server: client.Data) -> client.Data:
    """Return the request spec of a server, as far as Nova's API shows it.

    It lacks the properties of the image that the server was built from. They
    are next compared with the node in a rebuild, which stores them.
    """
    # Nova shows the empty string for a server that was booted from a volume.
    return options.build_flavor_spec(server['flavor'], bool(server['image']))


def sum_resources(server: client.Data) -> Mapping[str, int]:
    """Return the amounts that a server requests from its host's provider."""
    return {name: amount for name, amount in resources.sum_amounts(
        build_server_spec(server)).items()
        if not resources.is_blazar_class(name)}


def put_allocations(cmd: command.Command, details: snapshot.Details,
                    instance: str | None, allocations: dict[str, Any],
                    project_id: str, user_id: str) -> None:
    """Replace the allocations of an instance, unless they have changed."""
    client.request_placement(cmd, f'/allocations/{instance}', 'PUT', json={
        'allocations': allocations, 'project_id': project_id,
        'user_id': user_id, 'consumer_generation':
            details.allocations.get('consumer_generation')})
