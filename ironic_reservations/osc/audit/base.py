# SPDX-License-Identifier: Apache-2.0
"""The base class of the kinds of disagreement."""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from ironic_reservations.osc.audit import snapshot

#: The instance, the node and the host of a disagreement.
Place = tuple[str | None, str | None, str | None]


#: Condition of commands that destroy the data on a machine.
UNLESS_IN_USE = 'unless the machine is in use: '


class Kind:
    """A kind of disagreement between the services.

    To add a kind, define a subclass in one of the modules of ``kinds.KINDS``.
    The documentation shows the docstrings of the class and of its ``repair``.
    Define it before the kinds that can be repaired only after it, because the
    audit shows one finding per instance.

    :cvar name: value of the column Kind.
    :cvar needs_nova: False if the reservations and Ironic alone show it.
    :cvar instructions: text of the documentation for operators.
    :cvar exclusions: text of the documentation about findings that are not
        repaired.
    """

    name = ''
    needs_nova = True
    instructions = ''
    exclusions = ''

    #: None, or a method ``repair(cmd, details, finding)`` that repairs a
    #: finding and returns a short text about that. Raises ``repairs.Refusal``
    #: and the errors of the services' clients.
    repair: Callable[..., Any] | None = None

    def find_places(self, cloud: snapshot.Cloud) -> Iterator[Place]:
        """Yield the instance, the node and the host of each disagreement."""
        raise NotImplementedError

    def advise(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        """Return advice for an operator: a command, if there is one.

        The conditions of a command that destroys something come before it.
        """
        raise NotImplementedError

    def may_repair(self, cloud: snapshot.Cloud,
                   finding: snapshot.Finding) -> bool:
        """Return whether ``repair`` needs no judgement of an operator."""
        return False


def format_undeploy(cloud: snapshot.Cloud, node: str | None) -> str:
    """Return the command that undeploys a node."""
    return f'openstack baremetal node undeploy {cloud.format_node(node)}'
