# SPDX-License-Identifier: Apache-2.0
"""Notifications that processes have sent to their log, or not."""

import json

import pytest

from tests.common import calls
from tests.common import recording

INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
#: Requests "req-1" and "req-2" of processes 11 and 12.
REQUESTS = ''.join(
    f'2026-11-30 07:12:04.976 1{number} INFO ironic_reservations.api.access '
    f'[None req-{number} - - - - - -] 127.0.0.1 - POST /v1/reservations - 201 '
    '(3.14ms)\n' for number in (1, 2))


def notify(action, process=11, **data):
    payload = json.dumps({'payload': {'ironic_object.data': data}})
    return (f'2026-11-30 07:12:04.977 {process} INFO oslo.messaging.'
            f'notification.baremetal.reservation.{action}.end [-] {payload}\n')


CREATE = notify('create', instance_uuid=INSTANCE)
DELETE = notify('delete', instance_uuid=INSTANCE)


def make_call(method='POST', status=201, request='req-1', **kwargs):
    return calls.Call(
        1, method, calls.OURS + f'/{INSTANCE}' * (method == 'DELETE'), {}, 0,
        1, 0, status, {'instance_uuid': INSTANCE, 'node_uuid': 'n',
                       'expires_at': None}, request, **kwargs)


@pytest.fixture
def read(tmp_path):
    def read(*lines):
        path = tmp_path / 'api.log'
        path.write_text(REQUESTS + ''.join(lines))
        return recording.Notifications([path])
    return read


def test_missing_notifications(read):
    hold, release = make_call(), make_call('DELETE', 204)
    assert read(CREATE, DELETE).find_missing([hold, release]) == []
    assert read(CREATE).find_missing([hold, release]) == [
        ('delete', INSTANCE)]
    assert read(DELETE).find_missing([hold, release]) == [
        ('create', INSTANCE)]
    # A refusal and a repeat need none.
    assert read().find_missing([make_call(status=409), make_call(
        is_repeat=True)]) == []


@pytest.mark.parametrize('line', [
    'DAMN ! worker 1 (pid: 11) died, killed by signal 9 :( trying respawn ...',
    '2026-11-30 07:12:04.977 11 WARNING ironic_reservations.notifications '
    '[-] Dropped notification baremetal.reservation.create.end, because 512 '
    'notifications are waiting to be sent; 1 dropped so far',
    '2026-11-30 07:12:04.977 11 WARNING ironic_reservations.reservations.'
    'transaction [None req-1 - - - - - -] The response to a COMMIT was lost; '
    'retrying, which finds out what was committed for instance x'])
def test_notifications_that_may_be_missing(read, line):
    notifications = read(line)
    assert notifications.find_missing([make_call()]) == []
    assert notifications.find_missing([make_call(request='req-2')]) == [
        ('create', INSTANCE)]


def test_duplicate_notifications(read):
    row = calls.Row(INSTANCE, 'n')
    assert read(CREATE, DELETE).find_duplicates([], [row]) == []
    notifications = read(CREATE, DELETE, DELETE)
    assert notifications.find_duplicates([], [row]) == [('delete', INSTANCE)]
    # An instance whose lease has expired may get another node.
    assert notifications.find_duplicates([], [row, row]) == []
    # The log has those of earlier tests.
    assert notifications.find_duplicates([], []) == []


@pytest.mark.parametrize('kind, name', [
    ('pools', 'u'), ('notices', 'u a')])
def test_duplicate_notifications_of_pools_and_notices(read, kind, name):
    call = calls.Call(1, 'POST', f'{calls.OURS}/{kind}', {'uuid': 'u'}, 0)
    create, update = (notify(f'{kind[:-1]}.{action}', uuid='u', node_uuid='a')
                      for action in ('create', 'update'))
    assert read(create, update, update).find_duplicates([call], []) == []
    assert read(create, create).find_duplicates([call], []) == [
        (f'{kind[:-1]}.create', name)]
