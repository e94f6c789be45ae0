# SPDX-License-Identifier: Apache-2.0
"""Our application, which counts for Prometheus only as long as it is told to.

Two processes with the same code differ by some percent for as long as they
live, so that what counting costs is seen within one of them alone.
"""

from ironic_reservations import metrics
from ironic_reservations import wsgi

BOOK = metrics.book


def application(environ, start_response):
    metrics.book = BOOK if environ.get('HTTP_COUNTED') == 'yes' else None
    return wsgi.application(environ, start_response)
