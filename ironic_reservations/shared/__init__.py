# SPDX-License-Identifier: Apache-2.0
"""Modules that the server, the clients and the Nova driver share.

They import nothing else of ours.

* ``constants``: states and limits of the API.
* ``extra_specs``: what extra specs of a flavor constrain.
* ``leftovers``: the commands that remove what a tenant has left on a node.
* ``names``, ``spelling``: unknown names, and similar known names.
* ``resources``: sizes of nodes, and resources in Placement.
* ``text``: formats of values.
"""
