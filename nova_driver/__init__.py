# SPDX-License-Identifier: Apache-2.0
"""The Nova virt driver.

It is selected with ``compute_driver = ironic_reservations.ReservationsDriver``
and installed as ``nova.virt.ironic_reservations``, because Nova loads drivers
only from below ``nova.virt``.

The methods that Nova calls:

* ``driver``: overrides methods of Nova's own Ironic driver.
* ``filters``: scheduler filters that leave server groups to Ironic.
* ``conf``: the options of ``[reservations]`` in nova.conf.

Requests to Ironic:

* ``client``: the client of ``/v1/reservations``.
* ``wanted``: builds the body of a reservation request from an instance.
* ``builds``: holds nodes for instances that are being built, and renews the
  leases.
* ``ownership``: finds the host and the node of an instance, for Nova's Ironic
  driver.
* ``fence``: adds the fence header to requests, and handles refusals.
* ``power``: reads the power states of many instances in one list.

What the host reports to Nova and Placement:

* ``mode``: decides whether the host has one row or a row per node, and
  implements the driver's methods for one row.
* ``report``: caches the capacity of the fleet between two periodic tasks.
* ``fleet``: computes inventories and traits from the capacity.
* ``placement``: reads and writes the allocations and the inventory of the
  host's provider.

Processes of a host, and moves between hosts:

* ``host_lease``: acquires and renews the host lease of a process with a
  standby.
* ``deadline``: makes the kernel kill a stopped process whose lease expires.
* ``stopping``: ends a stopping process as soon as another one can continue.
* ``restart``: completes operations that were in progress when the previous
  process ended.
* ``endings``: does what Nova does at the end of a build, rebuild or deletion.
* ``reconciler``: the driver's thread, and rounds of moving instances to a
  compute node.
* ``migration``: migrates the servers of a host from a row per node to one row,
  and back.
* ``takeover``: takes over servers that were moved from a host that is down.
"""

from .driver import ReservationsDriver

__all__ = ['ReservationsDriver']
