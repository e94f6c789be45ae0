# SPDX-License-Identifier: Apache-2.0
"""Turns exceptions into responses, in the format of Ironic's errors."""

from collections.abc import Iterable
import json
from typing import Any
from wsgiref import types

from oslo_db import exception as db_exc
from oslo_log import log
import sqlalchemy.exc
import webob
import webob.exc

from ironic_reservations import exception
from ironic_reservations import metrics
from ironic_reservations.api import responses
from ironic_reservations.fleet import explanation

LOG = log.getLogger(__name__)

#: The first class in this table that an exception is an instance of gives the
#: status; otherwise it is 500.
STATUS = (
    (exception.InvalidInput, 400),
    (exception.NotAuthorized, 403),
    (exception.QuotaExceeded, 403),
    (exception.NotFound, 404),
    (exception.NotAcceptable, 406),
    (exception.Conflict, 409),
    (exception.LengthRequired, 411),
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

#: Value of Retry-After, in seconds, by status.
RETRY_AFTER = {422: '1', 503: '5'}

_MESSAGES = {
    500: 'Unexpected error in the reservations service; its log has the '
         'details.',
    503: 'The reservations service cannot use its database at the moment.',
}


def make_response(error: Exception) -> webob.Response:
    """Return the response to an exception.

    Messages of other exceptions than ours only go to the log, because they may
    contain SQL, paths or addresses.
    """
    status = next((status for class_, status in STATUS
                   if isinstance(error, class_)), 500)
    message = str(error)
    if not isinstance(error, exception.ReservationsError):
        LOG.error('%s', _MESSAGES[status], exc_info=error)
        message = _MESSAGES[status]
    else:
        LOG.info('Refused the request with status %(status)s: %(message)s',
                 {'status': status, 'message': message})
    more: dict[str, Any] = {}
    retry = status == 503
    if isinstance(error, exception.NoMatchingNode):
        metrics.count_refusal(
            explanation.find_cause(error.verdict.explanation))
        more, retry = responses.present_verdict(
            error.verdict), error.verdict.retry
    if isinstance(error, exception.QuotaExceeded):
        metrics.count_refusal(explanation.QUOTA)
        more['quota'] = vars(error.quota)
    response = make_envelope(status, message, **more)
    if retry:
        response.retry_after = RETRY_AFTER[status]
    return response


def make_envelope(status: int, message: str, **more: Any) -> webob.Response:
    """Return an error in the format of Ironic's API, which clients parse.

    :param more: further keys of the body.
    :returns: response with the body {"error_message": "<JSON text of
        faultcode, faultstring and debuginfo>"}.
    """
    fault = {'faultcode': 'Client' if status < 500 else 'Server',
             'faultstring': message, 'debuginfo': None}
    return webob.Response(
        status=status, content_type='application/json', charset=None,
        json_body={'error_message': json.dumps(fault), **more})


# Key of the WSGI environment after an error of ours: it needs no envelope.
_ENVELOPED = 'ironic_reservations.enveloped'


class Errors:
    """Middleware that responds to exceptions of the application."""

    def __init__(self, app: types.WSGIApplication) -> None:
        self.app = app

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        try:
            return self.app(environ, start_response)
        except TimeoutError:
            # The server closes the client's connection; see ``limits``.
            raise
        except Exception as error:
            environ[_ENVELOPED] = True
            response: types.WSGIApplication = make_response(error)
            return response(environ, start_response)


class ErrorEnvelope:
    """Middleware that gives every error of the application Ironic's format."""

    def __init__(self, app: types.WSGIApplication) -> None:
        self.app = Errors(app)

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        error: types.WSGIApplication | None = None

        def start(status: str, headers: list[tuple[str, str]],
                  *exc_info: Any) -> Any:
            nonlocal error
            if status < '400' or _ENVELOPED in environ:
                return start_response(status, headers, *exc_info)
            error = _wrap_error(status, headers)

        response = self.app(environ, start)
        if error is None:
            return response
        if hasattr(response, 'close'):
            response.close()
        return error(environ, start_response)


def _wrap_error(status: str,
                headers: list[tuple[str, str]]) -> webob.Response:
    """Return an error of a library (401, 404, 405) in Ironic's format."""
    response = webob.Response(status=status, headerlist=list(headers))
    envelope = make_envelope(response.status_int, response.status.title())
    response.content_type = envelope.content_type
    response.charset = None
    response.body = envelope.body
    return response
