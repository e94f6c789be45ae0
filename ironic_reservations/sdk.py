# SPDX-License-Identifier: Apache-2.0
"""Reservations for openstacksdk: ``conn.baremetal_reservations``.

One line adds it to a Connection, before its first use::

    conn.add_service(sdk.SERVICE)

or, for each connection to a cloud, one line of its clouds.yaml::

    vendor_hook: ironic_reservations.sdk:add_to

Errors are openstacksdk's own. The one of a request for which there is no node
is an ``HttpException`` whose ``response.json()['explanation']`` says why.
"""

import uuid

from openstack import exceptions
from openstack import proxy
from openstack import resource
from openstack import service_description
from openstack.baremetal import baremetal_service

from ironic_reservations import text


class _Resource(resource.Resource):
    """What can be made, shown, listed and deleted."""

    allow_create = True
    allow_fetch = True
    allow_delete = True
    allow_list = True
    # Let the server refuse what it does not know, or a typing error would
    # have any node held.
    _allow_unknown_attrs_in_body = True

    @classmethod
    def _get_next_link(cls, uri, response, data, marker, limit, *args):
        # With a limit openstacksdk would send one more request where there is
        # no link, with the UUID of the last row, which may be gone by then.
        return super()._get_next_link(uri, response, data, marker, None, *args)


class Reservation(_Resource):
    """A node held for an instance; see the API reference for its fields."""

    resources_key = 'reservations'
    base_path = '/reservations'
    _query_mapping = resource.QueryParameters(
        'host', 'node', 'resource_class', 'state', 'project_id', 'sort_key',
        'sort_dir', 'fields')

    #: UUID of the instance that the node is held for; ``id`` is the same.
    instance_uuid = resource.Body('instance_uuid', alternate_id=True)
    node_uuid = resource.Body('node_uuid')
    node_name = resource.Body('node_name')
    #: The compute host that holds it, or None.
    host = resource.Body('host')
    #: ``reserved``, ``deploying``, ``active`` …
    state = resource.Body('state')
    #: The node's provision state, as Ironic has it.
    provision_state = resource.Body('provision_state')
    resource_class = resource.Body('resource_class')
    project_id = resource.Body('project_id')
    user_id = resource.Body('user_id')
    #: What was asked for, a dict; None in a list or a group, unless the
    #: ``fields`` of a list name it.
    request_spec = resource.Body('request_spec', type=dict)
    #: ``uuid``, ``policy``, ``by`` and ``domain`` of the group it is of.
    group = resource.Body('group', type=dict)
    #: End of the lease, in UTC, ISO 8601, or None.
    expires_at = resource.Body('expires_at')
    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')
    links = resource.Body('links', type=list)

    # What only a request has.
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
    #: Seconds from now until the lease is over.
    expires_in = resource.Body('expires_in', type=int)
    #: ``any``, ``project`` or ``project_or_none``.
    ownership = resource.Body('ownership')
    #: UUID of the reservation or the group of which this takes one over.
    claim = resource.Body('claim')

    #: After ``create``: extra specs that are not compared with nodes, or None.
    ignored = resource.Body('ignored', type=list)

    def update(self, session, operations, **params):
        """Send a JSON Patch, and become what the answer says."""
        response = session.patch(f'{self.base_path}/{self.id}',
                                 json=operations, params=params)
        exceptions.raise_from_response(response)
        self._translate_response(response)
        return self


class Group(_Resource):
    """Reservations with one policy, such as all in one rack."""

    resources_key = 'groups'
    base_path = '/reservations/groups'

    #: ``id`` is the same.
    uuid = resource.Body('uuid', alternate_id=True)
    #: ``pack``, ``spread``, ``soft-pack``, ``soft-spread`` or None.
    policy = resource.Body('policy')
    #: ``capability:NAME``, ``conductor_group``, ``shard`` or None.
    by = resource.Body('by')
    project_id = resource.Body('project_id')
    created_at = resource.Body('created_at')
    #: The members, Reservations; None in a list.
    reservations = resource.Body('reservations', type=list,
                                 list_type=Reservation)
    #: Where an answer has no room for all members: the URL of the others.
    next = resource.Body('next')
    #: How many members there are, in a list. In a request: how many are
    #: wanted, or the UUIDs of their instances.
    members = resource.Body('members')
    #: In a list: ``value`` and ``nodes`` of each domain that has members.
    domains = resource.Body('domains', type=list)

    # What only a request has.
    #: What each node must be, a dict.
    request = resource.Body('request', type=dict)
    host = resource.Body('host')
    user_id = resource.Body('user_id')
    expires_in = resource.Body('expires_in', type=int)
    ignored = resource.Body('ignored', type=list)


class Host(resource.Resource):
    """A compute host that several processes may be."""

    resources_key = 'hosts'
    base_path = '/reservations/hosts'
    allow_list = True
    allow_delete = True
    _query_mapping = resource.QueryParameters('host')

    #: Its name; ``id`` is the same.
    host = resource.Body('host', alternate_id=True)
    #: UUID of the process that is the host, or was the last.
    holder = resource.Body('holder')
    #: Whether the lease of that is not over.
    live = resource.Body('live', type=bool)
    #: Since when that is the one.
    since = resource.Body('since')
    #: How many processes wait to take its place.
    standbys = resource.Body('standbys', type=int)
    #: How many reservations the host holds.
    reservations = resource.Body('reservations', type=int)
    #: When the lease ends unless it is renewed, in UTC, ISO 8601.
    expires_at = resource.Body('expires_at')
    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')


