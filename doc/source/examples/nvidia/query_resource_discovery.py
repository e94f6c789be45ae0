# SPDX-License-Identifier: Apache-2.0
"""CAP03-01: list the machines that a project has been given, and why."""

import time

import _common


def discover(conn, args):
    """Read the machines of the project's pools twice."""
    interval = int(args.poll_interval)
    earlier = read_machines(conn)
    if not earlier:
        raise _common.Skip('The project has no pool')
    time.sleep(interval)
    machines = read_machines(conn)
    return {'polls': 2, 'poll_interval_seconds': interval,
            'unstable_identifiers': sorted(earlier.keys() - machines),
            'resources_checked': len(machines),
            # Only machines that Ironic has made available join a pool.
            'resources': [{'resource_id': machine, 'discovered': True,
                           'delivery_reason': reason}
                          for machine, reason in machines.items()]}


def read_machines(conn):
    """Return the reasons for all machines of the pools, by UUID."""
    reservations = conn.baremetal_reservations
    return {node['uuid']: describe_reason(pool, node)
            for pool in reservations.pools()
            for node in reservations.show_pool(pool).nodes}


def describe_reason(pool, node):
    """Return why a machine is in its pool, such as "add: order 17"."""
    reason = node['reason']
    if node['replaces']:
        reason += f' {node["replaces"]}'
    return f'{reason}: {pool.description}' if pool.description else reason


_common.run(discover, 'poll-interval')
