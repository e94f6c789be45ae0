# SPDX-License-Identifier: Apache-2.0
"""Run a whole OpenStack on this machine, with fake bare metal nodes.

    python -m tools.trial_cloud up
    python -m tools.trial_cloud down

MariaDB, RabbitMQ, Keystone, Glance, Placement, Neutron, Ironic with the
plugin, and Nova with several compute services run as processes on 127.0.0.1,
controlled by supervisord. One folder contains the configuration, the
databases, the logs, openrc files to source, clouds.yaml, and a link to the
commands.

``Cloud.up`` starts the services in order; ``Cloud.configure`` writes their
configuration.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import concurrent.futures
import contextlib
import fcntl
import functools
import os
import pathlib
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any
from xmlrpc import client

import openstack
import requests
from rich import console
import sqlalchemy
from supervisor import xmlrpc
import tenacity
import yaml

from tools import services

SCREEN = console.Console(highlight=False)
PASSWORD = 'only-on-loopback'
TIMEOUT = 120
DATABASES = ('keystone', 'glance', 'placement', 'neutron', 'nova_api',
             'nova_cell0', 'nova', 'ironic')
APIS = ('keystone', 'glance', 'placement', 'neutron', 'ironic', 'nova')
DRIVER = 'ironic_reservations.ReservationsDriver'
FLAVOR, IMAGE, NETWORK = 'bm.gold', 'fake', 'baremetal'
RACKS = 4
FOLDER = '.tox/cloud-run'
#: How Nova's services work concurrently, and the variable that selects it.
CONCURRENCY = {'eventlet': 'false', 'threading': 'true'}
DISABLE_EVENTLET = 'OS_NOVA_DISABLE_EVENTLET_PATCHING'
#: Options of nova.conf, see Cloud.quick.
QUICK = {'report_interval': 5, 'service_down_time': 20,
         'periodic_fuzzy_delay': 0, 'update_resources_interval': 5,
         'running_deleted_instance_poll_interval': 30}
#: Options of ironic.conf. Nodes have the first interface of each kind, but
#: "noop" for the network; others can be set.
FAKE_INTERFACES = {
    **{f'enabled_{kind}_interfaces': f'fake,no-{kind}' for kind in (
        'bios', 'console', 'inspect', 'raid', 'rescue', 'vendor')},
    'enabled_network_interfaces': 'noop,flat'}
USERS = {
    'admin': {'username': 'admin', 'project_name': 'admin',
              'project_domain_name': 'Default'},
    'system': {'username': 'admin', 'system_scope': 'all'},
    'demo': {'username': 'demo', 'project_name': 'demo',
             'project_domain_name': 'Default'},
}
#: Where the configuration is that the documentation recommends.
EXAMPLES = pathlib.Path(__file__).parents[1] / 'doc/source/examples'


class Cloud:
    """A cloud, its files and its processes.

    :param folder: for all files; a short path, because it contains sockets.
    :param port: the first of nine.
    :param lease: option of the driver, in seconds; None is its default.
    :param deploy_delay: seconds that a node takes to deploy, or a range such
        as "20,40".
    :ivar mode, adopt: options of the driver; None is their default.
    :ivar quick: whether Nova runs periodic tasks and detects dead hosts within
        seconds instead of its default, a minute.
    :ivar standby: whether hosts have a standby. For the first host, it is the
        process ``compute-1b``, which is started after all other processes.
    :ivar concurrency: key of CONCURRENCY, of Nova's services except its API;
        None is the default of the release.
    :ivar compute: more options of ``[DEFAULT]`` in nova.conf of the hosts.
    :param scheduler: options of Nova's scheduler by section; None for the
        options in the documentation.
    """

    def __init__(self, folder: services.Path, port: int = 6400,
                 computes: int = 3, nodes: int = 12, driver: str = DRIVER,
                 lease: int | None = None, deploy_delay: str = '0',
                 scheduler: services.Config | None = None) -> None:
        self.folder = pathlib.Path(folder).absolute()
        # Identifies the folder of a cloud, which may be emptied. It is locked
        # while the cloud starts or stops, and names the process.
        self.marker = self.folder / 'ironic-reservations-cloud'
        self.port = dict(zip(
            (*APIS, 'amqp', 'amqp_dist', 'epmd'),
            range(port, port + 9), strict=True))
        self.hosts = [f'compute-{number + 1}' for number in range(computes)]
        self.nodes, self.driver = nodes, driver
        self.lease, self.deploy_delay = lease, deploy_delay
        self.mode: str | None = None
        self.adopt: str | None = None
        self.standby: bool | None = None
        self.concurrency: str | None = None
        self.compute: dict[str, Any] = {}
        self.quick = True
        self.scheduler = scheduler
        self.auth_url = self.url('keystone', '/v3')
        #: Socket of uWSGI's statistics of Ironic's API.
        self.stats = self.folder / 'ironic' / 'stats.sock'

    @property
    def computes(self) -> dict[str, str]:
        """Return the host of each nova-compute by the name of its process."""
        hosts = {host: host for host in self.hosts}
        if self.standby:
            hosts[f'{self.hosts[0]}b'] = self.hosts[0]
        return hosts

    def url(self, service: str, path: str = '') -> str:
        """Return a URL of a service."""
        return f'http://127.0.0.1:{self.port[service]}{path}'

    # Configuration

    def configure(self) -> None:
        """Write the configuration of every process."""
        port, folder = self.port, self.folder
        for name in ('keystone', 'glance', 'placement', 'neutron', 'nova',
                     'ironic', 'rabbitmq', 'logs', *self.computes):
            (folder / name).mkdir(parents=True, exist_ok=True)
        bus = f'rabbit://guest:guest@127.0.0.1:{port["amqp"]}/'

        def user(name: str, **scope: str) -> dict[str, str]:
            return {'auth_type': 'password', 'auth_url': self.auth_url,
                    'username': name, 'password': PASSWORD,
                    'user_domain_name': 'Default', **(scope or {
                        'project_name': 'service',
                        'project_domain_name': 'Default'})}

        def database(name: str) -> dict[str, str]:
            return {'connection': self.database_url(name)}

        def write(path: str, config: dict[str, Any]) -> None:
            name = path.partition('/')[0]
            services.write_conf(folder / path, {
                'DEFAULT': config.pop('DEFAULT', {}),
                'oslo_concurrency': {'lock_path': folder / name / 'lock'},
                **config})

        def tokens(name: str) -> dict[str, Any]:
            return {'keystone_authtoken': {
                **user(name), 'www_authenticate_uri': self.auth_url,
                'service_token_roles_required': 'true'}}

        write('glance/glance-api.conf', {
            'DEFAULT': {'enabled_backends': 'file:file',
                        'worker_self_reference_url': self.url('glance')},
            'glance_store': {'default_backend': 'file'},
            **{store: {'filesystem_store_datadir': folder / 'glance' / store}
               for store in ('file', 'os_glance_staging_store',
                             'os_glance_tasks_store')},
            'database': database('glance'),
            'paste_deploy': {
                'flavor': 'keystone',
                'config_file': _find_etc('glance/glance-api-paste.ini')},
            **tokens('glance')})
        write('placement/placement.conf', {
            'placement_database': database('placement'),
            **services.read_conf(EXAMPLES / 'placement.conf'),
            **tokens('placement')})
        write('neutron/neutron.conf', {
            # Without the last of these Neutron 29 cannot list ports.
            'DEFAULT': {'core_plugin': 'ml2',
                        'service_plugins': 'router,port_forwarding',
                        'transport_url': bus,
                        'api_paste_config': _find_etc(
                            'neutron/api-paste.ini'),
                        'notify_nova_on_port_status_changes': 'false',
                        'notify_nova_on_port_data_changes': 'false'},
            # Ports remain unbound, because fake machines need no switch.
            'ml2': {'type_drivers': 'flat,vxlan',
                    'tenant_network_types': 'vxlan',
                    'mechanism_drivers': 'logger'},
            'ml2_type_flat': {'flat_networks': 'physical'},
            'ml2_type_vxlan': {'vni_ranges': '1:1000'},
            'database': database('neutron'), **tokens('neutron')})
        write('ironic/ironic.conf', {
            'DEFAULT': {**services.FAKE_HARDWARE, **FAKE_INTERFACES,
                        'my_ip': '127.0.0.1', 'auth_strategy': 'keystone',
                        'rpc_transport': 'oslo', 'transport_url': bus,
                        'rbac_service_role_elevated_access': 'true'},
            'api': {'middleware': 'reservations'},
            'reservations': {'require_lease': 'true', 'project_cordons': 3},
            'conductor': {'automated_clean': 'false'},
            'fake': {'deploy_delay': self.deploy_delay},
            # To read whether an image is a whole disk.
            'glance': user('ironic'),
            # For the interface "flat", which attaches ports of Neutron.
            'neutron': {**user('ironic'), 'cleaning_network': NETWORK},
            'database': database('ironic'), **tokens('ironic')})
        nova: dict[str, Any] = {
            'DEFAULT': {'transport_url': bus, 'my_ip': '127.0.0.1',
                        **(QUICK if self.quick else {})},
            'api': {'auth_strategy': 'keystone'},
            # Nova's default quotas do not allow a single one of the nodes.
            'quota': {'instances': -1, 'cores': -1, 'ram': -1},
            'glance': {'api_servers': self.url('glance')},
            'placement': user('placement'),
            'neutron': user('neutron'),
            'service_user': {'send_service_user_token': 'true',
                             **user('nova')},
        }
        # Nova searches this file only next to its configuration.
        write_paste_config(folder / 'nova')
        compute = services.read_conf(EXAMPLES / 'nova-compute.conf')
        groups = services.read_conf(EXAMPLES / 'nova-server-groups.conf')
        scheduler = self.scheduler
        if scheduler is None:
            scheduler = services.read_conf(EXAMPLES / 'nova-scheduler.conf')
        write('nova/nova.conf', {
            **nova, 'database': database('nova'),
            'api_database': database('nova_api'), **tokens('nova'),
            **scheduler, 'workarounds': compute['workarounds'],
            'scheduler': {**scheduler.get('scheduler', {}),
                          'discover_hosts_in_cells_interval': 5}})
        for name, host in self.computes.items():
            # A compute service must not have access to the databases.
            write(f'{name}/nova.conf', {
                **nova, **compute, 'DEFAULT': {
                    **nova['DEFAULT'], **compute['DEFAULT'], 'host': host,
                    'compute_driver': self.driver,
                    'state_path': folder / name,
                    # The default, genisoimage, may not be installed.
                    'mkisofs_cmd': services.program('pycdlib-genisoimage'),
                    # Fake deployments do not power machines on.
                    'sync_power_state_interval': -1, **self.compute},
                'ironic': {**compute['ironic'],
                           **user('nova', system_scope='all')},
                'reservations': {
                    **groups['reservations'],
                    'server_metadata': 'claim,candidate_nodes',
                    **{name: value for name, value in (
                        ('lease', self.lease), ('mode', self.mode),
                        ('adopt', self.adopt), ('standby', self.standby))
                       if value is not None}}})
        (folder / 'supervisord.conf').write_text(self._make_supervisord_conf())

    def database_url(self, name: str) -> str:
        """Return the URL of a database."""
        return (f'mysql+pymysql://root@localhost/{name}?unix_socket='
                f'{self.folder}/mariadb.sock')

    # Processes

    def programs(self) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
        """Yield name, command and environment of each process.

        They are in the order in which they are started.
        """
        rabbitmq = self.folder / 'rabbitmq'

        def uwsgi(service: str, application: str, *more: str,
                  processes: int = 2, **environment: str
                  ) -> tuple[list[str], dict[str, pathlib.Path]]:
            return services.uwsgi_command(
                application, self.port[service], processes, *more), {
                    name: self.folder / value
                    for name, value in environment.items()}

        def daemon(program: str,
                   conf: str) -> tuple[list[Any], dict[str, Any]]:
            return [services.program(program), '--config-file',
                    self.folder / conf], {}

        def nova(program: str,
                 conf: str) -> tuple[list[Any], dict[str, Any]]:
            command, environment = daemon(program, conf)
            if self.concurrency:
                environment[DISABLE_EVENTLET] = CONCURRENCY[self.concurrency]
            return command, environment

        yield 'mariadb', [
            _find_system_program('mariadbd'), '--no-defaults',
            f'--datadir={self.folder}/mariadb', f'--tmpdir={self.folder}',
            '--skip-networking',
            f'--socket={self.folder}/mariadb.sock', f'--user={_find_user()}',
            '--max-connections=1000', '--character-set-server=utf8mb4'], {}
        # Otherwise RabbitMQ would start an epmd that keeps running.
        yield 'epmd', [_find_system_program('epmd'), '-address', '127.0.0.1',
                       '-port', self.port['epmd']], {}
        yield 'rabbitmq', [_find_system_program('rabbitmq-server')], {
            'HOME': rabbitmq,
            'RABBITMQ_NODENAME': f'cloud{self.port["amqp"]}@localhost',
            'RABBITMQ_MNESIA_BASE': rabbitmq, 'RABBITMQ_LOG_BASE': rabbitmq,
            'RABBITMQ_NODE_IP_ADDRESS': '127.0.0.1',
            'RABBITMQ_NODE_PORT': self.port['amqp'],
            'RABBITMQ_DIST_PORT': self.port['amqp_dist'],
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                '-kernel inet_dist_use_interface {127,0,0,1}',
            # Ignore the configuration of the machine's RabbitMQ.
            'RABBITMQ_ENABLED_PLUGINS_FILE': rabbitmq / 'none',
            'RABBITMQ_CONFIG_FILE': rabbitmq / 'none',
            'RABBITMQ_CONFIG_FILES': rabbitmq / 'none',
            'RABBITMQ_ADVANCED_CONFIG_FILE': rabbitmq / 'none',
            'RABBITMQ_CONF_ENV_FILE': rabbitmq / 'none',
            'ERL_EPMD_PORT': self.port['epmd'],
            'ERL_EPMD_ADDRESS': '127.0.0.1'}
        yield 'keystone', *uwsgi('keystone', 'keystone.wsgi.api:application',
                                 processes=1,
                                 OS_KEYSTONE_CONFIG_DIR='keystone')
        yield 'glance', *uwsgi('glance', 'glance.wsgi.api:application',
                               OS_GLANCE_CONFIG_DIR='glance')
        yield 'placement', *uwsgi('placement',
                                  'placement.wsgi.api:application',
                                  OS_PLACEMENT_CONFIG_DIR='placement')
        # Neutron 29 fails if the first request to a process lists ports. The
        # first request to this single process creates a network.
        yield 'neutron', *uwsgi(
            'neutron', 'neutron.wsgi.api:application', '--pyargv',
            f'--config-file {self.folder}/neutron/neutron.conf', processes=1)
        yield 'ironic-conductor', *daemon('ironic-conductor',
                                          'ironic/ironic.conf')
        yield 'ironic', *uwsgi(
            'ironic', 'ironic.wsgi:application', '--stats', str(self.stats),
            '--pyargv', f'--config-file {self.folder}/ironic/ironic.conf')
        yield 'nova-conductor', *nova('nova-conductor', 'nova/nova.conf')
        yield 'nova-scheduler', *nova('nova-scheduler', 'nova/nova.conf')
        yield 'nova', *uwsgi('nova', 'nova.wsgi.osapi_compute:application',
                             OS_NOVA_CONFIG_DIR='nova')
        for name in self.computes:
            yield name, *nova('nova-compute', f'{name}/nova.conf')

    def _make_supervisord_conf(self) -> str:
        folder = self.folder
        sections: dict[str, dict[str, Any]] = {
            'supervisord': {'logfile': folder / 'supervisord.log',
                            'pidfile': folder / 'supervisord.pid',
                            'childlogdir': folder / 'logs'},
            'unix_http_server': {'file': folder / 'supervisor.sock'},
            'rpcinterface:supervisor': {
                'supervisor.rpcinterface_factory':
                    'supervisor.rpcinterface:make_main_rpcinterface'},
            'supervisorctl': {
                'serverurl': f'unix://{folder}/supervisor.sock'},
        }
        for name, command, environment in self.programs():
            sections[f'program:{name}'] = {
                # Stop when supervisord is killed. Some processes ignore
                # SIGTERM; RabbitMQ's is a shell that forwards it.
                'command': ' '.join(_quote(word) for word in (
                    'setpriv', '--pdeathsig',
                    'TERM' if name == 'rabbitmq' else 'KILL', *command)),
                # Core dumps go here.
                'directory': folder,
                'environment': ','.join(
                    f'{key}={_quote(value)}'
                    for key, value in environment.items()),
                'stdout_logfile': self.log(name),
                'redirect_stderr': 'true', 'stdout_logfile_maxbytes': 0,
                'autostart': 'false', 'autorestart': 'false',
                # Also stop the workers.
                'stopasgroup': 'true', 'killasgroup': 'true',
                'startsecs': 0, 'stopwaitsecs': 10}
        return '\n'.join(
            f'[{section}]\n' + ''.join(
                f'{key} = {str(value).replace("%", "%%")}\n'
                for key, value in options.items())
            for section, options in sections.items())

    def log(self, name: str) -> pathlib.Path:
        """Return the log of a process."""
        return self.folder / 'logs' / f'{name}.log'

    def _call(self, function: str, *arguments: Any) -> Any:
        """Call a function of supervisord.

        :param function: see http://supervisord.org/api.html.
        :raises: OSError if it does not run; client.Fault.
        """
        with client.ServerProxy(
                'http://127.0.0.1', transport=xmlrpc.SupervisorTransport(
                    serverurl=f'unix://{self.folder}/supervisor.sock')
        ) as proxy:
            return getattr(proxy.supervisor, function)(*arguments)

    def update(self) -> None:
        """Let supervisord read its configuration, and stop removed processes.

        :raises: StartError.
        """
        self.run('supervisorctl', '-c', self.folder / 'supervisord.conf',
                 'update')

    # Up and down

    def up(self) -> None:
        """Create and start a cloud; stop all of it if anything fails.

        :raises: StartError.
        """
        if len(str(self.folder)) > 80 or ' ' in str(self.folder):
            raise services.StartError(
                f'{self.folder} is too long for a socket, or contains a '
                f'space; choose another folder with DIR')
        # Other users must not enter it, because the database has no password.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(self.folder.iterdir()) and not self.marker.exists():
            raise services.StartError(
                f'{self.folder} is neither empty nor the folder of a cloud; '
                f'choose another folder with DIR')
        with self._lock('make cloud'):
            if self._runs():
                with step('stop of the previous cloud'):
                    self._down()
            for port in self.port.values():
                services.check_port(port)
            for path in set(self.folder.iterdir()) - {self.marker}:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            try:
                self._up()
            except BaseException:
                self._down()
                raise

    @contextlib.contextmanager
    def _lock(self, command: str) -> Iterator[None]:
        """Lock the folder. The lock ends with this process, however it ends.

        :raises: StartError if another process has locked it.
        """
        with open(self.marker, 'a+') as marker:
            try:
                fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                marker.seek(0)
                raise services.StartError(marker.read())
            marker.truncate(0)
            marker.write(f'{command} is still running (pid {os.getpid()}); '
                         f'wait for its end, or stop it with Ctrl-C')
            marker.flush()
            yield

    def _up(self) -> None:
        self.configure()
        with step('supervisord'):
            self.run('supervisord', '-c', self.folder / 'supervisord.conf')
        with step('MariaDB and RabbitMQ'):
            self.run(_find_system_program('mariadb-install-db'),
                     '--no-defaults',
                     f'--datadir={self.folder}/mariadb',
                     f'--user={_find_user()}',
                     f'--tmpdir={self.folder}', '--skip-test-db',
                     '--auth-root-authentication-method=normal')
            self.start('mariadb', 'epmd', 'rabbitmq')
            self._create_databases()
        with step('database schemas'):
            self._create_schemas()
        with step('Keystone'):
            self.start('keystone')
            self._create_users()
        with step('Glance, Placement, Neutron, Ironic'):
            self.start('glance', 'placement', 'neutron', 'ironic-conductor',
                       'ironic')
            baremetal = self.connect(system_scope='all').baremetal
            self.wait(lambda: list(baremetal.conductors()),
                      'ironic-conductor')
        with step(f'{self.nodes} nodes'):
            self._enrol()
        with step('Nova'):
            self.start('nova-conductor', 'nova-scheduler', 'nova')
        with step(f'{len(self.hosts)} computes'):
            self.start_computes()
            if self.standby:
                self.start(*set(self.computes).difference(self.hosts))
        with step('image, flavor, network'):
            self._create_resources()
        self.write_credentials()

    def down(self) -> bool:
        """Stop all processes, and keep the files.

        :returns: whether the cloud was running.
        :raises: StartError, also if it is being started or stopped.
        """
        if not self.marker.exists():
            return False
        with self._lock('make cloud-down'):
            return self._down()

    def _runs(self) -> bool:
        try:
            self._call('getState')
        except OSError:
            return False
        except client.Fault:
            pass  # It is about to exit.
        return True

    def _down(self) -> bool:
        if not self._runs():
            return False
        with contextlib.suppress(OSError, client.Fault):
            self.stop(*(process['name'] for process
                        in self._call('getAllProcessInfo')))
            self._call('shutdown')
        try:
            tenacity.Retrying(
                retry=tenacity.retry_if_result(bool),
                wait=tenacity.wait_fixed(0.2),
                stop=tenacity.stop_after_delay(TIMEOUT))(
                    (self.folder / 'supervisord.pid').exists)
        except tenacity.RetryError:
            raise services.StartError(f'supervisord does not stop; see '
                                      f'{self.folder}/supervisord.log')
        return True

    def run(self, program: str, *arguments: Any) -> None:
        """Run a command of a service, and wait for it."""
        services.run([services.program(program), *map(str, arguments)],
                     self.log('setup'))

    def start(self, *names: str) -> None:
        """Start processes that do not run, and wait until servers respond.

        :raises: StartError.
        """
        for name in names:
            # It may run already.
            with contextlib.suppress(OSError, client.Fault):
                self._call('startProcess', name, False)
        for name in names:
            self.wait(functools.partial(self._responds, name), name)

    def _responds(self, name: str) -> bool:
        if name == 'rabbitmq':
            with socket.create_connection(('127.0.0.1', self.port['amqp'])):
                return True
        return (name not in APIS
                or requests.get(self.url(name), timeout=10).status_code < 500)

    def stop(self, *names: str) -> None:
        """Stop processes, and wait until they have exited."""
        for name in names:
            # It may have exited already.
            with contextlib.suppress(client.Fault):
                self._call('stopProcess', name, False)
        # supervisord kills those that have not exited after ten seconds.
        self._wait_until_none('STOPPING', *names)

    def _wait_until_none(self, state: str, *names: str) -> None:
        """Wait until no process is in a state.

        While a client waits for a stop, supervisord uses a whole processor.
        """
        tenacity.Retrying(
            retry=tenacity.retry_if_result(bool),
            wait=tenacity.wait_fixed(0.2))(
                lambda: state in map(self.state, names))

    def start_computes(self) -> None:
        """Start the compute services, and wait for their compute nodes."""
        self.start(*self.hosts)
        compute = self.connect().compute
        # Nova's own driver has a compute node for each node of Ironic.
        number = len(self.hosts) if self.driver == DRIVER else self.nodes
        self.wait(lambda: len(list(compute.hypervisors())) == number,
                  *self.hosts)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process and its workers.

        After SIGKILL, wait until supervisord knows that the process has
        exited: before, it would not start it.
        """
        os.killpg(self.pid(name), number)
        if number == signal.SIGKILL:
            self._wait_until_none('RUNNING', name)

    def state(self, name: str) -> str:
        """Return supervisord's name of a process's state, or UNKNOWN."""
        try:
            state: str = self._call('getProcessInfo', name)['statename']
        except (OSError, client.Fault):
            return 'UNKNOWN'
        return state

    def pid(self, name: str) -> int:
        """Return the ID of a process.

        :raises: StartError if it does not run.
        """
        pid: int = self._call('getProcessInfo', name)['pid']
        if not pid:
            raise services.StartError(f'{name} is not running')
        return pid

    def wait(self, is_ready: Callable[[], Any], *names: str) -> Any:
        """Wait until a function returns a true value, and return it.

        The function is called again after a false value or an exception.

        :param names: processes that must keep running.
        :raises: StartError if one exits, or after a timeout.
        """
        def attempt() -> Any:
            for name in names:
                if self.state(name) != 'RUNNING':
                    raise services.StartError(f'{name} has exited; '
                                              + self._quote_log(name))
            return is_ready()

        def is_temporary(error: BaseException) -> bool:
            return (isinstance(error, Exception)
                    and not isinstance(error, services.StartError))

        try:
            return tenacity.Retrying(
                retry=tenacity.retry_if_result(lambda result: not result)
                | tenacity.retry_if_exception(is_temporary),
                wait=tenacity.wait_fixed(0.5),
                stop=tenacity.stop_after_delay(TIMEOUT))(attempt)
        except tenacity.RetryError as e:
            raise services.StartError(
                f'{", ".join(names)}: not ready after {TIMEOUT} s '
                f'({e.last_attempt.exception() or "no result"}); '
                + self._quote_log(names[0]))

    def _quote_log(self, name: str) -> str:
        return (f'the end of {self.log(name)}:\n'
                f'{services.tail(self.log(name))}')

    # Content

    def _create_databases(self) -> None:
        server = sqlalchemy.create_engine(
            self.database_url(''), isolation_level='AUTOCOMMIT',
            poolclass=sqlalchemy.NullPool)
        self.wait(lambda: sqlalchemy.inspect(server), 'mariadb')
        with server.connect() as connection:
            for name in DATABASES:
                connection.exec_driver_sql(f'CREATE DATABASE {name}')

    def _create_schemas(self) -> None:
        conf = {name: ('--config-file', self.folder / name / file)
                for name, file in (
                    ('glance', 'glance-api.conf'), ('nova', 'nova.conf'),
                    ('neutron', 'neutron.conf'), ('ironic', 'ironic.conf'))}

        def nova() -> None:
            manage = ('nova-manage', *conf['nova'])
            self.run(*manage, 'api_db', 'sync')
            self.run(*manage, 'cell_v2', 'map_cell0',
                     '--database_connection',
                     self.database_url('nova_cell0'))
            self.run(*manage, 'cell_v2', 'create_cell', '--name', 'cell1')
            self.run(*manage, 'db', 'sync')

        def ironic() -> None:
            self.run('ironic-dbsync', *conf['ironic'], 'create_schema')
            self.run('ironic-reservations-dbsync', *conf['ironic'],
                     'upgrade')

        pool = concurrent.futures.ThreadPoolExecutor(2)
        try:
            tasks: list[concurrent.futures.Future[Any]] = [
                pool.submit(*task) for task in (
                (services.set_up_keystone, self.folder / 'keystone',
                 self.database_url('keystone'), self.auth_url, PASSWORD),
                (nova,), (ironic,),
                (self.run, 'neutron-db-manage', *conf['neutron'], 'upgrade',
                 'head'),
                (self.run, 'glance-manage', *conf['glance'], 'db_sync'))]
            self.run('placement-manage', '--config-dir',
                     self.folder / 'placement', 'db', 'sync')
            for task in tasks:
                task.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def connect(self, **scope: str) -> Any:
        """Return the SDK's connection of the administrator."""
        return openstack.connect(
            load_envvars=False, load_yaml_config=False,
            auth={'auth_url': self.auth_url, 'username': 'admin',
                  'password': PASSWORD, 'user_domain_name': 'Default',
                  **(scope or {'project_name': 'admin',
                               'project_domain_name': 'Default'})},
            region_name='RegionOne')

    def _create_users(self) -> None:
        identity = self.connect(system_scope='all').identity
        roles = {role.name: role for role in identity.roles()}
        project = identity.create_project(name='service',
                                          domain_id='default')
        for name, service_type, path in (
                ('glance', 'image', ''), ('placement', 'placement', ''),
                ('neutron', 'network', ''), ('ironic', 'baremetal', ''),
                ('nova', 'compute', '/v2.1')):
            user = identity.create_user(name=name, password=PASSWORD,
                                        domain_id='default')
            for role in ('admin', 'service'):
                identity.assign_project_role_to_user(project, user,
                                                     roles[role])
            service = identity.create_service(name=name,
                                              type=service_type)
            identity.create_endpoint(
                service_id=service.id, interface='public',
                region_id='RegionOne', url=self.url(name, path))
            if name == 'nova':
                for role in ('admin', 'service'):
                    identity.assign_system_role_to_user(user, roles[role],
                                                        'all')
        demo = identity.create_project(name='demo', domain_id='default')
        identity.assign_project_role_to_user(
            demo, identity.create_user(name='demo', password=PASSWORD,
                                       domain_id='default'), roles['member'])

    def _enrol(self) -> None:
        services.enrol(self.connect(system_scope='all').baremetal, [
            {'name': f'node-{number + 1}', 'resource_class': 'baremetal.gold',
             'properties': {'memory_mb': 65536, 'cpus': 32, 'local_gb': 1000,
                            'cpu_arch': 'x86_64',
                            'capabilities':
                            f'pod:p{number % RACKS // 2 + 1},'
                            f'rack:r{number % RACKS + 1}'}}
            for number in range(self.nodes)])

    def create_image(self, name: str) -> Any:
        """Create an image that all projects can use."""
        return self.connect().image.create_image(
            name, data=b'nothing', disk_format='raw',
            container_format='bare', visibility='public')

    def create_flavor(self, name: str) -> Any:
        """Create a flavor that all nodes match."""
        compute = self.connect().compute
        flavor = compute.create_flavor(
            name=name, ram=65536, vcpus=32, disk=1000)
        compute.create_flavor_extra_specs(flavor, {
            'resources:CUSTOM_BAREMETAL_GOLD': '1', 'resources:VCPU': '0',
            'resources:MEMORY_MB': '0', 'resources:DISK_GB': '0'})
        return flavor

    def _create_resources(self) -> None:
        self.create_image(IMAGE)
        self.create_flavor(FLAVOR)
        cloud = self.connect()
        network = cloud.network.create_network(
            name=NETWORK, is_shared=True, provider_network_type='flat',
            provider_physical_network='physical')
        cloud.network.create_subnet(
            network_id=network.id, ip_version=4, cidr='198.51.100.0/24',
            is_dhcp_enabled=False)

    def auth(self, name: str) -> dict[str, str]:
        """Return the parameters with which keystoneauth logs in a user.

        :param name: key of USERS.
        """
        return {'auth_url': self.auth_url, 'password': PASSWORD,
                'user_domain_name': 'Default', **USERS[name]}

    def environment(self, name: str) -> dict[str, str]:
        """Return the variables with which the openstack command is a user."""
        return {'OS_IDENTITY_API_VERSION': '3', **{
            f'OS_{key.upper()}': value
            for key, value in self.auth(name).items()}}

    def write_credentials(self) -> None:
        """Write an openrc file for each user, and clouds.yaml for all.

        The link ``bin`` leads to the commands, which depend on the release.
        """
        programs = os.path.dirname(sys.executable)
        link = self.folder / 'bin'
        link.unlink(missing_ok=True)
        link.symlink_to(programs)
        # Variables of other users, and of "make serve", would conflict.
        unset = r"unset OS_CLOUD $(env | sed -n 's/^\(OS_[A-Z_]*\)=.*/\1/p')"
        for name in USERS:
            (self.folder / f'{name}-openrc').write_text('\n'.join([
                unset, *(f'export {key}={value}' for key, value
                         in self.environment(name).items()),
                f'export PATH={programs}:$PATH', '']))
        (self.folder / 'clouds.yaml').write_text(yaml.safe_dump({'clouds': {
            name: {'auth': self.auth(name), 'region_name': 'RegionOne'}
            for name in USERS}}))


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Show the name of a step while it lasts, and then its duration."""
    start = time.monotonic()
    with SCREEN.status(f'{name} ...'):
        yield
    SCREEN.print(f'{name}: {time.monotonic() - start:.0f} s')


def _find_system_program(name: str) -> str:
    """Return the path of a program in Debian's packages.

    :raises: NotInstalled.
    """
    path = services.find(name)
    if path is None:
        raise services.NotInstalled(
            f'{name} is not installed; on Debian: apt-get install '
            f'--no-install-recommends mariadb-server-core '
            f'mariadb-client-core rabbitmq-server')
    return path


def write_paste_config(folder: services.Path) -> str:
    """Write the file of Nova's API, with the driver's filter; return its path.

    The guide "servers" has the commands.
    """
    path = shutil.copy(_find_etc('nova/api-paste.ini'),
                       pathlib.Path(folder, 'api-paste.ini'))
    subprocess.run(['sh', EXAMPLES / 'named-node.sh', path], check=True)
    return str(path)


def _find_etc(path: str) -> pathlib.Path:
    """Return a configuration file that a Python package installs."""
    return pathlib.Path(sys.prefix, 'etc', path)


def _find_user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def _quote(value: object) -> str:
    return '"' + str(value).replace('"', '\\"') + '"'


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('command', choices=['up', 'down'])
    parser.add_argument('--dir',
                        default=os.environ.get('DIR') or FOLDER,
                        help='folder for everything (default: %(default)s)')
    parser.add_argument('--port', type=int,
                        default=os.environ.get('PORT') or 6400,
                        help='the first of nine ports (default: %(default)s)')
    parser.add_argument('--computes', type=int, default=3,
                        help='compute services (default: %(default)s)')
    parser.add_argument('--nodes', type=int, default=12,
                        help='bare metal nodes (default: %(default)s)')
    parser.add_argument('--driver', default=DRIVER,
                        help='compute_driver (default: %(default)s)')
    parser.add_argument('--lease', type=int,
                        help='[reservations] lease of nova.conf, in seconds '
                             '(default: an hour)')
    parser.add_argument('--deploy-delay', default='0',
                        help='seconds that a node takes to deploy, or a '
                             'range "FROM,TO" (default: %(default)s)')
    parser.add_argument('--standby', action='store_true', default=None,
                        help='run a standby process for the first host')
    parser.add_argument('--concurrency',
                        default=os.environ.get('CONCURRENCY') or None,
                        help=f'how Nova\'s services run: '
                             f'{" or ".join(CONCURRENCY)} (default: that of '
                             f'the release)')
    args = parser.parse_args()
    if args.concurrency not in (None, *CONCURRENCY):
        parser.error(f'CONCURRENCY must be {" or ".join(CONCURRENCY)}, not '
                     f'{args.concurrency!r}')
    if args.standby and args.driver != DRIVER:
        parser.error('Only the driver of ironic-reservations has standbys')
    cloud = Cloud(args.dir, args.port, args.computes, args.nodes, args.driver,
                  args.lease, args.deploy_delay)
    cloud.standby, cloud.concurrency = args.standby, args.concurrency
    services.stop_on_signal()
    try:
        if args.command == 'up':
            cloud.up()
        elif cloud.down():
            return
        else:
            raise SystemExit(f'No cloud is running in {cloud.folder}')
    except KeyboardInterrupt:
        raise SystemExit('Interrupted')
    except Exception as e:
        logs = cloud.folder / 'logs'
        kind = ('' if isinstance(e, services.StartError)
                else f'{type(e).__name__}: ')
        raise SystemExit(f'{kind}{e}' + (
            f'\n\nAll logs: {logs}' if logs.exists() else ''))
    folder = '' if args.dir == FOLDER else f' DIR={shlex.quote(args.dir)}'
    SCREEN.print(f'''
. {cloud.folder}/admin-openrc
openstack server create --flavor {FLAVOR} --image {IMAGE} \\
    --network {NETWORK} --wait server-1
. {cloud.folder}/system-openrc
openstack baremetal reservation list

It runs until you stop it: make cloud-down{folder}''', soft_wrap=True)


if __name__ == '__main__':
    main()
