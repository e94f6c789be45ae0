# SPDX-License-Identifier: Apache-2.0
"""The calls: parse, authorize, call, present."""

import urllib.parse

from oslo_middleware import request_id
from oslo_utils import strutils
from oslo_utils import uuidutils
import pecan
import webob
import webob.exc
from wsme.rest import json as wsme_json

from ironic_reservations import capacity
from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import explanation
from ironic_reservations import matching
from ironic_reservations import request_spec
from ironic_reservations import reservations
from ironic_reservations.api import limits
from ironic_reservations.api import schema
from ironic_reservations.api import types


def _caller():
    environ = pecan.request.environ
    if conf.CONF.auth_strategy == 'keystone':
        return context.RequestContext.from_environ(environ)
    # Nobody has checked the identity that these headers claim.
    return context.RequestContext(
        request_id=environ.get(request_id.ENV_REQUEST_ID))


def _query(validate):
    """The query's parameters; one that is given twice is a list."""
    return validate(pecan.request.GET.mixed())


def _url():
    """The collection's URL as the client knows it, by Ironic's rules."""
    request = pecan.request
    if conf.CONF.oslo_middleware.enable_proxy_headers_parsing:
        base = request.application_url
    else:
        base = conf.CONF.api.public_endpoint or request.host_url
    return f'{base.rstrip("/")}/v1/reservations'


def _present(reservation, fields=None):
    return wsme_json.tojson(
        types.Reservation,
        types.Reservation.present(reservation, _url(), fields))


class ReservationController:
    """/v1/reservations/{instance_uuid}"""

    def __init__(self, instance_uuid):
        self.instance_uuid = instance_uuid

    @pecan.expose('json')
    def get(self):
        fields = schema.fields(_query(schema.show_query).get('fields'))
        reservation = reservations.get(self.instance_uuid)
        self._check_visible(_caller(), reservation)
        return _present(reservation, fields)

    @pecan.expose('json')
    def delete(self):
        host = _query(schema.delete_query).get('host')
        caller = _caller()

        def authorize(reservation):
            self._check_visible(caller, reservation)
            caller.authorize('delete', reservation.project_id)

        reservations.release(self.instance_uuid, authorize, host=host,
                             forced=caller.may('create_restricted'))
        return webob.Response(status=204)

    @staticmethod
    def _check_visible(caller, reservation):
        """Let nobody know of a reservation that policy hides from him."""
        project_id = reservation.project_id
        if not caller.may('get', project_id):
            if project_id is not None and project_id == caller.project_id:
                caller.authorize('get', project_id)
            raise reservations.not_found(reservation.instance_uuid)


class ReservationsController:
    """/v1/reservations and /v1/reservations/capacity"""

    @pecan.expose('json')
    def list(self):
        query = _query(schema.list_query)
        caller = _caller()
        caller.authorize('list')
        limited_to = caller.limit('list_all')
        if limited_to is not None and query.get(
                'project_id', limited_to) != limited_to:
            raise exception.NotAuthorized(
                'The reservations of another project cannot be listed.')
        fields = schema.fields(query.pop('fields', None))
        if 'marker' in query:
            query['marker'] = query['marker'].lower()
        limit = min(int(query.pop('limit', conf.CONF.api.max_limit)),
                    conf.CONF.api.max_limit)
        # One more than asked for tells whether there is a next page.
        found = reservations.find(limited_to, limit=limit + 1, **query)
        page = {'reservations': [_present(reservation, fields)
                                 for reservation in found[:limit]]}
        if len(found) > limit:
            page['next'] = self._next(found[limit - 1], limit)
        return page

    @staticmethod
    def _next(last, limit):
        query = {**pecan.request.GET.mixed(), 'limit': limit,
                 'marker': last.instance_uuid}
        return f'{_url()}?{urllib.parse.urlencode(query)}'

    @pecan.expose('json')
    def create(self):
        dry_run = _query(schema.create_query).get('dry_run', 'false')
        caller = _caller()
        caller.authorize('create')
        body = schema.create_body(schema.parse(limits.body(pecan.request)))
        owner = self._owner(caller, body)
        lease = schema.expires_in(body)
        matcher = matching.Matcher(
            request_spec.RequestSpec.from_dict(
                body, conf.CONF.reservations.match),
            caller.limit('create_restricted'))
        if strutils.bool_from_string(dry_run):
            return wsme_json.tojson(types.DryRun, types.DryRun.present(
                explanation.dry_run(matcher)))
        instance_uuid = (body.get('instance_uuid')
                         or uuidutils.generate_uuid()).lower()
        reservation, created = reservations.hold(
            instance_uuid, matcher, owner, lease)
        pecan.response.status = 201 if created else 200
        pecan.response.location = f'{_url()}/{reservation.instance_uuid}'
        return _present(reservation)

    @staticmethod
    def _owner(caller, body):
        """For whom the node is held: as the body says, or the caller."""
        given = {key: body[key] for key in ('host', 'project_id', 'user_id')
                 if body.get(key) is not None}
        if given and not caller.may('create_restricted'):
            raise exception.NotAuthorized(
                f'{", ".join(given)}: only system-scope and service callers '
                f'may say for whom a node is reserved.')
        return reservations.Owner(**{'project_id': caller.project_id,
                                     'user_id': caller.user_id, **given})

    @pecan.expose('json')
    def capacity(self):
        query = _query(schema.capacity_query)
        traits = query.pop('trait', [])
        caller = _caller()
        caller.authorize('capacity')
        rows, age = capacity.capacity(
            max_age=(0 if pecan.request.cache_control.no_cache
                     else conf.CONF.reservations.capacity_ttl),
            restricted_to=caller.limit('list_all'),
            traits=[traits] if isinstance(traits, str) else traits, **query)
        pecan.response.age = int(age)
        return wsme_json.tojson(types.Capacity, types.Capacity.present(rows))


class Application(pecan.Pecan):
    """Paths and methods; everything that is not here is an error."""

    def __init__(self):
        super().__init__(None, guess_content_type_from_ext=False)

    def invoke_controller(self, controller, args, kwargs, state):
        """Call a method; what it returns is JSON or a whole response.

        Pecan would look at its signature first, which takes longer than all
        the rest that Pecan does.
        """
        result = controller()
        if isinstance(result, webob.Response):
            state.response = result
        else:
            state.response.content_type = 'application/json'
            state.response.json_body = result

    def route(self, request, node, path):
        """The method that serves a request, and no further arguments.

        Pecan would look for it along its own tree of controllers.
        """
        # Segments behind /v1/reservations; one slash at the end is nothing.
        path = path.split('/')[3:]
        if path and path[-1] == '':
            path.pop()
        if not path:
            calls = ReservationsController()
            methods = {'GET': calls.list, 'POST': calls.create}
        elif path == ['capacity']:
            methods = {'GET': ReservationsController().capacity}
        elif len(path) == 1:
            calls = ReservationController(schema.instance_uuid(path[0]))
            methods = {'GET': calls.get, 'DELETE': calls.delete}
        else:
            raise webob.exc.HTTPNotFound()
        methods['HEAD'] = methods['GET']
        if request.method not in methods:
            raise webob.exc.HTTPMethodNotAllowed(
                headers={'Allow': ', '.join(sorted(methods))})
        return methods[request.method], []
