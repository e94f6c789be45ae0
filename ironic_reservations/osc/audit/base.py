# SPDX-License-Identifier: Apache-2.0
"""The base class of the kinds of disagreement."""


class Kind:
    """A kind of disagreement between the services.

    A subclass in one of the modules of ``kinds.KINDS`` is all that a new kind
    needs. The documentation shows the docstrings of the class and of its
    ``repair``. Declare it before the kinds that can be repaired only after
    it, because the audit shows one Finding per instance.

    :cvar name: value of the column Kind.
    :cvar needs_nova: False if the reservations and Ironic alone show it.
    :cvar instructions: what the documentation says about what to do.
    :cvar exclusions: what the documentation of a repair says about findings
        that are left to an operator.
    """

    name = None
    needs_nova = True
    instructions = None
    exclusions = None

    #: None, or a method ``repair(cmd, now, finding)`` that repairs a Finding,
    #: given a ``reader.Now``, and returns in a few words what it did. Raises
    #: ``repairs.Refusal`` and the errors of the services' clients.
    repair = None

    def find(self, cloud):
        """Yield the instance, the node and the host of each disagreement."""
        raise NotImplementedError

    def advice(self, cloud, finding):
        """Return what an operator does about a Finding: a command, if any."""
        raise NotImplementedError

    def may_repair(self, cloud, finding):
        """Return whether ``repair`` needs no judgement of an operator."""
        return False


def undeploy(cloud, node):
    """Return the command that undeploys a node."""
    return f'openstack baremetal node undeploy {cloud.node_name(node)}'
