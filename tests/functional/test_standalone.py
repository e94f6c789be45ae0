# SPDX-License-Identifier: Apache-2.0
"""The standalone application: next to an Ironic, and without its tables."""

import contextlib
import uuid

import pytest

from tests.common import contract
from tests.common import service
from tools import services

OURS = service.OURS
POOL = [{}] * 3


def test_application_alone(ironic, alone, pool, node_class):
    body = {'resource_class': node_class, 'host': 'h',
            'instance_uuid': str(uuid.uuid4())}
    response = alone.http.post(OURS, json=body)
    contract.check(response, 201)
    hold = response.json()
    assert response.headers['Location'] == (
        f'{alone.url}{OURS}/{body["instance_uuid"]}')
    links = hold.pop('links')
    reservation = ironic.show(body['instance_uuid'])
    assert reservation.pop('links') != links
    assert reservation == hold
    # A repeated request may be sent to either of them.
    assert ironic.create(200, **body)['node_uuid'] == hold['node_uuid']
    assert ironic.find_instance(hold['node_uuid']) == body['instance_uuid']
    assert len(alone.list(resource_class=node_class)) == 1
    alone.create(409, **body, memory_mb=1)
    alone.create(422, resource_class='elsewhere')
    contract.check(alone.http.put(OURS), 405)
    alone.delete(body['instance_uuid'])
    alone.show(body['instance_uuid'], 404)


@pytest.mark.parametrize('path', ['/', '/v1/nodes',
                                  '/v1/reservationsandmore'])
def test_application_alone_has_no_other_paths(alone, path):
    response = alone.http.get(path)
    assert response.status_code == 404
    assert response.headers['Content-Type'] == 'application/json'
    assert contract.fault(response) == 'Not Found'


def test_versions_of_the_application_alone(alone, ironic):
    for name in contract.VERSION_HEADERS:
        assert (alone.http.get(OURS).headers[name]
                == ironic.http.get(OURS).headers[name])
    response = alone.http.get(OURS, headers={
        'X-OpenStack-Ironic-API-Version': 'x'})
    contract.check(response, 406)


# Without the table, without the database


def assert_unavailable(ironic):
    for method, path in (('GET', OURS), ('POST', OURS),
                         ('GET', f'{OURS}/{str(uuid.uuid4())}'),
                         ('DELETE', f'{OURS}/{str(uuid.uuid4())}')):
        response = ironic.http.request(
            method, path, json={'resource_class': 'x'}
            if method == 'POST' else None)
        contract.check(response, 503)
        assert int(response.headers['Retry-After']) > 0
    # Invalid requests are still refused as such.
    contract.check(ironic.http.post(OURS, json={'foo': 1}), 400)


@contextlib.contextmanager
def without_table(ironic):
    ironic.execute('ALTER TABLE reservations RENAME TO gone')
    try:
        yield
    finally:
        ironic.execute('ALTER TABLE gone RENAME TO reservations')


@pytest.mark.parametrize('ironic', ['sqlite', 'server'], indirect=True)
def test_table_that_was_dropped(ironic, pool):
    with without_table(ironic):
        assert_unavailable(ironic)
        assert_ironic_works(ironic, pool)
    contract.check(ironic.http.get(OURS), 200)


def assert_ironic_works(ironic, pool):
    nodes = ironic.http.get('/v1/nodes')
    assert nodes.status_code == 200
    assert {node.id for node in pool} <= {
        node['uuid'] for node in nodes.json()['nodes']}
    response = ironic.http.patch(
        f'/v1/nodes/{pool[0].id}',
        json=[{'op': 'add', 'path': '/extra/a', 'value': 'b'}])
    assert response.status_code == 200


def test_table_that_is_missing_at_the_start(
        start_uwsgi, ironic, pool, node_class, tmp_path):
    with contextlib.ExitStack() as stack:
        with without_table(ironic):
            # These processes start without the table.
            alone = stack.enter_context(start_uwsgi(
                ironic, processes=2, changes={
                    'DEFAULT': {'log_dir': tmp_path}}))
            assert_unavailable(alone)
        # Under uWSGI, oslo.log would choose a name of Python's.
        log, = tmp_path.iterdir()
        assert log.name == 'ironic-reservations.log'
        assert 'GET /v1/reservations - 503' in log.read_text()
        assert 'run "ironic-reservations-dbsync upgrade"' in log.read_text()
        for _ in range(4):
            hold = alone.create(resource_class=node_class)
            alone.delete(hold['instance_uuid'])


@pytest.mark.long
def test_database_that_cannot_be_reached(tmp_path):
    conf_file = tmp_path / 'ironic.conf'
    conf_file.write_text(
        '[DEFAULT]\nauth_strategy = noauth\n'
        '[database]\nconnection = mysql+pymysql://root:secret@localhost/x'
        f'?unix_socket={tmp_path}/nobody\n')
    with services.uwsgi('ironic_reservations.wsgi:application',
                        str(conf_file), services.free_port(),
                        processes=1) as running:
        alone = service.Ironic(running)
        response = alone.http.post(OURS, json={'resource_class': 'x'})
        text = contract.check(response, 503)
        assert int(response.headers['Retry-After']) > 0
        assert 'secret' not in text and str(tmp_path) not in text
        contract.check(alone.http.post(OURS, json={'foo': 'x'}), 400)
