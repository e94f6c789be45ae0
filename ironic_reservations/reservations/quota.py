# SPDX-License-Identifier: Apache-2.0
"""How many nodes a project may reserve, by the unified limits of Keystone.

The limits are read before a transaction begins, because Keystone may be slow.
What a project has is counted inside of it, at its end, after the row of the
project was written at its beginning: so transactions for one project follow
each other, on the members of a Galera cluster as well, where that row is
certified, and the last one of them has counted what all others have held.
"""

import collections
import dataclasses
import functools
import importlib.util
import math

from oslo_log import log

from ironic_reservations import conf
from ironic_reservations import constants
from ironic_reservations import exception
from ironic_reservations import resources
from ironic_reservations.db import engine
from ironic_reservations.db import project_rows
from ironic_reservations.matching import constraints
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import transaction

LOG = log.getLogger(__name__)

#: The value of ``[reservations] quota`` with which there are limits.
UNIFIED_LIMITS = 'unified_limits'

#: What is missing, for logs and for "upgrade check".
_NOT_INSTALLED = (
    '"[reservations] quota" is set, but oslo.limit, which reads the limits, '
    'is not installed: run "pip install oslo.limit"')

#: Seconds for which one answer of Keystone is waited for, unless
#: ``[oslo_limit] timeout`` says it.
_TIMEOUT = 10


@dataclasses.dataclass(frozen=True, order=True)
class UsedUp:
    """A limit that the caller's project has reached.

    :param name: see resources.limit_names.
    """

    name: str

    @property
    def constraint(self):
        return constraints.Constraint(
            f'quota:{self.name}', lambda node:
            self.name not in resources.limit_names(node.resource_class))


class Quota:
    """The limits of a project, and how far one request has come to them.

    :param project_id: None where the request is not limited.
    :param limits: dict of numbers by the name of the limit (see
        resources.limit_names); a number below 0 is no limit. A class that has
        no limit is limited by the total alone. Without a total, that is 0, as
        for every user of oslo.limit.
    :ivar refusal: the QuotaExceeded to raise if the quota is the only
        obstacle; None until it has been an obstacle.
    """

    def __init__(self, project_id=None, limits=None):
        self._project_id = project_id
        self._limits = ({} if project_id is None
                        else {constants.TOTAL_LIMIT: 0, **limits})
        # Reservations of the project by limit; None until they are counted. A
        # request that succeeds at once needs no other count than its own.
        self._used = None
        self._used_up = frozenset()
        self.refusal = None

    def lock(self, tx):
        """Wait for concurrent requests that hold nodes for the project.

        It is the first statement of a transaction, so that nobody waits for
        a node in the meantime.
        """
        if self._project_id is None:
            return
        project = {'of_project': self._project_id}
        if not tx.execute(project_rows.WRITE_PROJECT, project).rowcount:
            tx.execute(project_rows.INSERT_PROJECT, project)

    def verify(self, tx, nodes, spec):
        """Let a transaction through only within the limits.

        It runs after all writes, so that it counts every reservation that
        was committed so far, and no later write of this transaction makes
        the count wrong.

        :param nodes: list of matching.Node, which the transaction has held.
        :param spec: RequestSpec.
        :raises: QuotaExceeded if nodes of no other class are allowed instead;
            otherwise Again.
        """
        if self._project_id is None:
            return
        requested = collections.Counter(
            name for node in nodes
            for name in resources.limit_names(node.resource_class))
        self.refresh(tx.execute, requested)
        if self._refuse(requested):
            LOG.debug('%s', self.refusal)
            if self.refusal.resource in resources.limit_names(
                    spec.resource_class):
                raise self.refusal
            raise transaction.Again()

    def refresh(self, execute=engine.fetch_rows, requested=()):
        """Count what the project has besides what the request holds.

        :param execute: function that runs a statement and returns its rows.
        :param requested: Counter of what the request holds already.
        """
        if self._project_id is None:
            return
        self._used = collections.Counter()
        for resource_class, number in execute(project_rows.COUNT_USED, {
                'of_project': self._project_id}):
            for name in resources.limit_names(resource_class):
                self._used[name] += number
        self._used.subtract(requested)
        # A limit that was reached stays reached for this request. Otherwise
        # it could go on for ever.
        self._used_up |= {UsedUp(name) for name in self._limits
                          if self._room(name) <= 0}

    def _room(self, name):
        limit = self._limits.get(name, -1)
        return limit - self._used[name] if limit >= 0 else math.inf

    def _refuse(self, requested):
        """Set the refusal if a request exceeds a limit, and return it.

        :param requested: dict of numbers by the name of the limit.
        """
        for name, number in sorted(requested.items()):
            if number > self._room(name):
                self.refusal = exception.QuotaExceeded(
                    name, self._limits[name], self._used[name], number)
                return self.refusal
        return None

    def refuse(self, matches, members):
        """Set the refusal if there is too little room for matching nodes.

        :param matches: what Matcher.find_profiles returns.
        :param members: how many nodes are wanted.
        """
        free = collections.Counter()
        for group, profiles in matches:
            free[group.node.resource_class] += sum(
                profile.available for profile in profiles)
        for resource_class, number in (+free).most_common():
            total, *others = resources.limit_names(resource_class)
            if self._refuse({total: members, **dict.fromkeys(
                    others, min(members, number))}):
                break

    def narrow(self, matcher):
        """Return the Matcher that passes over what there is no room for."""
        if not self._used_up:
            return matcher
        return dataclasses.replace(matcher, used_up=self._used_up)

    def remaining(self, resource_class=None):
        """Return how many more nodes of a class the project may have.

        :param resource_class: None for a node of any class.
        :returns: infinity until the project's reservations have been counted.
        """
        if self._used is None:
            return math.inf
        return min(map(self._room, resources.limit_names(resource_class)))

    def available(self, matcher, fleet, group):
        """Return how many members of a new group the limits leave room for.

        :param fleet: profiles.Fleet.
        :param group: what has its ``policy`` and ``by``.
        """
        matches = self.narrow(matcher).find_profiles(fleet, group.by)
        return min(self.remaining(), group_policy.count_available(
            group.policy, group_policy.count_room(
                matches, group.by, matcher.fit, self.remaining)))


