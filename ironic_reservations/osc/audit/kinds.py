# SPDX-License-Identifier: Apache-2.0
"""Lists the kinds of disagreement, and searches a Cloud for them.

All functions here are pure.
"""

from ironic_reservations.osc.audit import allocations
from ironic_reservations.osc.audit import base
from ironic_reservations.osc.audit import machines
from ironic_reservations.osc.audit import notices
from ironic_reservations.osc.audit import pools
from ironic_reservations.osc.audit import snapshot

REPAIR = 'openstack baremetal reservation audit --repair'

#: Kinds by name, in the order in which they are defined and shown.
KINDS: dict[str, base.Kind] = {
    value.name: value() for module in (
        machines, allocations, pools, notices)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, base.Kind)}


def describe_action(cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
    """Return the repair or the advice for a finding."""
    kind = KINDS[finding.kind]
    return (REPAIR if kind.may_repair(cloud, finding)
            else kind.advise(cloud, finding))


def find_findings(cloud: snapshot.Cloud,
                  host: str | None = None) -> list[snapshot.Finding]:
    """Return the first finding of each instance.

    :param host: return only findings of this compute host. The servers and
        allocations of other hosts may then be missing from the Cloud.
    """
    first: dict[object, snapshot.Finding] = {}
    for finding in find_all_findings(cloud, host):
        first.setdefault(finding.instance or finding, finding)
    return list(first.values())


def find_all_findings(cloud: snapshot.Cloud,
                      host: str | None = None) -> list[snapshot.Finding]:
    """Return all findings, of which an instance may have several."""
    findings = [snapshot.Finding(kind.name, *place) for kind in KINDS.values()
                if cloud.has_nova or not kind.needs_nova
                for place in kind.find_places(cloud)]
    return [finding for finding in findings if host is None or host in (
        finding.host, cloud.find_host(finding.instance))]
