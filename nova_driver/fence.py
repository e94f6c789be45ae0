# SPDX-License-Identifier: Apache-2.0
"""Adds the fence header to requests to Ironic, and handles refusals.

A host checks that it holds an instance before it writes, but that may have
changed when the request arrives: the process was frozen, or the request was
slow or repeated. So the request itself names instance, host and node, and
Ironic's API refuses it if they no longer match.

These names are bound to a copy of the driver when Nova calls it. The methods
of the parent, and the threads that they start, write through that copy.
"""

from __future__ import annotations

from collections.abc import Callable
import copy
import dataclasses
import functools
import threading
from typing import Any
import urllib.parse

from nova import context as nova_context
from nova import exception
from nova import objects
from openstack.baremetal.v1 import node as sdk_node
from oslo_log import log as logging
import requests

from . import client
from . import host_lease
from . import node_faults
from . import timing

LOG = logging.getLogger(__name__)

#: The header of requests, and the header of responses from the middleware.
HEADER = 'X-OpenStack-Ironic-Reservation'
FENCE = 'X-OpenStack-Ironic-Reservations-Fence'

#: The path of these requests does not name a node, so the header does.
_VOLUME_TARGETS = '/volume/targets'

#: Paths of requests that are not for an instance.
_HOSTS = client.RESERVATIONS + client.HOSTS
_NOTICES = client.RESERVATIONS + client.NOTICES

#: The only reading by node that must be fenced: it would show the console of
#: another instance if the node had changed hands.
_CONSOLE = '/states/console'


class Refused(exception.InstanceNotFound):
    """Ironic's API refused a request: the node is not held for it."""


class Binding:
    """The instance for which a copy of the driver writes to Ironic."""

    def take_node(self) -> sdk_node.Node | None:
        """Return the node of the instance, once, if it is known."""
        return None


#: The binding of an instance without a reservation.
NO_RESERVATION = Binding()


@dataclasses.dataclass
class Held(Binding):
    """The binding of an instance whose node this host holds.

    :ivar building: whether Nova would free the instance's ports, and set it to
        ERROR, after any return or exception, even if another host has the
        instance.
    :ivar node: the node of the instance, as far as the parent needs it. The
        first lookup returns it instead of a request's response.
    :ivar attempt: notes the responses to the requests of a build.
    :ivar refusal: the Refused that was raised, also when Nova's driver has
        converted it to another error.
    """

    instance: objects.Instance
    node_uuid: str | None
    building: bool = False
    node: sdk_node.Node | None = None
    attempt: node_faults.Attempt | None = None
    refusal: Refused | None = None

    def take_node(self) -> sdk_node.Node | None:
        node, self.node = self.node, None
        return node


