# SPDX-License-Identifier: Apache-2.0
"""The audit, which compares Nova, Placement, the reservations and Ironic.

* ``snapshot``: the values that the four services report.
* ``base``, ``machines``, ``allocations``, ``pools``, ``notices``: one class
  per kind of disagreement, which finds, explains and repairs it.
* ``kinds``: the list of these classes, and the search with them.
* ``repairs``: functions that several repairs share.
* ``reader``: reads a snapshot over the public APIs.
* ``command``: the command.

The tables in ``doc/source/how-to/audit.rst`` are generated from the classes.
"""
