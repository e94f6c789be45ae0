# SPDX-License-Identifier: Apache-2.0
"""A whole OpenStack on this machine, whose servers land on fake bare metal.

    python -m tools.cloud up
    python -m tools.cloud down

MariaDB, RabbitMQ, Keystone, Glance, Placement, Neutron, Ironic with the
plugin, and Nova with several compute services: each a process of its own on
127.0.0.1, under supervisord. One folder has everything: configuration,
databases, logs, and openrc files to source.

``Cloud.up`` says what is started, in which order; ``Cloud.configure`` what
each service is told.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import os
import pathlib
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
import time

import openstack
import requests
from rich import console
import sqlalchemy
import tenacity

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
#: Options of nova.conf, see Cloud.quick.
QUICK = {'report_interval': 5, 'service_down_time': 20,
         'periodic_fuzzy_delay': 0, 'update_resources_interval': 5,
         'running_deleted_instance_poll_interval': 30}
USERS = {
    'admin': {'OS_USERNAME': 'admin', 'OS_PROJECT_NAME': 'admin',
              'OS_PROJECT_DOMAIN_NAME': 'Default'},
    'system': {'OS_USERNAME': 'admin', 'OS_SYSTEM_SCOPE': 'all'},
    'demo': {'OS_USERNAME': 'demo', 'OS_PROJECT_NAME': 'demo',
             'OS_PROJECT_DOMAIN_NAME': 'Default'},
}
#: The configuration that the documentation recommends is this cloud's, too.
DOCUMENTED = pathlib.Path(__file__).parents[1] / 'doc' / 'source'


class Cloud:
    """Where everything is.

    :param folder: for all files; a short path, as it holds sockets.
    :param port: the first of nine.
    :param lease: seconds; None is the driver's default.
    :param deploy_delay: seconds that a node takes to deploy, or two of them,
        as in "20,40", between which it does.
    :ivar mode, adopt: of the driver; None is its default.
    :ivar quick: whether what Nova does periodically, and finds dead, it does
        and finds within seconds, while one watches; else within a minute, as
        is its default.
    :ivar standby: whether hosts have a standby; the first host's is a
        process of its own then, ``compute-1b``, started after the others.
    :ivar compute: more options of ``[DEFAULT]`` in nova.conf of the hosts.
    :param scheduler: options of Nova's scheduler, ``{section: {option:
        value}}``; None for those of the documentation.
    """

    def __init__(self, folder, port=6400, computes=3, nodes=12,
                 driver=DRIVER, lease=None, deploy_delay='0', scheduler=None):
        self.folder = pathlib.Path(folder).absolute()
        # Nobody else's folder has it.
        self.marker = self.folder / 'ironic-reservations-cloud'
        self.port = dict(zip(
            (*APIS, 'amqp', 'amqp_dist', 'epmd'),
            range(port, port + 9), strict=True))
        self.hosts = [f'compute-{number + 1}' for number in range(computes)]
        self.nodes, self.driver = nodes, driver
        self.lease, self.deploy_delay = lease, deploy_delay
        self.mode = self.adopt = self.standby = None
        self.compute = {}
        self.quick = True
        self.scheduler = scheduler
        self.auth_url = self.url('keystone', '/v3')

    @property
    def computes(self):
        """Which host each nova-compute is."""
        hosts = {host: host for host in self.hosts}
        if self.standby:
            hosts[f'{self.hosts[0]}b'] = self.hosts[0]
        return hosts

    def url(self, service, path=''):
        return f'http://127.0.0.1:{self.port[service]}{path}'

    # Configuration

    def configure(self):
        """Write every file that a process reads."""
        port, folder = self.port, self.folder
        for name in ('keystone', 'glance', 'placement', 'neutron', 'nova',
                     'ironic', 'rabbitmq', 'logs', *self.computes):
            (folder / name).mkdir(parents=True, exist_ok=True)
        bus = f'rabbit://guest:guest@127.0.0.1:{port["amqp"]}/'

        def user(name, **scope):
            return {'auth_type': 'password', 'auth_url': self.auth_url,
                    'username': name, 'password': PASSWORD,
                    'user_domain_name': 'Default', **(scope or {
                        'project_name': 'service',
                        'project_domain_name': 'Default'})}

        def database(name):
            return {'connection': self.database_url(name)}

        def write(path, config):
            name = path.partition('/')[0]
            services.write_conf(folder / path, {
                'DEFAULT': config.pop('DEFAULT', {}),
                'oslo_concurrency': {'lock_path': folder / name / 'lock'},
                **config})

        def tokens(name):
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
                'config_file': _installed('glance/glance-api-paste.ini')},
            **tokens('glance')})
        write('placement/placement.conf', {
            'placement_database': database('placement'),
            **services.read_conf(DOCUMENTED / 'placement.conf'),
            **tokens('placement')})
        write('neutron/neutron.conf', {
            # Without the last of these Neutron 29 cannot list ports.
            'DEFAULT': {'core_plugin': 'ml2',
                        'service_plugins': 'router,port_forwarding',
                        'transport_url': bus,
                        'api_paste_config': _installed(
                            'neutron/api-paste.ini'),
                        'notify_nova_on_port_status_changes': 'false',
                        'notify_nova_on_port_data_changes': 'false'},
            # Ports stay unbound: fake machines need no switch.
            'ml2': {'type_drivers': 'flat', 'tenant_network_types': '',
                    'mechanism_drivers': 'logger'},
            'ml2_type_flat': {'flat_networks': 'physical'},
            'database': database('neutron'), **tokens('neutron')})
        write('ironic/ironic.conf', {
            'DEFAULT': {**services.FAKE_HARDWARE, 'my_ip': '127.0.0.1',
                        'auth_strategy': 'keystone',
                        'rpc_transport': 'oslo', 'transport_url': bus,
                        'rbac_service_role_elevated_access': 'true'},
            'api': {'middleware': 'reservations'},
            'reservations': {'require_lease': 'true'},
            'conductor': {'automated_clean': 'false'},
            'fake': {'deploy_delay': self.deploy_delay},
            # Whether an image is that of a whole disk.
            'glance': user('ironic'),
            'database': database('ironic'), **tokens('ironic')})
        nova = {
            'DEFAULT': {'transport_url': bus, 'my_ip': '127.0.0.1',
                        **(QUICK if self.quick else {})},
            'api': {'auth_strategy': 'keystone'},
            'quota': {'driver': 'nova.quota.NoopQuotaDriver'},
            'glance': {'api_servers': self.url('glance')},
            'placement': user('placement'),
            'neutron': user('neutron'),
            'service_user': {'send_service_user_token': 'true',
                             **user('nova')},
        }
        # It looks for this one beside its configuration only.
        shutil.copy(_installed('nova/api-paste.ini'), folder / 'nova')
        compute = services.read_conf(DOCUMENTED / 'nova-compute.conf')
        groups = services.read_conf(DOCUMENTED / 'nova-server-groups.conf')
        scheduler = self.scheduler
        if scheduler is None:
            scheduler = services.read_conf(DOCUMENTED / 'nova-scheduler.conf')
        write('nova/nova.conf', {
            **nova, 'database': database('nova'),
            'api_database': database('nova_api'), **tokens('nova'),
            **scheduler, 'workarounds': compute['workarounds'],
            'scheduler': {**scheduler.get('scheduler', {}),
                          'discover_hosts_in_cells_interval': 5}})
        for name, host in self.computes.items():
            # A compute service must not know the databases.
            write(f'{name}/nova.conf', {
                **nova, **compute, 'DEFAULT': {
                    **nova['DEFAULT'], **compute['DEFAULT'], 'host': host,
                    'compute_driver': self.driver,
                    'state_path': folder / name,
                    # Not every machine has that of the distribution.
                    'mkisofs_cmd': services.program('pycdlib-genisoimage'),
                    # Fake deploys never power a machine on.
                    'sync_power_state_interval': -1, **self.compute},
                'ironic': {**compute['ironic'],
                           **user('nova', system_scope='all')},
                'reservations': {**groups['reservations'], **{
                    name: value for name, value in (
                        ('lease', self.lease), ('mode', self.mode),
                        ('adopt', self.adopt), ('standby', self.standby))
                    if value is not None}}})
        (folder / 'supervisord.conf').write_text(self._supervisord())

    def database_url(self, name):
        return (f'mysql+pymysql://root@localhost/{name}?unix_socket='
                f'{self.folder}/mariadb.sock')

    # Processes

    def programs(self):
        """Command and environment of each process, in the order of start."""
        rabbitmq = self.folder / 'rabbitmq'

        def uwsgi(service, application, *more, processes=2, **environment):
            return services.uwsgi_command(
                application, self.port[service], processes, *more), {
                    name: self.folder / value
                    for name, value in environment.items()}

        def daemon(program, conf):
            return [services.program(program), '--config-file',
                    self.folder / conf], {}

        yield 'mariadb', [
            _system('mariadbd'), '--no-defaults',
            f'--datadir={self.folder}/mariadb', f'--tmpdir={self.folder}',
            '--skip-networking',
            f'--socket={self.folder}/mariadb.sock', f'--user={_user()}',
            '--max-connections=1000', '--character-set-server=utf8mb4'], {}
        # RabbitMQ would start one that stays.
        yield 'epmd', [_system('epmd'), '-address', '127.0.0.1',
                       '-port', self.port['epmd']], {}
        yield 'rabbitmq', [_system('rabbitmq-server')], {
            'HOME': rabbitmq,
            'RABBITMQ_NODENAME': f'cloud{self.port["amqp"]}@localhost',
            'RABBITMQ_MNESIA_BASE': rabbitmq, 'RABBITMQ_LOG_BASE': rabbitmq,
            'RABBITMQ_NODE_IP_ADDRESS': '127.0.0.1',
            'RABBITMQ_NODE_PORT': self.port['amqp'],
            'RABBITMQ_DIST_PORT': self.port['amqp_dist'],
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                '-kernel inet_dist_use_interface {127,0,0,1}',
            # Not the machine's own.
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
        # A process of Neutron 29 fails if the first that it is asked for is a
        # list of ports; this one has been asked to create a network by then.
        yield 'neutron', *uwsgi(
            'neutron', 'neutron.wsgi.api:application', '--pyargv',
            f'--config-file {self.folder}/neutron/neutron.conf', processes=1)
        yield 'ironic-conductor', *daemon('ironic-conductor',
                                          'ironic/ironic.conf')
        yield 'ironic', *uwsgi(
            'ironic', 'ironic.wsgi:application', '--pyargv',
            f'--config-file {self.folder}/ironic/ironic.conf')
        yield 'nova-conductor', *daemon('nova-conductor', 'nova/nova.conf')
        yield 'nova-scheduler', *daemon('nova-scheduler', 'nova/nova.conf')
        yield 'nova', *uwsgi('nova', 'nova.wsgi.osapi_compute:application',
                             OS_NOVA_CONFIG_DIR='nova')
        for name in self.computes:
            yield name, *daemon('nova-compute', f'{name}/nova.conf')

    def _supervisord(self):
        folder = self.folder
        sections = {
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
                # Not to outlive supervisord, should that be killed. Some
                # ignore SIGTERM; RabbitMQ's is a shell that hands it on.
                'command': ' '.join(_quoted(word) for word in (
                    'setpriv', '--pdeathsig',
                    'TERM' if name == 'rabbitmq' else 'KILL', *command)),
                # For what it leaves behind when it crashes.
                'directory': folder,
                'environment': ','.join(
                    f'{key}={_quoted(value)}'
                    for key, value in environment.items()),
                'stdout_logfile': self.log(name),
                'redirect_stderr': 'true', 'stdout_logfile_maxbytes': 0,
                'autostart': 'false', 'autorestart': 'false',
                # Its workers too.
                'stopasgroup': 'true', 'killasgroup': 'true',
                'startsecs': 0, 'stopwaitsecs': 10}
        return '\n'.join(
            f'[{section}]\n' + ''.join(
                f'{key} = {str(value).replace("%", "%%")}\n'
                for key, value in options.items())
            for section, options in sections.items())

    def log(self, name):
        return self.folder / 'logs' / f'{name}.log'

    def control(self, *command):
        return subprocess.run(
            [services.program('supervisorctl'), '-c',
             self.folder / 'supervisord.conf', *command],
            capture_output=True, text=True)

    # Up and down

    def up(self):
        """Start everything, anew; or nothing, when something fails."""
        if len(str(self.folder)) > 80 or ' ' in str(self.folder):
            raise services.StartError(
                f'{self.folder} is too long for a socket in it, or has a '
                f'space; choose another folder with DIR')
        if self.runs():
            with step('end of the last cloud'):
                self.down()
        for port in self.port.values():
            services.check_port(port)
        self._empty()
        try:
            self._up()
        except BaseException:
            self.down()
            raise

    def _up(self):
        self.configure()
        with step('supervisord'):
            self.run('supervisord', '-c', self.folder / 'supervisord.conf')
        with step('MariaDB and RabbitMQ'):
            self.run(_system('mariadb-install-db'), '--no-defaults',
                     f'--datadir={self.folder}/mariadb', f'--user={_user()}',
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
        self._write_openrc()

    def _empty(self):
        """Away with a cloud that was here; with nothing else."""
        # Root of its database needs no password.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.marker.exists() and any(self.folder.iterdir()):
            raise services.StartError(
                f'{self.folder} is neither empty nor a cloud; choose another '
                f'folder with DIR')
        self.marker.touch()
        for path in set(self.folder.iterdir()) - {self.marker}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def runs(self):
        return self.marker.exists() and not self.control('pid').returncode

    def down(self):
        """End what runs; the files stay."""
        if not self.runs():
            return
        self.control('stop', 'all')
        self.control('shutdown')
        try:
            tenacity.Retrying(
                retry=tenacity.retry_if_result(bool),
                wait=tenacity.wait_fixed(0.2),
                stop=tenacity.stop_after_delay(TIMEOUT))(
                    (self.folder / 'supervisord.pid').exists)
        except tenacity.RetryError:
            raise services.StartError(f'supervisord does not end; see '
                                      f'{self.folder}/supervisord.log')

    def run(self, program, *arguments):
        """Run one of the services' commands to its end."""
        services.run([services.program(program), *map(str, arguments)],
                     self.log('setup'))

    def start(self, *names):
        """Start processes; those that listen are waited for."""
        self.control('start', *names)
        for name in names:
            self.wait(functools.partial(self._answers, name), name)

    def _answers(self, name):
        if name == 'rabbitmq':
            with socket.create_connection(('127.0.0.1', self.port['amqp'])):
                return True
        return (name not in APIS
                or requests.get(self.url(name), timeout=10).status_code < 500)

    def stop(self, *names):
        self.control('stop', *names)

    def start_computes(self):
        self.start(*self.hosts)
        compute = self.connect().compute
        # Nova's own driver has a row per node.
        rows = len(self.hosts) if self.driver == DRIVER else self.nodes
        self.wait(lambda: len(list(compute.hypervisors())) == rows,
                  *self.hosts)

    def signal(self, name, number):
        """Send a signal to a process and its workers."""
        os.killpg(self.pid(name), number)

    def pid(self, name):
        pid = int(self.control('pid', name).stdout)
        if not pid:
            raise services.StartError(f'{name} does not run')
        return pid

    def wait(self, ready, *names):
        """Wait for a true value, and no error, while processes run.

        :raises: StartError when one ends, or it is not ready in time.
        """
        def look():
            for name in names:
                if 'RUNNING' not in self.control('status', name).stdout:
                    raise services.StartError(f'{name} has ended; '
                                              + self._end_of_log(name))
            return ready()

        def goes_on(error):
            return (isinstance(error, Exception)
                    and not isinstance(error, services.StartError))

        try:
            return tenacity.Retrying(
                retry=tenacity.retry_if_result(lambda result: not result)
                | tenacity.retry_if_exception(goes_on),
                wait=tenacity.wait_fixed(0.5),
                stop=tenacity.stop_after_delay(TIMEOUT))(look)
        except tenacity.RetryError as e:
            raise services.StartError(
                f'{", ".join(names)}: not ready after {TIMEOUT} s '
                f'({e.last_attempt.exception() or "not seen"}); '
                + self._end_of_log(names[0]))

    def _end_of_log(self, name):
        return (f'the end of {self.log(name)}:\n'
                f'{services.tail(self.log(name))}')

    # What is in it

    def _create_databases(self):
        server = sqlalchemy.create_engine(
            self.database_url(''), isolation_level='AUTOCOMMIT',
            poolclass=sqlalchemy.NullPool)
        self.wait(lambda: sqlalchemy.inspect(server), 'mariadb')
        with server.connect() as connection:
            for name in DATABASES:
                connection.exec_driver_sql(f'CREATE DATABASE {name}')

    def _create_schemas(self):
        conf = {name: ('--config-file', self.folder / name / file)
                for name, file in (
                    ('glance', 'glance-api.conf'), ('nova', 'nova.conf'),
                    ('neutron', 'neutron.conf'), ('ironic', 'ironic.conf'))}

        def nova():
            manage = ('nova-manage', *conf['nova'])
            self.run(*manage, 'api_db', 'sync')
            self.run(*manage, 'cell_v2', 'map_cell0',
                     '--database_connection',
                     self.database_url('nova_cell0'))
            self.run(*manage, 'cell_v2', 'create_cell', '--name', 'cell1')
            self.run(*manage, 'db', 'sync')

        def ironic():
            self.run('ironic-dbsync', *conf['ironic'], 'create_schema')
            self.run('ironic-reservations-dbsync', *conf['ironic'],
                     'upgrade')

        pool = concurrent.futures.ThreadPoolExecutor(2)
        try:
            tasks = [pool.submit(*task) for task in (
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

    def connect(self, **scope):
        """The SDK's connection of the administrator."""
        return openstack.connect(
            load_envvars=False, load_yaml_config=False,
            auth={'auth_url': self.auth_url, 'username': 'admin',
                  'password': PASSWORD, 'user_domain_name': 'Default',
                  **(scope or {'project_name': 'admin',
                               'project_domain_name': 'Default'})},
            region_name='RegionOne')

    def _create_users(self):
        identity = self.connect(system_scope='all').identity
        roles = {role.name: role for role in identity.roles()}
        project = identity.create_project(name='service',
                                          domain_id='default')
        for name, kind, path in (
                ('glance', 'image', ''), ('placement', 'placement', ''),
                ('neutron', 'network', ''), ('ironic', 'baremetal', ''),
                ('nova', 'compute', '/v2.1')):
            user = identity.create_user(name=name, password=PASSWORD,
                                        domain_id='default')
            for role in ('admin', 'service'):
                identity.assign_project_role_to_user(project, user,
                                                     roles[role])
            service = identity.create_service(name=name, type=kind)
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

    def _enrol(self):
        services.enrol(self.connect(system_scope='all').baremetal, [
            {'name': f'node-{number + 1}', 'resource_class': 'baremetal.gold',
             'properties': {'memory_mb': 65536, 'cpus': 32, 'local_gb': 1000,
                            'cpu_arch': 'x86_64',
                            'capabilities': f'rack:r{number % RACKS + 1}'}}
            for number in range(self.nodes)])

    def _create_resources(self):
        cloud = self.connect()
        cloud.image.create_image(
            IMAGE, data=b'nothing', disk_format='raw',
            container_format='bare', visibility='public')
        flavor = cloud.compute.create_flavor(
            name=FLAVOR, ram=65536, vcpus=32, disk=1000)
        cloud.compute.create_flavor_extra_specs(flavor, {
            'resources:CUSTOM_BAREMETAL_GOLD': '1', 'resources:VCPU': '0',
            'resources:MEMORY_MB': '0', 'resources:DISK_GB': '0'})
        network = cloud.network.create_network(
            name=NETWORK, is_shared=True, provider_network_type='flat',
            provider_physical_network='physical')
        cloud.network.create_subnet(
            network_id=network.id, ip_version=4, cidr='198.51.100.0/24',
            is_dhcp_enabled=False)

    def environment(self, name):
        """What the openstack command needs to be one of USERS."""
        return {'OS_AUTH_URL': self.auth_url, 'OS_PASSWORD': PASSWORD,
                'OS_USER_DOMAIN_NAME': 'Default',
                'OS_IDENTITY_API_VERSION': '3', **USERS[name]}

    def _write_openrc(self):
        others = {'OS_CLOUD', 'OS_TOKEN', *(
            variable for name in USERS for variable in USERS[name])}
        for name in USERS:
            (self.folder / f'{name}-openrc').write_text(
                f'unset {" ".join(sorted(others))}\n'
                + ''.join(f'export {key}={value}\n' for key, value
                          in self.environment(name).items())
                + f'export PATH={os.path.dirname(sys.executable)}:$PATH\n')


@contextlib.contextmanager
def step(what):
    began = time.monotonic()
    with SCREEN.status(f'{what} ...'):
        yield
    SCREEN.print(f'{what}: {time.monotonic() - began:.0f} s')


def _system(name):
    """Path of a program that Debian's packages bring."""
    path = services.find(name)
    if path is None:
        raise services.NotInstalled(
            f'{name} is not installed; on Debian: apt-get install '
            f'--no-install-recommends mariadb-server-core '
            f'mariadb-client-core rabbitmq-server')
    return path


def _installed(path):
    return pathlib.Path(sys.prefix, 'etc', path)


def _user():
    return pwd.getpwuid(os.geteuid()).pw_name


def _quoted(value):
    return '"' + str(value).replace('"', '\\"') + '"'


def main():
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
                        help='seconds that a node takes to deploy, or '
                             '"FROM,TO" (default: %(default)s)')
    parser.add_argument('--standby', action='store_true', default=None,
                        help='have another process wait until it can be the '
                             'first host')
    args = parser.parse_args()
    if args.standby and args.driver != DRIVER:
        parser.error('Only the driver of ironic-reservations has standbys')
    cloud = Cloud(args.dir, args.port, args.computes, args.nodes, args.driver,
                  args.lease, args.deploy_delay)
    cloud.standby = args.standby
    services.stop_on_signal()
    try:
        if args.command == 'up':
            cloud.up()
        elif cloud.runs():
            cloud.down()
            return
        else:
            raise SystemExit(f'No cloud runs in {cloud.folder}')
    except KeyboardInterrupt:
        raise SystemExit('Interrupted')
    except Exception as e:
        logs = cloud.folder / 'logs'
        raise SystemExit(f'{type(e).__name__}: {e}' + (
            f'\n\nAll logs: {logs}' if logs.exists() else ''))
    folder = '' if args.dir == FOLDER else f' DIR={shlex.quote(args.dir)}'
    SCREEN.print(f'''
. {cloud.folder}/admin-openrc
openstack server create --flavor {FLAVOR} --image {IMAGE} \\
    --network {NETWORK} --wait server-1
. {cloud.folder}/system-openrc
openstack baremetal reservation list

It stays until you run: make cloud-down{folder}''', soft_wrap=True)


if __name__ == '__main__':
    main()
