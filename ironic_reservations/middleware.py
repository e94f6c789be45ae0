# SPDX-License-Identifier: Apache-2.0
"""The Ironic API plugin: ``[api] middleware = reservations``."""

from ironic_reservations import conf
from ironic_reservations.api import app as api_app

PATH = '/v1/reservations'


class ReservationsMiddleware:
    """Answer /v1/reservations and what lies below; leave Ironic the rest.

    Ironic applies it outside of its own middleware, so that ours brings all
    of its own.

    :param ironic: Ironic's WSGI application.
    """

    def __init__(self, ironic):
        conf.register_opts()
        self.ironic = ironic
        self.reservations = api_app.make_app(ironic)

    def __call__(self, environ, start_response):
        path = environ.get('PATH_INFO', '')
        ours = path == PATH or path.startswith(f'{PATH}/')
        app = self.reservations if ours else self.ironic
        return app(environ, start_response)
