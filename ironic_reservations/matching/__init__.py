# SPDX-License-Identifier: Apache-2.0
"""Decides which nodes satisfy a request, and how well they fit.

Uses neither SQL nor configuration. The ``Matcher`` of a request has its
requirements and the restrictions of its caller.
"""

from ironic_reservations.matching.constraints import Ownership
from ironic_reservations.matching.matcher import Matcher
from ironic_reservations.matching.nodes import ALLOCATED
from ironic_reservations.matching.nodes import CLAIMABLE
from ironic_reservations.matching.nodes import LOCKED
from ironic_reservations.matching.nodes import REASONS
from ironic_reservations.matching.nodes import RESERVED
from ironic_reservations.matching.nodes import Node
from ironic_reservations.matching.nodes import has_class
from ironic_reservations.matching.nodes import is_visible
from ironic_reservations.matching.nodes import parse_capabilities

__all__ = ('ALLOCATED', 'CLAIMABLE', 'LOCKED', 'Matcher', 'Node', 'Ownership',
           'REASONS', 'RESERVED', 'has_class', 'is_visible',
           'parse_capabilities')
