# SPDX-License-Identifier: Apache-2.0
"""The backend of a service that hands out machines by order.

Each order has a UUID, under which its machine is reserved. So every step may
be repeated after a crash: what was done already is not done twice, and two
orders never get the same machine.
"""

from openstack import exceptions

from ironic_reservations import sdk

#: Seconds that a machine is kept for an order of which nothing is heard.
LEASE = 600


class NoMachine(Exception):
    """There is no machine for an order, and why."""


class Backend:
    """:param conn: openstack.connection.Connection to the cloud."""

    def __init__(self, conn):
        conn.add_service(sdk.SERVICE)
        self.reservations = conn.baremetal_reservations
        self.baremetal = conn.baremetal

    def hold(self, order, **wanted):
        """Have a machine for an order, and keep it for a while.

        :param wanted: such as ``resource_class`` and ``memory_mb``.
        :returns: sdk.Reservation, which names the node.
        """
        try:
            return self.reservations.create(
                instance_uuid=order, expires_in=LEASE, **wanted)
        except exceptions.HttpException as error:
            if error.status_code != 422:
                raise
            raise NoMachine(error.response.json()['explanation']) from error

    def renew(self, order):
        """Keep it for another while, such as while the user hesitates."""
        return self.reservations.renew(order, LEASE)

    def deploy(self, order, image, timeout=3600):
        """Put an image on the machine. From here on it has no lease to lose.

        :param image: URL of an image, and what else Ironic wants to know.
        """
        held = self.renew(order)
        self.baremetal.update_node(held.node_uuid, instance_info=image)
        self.baremetal.set_node_provision_state(
            held.node_uuid, 'active', wait=True, timeout=timeout)

    def release(self, order, timeout=3600):
        """Wipe the machine if it is deployed, and let go of it."""
        try:
            held = self.reservations.show(order)
        except exceptions.NotFoundException:
            return
        if held.state in ('active', 'error'):
            # Ironic takes the order's UUID off the machine before it is
            # clean, and with it goes the reservation.
            self.baremetal.set_node_provision_state(
                held.node_uuid, 'deleted', wait=True, timeout=timeout)
        self.reservations.release(order)
