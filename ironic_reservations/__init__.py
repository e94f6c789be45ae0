# SPDX-License-Identifier: Apache-2.0
"""Reserve a matching bare metal node in one database transaction.

A *reservation* says that a node of Ironic is held for an instance. It is the
row of our table plus ``nodes.instance_uuid`` in Ironic's own. Both are
written in one transaction, and a row whose node no longer carries the
instance is no reservation any more.

A request comes down this list:

=====================  ====================================================
``middleware``         ``/v1/reservations`` is ours, the rest is Ironic's
``wsgi``               the same application alone
``api.app``            the whole WSGI stack in one function
``api.controllers``    parse, authorize, call, present
``api.schema``         the JSON schemas of what may come in
``request_spec``       what is wanted: a frozen value
``matching``           Matcher: does this node satisfy it, and how well; pure
``placing``            which domains a group's policy allows; pure
``reservations``       hold, renew, release, expire: the only owner of writers
``membership``         how a reservation becomes a member of a group
``groups``             all members at once or none; shown and released as one
``claims``             a reservation that no host has passes to an instance
``quota``              how many nodes a project may reserve
``hosts``              which process is a compute host
``search``             which nodes to try: profiles by fit, then their shelves
``shelf``              nodes of a profile that were read and not given out
``fleet``              hardware profiles, counted once for all workers
``explanation``        what a request would find, and why not more
``capacity``           the answer of /v1/reservations/capacity
``metrics``            what the workers count for Prometheus
``db``                 our tables, what we read of Ironic's, and the SQL
=====================  ====================================================

So a hold is told in one breath: the controller makes a Matcher of the body;
``reservations.hold`` asks ``search`` for nodes and tries to hold one after the
other, the guarded update first; the unique keys say if the instance has one
already; and only a fleet that was counted later than the request came may say
that there is none.

What outlasts a request is never believed: the count of the fleet (``fleet``),
the nodes on a shelf, and that it was empty a moment ago (``shelf``), when
leases were looked for (``interval``), and what was parsed or compiled once
(``functools`` caches of pure functions, and the endpoint in Keystone whose
limits ``quota`` reads anew for each request).
"""
