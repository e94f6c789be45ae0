# SPDX-License-Identifier: Apache-2.0
"""The real Ironic of the tests, a separate process."""

import atexit
import contextlib
import functools
import json
import tempfile

from tests.common import databases
from tests.common import service
from tools import services


class Ironic(service.Ironic):
    """Helpers for a running Ironic; see also the base class."""

    @property
    def nova_options(self):
        """Options of [ironic] in nova.conf."""
        return {'endpoint_override': self.url}

    def reservations(self, **filters):
        """Return reservations with all fields."""
        response = self.http.get('/v1/reservations', params={
            'fields': 'instance_uuid,node_uuid,node_name,host,state,'
                      'provision_state,resource_class,health,maintenance,'
                      'notices,project_id,user_id,description,request_spec,'
                      'group,expires_at,created_at,updated_at',
            **filters})
        response.raise_for_status()
        return response.json()['reservations']

    def nodes(self, **query):
        return list(self.baremetal.nodes(details=True, **query))

    def node_of(self, server):
        """Return the node that carries the server, or None."""
        nodes = self.nodes(instance_id=server['id'])
        return nodes[0] if nodes else None


@contextlib.contextmanager
def run_ironic(config=None, plugin=True):
    services.stop_on_signal()
    # Each host must see at once what another has done.
    config = {'reservations': {'capacity_ttl': 0}, **(config or {})}
    with tempfile.TemporaryDirectory() as directory:
        path = f'{directory}/ironic.sqlite'
        url = (databases.create_sqlite(_originals(), path) if plugin
               else f'sqlite:///{path}')
        with services.ironic(
                directory, url, services.free_port(), config=config,
                plugin=plugin, kill=True, empty=not plugin) as service:
            yield Ironic(service)


# Stopped when this process exits, because several classes use it.
_stack = contextlib.ExitStack()
atexit.register(_stack.close)


@functools.cache
def _originals():
    """Return a directory for the templates of databases."""
    return _stack.enter_context(tempfile.TemporaryDirectory())


@functools.cache
def get_shared(plugin):
    return _stack.enter_context(run_ironic(plugin=plugin))


# The Ironic that has options, by its options. It is kept for the next class,
# which often has the same, because starting one takes several seconds. Only
# one is kept, because each takes memory.
_cache, _running = {}, contextlib.ExitStack()
atexit.register(_running.close)


def get_configured(config, plugin):
    """Return an Ironic with these options: the last Ironic, or a new one."""
    options = json.dumps([config, plugin], sort_keys=True)
    if options not in _cache:
        discard()
        _cache[options] = _running.enter_context(run_ironic(config, plugin))
    return _cache[options]


def discard():
    """Stop the Ironic with options; the next class starts a new one."""
    _running.close()
    _cache.clear()
