# SPDX-License-Identifier: Apache-2.0
"""Reserve a matching bare metal node in one database transaction.

A *reservation* says that a node of Ironic is held for an instance. It is the
row of our table plus ``nodes.instance_uuid`` in Ironic's own: both are
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
``matching``           does this node satisfy it, and how well: pure
``reservations``       hold, renew, release, expire: the only writer
``search``             which node: profiles order it, current rows decide
``capacity``           hardware profiles of the fleet, counted
``db``                 tables and SQL
=====================  ====================================================
"""
