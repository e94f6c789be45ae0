# SPDX-License-Identifier: Apache-2.0
"""The Ironic API plugin: ``[api] middleware = reservations``."""

from collections.abc import Iterable
from wsgiref import types

from ironic_reservations import conf
from ironic_reservations.api import app
from ironic_reservations.api import fence

PATH = '/v1/reservations'


class ReservationsMiddleware:
    """Serves /v1/reservations and the paths below; Ironic serves the rest.

    Requests to Ironic that carry the fence header must pass the fence first.

    Ironic places plugins outside its own middleware (authentication, CORS and
    so on), so ``api.app`` contains all that our paths need.

    :param ironic: Ironic's WSGI application.
    """

    def __init__(self, ironic: types.WSGIApplication) -> None:
        conf.register_opts()
        self.ironic = ironic
        self.reservations = app.make_app(ironic)
        self.fence = fence.Fence(ironic, self.reservations)

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        path = environ.get('PATH_INFO', '')
        is_ours = path == PATH or path.startswith(f'{PATH}/')
        application = (self.fence if fence.VARIABLE in environ
                       else self.reservations if is_ours else self.ironic)
        return application(environ, start_response)
