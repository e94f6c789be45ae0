# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the API.

* ``app``: the WSGI stack, in one function.
* ``controllers``: the calls.
* ``schema``: what requests may contain; ``types``: what answers contain.
* ``limits``: bounds on a request that hold before it is parsed.
* ``version``: Ironic's API versions.
* ``errors``: the answers to exceptions.
"""
