# SPDX-License-Identifier: Apache-2.0
"""The exceptions; ``api.errors`` gives each its HTTP status."""

from typing import Any

from ironic_reservations import verdicts
from ironic_reservations.shared import text

# The default of a parameter for which None is a value.
_OMITTED = object()


class ReservationsError(Exception):
    """Base of the errors whose message is shown to the caller.

    The message may quote the request. It is escaped, so that it remains one
    line in a log.
    """

    def __init__(self, message: str) -> None:
        super().__init__(text.escape_controls(message))


class InvalidInput(ReservationsError):
    """A field of the request is invalid.

    :param field: path of the field, with dots (``image.min_ram``).
    :param reason: text that follows the field, such as "must be a list".
    :param got: the invalid value, which is appended to the reason.
    """

    def __init__(self, field: str, reason: str, got: Any = _OMITTED) -> None:
        if got is not _OMITTED:
            reason += f'; got {text.quote_value(got)}'
        super().__init__(f'{field}: {reason}')
        self.field, self.reason = text.escape_controls(field), reason


class NotAcceptable(ReservationsError):
    """The requested API version is malformed or unsupported."""


class NotAuthorized(ReservationsError):
    """The policy forbids the call to this caller."""


class NotFound(ReservationsError):
    """There is no such object, or the caller may not see it."""

    @classmethod
    def of(cls, title: str) -> 'NotFound':
        """Return the error for an object, such as ``group UUID``."""
        return cls(f'No {title} could be found.')


class Conflict(ReservationsError):
    """The state of the object or of its node forbids the call."""


class PreconditionFailed(ReservationsError):
    """The caller does not have the host lease that it names."""


class LengthRequired(ReservationsError):
    """The server does not pass on a body of unknown length."""


class BodyTooLarge(ReservationsError):
    """The request body exceeds the limit."""


class UnsupportedMediaType(ReservationsError):
    """The request body is not JSON."""


class NoMatchingNode(ReservationsError):
    """No free node, or too few, satisfy the request.

    :param message: what the caller reads instead of the verdict's own text.
    """

    def __init__(self, verdict: verdicts.Verdict,
                 message: str | None = None) -> None:
        super().__init__(message or str(verdict))
        self.verdict = verdict


class QuotaExceeded(ReservationsError):
    """The request exceeds the quota of the project."""

    def __init__(self, quota: verdicts.Quota) -> None:
        super().__init__(
            f'The quota of the project does not allow it: {quota.resource} is '
            f'limited to {quota.limit}, {quota.used} in use, '
            f'{quota.requested} requested.')
        self.quota = quota


class LimitsNotKnown(ReservationsError):
    """The limits of a project cannot be read from Keystone."""


class DeadlineExceeded(ReservationsError):
    """Retries after conflicts with other requests exceeded the deadline."""


class OutcomeUnknown(ReservationsError):
    """The response to a COMMIT was lost, and then the host lease."""

    def __init__(self) -> None:
        super().__init__(
            'The database did not respond, and then the host lease was lost; '
            'the request may or may not have been carried out. Read the '
            'reservation.')


class DatabaseNotReady(ReservationsError):
    """A table or column that we need is missing in the database."""
