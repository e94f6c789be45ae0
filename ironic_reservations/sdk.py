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
from collections.abc import Iterator
from typing import Any
import uuid

from openstack import exceptions
from openstack import proxy
from openstack import resource
from openstack import service_description
from openstack.baremetal import baremetal_service

from ironic_reservations import text


class _Resource(resource.Resource):
    """A resource that can be created, shown, listed and deleted."""

    allow_create = True
    allow_fetch = True
    allow_delete = True
    allow_list = True
    # The server refuses unknown keys. Otherwise, a misspelt constraint would
    # be dropped, and any node held.
    _allow_unknown_attrs_in_body = True

    @classmethod
    def _get_next_link(cls, uri: str, response: Any, data: Any, marker: Any,
                       limit: Any, *args: Any) -> Any:
        # With a limit, openstacksdk would send one more request after the
        # last page, with the UUID of the last row, which may be deleted by
        # then.
        return super()._get_next_link(uri, response, data, marker, None, *args)

    def update(self, session: Any, operations: list[dict[str, Any]],
               **params: str) -> '_Resource':
        """Send a JSON Patch, and update this object from the response.

        :param params: parameters of the query, such as ``host``.
        """
        response = session.patch(f'{self.base_path}/{self.id}',
                                 json=operations, params=params)
        exceptions.raise_from_response(response)
        self._translate_response(response)
        return self


class Reservation(_Resource):
    """A node held for an instance; see the API reference for its fields."""

    resources_key = 'reservations'
    base_path = '/reservations'
    _query_mapping = resource.QueryParameters(
        'host', 'node', 'resource_class', 'state', 'project_id', 'group',
        'expires_before', 'sort_key', 'sort_dir', 'fields')

    #: UUID of the instance for which the node is held; ``id`` is the same.
    instance_uuid = resource.Body('instance_uuid', alternate_id=True)
    node_uuid = resource.Body('node_uuid')
    node_name = resource.Body('node_name')
    #: The compute host that holds it, or None.
    host = resource.Body('host')
    #: ``reserved``, ``deploying``, ``active`` …
    state = resource.Body('state')
    #: The node's provision state in Ironic.
    provision_state = resource.Body('provision_state')
    resource_class = resource.Body('resource_class')
    project_id = resource.Body('project_id')
    user_id = resource.Body('user_id')
    #: The request spec; None in a list or a group, unless the ``fields`` of a
    #: list include it.
    request_spec = resource.Body('request_spec', type=dict)
    #: ``uuid``, ``policy``, ``by`` and ``domain`` of its group; also
    #: ``levels`` and ``segment`` if the group has segments. In a request, the
    #: group to join, such as ``{'uuid': …, 'segment': 2}``.
    group = resource.Body('group', type=dict)
    #: When the lease expires, in UTC, ISO 8601, or None.
    expires_at = resource.Body('expires_at')
    #: What it is for: a text of at most 255 characters, or None.
    description = resource.Body('description')
    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')
    links = resource.Body('links', type=list)

    # Keys of requests only.
    memory_mb = resource.Body('memory_mb', type=int)
    vcpus = resource.Body('vcpus', type=int)
    root_gb = resource.Body('root_gb', type=int)
    ephemeral_gb = resource.Body('ephemeral_gb', type=int)
    swap = resource.Body('swap', type=int)
    name = resource.Body('name')
    flavorid = resource.Body('flavorid')
    extra_specs = resource.Body('extra_specs', type=dict)
    image = resource.Body('image', type=dict)
    conductor_group = resource.Body('conductor_group')
    shard = resource.Body('shard')
    candidate_nodes = resource.Body('candidate_nodes', type=list)
    #: Seconds from now until the lease expires.
    expires_in = resource.Body('expires_in', type=int)
    #: ``any``, ``project`` or ``project_or_none``.
    ownership = resource.Body('ownership')
    #: UUID of the reservation or group to claim, or ``GROUP:SEGMENT``.
    claim = resource.Body('claim')

    #: After ``create``: extra specs that are not compared with nodes, or None.
    ignored = resource.Body('ignored', type=list)


