# SPDX-License-Identifier: Apache-2.0
"""Filter of Nova's API for requests that name a node of Ironic.

Nova refuses to build a server on a node that is none of its compute nodes,
before it runs any filter of its scheduler. This filter moves the name of such
a node into the server's metadata, which the driver sends to Ironic, and
refuses names of nodes there from users who may not force a host.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from nova import context as nova_context
from nova import exception
from nova import objects
from nova.api import wsgi
from nova.api.openstack import api_version_request
from nova.api.openstack import wsgi as openstack_wsgi
from nova.policies import servers as policies
from oslo_log import log as logging
from oslo_serialization import jsonutils
import webob

LOG = logging.getLogger(__name__)

#: The key in the metadata of the server (spelling.METADATA).
_METADATA = 'reservations:candidate_nodes'

_PATH = re.compile(r'(/[0-9a-f-]+)?/(servers|os-volumes_boot)(?P<more>/.*)?',
                   re.DOTALL)

#: Nova's policy rule for requests that force a host.
_FORCED_HOST = policies.SERVERS % 'create:forced_host'

#: UUIDs of nodes, and names that Ironic accepts. A list of nodes is neither.
_NODE = re.compile(r'[A-Za-z0-9._~-]+')


@dataclasses.dataclass(frozen=True)
class Change:
    """A change of a request for a server.

    :ivar node: the name of the node.
    :ivar server: the request's server, with the name in its metadata only.
    :ivar rule: Nova's policy rule for such requests.
    """

    node: str
    server: dict[str, Any]
    rule: str


class NamedNode(wsgi.Middleware):
    """Moves the name of a node of Ironic into the metadata of the server.

    Refuses to let other users name nodes in the metadata. All other requests
    pass unchanged, and Nova refuses what is not allowed.
    """

    def process_request(self, req: wsgi.Request
                        ) -> openstack_wsgi.Fault | None:
        path = _PATH.fullmatch(req.environ['PATH_INFO'])
        if not path or req.method not in ('POST', 'PUT'):
            return None
        try:
            body = jsonutils.loads(req.body)
        except ValueError:
            return None
        if not isinstance(body, dict):
            return None
        # Nova's own refusal also has the headers of this version.
        has_hostname = accepts_hostname(req)
        context = req.environ['nova.context']
        target = {'project_id': context.project_id,
                  'user_id': context.user_id}
        if has_nodes(body):
            try:
                context.can(_FORCED_HOST, target)
            except exception.PolicyNotAuthorized as error:
                return openstack_wsgi.Fault(webob.exc.HTTPForbidden(
                    explanation=error.format_message()))
        server = body.get('server')
        if (req.method != 'POST' or path['more'] not in (None, '/')
                or not isinstance(server, dict)):
            return None
        change = find_change(server, has_hostname)
        target['availability_zone'] = server.get('availability_zone')
        if (change and context.can(change.rule, target, fatal=False)
                and not may_be_compute_node(context, change.node)):
            LOG.info('Moved node %s to the metadata of a server', change.node)
            req.body = jsonutils.dump_as_bytes({**body,
                                                'server': change.server})
        return None


def has_nodes(body: dict[str, Any]) -> bool:
    """Return whether a request names nodes in the metadata of a server.

    :param body: of a creation or a rebuild, which have the metadata one level
        deeper, or of a change of the metadata or of one of its keys.
    """
    return any(
        isinstance(metadata, dict) and _METADATA in metadata for metadata in (
            body.get('metadata'), body.get('meta'),
            *(body[name].get('metadata') for name in ('server', 'rebuild')
              if isinstance(body.get(name), dict))))


def accepts_hostname(req: wsgi.Request) -> bool:
    """Return whether the API's version has the key hypervisor_hostname."""
    request = openstack_wsgi.Request(req.environ)
    try:
        request.set_api_version_request()
    except exception.NovaException:
        return False
    return (not request.is_legacy_v2() and request.api_version_request
            >= api_version_request.APIVersionRequest('2.74'))


def find_change(server: dict[str, Any], has_hostname: bool) -> Change | None:
    """Return the change of a request that names a node and may be valid."""
    rest = dict(server)
    node = rest.pop('hypervisor_hostname', None) if has_hostname else None
    rule = policies.REQUESTED_DESTINATION
    zone = server.get('availability_zone')
    if isinstance(zone, str) and ':' in zone:
        if (zone.count(':') != 2 or 'host' in server
                or 'hypervisor_hostname' in server):
            return None
        rule = _FORCED_HOST
        zone, node = zone.rsplit(':', 1)
        # Nova does not accept an empty zone.
        del rest['availability_zone']
        if zone := zone.rstrip(':'):
            rest['availability_zone'] = zone
    metadata = server.get('metadata', {})
    if (isinstance(node, str) and _NODE.fullmatch(node)
            and isinstance(metadata, dict) and _METADATA not in metadata):
        rest['metadata'] = {**metadata, _METADATA: node}
        return Change(node, rest, rule)
    return None


def may_be_compute_node(context: nova_context.RequestContext,
                        name: str) -> bool:
    """Return whether a cell has a compute node of this name, or is down."""
    results = nova_context.scatter_gather_skip_cell0(
        context, objects.ComputeNode.get_by_nodename, name)
    return not all(isinstance(result, exception.ComputeHostNotFound)
                   for result in results.values())
