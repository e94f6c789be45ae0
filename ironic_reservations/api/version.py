# SPDX-License-Identifier: Apache-2.0
"""Ironic's API versions: asked for, checked, and told in every answer.

No version changes what we do; clients negotiate with Ironic and send us what
they agreed on.
"""

import functools

import microversion_parse
import webob

from ironic_reservations import exception
from ironic_reservations.api import errors

HEADER = 'X-OpenStack-Ironic-API-Version'
MIN_HEADER = 'X-OpenStack-Ironic-API-Minimum-Version'
MAX_HEADER = 'X-OpenStack-Ironic-API-Maximum-Version'

_VARIABLE = 'HTTP_' + HEADER.upper().replace('-', '_')

#: What the application says when it runs alone: Ironic 39's versions.
MIN_VERSION, MAX_VERSION = '1.1', '1.115'


class ApiVersion:
    """Refuse a version that Ironic would refuse; tell the versions.

    :param app: the application.
    :param ironic: Ironic's own, which knows its versions; None without one.
    """

    def __init__(self, app, ironic=None):
        self.app = app
        self.ironic = ironic

    def __call__(self, environ, start_response):
        app = self.app
        least, most = self._range
        version = least
        try:
            version = _asked_for(environ.get('HTTP_OPENSTACK_API_VERSION'),
                                 environ.get(_VARIABLE), least, most)
        except exception.NotAcceptable as error:
            app = errors.present(error)

        def start(status, headers, *exc_info):
            return start_response(status, [
                *headers, (HEADER, version), (MIN_HEADER, least),
                (MAX_HEADER, most)], *exc_info)

        return app(environ, start)

    @functools.cached_property
    def _range(self):
        headers = {}
        if self.ironic is not None:
            headers = webob.Request.blank('/v1/').get_response(
                self.ironic).headers
        return (headers.get(MIN_HEADER, MIN_VERSION),
                headers.get(MAX_HEADER, MAX_VERSION))


@functools.lru_cache(maxsize=128)
def _asked_for(standard, ironics, least, most):
    """The version that a request's headers ask for.

    :param standard: value of the header OpenStack-API-Version, or None.
    :param ironics: value of Ironic's own, or None.
    :raises: NotAcceptable when it is malformed or out of range.
    """
    headers = {'openstack-api-version': standard, HEADER: ironics}
    headers = {name: value for name, value in headers.items()
               if value is not None}
    try:
        asked = microversion_parse.get_version(
            headers, service_type='baremetal', legacy_headers=[HEADER])
        asked = most if (asked or '').lower() == 'latest' else asked or least
        parse = microversion_parse.parse_version_string
        if parse(least) <= parse(asked) <= parse(most):
            return asked
    except (ValueError, TypeError):
        raise exception.NotAcceptable(f'Invalid value for {HEADER} header')
    raise exception.NotAcceptable(
        f'Version {asked} was requested but is not supported by this '
        f'service. The supported version range is: [{least}, {most}].')