class Group(_Resource):
    """Reservations with one policy, such as all in one rack."""

    resources_key = 'groups'
    base_path = '/reservations/groups'

    #: ``id`` is the same.
    uuid = resource.Body('uuid', alternate_id=True)
    #: ``pack``, ``spread``, ``soft-pack``, ``soft-spread`` or None.
    policy = resource.Body('policy')
    #: ``capability:NAME``, ``conductor_group``, ``shard``, ``trait:PREFIX`` or
    #: None.
    by = resource.Body('by')
    #: The levels of a group with segments, which has no policy and no ``by``.
    levels = resource.Body('levels', type=list)
    project_id = resource.Body('project_id')
    #: What it is for: a text of at most 255 characters, or None.
    description = resource.Body('description')
    created_at = resource.Body('created_at')
    #: The members; None in a list.
    reservations = resource.Body('reservations', type=list,
                                 list_type=Reservation)
    #: URL of further members if a response has no room for all.
    next = resource.Body('next')
    #: In a list, the number of members. In a request, the requested number or
    #: the UUIDs of their instances.
    members = resource.Body('members')
    #: In a list, the number of segments; None without.
    segments = resource.Body('segments', type=int)
    #: In a list: ``value`` and ``nodes`` of each domain that has members.
    domains = resource.Body('domains', type=list)

    # Keys of requests only.
    #: Request spec of each node.
    request = resource.Body('request', type=dict)
    host = resource.Body('host')
    user_id = resource.Body('user_id')
    expires_in = resource.Body('expires_in', type=int)
    ignored = resource.Body('ignored', type=list)


class Host(resource.Resource):
    """The lease of a compute host, which a process holds."""

    resources_key = 'hosts'
    base_path = '/reservations/hosts'
    allow_list = True
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
    #: When the lease expires unless it is renewed, in UTC, ISO 8601.
    expires_at = resource.Body('expires_at')
    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')


class Profile(resource.Resource):
    """The counts of a hardware profile."""

    resources_key = 'capacity'
    base_path = '/reservations/capacity'
    allow_list = True
    _query_mapping = resource.QueryParameters(
        'host', 'resource_class', 'trait', 'conductor_group', 'shard',
        include_pagination_defaults=False)

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
    total = resource.Body('total', type=int)
    free = resource.Body('free', type=int)
    #: Number of nodes that the requested host holds; None without one.
    held = resource.Body('held', type=int)
    claimable = resource.Body('claimable', type=int)
    reserved = resource.Body('reserved', type=int)
    taken = resource.Body('taken', type=int)
    out_of_service = resource.Body('out_of_service', type=int)


def _make_patch(name: str, value: Any) -> list[dict[str, Any]]:
    """Return the JSON Patch that changes a key, or removes it for None."""
    if value is None:
        return [{'op': 'remove', 'path': f'/{name}'}]
    return [{'op': 'add', 'path': f'/{name}', 'value': value}]


