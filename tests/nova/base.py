# SPDX-License-Identifier: Apache-2.0
"""The base class of the driver's tests: a cloud per test."""

import contextlib
import dataclasses
import functools
import gc
import importlib
import logging
import os
import sys
import threading
import traceback
import types
import uuid
import warnings

import fixtures
from nova import context
from nova import objects
import nova.conf
from nova.tests import fixtures as nova_fixtures
from nova.tests.functional import integrated_helpers
import openstack.proxy
from oslo_concurrency import lockutils
from oslo_service import loopingcall
import sqlalchemy
import sqlalchemy.pool
import sqlalchemy.util

from tests.nova import helpers
from tests.nova import ironic

CONF = nova.conf.CONF
HOSTS = ('compute-1', 'compute-2', 'compute-3')
OURS = 'ironic_reservations.ReservationsDriver'
STOCK = 'ironic.IronicDriver'

_get_endpoint = openstack.proxy.Proxy.get_endpoint

# A service that stops shuts down the thread pools of its process, from a
# thread that may outlast the test and the fixture that would prevent that:
# then no later test could start a service.
with contextlib.suppress(ImportError):  # Nova before 34 has none.
    importlib.import_module(
        'nova.thread_pool_factory').shutdown_all_executors = lambda: None


# Nova's modules are half a million objects that live as long as the process.
# The garbage collector would look at all of them several times in each test.
gc.freeze()


class CompiledCache(sqlalchemy.util.LRUCache):
    """Share compiled statements between all engines of a database type.

    Each test creates engines with new dialects, each of which would compile
    Nova's statements again: a sixth of the time of these tests.
    """

    def get(self, key, default=None):
        return super().get(self._shared_key(key), default)

    def __setitem__(self, key, value):
        super().__setitem__(self._shared_key(key), value)

    @staticmethod
    def _shared_key(key):
        dialect, *statement = key
        return (dialect.name, *statement)


CACHE = CompiledCache(2000)


def smoke(test):
    """Mark a test for ``make test``: one for each kind of override.

    The other tests with a cloud run in ``make test-long`` or ``tox -e nova``.
    """
    test.smoke = True
    return test


def separate_locks():
    """Return a fixture for a second process, which shares no locks."""
    return fixtures.MonkeyPatch(
        'oslo_concurrency.lockutils._semaphores', lockutils.Semaphores())


class QuickCall(loopingcall.FixedIntervalLoopingCall):
    """Polls Ironic ten times as often."""

    def start(self, interval, *args, **kwargs):
        return super().start(interval / 10, *args, **kwargs)


class CellDatabases(nova_fixtures.CellDatabases):
    """Use the cell of the computes where no cell is targeted.

    Nova's fixture uses the last targeted cell, for tests with many cells, and
    takes a lock for that: with several computes at work it deadlocks with the
    lock of the database.
    """

    @contextlib.contextmanager
    def _wrap_target_cell(self, ctxt, cell_mapping):
        with self._real_target_cell(ctxt, cell_mapping) as cell_context:
            yield cell_context

    def _wrap_get_context_manager(self, ctxt):
        return getattr(ctxt, 'db_connection', None) or self._default_ctxt_mgr

    def switch(self, cell_mapping):
        """Change the cell that is used where none is targeted."""
        self._default_ctxt_mgr = self._ctxt_mgrs[
            cell_mapping.database_connection]


def _frames():
    """Return the frames of all threads.

    Python 3.11 may deadlock if garbage is collected during the call:
    https://github.com/python/cpython/issues/106883.
    """
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()


class NoDeadline:
    """Replaces deadline.Deadline."""

    def postpone(self, until):
        pass


