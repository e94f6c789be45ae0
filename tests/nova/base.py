# SPDX-License-Identifier: Apache-2.0
"""What all tests of the driver stand on: a cloud per test."""

import contextlib
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

# A service that stops ends the thread pools of its process for good, from a
# thread that may outlast the test, and the fixture that would keep it from
# doing so: then no test after it could start a service.
with contextlib.suppress(ImportError):  # Nova before 34 has none.
    importlib.import_module(
        'nova.thread_pool_factory').shutdown_all_executors = lambda: None


# Nova's modules are half a million objects that live as long as the process.
# The garbage collector would look at all of them several times in each test.
gc.freeze()


class Compiled(sqlalchemy.util.LRUCache):
    """What SQLAlchemy has compiled, for all engines of a kind of database.

    Each test has engines of its own, with dialects of their own, and each of
    them would compile Nova's statements anew: a sixth of what these tests
    take.
    """

    def get(self, key, default=None):
        return super().get(self._shared(key), default)

    def __setitem__(self, key, value):
        super().__setitem__(self._shared(key), value)

    @staticmethod
    def _shared(key):
        dialect, *statement = key
        return (dialect.name, *statement)


COMPILED = Compiled(2000)


def smoke(test):
    """Mark a test for ``make test``: one of each kind of what we override.

    The others of those that have a cloud are left to ``make test-long``.
    """
    test.smoke = True
    return test


class QuickCall(loopingcall.FixedIntervalLoopingCall):
    """Looks ten times as often whether Ironic has done something."""

    def start(self, interval, *args, **kwargs):
        return super().start(interval / 10, *args, **kwargs)


class CellDatabases(nova_fixtures.CellDatabases):
    """What targets no cell is in the one that has the computes.

    Nova's fixture lets it follow the last one targeted, for tests with many
    cells, and locks for that: with several computes at work it deadlocks
    with the lock of the database.
    """

    @contextlib.contextmanager
    def _wrap_target_cell(self, ctxt, cell_mapping):
        with self._real_target_cell(ctxt, cell_mapping) as targeted:
            yield targeted

    def _wrap_get_context_manager(self, ctxt):
        return getattr(ctxt, 'db_connection', None) or self._default_ctxt_mgr

    def be_in(self, cell_mapping):
        """Let what targets no cell be in another one from now on."""
        self._default_ctxt_mgr = self._ctxt_mgrs[
            cell_mapping.database_connection]


def _frames():
    """The frames of all threads.

    Python 3.11 may wait for itself for ever where garbage is collected
    meanwhile: https://github.com/python/cpython/issues/106883.
    """
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()


class NoDeadline:
    """In place of deadline.Deadline."""

    def postpone(self, until):
        pass


