# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-manage: expire, purge and audit reservations."""

from collections.abc import Callable
import sys
from typing import Any

from oslo_config import cfg

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import notifications
from ironic_reservations import values
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import history
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
    """List reservations past their lease, and nodes that cannot be held.

    These are reservations whose lease has expired, but whose node is in use;
    available nodes that carry something of a tenant without an instance; and
    available nodes with an instance that has no reservation and no allocation;
    and nodes of a pool that carry an instance of another project. The exit
    status is 1 if there are any.
    """
    overdue = expiry.find_overdue()
    for reservation in overdue:
        print(f'instance {reservation.instance_uuid} of host '
              f'{text.escape_controls(str(reservation.host))} on node '
              f'{reservation.node_uuid}: lease expired at '
              f'{reservation.expires_at} UTC, {_find_use(reservation)}')
    nodes = preparations.find_prepared()
    for node, commands in nodes:
        print(f'node {node} is available, but carries something of a tenant; '
              f'remove it: {"; ".join(commands)}')
    instances = preparations.find_unknown_instances()
    for node, instance in instances:
        print(f'node {node} is available, but carries instance '
              f'{text.escape_controls(instance)}, which has no reservation; '
              f'unless a server has it or somebody is about to deploy it: '
              f'openstack baremetal node unset {node} --instance-uuid')
    conflicts = pools.find_conflicts()
    for conflict in conflicts:
        print(f'node {conflict.uuid} is in pool {conflict.pool} of project '
              f'{text.escape_controls(conflict.project_id)}, but carries '
              f'instance {text.escape_controls(conflict.instance_uuid)} of '
              f'project {text.escape_controls(conflict.other_project)}; when '
              f'that is deleted, the node is free for the pool')
    print(f'{len(overdue)} reservations are overdue, {len(nodes)} free '
          f'nodes are prepared, {len(instances)} nodes carry an unknown '
          f'instance, {len(conflicts)} nodes of pools carry an instance of '
          f'another project')
    return 1 if overdue or nodes or instances or conflicts else 0


def _find_use(reservation: values.Reservation) -> str:
    """Return why the node is not released."""
    if reservation.lock:
        return f'node locked by {reservation.lock}'
    if reservation.provision_state != 'available':
        return f'node is {reservation.provision_state}'
    return 'node has instance_info, a VIF or a volume target'


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
