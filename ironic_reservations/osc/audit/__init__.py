# SPDX-License-Identifier: Apache-2.0
"""The audit, which compares Nova, Placement, the reservations and Ironic.

* ``cloud``: values that were read from the four services.
* ``base``, ``machines``, ``allocations``: one class per kind of disagreement:
  how it is found, explained and repaired.
* ``kinds``: the list of these classes, and the search with them.
* ``repairs``: what several repairs share.
* ``reader``: reads a Cloud over the public APIs.
* ``command``: the command.
"""
