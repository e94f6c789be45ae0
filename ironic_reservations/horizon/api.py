# SPDX-License-Identifier: Apache-2.0
"""Requests to Ironic and Keystone on behalf of the logged-in user."""

from collections.abc import Iterable
import contextlib
import itertools
import re
from typing import Any
import urllib.parse

from django import http
from django.conf import settings
from django.core.cache import cache
from django.utils.translation import gettext as _
from horizon import exceptions
from keystoneauth1 import exceptions as ksa_exc
from keystoneauth1 import session
from keystoneauth1 import token_endpoint
from openstack import connection
from openstack import exceptions as sdk_exc
from openstack_auth import utils as auth_utils
from openstack_dashboard.api import base
from openstack_dashboard.api import keystone
from oslo_utils import uuidutils

from ironic_reservations import sdk
from ironic_reservations.shared import constants
from ironic_reservations.shared import text

#: Exceptions of requests to Ironic.
ERRORS = (sdk_exc.SDKException, ksa_exc.ClientException,
          exceptions.ServiceCatalogException)

#: Timeout of a request, in seconds.
TIMEOUT = 60

#: Time for which the name of a project is cached, in seconds.
NAME_TTL = 300

#: Maximum number of names that are looked up for a page.
MAX_LOOKUPS = 20

#: IDs of projects in Keystone.
_PROJECT_ID = re.compile('[A-Za-z0-9-]+')

#: A row of a list, as the API returns it.
Row = dict[str, Any]

#: Version of Ironic's API in which nodes have names and ``fields`` exists.
_NODE_HEADERS = {'X-OpenStack-Ironic-API-Version': '1.8'}

#: Likewise, with owners and lessees.
_OWNER_HEADERS = {'X-OpenStack-Ironic-API-Version': '1.65'}


def connect(request: http.HttpRequest) -> sdk.Proxy:
    """Return the SDK's proxy with the token of the user."""
    verify = (not settings.OPENSTACK_SSL_NO_VERIFY
              and (settings.OPENSTACK_SSL_CACERT or True))
    # Catalogs have the endpoint with or without the version. A fixed endpoint
    # avoids discovery, which would be one more request per page.
    url = base.url_for(request, 'baremetal').rstrip('/').removesuffix('/v1')
    # Any, because add_service adds the attribute.
    conn: Any = connection.Connection(
        session=session.Session(
            auth=token_endpoint.Token(f'{url}/v1', request.user.token.id),
            original_ip=auth_utils.get_client_ip(request), verify=verify,
            timeout=TIMEOUT),
        region_name=request.user.services_region, app_name='horizon')
    conn.add_service(sdk.SERVICE)
    service: sdk.Proxy = conn.baremetal_reservations
    return service


def call(service: sdk.Proxy, method: str, path: str, **kwargs: Any) -> Any:
    """Send a request about reservations; return the JSON of its response.

    :param path: after ``/reservations``.
    :param kwargs: arguments of ``requests``, such as ``json``.
    :returns: None if the response has no body.
    """
    response = service.request(f'/reservations{path}', method, **kwargs)
    sdk_exc.raise_from_response(response)
    return response.json() if response.content else None


def read_page(service: sdk.Proxy, collection: str = '',
              **query: Any) -> tuple[list[Row], str | None]:
    """Read one page of a list.

    :param collection: such as ``/capacity``; empty for the reservations.
    :param query: parameters; None and empty ones are left out.
    :returns: the rows, and the marker of the next page if there is one.
    """
    body = call(service, 'GET', collection, params={
        name: value for name, value in query.items()
        if value not in (None, '', [])})
    return (body[collection.removeprefix('/') or 'reservations'],
            text.parse_next_link(body.get('next')).get('marker'))


def change(service: sdk.Proxy, path: str, values: dict[str, Any]) -> None:
    """Change a reservation, a group or a pool in one request.

    :param values: new values by key. None and empty ones are removed.
    """
    call(service, 'PATCH', f'/{path}', json=[
        {'op': 'remove', 'path': f'/{name}'} if value in (None, '') else
        {'op': 'add', 'path': f'/{name}', 'value': value}
        for name, value in values.items()])


def find_missing_nodes(service: sdk.Proxy, nodes: list[str]) -> list[str]:
    """Return the nodes that the user cannot see or that do not exist.

    :param nodes: names and UUIDs; the first ``MAX_LOOKUPS`` are looked up.
    """
    # Ironic compares the case of a UUID, and requests for reservations do not.
    return [node for node in nodes[:MAX_LOOKUPS] if all(service.get(
        f'/nodes/{urllib.parse.quote(name, safe="")}',
        params={'fields': 'uuid'}, headers=_NODE_HEADERS,
    ).status_code == 404 for name in (
        {node, node.lower(), node.upper()}
        if uuidutils.is_uuid_like(node) else {node}))]


