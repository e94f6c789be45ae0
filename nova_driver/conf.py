# SPDX-License-Identifier: Apache-2.0
"""The options of the group ``[reservations]`` in nova.conf."""

import nova.conf
from oslo_config import cfg

CONF = nova.conf.CONF

RESERVATIONS = cfg.OptGroup(
    'reservations', title='Reservations of bare metal nodes')

reservations_opts = [
    cfg.StrOpt(
        'mode', default='auto',
        choices=[('auto', 'Keep the compute nodes that the host has, or where '
                          'its instances are. A host without any asks Ironic '
                          'when it starts.'),
                 ('reservations', 'One compute node per host.'),
                 ('per_node', 'A compute node per Ironic node and a hash '
                              'ring, as with Nova\'s own Ironic driver. '
                              'Deprecated.')],
        help='Whether this compute host has one compute node, and reserves a '
             'node in Ironic when it builds an instance.'),
    cfg.BoolOpt(
        'adopt', default=False,
        help='Migrate instances of this host that are on other compute nodes '
             'to those that it has now, while they run. With mode = '
             'reservations: from a compute node per Ironic node to the '
             'host\'s one compute node; with mode = per_node: back. '
             'Ironic\'s nodes are not changed. '
             'Migrate all hosts that share a conductor group and a shard, '
             'one after the other.'),
    cfg.IntOpt(
        'lease', default=3600, min=1,
        help='Lease of a reservation in seconds. When it expires before the '
             'node was prepared for the instance, for example because this '
             'host died, the node is free again. Each periodic task '
             '([DEFAULT] update_resources_interval) renews the leases of '
             'builds in progress, so it should be several times the '
             'interval of that task, and may be shorter than a build. At '
             'most [reservations] max_lease in ironic.conf.'),
    cfg.BoolOpt(
        'standby', default=False,
        help='Run as a hot standby: wait until no other process serves this '
             'compute host. Any number of nova-compute processes may be '
             'started with the same [DEFAULT] host, each on another '
             'machine: one works, and another takes over when it dies. All '
             'of them need this option.'),
    cfg.IntOpt(
        'standby_ttl', default=30, min=10, max=600,
        help='Duration of the host lease in seconds, with standby: how long '
             'a standby waits after the active process last renewed. The '
             'active process renews three times in that time.'),
    cfg.StrOpt(
        'ownership', default='any',
        choices=[('any', 'Any node.'),
                 ('project', 'Nodes that the instance\'s project owns, leases '
                             'or has in a pool.'),
                 ('project_or_none', 'Those, and nodes that nobody owns, '
                                     'leases or has in a pool.')],
        help='Whose nodes instances are built on. A node in a pool is used '
             'only for the project of the pool.'),

    cfg.StrOpt(
        'server_group_by',
        regex=r'^(conductor_group|shard|capability:[^:,]+|trait:[A-Z0-9_]+)$',
        help='Property of nodes by which the policy of a server group is '
             'enforced: conductor_group, shard, capability:NAME for a '
             'capability such as capability:rack, or trait:PREFIX for the '
             'one trait of a node that begins with PREFIX. With '
             'capability:rack, anti-affinity means that no two members are in '
             'one rack, '
             'affinity that all are in one, and the soft policies do this '
             'as far as possible. Unset, server groups are ignored. '
             'Requires [api_database] in the configuration of the cell\'s '
             'conductor: nothing is built while server groups cannot be '
             'looked up. Set the same value on all hosts that share nodes.'),
    cfg.ListOpt(
        'server_metadata', default=['claim'],
        item_type=cfg.types.String(
            choices=['claim', 'candidate_nodes', 'trait']),
        help='Metadata keys of servers by which users may choose a node. '
             'claim: reservations:claim, the UUID of a reservation or group '
             'of their project to use for the server, or GROUP:SEGMENT for '
             'a segment of a group; candidate_nodes: '
             'reservations:candidate_nodes, names or UUIDs of nodes '
             'separated by commas; trait: reservations:trait:NAME, required '
             'or forbidden. A server that uses one of these keys is not '
             'built unless the key is listed here.'),
    cfg.BoolOpt(
        'report_standard_resources', default=False,
        help='Report VCPU, MEMORY_MB and DISK_GB to Placement besides the '
             'resource classes of the nodes, for flavors that request sizes '
             'instead of a resource class.'),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the driver's options."""
    conf.register_group(RESERVATIONS)
    conf.register_opts(reservations_opts, group=RESERVATIONS)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator."""
    return [(RESERVATIONS, reservations_opts)]


register_opts(CONF)
