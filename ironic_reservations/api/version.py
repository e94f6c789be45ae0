# SPDX-License-Identifier: Apache-2.0
"""Handles the API versions in headers: Ironic's, and our own.

Ironic's version does not change our behaviour. But clients negotiate a version
with Ironic and also send it to us, so we refuse the versions that Ironic would
refuse, and every response has Ironic's three version headers.

Every response, errors included, also has our own version, so that a client
knows which features it can use.
"""

from collections.abc import Iterable
import functools
from typing import Any
from wsgiref import types

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

#: The version of our API, whose history is in the API reference. Each addition
#: or change increments the second number.
OWN_HEADER = 'X-OpenStack-Ironic-Reservations-Version'
OWN_VERSION = '1.0'

_VARIABLE = 'HTTP_' + HEADER.upper().replace('-', '_')

#: The oldest version that every Ironic has.
MIN_VERSION = '1.1'


class ApiVersion:
    """Middleware that checks a request's version and adds the headers.

    :param app: the application to wrap.
    :param ironic: Ironic's application, whose range of versions is used; None
        without Ironic.
    """

    def __init__(self, app: types.WSGIApplication,
                 ironic: types.WSGIApplication | None = None) -> None:
        self.app = app
        self.ironic = ironic

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        app = self.app
        minimum, maximum = self._range
        version = minimum
        try:
            version = _choose_version(
                environ.get('HTTP_OPENSTACK_API_VERSION'),
                environ.get(_VARIABLE), minimum, maximum)
        except exception.NotAcceptable as error:
            app = errors.make_response(error)

        def start(status: str, headers: list[tuple[str, str]],
                  *exc_info: Any) -> Any:
            return start_response(status, [
                *headers, (HEADER, version), (MIN_HEADER, minimum),
                (MAX_HEADER, maximum), (OWN_HEADER, OWN_VERSION)], *exc_info)

        return app(environ, start)

    # Read at the first request, because Ironic may not be ready before.
    @functools.cached_property
    def _range(self) -> tuple[str, str]:
        """The lowest and the highest version that Ironic supports."""
        headers = {}
        if self.ironic is not None:
            headers = webob.Request.blank('/v1/').get_response(
                self.ironic).headers
        versions = (headers.get(MIN_HEADER, MIN_VERSION),
                    headers.get(MAX_HEADER,
                                conf.CONF.reservations.max_api_version))
        LOG.debug('API versions are served from %s to %s', *versions)
        return versions


@functools.lru_cache(maxsize=128)
def _choose_version(openstack: str | None, ironic: str | None,
                    minimum: str, maximum: str) -> str:
    """Return the version that the headers of a request select.

    :param openstack: value of the header OpenStack-API-Version.
    :param ironic: value of Ironic's own header.
    :returns: the minimum if the headers select none.
    :raises: NotAcceptable if it is malformed or not supported.
    """
    headers = {name: value for name, value in (
        ('openstack-api-version', openstack), (HEADER, ironic))
        if value is not None}
    version = microversion_parse.get_version(
        headers, service_type='baremetal', legacy_headers=[HEADER]) or minimum
    if version.lower() == 'latest':
        version = maximum
    parse = microversion_parse.parse_version_string
    try:
        if parse(minimum) <= parse(version) <= parse(maximum):
            return version
    except (ValueError, TypeError):
        raise exception.NotAcceptable(
            f'Invalid value for {HEADER} header: "{version[:64]}"; must be a '
            f'version such as {minimum}, or "latest"')
    raise exception.NotAcceptable(
        f'Version {version[:64]} was requested but is not supported by this '
        f'service. The supported version range is: [{minimum}, {maximum}].')
