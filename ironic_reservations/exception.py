# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, by name; ``api.errors`` gives each its status code."""

from ironic_reservations import text


class ReservationsError(Exception):
    """Base of the errors whose message is meant for the caller.

    A message may quote the request; in a log it stays one line.
    """

    def __init__(self, message):
        super().__init__(text.printable(message))


class InvalidInput(ReservationsError):
    """A request says something that cannot be understood.

    :param field: the field at fault, dotted (``image.min_ram``).
    :param reason: what it must be.
    """

    def __init__(self, field, reason):
        super().__init__(f'{field}: {reason}')
        self.field, self.reason = text.printable(field), reason


class NotAcceptable(ReservationsError):
    """The API version asked for is malformed or not to be had."""


class NotAuthorized(ReservationsError):
    """Policy does not allow the call to this caller."""


class NotFound(ReservationsError):
    """No such reservation, or none that the caller may see."""


class Conflict(ReservationsError):
    """The reservation or its node is in a state that forbids the call."""


class PreconditionFailed(ReservationsError):
    """The caller is not, or is no longer, the host that it says it is."""


class BodyTooLarge(ReservationsError):
    """The request body is over the limit."""


class UnsupportedMediaType(ReservationsError):
    """The request body is not JSON."""


class NoMatchingNode(ReservationsError):
    """No free node satisfies the request.

    :param explanation: why, as data (see ``matching.Matcher.explain``).
    :param retry: True when nodes matched but were locked or taken at that
        moment, so that the same request may succeed a second later.
    :param members: dict of how many members a group was to have (``wanted``)
        and could have (``available``); None for a single node.
    :param ignored: keys of extra specs that were not compared with nodes.
    """

    def __init__(self, message, explanation, retry=False, members=None,
                 ignored=()):
        super().__init__(message)
        self.explanation = explanation
        self.retry = retry
        self.members = members
        self.ignored = ignored


class QuotaExceeded(ReservationsError):
    """The project has as many reservations as it may have.

    :param resource: what is limited, as Keystone calls it.
    :param limit: how many of it the project may have.
    :param used: how many it has.
    :param requested: how many more the request needs.
    """

    def __init__(self, resource, limit, used, requested):
        super().__init__(
            f'The quota of the project does not allow it: {resource} is '
            f'limited to {limit}, {used} in use, {requested} requested.')
        self.resource = resource
        self.quota = {'resource': resource, 'limit': limit, 'used': used,
                      'requested': requested}


class LimitsNotKnown(ReservationsError):
    """Keystone does not say how many nodes a project may reserve."""


class DeadlineExceeded(ReservationsError):
    """Others were faster for as long as the request may take."""


class OutcomeUnknown(ReservationsError):
    """The response to a COMMIT was lost, and then the host lease."""

    def __init__(self):
        super().__init__(
            'The host lease was lost after the response of the database was; '
            'whether the request was carried out is not known. Read the '
            'reservation.')


class DatabaseNotReady(ReservationsError):
    """A table or column that we stand on is missing in the database."""
