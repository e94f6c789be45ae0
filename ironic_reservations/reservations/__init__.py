# SPDX-License-Identifier: Apache-2.0
"""The only package that writes reservations.

A reservation consists of a row of our table and the node's ``instance_uuid``.
Both are written in one transaction, which begins with the guarded update of
the node. Its WHERE clause and the unique keys on ``nodes.instance_uuid``,
``reservations.instance_uuid`` and ``reservations.node_id`` prevent two
instances from holding one node, among threads, processes, hosts and the
members of a Galera cluster. Quotas, group policies and host leases are
enforced by also writing the row of the project, the group or the host.

* ``transaction``: the loop that retries an attempt, and the transaction of all
  attempts, with its order of locks.
* ``obtain``: holds the nodes of a request, in one transaction.
* ``holds``, ``groups``, ``claims``: what differs between the requests for a
  node, for a new group, and for a reservation to claim.
* ``goals``: what a request needs, the search for it, and why it is refused.
* ``adoption``: makes the reservation of a deployed node.
* ``updates``, ``group_updates``: change the host, the lease or the
  description.
* ``releases``, ``group_releases``: release nodes.
* ``expiry``: expires reservations, and purges stale ones.
* ``preparations``: finds nodes that cannot be held because of what they carry.
* ``lookup``: reads one reservation, the members of a group, and lists.
* ``membership``: adds a reservation to a group.
* ``quotas``: limits the nodes of a project.
* ``host_leases``: which process serves a compute host.
* ``notices``, ``notice_updates``, ``notice_lookup``, ``targets``: notices and
  cordons, their changes and lists, and the nodes that a request for notices
  names.
* ``pools``, ``pool_nodes``: pools, and the nodes that join and leave them.
* ``history``: reads and sweeps the reservations that have ended.
* ``dry_runs``: which nodes a request would match.
"""
