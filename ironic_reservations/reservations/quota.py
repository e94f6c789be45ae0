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
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import projects as project_rows
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


class Quota:
    """The limits of a project, and how far one request has come to them.

    :param project_id: None where the request is not limited. Nothing then
        costs anything.
    :param limits: dict of the names of resources (see matching.counted_as)
        and of how many the project may have, less than 0 for any number. Of
        a class that is not named only the total is limited; if that is not
        named, it is 0, as for every user of oslo.limit.
    """

    def __init__(self, project_id=None, limits=None):
        self._project_id = project_id
        self._limits = ({} if project_id is None
                        else {matching.TOTAL: 0, **limits})
        # What the project had when it was counted last; None before. A
        # request that succeeds at once needs no other count than its own.
        self._used = None
        self._used_up = frozenset()
        #: The exception.QuotaExceeded to raise if the quota is the only
        #: obstacle; None until it has been one.
        self.refusal = None

    def lock(self, tx):
        """Wait for others who hold nodes for the project.

        It is the first statement of a transaction, so that nobody waits for
        a node meanwhile.
        """
        if self._project_id is None:
            return
        project = {'of_project': self._project_id}
        if not tx.execute(project_rows.WRITE_PROJECT, project).rowcount:
            tx.execute(project_rows.NEW_PROJECT, project)

    def verify(self, tx, nodes):
        """Let a transaction go through only within the limits.

        It runs after all writes, so that it counts every reservation that
        was committed so far, and no later write of this transaction makes
        the count wrong.

        :param nodes: list of matching.Node, which the transaction has held.
        :raises: Again.
        """
        if self._project_id is None:
            return
        requested = collections.Counter(
            resource for node in nodes
            for resource in matching.counted_as(node.resource_class))
        used = self._count(tx.execute(project_rows.USED, {
            'of_project': self._project_id}))
        used.subtract(requested)
        self._see(used)
        if self._judge(requested):
            LOG.debug('%s', self.refusal)
            raise transaction.Again()

    def refresh(self):
        """Count what the project has, for a dry run."""
        if self._project_id is not None:
            self._see(self._count(engine.rows(project_rows.USED, {
                'of_project': self._project_id})))

    def refuse(self, matches, wanted):
        """Say why there is too little room for free nodes that match.

        :param matches: what Matcher.matching returns.
        :param wanted: how many nodes are wanted.
        """
        free = collections.Counter()
        for kind, profiles in matches:
            free[kind.node.resource_class] += sum(
                profile.available for profile in profiles)
        for resource_class, number in (+free).most_common():
            total, *of_class = matching.counted_as(resource_class)
            if self._judge({total: wanted, **dict.fromkeys(
                    of_class, min(wanted, number))}):
                break

    @staticmethod
    def _count(rows):
        used = collections.Counter()
        for resource_class, number in rows:
            for resource in matching.counted_as(resource_class):
                used[resource] += number
        return used

    def _see(self, used):
        self._used = used
        # What was used up stays so for this request, lest it try for ever.
        self._used_up |= {resource for resource in self._limits
                          if self._remaining(resource) <= 0}

    def _remaining(self, resource):
        """How many more the project may have of a resource."""
        limit = self._limits.get(resource, -1)
        return limit - self._used[resource] if limit >= 0 else math.inf

    def _judge(self, requested):
        """Whether so much more would exceed a limit, the total or another.

        :param requested: dict of resources and numbers.
        """
        for resource, number in sorted(requested.items()):
            if number > self._remaining(resource):
                self.refusal = exception.QuotaExceeded(
                    resource, self._limits[resource], self._used[resource],
                    number)
                return True
        return False

    def narrow(self, matcher):
        """The Matcher that passes over what there is no room for."""
        if not self._used_up:
            return matcher
        return dataclasses.replace(matcher, used_up=self._used_up)

    def remaining(self, resource_class=None):
        """How many more nodes of a class the project may have, or of any.

        It is infinite until the project's reservations have been counted.
        """
        if self._used is None:
            return math.inf
        return min(map(self._remaining, matching.counted_as(resource_class)))

    def check_choice(self, spec):
        """Raise if nodes of other classes cannot be taken instead.

        :raises: QuotaExceeded.
        """
        if self.refusal and self.refusal.resource in (
                matching.counted_as(spec.resource_class)):
            raise self.refusal


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
