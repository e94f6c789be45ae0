# SPDX-License-Identifier: Apache-2.0
"""Changes notices: for operators and reporters, and when a project schedules.
"""

from collections.abc import Mapping
import datetime
from typing import Any

from oslo_db import exception as db_exc

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import notice_rows
from ironic_reservations.reservations import notice_lookup
from ironic_reservations.reservations import notices
from ironic_reservations.reservations import targets
from ironic_reservations.reservations import transaction

#: What a report becomes by the cordon of a project: it is open until an
#: operator closes it.
_ENDLESS = dict.fromkeys(notices.TIMES - {'starts_at'})


def update_notices(uuid: str, node: str | None, changes: Mapping[str, Any],
                   authority: targets.Authority) -> list[values.Notice]:
    """Change the notices of a request, all or none.

    :param node: UUID or name of the node whose notice to change; None for all.
    :param changes: values by column.
    :returns: those that it covers.
    :raises: NotFound if the caller sees none; NotAuthorized if the caller may
        not change one; Conflict if one is closed, and not only its texts
        change, or if a project must not move one, or has too many cordons;
        InvalidInput; DeadlineExceeded.
    """
    where = [notice_rows.has_text('uuid', uuid)]
    if node is not None:
        where.append(notice_rows.is_on_node(node))

    def attempt(run: transaction.Run) -> list[values.Notice]:
        present = notice_lookup.read_notices(*where, reach=authority.reach)
        if not present:
            raise exception.NotFound(
                f'No notice {uuid} could be found.' if node is None else
                f'No notice {uuid} of node {node} could be found.')
        effects = notices.EFFECTS & changes.keys()
        if node is None and effects:
            present = [notice for notice in present if notice.has_node]
            if not present:
                raise exception.Conflict(
                    f'The nodes of notices {uuid} no longer exist; only texts '
                    f'can be changed.')
        own = [notice for notice in present if not authority.may_write(notice)]
        is_reporter = all(map(authority.has_reported, own))
        if own and not is_reporter and changes.keys() == {'starts_at'}:
            if own != present:
                raise exception.Conflict(
                    f'You may change some of the notices {uuid} as an owner, '
                    f'and only move others: name the node.')
            return _schedule(run, present, changes['starts_at'], authority)
        if (own == present and is_reporter and effects == {'cordon'}
                and changes['cordon']
                and conf.CONF.reservations.project_cordons):
            return _cordon(run, present, changes, authority)
        return _change(run, present, changes, authority)

    return transaction.run_request(attempt)


def _change(run: transaction.Run, present: list[values.Notice],
            changes: Mapping[str, Any], authority: targets.Authority
            ) -> list[values.Notice]:
    """Change notices that the caller may write, or has reported.

    :raises: NotAuthorized, Conflict, InvalidInput, ConcurrentChange.
    """
    is_end = changes.get('ends_at') == notices.AT_ONCE
    if run.unsure and is_end and all(
            notice.state == 'closed' for notice in present):
        # The COMMIT whose response was lost has succeeded.
        return present
    for notice in present:
        _check_change(notice, changes, authority)
    new = notices.TIMES & changes.keys()
    with transaction.begin(run) as tx:
        columns = {**changes, **{
            name: transaction.find_time(name, changes[name], tx.now)
            for name in new}}
        if 'starts_at' in new:
            columns['scheduled_at'] = None
        for notice in present if new else ():
            times = {name: columns.get(name, getattr(notice, name))
                     for name in notices.TIMES}
            if is_end:
                del times['ends_at']
            notices.check_times(values.NoticeTimes(**times), new, tx.now)
        tx.touch_nodes((notice.node_id, notice.node_uuid)
                       for notice in present if _keeps_off(notice, changes))
        return notices.write_changes(
            tx, [(notice, columns) for notice in present])


def _check_change(notice: values.Notice, changes: Mapping[str, Any],
                  authority: targets.Authority) -> None:
    """Check that a caller may change a notice, and that it is not closed.

    :raises: NotAuthorized, Conflict.
    """
    if not authority.may_write(notice):
        if not authority.has_reported(notice):
            raise exception.NotAuthorized(
                'Only operators and the owner of the node may change this '
                'notice; the project that has the node may move its '
                'starts_at, and nothing else.')
        # A reporter must not end the cordon that an operator has added.
        if changes.get('cordon') or (
                notice.cordon and notices.EFFECTS & changes.keys()):
            raise exception.NotAuthorized(
                'Only operators and the owner of the node may set or change '
                'a cordon.')
    if notices.EFFECTS & changes.keys() and notice.state == 'closed':
        raise exception.Conflict(
            f'The notice of node {notice.node_uuid} is closed; only its texts '
            f'can be changed.')


def _keeps_off(notice: values.Notice, changes: Mapping[str, Any]) -> bool:
    """Return whether changes newly keep requests off the node."""
    if not changes.get('cordon', notice.cordon):
        return False
    return (not notice.cordon or 'starts_at' in changes
            or changes.get('ends_at', notices.AT_ONCE) != notices.AT_ONCE)


