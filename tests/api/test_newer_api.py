# SPDX-License-Identifier: Apache-2.0
"""Clients of an API that is newer than they are."""

import contextlib
import json
import uuid

import openstack
import pytest
import webob
import webob.dec
import webob.exc
from wsgi_intercept import interceptor

from ironic_reservations import middleware
from ironic_reservations import sdk
from ironic_reservations.api import version
from tests.common import command

NODE = {'resource_class': 'newer', 'properties': {'memory_mb': 4096}}
NEW_KEY = {'of_a_later_release': {'a': [{'b': None}]}}


class Newer:
    """Answers as a later release may: with unknown keys."""

    def __init__(self):
        self.application = middleware.ReservationsMiddleware(
            webob.exc.HTTPNotFound())

    @webob.dec.wsgify
    def __call__(self, request):
        if request.path == '/':
            # The first request of openstacksdk.
            return webob.Response(json_body={'versions': [{
                'id': 'v1', 'status': 'CURRENT', 'min_version': '1.1',
                'version': '1.999', 'links': [{
                    'rel': 'self', 'href': f'{request.host_url}/v1/'}]}]})
        response = request.get_response(self.application)
        response.headers[version.OWN_HEADER] = '1.99'
        if response.body:
            response.json_body = add_keys(response.json_body)
        return response


def add_keys(value):
    if isinstance(value, list):
        return [add_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: add_keys(item) for key, item in value.items()}
    # Objects of names and texts are not extended.
    return result if 'error_message' in result else {**result, **NEW_KEY}


@pytest.fixture
def url(ironic):
    with ironic.fleet(NODE, NODE), interceptor.RequestsInterceptor(
            Newer, f'{uuid.uuid4()}.test', 80) as url:
        yield url


def test_commands_accept_unknown_keys(url):
    def run(*words):
        result = command.run(url, 'baremetal', 'reservation', *words,
                             '-f', 'json')
        assert not result.returncode, result.stderr
        return json.loads(result.stdout)

    reservation = run('create', '--resource-class', 'newer', '--ram', '1024')
    assert reservation['state'] == 'reserved'
    instance_uuid = reservation['instance_uuid']
    assert run('show', instance_uuid)['node_uuid'] == reservation['node_uuid']
    assert [row['Instance UUID'] for row in run('list')] == [instance_uuid]
    assert [row['Resource Class'] for row in run('capacity', 'list')] == [
        'newer']
    refusal = command.run(url, 'baremetal', 'reservation', 'create',
                          '--resource-class', 'newer', '--ram', '8192')
    assert 'No free node matches' in refusal.stderr


def test_library_accepts_unknown_keys(url):
    connection = openstack.connect(
        load_envvars=False, load_yaml_config=False, auth_type='none',
        endpoint=url)
    with contextlib.closing(connection):
        connection.add_service(sdk.SERVICE)
        ours = connection.baremetal_reservations
        assert ours.endpoint_version() == '1.99'
        reservation = ours.create(resource_class='newer', memory_mb=1024)
        assert ours.show(reservation).node_uuid == reservation.node_uuid
        assert [row.id for row in ours.list()] == [reservation.id]
        ours.release(reservation)
        assert not list(ours.list())
