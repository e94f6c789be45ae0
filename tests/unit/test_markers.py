# SPDX-License-Identifier: Apache-2.0
"""Markers of lists: their values, and invalid markers."""

import base64
import datetime
import json

import pytest

from ironic_reservations import exception
from ironic_reservations.api import markers
from ironic_reservations.api import reservations
from tests.common import bad_requests

TIME = datetime.datetime(2026, 1, 2, 3, 4, 5)
ORDER = {'host': 'asc', 'created_at': 'desc', 'id': 'desc'}
KINDS = [str, datetime.datetime, int]


def forge(*values):
    """Return the marker of any JSON."""
    text = json.dumps(values, ensure_ascii=False, separators=(',', ':')
                      ).encode(errors='surrogatepass')
    return base64.urlsafe_b64encode(text).decode().rstrip('=')


ORDER_OF_MARKER = json.loads(base64.urlsafe_b64decode(
    markers.encode(ORDER, []) + '=='))[1]


@pytest.mark.parametrize('values', [
    ['a', TIME, 7], ['', datetime.datetime.min, 0],
    ['\U0001F600\n', TIME.replace(microsecond=1), 2 ** 63 - 1]], ids=str)
def test_marker_values(values):
    marker = markers.encode(ORDER, values)
    assert reservations.LIST_QUERY({'marker': marker})
    assert markers.decode(marker, ORDER, KINDS) == values


def test_longest_marker():
    marker = markers.encode(ORDER, ['\1' * 255] * 3)
    assert reservations.LIST_QUERY({'marker': marker})


def test_no_marker():
    assert markers.decode(None, ORDER, KINDS) is None


def test_uuid_as_marker():
    assert markers.decode(bad_requests.HELD.upper(), ORDER, KINDS,
                          lambda uuid: [uuid]) == [bad_requests.HELD]


def test_of_another_order():
    marker = markers.encode(ORDER, ['a', TIME, 7])
    for order in (dict(reversed(ORDER.items())), 'groups',
                  dict.fromkeys(ORDER, 'asc')):
        with pytest.raises(exception.InvalidInput):
            markers.decode(marker, order, KINDS)


@pytest.mark.parametrize('values', [
    ['a', TIME.isoformat()], ['a', TIME.isoformat(), 7, 7],
    [None, TIME.isoformat(), 7], [1, TIME.isoformat(), 7],
    ['\0', TIME.isoformat(), 7], ['\ud800', TIME.isoformat(), 7],
    [['a'], TIME.isoformat(), 7], ['a', 'yesterday', 7], ['a', 7, 7],
    ['a', '2026-01-02', 7], ['a', '2026-13-02T03:04:05', 7],
    ['a', '2026-01-02T03:04:05+00:00', 7], ['a', None, 7],
    ['a', TIME.isoformat(), None], ['a', TIME.isoformat(), '7'],
    ['a', TIME.isoformat(), True], ['a', TIME.isoformat(), 7.0],
    ['a', TIME.isoformat(), -1], ['a', TIME.isoformat(), 2 ** 63],
    ['a', TIME.isoformat(), {}]], ids=str)
def test_forged_values(values):
    assert markers.decode(forge(1, ORDER_OF_MARKER, 'a', TIME.isoformat(), 7),
                          ORDER, KINDS) == ['a', TIME, 7]
    with pytest.raises(exception.InvalidInput):
        markers.decode(forge(1, ORDER_OF_MARKER, *values), ORDER, KINDS)


@pytest.mark.parametrize('text', [
    b'', b'\xff', b'null', b'5', b'{}', b'[]', b'[1]', b'NaN', b'"abcde"',
    b'[' * 6000, b'[1,"' + ORDER_OF_MARKER.encode() + b'","a",NaN,7]',
    b'[2,"%s","a","%s",7]' % (ORDER_OF_MARKER.encode(),
                              TIME.isoformat().encode()),
    b'[1, "%s","a","%s",7]' % (ORDER_OF_MARKER.encode(),
                               TIME.isoformat().encode()),
    b'[1,"%s","a","%s",%s]' % (
        ORDER_OF_MARKER.encode(), TIME.isoformat().encode(), b'1' * 5000),
    '[1,"x","ä"]'.encode('utf-16')], ids=lambda text: text[:40])
def test_forged_text(text):
    marker = base64.urlsafe_b64encode(text).decode().rstrip('=')
    with pytest.raises(exception.InvalidInput):
        markers.decode(marker, ORDER, KINDS)


@pytest.mark.parametrize('damage', [
    lambda marker: marker[:-1], lambda marker: marker[1:],
    lambda marker: marker + 'A', lambda marker: marker + '=',
    lambda marker: 'x', str.swapcase, lambda marker: marker[::-1]])
def test_damaged_marker(damage):
    marker = markers.encode(ORDER, ['a', TIME, 7])
    with pytest.raises(exception.InvalidInput) as refusal:
        markers.decode(damage(marker), ORDER, KINDS)
    assert str(refusal.value).startswith('marker: must come from the "next" ')


def test_marker_of_bad_requests_is_good():
    assert markers.decode(bad_requests.MARKER, {'id': 'asc'}, [int]) == [1]
