# SPDX-License-Identifier: Apache-2.0
"""The driver's client of ``/v1/reservations``."""

import contextlib
import datetime
import itertools
import json
import time
import urllib.parse

from keystoneauth1 import exceptions as ksa_exc
from nova import exception
from openstack import exceptions as sdk_exc
import tenacity

from ironic_reservations import text

#: PATIENCE is for how many seconds a call is tried again that may succeed a
#: little later; PAUSE is between two tries, as the server's "Retry-After: 1"
#: says.
PATIENCE, PAUSE = 10, 1

#: How often Ironic must deny the endpoint before that is believed, because
#: behind a proxy some of its API processes may have the plugin and others not
#: yet.
DENIALS = 3

#: How those constraints begin that the host has added to the user's.
_PARTITION = ('conductor_group=', 'shard=')

#: Where reservations are, and below that the leases of hosts.
RESERVATIONS, HOSTS = '/reservations', '/hosts'

#: Every answer of Ironic's API has this header, except its 404 to a path that
#: it does not know.
_VERSION = 'X-OpenStack-Ironic-API-Version'


class Failure(Exception):
    """A call that has failed.

    :ivar busy: whether the same call may succeed a little later.
    """

    def __init__(self, message, busy=False):
        super().__init__(message)
        self.busy = busy


class Unavailable(Failure):
    """Ironic cannot be reached, has an error of its own, or refuses access."""


class NoEndpoint(Unavailable):
    """The API process of Ironic that answers has no /v1/reservations."""


class NotFound(Failure):
    """There is no such reservation."""


class NoNode(Failure):
    """No free node matches.

    :ivar busy: whether nodes match that are locked at this moment.
    :ivar explanation: why none matches, a dict; see the API reference.
    :ivar ignored: the extra specs that are not compared with nodes.
    """

    def __init__(self, message, explanation, busy, ignored=()):
        super().__init__(message, busy)
        self.explanation, self.ignored = explanation, ignored

    @property
    def reason(self):
        """What stands in the way, in words that a user may read.

        It names constraints that the user can change. It has no numbers and
        says nothing of how the operator has split the fleet, because a user
        must not learn these.
        """
        nearest = self.explanation.get('nearest')
        by = [each['by'] for each in ([nearest] if nearest else
                                      self.explanation.get('eliminated', ()))
              if not each['by'].startswith(_PARTITION)]
        asked = [each for each in by if ':' in each or '=' in each]
        taken = [each for each in by if each not in asked]
        if asked and not taken:
            return f'no free node matches {", ".join(asked)}'
        # The nodes that match are reserved, in maintenance or the like.
        return 'no matching node is free' + (
            f' ({", ".join(taken)})' if taken else '')


class Conflict(Failure):
    """The state of the reservation or of its node forbids the call."""


class Refused(Failure):
    """The request is malformed; no other host could serve it either."""


def _patient(*errors, seconds=PATIENCE):
    """Decorate a call to be tried again while it may succeed.

    :param errors: classes of exceptions after which it is tried again,
        beside those that are ``busy``.
    :param seconds: after how many seconds the last error is raised.
    """
    return tenacity.retry(
        retry=tenacity.retry_if_exception(
            lambda error: getattr(error, 'busy', False)
            or isinstance(error, errors)),
        wait=tenacity.wait_fixed(PAUSE),
        stop=tenacity.stop_after_delay(seconds), reraise=True)


