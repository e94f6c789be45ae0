# SPDX-License-Identifier: Apache-2.0
"""Adds ``conn.baremetal_reservations`` to openstacksdk.

Add it to a Connection before its first use::

    conn.add_service(sdk.SERVICE)

or, for each connection to a cloud, in its clouds.yaml::

    vendor_hook: ironic_reservations.sdk:add_to

Errors are those of openstacksdk. If no node matches a request, it is an
``HttpException`` with the reason in ``response.json()['explanation']``.
"""

import builtins
from collections.abc import Generator
from collections.abc import Iterator
from typing import Any
from typing import Self
from typing import TypeVar
from typing import cast
from urllib import parse
import uuid

from openstack import exceptions
from openstack import proxy
from openstack import resource
from openstack import service_description
from openstack.baremetal import baremetal_service

from ironic_reservations.shared import text

_R = TypeVar('_R', bound=resource.Resource)

# Parameters of lists that are no filters, and filters with several values.
_PAGING = {'limit', 'marker', 'sort_key', 'sort_dir', 'fields', 'max_items'}
_LISTS = {'trait', 'by'}

#: The default of a condition, because None is often the name of a node.
_ANY: Any = ...


class _Listed(resource.Resource):
    """A resource that can be listed."""

    allow_list = True
    # The server refuses unknown keys. Otherwise, a misspelt constraint would
    # be dropped, and any node held.
    _allow_unknown_attrs_in_body = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # openstacksdk shares one dictionary among all objects.
        self._unknown_attrs_in_body: dict[str, Any] = {}
        super().__init__(*args, **kwargs)

    @classmethod
    def _get_next_link(cls, uri: str, response: Any, data: Any, marker: Any,
                       limit: Any, *args: Any) -> Any:
        # With a limit, openstacksdk would send one more request after the
        # last page, with the UUID of the last row, which may be deleted by
        # then.
        return super()._get_next_link(uri, response, data, marker, None, *args)


class _Resource(_Listed):
    """A resource that can also be created, shown and deleted."""

    allow_create = True
    allow_fetch = True
    allow_delete = True

    # Resources are mappings, whose method of this name is not used.
    def update(  # type: ignore[override]
            self, session: Any, operations: list[dict[str, Any]],
            **params: str) -> Self:
        """Send a JSON Patch, and update this object from the response.

        :param params: parameters of the query, such as ``host``.
        """
        response = session.patch(f'{self.base_path}/{self.id}',
                                 json=operations, params=params)
        exceptions.raise_from_response(response)
        self._translate_response(response)
        return self


class _Row(_Listed):
    """A resource with the times when it was created and changed.

    Times are texts in ISO 8601, in UTC, or None.
    """

    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')


class _NodeReservation(_Row):
    """A node that is or was held for an instance."""

    instance_uuid = resource.Body('instance_uuid')
    node_uuid = resource.Body('node_uuid')
    node_name = resource.Body('node_name')
    #: The compute host that holds it, or None.
    host = resource.Body('host')
    resource_class = resource.Body('resource_class')
    #: Health of the node's hardware, such as ``OK``; None if Ironic does not
    #: know it.
    health = resource.Body('health')
    #: Whether the node is in maintenance.
    maintenance = resource.Body('maintenance', type=bool)
    project_id = resource.Body('project_id')
    user_id = resource.Body('user_id')
    #: ``uuid``, ``policy``, ``by`` and ``domain`` of its group; also
    #: ``levels`` and ``segment`` if the group has segments. In a request, the
    #: group to join, such as ``{'uuid': …, 'segment': 2}``.
    group = resource.Body('group', type=dict)
    #: When the lease expires.
    expires_at = resource.Body('expires_at')
    #: What it is for: a text of at most 255 characters, or None.
    description = resource.Body('description')


