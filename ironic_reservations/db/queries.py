# SPDX-License-Identifier: Apache-2.0
"""A face of the modules of statements, while their users move to these."""

from ironic_reservations.db.expressions import *  # noqa: F403
from ironic_reservations.db.groups import *  # noqa: F403
from ironic_reservations.db.hosts import *  # noqa: F403
from ironic_reservations.db.nodes import *  # noqa: F403
from ironic_reservations.db.projects import *  # noqa: F403
from ironic_reservations.db.reservations import *  # noqa: F403
