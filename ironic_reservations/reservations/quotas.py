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
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
import importlib.util
import math
from typing import Any

from oslo_log import log

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import verdicts
from ironic_reservations.db import engine
from ironic_reservations.db import project_rows
from ironic_reservations.fleet import comparison
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import transaction
from ironic_reservations.shared import constants
from ironic_reservations.shared import resources

LOG = log.getLogger(__name__)

#: The value of ``[reservations] quota`` that enables limits.
UNIFIED_LIMITS = 'unified_limits'

#: Error in logs and in "upgrade check".
_NOT_INSTALLED = (
    '"[reservations] quota" is set, but oslo.limit, which reads the limits, '
    'is not installed: run "pip install oslo.limit"')

#: Timeout of a request to Keystone in seconds, unless ``[oslo_limit] timeout``
#: is set.
_TIMEOUT = 10


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a project.

    :param project_id: None if the request is not limited.
    :param numbers: maximum number of nodes by name of the limit (see
        ``resources.limit_names``); a number below 0 is no limit. A class
        without a limit is limited by the total alone. Without a total, it is
        0, as for all users of oslo.limit.
    """

    project_id: str | None = None
    numbers: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def find_maximum(self, name: str) -> int | None:
        """Return the maximum number of nodes; None if there is no limit."""
        number = -1 if self.project_id is None else self.numbers.get(
            name, 0 if name == constants.TOTAL_LIMIT else -1)
        return None if number < 0 else number

    def lock(self, tx: transaction.Transaction) -> None:
        """Wait for concurrent requests that hold nodes for the project.

        This is the first statement of a transaction, so that it locks no node
        while it waits.
        """
        if self.project_id is not None:
            tx.write_project(self.project_id)

    def verify(self, tx: transaction.Transaction,
               nodes: Collection[matching.Node],
               spec: request_spec.RequestSpec) -> None:
        """Check that a transaction does not exceed the limits.

        It runs after all writes, so that it counts all reservations that are
        committed so far, and no later write of the transaction changes the
        count.

        :param nodes: nodes that the transaction holds.
        :raises: QuotaExceeded if the request allows no other resource class;
            otherwise ConcurrentChange.
        """
        if self.project_id is None:
            return
        requested = collections.Counter(
            name for node in nodes
            for name in resources.limit_names(node.resource_class))
        # A group uses only classes whose limits have room for all its members.
        excess = self.count_usage(tx.execute, requested).find_excess(
            dict.fromkeys(requested, len(nodes)))
        if excess:
            LOG.debug('Quota exceeded: %s', excess)
            if excess.resource in resources.limit_names(spec.resource_class):
                raise exception.QuotaExceeded(excess)
            raise transaction.ConcurrentChange()

    def count_usage(self, execute: Callable[
                        [Any, Any], Iterable[Any]] = engine.fetch_rows,
                    requested: Mapping[str, int] = {}) -> 'Usage':
        """Count the project's reservations, except those of this request.

        :param execute: runs a statement and returns its rows.
        :param requested: reservations of this request by name of the limit.
        """
        used: collections.Counter[str] = collections.Counter()
        if self.project_id is not None:
            for resource_class, number in execute(project_rows.COUNT_USED, {
                    'project': self.project_id}):
                for name in resources.limit_names(resource_class):
                    used[name] += number
        used.subtract(requested)
        return Usage(self, used)


@dataclasses.dataclass(frozen=True)
class Usage:
    """How much of its limits a project uses.

    :param used: number of reservations by name of the limit.
    """

    limits: Limits = Limits()
    used: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def _count_room(self, name: str) -> float:
        """Return the number of additional reservations that a limit allows."""
        maximum = self.limits.find_maximum(name)
        return math.inf if maximum is None else (
            maximum - self.used.get(name, 0))

    def find_excess(self, requested: Mapping[str, int]
                    ) -> verdicts.Quota | None:
        """Return the limit that a request exceeds, or None.

        :param requested: number of nodes by name of the limit.
        """
        for name, number in sorted(requested.items()):
            maximum = self.limits.find_maximum(name)
            if maximum is not None and number > self._count_room(name):
                return verdicts.Quota(name, maximum, self.used.get(name, 0),
                                      number)
        return None

    def explain(self, matches: Iterable[comparison.Match],
                members: int) -> verdicts.Quota | None:
        """Return the limit that excludes most of the free matching nodes.

        :param matches: see ``comparison.find_profiles``.
        :param members: number of requested nodes.
        :returns: None if the limits allow that number of any of them.
        """
        free: collections.Counter[str] = collections.Counter()
        for group, batch in matches:
            for name in resources.limit_names(group.node.resource_class):
                free[name] += sum(profile.available for profile in batch)
        for name, _ in (+free).most_common():
            excess = self.find_excess({name: members})
            if excess:
                return excess
        return None

    def narrow(self, matcher: matching.Matcher, number: int
               ) -> matching.Matcher:
        """Return the matcher without nodes that the limits do not allow.

        :param number: number of nodes; a class is used if its limit has room
            for all of them.
        """
        used_up = frozenset(
            name for name in (constants.TOTAL_LIMIT, *self.limits.numbers)
            if self._count_room(name) < number)
        return (dataclasses.replace(matcher, used_up=used_up) if used_up
                else matcher)


def read_limits(project_id: str | None) -> Limits:
    """Return the current limits of a request.

    :param project_id: project of a project-scoped caller; None for a caller
        without limits, such as a compute service.
    :raises: LimitsNotKnown.
    """
    if not project_id or conf.CONF.reservations.quota != UNIFIED_LIMITS:
        return Limits()
    return Limits(project_id, {**read_registered_limits(), **_read(
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
        LOG.error('%s. Until then, project-scoped callers cannot reserve '
                  'nodes.', _NOT_INSTALLED)


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
