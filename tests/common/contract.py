# SPDX-License-Identifier: Apache-2.0
"""Checks that apply to every response."""

import json
import re

from tests.common import openapi

VERSION_HEADERS = ('X-OpenStack-Ironic-API-Version',
                   'X-OpenStack-Ironic-API-Minimum-Version',
                   'X-OpenStack-Ironic-API-Maximum-Version')
#: Only our responses have it; those of Ironic also have the ones above.
OWN_HEADER = 'X-OpenStack-Ironic-Reservations-Version'
REQUEST_ID_HEADERS = ('x-openstack-request-id', 'openstack-request-id')

# Code, SQL and paths, which no response may reveal.
LEAK = re.compile(
    r'Traceback|File "|\.py\b|site-packages|sqlalchemy|pymysql|sqlite|'
    r'\bSELECT\b|\bINSERT INTO\b|\bUPDATE nodes\b|\bDELETE FROM\b|'
    r'/tmp/|/usr/|/home/|/var/|/etc/', re.IGNORECASE)


def check(response, status=None):
    """Check the headers and the format of a response.

    :param status: one status code, a tuple of them, or None for all below
        500.
    :returns: the text of an error, or None.
    """
    if status is None:
        assert response.status_code < 500, response.text
    else:
        expected = status if isinstance(status, tuple) else (status,)
        assert response.status_code in expected, response.text
    missing = [name for name in (*VERSION_HEADERS, OWN_HEADER,
                                 *REQUEST_ID_HEADERS)
               if not response.headers.get(name)]
    assert not missing, missing
    if response.status_code == 204 or response.request.method == 'HEAD':
        assert not response.content
        return None
    assert response.headers['Content-Type'] == 'application/json'
    openapi.check(response)
    return fault(response) if response.status_code >= 400 else None


def fault(response):
    """Return the text of an error in Ironic's envelope."""
    assert not LEAK.search(response.text), response.text
    inner = json.loads(response.json()['error_message'])
    assert set(inner) == {'faultcode', 'faultstring', 'debuginfo'}
    assert inner['faultcode'] == (
        'Client' if response.status_code < 500 else 'Server')
    assert inner['debuginfo'] is None
    assert inner['faultstring']
    return inner['faultstring']
