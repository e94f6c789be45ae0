# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation explain``."""

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions

from ironic_reservations.osc import claims
from ironic_reservations.osc import client
from ironic_reservations.osc import create
from ironic_reservations.osc import group
from ironic_reservations.osc import identity
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import placement
from ironic_reservations.osc import reservation
from ironic_reservations.osc import scope
from ironic_reservations.osc import servers


class ExplainReservation(output.ShowOne):
    """Show why a server has no machine, or which one it would get.

    Nothing is held. For a server that has a machine, its reservation is shown.
    Otherwise this shows what its flavor, image, server group and metadata
    would find in Ironic for its project, and whether Placement would offer a
    host at all. With the request as options, it shows the same for a server
    that does not exist. The exit status is 1 if there is no machine.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument('server', nargs='?', metavar='<server>',
                            help='Server (name or ID)')
        options.add_request(parser)
        identity.add_options(
            parser, 'project', 'Project (name or ID) for which the server '
                               'would be, if not your own (admins only)')
        parser.add_argument(
            '--availability-zone', metavar='<zone>',
            help='Availability zone that the server would be in')
        scope.add_option(parser)
        return parser

    def take_action(self, parsed_args):
        auth = self._auth(parsed_args)
        server = parsed_args.server and servers.find(self, parsed_args.server)
        if server:
            try:
                return reservation.display(reservation.get(
                    self, server.id,
                    {'fields': ','.join(reservation.DETAILS)}, auth))
            except exc.NotFound:
                pass
        spec = options.request_spec(
            self, parsed_args,
            server and servers.request_spec(self, server))
        body = spec | self._owner(parsed_args, server)
        matches = self._matches(body, server, auth)
        refusal = self._placement(
            spec, parsed_args.availability_zone
            or server and server.availability_zone or None)
        self.status = 1 if refusal or not matches['matching_nodes'] else 0
        fault = server and (server.fault or {}).get('message')
        columns = {**({'fault': fault} if fault else {}),
                   **({'placement': refusal} if refusal else {}), **matches}
        return zip(*columns.items(), strict=True)

    def _matches(self, body, server, auth):
        """Return columns that show what a request would find in Ironic."""
        claim = server and (server.metadata or {}).get(claims.METADATA)
        if claim:
            # A server that claims a reservation stays in the group of that.
            return claims.explain(self, claim, body, auth=auth)
        columns = self._add_group(body, server, auth) if server else {}
        return columns | dict(zip(*create.dry_run(
            self, client.PATH, body, auth=auth), strict=True))

    def _add_group(self, body, server, auth):
        """Add the server's group to a request.

        :returns: dict of a column that shows it; empty without a group.
        """
        uuid, policy = servers.find_group(self, server)
        if uuid is None:
            return {}
        try:
            details = client.whole(self, client.request(
                self, 'GET', client.path(group.PATH, uuid), auth=auth),
                auth=auth)
        except exc.NotFound:
            return {'group': (
                f'{policy}, not considered: no member has a machine, and only '
                f'the compute hosts know the domain ([reservations] '
                f'server_group_by)')}
        body['group'] = {name: details[name] for name in (
            'uuid', 'policy', 'by') if details[name] is not None}
        domains = group.domains(details).human_readable()
        return {'group': f'{details["policy"]} by {details["by"]}, members in '
                         + domains.replace('\n', ', ')}

    def _auth(self, args):
        """How to log in to Ironic; a user sees what the project sees."""
        self._sees_all = True
        try:
            return scope.of_ironic(self)
        except (exceptions.CommandError, ksa_exc.ClientException):
            if args.all_projects or args.project:
                raise
            self._sees_all = False
            print('Ironic shows your project only nodes that it owns or '
                  'leases; Nova may use others.', file=self.app.stderr,
                  flush=True)
            return None

    def _owner(self, args, server):
        """Return the keys of a request that say for which project it is."""
        if not self._sees_all:
            # Ironic may want a lease of somebody who is bound to a project
            # ([reservations] require_lease), and takes any that is short.
            return {'expires_in': 1}
        keys = {'ownership': args.ownership or 'any'}
        reference = self.app.client_manager.auth_ref
        if server:
            keys['project_id'] = server.project_id
        elif reference is not None and reference.project_id:
            keys['project_id'] = reference.project_id
        return keys | identity.find_ids(self, args, 'project')

    def _placement(self, spec, zone):
        """Why Placement would refuse; None where it would not, or is mute."""
        try:
            return placement.why_not(self, spec, zone)
        except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
            self.log.info('Placement is not asked: %s', error)
            return None
