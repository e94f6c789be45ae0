# SPDX-License-Identifier: Apache-2.0
"""Ironic starts with the plugin, which handles only its own path."""

import pytest

from tests.common import command
from tools import services

OURS = '/v1/reservations'
BOTH = pytest.mark.parametrize('ironic', ['sqlite', 'server'], indirect=True)


@BOTH
def test_reservations_are_listed(ironic, resource_class):
    response = ironic.http.get(OURS,
                               params={'resource_class': resource_class})
    assert response.status_code == 200
    assert response.json()['reservations'] == []


@pytest.mark.parametrize('path', [
    '/', '/v1', '/v1/nodes?resource_class=none', '/v1/nodes/none',
    '/v1/allocations?resource_class=none', '/v1/reservationsandmore',
    '/reservations'])
def test_other_paths_are_ironics(ironic, stock_ironic, path):
    assert get_response(ironic, path) == get_response(stock_ironic, path)


def get_response(ironic, path):
    response = ironic.http.get(path)
    headers = {name: value for name, value in response.headers.items()
               if name != 'Date' and 'request-id' not in name.lower()}
    return (response.status_code, headers,
            response.text.replace(ironic.url, 'http://ironic'))


def test_clients_do_not_keep_connections(ironic):
    """The server may close an idle connection when a request arrives."""
    for client in ironic.http, ironic.baremetal:
        assert client.get('/v1/nodes').headers['Connection'] == 'close'


def test_openstack_command_without_the_plugin(stock_ironic):
    result = command.run(stock_ironic.url, 'baremetal', 'reservation', 'list')
    assert (result.returncode, result.stdout) == (1, '')
    assert result.stderr == (
        f'Ironic at {stock_ironic.url} has no reservations: its API plugin of '
        'ironic-reservations is not enabled.\n')


@pytest.mark.long
def test_plugin_in_ironics_wsgi_application(start_ironic, start_uwsgi):
    # The conductor is another process, which the API reaches by JSON-RPC.
    json_rpc = {'host_ip': '127.0.0.1', 'port': services.free_port(),
                'auth_strategy': 'noauth'}
    with start_ironic(config={'DEFAULT': {'rpc_transport': 'json-rpc'},
                              'json_rpc': json_rpc}) as ironic, \
            start_uwsgi(ironic, 'ironic.wsgi:application') as api:
        assert api.http.get(OURS).status_code == 200
        with api.fleet({'resource_class': 'gold'}) as nodes:
            assert nodes[0].power_state == 'power off'