class Fence:
    """Sends the requests of one driver to Ironic.

    :ivar host: the name of the compute host, set by ``init_host``.
    :ivar host_lease: the host lease of a process with a standby.
    :ivar cleanup: set once Nova has called ``cleanup_host``.
    """

    host: str

    def __init__(self, reservations: client.Client):
        self._client = reservations
        self.host_lease: host_lease.HostLease | None = None
        self.cleanup = threading.Event()
        self._has_warned = False

    def wrap_connection(self, connection: Any,
                        binding: Binding | None) -> Any:
        """Return a connection that sends the fence header.

        :param connection: the SDK's proxy for Ironic.
        :param binding: None allows writes to reservations only.
        """
        wrapper = copy.copy(connection)
        wrapper.request = functools.partial(
            self._request, connection, binding)
        return wrapper

    def _request(self, connection: Any, binding: Binding | None, url: str,
                 method: str, *args: Any, **kwargs: Any) -> requests.Response:
        response = self._send(connection, binding, url, method, *args,
                              **kwargs)
        if isinstance(binding, Held) and binding.attempt is not None:
            binding.attempt.note(method, url, response)
        return response

    def _send(self, connection: Any, binding: Binding | None, url: str,
              method: str, *args: Any, **kwargs: Any) -> requests.Response:
        # openstacksdk before 4.15 replaces this option of [ironic] by 1.
        if connection.connect_retries is not None:
            kwargs.setdefault('connect_retries', connection.connect_retries)
        send: Callable[..., requests.Response] = functools.partial(
            connection.request, url, method, *args)
        path = '/' + url.lstrip('/')
        reads = method in ('GET', 'HEAD')
        if reads and not path.endswith(_CONSOLE) or path.startswith(_HOSTS):
            return send(**kwargs)
        is_reservation = path.startswith(client.RESERVATIONS)
        if path.startswith(_NOTICES):
            # A notice has no holder; only the host lease is checked.
            pass
        elif is_reservation:
            self._add_holder(method, kwargs)
        elif isinstance(binding, Held):
            kwargs['headers'] = {**(kwargs.get('headers') or {}),
                                 HEADER: self._format(binding, path)}
        elif binding is None:
            raise RuntimeError(f'{method} {path} is not bound to an instance')
        if self.host_lease is not None and not reads:
            # keystoneauth repeats requests itself, and calls this before each
            # attempt, but not for requests to Keystone.
            kwargs['requests_auth'] = self._wait_for_lease
        response = send(**kwargs)
        if binding is NO_RESERVATION and not is_reservation:
            return response
        if response.status_code == 412 and self.host_lease is not None:
            # The host lease has expired, or another host has the reservation.
            # If no other process has acquired the lease, repeat the request.
            self.host_lease.renew_or_wait()
            response = send(**kwargs)
        if not is_reservation and isinstance(binding, Held):
            self._check_response(response, binding)
        return response

    def _add_holder(self, method: str, kwargs: dict[str, Any]) -> None:
        if self.host_lease is not None:
            where = 'json' if method == 'POST' else 'params'
            kwargs[where] = {**kwargs[where],
                             'holder': self.host_lease.holder}

    def _format(self, binding: Held, path: str) -> str:
        parts = [('instance', binding.instance.uuid), ('host', self.host)]
        if self.host_lease is not None:
            parts.append(('holder', self.host_lease.holder))
        if path.startswith(_VOLUME_TARGETS) and binding.node_uuid:
            parts.append(('node', binding.node_uuid))
        return '; '.join(f'{name}={urllib.parse.quote(value)}'
                         for name, value in parts)

    def wait(self) -> None:
        """Wait until this process certainly serves the host."""
        if self.host_lease is not None:
            self.host_lease.wait()

    def _wait_for_lease(
            self, request: requests.PreparedRequest,
            ) -> requests.PreparedRequest:
        self.wait()
        return request

    def _check_response(self, response: requests.Response,
                        binding: Held) -> None:
        """Check the response to a request with the fence header.

        :raises: Refused.
        """
        if response.status_code == 412:
            LOG.warning('Ironic refused a request: host %s does not hold node '
                        '%s for this instance.', self.host,
                        binding.node_uuid, instance=binding.instance)
            binding.refusal = Refused(instance_id=binding.instance.uuid)
            if binding.building:
                self.block_if_lost(binding.instance, certain=True)
            raise binding.refusal
        if response.status_code < 400 and FENCE not in response.headers:
            self._warn()

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            LOG.warning(
                'Ironic\'s API does not check which host holds the node of a '
                'request: its middleware is missing, or older than this '
                'driver. Enable or upgrade it; until then only this host '
                'checks, before it sends a request.')

    def block_if_lost(self, instance: objects.Instance,
                      certain: bool = False) -> client.Reservation | None:
        """Block this thread forever if another host owns the instance.

        After any return or exception Nova would free the ports of the
        instance and set it to ERROR, or save its earlier state.

        :param certain: whether to retry until Ironic responds.
        :returns: the reservation of this host, if there is one.
        :raises: client.Failure when Ironic does not respond.
        """
        self.wait()
        while True:
            try:
                reservation = self._client.get(instance.uuid)
                break
            except client.Failure as e:
                if not (certain and e.busy):
                    raise
                if self.cleanup.wait(timing.TIMING.pause):
                    host_lease.end_process()
        if not reservation or reservation['host'] == self.host:
            return reservation
        if not self._is_next_build(instance, reservation):
            self.block(instance, f'host {reservation["host"]}')
        return None

    def _is_next_build(self, instance: objects.Instance,
                       reservation: client.Reservation) -> bool:
        """Return whether the other host is only the next to try the build.

        It may hold the node while the build on this host is still failing.
        Nova continues there after the failure, and nothing is lost.
        """
        if reservation['state'] != 'reserved':
            return False
        try:
            current = objects.Instance.get_by_uuid(
                nova_context.get_admin_context(read_deleted='yes'),
                instance.uuid, expected_attrs=[])
        except exception.InstanceNotFound:
            return True  # It was deleted, and is archived.
        return current.host in (None, self.host)

    def block(self, instance: objects.Instance, owner: str) -> None:
        """Block this thread forever, because another owns the instance.

        :param owner: host or process, for the log.
        """
        reason = f'{owner} has instance {instance.uuid}, which was built here'
        if self.host_lease is not None:
            self.host_lease.end(reason)
        LOG.warning('This thread waits until the process ends: %s', reason,
                    instance=instance)
        host_lease.wait_for_process_end(self.cleanup)