class TestCase(helpers.Helpers,
               integrated_helpers.ProviderUsageBaseTestCase):
    """A cloud with three computes, and a fleet.

    Attributes are for subclasses to change.
    """

    compute_driver = OURS
    #: Started at set-up; none leaves that to the test, see start_compute().
    hosts = HOSTS
    #: The nodes at set-up, as Ironic's fields and ``traits``.
    fleet = ()
    #: False is a stock Ironic, without reservations.
    plugin = True
    #: Options of ironic.conf, ``{section: {option: value}}``. A class with
    #: options has the Ironic of the class before it if that has the same ones.
    ironic_config = None

    def id(self):
        """With an attribute, as testtools writes it."""
        test = getattr(self, self._testMethodName)
        return super().id() + ('' if hasattr(test, 'smoke') else '[long]')

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ironic = (ironic.shared(cls.plugin) if cls.ironic_config is None
                      else ironic.configured(cls.ironic_config, cls.plugin))

    def setUp(self):
        self.addCleanup(self.remove_all_nodes)
        self.enrol(*self.fleet)
        importlib.import_module(
            'nova.virt.' + self.compute_driver.rpartition('.')[0])
        self.flags(group='wsgi', api_paste_config=os.path.join(
            sys.prefix, 'etc/nova/api-paste.ini'))
        # A second is the shortest; each boot and each deletion waits for it.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic.driver.loopingcall', types.SimpleNamespace(**{
                **vars(loopingcall), 'FixedIntervalLoopingCall': QuickCall})))
        self.flags(group='ironic', api_retry_interval=1, api_max_retries=600,
                   auth_type='none', **self.ironic.nova_options)
        self.flags(running_deleted_instance_timeout=0)
        # A host is down when a test says so, and not because it is slow to
        # report: Nova would delete its servers from the database alone.
        self.flags(service_down_time=3600)
        self.flags(group='quota', instances=-1, cores=-1, ram=-1)
        # As documented: no host has the capabilities of a mixed fleet.
        self.flags(group='filter_scheduler', enabled_filters=[
            name for name in CONF.filter_scheduler.enabled_filters
            if name != 'ComputeCapabilitiesFilter'])
        # A new connection reads the whole schema, and oslo.db has one for each
        # transaction: a fifth of what these tests take.
        self.useFixture(fixtures.MonkeyPatch(
            'oslo_db.sqlalchemy.engines.pool.NullPool',
            sqlalchemy.pool.QueuePool))
        self.useFixture(fixtures.MonkeyPatch(
            'sqlalchemy.create_engine', functools.partial(
                sqlalchemy.create_engine,
                execution_options={'compiled_cache': COMPILED})))
        self._cells = CellDatabases()
        self.useFixture(fixtures.MonkeyPatch(
            'nova.tests.fixtures.CellDatabases', lambda: self._cells))
        super().setUp()
        # What Nova calls is not ours to change.
        warnings.filterwarnings(
            'ignore', category=DeprecationWarning,
            module=r'nova\.(?!virt\.ironic_reservations)')
        # Nova's fixtures mock it for all services; Ironic is a real one.
        mocked = openstack.proxy.Proxy.get_endpoint
        self.useFixture(fixtures.MonkeyPatch(
            'openstack.proxy.Proxy.get_endpoint',
            lambda proxy, *args, **kwargs: (
                _get_endpoint if proxy.service_type == 'baremetal'
                else mocked)(proxy, *args, **kwargs)))
        self._let_neutron_unbind()
        # Every poll is a line; and each test's end, on the console.
        for each in ('nova.api.openstack.requestlog', 'placement.requestlog',
                     'nova.thread_pool_factory'):
            logging.getLogger(each).setLevel('WARNING')
        # Tests say when.
        if self.compute_driver == OURS:
            self.useFixture(fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.host_lease.wait_for_process_end',
                self._wait_for_the_end))
            for name, value in (('host_lease.end_process',
                                 self._wait_for_the_end),
                                ('stopping.time', types.SimpleNamespace(
                                    sleep=self._pause)),
                                ('driver.INTERVAL', 24 * 3600),
                                # It would end all tests.
                                ('deadline.Deadline', NoDeadline),
                                ('client.PAUSE', 0.1),
                                # A round is due whenever they say so.
                                ('reconciler.LONGEST', 0)):
                self.useFixture(fixtures.MonkeyPatch(
                    f'nova.virt.ironic_reservations.{name}', value))
        # Whether Nova's answers are as its schemas say is for Nova's own tests
        # to find out.
        self.flags(group='api', response_validation='ignore')
        self.plain_image = self.image()
        self._config = {}
        self._compute_ids = {}
        # What waits for the end of its process: idents of threads.
        self._staying, self._ended = set(), threading.Event()
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.node.read_local_node_uuid',
            lambda: self._compute_ids.get(CONF.host)))
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.node.get_local_node_uuid', self._compute_id))
        for host in self.hosts:
            self.start_compute(host)

    def _wait_for_the_end(self, *_):
        """The process ends with the test."""
        self._staying.add(threading.get_ident())
        self._ended.wait()
        raise SystemExit

    def _pause(self, seconds):
        """As time.sleep, in a thread that ends with the test."""
        if self._ended.wait(seconds):
            raise SystemExit

    def tearDown(self):
        self._ended.set()
        # Nova's own clean-up after that needs its services.
        self.wait_for(lambda: self.assertEqual([], [
            each for each, frame in _frames().items()
            if each in self._staying and any(
                below.f_code.co_filename.endswith('compute/manager.py')
                for below, _ in traceback.walk_stack(frame))]))
        super().tearDown()

    def _let_neutron_unbind(self):
        # Nova's fixture knows no port that nothing has bound, and Nova binds
        # none for bare metal: Ironic would.
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
        """Start a compute that has not been started, or was stopped.

        :param cell: of a host that has not been started.
        :param config: what this host alone has in nova.conf: for
            ``[ironic] shard``, ``ironic={'shard': 'a'}``
        """
        self._config.setdefault(host, {}).update(config)
        if host not in self.host_mappings:
            # Else Nova's start_service() does it, and looks for a row that
            # a host without nodes does not have.
            mapping = objects.HostMapping(
                context.get_context(), host=host,
                cell_mapping=self.cell_mappings[cell])
            mapping.create()
            self.host_mappings[host] = mapping
        with self.as_host(host):
            return self._start_compute(host)

    def be_in_cell(self, name):
        """Be in another cell, where only hosts of that one may work."""
        self._cells.be_in(self.cell_mappings[name])

    def stop_compute(self, host):
        self.computes.pop(host).stop()

    def die(self, host):
        self.stop_compute(host)
        self.force_down(host)

    def come_back(self, host, **config):
        self.force_down(host, False)
        return self.start_compute(host, **config)

    def restart_compute(self, host, **config):
        """A new manager and driver, with the same compute_id."""
        self.stop_compute(host)
        return self.start_compute(host, **config)

    @contextlib.contextmanager
    def as_host(self, host):
        """Let this host's nova.conf be the one that is read.

        All hosts share one process. Outside of this, CONF.host is none of
        them: what a driver reads late is seen as wrong.
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
        """Let a host hear nothing any more, but go on with what it does.

        :param wait: whether for the end of that.
        :returns: its service.
        """
        service = self.computes.pop(host)
        # Nova 32 has no second one.
        for server in filter(None, (service.rpcserver, getattr(
                service, 'rpcserver_alt', None))):
            server.stop()
            if wait:
                server.wait()
        return service

    def work(self, host='compute-1'):
        """Do what a thread of the host's driver does again and again."""
        with self.as_host(host):
            self.computes[host].manager.driver.worker.work()

    def run_periodic(self, host=None, task='update_available_resource'):
        """Run one of the manager's periodic tasks, on all hosts or on one.

        Others of interest are ``_sync_power_states``, which goes on in the
        background, and ``_cleanup_running_deleted_instances``.
        """
        for each in [host] if host else list(self.computes):
            cell = self.host_mappings[each].cell_mapping
            with self.as_host(each), context.target_cell(
                    context.get_admin_context(), cell) as ctxt:
                getattr(self.computes[each].manager, task)(ctxt)

    @property
    def log(self):
        """What Nova's services have logged up to now, from INFO on."""
        return self.stdlog.logger.output

    # What must be true in the end

    def assert_nothing_left(self):
        """No reservation, no node in use, no VIF, no allocation."""
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
