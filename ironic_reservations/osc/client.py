# SPDX-License-Identifier: Apache-2.0
"""Requests that the commands send, and names that they look up.

Requests to Ironic go through python-ironicclient, so that users configure
them as they do for all other ``openstack baremetal`` commands. Requests to
other services go through openstacksdk.
"""

import contextlib
import copy
import itertools
import urllib.parse
import uuid

from ironicclient import exc
from ironicclient.common import http
from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
from osc_lib import exceptions
from osc_lib.cli import parseractions
import tenacity

from ironic_reservations import text
from ironic_reservations.osc import progress

PATH = '/v1/reservations'

#: How often a GET is sent when its connections fail.
ATTEMPTS = 3

#: The first version of Placement's API in which consumers have generations and
#: allocations may be empty.
PLACEMENT = '1.28'

#: Seconds before a request is sent again.
PAUSE = 1


class NoAnswer(ksa_exc.ConnectFailure):
    """An endpoint does not answer; the text is one line with its URL."""


class NoReservations(exceptions.CommandError):
    """The Ironic that was asked runs without our API plugin."""


def request(cmd, method, url, **kwargs):
    """Send one request to Ironic and return the answer's data.

    :raises: NoReservations, exc.ClientException, ksa_exc.ClientException.
    """
    # The client is copied, because it belongs to all commands of an
    # interactive shell, and the others shall keep their retries.
    client = copy.copy(cmd.app.client_manager.baremetal.http_client)
    # ironicclient has one number of retries for failed connections and for
    # answers with 409 or 503. Such an answer is shown at once, because a
    # conflict does not go away by itself.
    client.conflict_max_retries = 0
    # Only a GET may be sent again without knowing what the first one did. The
    # retries of keystoneauth would print a line for each.
    send = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(
            ksa_exc.RetriableConnectionFailure),
        stop=tenacity.stop_after_attempt(ATTEMPTS if method == 'GET' else 1),
        wait=tenacity.wait_fixed(PAUSE), reraise=True)
    kwargs['hooks'] = {'response': _take_retry_after}
    http.LOG.addFilter(_is_news)
    try:
        return send(client.json_request, method, url, **kwargs)[1]
    except ksa_exc.ConnectionError as error:
        raise NoAnswer(in_one_line(error)) from error
    except exc.NotFound:
        if url.startswith(PATH) and not _is_served(client, kwargs):
            raise NoReservations(
                f'There are no reservations at {client.endpoint_trimmed}: '
                f'Ironic there runs without the API plugin of '
                f'ironic-reservations.')
        raise
    finally:
        http.LOG.removeFilter(_is_news)


def in_one_line(error):
    """Return what an error says, without what the libraries below have said.

    That of a connection is "Unable to establish connection to URL: " and all
    of them, one in the other.
    """
    text = str(error)
    if isinstance(error, ksa_exc.ConnectionError):
        text, _, cause = text.partition(': ')
        if 'Connection aborted' in cause:
            # What was asked may be done, unlike where nobody listens.
            text += ': Connection aborted'
    return ' '.join(text.split())


def _is_served(client, kwargs):
    """Whether Ironic has our API, although it has answered 404."""
    kwargs = {name: value for name, value in kwargs.items() if name != 'body'}
    try:
        client.json_request('GET', f'{PATH}?limit=1&fields=instance_uuid',
                            **kwargs)
    except exc.NotFound:
        return False
    except exc.ClientException:
        pass  # For example, this user may not list reservations.
    return True


def _is_news(record):
    """Whether a line of ironicclient's log tells the user anything new.

    ironicclient logs the error of the last attempt, and raises it as well.
    With one attempt in all, the user would read the error twice:
    https://opendev.org/openstack/python-ironicclient/src/branch/master/ironicclient/common/http.py
    """
    return not record.getMessage().endswith('Attempt 1 of 1')


def _take_retry_after(response, *args, **kwargs):
    """Move the header Retry-After from an answer to an attribute.

    ironicclient's ``from_response`` hands the header on to the constructor
    of the error, which for most status codes does not take it, so that a
    TypeError would hide the error:
    https://opendev.org/openstack/python-ironicclient/src/branch/master/ironicclient/common/apiclient/exceptions.py
    """
    response.retry_after = response.headers.pop('Retry-After', None)


