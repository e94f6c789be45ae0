# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation audit``."""

import time

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc

from ironic_reservations.osc import client
from ironic_reservations.osc import output
from ironic_reservations.osc import progress
from ironic_reservations.osc import scope
from ironic_reservations.osc.audit import advice
from ironic_reservations.osc.audit import kinds
from ironic_reservations.osc.audit import reader
from ironic_reservations.osc.audit import repairs

#: Seconds between the two readings. Nova needs a moment to finish what it had
#: begun: for example, it deletes a server first and then its allocation.
PAUSE = 2

COLUMNS = ('Kind', 'Instance', 'Node', 'Host', 'What to Do')


class AuditReservation(output.Lister):
    """Show what Nova, Placement, the reservations and Ironic disagree about.

    Where there is no Nova, it is what the reservations and Ironic disagree
    about. Log in for a project, as an admin of Nova and Placement. Ironic is
    asked for all projects, with a token in system scope where it wants one.
    The exit status is 1 if there is anything to show, or, with --repair, if
    anything of it is left.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Only what concerns this compute service')
        parser.add_argument(
            '--repair', action='store_true',
            help='Mend what needs no judgement, say of each what was done, '
                 'and look again what is left; no machine is touched')
        return parser

    def take_action(self, parsed_args):
        host = parsed_args.host
        with client.errors_of_nova(), progress.shown(self):
            self._reader = reader.Reader(self, scope.of_ironic(self))
            self._has_nova = self._reader.has_nova()
            if not self._has_nova:
                self.log.warning(
                    'There is no Nova here: the reservations are compared '
                    'with the nodes of Ironic alone.')
            cloud, found = self._audit(host)
            if host is not None and not cloud.knows(host):
                # No error: one with a row per node may have no nodes.
                self.log.warning('No server, reservation or row of Nova '
                                 'names host %s.', host)
            if not parsed_args.repair:
                self.status = 1 if found else 0
                return COLUMNS, [_shown(cloud, each) for each in found]
            results, after, left = self._repair_all(cloud, found, host)
        self.status = 1 if left else 0
        return (*COLUMNS, 'Repair'), [
            (*_named(cloud, each),
             advice.of(after, each) if each in left else 'nothing',
             results.get(each, 'new'))
            for each in dict.fromkeys([*results, *left])]

    def _repair_all(self, cloud, found, host):
        """Repair, and look again what is left.

        :returns: what was done, by Finding; the Cloud as it is then; and the
            Findings that are left.
        """
        results, left, after = {}, found, cloud
        # Of each server one thing is found at a time: what was behind one
        # that has been mended is mended in another round.
        while todo := [each for each in found if each not in results]:
            results |= {each: self._repair(after, each) for each in todo}
            try:
                after, left = self._audit(host)
            except Exception:
                # There will be no table, so the log has to say what was done.
                for each, result in results.items():
                    self.log.warning('%s, instance %s, node %s: %s',
                                     *each[:3], result)
                raise
            mended = {each.instance for each in results if each.instance
                      and results[each].startswith('done')}
            found = [each for each in left if each.instance in mended]
        return results, after, left

    def produce_output(self, parsed_args, column_names, data):
        if parsed_args.formatter == 'table' and not data:
            print(f'Nothing disagrees: {self._looked_at}.',
                  file=self.app.stdout)
            return 0
        return super().produce_output(parsed_args, column_names, data)

    def _audit(self, host):
        """Return a Cloud, and a list of the Findings that are certain."""
        cloud = self._read(host)
        findings = kinds.find(cloud, host)
        if findings:
            # The lists were read at different moments, so something may only
            # seem to disagree. Only what disagrees twice is certain.
            progress.say(self, '%d may disagree, and are read again',
                         len(findings))
            time.sleep(PAUSE)
            cloud, before = self._read(host), set(findings)
            findings = [each for each in kinds.find(cloud, host)
                        if each in before]
        servers = f'{len(cloud.servers)} servers, ' if cloud.has_nova else ''
        self._looked_at = (f'{servers}{len(cloud.reservations)} reservations, '
                           f'{len(cloud.nodes)} nodes')
        return cloud, findings

    def _read(self, host):
        return (self._reader.read(host) if self._has_nova
                else self._reader.read_ironic())

    def _repair(self, cloud, finding):
        """Repair what a Finding names, if that needs no judgement.

        :returns: what was done, or why nothing was, in a few words.
        """
        repair = repairs.REPAIRS.get(finding.kind)
        if repair is None:
            return 'left'
        try:
            now = self._reader.read_again(cloud, finding)
            if finding[1:] not in kinds.KINDS[finding.kind](now.cloud):
                return 'gone'
            if not repair.may(now.cloud, finding):
                return 'left'
            result = f'done: {repair.do(self, now, finding)}'
        except (exc.ClientException, sdk_exc.SDKException,
                ksa_exc.ClientException, repairs.Refusal) as error:
            result = f'failed: {error}'
        self.log.info('%s, instance %s, node %s: %s', *finding[:3], result)
        return result


def _shown(cloud, finding):
    """Return the COLUMNS of a Finding."""
    return *_named(cloud, finding), advice.of(cloud, finding)


def _named(cloud, finding):
    """Return the same without the last; a node is shown by its name."""
    node = cloud.nodes.get(finding.node)
    return finding._replace(node=node and node.name or finding.node)
