# SPDX-License-Identifier: Apache-2.0
"""Counts and searches the nodes of the fleet. It never writes.

* ``profiles``: the counted fleet, by hardware profile.
* ``comparison``: which profiles match a request, and which do not.
* ``explanation``: why no node, or too few, match a request.
* ``counts``: counts the fleet, or returns a recent count.
* ``search``: the order in which nodes are tried.
* ``shelf``: nodes that were read and not yet tried.
* ``domains``: the free nodes of each domain, from which the members of a group
  are chosen.
* ``capacity``: the rows of the capacity.
"""