def listed(cmd, collection, query, limit=None, **kwargs):
    """Yield the elements of a list of Ironic's API, page after page.

    :param collection: its path, such as ``reservations/hosts``.
    :param query: dict of parameters of the query; those that are None are
        left out.
    :param limit: yield at most so many; None or 0 for all.
    :param kwargs: arguments of the requests, such as another ``auth``.
    """
    return itertools.islice(_pages(cmd, collection, {
        **query, 'limit': limit or None}, **kwargs), limit or None)


def _pages(cmd, collection, query, **kwargs):
    name = collection.rpartition('/')[2]
    query, number = {key: value for key, value in query.items()
                     if value is not None}, 0
    while True:
        page = request(cmd, 'GET', f'/v1/{collection}?'
                                   + urllib.parse.urlencode(query), **kwargs)
        yield from page[name]
        number += len(page[name])
        if number:
            progress.say(cmd, '%d %s read', number, name)
        query = text.parse_next_link(page.get('next'))
        if not query:
            return


def path(collection, text):
    """Return the path of an element of a collection.

    :raises: CommandError for another text, which could name another path of
        the API, such as "capacity".
    """
    try:
        return f'{collection}/{uuid.UUID(text)}'
    except ValueError:
        raise exceptions.CommandError(f'"{text}" is not a UUID')


def whole(cmd, group, **kwargs):
    """Return a group with all of its members.

    :param group: what the API has answered. Where it has no room for all of
        them, it has a link to the next.
    :param kwargs: arguments of the requests, such as another ``auth``.
    """
    url = path(f'{PATH}/groups', group['uuid'])
    while query := text.parse_next_link(group.get('next')):
        page = request(cmd, 'GET', f'{url}?{urllib.parse.urlencode(query)}',
                       **kwargs)
        group = {**page, 'reservations': [*group['reservations'],
                                          *page['reservations']]}
    return group


@contextlib.contextmanager
def remembered(cmd, kind, ident, show):
    """Tell the user what a request may have made if its answer is lost.

    :param kind: the kind of the thing, in a word.
    :param ident: its UUID.
    :param show: the command that shows it.
    """
    try:
        yield
    except (KeyboardInterrupt, exc.ClientException,
            ksa_exc.ConnectionError) as error:
        # An answer below 500 is a refusal.
        if getattr(error, 'http_status', 500) >= 500:
            print(f'Without an answer it is not known what {kind} {ident} '
                  f'holds; see "openstack baremetal reservation {show} '
                  f'{ident}".', file=cmd.app.stderr, flush=True)
        raise


@contextlib.contextmanager
def errors_of_nova():
    """Turn errors of Nova and Placement into a sentence for the user.

    :raises: CommandError.
    """
    try:
        yield
    except NoAnswer:
        raise  # It is Ironic's.
    except sdk_exc.ForbiddenException as error:
        raise exceptions.CommandError(
            f'Nova and Placement let only an admin do this, who is logged in '
            f'for a project: {error}')
    except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
        raise exceptions.CommandError(
            f'Nova or Placement cannot be read: {in_one_line(error)}')


def placement(cmd, url, method='GET', **kwargs):
    """Send one request to Placement.

    :returns: the answer's data, or None.
    :raises: SDKException.
    """
    response = cmd.app.client_manager.sdk_connection.placement.request(
        url, method, microversion=PLACEMENT, **kwargs)
    if response.status_code == 409:
        # The SDK does not find the reason in an answer of Placement.
        raise sdk_exc.ConflictException(
            response.json()['errors'][0]['detail'].strip())
    sdk_exc.raise_from_response(response)
    return response.json() if response.content else None


def look_up(cmd, service, kind, ident, **more):
    """Return a resource of another service, by its name or ID.

    :param service: as the SDK names it, such as ``compute``.
    :raises: CommandError.
    """
    try:
        proxy = getattr(cmd.app.client_manager.sdk_connection, service)
        return getattr(proxy, f'find_{kind}')(ident, ignore_missing=False,
                                              **more)
    except (sdk_exc.SDKException, ksa_exc.ClientException) as error:
        raise exceptions.CommandError(
            f'Cannot look up {kind} "{ident}": {in_one_line(error)}'
            ) from error


def add_paging(parser, marker):
    """Add the options ``--limit`` and ``--marker`` to a parser.

    :param marker: what a marker is, such as ``host``.
    """
    parser.add_argument('--limit', type=int, metavar='<number>',
                        action=parseractions.NonNegativeAction,
                        help='Maximum number of entries (default: all)')
    parser.add_argument('--marker', metavar=f'<{marker}>',
                        help='Show entries after this one')
