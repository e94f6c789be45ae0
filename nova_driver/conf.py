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
        choices=[('auto', 'A host that has its one row keeps it; one with a '
                          'row per node, or with instances on such rows, '
                          'keeps those; any other asks Ironic when it '
                          'starts.'),
                 ('reservations', 'One row per host.'),
                 ('per_node', 'A row per node and a hash ring, as Nova\'s '
                              'own Ironic driver has them. Deprecated.')],
        help='Whether this compute host is one row, and reserves a node in '
             'Ironic when it builds an instance.'),
    cfg.BoolOpt(
        'adopt', default=False,
        help='Bring instances that this host has on other rows to the one or '
             'to those that it has now, while they run. With mode = '
             'reservations: from a row per node to the host\'s one row; '
             'with mode = per_node: back. Nothing of Ironic\'s nodes is '
             'written. Switch all hosts that share a conductor group and a '
             'shard, one after the other.'),
    cfg.IntOpt(
        'lease', default=3600, min=1,
        help='Seconds after which a node goes back to the fleet when this '
             'host dies between reserving it and preparing it for an '
             'instance. It is renewed in each periodic task '
             '([DEFAULT] update_resources_interval) while the build goes on, '
             'so it should be several times as long as their interval, and '
             'need not be as long as a build. At most [reservations] '
             'max_lease in ironic.conf.'),
    cfg.BoolOpt(
        'standby', default=False,
        help='Be this compute host only while no other process is it. Any '
             'number of nova-compute may then be started with the same '
             '[DEFAULT] host, on as many machines: one works, and another '
             'takes its place when it dies. All of them need this option.'),
    cfg.IntOpt(
        'standby_ttl', default=30, min=10, max=600,
        help='With standby, seconds after which another process may be this '
             'host when this one has not told Ironic that it lives. It tells '
             'so three times in that time.'),
    cfg.StrOpt(
        'ownership', default='any',
        choices=[('any', 'Any node.'),
                 ('project', 'Nodes whose owner or lessee is the instance\'s '
                             'project.'),
                 ('project_or_none', 'Those, and nodes that have neither.')],
        help='Whose the nodes must be that instances are built on.'),
    cfg.StrOpt(
        'server_group_by',
        regex=r'^(conductor_group|shard|capability:[^:,]+)$',
        help='What the members of a server group are kept apart or together '
             'by: capability:NAME, such as capability:rack, is the value of '
             'that capability of their nodes; the others are conductor_group '
             'and shard. The policy anti-affinity then means that no two '
             'members are in one rack, affinity that all are in one, and the '
             'soft ones as far as possible. Unset, server groups make no '
             'difference. Needs a cell conductor that knows [api_database], '
             'because nothing is built while server groups cannot be looked '
             'up. The same on all hosts that share nodes.'),
    cfg.ListOpt(
        'server_metadata', default=['claim'],
        item_type=cfg.types.String(
            choices=['claim', 'candidate_nodes', 'trait']),
        help='What users may ask of a node by the metadata of a server: '
             'claim is reservations:claim, the UUID of a reservation or of a '
             'group of their project that becomes the server\'s; '
             'candidate_nodes is reservations:candidate_nodes, names or '
             'UUIDs of nodes separated by commas; trait is '
             'reservations:trait:NAME, required or forbidden. A server whose '
             'metadata has one of these keys that is not listed here is not '
             'built.'),
    cfg.BoolOpt(
        'report_standard_resources', default=False,
        help='Report VCPU, MEMORY_MB and DISK_GB to Placement beside the '
             'resource classes of the nodes, for flavors that ask for sizes '
             'and for no resource class.'),
]


def register_opts(conf):
    """Register the driver's options; it happens when Nova loads the driver."""
    conf.register_group(RESERVATIONS)
    conf.register_opts(reservations_opts, group=RESERVATIONS)


def list_opts():
    """For oslo-config-generator."""
    return [(RESERVATIONS, reservations_opts)]


register_opts(CONF)