def read_owners(service: sdk.Proxy, nodes: Iterable[str]) -> list[Row]:
    """Return the different pairs of ``owner`` and ``lessee`` of nodes.

    An error is ignored: the nodes have been reserved.

    :param nodes: UUIDs; the first ``MAX_LOOKUPS`` are looked up.
    """
    pairs: list[Row] = []
    with contextlib.suppress(*ERRORS):
        for node in itertools.islice(nodes, MAX_LOOKUPS):
            response = service.get(
                f'/nodes/{node}', params={'fields': 'owner,lessee'},
                headers=_OWNER_HEADERS)
            sdk_exc.raise_from_response(response)
            pair = {key: response.json()[key] for key in ('owner', 'lessee')}
            if pair not in pairs:
                pairs.append(pair)
    return pairs


def read_node_names(service: sdk.Proxy) -> set[str]:
    """Return the names of nodes on the first page of Ironic's list."""
    response = service.get('/nodes', params={'fields': 'name'},
                           headers=_NODE_HEADERS)
    sdk_exc.raise_from_response(response)
    return {node['name'] for node in response.json()['nodes'] if node['name']}


def read_node_name(service: sdk.Proxy, node: str) -> str:
    """Return the name of a node, or its UUID if the user may not see it.

    :param node: UUID.
    """
    response = service.get(f'/nodes/{urllib.parse.quote(node, safe="")}',
                           params={'fields': 'name'}, headers=_NODE_HEADERS)
    return (response.ok and response.json()['name']) or node


def sees_all(service: sdk.Proxy) -> bool:
    """Return whether Ironic shows the reservations of all projects."""
    response = service.get('/reservations',
                           params={'project_id': constants.NO_PROJECT})
    if response.status_code == 403:
        return False
    sdk_exc.raise_from_response(response)
    return True


def format_error(error: Exception) -> str:
    """Return the text of an error for the user.

    :raises: NotAuthenticated if Ironic no longer accepts the token. Horizon
        then asks the user to log in again.
    """
    if isinstance(error, exceptions.ServiceCatalogException):
        return str(_(
            'The catalog of Keystone has no "%s" of the service "baremetal" '
            'in this region. Create this endpoint, or change '
            'OPENSTACK_ENDPOINT_TYPE of Horizon.'
        ) % settings.OPENSTACK_ENDPOINT_TYPE)
    if isinstance(error, sdk_exc.HttpException):
        if error.status_code == 401:
            raise exceptions.NotAuthenticated
        return str(error.details or error)
    return str(error)


def find_project_id(request: http.HttpRequest, project: str) -> str:
    """Return the ID of a project.

    :param project: name or ID. If the user may not look it up, it is used as
        the ID, as in the commands.
    :raises: ValueError if there is no such project, or several have the name.
    """
    projects: list[Any] = []
    is_allowed = True
    for look_up in _get_project, _list_projects:
        try:
            projects = projects or look_up(request, project)
        except ksa_exc.NotFound:
            pass
        except (ksa_exc.Forbidden, exceptions.HorizonException):
            is_allowed = False
        except ksa_exc.ClientException as error:
            raise ValueError(_('Keystone reports an error: %s') % error)
    if len(projects) > 1:
        raise ValueError(_('Several projects are called "%s": enter the ID.')
                         % project)
    if is_allowed and not projects:
        raise ValueError(_('There is no project "%s".') % project)
    return projects[0].id if projects else project


def _get_project(request: http.HttpRequest, project: str) -> list[Any]:
    # Other texts would become another path.
    return ([keystone.tenant_get(request, project)]
            if _PROJECT_ID.fullmatch(project) else [])


def _list_projects(request: http.HttpRequest, project: str) -> list[Any]:
    projects: list[Any] = keystone.tenant_list(
        request, filters={'name': project})[0]
    return projects


def read_project_names(request: http.HttpRequest,
                       project_ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of projects by ID, or the ID if there is no name.

    :param project_ids: None is ignored. At most ``MAX_LOOKUPS`` names are
        looked up, because Keystone returns one per request.
    """
    names, lookups = {request.user.project_id: request.user.project_name}, 0
    for project_id in dict.fromkeys(filter(None, project_ids)):
        # Cached per user, because Keystone decides who may see a name.
        key = f'ironic_reservations.{request.user.id}.{project_id}'
        name = names.get(project_id) or cache.get(key)
        if name is None and lookups < MAX_LOOKUPS:
            lookups += 1
            try:
                name = keystone.tenant_get(request, project_id).name
            except Exception:  # several clients raise different ones
                name = project_id
            cache.set(key, name, NAME_TTL)
        names[project_id] = name or project_id
    return names
