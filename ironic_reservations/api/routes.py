# SPDX-License-Identifier: Apache-2.0
"""The calls of the API on one screen, and how Pecan finds the right one."""

import re

import pecan

from ironic_reservations.api import capacity
from ironic_reservations.api import groups
from ironic_reservations.api import hosts
from ironic_reservations.api import reservations
from ironic_reservations.api import schema

#: By path and method, the function that answers a request. It is called with
#: what the path names, and returns JSON, or None for an answer without a
#: body. GET answers HEAD, too. The first path that fits is taken, so those
#: with a fixed last word stand before those with a name in its place.
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

#: What the names in a path may be.
NAMES = schema.Validator(schema.closed({
    'instance_uuid': schema.uuid, 'uuid': schema.uuid, 'host': schema.host,
}), 'path')

# A slash at the end of a path makes no difference.
_PATTERNS = [
    (re.compile(re.sub(r'{(\w+)}', r'(?P<\1>[^/]*)', path) + '/?'), calls)
    for path, calls in ROUTES.items()]


class Call:
    """The function that answers a request, and what the path names."""

    def __init__(self, function, names):
        self._function = function
        self._names = names

    @pecan.expose('json')
    def answer(self):
        return self._function(*self._names)


class Root:
    """The object at which Pecan begins to look for what answers a request."""

    @pecan.expose()
    def _lookup(self, *segments):
        """Find a request's call in the table.

        Pecan calls this by its name. It would pass the request to a method
        named ``_route``, but inspects the signature of one each time, which
        costs 0.2 ms.

        :returns: the method that answers and the segments that are left, or
            None, which makes Pecan answer 404.
        :raises: InvalidInput when the path names something that cannot be
            there, whatever the method; HTTPMethodNotAllowed.
        """
        path, method = '/' + '/'.join(segments), pecan.request.method
        for pattern, calls in _PATTERNS:
            if found := pattern.fullmatch(path):
                names = [text if name == 'host' else text.lower()
                         for name, text in NAMES(found.groupdict()).items()]
                return Call(_function(calls, method), names).answer, []
        return None


def _function(calls, method):
    """The function of a path that answers a method.

    :param calls: dict of functions by method.
    :raises: HTTPMethodNotAllowed.
    """
    function = calls.get('GET' if method == 'HEAD' else method)
    if function is None:
        allowed = {*calls, *(['HEAD'] if 'GET' in calls else [])}
        pecan.abort(405, headers={'Allow': ', '.join(sorted(allowed))})
    return function


class Application(pecan.Pecan):
    """Pecan, with these routes."""

    def __init__(self):
        super().__init__(Root(),
                         # ".json" is no part of our paths.
                         guess_content_type_from_ext=False)

    def invoke_controller(self, controller, args, kwargs, state):
        """Call a method and make its result the JSON of the answer.

        Pecan's own inspects the method's signature for each request, to find
        the arguments that it takes, of which ours have none, and so costs
        0.16 ms: 7 percent of the CPU time of a hold.
        """
        result = controller()
        if result is not None:
            state.response.content_type = 'application/json'
            state.response.json_body = result
