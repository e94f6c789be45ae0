# SPDX-License-Identifier: Apache-2.0
"""Limits the nodes that a project may reserve, by Keystone's unified limits.

The limits are read before a transaction begins, because Keystone may be slow.
The transaction first writes the row of the project, and counts the project's
reservations at its end. So transactions of one project run one after another,
also on the members of a Galera cluster, where the row is certified, and each
counts the nodes that earlier ones have held.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import importlib.util
import math
from typing import Any

from oslo_log import log

from ironic_reservations import conf
from ironic_reservations import constants
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import resources
from ironic_reservations.db import engine
from ironic_reservations.db import project_rows
from ironic_reservations.matching import constraints
from ironic_reservations.matching import group_plan
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import transaction

LOG = log.getLogger(__name__)

#: The value of ``[reservations] quota`` with which there are limits.
UNIFIED_LIMITS = 'unified_limits'

#: Error in logs and in "upgrade check".
_NOT_INSTALLED = (
    '"[reservations] quota" is set, but oslo.limit, which reads the limits, '
    'is not installed: run "pip install oslo.limit"')

#: Timeout of a request to Keystone in seconds, unless ``[oslo_limit] timeout``
#: sets another one.
_TIMEOUT = 10


@dataclasses.dataclass(frozen=True, order=True)
class UsedUp:
    """A limit that the caller's project has reached.

    :param name: see resources.limit_names.
    """

    name: str

    @property
    def constraint(self) -> constraints.Constraint:
        """The constraint that excludes nodes which count against the limit."""
        return constraints.Constraint(
            f'quota:{self.name}', lambda node:
            self.name not in resources.limit_names(node.resource_class))


class Quota:
    """The limits of a project, and how much of them is used.

    :param project_id: None if the request is not limited.
    :param limits: maximum number of nodes by name of the limit (see
        ``resources.limit_names``); a number below 0 is no limit. A class
        without a limit is limited by the total alone. Without a total, it is
        0, as for all users of oslo.limit.
    :ivar refusal: the error to raise if only the quota prevents the request;
        None as long as it has prevented nothing.
    """

    def __init__(self, project_id: str | None = None,
                 limits: Mapping[str, int] | None = None) -> None:
        self._project_id = project_id
        self._limits: dict[str, int] = (
            {} if project_id is None
            else {constants.TOTAL_LIMIT: 0, **(limits or {})})
        # Reservations of the project by limit. None until they are counted: a
        # request that succeeds at once needs only the count at its end.
        self._used: collections.Counter[str] | None = None
        self._used_up: frozenset[UsedUp] = frozenset()
        self.refusal: exception.QuotaExceeded | None = None

    def lock(self, tx: transaction.Transaction) -> None:
        """Wait for concurrent requests that hold nodes for the project.

        This is the first statement of a transaction, so that it locks no node
        while it waits.
        """
        if self._project_id is None:
            return
        project = {'project': self._project_id}
        if not tx.execute(project_rows.WRITE_PROJECT, project).rowcount:
            tx.execute(project_rows.INSERT_PROJECT, project)

    def verify(self, tx: transaction.Transaction,
               nodes: Iterable[matching.Node],
               spec: request_spec.RequestSpec) -> None:
        """Check that a transaction does not exceed the limits.

        It runs after all writes, so that it counts all reservations that are
        committed so far, and no later write of the transaction changes the
        count.

        :param nodes: nodes that the transaction holds.
        :raises: QuotaExceeded if the request allows no other resource class;
            otherwise ConcurrentChange.
        """
        if self._project_id is None:
            return
        requested = collections.Counter(
            name for node in nodes
            for name in resources.limit_names(node.resource_class))
        self.refresh(tx.execute, requested)
        refusal = self._refuse(requested)
        if refusal:
            LOG.debug('%s', refusal)
            if refusal.resource in resources.limit_names(spec.resource_class):
                raise refusal
            raise transaction.ConcurrentChange()

    def refresh(self, execute: Callable[
                    [Any, Any], Iterable[Any]] = engine.fetch_rows,
                requested: Mapping[str, int] = {}) -> None:
        """Count the project's reservations besides those of this request.

        :param execute: runs a statement and returns its rows.
        :param requested: reservations of this request by name of the limit.
        """
        if self._project_id is None:
            return
        used: collections.Counter[str] = collections.Counter()
        for resource_class, number in execute(project_rows.COUNT_USED, {
                'project': self._project_id}):
            for name in resources.limit_names(resource_class):
                used[name] += number
        used.subtract(requested)
        self._used = used
        # A limit that was reached remains so for this request. Otherwise the
        # request could be retried for ever.
        self._used_up |= {UsedUp(name) for name in self._limits
                          if self._count_room(name) <= 0}

    def _count_room(self, name: str) -> float:
        """Return how many more reservations a limit allows.

        :returns: infinity until the project's reservations are counted.
        """
        limit = self._limits.get(name, -1)
        if self._used is None or limit < 0:
            return math.inf
        return limit - self._used[name]

    def _refuse(self, requested: Mapping[str, int]
                ) -> exception.QuotaExceeded | None:
        """Set the refusal if a request exceeds a limit, and return it.

        :param requested: number of nodes by name of the limit.
        """
        for name, number in sorted(requested.items()):
            if self._used is not None and number > self._count_room(name):
                self.refusal = exception.QuotaExceeded(
                    name, self._limits[name], self._used[name], number)
                return self.refusal
        return None

    def refuse(self, matches: Iterable[tuple[Any, Sequence[Any]]],
               members: int) -> None:
        """Set the refusal if the limits do not allow enough matching nodes.

        :param matches: see ``Matcher.find_profiles``.
        :param members: number of requested nodes.
        """
        free: collections.Counter[str] = collections.Counter()
        for group, profiles in matches:
            free[group.node.resource_class] += sum(
                profile.available for profile in profiles)
        for resource_class, number in (+free).most_common():
            total, *others = resources.limit_names(resource_class)
            if self._refuse({total: members, **dict.fromkeys(
                    others, min(members, number))}):
                break

    def narrow(self, matcher: matching.Matcher) -> matching.Matcher:
        """Return the matcher without nodes that the limits do not allow."""
        if not self._used_up:
            return matcher
        return dataclasses.replace(matcher, used_up=self._used_up)

    @property
    def limit_remaining(self
                        ) -> Callable[[str | None], float] | None:
        """``count_remaining``, or None as long as nothing is limited."""
        return None if self._used is None else self.count_remaining

    def count_remaining(self, resource_class: str | None = None) -> float:
        """Return how many more nodes of a class the project may reserve.

        :param resource_class: None for a node of any class.
        :returns: infinity until the project's reservations are counted.
        """
        return min(map(self._count_room,
                       resources.limit_names(resource_class)))

    def count_available(self, matcher: matching.Matcher, fleet: Any,
                        levels: group_policy.Levels) -> float:
        """Return how many members of a new group the limits allow.

        :param fleet: the ``profiles.Fleet`` as it was counted.
        """
        matches = self.narrow(matcher).find_profiles(fleet, *levels.keys)
        room = group_plan.count_room(
            group_plan.find_free_nodes(matches, levels, matcher.fit),
            self.count_remaining)
        available = min(self.count_remaining(),
                        group_plan.count_members(levels, room))
        # Only whole segments can be held.
        return max(available, 0) // levels.segment_size * levels.segment_size


def read_quota(project_id: str | None) -> Quota:
    """Return the quota of a request, with the current limits.

    :param project_id: project to which the caller is bound; None for a caller
        without limits, such as a compute service.
    :raises: LimitsNotKnown.
    """
    if not project_id or conf.CONF.reservations.quota != UNIFIED_LIMITS:
        return Quota()
    return Quota(project_id, {**read_registered_limits(), **_read(
        lambda enforcer: enforcer.get_project_limits(project_id, None))})


def read_registered_limits() -> dict[str, int]:
    """Return the limits of projects that have none of their own, by name.

    :raises: LimitsNotKnown.
    """
    return _read(lambda enforcer: enforcer.get_registered_limits(None))


def check_installed() -> None:
    """Log an error at the start of a server if oslo.limit is missing.

    The server starts anyway, because compute services have no limits.
    """
    if (conf.CONF.reservations.quota == UNIFIED_LIMITS
            and importlib.util.find_spec('oslo_limit') is None):
        LOG.error('%s. Until then, callers who are bound to a project '
                  'cannot reserve nodes.', _NOT_INSTALLED)


def _read(read_limits: Callable[[Any], Iterable[tuple[str, int]]]
          ) -> dict[str, int]:
    try:
        return dict(read_limits(_make_enforcer()))
    except Exception as error:
        # The exceptions are those of oslo.limit, openstacksdk and keystoneauth
        # and, without such an endpoint or model, of Python itself.
        LOG.error('Cannot read the limits of projects from Keystone with the '
                  'settings of [oslo_limit]: %(type)s: %(error)s',
                  {'type': type(error).__name__, 'error': error})
        raise exception.LimitsNotKnown(
            'The limits of the project cannot be read at the moment.'
        ) from error


@functools.cache
def _make_enforcer() -> Any:
    """Return an oslo_limit.limit.Enforcer, which reads our limits.

    It caches our endpoint, but no limits, so that changes apply at once.
    """
    # An extra, because it requires a newer openstacksdk than some releases of
    # Ironic do.
    try:
        from oslo_limit import limit
    except ImportError as error:
        raise ImportError(_NOT_INSTALLED) from error

    conf.CONF.set_default('timeout', _TIMEOUT, group='oslo_limit')
    return limit.Enforcer(lambda project_id, resources: {}, cache=False)
