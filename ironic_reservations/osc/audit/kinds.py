# SPDX-License-Identifier: Apache-2.0
"""The kinds of disagreement: how each is found, and what to do about it.

All functions here are pure: they are given a Cloud, and ask no service.
"""

import typing


class Finding(typing.NamedTuple):
    """Something that disagrees; every field but the kind may be None.

    :param kind: a key of ``KINDS``.
    :param instance: UUID of the instance.
    :param node: UUID of the node.
    :param host: the compute host that has the instance, the node or the row.
    """

    kind: str
    instance: str | None
    node: str | None
    host: str | None


# One function for each kind. It is given a Cloud, and yields the instance, the
# node and the host of everything that disagrees in this way.


def _lapsed_touched(cloud):
    for instance, held in cloud.reservations.items():
        if held.lapsed and held.state == 'reserved':
            yield instance, held.node, held.host


def _failed(cloud):
    for instance, held in cloud.reservations.items():
        if held.state == 'error' and not cloud.busy(instance):
            yield instance, held.node, held.host


def _unavailable(cloud):
    for instance, held in cloud.reservations.items():
        if held.state == 'unavailable':
            yield instance, held.node, held.host


def _no_server(cloud):
    for instance, held in cloud.reservations.items():
        if held.host and instance not in cloud.servers:
            yield instance, held.node, held.host


def _no_reservation(cloud):
    for instance, server in cloud.servers.items():
        node = cloud.machines.get(instance)
        if (instance in cloud.reservations or server.task == 'deleting'
                or server.status in ('BUILD', 'UNKNOWN')):
            continue
        # A server in status ERROR may have no machine, because its build has
        # failed.
        if node or (server.host in cloud.hosts and server.at_rest
                    and server.status != 'ERROR'):
            yield instance, node, server.host


def _no_allocation(cloud):
    for instance, server in cloud.servers.items():
        if (server.at_rest and server.row == server.host
                and server.host in cloud.own_rows
                and not cloud.allocations.get(instance)):
            yield instance, cloud.machines.get(instance), server.host


def _wrong_allocation(cloud):
    for instance, providers in cloud.allocations.items():
        server = cloud.servers.get(instance)
        if server is None:
            for uuid in sorted(providers & cloud.rows.keys()):
                yield instance, None, cloud.rows[uuid].host
        # While a server is brought from a row per node to the host's one
        # row, its allocation may be from either of the two providers.
        elif server.at_rest and providers - {
                cloud.own_rows.get(server.host), server.row}:
            yield instance, cloud.machines.get(instance), server.host


def _wrong_host(cloud):
    for instance, held in cloud.reservations.items():
        server = cloud.servers.get(instance)
        if server and server.at_rest and held.host != server.host:
            yield instance, held.node, server.host


def _per_node_row(cloud):
    for instance, server in cloud.servers.items():
        if (server.row != server.host
                and (server.host in cloud.hosts
                     or server.row in cloud.nodes)):
            yield (instance, cloud.machines.get(instance, server.row),
                   server.host)


def _orphan_node(cloud):
    hosts = {row.name: row.host for row in cloud.rows.values()}
    reserved = {held.node for held in cloud.reservations.values()}
    for uuid, node in cloud.nodes.items():
        if (node.is_deployed and not node.allocated
                and uuid not in reserved
                and node.instance not in cloud.servers):
            yield node.instance, uuid, hosts.get(uuid)


def _stale_row(cloud):
    used = {server.row for server in cloud.servers.values()}
    for row in cloud.rows.values():
        if (row.name != row.host and row.host in cloud.own_rows
                and row.name not in used):
            yield None, row.name, row.host
    # The provider of a row per node has the UUID of the node.
    for uuid in cloud.nodes:
        if uuid in cloud.providers and uuid not in cloud.rows:
            yield None, uuid, None


class Kind(typing.NamedTuple):
    """A kind of disagreement.

    :param find: a function of a Cloud that yields instance, node and host.
    :param advice: what a human does about it. ``{node}`` and ``{host}`` stand
        for those of the Finding, ``{holder}`` for the host that has the
        reservation.
    """

    find: typing.Callable
    advice: str


#: In the order in which they are shown. doc/source/audit.rst says more.
KINDS = {
    'lapsed-touched': Kind(
        _lapsed_touched,
        'delete the server; without one, clean node {node} up and sweep'),
    'failed': Kind(
        _failed, 'delete the server; without one, undeploy node {node}'),
    'unavailable': Kind(
        _unavailable,
        'bring node {node} back to what it was, or delete the reservation'),
    'no-server': Kind(
        _no_server,
        'let host {host} clean up; else undeploy node {node}, or delete the '
        'reservation'),
    'no-reservation': Kind(
        _no_reservation,
        'if the server is on a row per node, switch host {host} to one row; '
        'without a node, delete the server'),
    'no-allocation': Kind(
        _no_allocation, 'let host {host} make it again, in a periodic task'),
    'wrong-allocation': Kind(
        _wrong_allocation,
        'move it to the provider of the host of the server; without a '
        'server, delete it'),
    'wrong-host': Kind(
        _wrong_host,
        '{holder} holds node {node}: let it take the server over, or give '
        'the reservation to the host of the server'),
    'per-node-row': Kind(
        _per_node_row, 'switch host {host} to one row'),
    'orphan-node': Kind(
        _orphan_node, 'undeploy node {node}'),
    'stale-row': Kind(
        _stale_row,
        'let the host delete it, in a periodic task; else delete provider '
        '{node}'),
}


#: Those that Ironic alone tells. Of the others, it depends on Nova whether
#: something is wrong.
OF_IRONIC = ('lapsed-touched', 'failed', 'unavailable')


def find(cloud, host=None):
    """Return what disagrees in a Cloud.

    :param host: return only what concerns this compute host. The servers and
        allocations of other hosts may be missing from the Cloud then.
    :returns: list of Findings.
    """
    found = (Finding(name, *what) for name, kind in KINDS.items()
             if cloud.has_nova or name in OF_IRONIC
             for what in kind.find(cloud))
    return [each for each in found if host is None or host in (
        each.host, cloud.holder(each.instance))]


def advice(cloud, finding):
    """Return what a human does about a Finding."""
    return KINDS[finding.kind].advice.format(
        **finding._asdict(), holder=cloud.holder(finding.instance) or 'nobody')
