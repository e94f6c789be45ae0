# SPDX-License-Identifier: Apache-2.0
"""The calls of the API on one screen, and how Pecan finds the right one."""

import re

import pecan

from ironic_reservations.api import capacity
from ironic_reservations.api import groups
from ironic_reservations.api import hosts
from ironic_reservations.api import reservations
from ironic_reservations.api import schema

#: Functions that answer requests, by path and method. A function is called
#: with the values of the names in its path, and returns JSON, or None for a
#: response without a body. GET answers HEAD as well. The first path that
#: matches is used, so a path with a fixed last word precedes one with a name.
ROUTES = {
    '/v1/reservations': {
        'GET': reservations.find,
        'POST': reservations.create,
    },
    '/v1/reservations/capacity': {
        'GET': capacity.show,
    },
    '/v1/reservations/groups': {
        'GET': groups.find,
        'POST': groups.create,
    },
    '/v1/reservations/groups/{uuid}': {
        'GET': groups.show,
        'DELETE': groups.delete,
    },
    '/v1/reservations/hosts': {
        'GET': hosts.find,
    },
    '/v1/reservations/hosts/{host}': {
        'PUT': hosts.hold,
        'DELETE': hosts.give_up,
    },
    '/v1/reservations/{instance_uuid}': {
        'GET': reservations.show,
        'PATCH': reservations.update,
        'DELETE': reservations.delete,
    },
}

#: The values that the names in a path may have.
NAMES = schema.Validator(schema.closed({
    'instance_uuid': schema.uuid, 'uuid': schema.uuid, 'host': schema.host,
}), 'path')

# A slash at the end of a path makes no difference.
_PATTERNS = [
    (re.compile(re.sub(r'{(\w+)}', r'(?P<\1>[^/]*)', path) + '/?'), {
        method: pecan.expose('json')(function)
        for method, function in functions.items()})
    for path, functions in ROUTES.items()]


class Application(pecan.Pecan):
    """Pecan with a table of routes instead of a tree of controllers."""

    def __init__(self):
        super().__init__(None,
                         # ".json" is no part of our paths.
                         guess_content_type_from_ext=False)

    def route(self, req, node, path):
        """Find the function that answers a request, and its arguments.

        :raises: InvalidInput when a name in the path cannot exist, whatever
            the method; HTTPNotFound; HTTPMethodNotAllowed.
        """
        for pattern, functions in _PATTERNS:
            if match := pattern.fullmatch(path):
                names = [value if name == 'host' else value.lower()
                         for name, value in NAMES(match.groupdict()).items()]
                return _choose(functions, req.method), names
        pecan.abort(404)

    def invoke_controller(self, controller, args, kwargs, state):
        """Call a function and make its result the JSON of the response.

        Pecan's own method inspects the function's signature for each request,
        which takes 7 percent of the CPU time of a hold.
        """
        result = controller(*args)
        if result is not None:
            state.response.content_type = 'application/json'
            state.response.json_body = result


def _choose(functions, method):
    """Return the function for a method.

    :param functions: dict of functions by method.
    :raises: HTTPMethodNotAllowed.
    """
    function = functions.get('GET' if method == 'HEAD' else method)
    if function is None:
        allowed = {*functions, *(['HEAD'] if 'GET' in functions else [])}
        pecan.abort(405, headers={'Allow': ', '.join(sorted(allowed))})
    return function
