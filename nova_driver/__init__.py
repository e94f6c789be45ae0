# SPDX-License-Identifier: Apache-2.0
"""The Nova virt driver: ``nova.virt.ironic_reservations``.

``compute_driver = ironic_reservations.ReservationsDriver``; Nova loads
drivers from below ``nova.virt`` only.

* ``driver``: what Nova calls; on top of Nova's own Ironic driver.
* ``builds``: the holds of instances that are being built, and their leases.
* ``fleet``: what a host reports of the nodes that it may use.
* ``client``: ``/v1/reservations`` as the driver speaks it.
* ``conf``: the options of ``[reservations]`` in nova.conf.
"""

from .driver import ReservationsDriver

__all__ = ['ReservationsDriver']
