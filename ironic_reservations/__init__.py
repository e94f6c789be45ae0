# SPDX-License-Identifier: Apache-2.0
"""Reserve a matching bare metal node in one database transaction.

A *reservation* says that a node of Ironic is held for an instance. It
consists of a row in our table and of ``nodes.instance_uuid`` in Ironic's.
Both are written in one transaction. A row is *stale* if its node no longer
carries the instance.

A request passes through these packages from top to bottom, and no package
imports one above it:

=================  ========================================================
``wsgi``           the application on its own, without Ironic
``middleware``     the application as a plugin of Ironic's API
``api``, ``cmd``   handlers, which parse, authorize, call and present;
                   programs for operators
``reservations``   all writes, each in one transaction
``fleet``          counts of nodes by hardware profile, and searches; reads
                   only
``db``             our tables, the columns of Ironic that we read, and SQL
``matching``       whether and how well a node satisfies a request; pure
=================  ========================================================

This is how a node is held: ``api`` makes a Matcher from the body.
``reservations.holds`` gets nodes from ``fleet.search``, and
``reservations.obtain`` tries them in turn, starting each time with the
guarded update. The unique keys show whether the instance has a node already.
A request is refused for lack of a node only after the fleet was counted
during that request.

Values that outlast a request are hints, and every write checks them against
the database: the count of the fleet (``fleet.counts``), and the nodes on
shelves (``fleet.shelf``). Otherwise only results of pure functions are
cached, and the endpoint in Keystone whose limits ``reservations.quota``
reads for each request.
"""
