# SPDX-License-Identifier: Apache-2.0
"""The commands ``openstack baremetal reservation ...``

* ``create``, ``set``, ``explain``, ``move``, ``reservation``, ``group``,
  ``host``, ``capacity``, ``notice``, ``pool``, ``history``: the commands, by
  the resource or the verb.
* ``client``: sends the requests.
* ``scope``: chooses the token.
* ``identity``: looks up projects and users.
* ``options``: the options of the commands that hold nodes.
* ``units``: types of arguments.
* ``actions``: actions of argparse.
* ``compute_hosts``: checks hosts between which servers move.
* ``lookup``: finds the reservation of an instance, a node or a server.
* ``servers``: reads servers and their groups from Nova.
* ``placement``: why Placement finds no compute host.
* ``output``: formats results.
* ``commands``: base classes of commands that list or change resources.
* ``progress``: shows the progress of a long command.
* ``suggestions``: hints on misspelt names and empty lists.
* ``usage``: counts reservations by project.
* ``fleet_map``: draws the capacity.
"""