def _cordon(run: transaction.Run, present: list[values.Notice],
            changes: Mapping[str, Any], authority: targets.Authority
            ) -> list[values.Notice]:
    """Set the cordon of reports of the caller's project, without an end.

    :raises: NotAuthorized if it no longer has one of the machines; Conflict if
        one is not open, or the project has too many cordons; ConcurrentChange.
    """
    texts = {name: text for name, text in changes.items() if name != 'cordon'}
    new = [notice for notice in present if not notice.cordon]
    if not new:
        # An operator may have changed the cordon.
        return _change(run, present, texts, authority) if texts else present
    if any(notice.state != 'open' for notice in new):
        raise exception.Conflict(
            'A project can only set the cordon of an open report.')
    nodes = _find_nodes(new, authority)
    if not (len(nodes) == len(new) and all(map(
            authority.may_cordon, nodes))):
        raise exception.NotAuthorized(
            'A project may set a cordon only while the node carries its '
            'server, or is in its pool and no other project holds it.')
    try:
        with transaction.begin(run) as tx:
            tx.write_project(authority.reach.project_id)
            tx.touch_nodes((node.id, node.uuid) for node in nodes)
            targets.check_unchanged(tx, nodes, authority)
            result = notices.write_changes(
                tx, [(notice, {**texts, 'cordon': True, **_ENDLESS}
                      if notice in new else texts) for notice in present])
            notices.check_cordons(tx, authority.reach.project_id)
            return result
    except db_exc.DBDuplicateEntry:
        # A concurrent request has inserted the row of the project.
        raise transaction.ConcurrentChange() from None


def _find_nodes(present: list[values.Notice], authority: targets.Authority
                ) -> list[targets.Target]:
    """Return the nodes of notices, if they still exist."""
    uuids = {notice.node_uuid for notice in present}
    return [node for node in targets.find_nodes(
        [notice.node_id for notice in present], authority)
        if node.uuid in uuids]


def _schedule(run: transaction.Run, present: list[values.Notice],
              start: values.Time, authority: targets.Authority
              ) -> list[values.Notice]:
    """Move planned notices of nodes that the caller's project has.

    :param start: the new time, at the latest that of ``latest_start``.
    :raises: NotAuthorized if it has none of the nodes; Conflict if it can move
        none of the notices, or one opens soon; InvalidInput; ConcurrentChange.
    """
    nodes = {node.id: node for node in _find_nodes(present, authority)
             if authority.has_machine(node)}
    own = [notice for notice in present if notice.node_id in nodes]
    if not own:
        if not run.tries:
            # It may have lost the nodes, and so the view of the notices, since
            # these were read.
            raise transaction.ConcurrentChange()
        raise exception.NotAuthorized(
            'Only operators and the owner of the node may change this notice; '
            'a project may move its starts_at while the node carries its '
            'server, or is in its pool and not reserved.')
    movable = [notice for notice in own if notice.state == 'planned'
               and notice.latest_start is not None]
    if not movable:
        if run.unsure:
            # The COMMIT whose response was lost has succeeded.
            return own
        raise exception.Conflict(
            'This notice cannot be moved: it is open or closed, or has no '
            'latest_start.')
    with transaction.begin(run) as tx:
        changes = [(notice, _move(run, notice, start, tx.now))
                   for notice in movable]
        # The node is written also if the notice opens later: its row decides
        # which project has it.
        tx.touch_nodes((notice.node_id, notice.node_uuid)
                       for notice in movable if notice.cordon)
        targets.check_unchanged(
            tx, [nodes[node_id] for node_id in sorted(
                {notice.node_id for notice in movable})], authority)
        return notices.write_changes(tx, changes)


def _move(run: transaction.Run, notice: values.Notice, start: values.Time,
          now: datetime.datetime) -> dict[str, Any]:
    """Return the columns of a notice that a project moves.

    :raises: InvalidInput for a time that it must not choose; Conflict if the
        notice opens too soon; ConcurrentChange if it has opened.
    """
    if notice.starts_at <= now:
        raise transaction.ConcurrentChange()
    last = notice.latest_start
    starts_at = transaction.find_time('starts_at', start, now)
    if starts_at is None or last is None or not now <= starts_at <= last:
        raise exception.InvalidInput(
            'starts_at', f'must be from now to latest_start, '
                         f'{last and last.isoformat()}Z')
    seconds = conf.CONF.reservations.schedule_ahead
    if (start != notices.AT_ONCE and not run.unsure
            and notice.starts_at - now < datetime.timedelta(0, seconds)):
        raise exception.Conflict(
            f'The notice of node {notice.node_uuid} opens in less than '
            f'{seconds} seconds, see [reservations] schedule_ahead; it can '
            f'only be moved to now.')
    columns: dict[str, Any] = {'starts_at': starts_at, 'scheduled_at': now}
    for name in ('due_at', 'ends_at'):
        time = getattr(notice, name)
        try:
            columns[name] = time and time + (starts_at - notice.starts_at)
        except OverflowError:
            raise exception.InvalidInput(
                'starts_at', f'moves {name} out of range')
    return columns
