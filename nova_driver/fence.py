# SPDX-License-Identifier: Apache-2.0
"""For whom the driver writes to Ironic, said with each request.

A host looks whose an instance is before it writes, and what it has seen may be
over when the request arrives: the process was frozen, the request was slow, or
sent again. So the request itself says for which instance, host and node it is,
and Ironic's API lets it in only as long as that holds.

What is said is bound to a copy of the driver when Nova calls it. The methods
of the parent, and the threads that they start, write through that copy.
"""

import copy
import dataclasses
import functools
import threading
import urllib.parse

from nova import context as nova_context
from nova import exception
from nova import objects
from oslo_log import log as logging

from . import client
from . import stopping

LOG = logging.getLogger(__name__)

#: What a request says, and what answers to such requests say.
HEADER = 'X-OpenStack-Ironic-Reservation'
FENCE = 'X-OpenStack-Ironic-Reservations-Fence'

#: Its path does not name a node, so the header does.
_VOLUME_TARGETS = '/volume/targets'

#: The one thing that is read by node, and would be wrong if the node had
#: become another's since it was looked up.
_CONSOLE = '/states/console'


class Refused(exception.InstanceNotFound):
    """Ironic's API did not let a request in: the node is not held for it."""


#: The binding of what is written for an instance without a reservation.
WITHOUT = object()


@dataclasses.dataclass
class Held:
    """What is written for an instance whose node this host holds.

    :ivar building: whether Nova would free the instance's ports, and set it to
        ERROR, whatever is returned or raised after another host was given it.
    :ivar refused: the Refused that was raised, also when Nova's driver has
        made another error of it.
    """

    instance: object
    node_uuid: str
    building: bool = False
    refused: Refused | None = None


class Fence:
    """Ironic's door, as one driver stands before it.

    :param reservations: a client.Client.
    :ivar host: the name of the compute host, once it is known.
    :ivar lease: the lease.Lease of a host with a standby, or None.
    :ivar cleaned_up: set once Nova has called ``cleanup_host``.
    """

    def __init__(self, reservations):
        self._client = reservations
        self.host = self.lease = None
        self.cleaned_up = threading.Event()
        self._warned = False

    def before(self, connection, binding):
        """Return a connection that says for whom it writes.

        :param connection: the SDK's proxy for Ironic.
        :param binding: Held or WITHOUT; None lets it write nothing but
            reservations.
        """
        own = copy.copy(connection)
        own.request = functools.partial(self._request, connection, binding)
        return own

    def _request(self, connection, binding, url, method, *args, **kwargs):
        send = functools.partial(connection.request, url, method, *args)
        path = '/' + url.lstrip('/')
        reads = method in ('GET', 'HEAD')
        if (reads and not path.endswith(_CONSOLE)
                or path.startswith(client.RESERVATIONS + client.HOSTS)):
            return send(**kwargs)
        ours = path.startswith(client.RESERVATIONS)
        if ours:
            self._name_holder(method, kwargs)
        elif binding is None:
            raise RuntimeError(f'{method} {path} is for no instance')
        elif binding is not WITHOUT:
            kwargs['headers'] = {**(kwargs.get('headers') or {}),
                                 HEADER: self._text(binding, path)}
        if self.lease is not None and not reads:
            # keystoneauth repeats requests by itself, and calls this before
            # each of them. It does not for those that it sends to Keystone.
            kwargs['requests_auth'] = self._wait
        response = send(**kwargs)
        if binding is WITHOUT and not ours:
            return response
        if response.status_code == 412 and self.lease is not None:
            # The lease was over, or the reservation is another's. If it was
            # the former and nobody has taken the lease, it is sent again.
            self.lease.renew_or_wait()
            response = send(**kwargs)
        if not ours:
            self._judge(response, binding)
        return response

    def _name_holder(self, method, kwargs):
        if self.lease is not None:
            where = 'json' if method == 'POST' else 'params'
            kwargs[where] = {**kwargs[where], 'holder': self.lease.holder}

    def _text(self, held, path):
        parts = [('instance', held.instance.uuid), ('host', self.host)]
        if self.lease is not None:
            parts.append(('holder', self.lease.holder))
        if path.startswith(_VOLUME_TARGETS):
            parts.append(('node', held.node_uuid))
        return '; '.join(f'{name}={urllib.parse.quote(value)}'
                         for name, value in parts)

    def _wait(self, prepared):
        self.lease.wait()
        return prepared

    def _judge(self, response, held):
        """Look at the answer to a request that has said for whom it is.

        :raises: Refused.
        """
        if response.status_code == 412:
            LOG.warning('Ironic does not let a request in: host %s does not '
                        'hold node %s for this instance.', self.host,
                        held.node_uuid, instance=held.instance)
            held.refused = Refused(instance_id=held.instance.uuid)
            if held.building:
                self.stay_if_anothers(held.instance, certain=True)
            raise held.refused
        if response.status_code < 400 and FENCE not in response.headers:
            self._warn()

    def _warn(self):
        if not self._warned:
            self._warned = True
            LOG.warning(
                'Ironic\'s API does not look whose a node is when a request '
                'for it arrives: its middleware is older than this driver, '
                'or absent. This host alone looks, before it sends a request.')

    def stay_if_anothers(self, instance, certain=False):
        """Never come back if another host or process has an instance.

        Whatever is returned to Nova or raised, it would free the ports of the
        instance and set it to ERROR, or save what it was.

        :param certain: whether to ask until Ironic answers.
        :returns: the reservation that this host has of it, a dict, or None.
        :raises: client.Failure when it is not known.
        """
        if self.lease is not None:
            self.lease.wait()
        while True:
            try:
                held = self._client.get(instance.uuid)
                break
            except client.Failure as e:
                if not (certain and e.busy):
                    raise
                if self.cleaned_up.wait(client.PAUSE):
                    stopping.end()
        if not held or held['host'] == self.host:
            return held
        if not self._is_built_next(instance, held):
            self.stay(instance, f'host {held["host"]}')
        return None

    def _is_built_next(self, instance, held):
        """Whether another host is only the next that is to build an instance.

        It may have held the node while this one still fails to build it. Nova
        goes on there when it knows of the failure, and nothing is lost.
        """
        if held['state'] != 'reserved':
            return False
        try:
            known = objects.Instance.get_by_uuid(
                nova_context.get_admin_context(read_deleted='yes'),
                instance.uuid, expected_attrs=[])
        except exception.InstanceNotFound:
            return True  # It was deleted, and is archived.
        return known.host in (None, self.host)

    def stay(self, instance, who):
        """Never come back, because somebody else has an instance.

        :param who: who has it, for the log.
        """
        why = f'{who} has instance {instance.uuid}, which was built here'
        if self.lease is not None:
            self.lease.end(why)
        LOG.warning('This thread waits for the end of the process: %s', why,
                    instance=instance)
        wait_for_the_end(self.cleaned_up)


def wait_for_the_end(cleaned_up):
    """Block this thread, and end the process once its host is cleaned up.

    Nova joins its threads then, and would wait for this one. The stack is not
    unwound: even SystemExit would have Nova abort its claim, which unsets the
    host of an instance that is another's (Claim.__exit__).
    """
    cleaned_up.wait()
    stopping.end()
