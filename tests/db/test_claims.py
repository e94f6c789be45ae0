# SPDX-License-Identifier: Apache-2.0
"""Claims that lose a race."""

import pytest

from ironic_reservations import exception
from ironic_reservations.reservations import claims
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import values
from tests.db import conftest


@pytest.mark.on('sqlite', 'server')
def test_lease_that_ends_while_another_node_has_a_port(fleet):
    """What keeps a lease from ending is on the node itself."""
    fleet.node()
    held, _ = fleet.hold(owner=values.Owner(), lease=600)
    fleet.insert('ports', fleet.node(resource_class='silver'),
                 address='52:54:00:00:00:01',
                 internal_info='{"tenant_vif_port_id": "x"}')
    with fleet.before('UPDATE nodes SET', fleet.lapse):
        with pytest.raises(exception.NotFound):
            claims.claim(
                held.instance_uuid, conftest.matcher(resource_class='gold'),
                holds.Request(conftest.INSTANCE,
                                     values.Owner('compute-1')),
                lambda reservation: None)
    # Nobody has given the node back yet.
    assert fleet.held == {held.node_id: held.instance_uuid}
