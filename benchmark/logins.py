# SPDX-License-Identifier: Apache-2.0
"""Measure requests by ``[DEFAULT] auth_strategy``.

    python -m benchmark --parts logins

The list of reservations, and Ironic's own GET of a node through the fence, are
compared with that GET alone, in the same process. The password has a bcrypt
hash of cost 12, which is passlib's default.
"""

import base64
import contextlib
import functools
import pathlib
import statistics
import tempfile

import bcrypt
import openstack

from benchmark import clients
from benchmark import page
from ironic_reservations.api import fence
from tests.common import keystones
from tools import services

OURS, TIMES = '/v1/reservations', 100


@contextlib.contextmanager
def noauth(directory):
    """Yield the options of Ironic, and the headers of a request."""
    yield {}, {}


@contextlib.contextmanager
def http_basic(directory):
    users = pathlib.Path(directory, 'htpasswd')
    users.write_bytes(b'nova:' + bcrypt.hashpw(b'secret', bcrypt.gensalt(12)))
    yield {'DEFAULT': {
        'auth_strategy': 'http_basic', 'http_basic_auth_user_file': str(users)
    }}, {'Authorization': b'Basic ' + base64.b64encode(b'nova:secret')}


@contextlib.contextmanager
def keystone(directory):
    with services.keystone(directory, services.free_port()) as auth:
        yield keystones.config(auth), {'X-Auth-Token': openstack.connect(
            load_envvars=False, load_yaml_config=False,
            auth={**auth, 'system_scope': 'all'}).auth_token}


def time_requests(port, login, node, instance):
    """Return the milliseconds of three requests: Ironic's own first.

    They take turns, because the load of the machine changes.
    """
    request, header = clients.Http(port).request, {
        fence.HEADER: f'instance={instance};host=compute-1'}
    calls = [functools.partial(request, 'GET', path, 200, **login, **more)
             for path, more in ((f'/v1/nodes/{node}', {}),
                                (f'/v1/nodes/{node}', header), (OURS, {}))]
    rounds = [[clients.seconds(call, 1) for call in calls]
              for _ in range(TIMES)]
    return [1000 * statistics.median(times)
            for times in zip(*rounds, strict=True)]


def measure(output):
    """Measure the three strategies on one database.

    :param output: a page.Page.
    """
    rows = []
    with services.mariadb() as server, services.database(server) as url, \
            tempfile.TemporaryDirectory() as directory:
        for strategy in noauth, http_basic, keystone:
            with strategy(directory) as (config, login), services.ironic(
                    directory, url, services.free_port(), config,
                    empty=not rows) as ironic:
                if not rows:
                    [node] = services.enrol(services.connect(ironic.url), [{}])
                    instance = clients.Http(ironic.port).request(
                        'POST', OURS, 201, {
                            'candidate_nodes': [node.id], 'host': 'compute-1'}
                        )['instance_uuid']
                own, *others = time_requests(ironic.port, login, node.id,
                                             instance)
            rows.append([strategy.__name__, f'{own:.1f}', *(
                f'{time:.1f} ({time / own:.1f})' for time in others)])
        note = page.describe('one process of Ironic', url)
    output.show(None, "Milliseconds (times Ironic's own)",
                ['', "Ironic's GET of a node", 'through the fence',
                 'list of reservations'], rows, note)
