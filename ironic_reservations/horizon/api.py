# SPDX-License-Identifier: Apache-2.0
"""Requests to Ironic and Keystone on behalf of the logged-in user."""

from collections.abc import Iterable
from typing import Any
import urllib.parse

from django import http
from django.conf import settings
from django.core.cache import cache
from keystoneauth1 import exceptions as ksa_exc
from keystoneauth1 import session
from keystoneauth1 import token_endpoint
from openstack import connection
from openstack import exceptions as sdk_exc
from openstack_auth import utils as auth_utils
from openstack_dashboard.api import base
from openstack_dashboard.api import keystone

from ironic_reservations import sdk
from ironic_reservations import text

#: Exceptions of requests to Ironic.
ERRORS = (sdk_exc.SDKException, ksa_exc.ClientException)

#: Timeout of a request, in seconds.
TIMEOUT = 60

#: Time for which the name of a project is cached, in seconds.
NAME_TTL = 300

#: Maximum number of names that are looked up for a page.
MAX_LOOKUPS = 20

#: A row of a list, as the API returns it.
Row = dict[str, Any]

#: Version of Ironic's API in which nodes have names and ``fields`` exists.
_NODE_HEADERS = {'X-OpenStack-Ironic-API-Version': '1.8'}


def connect(request: http.HttpRequest) -> sdk.Proxy:
    """Return the SDK's proxy with the token of the user."""
    verify = (not settings.OPENSTACK_SSL_NO_VERIFY
              and (settings.OPENSTACK_SSL_CACERT or True))
    # Catalogs have the endpoint with or without the version. A fixed endpoint
    # avoids discovery, which would be one more request per page.
    url = base.url_for(request, 'baremetal').rstrip('/').removesuffix('/v1')
    conn = connection.Connection(
        session=session.Session(
            auth=token_endpoint.Token(f'{url}/v1', request.user.token.id),
            original_ip=auth_utils.get_client_ip(request), verify=verify,
            timeout=TIMEOUT),
        region_name=request.user.services_region, app_name='horizon')
    conn.add_service(sdk.SERVICE)
    return conn.baremetal_reservations


def read_page(service: sdk.Proxy, collection: str = '',
              **query: Any) -> tuple[list[Row], str | None]:
    """Read one page of a list.

    :param collection: such as ``/capacity``; empty for the reservations.
    :param query: parameters; None and empty ones are left out.
    :returns: the rows, and the marker of the next page if there is one.
    """
    response = service.get(f'/reservations{collection}', params={
        name: value for name, value in query.items()
        if value not in (None, '', [])})
    sdk_exc.raise_from_response(response)
    body = response.json()
    return (body[collection.removeprefix('/') or 'reservations'],
            text.parse_next_link(body.get('next')).get('marker'))


def find_missing_nodes(service: sdk.Proxy, nodes: list[str]) -> list[str]:
    """Return the nodes that the user cannot see or that do not exist.

    :param nodes: names and UUIDs; the first ``MAX_LOOKUPS`` are looked up.
    """
    return [node for node in nodes[:MAX_LOOKUPS] if service.get(
        f'/nodes/{urllib.parse.quote(node, safe="")}',
        params={'fields': 'uuid'}, headers=_NODE_HEADERS,
    ).status_code == 404]


def read_node_names(service: sdk.Proxy) -> set[str]:
    """Return the names of nodes on the first page of Ironic's list."""
    response = service.get('/nodes', params={'fields': 'name'},
                           headers=_NODE_HEADERS)
    sdk_exc.raise_from_response(response)
    return {node['name'] for node in response.json()['nodes'] if node['name']}


def format_error(error: Exception) -> str:
    """Return the text of an error for the user."""
    if isinstance(error, sdk_exc.HttpException) and error.details:
        return str(error.details)
    return str(error)


def find_project_id(request: http.HttpRequest, project: str) -> str:
    """Return the ID of a project.

    :param project: name or ID. It is returned if Keystone shows no project,
        or several, with this name.
    """
    try:
        projects, _more = keystone.tenant_list(
            request, filters={'name': project})
    except Exception:  # several clients raise different ones
        return project
    return projects[0].id if len(projects) == 1 else project


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
