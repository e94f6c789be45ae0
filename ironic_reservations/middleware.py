# SPDX-License-Identifier: Apache-2.0
"""The Ironic API plugin: ``[api] middleware = reservations``."""

from ironic_reservations import conf
from ironic_reservations import fence
from ironic_reservations.api import app as api_app

PATH = '/v1/reservations'


class ReservationsMiddleware:
    """Answer /v1/reservations and the paths below; leave the rest to Ironic.

    Of the rest, what says for which reservation it is meant has to pass the
    fence.

    Ironic puts a plugin outside of its own middleware (authentication, CORS
    and so on), so ``api.app`` brings all that our paths need.

    :param ironic: Ironic's WSGI application.
    """

    def __init__(self, ironic):
        conf.register_opts()
        self.ironic = ironic
        self.reservations = api_app.make_app(ironic, fence.Gate)
        self.fence = fence.Fence(ironic, self.reservations)

    def __call__(self, environ, start_response):
        path = environ.get('PATH_INFO', '')
        ours = path == PATH or path.startswith(f'{PATH}/')
        app = (self.fence if fence.VARIABLE in environ
               else self.reservations if ours else self.ironic)
        return app(environ, start_response)
