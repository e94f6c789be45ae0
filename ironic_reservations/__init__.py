# SPDX-License-Identifier: Apache-2.0
"""Reserve a matching bare metal node in one database transaction.

A *reservation* says that a node of Ironic is held for an instance. It
consists of a row in our table and of ``nodes.instance_uuid`` in Ironic's.
Both are written in one transaction. A row is *stale* if its node no longer
carries the instance.

A request passes from the plugin or the standalone application through these
packages from top to bottom, and no package imports one above it.
``doc/source/explanation/walk.rst`` describes the path.

=================  ========================================================
``api``, ``cmd``   handlers, which parse, authorize, call and present;
                   programs for operators
``reservations``   all writes, each in one transaction
``fleet``          counts of nodes by hardware profile, and searches; reads
                   only
``db``             our tables, the columns of Ironic that we read, and SQL
``matching``       whether and how well a node satisfies a request; pure
=================  ========================================================

Values about nodes that outlast a request are hints, and every write checks
them against the database: the count of the fleet (``fleet.counts``) with the
nodes on shelves, the domains, the suspects and the holds of this process (see
``fleet.profiles.Fleet``), and the nodes whose rows were locked a short time
ago (``db.row_locks``).

Modules of the server:

* ``middleware``: the plugin, which handles ``/v1/reservations`` and passes all
  other requests to Ironic.
* ``wsgi``, ``health``: the standalone application, and a health check.
* ``conf``: the options of ironic.conf.
* ``context``, ``policy``: the caller, and what the caller may do.
* ``exception``: the exceptions.
* ``events``, ``notifications``: changes of reservations, for the log and for
  the message bus.
* ``metrics``: counters for Prometheus.
* ``values``: a reservation, a group and a notice, as they were read.
* ``verdicts``: whether nodes match a request, and why others do not.

The clients import no part of the server. They are the packages ``osc`` (the
commands of the openstack client) and ``horizon`` (the panels), and a module:

* ``sdk``: the library, on openstacksdk.

The package ``shared`` belongs to both.
"""