class _NodeSet(_Resource):
    """Nodes with a policy: a group or a pool.

    openstacksdk does not look for the ID in a base class.
    """

    project_id = resource.Body('project_id')
    #: ``pack``, ``spread``, ``soft-pack``, ``soft-spread`` or None.
    policy = resource.Body('policy')
    #: ``capability:NAME``, ``conductor_group``, ``shard``, ``trait:PREFIX`` or
    #: None.
    by = resource.Body('by')
    #: The levels of one with segments, which has no policy and no ``by``.
    levels = resource.Body('levels', type=list)
    #: What it is for: a text of at most 255 characters, or None.
    description = resource.Body('description')
    #: Request spec of each node.
    request = resource.Body('request', type=dict)
    #: URL of further members or nodes if a response has no room for all.
    next = resource.Body('next')
    #: After a request: extra specs that are not compared with nodes, or None.
    ignored = resource.Body('ignored', type=list)


class Notice(_Row):
    """What is wrong with a node, or will be done to it.

    All notices of a request have one ``uuid``, and each its node.
    """

    resources_key = 'notices'
    base_path = '/reservations/notices'
    _query_mapping = resource.QueryParameters(
        'uuid', 'node', 'kind', 'state', 'ticket', 'overdue', 'project_id')

    #: ``id`` is the same.
    uuid = resource.Body('uuid', alternate_id=True)
    #: ``maintenance``, ``retirement`` or ``fault``.
    kind = resource.Body('kind')
    #: Whether it keeps new reservations off the node while it is open.
    cordon = resource.Body('cordon', type=bool)
    #: ``planned``, ``open`` or ``closed``.
    state = resource.Body('state')
    node_uuid = resource.Body('node_uuid')
    node_name = resource.Body('node_name')
    #: Whether it is open, and ``due_at`` has passed.
    overdue = resource.Body('overdue', type=bool)
    #: ISO 8601 with a time zone, as the following times, which may be None.
    starts_at = resource.Body('starts_at')
    #: When the work should be done; it closes nothing.
    due_at = resource.Body('due_at')
    #: Until when the project that has the node may postpone ``starts_at``.
    latest_start = resource.Body('latest_start')
    #: When a project has chosen ``starts_at``.
    scheduled_at = resource.Body('scheduled_at')
    ends_at = resource.Body('ends_at')
    category = resource.Body('category')
    description = resource.Body('description')
    ticket = resource.Body('ticket')
    #: What was done.
    action = resource.Body('action')
    #: ID of the project that has reported it, if the caller may see it.
    project_id = resource.Body('project_id')
    #: ID of the user, if the caller may see it.
    created_by = resource.Body('created_by')


class EndedReservation(_NodeReservation):
    """A reservation that has ended; see the API reference for its fields."""

    resources_key = 'history'
    base_path = '/reservations/history'
    _query_mapping = resource.QueryParameters(
        'node', 'instance_uuid', 'project_id', 'ended_after')

    #: Owner of the node when the reservation ended, or None. Class, health and
    #: maintenance are the present ones; None if the caller does not see the
    #: node any more.
    node_owner = resource.Body('node_owner')
    ended_at = resource.Body('ended_at')
    #: ``release``, ``expire``, ``purge`` or ``claim``.
    ended_by = resource.Body('ended_by')


