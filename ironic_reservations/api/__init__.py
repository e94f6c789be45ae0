# SPDX-License-Identifier: Apache-2.0
"""Serves the API over HTTP.

* ``app``: the WSGI stack, in one function.
* ``routes``: the table of all calls.
* ``reservations``, ``groups``, ``hosts``, ``capacity``: one module per noun,
  with the JSON schemas of queries and bodies, the handlers, and the resources
  in responses.
* ``schema``: parts of JSON schemas, and the errors of validation.
* ``requests`` and ``responses``: functions that the handlers share.
* ``markers``: markers of the next page of a list.
* ``limits``: limits on a request before it is parsed.
* ``access``: the access log.
* ``version``: API versions, Ironic's and our own.
* ``errors``: responses to exceptions.
"""
