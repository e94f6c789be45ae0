# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the API.

* ``app``: the WSGI stack, in one function.
* ``routes``: the table of all calls.
* ``reservations``, ``groups``, ``hosts``, ``capacity``: the calls. Each
  parses, authorizes, calls and presents.
* ``requests``, ``answers`` and ``markers``: what the calls share.
* ``bodies`` and ``queries``: what requests may contain, by a JSON schema for
  each call. The schemas are made of the parts in ``schema``. ``checks`` has
  the rules that a schema cannot say.
* ``types``: what answers contain.
* ``limits``: bounds on a request that hold before it is parsed.
* ``fence``: checks requests to Ironic that name a reservation.
* ``access``: the line of the log for each request.
* ``version``: Ironic's API versions.
* ``errors``: the answers to exceptions.
"""