class TestCase(helpers.Helpers,
               integrated_helpers.ProviderUsageBaseTestCase):
    """A cloud with three computes, and a fleet.

    Attributes are for subclasses to change.
    """

    compute_driver = OURS
    #: Started by setUp(). Empty: the test calls start_compute().
    hosts = HOSTS
    #: The nodes enrolled by setUp(), as Ironic's fields and ``traits``.
    fleet = ()
    #: False: a stock Ironic, without reservations.
    plugin = True
    #: Options of ironic.conf, ``{section: {option: value}}``. Consecutive
    #: classes with the same options share an Ironic.
    ironic_config = None
    #: The pipelines of Nova's API.
    paste_config = os.path.join(sys.prefix, 'etc/nova/api-paste.ini')

    def id(self):
        """Append the attribute of long tests, as testtools formats it."""
        test = getattr(self, self._testMethodName)
        return super().id() + ('' if hasattr(test, 'smoke') else '[long]')

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ironic = (
            ironic.get_shared(cls.plugin) if cls.ironic_config is None
            else ironic.get_configured(cls.ironic_config, cls.plugin))

    def setUp(self):
        self.addCleanup(self.remove_all_nodes)
        self.enrol(*self.fleet)
        importlib.import_module(
            'nova.virt.' + self.compute_driver.rpartition('.')[0])
        self.flags(state_path=self.useFixture(fixtures.TempDir()).path)
        self.flags(group='wsgi', api_paste_config=self.paste_config)
        # Each boot and each deletion waits for it, for at least a second.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic.driver.loopingcall', types.SimpleNamespace(**{
                **vars(loopingcall), 'FixedIntervalLoopingCall': QuickCall})))
        self.flags(group='ironic', api_retry_interval=1, api_max_retries=600,
                   auth_type='none', **self.ironic.nova_options)
        self.flags(running_deleted_instance_timeout=0)
        # A host is down only if a test forces it down, and not because it is
        # slow: Nova would delete its servers from the database alone.
        self.flags(service_down_time=3600)
        self.flags(group='quota', instances=-1, cores=-1, ram=-1)
        # As documented: no host has all capabilities of a mixed fleet.
        self.flags(group='filter_scheduler', enabled_filters=[
            name for name in CONF.filter_scheduler.enabled_filters
            if name != 'ComputeCapabilitiesFilter'])
        # Each new connection reads the whole schema, and oslo.db opens one
        # for each transaction: a fifth of the time of these tests.
        self.useFixture(fixtures.MonkeyPatch(
            'oslo_db.sqlalchemy.engines.pool.NullPool',
            sqlalchemy.pool.QueuePool))
        self.useFixture(fixtures.MonkeyPatch(
            'sqlalchemy.create_engine', functools.partial(
                sqlalchemy.create_engine,
                execution_options={'compiled_cache': CACHE})))
        self._cells = CellDatabases()
        self.useFixture(fixtures.MonkeyPatch(
            'nova.tests.fixtures.CellDatabases', lambda: self._cells))
        super().setUp()
        # We cannot change Nova's own calls.
        warnings.filterwarnings(
            'ignore', category=DeprecationWarning,
            module=r'nova\.(?!virt\.ironic_reservations)')
        # Nova's fixtures mock it for all services, but Ironic is real.
        mock = openstack.proxy.Proxy.get_endpoint
        self.useFixture(fixtures.MonkeyPatch(
            'openstack.proxy.Proxy.get_endpoint',
            lambda proxy, *args, **kwargs: (
                _get_endpoint if proxy.service_type == 'baremetal'
                else mock)(proxy, *args, **kwargs)))
        self._let_neutron_unbind()
        # Nova's fixture formats all debug messages: a tenth of each boot.
        logging.getLogger().setLevel('INFO')
        logging.getLogger('nova.virt.ironic_reservations').setLevel('DEBUG')
        # They log every poll, and the end of each test on the console.
        for name in ('nova.api.openstack.requestlog', 'placement.requestlog',
                     'nova.thread_pool_factory'):
            logging.getLogger(name).setLevel('WARNING')
        # Periodic work happens when a test calls work().
        if self.compute_driver != STOCK:
            self.useFixture(fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.host_lease.wait_for_process_end',
                self._wait_for_the_end))
            for name, value in (('host_lease.end_process',
                                 self._wait_for_the_end),
                                # It would kill the process of all tests.
                                ('deadline.Deadline', NoDeadline)):
                self.useFixture(fixtures.MonkeyPatch(
                    f'nova.virt.ironic_reservations.{name}', value))
            # Each call of work() is a full round.
            self.set_timing(interval=24 * 3600, pause=0.1, longest=0,
                            sleep=self._pause)
        # Nova's own tests validate its responses.
        self.flags(group='api', response_validation='ignore')
        self.plain_image = self.image()
        self._config = {}
        self._compute_ids = {}
        # Idents of the threads that wait for the end of their process.
        self._blocking, self._end = set(), threading.Event()
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.node.read_local_node_uuid',
            lambda: self._compute_ids.get(CONF.host)))
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.node.get_local_node_uuid', self._compute_id))
        for host in self.hosts:
            self.start_compute(host)

    def set_timing(self, **pauses):
        """Replace pauses of the driver."""
        timing = importlib.import_module(
            'nova.virt.ironic_reservations.timing')
        self.useFixture(fixtures.MonkeyPatch(
            timing.__name__ + '.TIMING',
            dataclasses.replace(timing.TIMING, **pauses)))

    def _wait_for_the_end(self, *_):
        """Block this thread until the test ends."""
        self._blocking.add(threading.get_ident())
        self._end.wait()
        raise SystemExit

    def _pause(self, seconds):
        """Sleep, but exit the thread if the test ends."""
        if self._end.wait(seconds):
            raise SystemExit

    def tearDown(self):
        self._end.set()
        # The clean-up by Nova that follows needs its services.
        self.wait_for(lambda: self.assertEqual([], [
            ident for ident, frame in _frames().items()
            if ident in self._blocking and any(
                below.f_code.co_filename.endswith('compute/manager.py')
                for below, _ in traceback.walk_stack(frame))]))
        super().tearDown()

    def _let_neutron_unbind(self):
        # Nova's fixture fails for unbound ports, and for bare metal Nova
        # binds none, because Ironic does.
        update_port = self.neutron.update_port

        def update(port_id, body):
            if (body['port'].get('binding:host_id', '') is None
                    and not self.neutron._port_bindings[port_id]):
                self.neutron._port_bindings[port_id][None] = {
                    'status': 'ACTIVE'}
            return update_port(port_id, body)

        self.neutron.update_port = update

    # The fleet

    def enrol(self, *nodes):
        return self.ironic.enrol(nodes)

    def remove_all_nodes(self):
        self.ironic.remove(self.ironic.nodes())

    # Computes

    def start_compute(self, host, cell='cell1', **config):
        """Start a compute for the first time, or after it was stopped.

        :param cell: cell of a host that is started for the first time.
        :param config: options in nova.conf of this host alone: for
            ``[ironic] shard``, ``ironic={'shard': 'a'}``
        """
        self._config.setdefault(host, {}).update(config)
        if host not in self.host_mappings:
            # Otherwise Nova's start_service() creates it, and looks for a
            # compute node, which a host without nodes does not have.
            mapping = objects.HostMapping(
                context.get_context(), host=host,
                cell_mapping=self.cell_mappings[cell])
            mapping.create()
            self.host_mappings[host] = mapping
        with self.as_host(host):
            return self._start_compute(host)

    def switch_cell(self, name):
        """Use another cell; only its hosts can work then."""
        self._cells.switch(self.cell_mappings[name])

    def stop_compute(self, host):
        self.computes.pop(host).stop()

    def take_down(self, host):
        self.stop_compute(host)
        self.force_down(host)

    def bring_back(self, host, **config):
        self.force_down(host, False)
        return self.start_compute(host, **config)

    def restart_compute(self, host, **config):
        """Start a new manager and driver with the same compute_id."""
        self.stop_compute(host)
        return self.start_compute(host, **config)

    @contextlib.contextmanager
    def as_host(self, host):
        """Set the options of this host's nova.conf.

        All hosts share one process. Outside of this, CONF.host is none of
        them, so that tests fail if the driver reads it too late.
        """
        config = [(None, 'host', host)] + [
            (None if group == 'DEFAULT' else group, name, value)
            for group, options in self._config.get(host, {}).items()
            for name, value in options.items()]
        before = [(group, name, CONF[group][name] if group else CONF[name])
                  for group, name, _ in config]
        try:
            for group, name, value in config:
                CONF.set_override(name, value, group)
            yield
        finally:
            for group, name, value in before:
                CONF.set_override(name, value, group)

    def _compute_id(self):
        return self._compute_ids.setdefault(CONF.host, str(uuid.uuid4()))

    def silence(self, host, wait=False):
        """Stop delivering messages to a host, which continues its work.

        :param wait: whether to wait until that work is complete.
        :returns: its service.
        """
        service = self.computes.pop(host)
        # Nova 32 has no rpcserver_alt.
        for server in filter(None, (service.rpcserver, getattr(
                service, 'rpcserver_alt', None))):
            server.stop()
            if wait:
                server.wait()
        return service

    def work(self, host='compute-1'):
        """Run one round of the host's driver thread."""
        with self.as_host(host):
            self.computes[host].manager.driver.worker.work()

    def run_periodic(self, host=None, task='update_available_resource'):
        """Run one of the manager's periodic tasks, on all hosts or on one.

        Other useful tasks are ``_sync_power_states``, which continues in the
        background, and ``_cleanup_running_deleted_instances``.
        """
        for name in [host] if host else list(self.computes):
            cell = self.host_mappings[name].cell_mapping
            with self.as_host(name), context.target_cell(
                    context.get_admin_context(), cell) as ctxt:
                getattr(self.computes[name].manager, task)(ctxt)

    @property
    def log(self):
        """The log of Nova's services so far, INFO and above."""
        return self.stdlog.logger.output

    def assert_nothing_left(self):
        """Check for no reservation, node in use, VIF or allocation."""
        if self.plugin:
            self.assertEqual([], self.ironic.reservations())
        for node in self.ironic.nodes():
            self.assertIsNone(node.instance_id)
            self.assertEqual({}, node.instance_info)
        for port in self.ironic.baremetal.ports(details=True):
            self.assertNotIn('tenant_vif_port_id', port.internal_info)
            self.assertNotIn('vif_port_id', port.extra)
        for provider in self.providers():
            self.assertEqual(set(), {
                name for name, used in self.usages(provider).items() if used})
