# SPDX-License-Identifier: Apache-2.0
"""What the fleet can still give: the answer of /v1/reservations/capacity."""

from ironic_reservations import matching
from ironic_reservations.fleet import count as fleet
from ironic_reservations.matching import request_spec


def capacity(max_age, host=None, restricted_to=None, resource_class=None,
             traits=(), conductor_group=None, shard=None):
    """What the fleet can give, profile by profile.

    :param max_age: seconds that the counts may be old.
    :param host: whose holds are counted as ``held``. They are, wherever
        their nodes are now: a node with an instance stays its host's when
        its conductor group changes.
    :param restricted_to: a project: only nodes that it owns or leases.
    :param resource_class: only of this class, in any spelling.
    :param traits: only with all of these.
    :param conductor_group: only in this group; ``""`` is the default one.
    :param shard: only in this shard.
    :returns: list of dicts, and the age of the counts in seconds.
    """
    def of_interest(profile):
        node = profile.node
        return (matching.visible(node.owner, node.lessee, restricted_to)
                and node.traits.issuperset(traits)
                and (resource_class is None or matching.has_class(
                    node.resource_class,
                    request_spec.normalize_resource_class(resource_class))))

    def inside(profile):
        node = profile.node
        return ((conductor_group is None or node.conductor_group.lower()
                 == conductor_group.lower())
                and shard in (None, node.shard))

    counted, age = fleet.at_most(max_age, with_hosts=host is not None)
    by_key = {}
    for profile in filter(of_interest, counted.profiles):
        held = profile.held.get(host, 0)
        if inside(profile):
            _add(by_key, profile, profile.total, profile.free, held,
                 profile.claimable)
        elif held:
            _add(by_key, profile, held, 0, held, 0)
    return _in_order(by_key), age


def rows(profiles):
    """Profiles in the same form, with nothing held."""
    by_key = {}
    for profile in profiles:
        _add(by_key, profile, profile.total, profile.free, 0,
             profile.claimable)
    return _in_order(by_key)


def _add(by_key, profile, total, free, held, claimable):
    """Add numbers to the row of a profile.

    Profiles whose facts are spelled otherwise and mean the same share a row.
    """
    node = profile.node
    row = by_key.setdefault(profile.key, {
        'resource_class': node.resource_class, **node.sizes,
        'cpu_arch': node.cpu_arch, 'capabilities': dict(node.capabilities),
        'traits': sorted(node.traits),
        'conductor_group': node.conductor_group, 'shard': node.shard,
        'owner': node.owner, 'lessee': node.lessee,
        'total': 0, 'free': 0, 'held': 0, 'claimable': 0})
    row['total'] += total
    row['free'] += free
    row['held'] += held
    row['claimable'] += claimable


def _in_order(by_key):
    return [by_key[key] for key in sorted(by_key, key=repr)]
