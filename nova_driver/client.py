# SPDX-License-Identifier: Apache-2.0
"""``/v1/reservations``, as the driver speaks it."""

import contextlib
import json
import time

from keystoneauth1 import exceptions as ksa_exc
from nova import exception
from openstack import exceptions as sdk_exc
import tenacity

#: Seconds for which a call is tried again that may fare better then, and
#: between two tries: the server says "Retry-After: 1".
PATIENCE, PAUSE = 10, 1

#: How often Ironic must deny the endpoint: behind a proxy some of its API
#: processes may have the plugin and others not yet.
DENIALS = 3

_PAGE = 1000

#: How the constraints begin that are of the host and not of the user.
_PARTITION = ('conductor_group=', 'shard=')

#: A header of every answer of Ironic's API, but for its 404 to a path that it
#: does not know.
_VERSION = 'X-OpenStack-Ironic-API-Version'


class Failure(Exception):
    """A call that has come to nothing.

    :ivar busy: whether the same call may succeed a little later.
    """

    def __init__(self, message, busy=False):
        super().__init__(message)
        self.busy = busy


class Unavailable(Failure):
    """Ironic cannot be reached, is not well, or does not let us in."""


class NoEndpoint(Unavailable):
    """Ironic, or the one of its API processes that answers, has no plugin."""


class NotFound(Failure):
    """There is no such reservation."""


class NoNode(Failure):
    """No free node matches; ``busy``: those that do are locked just now.

    :ivar explanation: of the server, a dict (REST API: Explanation).
    """

    def __init__(self, message, explanation, busy):
        super().__init__(message, busy)
        self.explanation = explanation

    @property
    def reason(self):
        """What stands in the way, in words that a user may read.

        The constraint, but no numbers, and nothing of how the fleet is split:
        that is its operator's business.
        """
        nearest = self.explanation.get('nearest')
        by = [each['by'] for each in ([nearest] if nearest else
                                      self.explanation.get('eliminated', ()))
              if not each['by'].startswith(_PARTITION)]
        asked = [each for each in by if ':' in each or '=' in each]
        taken = [each for each in by if each not in asked]
        if asked and not taken:
            return f'no free node matches {", ".join(asked)}'
        # Those that match are reserved, in maintenance or the like.
        return 'no matching node is free' + (
            f' ({", ".join(taken)})' if taken else '')


class Conflict(Failure):
    """The reservation or its node is in no state for this."""


class Refused(Failure):
    """Nobody can do what the request says."""


def _patient(*errors, seconds=PATIENCE):
    """Try again for a while what may succeed then."""
    return tenacity.retry(
        retry=tenacity.retry_if_exception(
            lambda error: getattr(error, 'busy', False)
            or isinstance(error, errors)),
        wait=tenacity.wait_fixed(PAUSE),
        stop=tenacity.stop_after_delay(seconds), reraise=True)


class Client:
    """Reservations, through an adapter of openstacksdk.

    :param connect: returns the adapter, or raises what Nova or the SDK raise.
    """

    def __init__(self, connect):
        self._connect = connect

    def renew(self, request):
        """Renew the lease of the node that is held, or hold one.

        :param request: the body of POST, a dict.
        :returns: the reservation, a dict.
        :raises: NoNode, Conflict, Refused, Unavailable.
        """
        return self._call('POST', json=request)

    #: The same, patiently.
    hold = _patient()(renew)

    def release(self, instance_uuid, host, patience=PATIENCE):
        """Let the node go if this host holds it; else nothing is done.

        :param patience: seconds to wait for a node that is locked or is
            being torn down.
        :raises: Conflict, Refused, Unavailable.
        """
        @_patient(Conflict, seconds=patience)
        def attempt():
            with contextlib.suppress(NotFound):
                self._call('DELETE', f'/{instance_uuid}',
                           params={'host': host})

        attempt()

    @_patient()
    def get(self, instance_uuid):
        """The reservation of an instance, a dict; None if there is none."""
        with contextlib.suppress(NotFound):
            return self._call('GET', f'/{instance_uuid}')

    def held_by(self, host, fields):
        """This host's reservations.

        :param fields: those wanted, beside ``instance_uuid``.
        :returns: list of dicts.
        """
        query = {'host': host, 'limit': _PAGE,
                 'fields': ','.join(('instance_uuid', *fields))}
        found, more = [], True
        while more:
            page = self._call('GET', params=query)
            found += page['reservations']
            more = page.get('next')
            if more:
                query['marker'] = found[-1]['instance_uuid']
        return found

    def capacity(self, host, **partition):
        """What the fleet can give (REST API: capacity).

        :param partition: ``conductor_group``, ``shard``; None for any.
        :returns: rows, and the age of their counts in seconds.
        """
        response = self._send('GET', '/capacity', params={
            'host': host, **{name: value for name, value in partition.items()
                             if value is not None}})
        return self._parsed(response)['capacity'], int(
            response.headers.get('Age', 0))

    def is_present(self):
        """Whether this Ironic has the endpoint.

        :returns: False only after several plain denials of an Ironic that
            is well otherwise.
        :raises: Failure when that cannot be said now.
        """
        for denied in range(DENIALS):
            if denied:
                time.sleep(PAUSE)
            with contextlib.suppress(NoEndpoint, NotFound):
                self._call('GET', params={'limit': 1})
                return True
            root = self._send_to('GET', '/')
            if root.status_code != 200 or _VERSION not in root.headers:
                raise Unavailable('what answers is not an Ironic API')
        return False

    def _call(self, method, path='', **kwargs):
        """The answer's body, None if it has none."""
        response = self._send(method, path, **kwargs)
        if response.status_code == 204:
            return None
        return self._parsed(response)

    def _send(self, method, path='', **kwargs):
        return self._send_to(method, f'/reservations{path}', **kwargs)

    def _send_to(self, method, path, **kwargs):
        try:
            # What to do about an error is for us to say; the SDK would try
            # 409 and 503 again for long by itself.
            return self._connect().request(
                path, method, raise_exc=False, connect_retries=0,
                status_code_retries=0, **kwargs)
        except (exception.ServiceUnavailable, ksa_exc.ClientException,
                sdk_exc.SDKException) as e:
            raise Unavailable(f'Ironic cannot be reached: {e}', busy=True)

    @staticmethod
    def _parsed(response):
        """The body of a success; else the Failure is raised."""
        status = response.status_code
        try:
            body = response.json()
            if status < 300 and isinstance(body, dict):
                return body
            message = _fault(body)
        except (ValueError, KeyError, TypeError):
            # Not of Ironic: a proxy on the way, or something else entirely.
            raise Unavailable(
                f'unexpected answer with status {status} from {response.url}',
                busy=status >= 500)
        if status == 404:
            if _VERSION in response.headers:
                raise NotFound(message)
            raise NoEndpoint('Ironic has no /v1/reservations', busy=True)
        if status == 409:
            raise Conflict(message)
        if status == 422:
            raise NoNode(message, body.get('explanation') or {},
                         busy='Retry-After' in response.headers)
        if status in (400, 413):
            raise Refused(message)
        raise Unavailable(f'{message} (HTTP {status})', busy=status >= 500)


def _fault(body):
    """The text in Ironic's error envelope.

    It is JSON in JSON; Ironic's own 404 has it unpacked.
    """
    fault = body['error_message']
    if isinstance(fault, str):
        try:
            fault = json.loads(fault)
        except ValueError:
            return fault
    return fault.get('faultstring', '') if isinstance(fault, dict) else fault
