# SPDX-License-Identifier: Apache-2.0
"""Decides which nodes satisfy a request, and how well they fit.

Uses neither SQL nor configuration. The ``Matcher`` of a request has its
requirements and the restrictions of its caller.

* ``request_spec``: the request, a frozen value.
* ``extra_specs``, ``operators``: parse extra specs, and the values of
  capabilities.
* ``nodes``: the properties of a node that are compared.
* ``constraints``: the constraints of a request, by name.
* ``matcher``: applies them: whether a node matches, how well, and why not.
* ``group_policy``: the domains that a group's policy allows for a member.
* ``group_plan``: how many members of a new group go to each domain.
"""

from ironic_reservations.matching.matcher import Matcher
from ironic_reservations.matching.nodes import ALLOCATED
from ironic_reservations.matching.nodes import CLAIMABLE
from ironic_reservations.matching.nodes import LOCKED
from ironic_reservations.matching.nodes import MALFORMED
from ironic_reservations.matching.nodes import POOLED
from ironic_reservations.matching.nodes import PREPARED
from ironic_reservations.matching.nodes import REASONS
from ironic_reservations.matching.nodes import RESERVED
from ironic_reservations.matching.nodes import TO_CLAIM
from ironic_reservations.matching.nodes import TO_HOLD
from ironic_reservations.matching.nodes import WITH_INSTANCE
from ironic_reservations.matching.nodes import Node
from ironic_reservations.matching.nodes import Use
from ironic_reservations.matching.nodes import has_class
from ironic_reservations.matching.nodes import parse_capabilities
from ironic_reservations.matching.nodes import to_join

__all__ = ('ALLOCATED', 'CLAIMABLE', 'LOCKED', 'MALFORMED', 'Matcher', 'Node',
           'POOLED', 'PREPARED', 'REASONS', 'RESERVED', 'TO_CLAIM', 'TO_HOLD',
           'Use', 'WITH_INSTANCE', 'has_class', 'parse_capabilities',
           'to_join')
