# SPDX-License-Identifier: Apache-2.0
"""The Nova virt driver.

It is selected with ``compute_driver = ironic_reservations.ReservationsDriver``
and installed as ``nova.virt.ironic_reservations``, because Nova loads drivers
only from below ``nova.virt``.

The methods that Nova calls:

* ``driver``: overrides methods of Nova's own Ironic driver.
* ``reserved``: implements these methods for instances on reserved nodes.
* ``filters``: scheduler filters that leave server groups to Ironic.
* ``named_node``: filter of Nova's API for requests that name a node of Ironic.
* ``conf``: the options of ``[reservations]`` in nova.conf.

Requests to Ironic:

* ``client``: the client of ``/v1/reservations``.
* ``wanted``: builds the body of a reservation request from an instance.
* ``builds``: holds nodes for instances that are being built, renews the
  leases, and cleans nodes.
* ``node_faults``: notes and remembers on which nodes an instance could not be
  built.
* ``ownership``: finds the host and the node of an instance, for Nova's Ironic
  driver.
* ``fence``: adds the fence header to requests, and handles refusals.
* ``power``: reads the power states of many instances in one list.

What the host reports to Nova and Placement:

* ``mode``: decides whether the host has one compute node or one per node, and
  implements the driver's methods for one compute node.
* ``report``: caches the capacity of the fleet between two periodic tasks.
* ``fleet``: computes inventories and traits from the capacity.
* ``placement``: reads and writes the allocations and the inventory of the
  host's provider.

Processes of a host, and moves between hosts:

* ``host_lease``: acquires and renews the host lease of a process with a
  standby.
* ``deadline``: makes the kernel kill a stopped process whose lease expires.
* ``stopping``: ends a stopping process as soon as another process can
  continue.
* ``restart``: completes operations that were in progress when the previous
  process ended.
* ``endings``: repeats the last steps of Nova's builds, rebuilds and deletions.
* ``timing``: decides how long the driver waits between attempts.
* ``reconciler``: the driver's thread, and rounds of moving instances to a
  compute node.
* ``migration``: migrates the servers of a host to its one compute node, and
  back.
* ``takeover``: takes over servers that were moved from a host that is down.
"""

from .driver import ReservationsDriver
from .driver import ReservationsMixin

__all__ = ['ReservationsDriver', 'ReservationsMixin']
