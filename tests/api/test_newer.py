# SPDX-License-Identifier: Apache-2.0
"""Clients and an API that is newer than they are."""

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
UNHEARD_OF = {'of_a_later_release': {'a': [{'b': None}]}}


class Newer:
    """Answers as a later release may: with keys that nobody knows yet."""

    def __init__(self):
        self.application = middleware.ReservationsMiddleware(
            webob.exc.HTTPNotFound())

    @webob.dec.wsgify
    def __call__(self, request):
        if request.path == '/':
            # What openstacksdk asks before anything else.
            return webob.Response(json_body={'versions': [{
                'id': 'v1', 'status': 'CURRENT', 'min_version': '1.1',
                'version': '1.999', 'links': [{
                    'rel': 'self', 'href': f'{request.host_url}/v1/'}]}]})
        answer = request.get_response(self.application)
        answer.headers[version.OWN_HEADER] = '1.99'
        if answer.body:
            answer.json_body = more(answer.json_body)
        return answer


def more(value):
    if isinstance(value, list):
        return [more(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: more(each) for key, each in value.items()}
    # The texts that go by a name of their own stay as they are.
    return found if 'error_message' in found else {**found, **UNHEARD_OF}


@pytest.fixture
def url(ironic):
    with ironic.fleet(NODE, NODE), interceptor.RequestsInterceptor(
            Newer, f'{uuid.uuid4()}.test', 80) as url:
        yield url


def test_commands_go_on(url):
    def run(*words):
        done = command.run(url, 'baremetal', 'reservation', *words,
                           '-f', 'json')
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)

    held = run('create', '--resource-class', 'newer', '--ram', '1024')
    assert held['state'] == 'reserved'
    ident = held['instance_uuid']
    assert run('show', ident)['node_uuid'] == held['node_uuid']
    assert [each['Instance UUID'] for each in run('list')] == [ident]
    assert [each['Resource Class'] for each in run('capacity', 'list')] == [
        'newer']
    refused = command.run(url, 'baremetal', 'reservation', 'create',
                          '--resource-class', 'newer', '--ram', '8192')
    assert 'No free node matches' in refused.stderr


def test_library_goes_on(url):
    connection = openstack.connect(
        load_envvars=False, load_yaml_config=False, auth_type='none',
        endpoint=url)
    with contextlib.closing(connection):
        connection.add_service(sdk.SERVICE)
        ours = connection.baremetal_reservations
        assert ours.endpoint_version() == '1.99'
        held = ours.create(resource_class='newer', memory_mb=1024)
        assert ours.show(held).node_uuid == held.node_uuid
        assert [each.id for each in ours.list()] == [held.id]
        ours.release(held)
        assert not list(ours.list())
