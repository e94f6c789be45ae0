# SPDX-License-Identifier: Apache-2.0
"""Reserve a matching bare metal node in one database transaction.

A *reservation* says that a node of Ironic is held for an instance. It is the
row of our table plus ``nodes.instance_uuid`` in Ironic's own. Both are
written in one transaction, and a row whose node no longer carries the
instance is no reservation any more.

A request comes down this list, and a package imports none that stands above
it:

=================  ========================================================
``wsgi``           the application alone, without Ironic's
``middleware``     ``/v1/reservations`` is ours, the rest is Ironic's
``api``, ``cmd``   the calls: parse, authorize, call, present; the programs
``reservations``   the only writers: one loop, one transaction
``fleet``          what there is, by hardware profile; reads, never writes
``db``             our tables, what we read of Ironic's, and the SQL
``matching``       does a node satisfy a request, and how well; pure
=================  ========================================================

So a hold is told in one breath: ``api`` makes a Matcher of the body;
``reservations.holds`` asks ``fleet.search`` for nodes, and
``reservations.obtain`` tries to hold one after the other, the guarded update
first; the unique keys tell whether the instance has one already; and only a
fleet that was counted later than the request came may say that there is none.

What outlasts a request is never believed: the count of the fleet
(``fleet.count``), the nodes on a shelf and that it was empty a moment ago
(``fleet.shelf``), and what was parsed or compiled once (``functools`` caches
of pure functions, and the endpoint in Keystone whose limits
``reservations.quota`` reads anew for each request).
"""
