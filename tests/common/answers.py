# SPDX-License-Identifier: Apache-2.0
"""What every answer must be."""

import json
import re

VERSION_HEADERS = ('X-OpenStack-Ironic-API-Version',
                   'X-OpenStack-Ironic-API-Minimum-Version',
                   'X-OpenStack-Ironic-API-Maximum-Version')
#: Ours alone; those above are Ironic's, too.
OWN_HEADER = 'X-OpenStack-Ironic-Reservations-Version'
REQUEST_ID_HEADERS = ('x-openstack-request-id', 'openstack-request-id')

# What no answer may tell: code, SQL, paths.
LEAK = re.compile(
    r'Traceback|File "|\.py\b|site-packages|sqlalchemy|pymysql|sqlite|'
    r'\bSELECT\b|\bINSERT INTO\b|\bUPDATE nodes\b|\bDELETE FROM\b|'
    r'/tmp/|/usr/|/home/|/var/|/etc/', re.IGNORECASE)


def check(response, status=None):
    """Headers and form of an answer; returns an error's text, or None.

    :param status: one status code, a tuple of them, or None for all below
        500.
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
    return fault(response) if response.status_code >= 400 else None


def fault(response):
    """The text of an error in Ironic's envelope."""
    assert not LEAK.search(response.text), response.text
    inner = json.loads(response.json()['error_message'])
    assert set(inner) == {'faultcode', 'faultstring', 'debuginfo'}
    assert inner['faultcode'] == (
        'Client' if response.status_code < 500 else 'Server')
    assert inner['debuginfo'] is None
    assert inner['faultstring']
    return inner['faultstring']
