# SPDX-License-Identifier: Apache-2.0
"""The calls of the API: each parses, authorizes, calls and presents.

The shapes of requests are in ``bodies`` and ``queries``, those of answers in
``types``, and what a call does in ``reservations``, ``explanation``,
``capacity`` and ``hosts``.
"""

import functools
import hashlib
import json
import urllib.parse

from oslo_log import log
from oslo_middleware import request_id
from oslo_utils import uuidutils
import pecan

from ironic_reservations import capacity
from ironic_reservations import claims
from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import explanation
from ironic_reservations import groups
from ironic_reservations import hosts
from ironic_reservations import matching
from ironic_reservations import membership
from ironic_reservations import quota
from ironic_reservations import request_spec
from ironic_reservations import reservations
from ironic_reservations.api import bodies
from ironic_reservations.api import checks
from ironic_reservations.api import limits
from ironic_reservations.api import queries
from ironic_reservations.api import schema
from ironic_reservations.api import types

LOG = log.getLogger(__name__)

#: The most bytes of what there may be any number of in an answer. There is
#: room for the rest of it, such as a link to the next page, within 4 MiB.
MAX_PAGE = 2 ** 22 - 2 ** 16


def _caller():
    """Who sends the request: a RequestContext."""
    environ = pecan.request.environ
    if conf.CONF.auth_strategy == 'keystone':
        return context.RequestContext.from_environ(environ)
    # Without Keystone nobody has checked the headers that claim an identity.
    return context.RequestContext(
        request_id=environ.get(request_id.ENV_REQUEST_ID))


def _query(validate):
    """The parameters of the query, validated.

    The value of a parameter that is given several times is a list.
    """
    return validate(pecan.request.GET.mixed())


def _url():
    """The URL of the collection as the client knows it.

    Ironic's rules: what a proxy has forwarded if Ironic is told to believe
    it, else ``[api] public_endpoint``, else what the client has asked.
    """
    request = pecan.request
    if conf.CONF.oslo_middleware.enable_proxy_headers_parsing:
        base = request.application_url
    else:
        base = conf.CONF.api.public_endpoint or request.host_url
    return f'{base.rstrip("/")}/v1/reservations'


def _given(body):
    """For whom a node is held, as far as the body says it."""
    return {key: body[key] for key in ('host', 'project_id', 'user_id')
            if body.get(key) is not None}


def _present(reservation, fields=None):
    """A reservation as JSON, a dict; the links are always shown."""
    return types.present(types.Reservation, reservation, fields) | {
        'links': [{'href': f'{_url()}/{reservation.instance_uuid}',
                   'rel': 'self'}]}


def _check_visible(caller, found, not_found):
    """Hide what the policy does not let the caller see.

    :param found: a Reservation or a Group.
    :param not_found: the error, as if there were none.
    :raises: NotFound; NotAuthorized where it is the caller's own project's,
        because then there is nothing to hide.
    """
    if not caller.may('get', found):
        if caller.project_id is not None and caller.project_id in (
                found.project_id, found.node_owner):
            caller.authorize('get', found)
        LOG.debug('Policy hides it from this caller: %s', not_found)
        raise not_found


def _authorize(caller, rule):
    """A function that raises unless the caller may do this to one."""
    def authorize(reservation):
        _check_visible(caller, reservation, reservations.not_found(
            reservation.instance_uuid))
        if rule != 'get':
            caller.authorize(rule, reservation)
    return authorize


def _authorize_group(caller, rule):
    """The same of a group."""
    def authorize(group):
        _check_visible(caller, group, groups.not_found(group.uuid))
        if rule != 'get':
            caller.authorize(rule, group)
    return authorize


def _owner(caller, body):
    """For whom a node is held: as the body says, else the caller.

    :raises: NotAuthorized when the caller may not speak for another.
    """
    given = _given(body)
    if given and not caller.may('create_restricted'):
        raise exception.NotAuthorized(
            f'{", ".join(given)}: only system-scope and service callers '
            f'may say for whom a node is reserved.')
    return reservations.Owner(**{'project_id': caller.project_id,
                                 'user_id': caller.user_id, **given})


