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
from ironic_reservations.osc.audit import kinds
from ironic_reservations.osc.audit import reader
from ironic_reservations.osc.audit import repairs

#: Seconds between the two readings. Nova needs a moment to complete an
#: operation: for example, it deletes a server before its allocation.
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
            cloud, findings = self._audit(host)
            if host is not None and not cloud.knows(host):
                # No error: one with a row per node may have no nodes.
                self.log.warning('No server, reservation or row of Nova '
                                 'names host %s.', host)
            if not parsed_args.repair:
                self.status = 1 if findings else 0
                return COLUMNS, [
                    (*_fields(cloud, finding), kinds.action(cloud, finding))
                    for finding in findings]
            results, after, remaining = self._repair_all(
                cloud, findings, host)
        self.status = 1 if remaining else 0
        return (*COLUMNS, 'Repair'), [
            (*_fields(cloud, finding),
             kinds.action(after, finding) if finding in remaining
             else 'nothing',
             results.get(finding, 'new'))
            for finding in dict.fromkeys([*results, *remaining])]

    def _repair_all(self, cloud, findings, host):
        """Repair Findings, and audit again.

        :returns: results by Finding, the Cloud after the repairs, and its
            Findings.
        """
        results, remaining, after = {}, findings, cloud
        # The audit shows one Finding per instance: the next one of a repaired
        # instance is repaired in another round.
        while todo := [finding for finding in findings
                       if finding not in results]:
            results |= {finding: self._repair(after, finding)
                        for finding in todo}
            try:
                after, remaining = self._audit(host)
            except Exception:
                # There will be no table, so the log has to say what was done.
                for finding, result in results.items():
                    self.log.warning('%s, instance %s, node %s: %s',
                                     *finding[:3], result)
                raise
            instances = {finding.instance
                         for finding, result in results.items()
                         if finding.instance and result.startswith('done')}
            findings = [finding for finding in remaining
                        if finding.instance in instances]
        return results, after, remaining

    def produce_output(self, parsed_args, column_names, data):
        if parsed_args.formatter == 'table' and not data:
            print(f'Nothing disagrees: {self._looked_at}.',
                  file=self.app.stdout)
            return 0
        return super().produce_output(parsed_args, column_names, data)

    def _audit(self, host):
        """Return a Cloud, and the list of its Findings that are certain."""
        cloud = self._read(host)
        findings = kinds.find(cloud, host)
        if findings:
            # The lists were read at different moments, so a concurrent change
            # looks like a disagreement. Only what disagrees twice is certain.
            progress.say(self, '%d may disagree, and are read again',
                         len(findings))
            time.sleep(PAUSE)
            cloud, before = self._read(host), set(findings)
            findings = [finding for finding in kinds.find(cloud, host)
                        if finding in before]
        servers = f'{len(cloud.servers)} servers, ' if cloud.has_nova else ''
        self._looked_at = (f'{servers}{len(cloud.reservations)} reservations, '
                           f'{len(cloud.nodes)} nodes')
        return cloud, findings

    def _read(self, host):
        return (self._reader.read(host) if self._has_nova
                else self._reader.read_ironic())

    def _repair(self, cloud, finding):
        """Repair a Finding, if that needs no judgement.

        :returns: what was done, or why nothing was done, in a few words.
        """
        kind = kinds.KINDS[finding.kind]
        if kind.repair is None:
            return 'left'
        try:
            now = self._reader.read_again(cloud, finding)
            if finding[1:] not in kind.find(now.cloud):
                return 'gone'
            if not kind.may_repair(now.cloud, finding):
                return 'left'
            result = f'done: {kind.repair(self, now, finding)}'
        except (exc.ClientException, sdk_exc.SDKException,
                ksa_exc.ClientException, repairs.Refusal) as error:
            result = f'failed: {error}'
        self.log.info('%s, instance %s, node %s: %s', *finding[:3], result)
        return result


def _fields(cloud, finding):
    """Return the COLUMNS of a Finding but the last, with the node's name."""
    return finding._replace(node=cloud.node_name(finding.node))