class Proxy(proxy.Proxy):
    """The calls, which take reservations and groups as objects or UUIDs."""

    api_version = '1'

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
        return response.json()

    def claim(self, reservation: Reservation | Group | str,
              segment: int | None = None, **attrs: Any) -> Reservation:
        """Claim a reservation without a host for an instance.

        :param reservation: the reservation or the group to claim.
        :param segment: number of the group's segment; None for any member.
        :param attrs: as in ``create``.
        """
        claim = getattr(reservation, 'id', reservation)
        return self.create(claim=claim if segment is None
                           else f'{claim}:{segment}', **attrs)

    def list(self, **query: Any) -> Iterator[Reservation]:
        """Yield reservations of all pages.

        :param query: ``host``, ``node``, ``state`` and the other filters, and
            ``limit``, the length of a page.
        """
        return self._list(Reservation, **query)

    def show(self, reservation: Reservation | str) -> Reservation:
        """Return the current state of a reservation.

        :raises: NotFoundException.
        """
        return self._get(Reservation, reservation)

    def renew(self, reservation: Reservation | str, expires_in: int | None,
              host: str | None = None) -> Reservation:
        """Renew or remove a lease.

        :param expires_in: seconds from now; None for no expiry.
        :param host: only if this host holds it.
        """
        return self._get_resource(Reservation, reservation).update(
            self, _make_patch('expires_in', expires_in),
            **({'host': host} if host else {}))

    def describe(self, reservation: Reservation | str,
                 description: str | None) -> Reservation:
        """Change or remove a description."""
        return self._get_resource(Reservation, reservation).update(
            self, _make_patch('description', description))

    def release(self, reservation: Reservation | str,
                ignore_missing: bool = True) -> None:
        """Release a node.

        :raises: ConflictException if it is deployed: undeploy it first.
        """
        self._delete(Reservation, reservation, ignore_missing=ignore_missing)

    def capacity(self, **query: Any) -> Iterator[Profile]:
        """Yield the hardware profiles with the counts of their nodes.

        :param query: ``resource_class``, ``trait`` and the other filters.
        """
        return self._list(Profile, paginated=False, **query)

    def hosts(self, **query: Any) -> Iterator[Host]:
        """Yield the leases of compute hosts.

        :param query: ``host``, for only one.
        """
        return self._list(Host, **query)

    def forget_host(self, host: Host | str,
                    ignore_missing: bool = True) -> None:
        """Delete the expired lease of a host.

        :param host: the lease or the name of the host.
        :raises: ConflictException if it has not expired.
        """
        self._delete(Host, host, ignore_missing=ignore_missing)

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
        return self._complete_group(self._create(
            Group, members=members, request=request, **attrs))

    def groups(self, **query: Any) -> Iterator[Group]:
        """Yield groups with the numbers of their members."""
        return self._list(Group, **query)

    def show_group(self, group: Group | str) -> Group:
        """Return the current state of a group.

        :raises: NotFoundException.
        """
        return self._complete_group(self._get(Group, group))

    def _complete_group(self, group: Group) -> Group:
        """Add the members for which the response had no room."""
        while query := text.parse_next_link(group.next):
            page = self._get_resource(Group, group.id).fetch(self, **query)
            group.reservations = [*group.reservations, *page.reservations]
            group.next = page.next
        return group

    def renew_group(self, group: Group | str,
                    expires_in: int | None) -> Group:
        """Renew or remove the leases of all members without a host.

        :param expires_in: seconds from now; None for no expiry.
        :raises: ConflictException if no reserved member is without a host.
        """
        return self._complete_group(self._get_resource(Group, group).update(
            self, _make_patch('expires_in', expires_in)))

    def describe_group(self, group: Group | str,
                       description: str | None) -> Group:
        """Change or remove the description of a group."""
        return self._complete_group(self._get_resource(Group, group).update(
            self, _make_patch('description', description)))

    def release_group(self, group: Group | str,
                      ignore_missing: bool = True) -> None:
        """Release all nodes of a group.

        :raises: ConflictException if some are deployed; the others are
            released.
        """
        self._delete(Group, group, ignore_missing=ignore_missing)


class _Service(service_description.ServiceDescription):
    """A service with the endpoint of Ironic, whose API it extends."""

    def _make_proxy(self, instance: Any) -> Any:
        return baremetal_service.BaremetalService(
            'baremetal', {'1': Proxy})._make_proxy(instance)


SERVICE = _Service('baremetal-reservations')


def add_to(conn: Any) -> None:
    """Add ``baremetal_reservations`` to a Connection, as ``vendor_hook``."""
    conn.add_service(SERVICE)
