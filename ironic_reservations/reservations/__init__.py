# SPDX-License-Identifier: Apache-2.0
"""The only package that writes reservations.

A reservation consists of a row of our table and the node's ``instance_uuid``.
Both are written in one transaction, which begins with the guarded update of
the node. Its WHERE clause and the unique keys on ``nodes.instance_uuid``,
``reservations.instance_uuid`` and ``reservations.node_id`` prevent two
instances from holding one node, among threads, processes, hosts and the
members of a Galera cluster. Quotas, group policies and host leases are
enforced by also writing the row of the project, the group or the host.
"""
