# SPDX-License-Identifier: Apache-2.0
"""Writes notices: what is wrong with nodes, or will be done to them.

A write that newly keeps requests off nodes touches them first: see
``transaction.Transaction.touch_nodes``.
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import itertools
from typing import Any

from oslo_db import exception as db_exc
from oslo_log import log
import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import notice_rows
from ironic_reservations.reservations import notice_lookup
from ironic_reservations.reservations import targets
from ironic_reservations.reservations import transaction
from ironic_reservations.shared import text

LOG = log.getLogger(__name__)

#: Columns that are times, and those that change the effect of a notice, not
#: only its texts.
TIMES, EFFECTS = notice_rows.TIMES, notice_rows.EFFECTS

#: The present. As ``ends_at`` it closes a notice.
AT_ONCE = datetime.timedelta()


@dataclasses.dataclass(frozen=True)
class Request:
    """A request for notices.

    :param uuid: canonical UUID.
    :param kind: one of ``constants.NOTICE_KINDS``.
    :param nodes: UUIDs and names; empty if ``domain`` is given.
    :param domain: key of a domain (see ``group_policy.find_domain``) and its
        value: all present nodes of this domain.
    :param times: by the names of ``values.NoticeTimes``; ``starts_at`` None
        for now.
    :param digest: equal for equal requests.
    :param created_by: user.
    :param is_failed_build: whether a compute service records a failed build.
    """

    uuid: str
    kind: str
    cordon: bool
    nodes: tuple[str, ...]
    domain: tuple[str, str] | None
    times: Mapping[str, values.Time | None]
    texts: values.NoticeTexts
    digest: str
    created_by: str | None
    is_failed_build: bool = False


def create_notices(request: Request, authority: targets.Authority
                   ) -> tuple[list[values.Notice], bool]:
    """Create a notice for each node of a request, or none.

    :returns: the notices, and whether this call has made them. For a failed
        build see ``_record_failed_build``.
    :raises: InvalidInput for an unknown node, an empty domain, too many nodes,
        or times in the wrong order; NotAuthorized; Conflict if another request
        has used the UUID, the project has already reported a fault of a
        node, or a node has too many notices; DeadlineExceeded.
    """
    def find(run: transaction.Run) -> tuple[list[values.Notice], bool] | None:
        present = notice_lookup.read_notices(
            notice_rows.has_text('uuid', request.uuid))
        if not present:
            return None
        _check_repeat(request, authority, present)
        return present, False

    def make(run: transaction.Run) -> tuple[list[values.Notice], bool]:
        nodes = _find_targets(request, authority)
        if request.is_failed_build:
            return _record_failed_build(run, request, nodes[0])
        _check_room(request, authority, nodes)
        return _insert(run, request, authority, nodes), True

    return transaction.find_or_make(find, make)[0]


def _check_repeat(request: Request, authority: targets.Authority,
                  present: Sequence[values.Notice]) -> None:
    """Check that the notices with the UUID of a request are its own.

    :raises: Conflict.
    """
    for notice in present:
        if notice.request_digest != request.digest or not (
                authority.may_write(notice) or authority.is_reporter(notice)):
            raise exception.Conflict(
                f'Notices {request.uuid} already exist, of another request.')
    names = [notice.node_name or notice.node_uuid
             for notice in present if not notice.has_node]
    if names:
        raise exception.Conflict(
            f'Notices {request.uuid} are of nodes that were deleted since; '
            f'use another uuid if they were enrolled again: '
            f'{", ".join(names)}')


def _find_targets(request: Request, authority: targets.Authority
                  ) -> list[targets.Target]:
    """Return the nodes of a request in the order of their ids.

    :raises: InvalidInput, NotAuthorized.
    """
    def may_create(target: targets.Target) -> bool:
        return authority.may_write(target) or (
            request.kind == 'fault' and authority.is_reporter(target)
            and (not request.cordon or bool(
                conf.CONF.reservations.project_cordons
                and authority.may_cordon(target))))

    limit = conf.CONF.reservations.max_members
    if request.domain is not None:
        by, value = request.domain
        nodes = list(itertools.islice(filter(
            may_create, targets.find_in_domain(by, value, authority)),
            limit + 1))
        if not nodes:
            raise exception.InvalidInput(
                'by', f'must name a {by} with nodes for which you may create '
                      f'notices', got=value)
    else:
        nodes = targets.find_named(request.nodes, authority)
        if not all(map(may_create, nodes)):
            raise exception.NotAuthorized(
                'Only operators and the owner of a node may create this '
                'notice; the project that has reserved the node, or has it in '
                'a pool, may report a fault, without cordon'
                + ('.' if not conf.CONF.reservations.project_cordons else
                   ', or with it while the node carries its server, or is in '
                   'its pool and no other project holds it.'))
    if len(nodes) > limit:
        raise exception.InvalidInput(
            'by' if request.domain else 'nodes',
            f'must be at most {limit} nodes, see [reservations] max_members')
    return nodes


def check_times(times: values.NoticeTimes, new: Collection[str],
                now: datetime.datetime) -> None:
    """Check the order of the times of a notice.

    :param new: names of those that the request gives; they are in the future,
        except ``starts_at``.
    :raises: InvalidInput.
    """
    starts_at, due_at, ends_at = times.starts_at, times.due_at, times.ends_at
    for name, time, fault in (
            ('ends_at', ends_at, 'must be later than starts_at and than now'),
            ('due_at', due_at, 'must be later than starts_at and than now'),
            ('latest_start', times.latest_start,
             'must be later than now, and not earlier than starts_at')):
        if time is not None and (
                time < starts_at or time <= now and name in new
                or time == starts_at and name != 'latest_start'):
            raise exception.InvalidInput(
                name, fault if name in new else f'{fault}; change it, too',
                got=f'{time.isoformat()}Z')
    if due_at and ends_at and due_at > ends_at:
        raise exception.InvalidInput(
            'due_at', 'must not be later than ends_at',
            got=f'{due_at.isoformat()}Z')


def _check_room(request: Request, authority: targets.Authority,
                nodes: Sequence[targets.Target]) -> None:
    """Check that no node has too many notices.

    :raises: Conflict.
    """
    limit = conf.CONF.reservations.max_notices
    if request.cordon and not authority.reach.is_limited:
        # Reports must not prevent an operator's cordon.
        limit *= 2
    full = [name for name, in engine.fetch_rows(notice_rows.select_full(
        [node.id for node in nodes], limit))]
    if full:
        raise exception.Conflict(
            f'At most {limit} planned and open notices of a node are allowed '
            f'(see [reservations] max_notices). Change or close one of each '
            f'of these nodes instead: {", ".join(full)}')


def _record_failed_build(run: transaction.Run, request: Request,
                         node: targets.Target
                         ) -> tuple[list[values.Notice], bool]:
    """Record a failed build, or prolong the open notice of one.

    A notice whose cordon or end an operator has changed stays as it is.

    :returns: the notice, and whether it is new. There is none if the node is
        no longer reserved, or too many nodes are marked for the project.
    :raises: ConcurrentChange.
    """
    seconds = conf.CONF.reservations.avoid_failed
    holders = engine.fetch_rows(notice_rows.select_holders([node.id]))
    if not seconds or not holders:
        return [], False
    notices = notice_lookup.read_notices(
        notice_rows.is_failed_build_on(node.id, node.uuid), limit=1)
    if not notices:
        notices = _mark_node(run, request, node, holders[0].project_id,
                             holders[0].instance_uuid)
        return notices, bool(notices)
    if notices[0].cordon or notices[0].ends_at is None:
        return notices, False
    with transaction.begin(run) as tx:
        return write_changes(tx, [(notices[0], {
            'ends_at': notice_rows.later_end(seconds),
            'description': request.texts.description})]), False


def _mark_node(run: transaction.Run, request: Request, node: targets.Target,
               project_id: str | None, instance_uuid: str
               ) -> list[values.Notice]:
    """Insert the notice of a failed build, unless there are too many.

    :raises: ConcurrentChange.
    """
    limit = conf.CONF.reservations.avoid_failed_nodes
    try:
        with transaction.begin(run) as tx:
            if project_id is not None:
                # Concurrent requests of the project wait, and see this one.
                tx.write_project(project_id)
            if tx.execute(notice_rows.select_notices(
                    notice_rows.is_failed_build_on(node.id, node.uuid)
                    ).limit(1)).first():
                raise transaction.ConcurrentChange()
            if limit and project_id is not None:
                [[number]] = tx.execute(
                    notice_rows.COUNT_FAILED_BUILDS.where(
                        notice_rows.has_text('project_id', project_id)))
                if number >= limit:
                    LOG.warning(
                        'Did not mark node %s after a failed build of '
                        'instance %s: %d nodes are marked for project %s '
                        'already. Either its requests or many machines are '
                        'wrong. See [reservations] avoid_failed_nodes.',
                        node.uuid, instance_uuid, number,
                        text.escape_controls(project_id))
                    return []
            tx.execute(notice_rows.INSERT.values(
                _find_times(tx, request)
                | _make_columns(request, 0, node, project_id)))
            return _read_back(tx, events.NOTICE_CREATED,
                              notice_rows.has_text('uuid', request.uuid))
    except db_exc.DBDuplicateEntry:
        raise transaction.ConcurrentChange()


def _insert(run: transaction.Run, request: Request,
            authority: targets.Authority, nodes: Sequence[targets.Target]
            ) -> list[values.Notice]:
    """Insert the notices in one transaction.

    :raises: Conflict if the project has already reported a fault of a node, or
        has too many cordons; InvalidInput for times in the wrong order, or of
        a project's cordon; ConcurrentChange.
    """
    project_id = authority.reach.project_id
    reports = [node for node in nodes if not authority.may_write(node)]
    report_ids = {node.id for node in reports}
    if reports and request.cordon:
        for name, time in request.times.items():
            if time is not None:
                raise exception.InvalidInput(
                    name, 'must not be given: the cordon of a project is open '
                          'until an operator closes it')
    try:
        with transaction.begin(run) as tx:
            times = _find_times(tx, request)
            if reports:
                tx.write_project(project_id)
            if request.cordon:
                tx.touch_nodes((node.id, node.uuid) for node in nodes)
                targets.check_unchanged(tx, reports, authority)
            for number, node in enumerate(nodes):
                tx.execute(notice_rows.INSERT.values(times | _make_columns(
                    request, number, node,
                    project_id if node.id in report_ids else None)))
            for row in tx.execute(notice_rows.select_faults(
                    project_id, [node.uuid for node in reports],
                    request.uuid)) if reports else ():
                raise exception.Conflict(
                    f'Your project has already reported a fault of node '
                    f'{row.node_uuid}; change or close notice {row.uuid}.')
            if reports and request.cordon:
                check_cordons(tx, project_id)
            return _read_back(tx, events.NOTICE_CREATED,
                              notice_rows.has_text('uuid', request.uuid))
    except db_exc.DBDuplicateEntry:
        raise transaction.ConcurrentChange()


def check_cordons(tx: transaction.Transaction, project_id: str | None
                  ) -> None:
    """Check the number of a project's cordons, after the last one is written.

    :raises: Conflict if there are too many.
    """
    limit = conf.CONF.reservations.project_cordons
    if tx.execute(notice_rows.count_cordons(project_id)).scalar_one() > limit:
        raise exception.Conflict(
            f'At most {limit} cordons of a project are allowed, see '
            f'[reservations] project_cordons. Ask an operator to look at the '
            f'machines that were given back before.')


def _find_times(tx: transaction.Transaction, request: Request
                ) -> dict[str, datetime.datetime | None]:
    """Return the times of new notices.

    :raises: InvalidInput.
    """
    times = {name: transaction.find_time(name, time, tx.now)
             for name, time in request.times.items()}
    if request.is_failed_build:
        times['ends_at'] = transaction.find_time('ends_at', datetime.timedelta(
            0, conf.CONF.reservations.avoid_failed), tx.now)
    starts_at = times.pop('starts_at', None) or tx.now
    check_times(values.NoticeTimes(starts_at=starts_at, **times), TIMES,
                tx.now)
    return {'starts_at': starts_at, **times}


def _make_columns(request: Request, number: int, node: targets.Target,
                  project_id: str | None) -> dict[str, Any]:
    return {
        'uuid': request.uuid, 'number': number, 'kind': request.kind,
        'cordon': request.cordon, 'node_id': node.id, 'node_uuid': node.uuid,
        'node_name': node.name, **vars(request.texts),
        'project_id': project_id,
        'is_failed_build': request.is_failed_build,
        'created_by': request.created_by, 'request_digest': request.digest}


def _read_back(tx: transaction.Transaction, kind: events.Kind,
               *where: sa.ColumnElement[bool]) -> list[values.Notice]:
    """Return notices as they are in the transaction, and emit their events.

    Write nothing after it: see ``Transaction.read_reservation``.
    """
    notices = [values.Notice(**row._mapping) for row in tx.execute(
        notice_rows.select_notices(*where))]
    holders = {row.node_id: row for row in tx.execute(
        notice_rows.select_holders([notice.node_id for notice in notices]))}
    for notice in notices:
        holder = holders.get(notice.node_id)
        tx.emit(events.OfNotice(kind, notice, *(
            (holder.project_id, holder.instance_uuid) if holder
            else (None, None))))
    return notices


def write_changes(tx: transaction.Transaction,
                  changes: Sequence[tuple[values.Notice, Mapping[str, Any]]]
                  ) -> list[values.Notice]:
    """Change notices, and return them.

    :param changes: of each one the new values by column.
    :raises: ConcurrentChange if the times or the cordon of one are no longer
        as they were read, so that it may be unknown which nodes to touch.
    """
    for notice, columns in changes:
        tx.write_one(notice_rows.update_notice(
            notice, columns, bool(EFFECTS & columns.keys())))
    return _read_back(tx, events.NOTICE_CHANGED, notice_rows.has_id(
        notice.id for notice, _ in changes))


def sweep() -> int:
    """Delete notices that were closed long ago; return their number.

    Those whose node no longer exists end now.
    """
    while transaction.run_request(_end_lost):
        pass
    return transaction.delete_old(
        notice_rows.notices.c.ends_at, conf.CONF.reservations.notice_history)


def _end_lost(run: transaction.Run) -> int:
    """Set the end of notices whose node no longer exists; return how many."""
    notices = notice_lookup.read_notices(
        notice_rows.LOST, limit=transaction.DELETED_AT_ONCE)
    if not notices:
        return 0
    with transaction.begin(run) as tx:
        number = tx.execute(
            notice_rows.end(notice.id for notice in notices)).rowcount
        now = tx.now
    for notice in notices if number else ():
        if notice.cordon and notice.starts_at <= now:
            LOG.warning(
                'Node %(node)s no longer exists, so its cordon has ended: '
                'notice %(notice)s',
                {'node': notice.node_uuid, 'notice': notice.uuid})
    return len(notices)
