# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-manage: expire, purge and audit reservations."""

from collections.abc import Callable
import sys
import typing
from typing import Any

from oslo_config import cfg

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import notifications
from ironic_reservations import text
from ironic_reservations.reservations import expiry

if typing.TYPE_CHECKING:
    from ironic_reservations.reservations import values


def sweep() -> None:
    """Release nodes whose lease has expired, and purge stale reservations."""
    with notifications.send_all():
        expirations, purges = expiry.sweep()
    print(f'{expirations} reservations expired, {purges} stale reservations '
          f'purged')


def audit() -> int:
    """List reservations whose lease has expired, but whose node is in use.

    The exit status is 1 if there are any.
    """
    overdue = expiry.find_overdue()
    for reservation in overdue:
        print(f'instance {reservation.instance_uuid} of host '
              f'{text.escape_controls(str(reservation.host))} on node '
              f'{reservation.node_uuid}: lease expired at '
              f'{reservation.expires_at} UTC, {_find_use(reservation)}')
    print(f'{len(overdue)} reservations are overdue')
    return 1 if overdue else 0


def _find_use(reservation: 'values.Reservation') -> str:
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
