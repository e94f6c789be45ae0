# SPDX-License-Identifier: Apache-2.0
"""The driver's client of ``/v1/reservations``."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import datetime
import json
from typing import Any
from typing import ParamSpec
from typing import TypedDict
from typing import TypeVar
import urllib.parse

from keystoneauth1 import exceptions as ksa_exc
from nova import exception
from openstack import exceptions as sdk_exc
import requests
import tenacity

from ironic_reservations.shared import constants
from ironic_reservations.shared import text

from . import timing

#: For this many seconds a call is retried that may succeed a little later.
PATIENCE = 10

#: How many times Ironic must deny the endpoint before the driver believes it,
#: because during an upgrade only some API processes behind a proxy have the
#: plugin.
DENIALS = 3

#: Prefixes of the constraints that the host has added to the user's.
_PARTITION = ('conductor_group=', 'shard=')

#: Maximum number of unknown nodes that a fault names, as Nova cuts it.
_MAX_UNKNOWN = 5

#: The path of reservations, and below it those of host leases and notices.
RESERVATIONS, HOSTS, NOTICES = '/reservations', '/hosts', '/notices'

#: Maximum length of a text of a notice.
_LONGEST_TEXT = 255

#: A header of all responses of Ironic's API, except of its 404 to an unknown
#: path.
_VERSION = 'X-OpenStack-Ironic-API-Version'

_P = ParamSpec('_P')
_R = TypeVar('_R')

#: The body of a request for a node: see the API reference.
Request = dict[str, Any]


class Reservation(TypedDict, total=False):
    """A reservation: see the API reference.

    A list has only the fields that it was requested with.
    """

    instance_uuid: str
    node_uuid: str
    host: str | None
    state: str
    provision_state: str
    resource_class: str | None
    request_spec: dict[str, Any]
    expires_at: str | None
    updated_at: str | None
    ignored: list[str]


class CapacityRow(TypedDict):
    """A capacity row, as far as the driver reads it: see the API reference.

    Sizes are in MiB, CPUs and GiB.
    """

    resource_class: str | None
    memory_mb: int
    vcpus: int
    local_gb: int
    cpu_arch: str | None
    traits: list[str]
    total: int
    free: int
    held: int
    claimable: int


class Failure(Exception):
    """A call has failed.

    :ivar busy: whether the same call may succeed a little later.
    """

    def __init__(self, message: object, busy: bool = False):
        super().__init__(message)
        self.busy = busy


class Unavailable(Failure):
    """Ironic cannot be reached, has an internal error, or denies access."""


class NoEndpoint(Unavailable):
    """The API process of Ironic has no /v1/reservations."""


class NotFound(Failure):
    """There is no such reservation."""


class NoNode(Failure):
    """No free node matches.

    :ivar busy: whether matching nodes are locked, or were taken concurrently.
    :ivar explanation: why no node matches; see the API reference.
    :ivar ignored: the extra specs that are not compared with nodes.
    """

    def __init__(self, message: object, explanation: dict[str, Any],
                 busy: bool, ignored: list[str] | tuple[()] = ()):
        super().__init__(message, busy)
        self.explanation, self.ignored = explanation, ignored

    @property
    def reason(self) -> str:
        """The reason to show to the user.

        It names constraints that the user can change. Users must not learn
        numbers of nodes, or how the operator has split the fleet.
        """
        if unknown := self.explanation.get('unknown_nodes'):
            return ('no node has the name or UUID '
                    + ', '.join(unknown[:_MAX_UNKNOWN]))
        nearest = self.explanation.get('nearest')
        names = [cause['by'] for cause in (
                     [nearest] if nearest
                     else self.explanation.get('eliminated', ()))
                 if not cause['by'].startswith(_PARTITION)]
        constraints = [name for name in names if ':' in name or '=' in name]
        states = [name for name in names if name not in constraints]
        if constraints and not states:
            return f'no free node matches {", ".join(constraints)}'
        # The nodes that match are reserved, in maintenance or the like.
        return 'no matching node is free' + (
            f' ({", ".join(states)})' if states else '')


class Conflict(Failure):
    """The state of the reservation or of its node forbids the call."""


class Refused(Failure):
    """The request is malformed; no other host could serve it either."""


#: Retries a call while it is ``busy``.
_patient = tenacity.retry(
    retry=tenacity.retry_if_exception(
        lambda error: getattr(error, 'busy', False)),
    wait=lambda _: timing.TIMING.pause,
    stop=tenacity.stop_after_delay(PATIENCE), reraise=True)


class Client:
    """The calls of /v1/reservations, through an adapter of openstacksdk.

    :param connect: returns the adapter. It may raise the errors of Nova and
        the SDK when Ironic cannot be reached.
    """

    def __init__(self, connect: Callable[[], Any]):
        self._connect = connect

    @staticmethod
    def retry_conflicts(seconds: float = PATIENCE
                        ) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
        """Return a decorator that retries a function while it has a Conflict.

        :param seconds: how long to wait for a node that is locked or is being
            torn down.
        """
        return tenacity.retry(
            retry=tenacity.retry_if_exception_type(Conflict),
            wait=lambda _: timing.TIMING.pause,
            stop=tenacity.stop_after_delay(seconds), reraise=True)

    @_patient
    def hold(self, request: Request) -> Reservation:
        """Hold a node, or return the one that the instance holds already.

        :raises: NoNode; NotFound when the project has no such reservation to
            claim; Conflict, Refused, Unavailable.
        """
        reservation: Reservation = self._call('POST', json=request)
        return reservation

    def adopt(self, request: Request) -> Reservation:
        """Reserve the node that already carries an instance, without retry.

        :raises: NotFound when no node carries it; Conflict when the node is
            busy, or reserved by another host; Refused, Unavailable.
        """
        reservation: Reservation = self._call(
            'POST', params={'adopt': 'true'}, json=request)
        return reservation

    def refusal(self, request: Request) -> NoNode | None:
        """Return why a request would get no node, without holding one.

        :returns: None if a node matches, including nodes that are locked.
        :raises: Refused, Unavailable; NotFound and Conflict for a claim.
        """
        result = self._call('POST', params={'dry_run': 'true'}, json=request)
        explanation = result['explanation']
        if result['matching_nodes'] or any(
                cause['by'] == 'locked'
                for cause in explanation['eliminated']):
            return None
        return NoNode('no node of the whole fleet matches', explanation,
                      busy=False)

    def renew_now(self, instance_uuid: str, host: str,
                  seconds: int) -> Reservation:
        """Renew the lease of an instance's node, without retry.

        :raises: NotFound when this host no longer holds a node for it;
            Conflict when deployment has started; Unavailable.
        """
        reservation: Reservation = self._call(
            'PATCH', f'/{instance_uuid}', params={'host': host},
            json=[{'op': 'replace', 'path': '/expires_in',
                   'value': seconds}])
        return reservation

    #: The same call, retried while the failure is ``busy``.
    renew = _patient(renew_now)

    def record_failed_build(self, node_uuid: str, reason: str) -> None:
        """Record that a build has failed because of its node, without retry.

        For some time, other nodes that match are held first.

        :raises: Failure.
        """
        self._call('POST', NOTICES, json={
            'kind': 'fault', 'nodes': [node_uuid],
            'category': constants.BUILD,
            'description': text.escape_controls(reason)[:_LONGEST_TEXT]})

    @_patient
    def release(self, instance_uuid: str, host: str) -> None:
        """Release the node of an instance if this host holds it.

        :raises: Conflict when the node is locked, or its state forbids it;
            Refused, Unavailable.
        """
        with contextlib.suppress(NotFound):
            self._call('DELETE', f'/{instance_uuid}', params={'host': host})

    def get_now(self, instance_uuid: str) -> Reservation | None:
        """Return the reservation of an instance, without retry."""
        try:
            reservation: Reservation = self._call('GET', f'/{instance_uuid}')
        except NotFound:
            return None
        return reservation

    #: The same call, retried while the failure is ``busy``.
    get = _patient(get_now)

    def list_by_host(self, host: str, fields: list[str],
                     **filters: str) -> list[Reservation]:
        """Return the reservations that a host holds.

        :param fields: the fields to return, in addition to ``instance_uuid``.
        :param filters: more filters of the list, such as ``state``.
        """
        return list(self._iterate({
            'host': host, **filters,
            'fields': ','.join(('instance_uuid', *fields))}))

    def list_changes(
            self, host: str, since: datetime.datetime | None = None,
            ) -> list[tuple[str, datetime.datetime]]:
        """Return the reservations of a host that have changed.

        :param since: time of the oldest change of interest; None for all.
        :returns: UUID of the instance and time of the last change, newest
            first.
        """
        changes = []
        for reservation in self._iterate({
                'host': host, 'limit': 50, 'sort_key': 'updated_at',
                'sort_dir': 'desc', 'fields': 'instance_uuid,updated_at'}):
            if reservation['updated_at'] is None:
                # Reservations that have never changed come last. That part of
                # the list is as long as the host has servers.
                break
            when = datetime.datetime.fromisoformat(reservation['updated_at'])
            if since is not None and when < since:
                break
            changes.append((reservation['instance_uuid'], when))
        return changes

    def _iterate(self, query: dict[str, Any]) -> Iterator[Reservation]:
        """Yield the reservations of a list, page after page.

        UUIDs of instances are in lower case, as Nova has them. Ironic stores
        them as its clients sent them.
        """
        while query:
            page = self._call('GET', params=query)
            for reservation in page['reservations']:
                yield {**reservation, 'instance_uuid':
                       reservation['instance_uuid'].lower()}
            query = text.parse_next_link(page.get('next'))

    def capacity(self, host: str, fresh: bool = False,
                 **partition: str | None) -> tuple[list[CapacityRow], int]:
        """Return the capacity of the fleet, by hardware profile.

        :param host: count nodes of this host as ``held``.
        :param fresh: bypass the cache of the API.
        :param partition: ``conductor_group`` and ``shard`` of the nodes to
            count; None for any.
        :returns: capacity rows (``capacity`` in the API reference), and the
            age of their counts in seconds.
        """
        response = self._send('GET', '/capacity', params={
            'host': host, **{name: value for name, value in partition.items()
                             if value is not None}},
            headers={'Cache-Control': 'no-cache'} if fresh else {})
        return self._parse(response)['capacity'], int(
            response.headers.get('Age', 0))

    def acquire_host_lease(self, host: str, holder: str, ttl: int) -> None:
        """Acquire or renew the host lease of a process, without retry.

        :param holder: UUID of the process.
        :param ttl: duration in seconds.
        :raises: Conflict while another process holds it; Refused,
            Unavailable.
        """
        # A response that comes later than this is of little use.
        self._call('PUT', _host_lease_path(host), timeout=ttl / 3,
                   json={'holder': holder, 'ttl': ttl})

    def get_host_lease_start(self, host: str) -> str | None:
        """Return the time at which the holder acquired the host lease.

        :raises: Refused, Unavailable.
        """
        hosts = self._call('GET', HOSTS, params={'host': host})['hosts']
        return hosts[0]['created_at'] if hosts else None

    def give_up_host_lease(self, host: str, holder: str) -> None:
        """Give up a host lease, without retry.

        :raises: NotFound, Refused, Unavailable.
        """
        self._call('DELETE', _host_lease_path(host),
                   params={'holder': holder})

    def is_present(self) -> bool:
        """Return whether this Ironic has /v1/reservations.

        It is absent only after DENIALS denials by an Ironic whose own API
        works.

        :raises: Failure when this cannot be determined now.
        """
        for denials in range(DENIALS):
            if denials:
                timing.TIMING.sleep(timing.TIMING.pause)
            with contextlib.suppress(NoEndpoint, NotFound):
                self._call('GET', params={'limit': 1})
                return True
            root = self._send_to('GET', '/')
            if root.status_code != 200 or _VERSION not in root.headers:
                raise Unavailable('the response is not from an Ironic API')
        return False

    def _call(self, method: str, path: str = '', **kwargs: Any) -> Any:
        """Send a request; return the body of the response, or None."""
        response = self._send(method, path, **kwargs)
        if response.status_code == 204:
            return None
        return self._parse(response)

    def _send(self, method: str, path: str = '',
              **kwargs: Any) -> requests.Response:
        return self._send_to(method, f'{RESERVATIONS}{path}', **kwargs)

    def _send_to(self, method: str, path: str,
                 **kwargs: Any) -> requests.Response:
        try:
            # By default the SDK repeats requests for about 15 seconds after
            # 409 or 503; here _patient decides that.
            response: requests.Response = self._connect().request(
                path, method, raise_exc=False, connect_retries=0,
                status_code_retries=0, **kwargs)
        except (exception.ServiceUnavailable, ksa_exc.ClientException,
                sdk_exc.SDKException) as e:
            raise Unavailable(f'Ironic cannot be reached: {e}', busy=True)
        return response

    @staticmethod
    def _parse(response: requests.Response) -> dict[str, Any]:
        """Return the body of a successful response.

        :raises: the Failure for the status of the response.
        """
        status = response.status_code
        try:
            body = response.json()
            if status < 300 and isinstance(body, dict):
                return body
            message = _get_fault(body)
        except (ValueError, KeyError, TypeError):
            # The response is from a proxy, or from another server.
            raise Unavailable(
                f'unexpected response with status {status} from '
                f'{response.url}',
                busy=status >= 500)
        if status == 404:
            if _VERSION in response.headers:
                raise NotFound(message)
            raise NoEndpoint('Ironic has no /v1/reservations', busy=True)
        if status == 409:
            raise Conflict(message)
        if status == 422:
            raise NoNode(message, body.get('explanation') or {},
                         'Retry-After' in response.headers,
                         body.get('ignored', ()))
        if status in (400, 413):
            raise Refused(message)
        raise Unavailable(f'{message} (HTTP {status})', busy=status >= 500)


def _host_lease_path(host: str) -> str:
    return f'{HOSTS}/{urllib.parse.quote(host, safe="")}'


def _get_fault(body: dict[str, Any]) -> Any:
    """Return the message in the body of an error of Ironic's API.

    It is JSON text inside the JSON body, except in Ironic's own 404, whose
    body has an object there.
    """
    fault = body['error_message']
    if isinstance(fault, str):
        try:
            fault = json.loads(fault)
        except ValueError:
            return fault
    return fault.get('faultstring', '') if isinstance(fault, dict) else fault