class Reservation(_Resource, _NodeReservation):
    """A node held for an instance; see the API reference for its fields."""

    resources_key = 'reservations'
    base_path = '/reservations'
    _query_mapping = resource.QueryParameters(
        'host', 'node', 'resource_class', 'state', 'project_id', 'group',
        'expires_before', 'sort_key', 'sort_dir', 'fields')

    #: UUID of the instance for which the node is held; ``id`` is the same.
    instance_uuid = resource.Body('instance_uuid', alternate_id=True)
    #: ``reserved``, ``deploying``, ``active`` …
    state = resource.Body('state')
    #: The node's provision state in Ironic.
    provision_state = resource.Body('provision_state')
    #: The request spec; None in a list or a group, unless the ``fields`` of a
    #: list include it.
    request_spec = resource.Body('request_spec', type=dict)
    #: The planned and the open notices of its node; None in a list or a group,
    #: unless the ``fields`` of a list include them.
    notices = resource.Body('notices', type=list, list_type=Notice)
    #: The number of its other planned and open notices.
    more_notices = resource.Body('more_notices', type=int)
    links = resource.Body('links', type=list)

    # Keys of requests only.
    memory_mb = resource.Body('memory_mb', type=int)
    vcpus = resource.Body('vcpus', type=int)
    root_gb = resource.Body('root_gb', type=int)
    ephemeral_gb = resource.Body('ephemeral_gb', type=int)
    swap = resource.Body('swap', type=int)
    name = resource.Body('name')
    flavorid = resource.Body('flavorid')
    rxtx_factor = resource.Body('rxtx_factor')
    vcpu_weight = resource.Body('vcpu_weight')
    extra_specs = resource.Body('extra_specs', type=dict)
    image = resource.Body('image', type=dict)
    conductor_group = resource.Body('conductor_group')
    shard = resource.Body('shard')
    candidate_nodes = resource.Body('candidate_nodes', type=list)
    #: UUID of the process that holds the lease of the ``host``.
    holder = resource.Body('holder')
    #: UUIDs of nodes to try after all others.
    avoid = resource.Body('avoid', type=list)
    #: Seconds from now until the lease expires.
    expires_in = resource.Body('expires_in', type=int)
    #: ``any``, ``project`` or ``project_or_none``.
    ownership = resource.Body('ownership')
    #: UUID of the reservation or group to claim, or ``GROUP:SEGMENT``.
    claim = resource.Body('claim')

    #: After ``create``: extra specs that are not compared with nodes, or None.
    ignored = resource.Body('ignored', type=list)


class Group(_NodeSet):
    """Reservations that share a policy, such as all in one rack."""

    resources_key = 'groups'
    base_path = '/reservations/groups'

    #: ``id`` is the same.
    uuid = resource.Body('uuid', alternate_id=True)
    created_at = resource.Body('created_at')
    #: Number of members by the health of their nodes, if it is known.
    health = resource.Body('health', type=dict)
    #: The members; None in a list.
    reservations = resource.Body('reservations', type=list,
                                 list_type=Reservation)
    #: In a list, the number of members. In a request, the requested number or
    #: the UUIDs of their instances.
    members = resource.Body('members')
    #: In a list, the number of segments; None without.
    segments = resource.Body('segments', type=int)
    #: In a list: ``value`` and ``nodes`` of each domain that has members.
    domains = resource.Body('domains', type=list)

    # Keys of requests only.
    host = resource.Body('host')
    user_id = resource.Body('user_id')
    expires_in = resource.Body('expires_in', type=int)


class Pool(_NodeSet, _Row):
    """Nodes that only one project may reserve, until a date."""

    resources_key = 'pools'
    base_path = '/reservations/pools'
    _query_mapping = resource.QueryParameters('project_id', 'node')

    #: ``id`` is the same.
    uuid = resource.Body('uuid', alternate_id=True)
    #: ISO 8601 with a time zone; None for no expiry.
    expires_at = resource.Body('expires_at')
    #: Numbers of nodes: ``total``, ``free``, ``reserved``, ``taken``,
    #: ``out_of_service`` and ``healthy``.
    summary = resource.Body('summary', type=dict)
    #: A dict for each node, see the API reference; None in a list.
    nodes = resource.Body('nodes', type=list)
    #: In a request, the number of nodes.
    members = resource.Body('members', type=int)


class Host(_Row):
    """The lease of a compute host, which a process holds."""

    resources_key = 'hosts'
    base_path = '/reservations/hosts'
    allow_delete = True
    _query_mapping = resource.QueryParameters('host')

    #: Its name; ``id`` is the same.
    host = resource.Body('host', alternate_id=True)
    #: UUID of the process that holds the lease, or held it last.
    holder = resource.Body('holder')
    #: Whether the lease has not expired.
    live = resource.Body('live', type=bool)
    #: Since when the holder has it.
    since = resource.Body('since')
    #: Number of processes that wait to replace the holder.
    standbys = resource.Body('standbys', type=int)
    #: Number of reservations of the host.
    reservations = resource.Body('reservations', type=int)
    #: When the lease expires unless it is renewed.
    expires_at = resource.Body('expires_at')


