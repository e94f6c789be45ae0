# SPDX-License-Identifier: Apache-2.0
"""Which nodes satisfy a request, and how well: neither SQL nor configuration.

A ``Matcher`` carries what a request wants, and for whom, through the request.
"""

from ironic_reservations.matching.constraints import Ownership
from ironic_reservations.matching.matcher import Matcher
from ironic_reservations.matching.node import ALLOCATED
from ironic_reservations.matching.node import CLAIMABLE
from ironic_reservations.matching.node import LOCKED
from ironic_reservations.matching.node import REASONS
from ironic_reservations.matching.node import RESERVED
from ironic_reservations.matching.node import Node
from ironic_reservations.matching.node import capabilities
from ironic_reservations.matching.node import has_class
from ironic_reservations.matching.node import visible

__all__ = ('ALLOCATED', 'CLAIMABLE', 'LOCKED', 'Matcher', 'Node', 'Ownership',
           'REASONS', 'RESERVED', 'capabilities', 'has_class', 'visible')
