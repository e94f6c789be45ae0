# SPDX-License-Identifier: Apache-2.0
"""Ironic comes up with the plugin, which answers its own path alone."""

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
    assert answer(ironic, path) == answer(stock_ironic, path)


def answer(ironic, path):
    response = ironic.http.get(path)
    headers = {name: value for name, value in response.headers.items()
               if name != 'Date' and 'request-id' not in name.lower()}
    return (response.status_code, headers,
            response.text.replace(ironic.url, 'http://ironic'))


def test_clients_keep_no_connection(ironic):
    """The server closes it when it is idle, while the next request comes."""
    for client in ironic.http, ironic.baremetal:
        assert client.get('/v1/nodes').headers['Connection'] == 'close'


def test_openstack_command_without_the_plugin(stock_ironic):
    result = command.run(stock_ironic.url, 'baremetal', 'reservation', 'list')
    assert (result.returncode, result.stdout) == (1, '')
    assert result.stderr == (
        f'Ironic at {stock_ironic.url} has no reservations: its API plugin of '
        'ironic-reservations is not enabled.\n')


@pytest.mark.long
def test_plugin_answers_in_ironics_wsgi_application(start_ironic,
                                                    start_uwsgi):
    # The conductor is another process, so the API needs a way to it.
    json_rpc = {'host_ip': '127.0.0.1', 'port': services.free_port(),
                'auth_strategy': 'noauth'}
    with start_ironic(config={'DEFAULT': {'rpc_transport': 'json-rpc'},
                              'json_rpc': json_rpc}) as ironic, \
            start_uwsgi(ironic, 'ironic.wsgi:application') as api:
        assert api.http.get(OURS).status_code == 200
        with api.fleet({'resource_class': 'gold'}) as nodes:
            assert nodes[0].power_state == 'power off'