class Profile(_Listed):
    """The counts of a hardware profile.

    With ``by``, only the counts and the keys in it have values; that of a
    capability is ``profile['capability:rack']``.
    """

    resources_key = 'capacity'
    base_path = '/reservations/capacity'
    _query_mapping = resource.QueryParameters(
        'host', 'resource_class', 'trait', 'conductor_group', 'shard', 'by')

    resource_class = resource.Body('resource_class')
    memory_mb = resource.Body('memory_mb')
    vcpus = resource.Body('vcpus')
    local_gb = resource.Body('local_gb')
    cpu_arch = resource.Body('cpu_arch')
    capabilities = resource.Body('capabilities', type=dict)
    traits = resource.Body('traits', type=list)
    conductor_group = resource.Body('conductor_group')
    shard = resource.Body('shard')
    owner = resource.Body('owner')
    lessee = resource.Body('lessee')
    pool_project_id = resource.Body('pool_project_id')
    total = resource.Body('total', type=int)
    free = resource.Body('free', type=int)
    #: Number of nodes that the requested host holds; None without one.
    held = resource.Body('held', type=int)
    claimable = resource.Body('claimable', type=int)
    #: With ``by='project_id'``: the project that has the nodes, or None.
    project_id = resource.Body('project_id')
    #: With ``by='project_id'``: number of nodes that are not in maintenance
    #: and have no refused health and no open notice.
    healthy = resource.Body('healthy', type=int)
    reserved = resource.Body('reserved', type=int)
    taken = resource.Body('taken', type=int)
    out_of_service = resource.Body('out_of_service', type=int)


def _make_patch(**changes: Any) -> list[dict[str, Any]]:
    """Return the JSON Patch that changes keys, or removes those with None."""
    return [{'op': 'remove', 'path': f'/{name}'} if value is None else
            {'op': 'add', 'path': f'/{name}', 'value': value}
            for name, value in changes.items()]


def _check_filters(query: dict[str, Any]) -> dict[str, Any]:
    """Return filters; refuse those that would be left out of a query.

    :raises: InvalidRequest.
    """
    for name, value in query.items():
        values = value if isinstance(value, (list, tuple, set)) else [value]
        if name not in _PAGING and (
                None in values or not values and name not in _LISTS):
            raise exceptions.InvalidRequest(
                f'{name} requires a value, not {value!r}; omit it for all')
    return query


def _get_id(value: Any) -> str:
    """Return the ID of a resource, which may be the value itself.

    :raises: InvalidRequest without one, or for a dotted segment of a path,
        which would be a request for the whole collection, or for more.
    """
    ident: str | None = getattr(value, 'id', value)
    if not ident or ident in ('.', '..'):
        raise exceptions.InvalidRequest(f'An ID is required, not {ident!r}')
    return ident


def _get_uuid(value: Any) -> str:
    """Return the ID of a resource whose ID is a UUID.

    :raises: InvalidRequest if it is none, because it could be another path of
        the API, such as "groups/UUID".
    """
    ident = str(_get_id(value))
    try:
        uuid.UUID(ident)
    except ValueError:
        raise exceptions.InvalidRequest(f'A UUID is required, not {ident!r}')
    return ident


_Whole = TypeVar('_Whole', Group, Pool)


