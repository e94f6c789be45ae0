# SPDX-License-Identifier: Apache-2.0
"""Writes notices: what is wrong with nodes, or will be done to them.

A write that newly keeps requests off a node first changes ``updated_at`` of
the node, so that it conflicts with a concurrent hold of the node, on every
member of a cluster. One of the two waits for the other or starts over; a hold
that comes second finds the cordon. Nodes are written in the order of their
ids, as in all transactions, and before the rows of notices.
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import itertools
from typing import Any

from oslo_db import exception as db_exc
import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import notice_rows
from ironic_reservations.reservations import targets
from ironic_reservations.reservations import transaction

#: Columns that change the effect of a notice, not only its texts.
EFFECTS = frozenset({'cordon', 'starts_at', 'ends_at'})


@dataclasses.dataclass(frozen=True)
class Request:
    """A request for notices.

    :param uuid: canonical UUID.
    :param kind: one of ``constants.NOTICE_KINDS``.
    :param nodes: UUIDs and names; empty if ``domain`` is given.
    :param domain: key of a domain (see ``group_policy.find_domain``) and its
        value: all present nodes of this domain.
    :param starts_at: UTC; None for now.
    :param ends_at: UTC; None for no end.
    :param digest: equal for equal requests.
    :param created_by: user.
    :param is_failed_build: whether a compute service records a failed build.
    """

    uuid: str
    kind: str
    cordon: bool
    nodes: tuple[str, ...]
    domain: tuple[str, str] | None
    starts_at: datetime.datetime | None
    ends_at: datetime.datetime | None
    category: str | None
    description: str | None
    ticket: str | None
    digest: str
    created_by: str | None
    is_failed_build: bool = False


def create_notices(request: Request, authority: targets.Authority
                   ) -> tuple[list[values.Notice], bool]:
    """Create a notice for each node of a request, or none.

    :returns: the notices, and whether this call has made them. A failed build
        on a node with an open notice of one prolongs that notice.
    :raises: InvalidInput for an unknown node, an empty domain, too many nodes,
        or times in the wrong order; NotAuthorized; Conflict if another request
        has used the UUID, or the project has already reported a fault of a
        node; DeadlineExceeded.
    """
    def attempt(run: transaction.Run) -> tuple[list[values.Notice], bool]:
        present = _read(notice_rows.has_text('uuid', request.uuid))
        if present:
            _check_repeat(request, authority, present)
            return present, False
        nodes = _find_targets(request, authority)
        if request.is_failed_build:
            if not conf.CONF.reservations.avoid_failed:
                return [], False
            notices = _prolong(run, request, nodes[0])
            if notices:
                return notices, False
        _check_times(request.starts_at, request.ends_at)
        return _insert(run, request, authority, nodes), True

    return transaction.run_request(attempt)


def _read(*where: sa.ColumnElement[bool], reach: values.Ownership = values.ALL,
          limit: int | None = None) -> list[values.Notice]:
    """Return notices in the order of creation.

    :param reach: see ``notice_rows.select_notices``.
    """
    return [values.Notice(**row._mapping) for row in engine.fetch_rows(
        notice_rows.select_notices(
            *where, reach=reach).limit(limit))]


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


def _find_targets(request: Request, authority: targets.Authority
                  ) -> list[targets.Target]:
    """Return the nodes of a request in the order of their ids.

    :raises: InvalidInput, NotAuthorized.
    """
    def may_create(target: targets.Target) -> bool:
        return authority.may_write(target) or (
            request.kind == 'fault' and not request.cordon
            and authority.is_reporter(target))

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
                'a pool, may report a fault, without cordon.')
    if len(nodes) > limit:
        raise exception.InvalidInput(
            'by' if request.domain else 'nodes',
            f'must be at most {limit} nodes, see [reservations] max_members')
    return nodes


def _check_times(starts_at: datetime.datetime | None,
                 ends_at: datetime.datetime | None) -> None:
    """Check that a notice ends after it starts, and after now.

    :raises: InvalidInput.
    """
    if ends_at is None:
        return
    [[now]] = engine.fetch_rows(sa.select(notice_rows.NOW))
    if ends_at <= max(starts_at or now, now):
        raise exception.InvalidInput(
            'ends_at', 'must be later than starts_at and than now',
            got=f'{ends_at.isoformat()}Z')


def _prolong(run: transaction.Run, request: Request, node: targets.Target
             ) -> list[values.Notice]:
    """Prolong the open notice of a failed build of a node, if it has one."""
    notices = _read(notice_rows.is_failed_build_on(node.id, node.uuid),
                    limit=1)
    return notices and _write_changes(run, notices, {
        'ends_at': notice_rows.later_end(
            conf.CONF.reservations.avoid_failed),
        'description': request.description})


def _insert(run: transaction.Run, request: Request,
            authority: targets.Authority, nodes: Sequence[targets.Target]
            ) -> list[values.Notice]:
    """Insert the notices in one transaction.

    :raises: Conflict if the project has already reported a fault of a node;
        ConcurrentChange.
    """
    project_id = authority.reach.project_id
    reports = [node for node in nodes if not authority.may_write(node)]
    try:
        with transaction.begin(run) as tx:
            if reports:
                tx.write_project(project_id)
            if request.cordon:
                tx.touch_nodes((node.id, node.uuid) for node in nodes)
            for number, node in enumerate(nodes):
                tx.execute(notice_rows.INSERT.values(_make_columns(
                    request, number, node,
                    project_id if node in reports else None)))
            for row in tx.execute(notice_rows.select_faults(
                    project_id, [node.uuid for node in reports],
                    request.uuid)) if reports else ():
                raise exception.Conflict(
                    f'Your project has already reported a fault of node '
                    f'{row.node_uuid}; change or close notice {row.uuid}.')
            return _read_back(tx, events.NOTICE_CREATED,
                              notice_rows.has_text('uuid', request.uuid))
    except db_exc.DBDuplicateEntry:
        raise transaction.ConcurrentChange()


def _make_columns(request: Request, number: int, node: targets.Target,
                  project_id: str | None) -> dict[str, Any]:
    return {
        'uuid': request.uuid, 'number': number, 'kind': request.kind,
        'cordon': request.cordon, 'node_id': node.id, 'node_uuid': node.uuid,
        'node_name': node.name,
        'starts_at': request.starts_at or notice_rows.NOW,
        'ends_at': (notice_rows.seconds_from_now(
                        conf.CONF.reservations.avoid_failed)
                    if request.is_failed_build
                    else request.ends_at),
        'category': request.category, 'description': request.description,
        'ticket': request.ticket, 'project_id': project_id,
        'is_failed_build': request.is_failed_build,
        'created_by': request.created_by, 'request_digest': request.digest,
        'created_at': notice_rows.NOW}


def _read_back(tx: transaction.Transaction, event: events.Event,
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
        tx.emit_notice(event, notice, *(
            (holder.project_id, holder.instance_uuid) if holder
            else (None, None)))
    return notices


def update_notices(uuid: str, node: str | None, changes: Mapping[str, Any],
                   authority: targets.Authority) -> list[values.Notice]:
    """Change the notices of a request, all or none.

    :param node: UUID or name of the node whose notice to change; None for all.
    :param changes: values by column. ``ends_at`` may be ``now``.
    :raises: NotFound if the caller sees none; NotAuthorized if the caller may
        not change one; Conflict if one is closed, and not only its texts
        change; InvalidInput; DeadlineExceeded.
    """
    where = [notice_rows.has_text('uuid', uuid)]
    if node is not None:
        where.append(notice_rows.is_on_node(node))

    def attempt(run: transaction.Run) -> list[values.Notice]:
        notices = _read(*where, reach=authority.reach)
        if not notices:
            raise exception.NotFound(
                f'No notice {uuid} could be found.' if node is None else
                f'No notice {uuid} of node {node} could be found.')
        if (run.unsure and changes.get('ends_at') == 'now'
                and all(notice.state == 'closed' for notice in notices)):
            # The COMMIT whose response was lost has succeeded.
            return notices
        for notice in notices:
            _check_change(notice, changes, authority)
        if EFFECTS & changes.keys() and changes.get('ends_at') != 'now':
            for times in {(changes.get('starts_at', notice.starts_at),
                           changes.get('ends_at', notice.ends_at))
                          for notice in notices}:
                _check_times(*times)
        return _write_changes(run, notices, changes)

    return transaction.run_request(attempt)


def _check_change(notice: values.Notice, changes: Mapping[str, Any],
                  authority: targets.Authority) -> None:
    """Check that a caller may change a notice, and that it is not closed.

    :raises: NotAuthorized, Conflict.
    """
    # A reporter must not end the cordon that an operator has added.
    affects_cordon = changes.get('cordon') or (
        notice.cordon and EFFECTS & changes.keys())
    if not authority.may_write(notice) and (
            affects_cordon or not authority.is_reporter(notice)):
        raise exception.NotAuthorized(
            'Only operators and the owner of the node may '
            + ('set or change a cordon.' if affects_cordon
               else 'change this notice.'))
    if EFFECTS & changes.keys() and notice.state == 'closed':
        raise exception.Conflict(
            f'The notice of node {notice.node_uuid} is closed; only its texts '
            f'can be changed.')


def _write_changes(run: transaction.Run, notices: Sequence[values.Notice],
                   changes: Mapping[str, Any]) -> list[values.Notice]:
    """Change notices in one transaction.

    :raises: ConcurrentChange if the times or the cordon of one are no longer
        as they were read, so that it may be unknown which nodes to touch.
    """
    columns = {name: notice_rows.NOW if value == 'now' else value
               for name, value in changes.items()}
    with transaction.begin(run) as tx:
        tx.touch_nodes((notice.node_id, notice.node_uuid)
                       for notice in notices if _keeps_off(notice, changes))
        for notice in notices:
            tx.write_one(notice_rows.update_notice(
                notice, columns, bool(EFFECTS & changes.keys())))
        return _read_back(tx, events.NOTICE_CHANGED, notice_rows.has_id(
            notice.id for notice in notices))


def _keeps_off(notice: values.Notice, changes: Mapping[str, Any]) -> bool:
    """Return whether changes newly keep requests off the node."""
    if not changes.get('cordon', notice.cordon):
        return False
    return (not notice.cordon or 'starts_at' in changes
            or changes.get('ends_at', 'now') != 'now')


@engine.retry
def find_last_id(uuid: str, reach: values.Ownership) -> int:
    """Return the id of the last notice with a UUID that is a marker.

    :raises: InvalidInput if there is none.
    """
    notices = _read(notice_rows.has_text('uuid', uuid),
                    reach=reach)
    if not notices:
        raise exception.InvalidInput('marker', 'must be the UUID of a notice',
                                     got=uuid)
    return notices[-1].id


@engine.retry
def find_notices(filters: Mapping[str, str], reach: values.Ownership,
                 after: int | None, limit: int) -> list[values.Notice]:
    """Return a page of notices, in the order of creation.

    :param filters: values of ``uuid``, ``node`` (UUID or name), ``kind``,
        ``state`` and ``ticket``.
    :param reach: see ``notice_rows.select_notices``.
    :param after: id of the last notice of the page before.
    """
    conditions = {'node': notice_rows.is_on_node,
                  'state': notice_rows.is_in_state}
    where = [conditions[name](value) if name in conditions
             else notice_rows.has_text(name, value)
             for name, value in filters.items()]
    if after is not None:
        where.append(notice_rows.is_after(after))
    return _read(*where, reach=reach, limit=limit)


@engine.retry
def find_on_nodes(node_ids: Collection[int], reach: values.Ownership
                  ) -> dict[int, list[values.Notice]]:
    """Return the planned and the open notices of nodes, by the node's id.

    :param reach: see ``notice_rows.select_notices``.
    """
    notices: dict[int, list[values.Notice]] = {}
    for notice in _read(notice_rows.affects(node_ids), reach=reach):
        notices.setdefault(notice.node_id, []).append(notice)
    return notices


def sweep() -> int:
    """Delete notices that were closed long ago; return their number."""
    return transaction.delete_old(
        notice_rows.notices.c.ends_at, conf.CONF.reservations.notice_history)


@engine.retry
def count_notices() -> dict[tuple[str, str], int]:
    """Return the numbers of planned and open notices by kind and state."""
    return {(kind, state): number for kind, state, number
            in engine.fetch_rows(notice_rows.COUNT)}
