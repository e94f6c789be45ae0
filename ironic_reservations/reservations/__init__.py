# SPDX-License-Identifier: Apache-2.0
"""The only package that writes reservations.

A reservation is the row of our table and the node's ``instance_uuid``, both
written in one transaction whose first statement is the guarded update of the
node. What that statement's WHERE says, and the unique keys on
``nodes.instance_uuid``, ``reservations.instance_uuid`` and
``reservations.node_id``, is the whole of our locking: it holds among
threads, processes, hosts and the members of a Galera cluster alike.
"""
