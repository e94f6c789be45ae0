# SPDX-License-Identifier: Apache-2.0
"""Requests to Ironic and Keystone, for whom is logged in."""

import urllib.parse

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

#: What a request may raise.
ERRORS = (sdk_exc.SDKException, ksa_exc.ClientException)

#: Seconds after which a service that does not answer is given up.
TIMEOUT = 60

#: Seconds for which the name of a project is kept.
NAMES_FOR = 300

#: Names of so many projects are asked for while a page is made.
LOOKED_UP = 20


def reservations(request):
    """Return the library, with the token of the user."""
    verify = (not settings.OPENSTACK_SSL_NO_VERIFY
              and (settings.OPENSTACK_SSL_CACERT or True))
    # Catalogs have it with or without the version. With a given endpoint
    # nothing is discovered, which would be a request more for each page.
    url = base.url_for(request, 'baremetal').rstrip('/').removesuffix('/v1')
    made = connection.Connection(
        session=session.Session(
            auth=token_endpoint.Token(f'{url}/v1', request.user.token.id),
            original_ip=auth_utils.get_client_ip(request), verify=verify,
            timeout=TIMEOUT),
        region_name=request.user.services_region, app_name='horizon')
    made.add_service(sdk.SERVICE)
    return made.baremetal_reservations


def page(service, collection='', **query):
    """Read one page of a list.

    :param collection: such as ``/capacity``; empty for the reservations.
    :param query: parameters; those that are None or empty are left out.
    :returns: list of dicts, and the marker of the next page or None.
    """
    response = service.get(f'/reservations{collection}', params={
        name: value for name, value in query.items()
        if value not in (None, '', [])})
    sdk_exc.raise_from_response(response)
    answer = response.json()
    following = urllib.parse.urlsplit(answer.get('next') or '').query
    return (answer[collection.removeprefix('/') or 'reservations'],
            urllib.parse.parse_qs(following).get('marker', [None])[0])


def sentence(error):
    """Return what an error tells the user."""
    if isinstance(error, sdk_exc.HttpException) and error.details:
        return error.details
    return str(error)


def project_names(request, idents):
    """Return the names of projects by ID; the ID where there is no name.

    :param idents: IDs; None is ignored. Of those whose names are not known
        yet, only the first ``LOOKED_UP`` are asked for, because Keystone
        tells one at a time.
    """
    names, asked = {request.user.project_id: request.user.project_name}, 0
    for ident in dict.fromkeys(each for each in idents if each):
        # Whether somebody may know a name is for Keystone to say, so that
        # users do not share what it has told.
        key = f'ironic_reservations.{request.user.id}.{ident}'
        name = names.get(ident) or cache.get(key)
        if name is None and asked < LOOKED_UP:
            asked += 1
            try:
                name = keystone.tenant_get(request, ident).name
            except Exception:  # Of several clients; the ID says enough.
                name = ident
            cache.set(key, name, NAMES_FOR)
        names[ident] = name or ident
    return names
