# SPDX-License-Identifier: Apache-2.0
"""The real Ironic of the tests: a process beside the one that has Nova."""

import atexit
import contextlib
import functools
import json
import tempfile

from tests.common import databases
from tests.common import service
from tools import services


class Ironic(service.Ironic):
    """What tests do with a running service; see also its base class."""

    @property
    def nova_options(self):
        """[ironic] in nova.conf; start_compute() takes it for one host."""
        return {'endpoint_override': self.url}

    def reservations(self, **filters):
        """Whole ones, as the API shows each of them alone."""
        response = self.http.get('/v1/reservations', params={
            'fields': 'instance_uuid,node_uuid,node_name,host,state,'
                      'provision_state,resource_class,project_id,user_id,'
                      'request_spec,group,expires_at,created_at,updated_at',
            **filters})
        response.raise_for_status()
        return response.json()['reservations']

    def nodes(self, **query):
        return list(self.baremetal.nodes(details=True, **query))

    def node_of(self, server):
        """The node that carries the server; None if there is none."""
        nodes = self.nodes(instance_id=server['id'])
        return nodes[0] if nodes else None


@contextlib.contextmanager
def started(config=None, plugin=True):
    services.stop_on_signal()
    # What one host did, the next that asks is to know.
    config = {'reservations': {'capacity_ttl': 0}, **(config or {})}
    with tempfile.TemporaryDirectory() as directory:
        path = f'{directory}/ironic.sqlite'
        url = (databases.create_sqlite(_originals(), path) if plugin
               else f'sqlite:///{path}')
        with services.ironic(
                directory, url, services.free_port(), config=config,
                plugin=plugin, kill=True, empty=not plugin) as service:
            yield Ironic(service)


# What several classes use is stopped with this process.
_shared = contextlib.ExitStack()
atexit.register(_shared.close)


@functools.cache
def _originals():
    """A directory for what databases are copied from."""
    return _shared.enter_context(tempfile.TemporaryDirectory())


@functools.cache
def shared(plugin):
    return _shared.enter_context(started(plugin=plugin))


# The one that has options, by these. It is kept for the next class, which
# often wants the same, because to start one takes several seconds of a
# processor; and no more than one, because each takes memory.
_configured, _running = {}, contextlib.ExitStack()
atexit.register(_running.close)


def configured(config, plugin):
    """An Ironic with these options: that of before, or a new one."""
    options = json.dumps([config, plugin], sort_keys=True)
    if options not in _configured:
        forget()
        _configured[options] = _running.enter_context(started(config, plugin))
    return _configured[options]


def forget():
    """Let the next class have a new one, whatever its options are."""
    _running.close()
    _configured.clear()
