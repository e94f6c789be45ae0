# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-manage: give back nodes whose lease is over."""

import sys

from oslo_config import cfg

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import notifications
from ironic_reservations import text
from ironic_reservations.reservations import expiry


def sweep():
    """Give back nodes whose lease is over, and purge finished rows."""
    with notifications.unhurried():
        given_back, purged = expiry.sweep()
    print(f'{given_back} nodes given back, {purged} finished reservations '
          f'purged')


def audit():
    """List reservations that are past their lease but cannot be given back.

    Something has begun on their nodes. Exits with 1 when there are any.
    """
    overdue = expiry.overdue()
    for each in overdue:
        print(f'instance {each.instance_uuid} of host '
              f'{text.escape_controls(str(each.host))} on node '
              f'{each.node_uuid}: lease over since {each.expires_at} UTC, '
              + _why(each))
    print(f'{len(overdue)} reservations past their lease')
    return 1 if overdue else 0


def _why(reservation):
    """Why the node is not given back."""
    if reservation.lock:
        return f'node locked by {reservation.lock}'
    if reservation.provision_state != 'available':
        return f'node is {reservation.provision_state}'
    return 'node has instance_info, a VIF or a volume target'


COMMANDS = {'sweep': sweep, 'audit': audit}


def _add_commands(subparsers):
    for name, run in COMMANDS.items():
        subparsers.add_parser(name, help=run.__doc__.split('\n')[0],
                              description=run.__doc__)


@cmd.command
def main():
    conf.CONF.register_cli_opt(cfg.SubCommandOpt(
        'command', title='Commands', handler=_add_commands))
    conf.load(sys.argv[1:], prog='ironic-reservations-manage')
    return COMMANDS[conf.CONF.command.name]()


if __name__ == '__main__':
    sys.exit(main())
