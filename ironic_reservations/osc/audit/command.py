# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation audit``."""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
import time
from typing import Any

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
from ironic_reservations.osc.audit import snapshot

#: Seconds between the two readings. Nova needs a moment to complete an
#: operation: for example, it deletes a server before its allocation.
PAUSE = 2

COLUMNS = ('Kind', 'Instance', 'Node', 'Host', 'What to Do')


class AuditReservation(output.Lister):
    """Show disagreements of Nova, Placement, the reservations and Ironic.

    Without Nova, only the reservations and Ironic are compared. Requires the
    admin role of Nova and Placement in a project. Ironic is read for all
    projects, with a token in system scope if it requires one. The exit status
    is 1 if there are disagreements or, with --repair, if any remain.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<host>',
                            help='Only disagreements about this compute '
                                 'service')
        parser.add_argument(
            '--repair', action='store_true',
            help='Repair what needs no judgement, show the results, and audit '
                 'again; no machine is affected')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        host = parsed_args.host
        with client.convert_nova_errors(), progress.show_line(self):
            self._reader = reader.Reader(self, scope.find_full_auth(self))
            self._has_nova = client.has_service(self, 'compute')
            if not self._has_nova:
                self.log.warning(
                    'There is no Nova here: the reservations are compared '
                    'only with the nodes of Ironic.')
            cloud, findings = self._audit(host)
            if host is not None and not cloud.knows(host):
                # No error: a per-node host may have no nodes.
                self.log.warning('No server, reservation or compute node of '
                                 'Nova names host %s.', host)
            if not parsed_args.repair:
                self.status = 1 if findings else 0
                return COLUMNS, [
                    (*_format_finding(cloud, finding),
                     kinds.describe_action(cloud, finding))
                    for finding in findings]
            results, after, remaining = self._repair_all(
                cloud, findings, host)
        self.status = 1 if remaining else 0
        return (*COLUMNS, 'Repair'), [
            (*_format_finding(cloud, finding),
             kinds.describe_action(after, finding) if finding in remaining
             else 'nothing',
             results.get(finding, 'new'))
            for finding in dict.fromkeys([*results, *remaining])]

    def _repair_all(self, cloud: snapshot.Cloud,
                    findings: list[snapshot.Finding], host: str | None,
                    ) -> tuple[dict[snapshot.Finding, str], snapshot.Cloud,
                               list[snapshot.Finding]]:
        """Repair findings, and audit again.

        :returns: results by finding, the Cloud after the repairs, and its
            findings.
        """
        results: dict[snapshot.Finding, str] = {}
        remaining, after = findings, cloud
        # The audit shows one finding per instance, so further findings of a
        # repaired instance are repaired in another round.
        while todo := [finding for finding in findings
                       if finding not in results]:
            results |= {finding: self._repair(after, finding)
                        for finding in todo}
            try:
                after, remaining = self._audit(host)
            except Exception:
                # There will be no table, so the results are logged.
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

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: Sequence[str],
                       data: Iterable[Sequence[Any]]) -> int:
        if parsed_args.formatter == 'table' and not data:
            print(f'Nothing disagrees: {self._total}.', file=self.app.stdout)
            return 0
        return super().produce_output(parsed_args, column_names, data)

    def _audit(self, host: str | None,
               ) -> tuple[snapshot.Cloud, list[snapshot.Finding]]:
        """Return a Cloud, and its findings that are certain."""
        cloud = self._read_cloud(host)
        findings = kinds.find_findings(cloud, host)
        if findings:
            # The lists were read at different moments, so a concurrent change
            # looks like a disagreement. Only one that is found twice is
            # certain.
            progress.update_line(self, 'Found %d possible disagreements; '
                                       'reading again', len(findings))
            time.sleep(PAUSE)
            cloud, before = self._read_cloud(host), set(findings)
            findings = [finding for finding in kinds.find_findings(cloud, host)
                        if finding in before]
        servers = f'{len(cloud.servers)} servers, ' if cloud.has_nova else ''
        self._total = (f'{servers}{len(cloud.reservations)} reservations, '
                       f'{len(cloud.nodes)} nodes')
        return cloud, findings

    def _read_cloud(self, host: str | None) -> snapshot.Cloud:
        return (self._reader.read_cloud(host) if self._has_nova
                else self._reader.read_ironic())

    def _repair(self, cloud: snapshot.Cloud, finding: snapshot.Finding) -> str:
        """Repair a finding, if that needs no judgement.

        :returns: the result in a few words.
        """
        kind = kinds.KINDS[finding.kind]
        if kind.repair is None:
            return 'left'
        try:
            details = self._reader.read_details(cloud, finding)
            if finding[1:] not in kind.find_places(details.cloud):
                return 'gone'
            if not kind.may_repair(details.cloud, finding):
                return 'left'
            result = f'done: {kind.repair(self, details, finding)}'
        except (exc.ClientException, sdk_exc.SDKException,
                ksa_exc.ClientException, repairs.Refusal) as error:
            result = f'failed: {error}'
        self.log.info('%s, instance %s, node %s: %s', *finding[:3], result)
        return result


def _format_finding(cloud: snapshot.Cloud,
                    finding: snapshot.Finding) -> snapshot.Finding:
    """Return the COLUMNS of a finding but the last, with the node's name."""
    return finding._replace(node=cloud.format_node(finding.node))
