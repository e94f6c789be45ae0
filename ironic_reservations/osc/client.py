# SPDX-License-Identifier: Apache-2.0
"""Sends the requests of the commands.

Requests to Ironic go through python-ironicclient, so that users configure
them as they do for all other ``openstack baremetal`` commands. Requests to
other services go through openstacksdk.
"""

from collections.abc import Iterator
import contextlib
import copy
import itertools
import logging
import re
import ssl
from typing import Any
import urllib.parse
import uuid

from ironicclient import exc
from ironicclient.common import http
from keystoneauth1 import access
from keystoneauth1 import exceptions as ksa_exc
from keystoneauth1 import identity
from openstack import connection
from openstack import exceptions as sdk_exc
from osc_lib import exceptions
from osc_lib.command import command
import tenacity
from urllib3 import exceptions as urllib3_exc

from ironic_reservations.osc import progress
from ironic_reservations.shared import text

PATH = '/v1/reservations'

#: A JSON object in a request or a response.
Data = dict[str, Any]

#: Attempts of a GET whose connections fail.
ATTEMPTS = 3

#: First version of Placement's API in which consumers have generations and
#: allocations may be empty.
PLACEMENT = '1.28'

#: Seconds before a request is sent again.
PAUSE = 1


#: Errors of a connection over which no request was sent; that of a refused one
#: is a ConnectTimeoutError, too.
_UNSENT = (ssl.SSLCertVerificationError, urllib3_exc.ConnectTimeoutError)

#: Errors of requests that may succeed in system scope.
OUT_OF_SCOPE = exc.Forbidden, exc.NotFound


class NoResponse(ksa_exc.ConnectFailure):
    """An endpoint does not respond; the message is one line with its URL.

    :ivar is_unsent: whether a write was certainly not sent.
    """

    def __init__(self, message: str, is_unsent: bool) -> None:
        super().__init__(message)
        self.is_unsent = is_unsent


class NoPlugin(exceptions.CommandError):
    """Ironic runs without our API plugin."""


def get_sdk(cmd: command.Command) -> connection.Connection:
    """Return openstacksdk's connection to the user's cloud."""
    # The plugins of the shell add the attributes.
    manager: Any = cmd.app.client_manager
    if not hasattr(manager, 'sdk_connection'):
        # This is python-ironicclient's own command, "baremetal".
        manager.sdk_connection = connection.Connection(
            config=manager.cloud_region)
    sdk: connection.Connection = manager.sdk_connection
    return sdk


def get_access(cmd: command.Command) -> access.AccessInfo | None:
    """Return the user's token with its scope; None without Keystone."""
    session = get_sdk(cmd).session
    if not isinstance(session.auth, identity.BaseIdentityPlugin):
        return None
    return session.auth.get_access(session)


def request_ironic(cmd: command.Command, method: str, url: str,
                   **kwargs: Any) -> Any:
    """Send a request to Ironic and return the data of the response.

    :raises: NoPlugin, exc.ClientException, ksa_exc.ClientException.
    """
    # The client is copied, because all commands of an interactive shell share
    # it, and the other commands must keep their retries.
    manager: Any = cmd.app.client_manager
    client = copy.copy(manager.baremetal.http_client)
    # ironicclient has one number of retries for failed connections and for
    # responses with 409 or 503. Such a response is shown at once, because a
    # conflict does not resolve itself.
    client.conflict_max_retries = 0
    # Only a GET may be repeated if the outcome of the first one is unknown.
    # The retries of keystoneauth would print a line for each.
    send = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(
            ksa_exc.RetriableConnectionFailure),
        stop=tenacity.stop_after_attempt(ATTEMPTS if method == 'GET' else 1),
        wait=tenacity.wait_fixed(PAUSE), reraise=True)
    kwargs['hooks'] = {'response': _store_retry_after}
    http.LOG.addFilter(_is_new)
    try:
        return send(client.json_request, method, url, **kwargs)[1]
    except ksa_exc.ConnectionError as error:
        is_unsent = method != 'GET' and any(
            isinstance(cause, _UNSENT) for cause in _list_causes(error))
        raise NoResponse(format_error(error), is_unsent) from error
    except exc.NotFound:
        if url.startswith(PATH) and not _is_served(client, kwargs):
            raise NoPlugin(
                f'Ironic at {client.endpoint_trimmed} has no reservations: '
                f'its API plugin of ironic-reservations is not enabled.')
        raise
    except exc.BadRequest as error:
        # Users know the option instead of the key.
        error.args = (re.sub(
            r'^(\w+)_(in|at|start): ', r'--\1-\2: ', str(error)),)
        raise
    finally:
        http.LOG.removeFilter(_is_new)


