# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation explain``."""

import argparse
import re
from typing import Any

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions
from osc_lib.command import command

from ironic_reservations.osc import client
from ironic_reservations.osc import create
from ironic_reservations.osc import group
from ironic_reservations.osc import identity
from ironic_reservations.osc import lookup
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import placement
from ironic_reservations.osc import reservation
from ironic_reservations.osc import scope
from ironic_reservations.osc import servers
from ironic_reservations.osc import suggestions

#: The key of a server's metadata that names a reservation or a group.
METADATA = 'reservations:claim'


def _explain_fault(cmd: command.Command, fault: str) -> None:
    """Print what to do about a fault that only Nova knows.

    :param fault: Nova's message about a server.
    """
    if match := re.search('No such host - host: .* node: (?!None )([^ ]+)',
                          fault):
        suggestions.print_hint(
            cmd, f'The request names {match[1]}, which is no compute node of '
                 f'Nova. If it is a node of Ironic, name it in the metadata '
                 f'reservations:candidate_nodes, or install the filter of '
                 f'Nova\'s API.')
    match = re.search('Exceeded max scheduling attempts ([0-9]+)', fault)
    if match:
        suggestions.print_hint(
            cmd, f'Nova gave up after {match[1]} attempts: see [scheduler] '
                 f'max_attempts, which nova-scheduler and nova-conductor '
                 f'read, each in its own nova.conf.')


class ExplainReservation(output.ShowOne):
    """Show why a server has no machine, or which one it would get.

    Nothing is held. If the server has a machine, its reservation is shown.
    Otherwise, this shows the nodes in Ironic that match its flavor, image,
    server group and metadata for its project, and whether Placement would
    offer a host at all. Without a server, describe the request by options. The
    exit status is 1 if there is no machine.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', nargs='?', metavar='<server>',
                            help='Server (name or ID)')
        options.add_request_options(parser)
        options.add_claim_option(parser)
        identity.add_name_options(
            parser, 'project', 'Project (name or ID) of the server, if not '
                               'your own (admins only)')
        parser.add_argument(
            '--availability-zone', metavar='<zone>',
            help='Availability zone of the server')
        scope.add_all_projects(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> output.Columns:
        auth = self._find_auth(parsed_args)
        server = parsed_args.server and servers.find_server(
            self, parsed_args.server)
        if server:
            try:
                return reservation.format_columns(lookup.read_reservation(
                    self, server.id,
                    {'fields': ','.join(reservation.DETAILS)}, auth))
            except exc.NotFound:
                pass
        spec = options.build_request_spec(
            self, parsed_args,
            server and servers.build_request(self, server))
        body = spec | self._build_owner(parsed_args, server)
        claim = parsed_args.claim or server and (
            server.metadata or {}).get(METADATA)
        if claim:
            body['claim'] = claim
        matches = self._match_nodes(body, server, auth)
        refusal = self._ask_placement(
            spec, parsed_args.availability_zone
            or server and server.availability_zone or None)
        self.status = 1 if refusal or not matches['matching_nodes'] else 0
        fault = server and (server.fault or {}).get('message')
        _explain_fault(self, fault or '')
        columns = {**({'fault': fault} if fault else {}),
                   **({'placement': refusal} if refusal else {}), **matches}
        return list(columns), list(columns.values())

    def _match_nodes(self, body: client.Data, server: Any,
                     auth: Any) -> client.Data:
        """Return columns that show which nodes match a request."""
        # A claimed reservation keeps its group.
        columns = (self._add_group(body, server, auth)
                   if server and 'claim' not in body else {})
        try:
            return columns | dict(zip(*create.show_dry_run(
                self, client.PATH, body, auth=auth), strict=True))
        except (exceptions.CommandError, exc.NotFound, exc.Conflict) as error:
            if 'claim' not in body or isinstance(error, client.NoPlugin):
                raise
            return {'claim': client.format_error(error), 'matching_nodes': 0}

    def _add_group(self, body: client.Data, server: Any,
                   auth: Any) -> dict[str, str]:
        """Add the server's group to a request.

        :returns: a column that shows it; empty without a group.
        """
        uuid, policy = servers.find_server_group(self, server)
        if uuid is None:
            return {}
        try:
            details = client.complete(self, client.request_ironic(
                self, 'GET', client.build_path(group.PATH, uuid), auth=auth),
                auth=auth)
        except exc.NotFound:
            return {'group': (
                f'{policy}, not considered: no member has a machine, and only '
                f'the compute hosts know the domain ([reservations] '
                f'server_group_by)')}
        body['group'] = {name: details[name] for name in (
            'uuid', 'policy', 'by') if details[name] is not None}
        domains = group.format_member_domains(details).human_readable()
        return {'group': f'{details["policy"]} by {details["by"]}, members in '
                         + domains.replace('\n', ', ')}

    def _find_auth(self, args: argparse.Namespace) -> Any:
        """Return how to log in to Ironic, in system scope if possible."""
        self._sees_all = True
        try:
            return scope.find_full_auth(self)
        except (exceptions.CommandError, ksa_exc.ClientException):
            if args.all_projects or args.project:
                raise
            self._sees_all = False
            print('Your project can see only nodes that it owns, leases or '
                  'has in a pool; Nova may use others.',
                  file=self.app.stderr, flush=True)
            return None

    def _build_owner(self, args: argparse.Namespace,
                     server: Any) -> client.Data:
        """Return the keys of a request for the project."""
        if not self._sees_all:
            # Ironic may require a lease of project-scoped callers
            # ([reservations] require_lease), and accepts any short one.
            return {'expires_in': 1}
        keys = {'ownership': args.ownership or 'any'}
        reference = client.get_access(self)
        if server:
            keys['project_id'] = server.project_id
        elif reference is not None and reference.project_id:
            keys['project_id'] = reference.project_id
        return keys | identity.find_ids(self, args, 'project')

    def _ask_placement(self, spec: client.Data,
                       zone: str | None) -> str | None:
        """Return why Placement refuses; None if it does not, or on errors."""
        try:
            return placement.explain_refusal(self, spec, zone)
        except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
            self.log.info('Cannot read Placement: %s', error)
            return None
