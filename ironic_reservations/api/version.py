# SPDX-License-Identifier: Apache-2.0
"""Versions in the headers of requests and answers: Ironic's, and our own.

No version of Ironic's changes what we do. But clients negotiate one with
Ironic and send it to us too, so a version that Ironic would refuse is refused
here, and every answer has the three version headers.

Our own is in every answer, a refusal included, so that a client finds out what
it may ask for without asking for it.
"""

import functools

import microversion_parse
from oslo_log import log
import webob

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.api import errors

LOG = log.getLogger(__name__)

HEADER = 'X-OpenStack-Ironic-API-Version'
MIN_HEADER = 'X-OpenStack-Ironic-API-Minimum-Version'
MAX_HEADER = 'X-OpenStack-Ironic-API-Maximum-Version'

#: What we can do: the API reference says what has come with which version.
#: The second number grows with each addition or change.
OWN_HEADER = 'X-OpenStack-Ironic-Reservations-Version'
OWN_VERSION = '1.3'

_VARIABLE = 'HTTP_' + HEADER.upper().replace('-', '_')

#: The oldest version that every Ironic has.
MIN_VERSION = '1.1'


class ApiVersion:
    """Middleware that checks a request's version and adds the headers.

    :param app: the application inside.
    :param ironic: Ironic's application, which is asked for its range of
        versions; None when there is none.
    """

    def __init__(self, app, ironic=None):
        self.app = app
        self.ironic = ironic

    def __call__(self, environ, start_response):
        app = self.app
        minimum, maximum = self._range
        version = minimum
        try:
            version = _asked_for(environ.get('HTTP_OPENSTACK_API_VERSION'),
                                 environ.get(_VARIABLE), minimum, maximum)
        except exception.NotAcceptable as error:
            app = errors.present(error)

        def start(status, headers, *exc_info):
            return start_response(status, [
                *headers, (HEADER, version), (MIN_HEADER, minimum),
                (MAX_HEADER, maximum), (OWN_HEADER, OWN_VERSION)], *exc_info)

        return app(environ, start)

    # Asked at the first request, so that making the application calls nobody.
    @functools.cached_property
    def _range(self):
        """The lowest and the highest version that Ironic supports."""
        headers = {}
        if self.ironic is not None:
            headers = webob.Request.blank('/v1/').get_response(
                self.ironic).headers
        found = (headers.get(MIN_HEADER, MIN_VERSION),
                 headers.get(MAX_HEADER,
                             conf.CONF.reservations.max_api_version))
        LOG.debug('API versions are served from %s to %s', *found)
        return found


@functools.lru_cache(maxsize=128)
def _asked_for(standard, ironics, minimum, maximum):
    """Find the version that the headers of a request ask for.

    :param standard: the value of the header OpenStack-API-Version, or None.
    :param ironics: the value of Ironic's own header, or None.
    :returns: the version, the minimum when the headers name none.
    :raises: NotAcceptable when it is malformed or out of range.
    """
    headers = {'openstack-api-version': standard, HEADER: ironics}
    headers = {name: value for name, value in headers.items()
               if value is not None}
    try:
        asked = microversion_parse.get_version(
            headers, service_type='baremetal', legacy_headers=[HEADER])
        if (asked or '').lower() == 'latest':
            asked = maximum
        asked = asked or minimum
        parse = microversion_parse.parse_version_string
        if parse(minimum) <= parse(asked) <= parse(maximum):
            return asked
    except (ValueError, TypeError):
        raise exception.NotAcceptable(f'Invalid value for {HEADER} header')
    raise exception.NotAcceptable(
        f'Version {asked} was requested but is not supported by this '
        f'service. The supported version range is: [{minimum}, {maximum}].')