def format_error(error: BaseException) -> str:
    """Return the message of an error on one line.

    Connection errors are "Unable to establish connection to URL: ", followed
    by the nested errors of the libraries, of which only the innermost is kept.
    """
    message = str(error)
    if isinstance(error, ksa_exc.ConnectionError) and not isinstance(
            error, NoResponse):
        *_, cause = causes = [*_list_causes(error)]
        message = re.sub(r'\?\S*', '', message.partition(': ')[0])
        for part in causes:
            if isinstance(part, urllib3_exc.ProxyError):
                message += f': {part.args[0]}'
        # OpenSSL's have a code and a line of its source.
        reason = re.sub(r'^\[.*?\] | *\(?_ssl\.c:\S*', '',
                        getattr(cause, 'strerror', None) or str(cause))
        if cause is not error and not message.endswith(reason):
            message += f': {reason}'
    return ' '.join(message.split())


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it contains or that have caused it.

    A response may have been an error before, whose handler sent the request.
    """
    while error and not isinstance(error, exc.ClientException):
        yield error
        # Errors of requests and urllib3 have them as arguments.
        error = next((
            part for part in (getattr(error, 'reason', None), *error.args)
            if isinstance(part, BaseException)),
            error.__cause__ or error.__context__)


def _is_served(client: Any, kwargs: Data) -> bool:
    """Return whether Ironic has our API, although it responded with 404."""
    kwargs = {name: value for name, value in kwargs.items() if name != 'body'}
    try:
        client.json_request('GET', f'{PATH}?limit=1&fields=instance_uuid',
                            **kwargs)
    except exc.NotFound:
        return False
    except exc.ClientException:
        pass  # For example, this user may not list reservations.
    return True


def _is_new(record: logging.LogRecord) -> bool:
    """Return whether a line of ironicclient's log is news for the user.

    ironicclient logs the error of the last attempt, and raises it as well.
    With a single attempt, the user would read the error twice:
    https://opendev.org/openstack/python-ironicclient/src/branch/master/ironicclient/common/http.py
    """
    return not record.getMessage().endswith('Attempt 1 of 1')


def _store_retry_after(response: Any, *args: Any, **kwargs: Any) -> None:
    """Move the header Retry-After of a response to an attribute.

    ironicclient's ``from_response`` passes the header to the constructor of
    the error, which for most status codes does not accept it, so that a
    TypeError would hide the error:
    https://opendev.org/openstack/python-ironicclient/src/branch/master/ironicclient/common/apiclient/exceptions.py
    """
    response.retry_after = response.headers.pop('Retry-After', None)


def read_list(cmd: command.Command, collection: str, query: Data,
              limit: int | None = None, **kwargs: Any) -> Iterator[Data]:
    """Yield the elements of a list of Ironic's API, page by page.

    :param collection: its path, such as ``reservations/hosts``.
    :param query: parameters of the query; None is left out.
    :param limit: maximum number of elements; None or 0 for all.
    :param kwargs: arguments of the requests, such as another ``auth``.
    """
    return itertools.islice(_read_pages(cmd, collection, {
        **query, 'limit': limit or None}, **kwargs), limit or None)


def _read_pages(cmd: command.Command, collection: str, query: Data,
                **kwargs: Any) -> Iterator[Data]:
    name, number = collection.rpartition('/')[2], 0
    query = {key: value for key, value in query.items() if value is not None}
    while True:
        page = request_ironic(
            cmd, 'GET', f'/v1/{collection}?{urllib.parse.urlencode(query)}',
            **kwargs)
        yield from page[name]
        number += len(page[name])
        if number:
            progress.update_line(cmd, '%d %s read', number, name)
        query = text.parse_next_link(page.get('next'))
        if not query:
            return


def build_path(collection: str, ident: str) -> str:
    """Return the path of an element of a collection.

    :raises: CommandError if the identifier is no UUID, because it could be
        another path of the API, such as "capacity".
    """
    try:
        return f'{collection}/{uuid.UUID(ident)}'
    except ValueError:
        raise exceptions.CommandError(f'"{ident}" is not a UUID')


def quote_name(name: str) -> str:
    """Return a name as the last part of a path.

    :raises: CommandError for "." and "..", because the path would become that
        of what contains the named element.
    """
    if name in ('.', '..'):
        raise exceptions.CommandError(f'"{name}" is not a name')
    return urllib.parse.quote(name, safe='')


def complete(cmd: command.Command, row: Data, **kwargs: Any) -> Data:
    """Return a group with all members, or a pool with all nodes.

    :param row: data of a response, which links to the members or nodes that
        do not fit in it.
    :param kwargs: arguments of the requests, such as another ``auth``.
    """
    collection, key = (('groups', 'reservations') if 'reservations' in row
                       else ('pools', 'nodes'))
    url = build_path(f'{PATH}/{collection}', row['uuid'])
    while query := text.parse_next_link(row.get('next')):
        page = request_ironic(
            cmd, 'GET', f'{url}?{urllib.parse.urlencode(query)}', **kwargs)
        row = {**page, key: [*row[key], *page[key]]}
    return row


@contextlib.contextmanager
def report_lost_response(cmd: command.Command, resource: str, ident: str,
                         show: str, effect: str = 'hold nodes'
                         ) -> Iterator[None]:
    """Tell the user how to find the outcome of a request without a response.

    Nothing is printed if the request was certainly not sent.

    :param resource: type of the requested resource, in a word.
    :param ident: its UUID.
    :param show: the command that shows it.
    :param effect: possible effect of the request.
    """
    try:
        yield
    except (KeyboardInterrupt, exc.ClientException,
            ksa_exc.ConnectionError) as error:
        # A response below 500 is a refusal.
        if getattr(error, 'http_status', 500) >= 500 and not getattr(
                error, 'is_unsent', False):
            print(f'No response: {resource} {ident} may or may not {effect}. '
                  f'Check with "openstack baremetal reservation {show} '
                  f'{ident}".', file=cmd.app.stderr, flush=True)
        raise


@contextlib.contextmanager
def convert_nova_errors() -> Iterator[None]:
    """Convert errors of Nova and Placement into a message for the user.

    :raises: CommandError.
    """
    try:
        yield
    except NoResponse:
        raise  # from Ironic
    except sdk_exc.ForbiddenException as error:
        raise exceptions.CommandError(
            f'Nova and Placement require the admin role in a project: '
            f'{error}')
    except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
        raise exceptions.CommandError(
            f'Nova or Placement cannot be read: {format_error(error)}')


def get_compute(cmd: command.Command) -> Any:
    """Return Nova's API, a proxy of openstacksdk.

    :raises: CommandError if there is no Nova.
    """
    if not has_service(cmd, 'compute'):
        raise exceptions.CommandError('There is no Nova here.')
    return get_sdk(cmd).compute


def request_placement(cmd: command.Command, url: str, method: str = 'GET',
                      **kwargs: Any) -> Any:
    """Send a request to Placement.

    :returns: data of the response, or None.
    :raises: SDKException.
    """
    response = get_sdk(cmd).placement.request(
        url, method, microversion=PLACEMENT, **kwargs)
    if response.status_code == 409:
        # The SDK does not recognize the reason in Placement's response.
        raise sdk_exc.ConflictException(
            response.json()['errors'][0]['detail'].strip())
    sdk_exc.raise_from_response(response)
    return response.json() if response.content else None


def has_service(cmd: command.Command, service: str) -> bool:
    """Return whether another service belongs to this Ironic.

    Without Keystone, all services have the endpoint of the login, which is
    Ironic's, or none, unless the user sets another.

    :param service: as the SDK calls it, such as ``compute``.
    """
    config = get_sdk(cmd).config
    return get_access(cmd) is not None or config.get_endpoint(service) not in (
        None, config.get_endpoint('baremetal'))


def find_resource(cmd: command.Command, service: str, resource: str,
                  ident: str, **kwargs: Any) -> Any:
    """Return a resource of another service by its name or ID.

    :param service: as the SDK calls it, such as ``compute``.
    :param resource: type of the resource, such as ``flavor``.
    :raises: CommandError.
    """
    try:
        if not has_service(cmd, service):
            raise exceptions.CommandError(
                f'Cannot look up {resource} "{ident}": there is no {service} '
                f'service here')
        proxy = getattr(get_sdk(cmd), service)
        return getattr(proxy, f'find_{resource}')(
            ident, ignore_missing=False, **kwargs)
    except sdk_exc.ForbiddenException as error:
        token = get_access(cmd)
        raise exceptions.CommandError(
            f'Cannot look up {resource} "{ident}": the {service} service does '
            'not allow it '
            + ('in system scope. Log in to a project.'
               if token and token.system_scoped else 'to this user.')
            ) from error
    except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
        raise exceptions.CommandError(
            f'Cannot look up {resource} "{ident}": {format_error(error)}'
            ) from error
