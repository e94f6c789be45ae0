# SPDX-License-Identifier: Apache-2.0
"""The only package that writes reservations.

A reservation is the row of our table and the node's ``instance_uuid``, both
written in one transaction that begins with the guarded update of the node.
What that statement's WHERE says, and the unique keys on
``nodes.instance_uuid``, ``reservations.instance_uuid`` and
``reservations.node_id``, keep two instances from having one node: among
threads, processes, hosts and the members of a Galera cluster alike. The rows
of a project, of a group and of a host's lease are written, too, where a
quota, a policy or a holder is to be kept.
"""