class Profile(resource.Resource):
    """Nodes that no request can tell apart, counted."""

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
    #: How many the requested host holds; None without one.
    held = resource.Body('held', type=int)
    claimable = resource.Body('claimable', type=int)
    reserved = resource.Body('reserved', type=int)
    taken = resource.Body('taken', type=int)
    out_of_service = resource.Body('out_of_service', type=int)


class Proxy(proxy.Proxy):
    """The calls. A reservation or a group is given as such or by its UUID."""

    api_version = '1'

    def endpoint_version(self):
        """What the endpoint can do: see the API reference.

        :returns: such as ``1.1``; None where Ironic has no such endpoint.
        """
        response = self.get('/reservations', params={'limit': 1},
                            raise_exc=False)
        return response.headers.get('X-OpenStack-Ironic-Reservations-Version')

    def create(self, **attrs):
        """Hold a node.

        The same call with the same ``instance_uuid`` begins the lease anew,
        and finds out what became of a call whose answer was lost.

        :param attrs: the request's keys, as the API reference has them. The
            ``instance_uuid`` is made here where it is not given.
        :returns: Reservation.
        :raises: HttpException, 422, when there is no such node.
        """
        attrs.setdefault('instance_uuid', str(uuid.uuid4()))
        return self._create(Reservation, **attrs)

    def dry_run(self, **attrs):
        """Find out what a request would find, and hold nothing.

        :param attrs: as in ``create``.
        :returns: the response as the API reference has it, a dict.
        """
        response = self.post('/reservations', params={'dry_run': 'true'},
                             json=attrs)
        exceptions.raise_from_response(response)
        return response.json()

    def claim(self, claimed, **attrs):
        """Have an instance take over a reservation that no host has yet.

        :param claimed: Reservation or Group, or the UUID of one.
        :param attrs: as in ``create``.
        """
        return self.create(claim=getattr(claimed, 'id', claimed), **attrs)

    def list(self, **query):
        """Reservations, all pages of them.

        :param query: ``host``, ``node``, ``state`` and the other filters, and
            ``limit``, the length of a page.
        :returns: generator of Reservations.
        """
        return self._list(Reservation, **query)

    def show(self, reservation):
        """The Reservation as it is now.

        :raises: NotFoundException.
        """
        return self._get(Reservation, reservation)

    def renew(self, reservation, expires_in, host=None):
        """Begin a lease anew.

        :param expires_in: seconds from now; None for no end.
        :param host: only if this host holds it.
        :returns: Reservation.
        """
        operation = {'op': 'replace', 'path': '/expires_in',
                     'value': expires_in}
        if expires_in is None:
            operation = {'op': 'remove', 'path': '/expires_in'}
        return self._get_resource(Reservation, reservation).update(
            self, [operation], **({'host': host} if host else {}))

    def release(self, reservation, ignore_missing=True):
        """Let go of a node.

        :raises: ConflictException while it is deployed: tear it down first.
        """
        self._delete(Reservation, reservation, ignore_missing=ignore_missing)

    def capacity(self, **query):
        """How many nodes there are and how many are free, by profile.

        :param query: ``resource_class``, ``trait`` and the other filters.
        :returns: generator of Profiles.
        """
        return self._list(Profile, paginated=False, **query)

    def hosts(self, **query):
        """Compute hosts that several processes may be: a generator of Hosts.

        :param query: ``host``, for only one.
        """
        return self._list(Host, **query)

    def forget_host(self, host, ignore_missing=True):
        """Forget a host that no process is any more.

        :param host: Host or its name.
        :raises: ConflictException while its lease is not over.
        """
        self._delete(Host, host, ignore_missing=ignore_missing)

    def create_group(self, members, request, **attrs):
        """Hold several nodes, or none.

        :param members: how many, or the UUIDs of their instances.
        :param request: dict: what each node must be.
        :param attrs: ``policy`` and ``by``, and the other keys. The ``uuid``
            is made here where it is not given.
        :returns: Group.
        :raises: HttpException, 422, when there are too few;
            ``response.json()['members']`` says how many there are.
        """
        attrs.setdefault('uuid', str(uuid.uuid4()))
        return self._whole(self._create(Group, members=members,
                                        request=request, **attrs))

    def groups(self, **query):
        """Groups, with how many members each has: a generator."""
        return self._list(Group, **query)

    def show_group(self, group):
        """The Group as it is now.

        :raises: NotFoundException.
        """
        return self._whole(self._get(Group, group))

    def _whole(self, group):
        """A Group with those members, too, for which it had no room."""
        while query := text.parse_next_link(group.next):
            page = self._get_resource(Group, group.id).fetch(self, **query)
            group.reservations = [*group.reservations, *page.reservations]
            group.next = page.next
        return group

    def release_group(self, group, ignore_missing=True):
        """Let go of all nodes of a group.

        :raises: ConflictException when some are deployed; the others are free.
        """
        self._delete(Group, group, ignore_missing=ignore_missing)


class _Service(service_description.ServiceDescription):
    """Is found where Ironic is, of whose API it is a part."""

    def _make_proxy(self, instance):
        return baremetal_service.BaremetalService(
            'baremetal', {'1': Proxy})._make_proxy(instance)


SERVICE = _Service('baremetal-reservations')


def add_to(conn):
    """Add ``baremetal_reservations`` to a Connection: a ``vendor_hook``."""
    conn.add_service(SERVICE)
