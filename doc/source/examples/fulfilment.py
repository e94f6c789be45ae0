# SPDX-License-Identifier: Apache-2.0
"""The backend of a service that assigns machines to orders.

Each order has a UUID, under which its machine is reserved. Every step can
therefore be repeated after a crash without doing anything twice, and two
orders never get the same machine.
"""

from openstack import exceptions

from ironic_reservations import sdk

#: Seconds for which a machine is kept without news from its order.
LEASE = 600


class NoMachine(Exception):
    """No machine matches an order; the argument is the explanation."""


class Backend:
    """:param conn: openstack.connection.Connection to the cloud."""

    def __init__(self, conn):
        conn.add_service(sdk.SERVICE)
        self.reservations = conn.baremetal_reservations
        self.baremetal = conn.baremetal

    def hold(self, order, **requirements):
        """Reserve a machine for an order until the lease expires.

        :param requirements: such as ``resource_class`` and ``memory_mb``.
        :returns: sdk.Reservation, which names the node.
        """
        try:
            return self.reservations.create(
                instance_uuid=order, expires_in=LEASE, **requirements)
        except exceptions.HttpException as error:
            if error.status_code != 422:
                raise
            raise NoMachine(error.response.json()['explanation']) from error

    def renew(self, order):
        """Renew the lease, for example while the user still decides."""
        return self.reservations.renew(order, LEASE)

    def deploy(self, order, image, timeout=3600):
        """Deploy an image to the machine, whose lease then has no effect.

        :param image: Ironic's ``instance_info``, such as ``image_source``.
        """
        reservation = self.renew(order)
        self.baremetal.update_node(reservation.node_uuid, instance_info=image)
        self.baremetal.set_node_provision_state(
            reservation.node_uuid, 'active', wait=True, timeout=timeout)

    def release(self, order, timeout=3600):
        """Release the machine, after wiping it if it is deployed."""
        try:
            reservation = self.reservations.show(order)
        except exceptions.NotFoundException:
            return
        if reservation.state in ('active', 'error'):
            # Ironic clears the order's UUID before the machine is clean, which
            # ends the reservation.
            self.baremetal.set_node_provision_state(
                reservation.node_uuid, 'deleted', wait=True, timeout=timeout)
        self.reservations.release(order)