def of(project_id):
    """The quota of a request, with the limits as they are now.

    :param project_id: the project to which the caller is bound; None for a
        caller who is not, such as a compute service.
    :returns: Quota.
    :raises: LimitsNotKnown.
    """
    if not project_id or conf.CONF.reservations.quota != UNIFIED_LIMITS:
        return Quota()
    return Quota(project_id, {**registered(), **_read(
        lambda enforcer: enforcer.get_project_limits(project_id, None))})


def registered():
    """The limits of projects for which there are no others.

    :returns: dict of resources and numbers.
    :raises: LimitsNotKnown.
    """
    return _read(lambda enforcer: enforcer.get_registered_limits(None))


def check_installed():
    """Say what is missing as soon as a server starts.

    It starts all the same: compute services are not limited, and do not wait
    for Keystone either.
    """
    if (conf.CONF.reservations.quota == UNIFIED_LIMITS
            and importlib.util.find_spec('oslo_limit') is None):
        LOG.error('%s. Until then, callers who are bound to a project can '
                  'reserve nothing.', _NOT_INSTALLED)


def _read(limits):
    try:
        return dict(limits(_enforcer()))
    except Exception as error:
        # These are exceptions of oslo.limit, openstacksdk and keystoneauth,
        # and of Python itself where there is no such endpoint or model.
        LOG.error('The limits of projects cannot be read from Keystone in '
                  'the way that [oslo_limit] says: %(kind)s: %(error)s',
                  {'kind': type(error).__name__, 'error': error})
        raise exception.LimitsNotKnown(
            'The limits of the project cannot be read at the moment.'
        ) from error


@functools.cache
def _enforcer():
    """What reads the limits of our endpoint, which it has looked up.

    It keeps no limit: a new one is to be heeded at once.
    """
    # An extra, because it brings a newer openstacksdk than some releases of
    # Ironic stand on.
    try:
        from oslo_limit import limit
    except ImportError as error:
        raise ImportError(_NOT_INSTALLED) from error

    conf.CONF.set_default('timeout', _TIMEOUT, group='oslo_limit')
    return limit.Enforcer(lambda project_id, resources: {}, cache=False)
