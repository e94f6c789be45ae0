# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack baremetal reservation explain``."""

from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions

from ironic_reservations.osc import client
from ironic_reservations.osc import create
from ironic_reservations.osc import identity
from ironic_reservations.osc import options
from ironic_reservations.osc import output
from ironic_reservations.osc import placement
from ironic_reservations.osc import reservation
from ironic_reservations.osc import scope


class ExplainReservation(output.ShowOne):
    """Say why a server has no machine, or which one it would get.

    Nothing is held. Of a server that has a machine, its reservation is shown.
    Else Ironic is asked, for the server's project, what its flavor and image
    would find, and Placement, whether it would offer a host at all; with the
    request as options, the same is asked for a server that there is not. The
    exit status is 1 if there is no machine for it.
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
        server = parsed_args.server and _find_server(self, parsed_args.server)
        if server:
            try:
                return reservation.display(client.find(
                    self, server.id, reservation.DETAILS, auth=auth))
            except (exc.NotFound, exceptions.CommandError):
                pass  # It is to be explained.
        spec = options.request_spec(
            self, parsed_args, _spec_of(self, server) if server else None)
        body = spec | self._for_whom(parsed_args, server)
        names, values = create.dry_run(self, client.PATH, body, auth=auth)
        shown = dict(zip(names, values, strict=True))
        refusal = self._placement(
            spec, parsed_args.availability_zone
            or server and server.availability_zone or None)
        self.status = 1 if refusal or not shown['matching_nodes'] else 0
        fault = server and (server.fault or {}).get('message')
        shown = {**({'fault': fault} if fault else {}),
                 **({'placement': refusal} if refusal else {}), **shown}
        return zip(*shown.items(), strict=True)

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

    def _for_whom(self, args, server):
        """The keys that only somebody may give who sees all of Ironic."""
        if not self._sees_all:
            # Ironic may want a lease of somebody who is bound to a project
            # ([reservations] require_lease), and takes any that is short.
            return {'expires_in': 1}
        found = {'ownership': args.ownership or 'any'}
        if server:
            found['project_id'] = server.project_id
        else:
            reference = self.app.client_manager.auth_ref
            if reference is not None and reference.project_id:
                found['project_id'] = reference.project_id
        return found | identity.find_ids(self, args, 'project')

    def _placement(self, spec, zone):
        """Why Placement would refuse; None where it would not, or is mute."""
        try:
            return placement.why_not(self, spec, zone)
        except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
            self.log.info('Placement is not asked: %s', error)
            return None


def _find_server(cmd, ident):
    """Return a server with its fault, also another project's for an admin."""
    try:
        found = client.look_up(cmd, 'compute', 'server', ident,
                               all_projects=True)
    except exceptions.CommandError as error:
        if not isinstance(error.__cause__, sdk_exc.ForbiddenException):
            raise
        found = client.look_up(cmd, 'compute', 'server', ident)
    return cmd.app.client_manager.sdk_connection.compute.get_server(found.id)


def _spec_of(cmd, server):
    """Return the request spec of a server, by its embedded flavor."""
    flavor = server.flavor
    spec = {'memory_mb': flavor.ram, 'vcpus': flavor.vcpus,
            'root_gb': flavor.disk if server.image else 0,
            'ephemeral_gb': flavor.ephemeral or 0, 'swap': flavor.swap or 0,
            'name': flavor.original_name,
            'extra_specs': dict(flavor.extra_specs or {})}
    if server.image and server.image.id:
        try:
            spec['image'] = options.image(cmd, server.image.id)
        except exceptions.CommandError:
            # The image may be gone, or another project's.
            spec['image'] = {'id': server.image.id}
    return spec