class Proxy(proxy.Proxy):
    """The calls, which take objects or their UUIDs."""

    api_version = '1'

    def _get_resource(self, resource_type: type[_R], value: Any,
                      **attrs: Any) -> _R:
        _get_uuid(value)
        row: _R = super()._get_resource(resource_type, value, **attrs)
        return row

    def _list(self, resource_type: type[_R], *args: Any, **query: Any
              ) -> Generator[_R, None, None]:
        # openstacksdk leaves out unknown names, and returns everything.
        resource_type._query_mapping._validate({
            name: value for name, value in query.items()
            if name != 'max_items'})
        return super()._list(resource_type, *args, **_check_filters(query))

    def endpoint_version(self) -> str | None:
        """Return the version of the API; see the API reference.

        :returns: such as ``1.1``; None if Ironic has no such endpoint.
        """
        response = self.get('/reservations', params={'limit': 1},
                            raise_exc=False)
        return response.headers.get('X-OpenStack-Ironic-Reservations-Version')

    def create(self, **attrs: Any) -> Reservation:
        """Hold a node.

        Repeating a call with the same ``instance_uuid`` renews the lease, and
        returns the reservation of a call whose response was lost.

        :param attrs: keys of the request, see the API reference. The
            ``instance_uuid`` is generated if it is absent.
        :raises: HttpException, 422, if no node matches.
        """
        attrs.setdefault('instance_uuid', str(uuid.uuid4()))
        return self._create(Reservation, **attrs)

    def dry_run(self, **attrs: Any) -> dict[str, Any]:
        """Return the nodes that match a request, without holding one.

        :param attrs: as in ``create``.
        :returns: data of the response, see the API reference.
        """
        response = self.post('/reservations', params={'dry_run': 'true'},
                             json=attrs)
        exceptions.raise_from_response(response)
        data: dict[str, Any] = response.json()
        return data

    def claim(self, reservation: Reservation | Group | str,
              segment: int | None = None, **attrs: Any) -> Reservation:
        """Claim a reservation without a host for an instance.

        :param reservation: the reservation or the group to claim.
        :param segment: number of the group's segment; None for any member.
        :param attrs: as in ``create``.
        """
        claim = _get_id(reservation)
        return self.create(claim=claim if segment is None
                           else f'{claim}:{segment}', **attrs)

    def list(self, **query: Any) -> Iterator[Reservation]:
        """Yield reservations of all pages.

        :param query: ``host``, ``node``, ``state`` and the other filters;
            ``limit``, the length of a page; and ``fields``, a list of names,
            or a text with commas between them.
        :raises: InvalidResourceQuery for an unknown name, and InvalidRequest
            for a filter that is None, as in all lists.
        """
        fields = query.get('fields')
        if isinstance(fields, (builtins.list, tuple)):
            query['fields'] = ','.join(fields)
        return self._list(Reservation, **query)

    def show(self, reservation: Reservation | str) -> Reservation:
        """Return the current state of a reservation.

        :raises: NotFoundException.
        """
        return self._get(Reservation, reservation)

    def renew(self, reservation: Reservation | str, expires_in: int | None,
              host: str = _ANY) -> Reservation:
        """Renew or remove a lease.

        :param expires_in: seconds from now; None for no expiry.
        :param host: only if this host holds it.
        """
        return self._get_resource(Reservation, reservation).update(
            self, _make_patch(expires_in=expires_in),
            **({} if host is _ANY else _check_filters({'host': host})))

    def describe(self, reservation: Reservation | str,
                 description: str | None) -> Reservation:
        """Change or remove a description."""
        return self._get_resource(Reservation, reservation).update(
            self, _make_patch(description=description))

    def release(self, reservation: Reservation | str,
                ignore_missing: bool = True) -> None:
        """Release a node.

        :raises: ConflictException if it is deployed: undeploy it first.
        """
        self._delete(Reservation, reservation, ignore_missing=ignore_missing)

    def capacity(self, **query: Any) -> Iterator[Profile]:
        """Yield the hardware profiles with the counts of their nodes.

        :param query: ``resource_class``, ``trait`` and the other filters, and
            ``by``, a key or a list of keys by which the counts are summed.
        """
        return self._list(Profile, **query)

    def hosts(self, **query: Any) -> Iterator[Host]:
        """Yield the leases of compute hosts.

        :param query: ``host``, for only one.
        """
        return self._list(Host, **query)

    def delete_host(self, host: Host | str,
                    ignore_missing: bool = True) -> None:
        """Delete the expired lease of a host.

        :param host: the lease or the name of the host.
        :raises: ConflictException if it has not expired.
        """
        response = self.delete(f'{Host.base_path}/'
                               + parse.quote(_get_id(host), safe=''))
        if response.status_code != 404 or not ignore_missing:
            exceptions.raise_from_response(response)

    def create_notices(self, kind: str,
                       **attrs: Any) -> builtins.list[Notice]:
        """Create a notice for each of some nodes, or none.

        Repeating a call with the same ``uuid`` returns the same notices.

        :param kind: ``maintenance``, ``retirement`` or ``fault``.
        :param attrs: ``nodes``, a list of UUIDs and names, or ``by``, such as
            ``{'capability:rack': 'r7'}``; and the other keys of the request.
            The ``uuid`` is generated if it is absent. A time may be relative:
            ``{'in': 600}`` is 600 seconds from now.
        """
        attrs.setdefault('uuid', str(uuid.uuid4()))
        return self._read_notices(self.post(
            Notice.base_path, json={'kind': kind, **attrs}))

    def notices(self, **query: Any) -> Iterator[Notice]:
        """Yield notices, including closed ones.

        :param query: ``uuid``, ``node``, ``kind``, ``state``, ``ticket``,
            ``overdue`` and ``project_id``.
        """
        return self._list(Notice, **query)

    def update_notices(self, notice: Notice | str, node: str = _ANY,
                       **changes: Any) -> builtins.list[Notice]:
        """Change notices, all or none.

        :param notice: a notice, or the UUID of all notices of a request.
        :param node: only the notice of this node. A notice has its own.
        :param changes: values by key; None removes a value.
        :raises: InvalidRequest if a notice is of another node.
        :raises: ConflictException if one is closed, and not only texts change.
        """
        if isinstance(notice, Notice):
            if node not in (_ANY, notice.node_uuid, notice.node_name):
                raise exceptions.InvalidRequest(
                    f'The notice is of node {notice.node_uuid}, not {node}; '
                    f'pass its UUID for that of another node')
            node = notice.node_uuid
        return self._read_notices(self.patch(
            f'{Notice.base_path}/{_get_uuid(notice)}',
            json=_make_patch(**changes),
            params={} if node is _ANY else _check_filters({'node': node})))

    def schedule_notices(self, notice: Notice | str,
                         at: str | dict[str, int] = 'now', node: str = _ANY
                         ) -> builtins.list[Notice]:
        """Choose when planned notices with ``latest_start`` begin.

        For the project that has the nodes; see ``update_notices``.

        :param at: a time with a time zone, ``{'in': 600}`` or ``now``.
        :returns: those that were moved.
        """
        return self.update_notices(notice, node, starts_at=at)

    def close_notices(self, notice: Notice | str, node: str = _ANY,
                      **changes: Any) -> builtins.list[Notice]:
        """Close notices, which ends their cordons.

        :param changes: see ``update_notices``, such as ``action``.
        """
        return self.update_notices(notice, node, ends_at='now', **changes)

    def _read_notices(self, response: Any) -> builtins.list[Notice]:
        exceptions.raise_from_response(response)
        return [Notice.existing(connection=self._get_connection(), **row)
                for row in response.json()['notices']]

    def history(self, **query: Any) -> Iterator[EndedReservation]:
        """Yield reservations that have ended, the last one first.

        :param query: ``node``, ``instance_uuid``, ``project_id`` and
            ``ended_after``.
        """
        return self._list(EndedReservation, **query)

    def create_group(self, members: int | builtins.list[str],
                     request: dict[str, Any], **attrs: Any) -> Group:
        """Hold several nodes, or none.

        :param members: number of nodes, or the UUIDs of their instances.
        :param request: request spec of each node.
        :param attrs: ``policy`` and ``by``, or ``levels``, and the other keys.
            The ``uuid`` is generated if it is absent.
        :raises: HttpException, 422, if too few nodes match; the number is in
            ``response.json()['members']``.
        """
        attrs.setdefault('uuid', str(uuid.uuid4()))
        return self._complete(self._create(
            Group, members=members, request=request, **attrs))

    def groups(self, **query: Any) -> Iterator[Group]:
        """Yield groups with the numbers of their members."""
        return self._list(Group, **query)

    def show_group(self, group: Group | str) -> Group:
        """Return the current state of a group.

        :raises: NotFoundException.
        """
        return self._complete(self._get(Group, group))

    def _complete(self, whole: _Whole) -> _Whole:
        """Add the members or nodes for which the response had no room."""
        name: str = 'reservations' if isinstance(whole, Group) else 'nodes'
        while query := text.parse_next_link(whole.next):
            page: Any = self._get_resource(type(whole), whole.id).fetch(
                self, **cast(dict[str, Any], query))
            setattr(whole, name, [*getattr(whole, name),
                                  *getattr(page, name)])
            whole.next = page.next
        return whole

    def renew_group(self, group: Group | str,
                    expires_in: int | None) -> Group:
        """Renew or remove the leases of all members without a host.

        :param expires_in: seconds from now; None for no expiry.
        :raises: ConflictException if no reserved member is without a host.
        """
        return self._complete(self._get_resource(Group, group).update(
            self, _make_patch(expires_in=expires_in)))

    def describe_group(self, group: Group | str,
                       description: str | None) -> Group:
        """Change or remove the description of a group."""
        return self._complete(self._get_resource(Group, group).update(
            self, _make_patch(description=description)))

    def release_group(self, group: Group | str,
                      ignore_missing: bool = True) -> None:
        """Release all nodes of a group.

        :raises: ConflictException if some are deployed; the rest is released.
        """
        self._delete(Group, group, ignore_missing=ignore_missing)

    def create_pool(self, project_id: str, members: int,
                    request: dict[str, Any], **attrs: Any) -> Pool:
        """Keep nodes for a project, or none.

        :param members: number of nodes.
        :param request: request spec of each node.
        :param attrs: ``policy`` and ``by``, or ``levels``; ``expires_at``, a
            time as in ``create_notices``, and ``description``. The ``uuid`` is
            generated if it is absent.
        :raises: HttpException, 422, as of ``create_group``.
        """
        attrs.setdefault('uuid', str(uuid.uuid4()))
        return self._complete(self._create(
            Pool, project_id=project_id, members=members, request=request,
            **attrs))

    def pools(self, **query: Any) -> Iterator[Pool]:
        """Yield pools with the numbers of their nodes.

        :param query: ``project_id`` and ``node``.
        """
        return self._list(Pool, **query)

    def show_pool(self, pool: Pool | str) -> Pool:
        """Return the current state of a pool.

        :raises: NotFoundException.
        """
        return self._complete(self._get(Pool, pool))

    def update_pool(self, pool: Pool | str, **changes: Any) -> Pool:
        """Change the expiry or the description of a pool.

        :param changes: ``expires_at`` and ``description``; None removes one.
        """
        return self._complete(self._get_resource(Pool, pool).update(
            self, _make_patch(**changes)))

    def delete_pool(self, pool: Pool | str,
                    ignore_missing: bool = True) -> None:
        """Delete a pool. Reservations of its nodes stay."""
        self._delete(Pool, pool, ignore_missing=ignore_missing)

    def add_pool_node(self, pool: Pool | str, node: str) -> Pool:
        """Add a node to a pool.

        :param node: its UUID or name.
        :raises: ConflictException if it does not qualify.
        """
        return self._change_nodes(pool, node=_get_id(node))

    def replace_pool_node(self, pool: Pool | str, node: str) -> Pool:
        """Replace a node of a pool by another one in the same domain.

        :param node: UUID or name of the node to remove.
        :raises: HttpException, 422, if no node matches.
        """
        return self._change_nodes(pool, replaces=_get_id(node))

    def remove_pool_node(self, pool: Pool | str, node: str) -> None:
        """Remove a node from a pool, which is deleted with its last node.

        :param node: its UUID or name.
        :raises: NotFoundException if it is not in the pool.
        """
        exceptions.raise_from_response(self.delete(
            f'{Pool.base_path}/{_get_uuid(pool)}/nodes/'
            + parse.quote(_get_id(node), safe='')))

    def _change_nodes(self, pool: Pool | str, **body: str) -> Pool:
        response = self.post(f'{Pool.base_path}/{_get_uuid(pool)}/nodes',
                             json=body)
        exceptions.raise_from_response(response)
        return self._complete(Pool.existing(
            connection=self._get_connection(), **response.json()))


# The class is not generic in all supported versions.
class _Service(
        service_description.ServiceDescription):  # type: ignore[type-arg]
    """A service with the endpoint of Ironic, whose API it extends."""

    def _make_proxy(self, instance: Any) -> Any:
        return baremetal_service.BaremetalService(
            'baremetal', {'1': Proxy})._make_proxy(instance)


SERVICE = _Service('baremetal-reservations')


def add_to(conn: Any) -> None:
    """Add ``baremetal_reservations`` to a Connection, as ``vendor_hook``."""
    conn.add_service(SERVICE)