def _lease(restricted_to, body):
    """Seconds that a request asks for, or None."""
    return checks.expires_in(body, required=(
        restricted_to is not None and conf.CONF.reservations.require_lease))


def _matcher(restricted_to, owner, spec):
    """The Matcher of a request spec.

    :param restricted_to: the project to which the caller is bound, or None.
    :param owner: reservations.Owner.
    :param spec: dict, validated.
    :raises: NotAuthorized, InvalidInput.
    """
    ownership = spec.get('ownership') or 'any'
    if restricted_to is not None:
        if ownership != 'project' and spec.get('ownership') is not None:
            raise exception.NotAuthorized(
                'ownership: only system-scope and service callers may '
                'reserve nodes that their project neither owns nor leases.')
        # The caller sees no others.
        ownership = 'any'
    if ownership != 'any' and owner.project_id is None:
        raise exception.InvalidInput(
            'ownership', 'must be any, unless the reservation has a project')
    return matching.Matcher(
        request_spec.RequestSpec.from_dict(spec,
                                           conf.CONF.reservations.match),
        restricted_to,
        None if ownership == 'any' else matching.Ownership(
            owner.project_id, ownership == 'project_or_none'))


def _wanted(given, uuid, owner):
    """The group that a request names, as membership.Wanted."""
    return membership.Wanted(uuid, **checks.group(given),
                             project_id=owner.project_id)


def _named_group(body, owner):
    """The group of which a reservation is to be a member, or None."""
    group = body.get('group')
    if group is None:
        return None
    group['uuid'] = group['uuid'].lower()
    with checks.inside('group'):
        return _wanted(group, group['uuid'], owner)


def _limit(query):
    """Take the length of a page out of a query."""
    return min(int(query.pop('limit', conf.CONF.api.max_limit)),
               conf.CONF.api.max_limit)


def _next(url, marker, limit):
    """The URL of the page behind the one that ends with the marker."""
    query = {**pecan.request.GET.mixed(), 'limit': limit, 'marker': marker}
    return f'{url}?{urllib.parse.urlencode(query)}'


def _fitting(found, present, room=None):
    """As many as an answer has room for.

    :param present: makes the JSON of one.
    :param room: in bytes; None for all of an answer.
    :returns: list of that.
    """
    fitting, room = [], MAX_PAGE if room is None else room
    for each in found:
        shown = present(each)
        room -= _length(shown) + 1
        if room < 0 and fitting:
            break
        fitting.append(shown)
    return fitting


def _length(shown):
    """The bytes that JSON takes in an answer."""
    return len(json.dumps(shown, separators=(',', ':')))


