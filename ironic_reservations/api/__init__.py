# SPDX-License-Identifier: Apache-2.0
"""Serves the API over HTTP.

* ``app``: the WSGI stack, in one function.
* ``routes``: the table of all calls.
* ``reservations``, ``groups``, ``pools``, ``notices``, ``history``, ``hosts``,
  ``capacity``: one module per noun, with the JSON schemas of queries and
  bodies, the handlers, which parse, authorize, call and present, and the
  resources that only they show.
* ``schema``: parts of JSON schemas, and the errors of validation.
* ``requests`` and ``responses``: functions that all handlers need.
* ``specs`` and ``resources``: the keys of requests for nodes, and the
  resources in responses, that several nouns have.
* ``patches``: JSON Patches, the bodies of PATCH.
* ``markers``: markers of the next page of a list.
* ``fence``: checks requests to Ironic that carry the fence header.
* ``limits``: limits on a request before it is parsed.
* ``access``: the access log.
* ``version``: API versions, Ironic's and our own.
* ``errors``: the table of exceptions and statuses, and responses to them.
"""
