# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the API.

* ``app``: the WSGI stack, in one function.
* ``routes``: the table of all calls.
* ``reservations``, ``groups``, ``hosts``, ``capacity``: one module per noun,
  with the JSON schemas of queries and bodies, the calls, and what they show.
* ``schema``: the parts of the schemas, and their errors.
* ``requests`` and ``answers``: what the calls share.
* ``markers``: where the next page of a list begins.
* ``limits``: bounds on a request that hold before it is parsed.
* ``access``: the line of the log for each request.
* ``version``: Ironic's API versions.
* ``errors``: the answers to exceptions.
"""