def _present_dry_run(found):
    """What explanation.dry_run returns as JSON, a dict.

    The domains of a group may take half of the room, and its profiles, as
    those of a node, what is left.
    """
    shown = types.present(types.DryRun, {**found, 'profiles': []})
    if 'domains' in shown:
        shown['domains'] = _fitting(shown['domains'], lambda each: each,
                                    MAX_PAGE // 2)
    shown['profiles'] = _fitting(
        found['profiles'], functools.partial(types.present, types.Profile),
        MAX_PAGE - _length(shown))
    return shown


#: What the names in a path may be.
NAMES = schema.Validator(schema.closed({
    'instance_uuid': schema.uuid, 'uuid': schema.uuid, 'host': schema.host,
}), 'path')


def _named(**named):
    """What a path names, validated."""
    [(kind, name)] = NAMES(named).items()
    return name if kind == 'host' else name.lower()


class ReservationController:
    """/v1/reservations/{instance_uuid}"""

    def __init__(self, instance_uuid):
        self.instance_uuid = instance_uuid

    @pecan.expose(generic=True)
    def index(self):
        pecan.abort(405, headers={'Allow': 'GET, HEAD, PATCH, DELETE'})

    @index.when(method='HEAD', template='json')
    @index.when(method='GET', template='json')
    def get(self):
        fields = checks.fields(_query(queries.show).get('fields'))
        return _present(reservations.get(
            self.instance_uuid, _authorize(_caller(), 'get')), fields)

    @index.when(method='PATCH', template='json')
    def update(self):
        host, holder, caller, bound = self._writer()
        changes = checks.changes(
            bodies.update(bodies.parse(limits.body(pecan.request))),
            required=bound and conf.CONF.reservations.require_lease)
        if bound and 'host' in changes:
            raise exception.NotAuthorized(
                'host: only system-scope and service callers may say which '
                'host holds a node.')
        return _present(reservations.update(
            self.instance_uuid, changes, _authorize(caller, 'update'),
            host, bound, holder))

    @index.when(method='DELETE', template='json')
    def delete(self):
        host, holder, caller, bound = self._writer()
        reservations.release(
            self.instance_uuid, _authorize(caller, 'delete'), host, bound,
            holder)
        pecan.response.status = 204

    @staticmethod
    def _writer():
        """The host that must hold it or None, and who the caller is.

        :returns: host, holder of the host or None, caller, and whether the
            caller is bound to its project.
        """
        query, caller = _query(queries.write), _caller()
        return (query.get('host'), checks.holder(query), caller,
                not caller.may('create_restricted'))


class ReservationsController:
    """/v1/reservations"""

    @pecan.expose(generic=True)
    def index(self):
        pecan.abort(405, headers={'Allow': 'GET, HEAD, POST'})

    @index.when(method='HEAD', template='json')
    @index.when(method='GET', template='json')
    def list(self):
        query = _query(queries.find)
        caller = _caller()
        caller.authorize('list')
        restricted_to = caller.restricted_to('list_all')
        if restricted_to is not None and query.get(
                'project_id', restricted_to) != restricted_to:
            raise exception.NotAuthorized(
                'The reservations of another project cannot be listed.')
        fields = checks.fields(query.pop('fields', None)) or types.LISTED
        if 'marker' in query:
            query['marker'] = query['marker'].lower()
        limit, order = _limit(query), checks.order(query)
        # One row more than the page has shows whether there is a next page.
        # Stored, a request spec is at most twice as long as in an answer.
        found = reservations.find(
            restricted_to, limit=limit + 1, order=order,
            names=types.made_of(fields), room=2 * MAX_PAGE, **query)
        shown = _fitting(found[:limit], lambda each: _present(each, fields))
        page = {'reservations': shown}
        if len(found) > len(shown):
            page['next'] = _next(
                _url(), found[len(shown) - 1].instance_uuid, limit)
        return page

    @index.when(method='POST', template='json')
    def create(self):
        query, caller = _query(queries.create), _caller()
        if checks.is_true(query, 'adopt'):
            return self._adopt(query, caller)
        caller.authorize('create')
        body = bodies.create(bodies.parse(limits.body(pecan.request)))
        owner, holder = _owner(caller, body), checks.holder(body)
        group, claim = _named_group(body, owner), body.get('claim')
        restricted_to = caller.restricted_to('create_restricted')
        lease = _lease(restricted_to, body)
        matcher = _matcher(restricted_to, owner, body)
        dry_run = checks.is_true(query, 'dry_run')
        if claim is not None and (group is not None or dry_run):
            raise exception.InvalidInput(
                'claim', 'cannot be given beside group, or in a dry run')
        if dry_run:
            return _present_dry_run(explanation.dry_run(
                matcher, quota.of(restricted_to), group))
        request = reservations.Request(
            (body.get('instance_uuid') or uuidutils.generate_uuid()).lower(),
            owner, lease, body.get('project_id'), holder, group,
            # What is claimed is counted already.
            quota.of(restricted_to if claim is None else None))
        if claim is not None:
            return self._created(*claims.claim(
                claim.lower(), matcher, request,
                _authorize(caller, 'delete')))
        return self._created(*reservations.hold(matcher, request))

    def _adopt(self, query, caller):
        queries.adopt(query)
        caller.authorize('adopt')
        body = bodies.adopt(bodies.parse(limits.body(pecan.request)))
        owner = reservations.Owner(**_given(body))
        group = _named_group(body, owner)
        spec = request_spec.RequestSpec.from_dict(body, found=True)
        return self._created(*reservations.adopt(
            body['instance_uuid'].lower(), spec, owner, checks.holder(body),
            group))

    @staticmethod
    def _created(reservation, created):
        pecan.response.status = 201 if created else 200
        pecan.response.location = f'{_url()}/{reservation.instance_uuid}'
        return _present(reservation)


class GroupController:
    """/v1/reservations/groups/{uuid}"""

    def __init__(self, uuid):
        self.uuid = uuid

    @pecan.expose(generic=True)
    def index(self):
        pecan.abort(405, headers={'Allow': 'GET, HEAD, DELETE'})

    @index.when(method='HEAD', template='json')
    @index.when(method='GET', template='json')
    def get(self):
        marker = _query(queries.show_group).get('marker')
        return _present_group(
            groups.get(self.uuid, _authorize_group(_caller(), 'get')),
            marker and marker.lower())

    @index.when(method='DELETE', template='json')
    def delete(self):
        _query(queries.nothing)
        caller = _caller()
        groups.release(self.uuid, _authorize_group(caller, 'delete'),
                       bound=not caller.may('create_restricted'))
        pecan.response.status = 204


class GroupsController:
    """/v1/reservations/groups"""

    @pecan.expose(generic=True)
    def index(self):
        pecan.abort(405, headers={'Allow': 'GET, HEAD, POST'})

    @index.when(method='HEAD', template='json')
    @index.when(method='GET', template='json')
    def list(self):
        query, caller = _query(queries.find_groups), _caller()
        caller.authorize('list')
        marker = query.get('marker')
        limit = _limit(query)
        found = groups.find(limit + 1, caller.restricted_to('list_all'),
                            marker and marker.lower(), MAX_PAGE)
        shown = _fitting(found[:limit], _present_listed_group)
        page = {'groups': shown}
        if len(found) > len(shown):
            page['next'] = _next(f'{_url()}/groups',
                                 found[len(shown) - 1].uuid, limit)
        return page

    @index.when(method='POST', template='json')
    def create(self):
        query, caller = _query(queries.dry_run), _caller()
        caller.authorize('create')
        body = bodies.create_group(
            bodies.parse(limits.body(pecan.request)))
        owner = _owner(caller, body)
        restricted_to = caller.restricted_to('create_restricted')
        lease = _lease(restricted_to, body)
        with checks.inside('request'):
            matcher = _matcher(restricted_to, owner, body['request'])
        members = checks.members(body['members'])
        uuid = (body.get('uuid') or uuidutils.generate_uuid()).lower()
        wanted = _wanted(body, uuid, owner)
        if isinstance(members, int):
            instances = [uuidutils.generate_uuid() for _ in range(members)]
        else:
            instances = members
        if checks.is_true(query, 'dry_run'):
            return _present_dry_run(explanation.dry_run(
                matcher, quota.of(restricted_to), wanted, len(instances)))
        group, created = groups.create(matcher, groups.Request(
            wanted, tuple(instances), _digest(members, matcher.spec), owner,
            lease, quota.of(restricted_to)))
        pecan.response.status = 201 if created else 200
        pecan.response.location = f'{_url()}/groups/{group.uuid}'
        return _present_group(group)


def _digest(members, spec):
    """What tells a request for a group from all others, a short text.

    :param members: how many are asked for, or their instances.
    :param spec: request_spec.RequestSpec.
    """
    return hashlib.sha256(json.dumps(
        [members, spec.canonical]).encode()).hexdigest()


def _present_group(group, marker=None):
    """A group as JSON, a dict.

    :param marker: instance UUID of the last member of the page before.
    :raises: InvalidInput when there is no such member.
    """
    members, url = group.members, f'{_url()}/groups/{group.uuid}'
    if marker is not None:
        names = [member.instance_uuid for member in members]
        if marker not in names:
            raise exception.InvalidInput(
                'marker', 'must be the instance UUID of a member')
        members = members[names.index(marker) + 1:]
    shown = _fitting(members, lambda each: _present(each, types.LISTED))
    page = types.present(types.Group, group) | {'reservations': shown}
    if len(members) > len(shown):
        page['next'] = f'{url}?marker={members[len(shown) - 1].instance_uuid}'
    return page


def _present_listed_group(group):
    """A membership.Group as JSON, a dict."""
    shown = types.present(types.ListedGroup, group)
    # One group cannot be told in several answers.
    return shown | {'domains': _fitting(shown['domains'], lambda each: each)}


class CapacityController:
    """/v1/reservations/capacity"""

    @pecan.expose(generic=True)
    def index(self):
        pecan.abort(405, headers={'Allow': 'GET, HEAD'})

    @index.when(method='HEAD', template='json')
    @index.when(method='GET', template='json')
    def get(self):
        query = _query(queries.capacity)
        traits = query.pop('trait', [])
        caller = _caller()
        caller.authorize('capacity')
        rows, age = capacity.capacity(
            max_age=(0 if pecan.request.cache_control.no_cache
                     else conf.CONF.reservations.capacity_ttl),
            restricted_to=caller.restricted_to('list_all'),
            traits=frozenset([traits] if isinstance(traits, str)
                             else traits), **query)
        pecan.response.age = int(age)
        return types.present(types.Capacity, {'capacity': rows})


class HostsController:
    """/v1/reservations/hosts"""

    @pecan.expose(generic=True)
    def index(self):
        pecan.abort(405, headers={'Allow': 'GET, HEAD'})

    @index.when(method='HEAD', template='json')
    @index.when(method='GET', template='json')
    def list(self):
        query = _query(queries.find_hosts)
        _caller().authorize('hosts')
        limit = _limit(query)
        found = hosts.find(limit + 1, **query)
        shown = _fitting(found[:limit],
                         functools.partial(types.present, types.Host))
        page = {'hosts': shown}
        if len(found) > len(shown):
            page['next'] = _next(f'{_url()}/hosts',
                                 found[len(shown) - 1].host, limit)
        return page


class HostController:
    """/v1/reservations/hosts/{host}"""

    def __init__(self, host):
        self.host = host

    @pecan.expose(generic=True)
    def index(self):
        pecan.abort(405, headers={'Allow': 'PUT, DELETE'})

    @index.when(method='PUT', template='json')
    def hold(self):
        _query(queries.nothing)
        _caller().authorize('hosts')
        body = bodies.hold_host(
            bodies.parse(limits.body(pecan.request)))
        lease = hosts.hold(self.host, body['holder'].lower(),
                           int(body['ttl']))
        return types.present(types.Host, lease,
                             ('host', 'holder', 'expires_at'))

    @index.when(method='DELETE', template='json')
    def give_up(self):
        holder = _query(queries.give_up_host)['holder'].lower()
        _caller().authorize('hosts')
        hosts.give_up(self.host, holder)
        pecan.response.status = 204


class RootController:
    """The way from a path to the controller of what it names."""

    @pecan.expose()
    def _lookup(self, *path):
        """Find the controller of a path; None makes Pecan answer 404.

        :param path: the segments of the path. The first two are ``v1`` and
            ``reservations``; a slash at the end makes an empty last one.
        :returns: the controller, and the segment that is its ``index``.
        :raises: InvalidInput when the path names something else than a UUID,
            or what cannot be a host.
        """
        match path[2:-1] if path[-1] == '' else path[2:]:
            case ():
                return ReservationsController(), ['']
            case ('capacity',):
                return CapacityController(), ['']
            case ('groups',):
                return GroupsController(), ['']
            case ('groups', name):
                return GroupController(_named(uuid=name)), ['']
            case ('hosts',):
                return HostsController(), ['']
            case ('hosts', name):
                return HostController(_named(host=name)), ['']
            case (name,):
                return ReservationController(
                    _named(instance_uuid=name)), ['']
        return None


class Application(pecan.Pecan):
    """Pecan, with these controllers."""

    def __init__(self):
        super().__init__(RootController(),
                         # ".json" is no part of our paths.
                         guess_content_type_from_ext=False)

    def invoke_controller(self, controller, args, kwargs, state):
        """Call a method and make its result the JSON of the answer.

        Pecan's own inspects the method's signature for each request, to find
        the arguments that it takes, of which ours have none, and so costs
        0.16 ms: 7 percent of the CPU time of a hold.
        """
        result = controller(*args)
        if result is not None:
            state.response.content_type = 'application/json'
            state.response.json_body = result