class Client:
    """The calls of /v1/reservations, through an adapter of openstacksdk.

    :param connect: a function that returns the adapter. It may raise what
        Nova and the SDK raise when Ironic cannot be reached.
    """

    def __init__(self, connect):
        self._connect = connect

    @_patient()
    def hold(self, request):
        """Hold a node, or return the one that the instance holds already.

        :param request: the body of POST, a dict.
        :returns: the reservation, a dict.
        :raises: NoNode; NotFound when the project has nothing of what is
            claimed; Conflict, Refused, Unavailable.
        """
        return self._call('POST', json=request)

    def adopt(self, request):
        """Reserve the node that carries an instance already, in one try.

        :param request: the body of POST, a dict.
        :returns: the reservation, a dict.
        :raises: NotFound when no node carries it; Conflict when the node is
            at work, or another host's; Refused, Unavailable.
        """
        return self._call('POST', params={'adopt': 'true'}, json=request)

    def refusal(self, request):
        """Ask why a request would find no node, without holding one.

        :param request: the body of POST, a dict.
        :returns: NoNode; None if there is a node, or one that is locked now.
        :raises: Refused, Unavailable.
        """
        found = self._call('POST', params={'dry_run': 'true'}, json=request)
        why = found['explanation']
        if found['matching_nodes'] or any(
                each['by'] == 'locked' for each in why['eliminated']):
            return None
        return NoNode('no node of the whole fleet matches', why, busy=False)

    def renew_now(self, instance_uuid, host, seconds):
        """Begin the lease of an instance's node anew, in one try.

        :returns: the reservation, a dict.
        :raises: NotFound when this host holds no node for it any more;
            Conflict when something has begun on the node; Unavailable.
        """
        return self._call('PATCH', f'/{instance_uuid}', params={'host': host},
                          json=[{'op': 'replace', 'path': '/expires_in',
                                 'value': seconds}])

    #: The same call, tried again while the failure is ``busy``.
    renew = _patient()(renew_now)

    def release(self, instance_uuid, host, patience=PATIENCE):
        """Release the node of an instance if this host holds it.

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

    def get_now(self, instance_uuid):
        """Return the reservation of an instance, in one try.

        :returns: a dict; None without one.
        """
        with contextlib.suppress(NotFound):
            return self._call('GET', f'/{instance_uuid}')

    #: The same call, tried again while the failure is ``busy``.
    get = _patient()(get_now)

    def held_by(self, host, fields, **filters):
        """Return the reservations that a host holds.

        :param fields: the fields to return, beside ``instance_uuid``.
        :param filters: more filters of the list, such as ``state``.
        :returns: list of dicts.
        """
        return list(self._listed({'host': host, **filters, 'fields': ','.join(
            ('instance_uuid', *fields))}))

    def changed(self, host, since=None):
        """Return those reservations of a host that have changed.

        :param since: the oldest time of interest, a datetime; None for all
            that have changed ever.
        :returns: list of pairs of an instance's UUID and the time of its last
            change, newest first.
        """
        newest_first = self._listed({
            'host': host, 'limit': 50, 'sort_key': 'updated_at',
            'sort_dir': 'desc', 'fields': 'instance_uuid,updated_at'})
        # Those that have never changed have no time, and come last: the rest
        # of the list, which is as long as the host has servers, is not read.
        times = ((each['instance_uuid'],
                  datetime.datetime.fromisoformat(each['updated_at']))
                 for each in itertools.takewhile(
                     lambda each: each['updated_at'], newest_first))
        return list(itertools.takewhile(
            lambda each: since is None or each[1] >= since, times))

    def _listed(self, query):
        """Yield the reservations of a list, page after page.

        :param query: dict of the parameters of the list.
        """
        while query:
            page = self._call('GET', params=query)
            yield from page['reservations']
            query = text.parse_next_link(page.get('next'))

    def capacity(self, host, fresh=False, **partition):
        """Return what the fleet can give, by hardware profile.

        :param host: count what this host holds as ``held``.
        :param fresh: have it counted anew.
        :param partition: ``conductor_group`` and ``shard`` of the nodes to
            count; None for any.
        :returns: list of profiles (``capacity`` in the API reference), and
            the age of their counts in seconds.
        """
        response = self._send('GET', '/capacity', params={
            'host': host, **{name: value for name, value in partition.items()
                             if value is not None}},
            headers={'Cache-Control': 'no-cache'} if fresh else {})
        return self._parsed(response)['capacity'], int(
            response.headers.get('Age', 0))

    def be_host(self, host, holder, ttl):
        """Have a process hold a host's lease, or renew it, in one try.

        :param holder: UUID of the process.
        :param ttl: for how many seconds from now.
        :raises: Conflict while another holds it; Refused, Unavailable.
        """
        # An answer that comes later than this is of little use.
        self._call('PUT', _lease_of(host), timeout=ttl / 3,
                   json={'holder': holder, 'ttl': ttl})

    def host_since(self, host):
        """Return since when the holder of a host's lease has it, a text.

        :raises: Refused, Unavailable.
        """
        found = self._call('GET', HOSTS, params={'host': host})['hosts']
        return found[0]['created_at'] if found else None

    def leave_host(self, host, holder):
        """Give a host's lease up, in one try.

        :raises: NotFound, Refused, Unavailable.
        """
        self._call('DELETE', _lease_of(host), params={'holder': holder})

    def is_present(self):
        """Ask whether this Ironic has /v1/reservations.

        :returns: False only after DENIALS denials of an Ironic whose own API
            answers well.
        :raises: Failure when it cannot be known now.
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
        """Send a request; return the answer's body, None if it has none."""
        response = self._send(method, path, **kwargs)
        if response.status_code == 204:
            return None
        return self._parsed(response)

    def _send(self, method, path='', **kwargs):
        return self._send_to(method, f'{RESERVATIONS}{path}', **kwargs)

    def _send_to(self, method, path, **kwargs):
        try:
            # By itself the SDK would repeat requests that are answered with
            # 409 or 503 for about 15 seconds; _patient decides that here.
            return self._connect().request(
                path, method, raise_exc=False, connect_retries=0,
                status_code_retries=0, **kwargs)
        except (exception.ServiceUnavailable, ksa_exc.ClientException,
                sdk_exc.SDKException) as e:
            raise Unavailable(f'Ironic cannot be reached: {e}', busy=True)

    @staticmethod
    def _parsed(response):
        """Return the body of a success.

        :raises: the Failure that the answer's status stands for.
        """
        status = response.status_code
        try:
            body = response.json()
            if status < 300 and isinstance(body, dict):
                return body
            message = _fault(body)
        except (ValueError, KeyError, TypeError):
            # The answer is not Ironic's but that of a proxy on the way, or
            # of another server.
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
                         'Retry-After' in response.headers,
                         body.get('ignored', ()))
        if status in (400, 413):
            raise Refused(message)
        raise Unavailable(f'{message} (HTTP {status})', busy=status >= 500)


def _lease_of(host):
    return f'{HOSTS}/{urllib.parse.quote(host, safe="")}'


def _fault(body):
    """Return the text in the body of an error of Ironic's API.

    It is in JSON text inside of the JSON body, except for Ironic's own 404,
    whose body has an object there.
    """
    fault = body['error_message']
    if isinstance(fault, str):
        try:
            fault = json.loads(fault)
        except ValueError:
            return fault
    return fault.get('faultstring', '') if isinstance(fault, dict) else fault
