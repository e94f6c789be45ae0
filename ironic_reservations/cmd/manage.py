# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-manage: expire, purge and audit reservations."""

from collections.abc import Callable
from collections.abc import Iterator
import sys
from typing import Any

from oslo_config import cfg

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import notifications
from ironic_reservations import values
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import history
from ironic_reservations.reservations import notice_lookup
from ironic_reservations.reservations import notices
from ironic_reservations.reservations import pools
from ironic_reservations.reservations import preparations
from ironic_reservations.shared import text


def sweep() -> None:
    """Release nodes whose lease has expired, and delete what is out of date.

    These are stale reservations, notices that were closed long ago, expired
    pools, and reservations in the history that ended long ago.
    """
    with notifications.send_all():
        expirations, purges = expiry.sweep()
        pool_purges = pools.purge()
    deletions, old_ends = notices.sweep(), history.sweep()
    print(f'{expirations} reservations expired, {purges} stale reservations '
          f'purged, {deletions} old notices deleted, {pool_purges} expired '
          f'pools purged, {old_ends} old reservations deleted from the '
          f'history')


def audit() -> int:
    """List reservations, nodes and notices that need a decision.

    These are reservations whose lease has expired, but whose node is in use;
    available nodes that carry something of a tenant without an instance;
    available nodes with an instance that has no reservation and no allocation;
    nodes of a pool that carry an instance of another project; notices that are
    overdue; and cordons that projects have set. The exit status is 1 if there
    are any.
    """
    counts = []
    for find, summary in _AUDITS.items():
        lines = list(find())
        for line in lines:
            print(line)
        counts.append((len(lines), summary))
    print(', '.join(f'{count} {summary}' for count, summary in counts))
    return 1 if any(count for count, _ in counts) else 0


def _describe_overdue() -> Iterator[str]:
    for reservation in expiry.find_overdue():
        yield (f'instance {reservation.instance_uuid} of host '
               f'{text.escape_controls(str(reservation.host))} on node '
               f'{reservation.node_uuid}: lease expired at '
               f'{reservation.expires_at} UTC, {_find_use(reservation)}')


def _find_use(reservation: values.Reservation) -> str:
    """Return why the node is not released."""
    if reservation.lock:
        return f'node locked by {reservation.lock}'
    if reservation.provision_state != 'available':
        return f'node is {reservation.provision_state}'
    return 'node has instance_info, a VIF or a volume target'


def _describe_prepared() -> Iterator[str]:
    for node, commands in preparations.find_prepared():
        yield (f'node {node} is available, but carries something of a tenant; '
               f'remove it: {"; ".join(commands)}')


def _describe_unknown_instances() -> Iterator[str]:
    for node, instance in preparations.find_unknown_instances():
        yield (f'node {node} is available, but carries instance '
               f'{text.escape_controls(instance)}, which has no reservation; '
               f'unless a server has it or somebody is about to deploy it: '
               f'openstack baremetal node unset {node} --instance-uuid')


def _describe_pool_conflicts() -> Iterator[str]:
    for conflict in pools.find_conflicts():
        yield (f'node {conflict.uuid} is in pool {conflict.pool} of project '
               f'{text.escape_controls(conflict.project_id)}, but carries '
               f'instance {text.escape_controls(conflict.instance_uuid)} of '
               f'project {text.escape_controls(conflict.other_project)}; when '
               f'that is deleted, the node is free for the pool')


def _describe_overdue_notices() -> Iterator[str]:
    for notice in notice_lookup.find_overdue():
        yield (f'node {notice.node_uuid} has a notice that was due at '
               f'{notice.due_at} UTC; if the work is done: '
               f'{_format_close(notice)}')


def _describe_project_cordons() -> Iterator[str]:
    for notice in notice_lookup.find_project_cordons():
        yield (f'node {notice.node_uuid} is cordoned by project '
               f'{text.escape_controls(str(notice.project_id))} since '
               f'{notice.starts_at} UTC; after its repair: '
               f'{_format_close(notice)}')


def _format_close(notice: values.Notice) -> str:
    """Return the command that closes a notice."""
    return (f'openstack baremetal reservation notice close {notice.uuid} '
            f'--node {notice.node_uuid}')


#: Functions that describe findings of the audit, with a summary of each.
_AUDITS: dict[Callable[[], Iterator[str]], str] = {
    _describe_overdue: 'reservations are overdue',
    _describe_prepared: 'free nodes are prepared',
    _describe_unknown_instances: 'nodes carry an unknown instance',
    _describe_pool_conflicts: 'nodes of pools carry an instance of another '
                              'project',
    _describe_overdue_notices: 'notices are overdue',
    _describe_project_cordons: 'cordons were set by projects'}


COMMANDS: dict[str, Callable[[], int | None]] = {
    'sweep': sweep, 'audit': audit}


def _add_commands(subparsers: Any) -> None:
    for name, run in COMMANDS.items():
        subparsers.add_parser(name, help=(run.__doc__ or '').split('\n')[0],
                              description=run.__doc__)


@cmd.command
def main() -> int | None:
    conf.CONF.register_cli_opt(cfg.SubCommandOpt(
        'command', title='Commands', handler=_add_commands))
    conf.load(sys.argv[1:], prog='ironic-reservations-manage')
    return COMMANDS[conf.CONF.command.name]()


if __name__ == '__main__':
    sys.exit(main())
