# SPDX-License-Identifier: Apache-2.0
"""The kinds of disagreement, and how each is found.

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
        # On the row of a node, as long as it is the node that carries it, a
        # server needs none.
        if node and node == server.row:
            continue
        # A server in status ERROR may have no machine, because its build has
        # failed.
        if node or (server.host in cloud.hosts and server.at_rest
                    and server.status != 'ERROR'):
            yield instance, node, server.host


def _no_allocation(cloud):
    for instance, server in cloud.servers.items():
        # A failed build without a machine needs none.
        if (server.at_rest and server.row == server.host
                and server.host in cloud.own_rows
                and not cloud.allocations.get(instance)
                and (server.status != 'ERROR'
                     or instance in cloud.machines.keys()
                     | cloud.reservations.keys())):
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


def _lost_build(cloud):
    for instance, providers in cloud.allocations.items():
        server = cloud.servers.get(instance)
        # A host that has a machine for it has its reservation, too.
        if (server and server.status == 'BUILD'
                and instance not in cloud.reservations):
            for uuid in sorted(providers & cloud.rows.keys()):
                if (cloud.rows[uuid].is_down and server.host in (
                        None, cloud.rows[uuid].name)):
                    yield instance, None, cloud.rows[uuid].host


def _wrong_host(cloud):
    for instance, held in cloud.reservations.items():
        server = cloud.servers.get(instance)
        if server and server.at_rest and held.host != server.host:
            yield instance, held.node, server.host


def _per_node_row(cloud):
    for instance, server in cloud.servers.items():
        if (server.row != server.host
                and (server.host in cloud.hosts
                     or server.row in cloud.nodes)
                and server.host not in cloud.switched_back):
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


#: The functions, in the order in which their findings are shown. Of an
#: instance only the first is shown, so what has to be mended before something
#: else comes before it. doc/source/audit.rst says what each of them means.
KINDS = {
    'lapsed-touched': _lapsed_touched,
    'failed': _failed,
    'unavailable': _unavailable,
    'no-server': _no_server,
    'no-reservation': _no_reservation,
    'lost-build': _lost_build,
    'wrong-host': _wrong_host,
    'per-node-row': _per_node_row,
    'orphan-node': _orphan_node,
    'no-allocation': _no_allocation,
    'wrong-allocation': _wrong_allocation,
    'stale-row': _stale_row,
}


#: Those that Ironic alone tells. Of the others, it depends on Nova whether
#: something is wrong.
OF_IRONIC = ('lapsed-touched', 'failed', 'unavailable')


def find(cloud, host=None):
    """Return what disagrees in a Cloud, one Finding for each instance.

    :param host: return only what concerns this compute host. The servers and
        allocations of other hosts may be missing from the Cloud then.
    :returns: list of Findings.
    """
    first = {}
    for each in find_all(cloud, host):
        first.setdefault(each.instance or each, each)
    return list(first.values())


def find_all(cloud, host=None):
    """Return the same, with what else disagrees about an instance."""
    found = (Finding(name, *what) for name, find_kind in KINDS.items()
             if cloud.has_nova or name in OF_IRONIC
             for what in find_kind(cloud))
    return [each for each in found if host is None or host in (
        each.host, cloud.holder(each.instance))]
