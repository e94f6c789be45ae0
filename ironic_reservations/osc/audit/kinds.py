# SPDX-License-Identifier: Apache-2.0
"""The kinds of disagreement, and the search for them in a Cloud.

All functions here are pure.
"""

import typing

from ironic_reservations.osc.audit import allocations
from ironic_reservations.osc.audit import base
from ironic_reservations.osc.audit import machines

REPAIR = 'openstack baremetal reservation audit --repair'

#: Kinds by name, in the order in which they are declared and shown.
KINDS = {value.name: value() for module in (machines, allocations)
         for value in vars(module).values()
         if isinstance(value, type) and issubclass(value, base.Kind)}


class Finding(typing.NamedTuple):
    """A disagreement; every field but the kind may be None.

    :param kind: a key of ``KINDS``.
    :param instance: UUID of the instance.
    :param node: UUID of the node.
    :param host: the compute host of the instance, the node or the row.
    """

    kind: str
    instance: str | None
    node: str | None
    host: str | None


def action(cloud, finding):
    """Return the repair or the advice for a Finding."""
    kind = KINDS[finding.kind]
    return (REPAIR if kind.may_repair(cloud, finding)
            else kind.advice(cloud, finding))


def find(cloud, host=None):
    """Return what disagrees in a Cloud, one Finding per instance.

    :param host: return only what concerns this compute host. The servers and
        allocations of other hosts may be missing from the Cloud then.
    :returns: list of Findings.
    """
    first = {}
    for finding in find_all(cloud, host):
        first.setdefault(finding.instance or finding, finding)
    return list(first.values())


def find_all(cloud, host=None):
    """Return all Findings, which may be several per instance."""
    findings = [Finding(kind.name, *fields) for kind in KINDS.values()
                if cloud.has_nova or not kind.needs_nova
                for fields in kind.find(cloud)]
    return [finding for finding in findings if host is None or host in (
        finding.host, cloud.holder(finding.instance))]
