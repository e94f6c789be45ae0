# SPDX-License-Identifier: Apache-2.0
"""The Nova virt driver.

It is chosen with ``compute_driver = ironic_reservations.ReservationsDriver``
and installed as ``nova.virt.ironic_reservations``, because Nova loads drivers
from below ``nova.virt`` only.

* ``driver``: the methods that Nova calls, on top of Nova's own Ironic driver.
* ``ownership``: whose an instance is, and the view of it on its Ironic node.
* ``builds``: the instances that are being built, their nodes and leases.
* ``wanted``: what is asked of Ironic for an instance.
* ``fence``: for whom the driver writes to Ironic, said with each request.
* ``lease``: which of several processes is a host.
* ``deadline``: when the kernel kills a process that is stopped.
* ``mode``: whether a host is one row, and which host it is.
* ``report``: what a host says of the fleet between two looks at it.
* ``fleet``: sums of the nodes that a host may use.
* ``placement``: the allocations of the host's one provider.
* ``client``: the driver's client of ``/v1/reservations``.
* ``filters``: those of Nova's scheduler that leave server groups to Ironic.
* ``conf``: the options of ``[reservations]`` in nova.conf.
"""

from .driver import ReservationsDriver

__all__ = ['ReservationsDriver']
