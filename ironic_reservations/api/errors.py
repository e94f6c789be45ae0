# SPDX-License-Identifier: Apache-2.0
"""Exception to status and body: one table, and Ironic's envelope."""

import json

from oslo_db import exception as db_exc
from oslo_log import log
import sqlalchemy.exc
import webob
import webob.exc

from ironic_reservations import exception

LOG = log.getLogger(__name__)

#: The first class that an exception is an instance of gives its status.
STATUS = (
    (exception.InvalidInput, 400),
    (exception.NotAuthorized, 403),
    (exception.NotFound, 404),
    (exception.NotAcceptable, 406),
    (exception.Conflict, 409),
    (exception.BodyTooLarge, 413),
    (exception.UnsupportedMediaType, 415),
    (exception.NoMatchingNode, 422),
    (exception.DeadlineExceeded, 503),
    (exception.DatabaseNotReady, 503),
    (db_exc.DBConnectionError, 503),
    (db_exc.DBDeadlock, 503),
    (db_exc.DBNonExistentTable, 503),
    (db_exc.DBNonExistentDatabase, 503),
    (sqlalchemy.exc.OperationalError, 503),
    (sqlalchemy.exc.ProgrammingError, 503),
    (sqlalchemy.exc.TimeoutError, 503),
)

#: Seconds after which a caller may try again.
_RETRY_AFTER = {422: '1', 503: '5'}

_MESSAGES = {
    500: 'The reservations service has met an unexpected error.',
    503: 'The reservations service cannot use its database at the moment.',
}


def present(error):
    """The answer to an exception.

    Only messages of our own are shown; what else went wrong is logged.
    """
    status = next((status for known, status in STATUS
                   if isinstance(error, known)), 500)
    message = str(error)
    if not isinstance(error, exception.ReservationsError):
        LOG.error('%s', _MESSAGES[status], exc_info=error)
        message = _MESSAGES[status]
    more = {}
    if isinstance(error, exception.NoMatchingNode):
        more['explanation'] = error.explanation
    response = envelope(status, message, **more)
    if status == 503 or getattr(error, 'retry', False):
        response.retry_after = _RETRY_AFTER[status]
    return response


def envelope(status, message, **more):
    """An error as Ironic's API gives it, for every Ironic client.

    :param more: data to stand beside it.
    :returns: webob.Response with the body {"error_message": "<JSON text of
        faultcode, faultstring and debuginfo>"}.
    """
    fault = {'faultcode': 'Client' if status < 500 else 'Server',
             'faultstring': message, 'debuginfo': None}
    return webob.Response(
        status=status, content_type='application/json', charset=None,
        json_body={'error_message': json.dumps(fault), **more})


_PRESENTED = 'ironic_reservations.presented'


class Errors:
    """Present what the application inside raises."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        try:
            return self.app(environ, start_response)
        except Exception as error:
            environ[_PRESENTED] = True
            return present(error)(environ, start_response)


class ErrorEnvelope:
    """Give every error of the application inside the same form."""

    def __init__(self, app):
        self.app = Errors(app)

    def __call__(self, environ, start_response):
        response = webob.Request(environ).get_response(self.app)
        if response.status_int >= 400 and _PRESENTED not in environ:
            self._wrap(response)
        return response(environ, start_response)

    @staticmethod
    def _wrap(response):
        """Put the answer of a library (404, 405, 401 ...) in the envelope."""
        wrapped = envelope(response.status_int, response.status.title())
        response.content_type = wrapped.content_type
        response.charset = None
        response.body = wrapped.body
