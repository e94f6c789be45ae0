# SPDX-License-Identifier: Apache-2.0
"""Our tables, the columns of Ironic's tables that we read, and the SQL.

Transactions that write are opened by the package ``reservations`` and the
health check only.

* ``models``: our tables, and the columns of Ironic's that we use.
* ``engine``: the connection, and the retry of aborted requests.
* ``tables``: checks the schema of a database before it is used.
* ``cluster``: makes reads wait for other members of a Galera cluster.
* ``node_rows``, ``reservation_rows``, ``group_rows``, ``project_rows``,
  ``host_rows``, ``notice_rows``, ``pool_rows``, ``history_rows``: the
  statements on each table, with the SQL above each one.
* ``target_rows``, ``preparation_rows``: the nodes that requests for notices
  name, and those that carry what nobody uses.
* ``node_counts``: the statements that count the fleet.
* ``row_locks``: the nodes whose rows another transaction keeps locked.
* ``expressions``: facts of nodes, and conditions on nodes and reservations.
* ``functions``: functions that databases spell differently.
"""
