# SPDX-License-Identifier: Apache-2.0
"""The answers to exceptions: their status by one table, in Ironic's form."""

import json

from oslo_db import exception as db_exc
from oslo_log import log
import sqlalchemy.exc
import webob
import webob.exc

from ironic_reservations import exception
from ironic_reservations import metrics
from ironic_reservations.matching import explanation

LOG = log.getLogger(__name__)

#: The status of an exception is that of the first class here that it is an
#: instance of; where there is none, it is 500.
STATUS = (
    (exception.InvalidInput, 400),
    (exception.NotAuthorized, 403),
    (exception.QuotaExceeded, 403),
    (exception.NotFound, 404),
    (exception.NotAcceptable, 406),
    (exception.Conflict, 409),
    (exception.PreconditionFailed, 412),
    (exception.BodyTooLarge, 413),
    (exception.UnsupportedMediaType, 415),
    (exception.NoMatchingNode, 422),
    (exception.LimitsNotKnown, 503),
    (exception.DeadlineExceeded, 503),
    (exception.OutcomeUnknown, 503),
    (exception.DatabaseNotReady, 503),
    (db_exc.DBConnectionError, 503),
    (db_exc.DBDeadlock, 503),
    (db_exc.DBNonExistentTable, 503),
    (db_exc.DBNonExistentDatabase, 503),
    (sqlalchemy.exc.OperationalError, 503),
    (sqlalchemy.exc.ProgrammingError, 503),
    (sqlalchemy.exc.TimeoutError, 503),
)

#: Seconds after which a caller may try again, by the answer's status.
_RETRY_AFTER = {422: '1', 503: '5'}

_MESSAGES = {
    500: 'The reservations service has met an unexpected error.',
    503: 'The reservations service cannot use its database at the moment.',
}


def present(error):
    """Make the answer to an exception.

    The client is shown the messages of our own exceptions only, because
    another's may contain SQL, paths or addresses; the log has it in full.

    :returns: webob.Response.
    """
    status = next((status for known, status in STATUS
                   if isinstance(error, known)), 500)
    message = str(error)
    if not isinstance(error, exception.ReservationsError):
        LOG.error('%s', _MESSAGES[status], exc_info=error)
        message = _MESSAGES[status]
    else:
        LOG.info('The request is refused with status %(status)s: '
                 '%(message)s', {'status': status, 'message': message})
    more = {}
    if isinstance(error, exception.NoMatchingNode):
        metrics.count_refusal(explanation.find_cause(error.explanation))
        more['explanation'] = error.explanation
        if error.members:
            more['members'] = error.members
        if error.ignored:
            more['ignored'] = error.ignored
    if isinstance(error, exception.QuotaExceeded):
        metrics.count_refusal(explanation.QUOTA)
        more['quota'] = error.quota
    response = envelope(status, message, **more)
    if status == 503 or getattr(error, 'retry', False):
        response.retry_after = _RETRY_AFTER[status]
    return response


def envelope(status, message, **more):
    """Make an error in the form of Ironic's API, which its clients parse.

    :param more: data to stand in the body beside the error.
    :returns: webob.Response with the body {"error_message": "<JSON text of
        faultcode, faultstring and debuginfo>"}.
    """
    fault = {'faultcode': 'Client' if status < 500 else 'Server',
             'faultstring': message, 'debuginfo': None}
    return webob.Response(
        status=status, content_type='application/json', charset=None,
        json_body={'error_message': json.dumps(fault), **more})


# A key of the WSGI environment: present() has made the answer.
_PRESENTED = 'ironic_reservations.presented'


class Errors:
    """Middleware that answers what the application inside of it raises."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        try:
            return self.app(environ, start_response)
        except TimeoutError:
            # The client's connection, for the server to end: see ``limits``.
            raise
        except Exception as error:
            environ[_PRESENTED] = True
            return present(error)(environ, start_response)


class ErrorEnvelope:
    """Middleware that gives every error from inside of it Ironic's form."""

    def __init__(self, app):
        self.app = Errors(app)

    def __call__(self, environ, start_response):
        wrapped = None

        def start(status, headers, *exc_info):
            nonlocal wrapped
            if status < '400' or _PRESENTED in environ:
                return start_response(status, headers, *exc_info)
            wrapped = self._wrap(status, headers)

        answer = self.app(environ, start)
        if wrapped is None:
            return answer
        if hasattr(answer, 'close'):
            answer.close()
        return wrapped(environ, start_response)

    @staticmethod
    def _wrap(status, headers):
        """Put the error that a library answers (401, 404, 405) in our form."""
        response = webob.Response(status=status, headerlist=list(headers))
        wrapped = envelope(response.status_int, response.status.title())
        response.content_type = wrapped.content_type
        response.charset = None
        response.body = wrapped.body
        return response
