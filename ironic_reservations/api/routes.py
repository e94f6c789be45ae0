# SPDX-License-Identifier: Apache-2.0
"""The table of all calls of the API, and a Pecan application for it."""

from collections.abc import Callable
import re
from typing import Any

import pecan
import webob.exc

from ironic_reservations.api import capacity
from ironic_reservations.api import groups
from ironic_reservations.api import history
from ironic_reservations.api import hosts
from ironic_reservations.api import notices
from ironic_reservations.api import pools
from ironic_reservations.api import reservations
from ironic_reservations.api import schema

# Called with the values of the names in its path; returns JSON, or None for a
# response without a body.
_Handler = Callable[..., dict[str, Any] | None]

#: Handlers by path and method. GET also serves HEAD. The first path that
#: matches is used, so a path with a fixed last word precedes one with a name.
ROUTES: dict[str, dict[str, _Handler]] = {
    '/v1/reservations': {
        'GET': reservations.list_reservations,
        'POST': reservations.create_reservation,
    },
    '/v1/reservations/capacity': {
        'GET': capacity.show_capacity,
    },
    '/v1/reservations/groups': {
        'GET': groups.list_groups,
        'POST': groups.create_group,
    },
    '/v1/reservations/groups/{uuid}': {
        'GET': groups.show_group,
        'PATCH': groups.update_group,
        'DELETE': groups.delete_group,
    },
    '/v1/reservations/history': {
        'GET': history.list_history,
    },
    '/v1/reservations/hosts': {
        'GET': hosts.list_host_leases,
    },
    '/v1/reservations/hosts/{host}': {
        'PUT': hosts.acquire_host_lease,
        'DELETE': hosts.give_up_host_lease,
    },
    '/v1/reservations/notices': {
        'GET': notices.list_notices,
        'POST': notices.create_notices,
    },
    '/v1/reservations/notices/{uuid}': {
        'PATCH': notices.update_notices,
    },
    '/v1/reservations/pools': {
        'GET': pools.list_pools,
        'POST': pools.create_pool,
    },
    '/v1/reservations/pools/{uuid}': {
        'GET': pools.show_pool,
        'PATCH': pools.update_pool,
        'DELETE': pools.delete_pool,
    },
    '/v1/reservations/pools/{uuid}/nodes': {
        'POST': pools.change_nodes,
    },
    '/v1/reservations/pools/{uuid}/nodes/{node}': {
        'DELETE': pools.remove_node,
    },
    '/v1/reservations/{instance_uuid}': {
        'GET': reservations.show_reservation,
        'PATCH': reservations.update_reservation,
        'DELETE': reservations.delete_reservation,
    },
}

#: Schema of the names in a path.
NAMES = schema.Validator(schema.closed_object({
    'instance_uuid': schema.UUID, 'uuid': schema.UUID, 'host': schema.HOST,
    'node': schema.IDENT,
}), 'path')

# A slash at the end of a path is ignored.
_PATTERNS = [
    (re.compile(re.sub(r'{(\w+)}', r'(?P<\1>[^/]*)', path) + '/?'), {
        method: pecan.expose('json')(handler)
        for method, handler in handlers.items()})
    for path, handlers in ROUTES.items()]


class Application(pecan.Pecan):
    """Pecan with a table of routes instead of a tree of controllers.

    ``route`` is overridden for the table. ``invoke_controller`` is overridden
    because Pecan's method inspects the function's signature for each request,
    which takes 7 percent of the CPU time of a hold.
    """

    def __init__(self) -> None:
        # Our paths have no extension such as ".json".
        super().__init__(None, guess_content_type_from_ext=False)

    def route(self, req: pecan.Request, node: None,
              path: str) -> tuple[_Handler, list[str]]:
        """Return the handler of a request, and its arguments.

        :raises: InvalidInput if a name in the path cannot exist, whatever the
            method; HTTPNotFound; HTTPMethodNotAllowed.
        """
        for pattern, handlers in _PATTERNS:
            if match := pattern.fullmatch(path):
                names = [value if name in ('host', 'node') else value.lower()
                         for name, value in NAMES(match.groupdict()).items()]
                return _choose_handler(handlers, req.method), names
        raise webob.exc.HTTPNotFound()

    def invoke_controller(self, controller: _Handler, args: list[str],
                          kwargs: dict[str, Any], state: Any) -> None:
        """Call a handler, and make its result the JSON of the response."""
        result = controller(*args)
        if result is not None:
            state.response.content_type = 'application/json'
            state.response.json_body = result


def _choose_handler(handlers: dict[str, _Handler], method: str) -> _Handler:
    """Return the handler of a method.

    :raises: HTTPMethodNotAllowed.
    """
    handler = handlers.get('GET' if method == 'HEAD' else method)
    if handler is None:
        methods = {*handlers, *(['HEAD'] if 'GET' in handlers else [])}
        raise webob.exc.HTTPMethodNotAllowed(
            headers={'Allow': ', '.join(sorted(methods))})
    return handler
