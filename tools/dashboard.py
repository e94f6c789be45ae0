# SPDX-License-Identifier: Apache-2.0
"""Starts Horizon with our panels, a real Keystone and a real Ironic.

"make dashboard" starts them with the fleet of the quickstart, holds some
nodes, and prints where to log in. Horizon has its own environment in .tox.
"""

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
from typing import Any
import uuid

import openstack
from rich import console as rich_console

from ironic_reservations import sdk
from tools import quickstart
from tools import services

ROOT = pathlib.Path(__file__).parents[1]
#: Next to the environment that this runs in.
ENVIRONMENT = pathlib.Path(sys.prefix).with_name('dashboard')
ENABLED = ROOT / 'ironic_reservations' / 'horizon' / 'enabled'

#: The owner or lessee of a project's nodes in the fleet of the quickstart.
PROJECTS = {'team-a': quickstart.TEAM_A, 'team-b': quickstart.TEAM_B}

#: The end of a URL for logging in, which opens a panel. Horizon's own first
#: page needs Nova.
TO_PROJECT = '?next=/project/baremetal_reservations/'
TO_FLEET = ('?next=/auth/switch_system_scope/%3Fnext='
            '/admin/baremetal_reservations/')

console = rich_console.Console(highlight=False, markup=False, soft_wrap=True)

#: Settings of Horizon. Operators copy the files in "enabled" instead.
SETTINGS = '''
# Every name without an underscore becomes a setting.
from openstack_dashboard.local import enabled as _enabled

_enabled.__path__.append({enabled!r})
ALLOWED_HOSTS = ['127.0.0.1']
COMPRESS_OFFLINE = True
CACHES = {{'default': {{
    'BACKEND': 'django.core.cache.backends.locmem.LocMemCache'}}}}
LOGGING = {{
    'version': 1, 'disable_existing_loggers': False,
    'handlers': {{'console': {{'class': 'logging.StreamHandler'}}}},
    'root': {{'handlers': ['console'], 'level': 'WARNING'}}}}
OPENSTACK_KEYSTONE_URL = {keystone!r}
SECRET_KEY = {secret!r}
SESSION_ENGINE = 'django.contrib.sessions.backends.signed_cookies'
STATIC_ROOT = {static!r}
SYSTEM_SCOPE_SERVICES = {system_scope!r}
TIME_ZONE = 'UTC'
'''


@contextlib.contextmanager
def horizon(directory: str | os.PathLike[str], port: int, keystone_url: str,
            system_scope: Sequence[str] = ('baremetal',),
            more: str = '') -> Iterator[str]:
    """Run Horizon's development server; yield the URL for logging in.

    :param system_scope: ``SYSTEM_SCOPE_SERVICES``.
    :param more: further lines of local_settings.py.
    """
    services.check_port(port)
    # Horizon imports local.local_settings, and this one is first on the path.
    settings = pathlib.Path(directory, 'local', 'local_settings.py')
    settings.parent.mkdir()
    settings.with_name('__init__.py').touch()
    settings.write_text(more + SETTINGS.format(
        enabled=str(ENABLED), keystone=keystone_url, secret=uuid.uuid4().hex,
        static=str(ENVIRONMENT / 'static'), system_scope=list(system_scope)))
    django = [str(ENVIRONMENT / 'bin' / 'python'), '-m', 'django']
    env = {'DJANGO_SETTINGS_MODULE': 'openstack_dashboard.settings',
           # Take the panels from this tree.
           'PYTHONPATH': f'{directory}{os.pathsep}{ROOT}'}
    log = os.path.join(directory, 'horizon.log')
    # Operators do this once for each version of Horizon. Without it, each page
    # takes seconds.
    if not (ENVIRONMENT / 'static' / 'dashboard' / 'manifest.json').exists():
        for command in ['collectstatic', '--noinput'], ['compress']:
            services.run(['env', *(f'{name}={value}' for name, value
                                   in env.items()), *django, *command], log)
    url = f'http://127.0.0.1:{port}'
    # "--insecure" serves static files. One of them is requested to see whether
    # Horizon is ready, because the first page takes long on a busy machine.
    with services.running(
            [*django, 'runserver', '--noreload', '--insecure',
             f'127.0.0.1:{port}'], log,
            f'{url}/static/baremetal_reservations/fleet.css', env, kill=True):
        yield f'{url}/auth/login/'


@dataclasses.dataclass(frozen=True)
class Cloud:
    """A Keystone and an Ironic that uses it.

    :param auth: credentials of ``admin``, without a scope. All users have the
        same password.
    :param projects: IDs of projects by name.
    :param admin: connection in system scope.
    """

    ironic: services.Service
    auth: dict[str, Any]
    projects: dict[str, str]
    admin: Any


@contextlib.contextmanager
def cloud(directory: str | os.PathLike[str], port: int,
          keystone_port: int) -> Iterator[Cloud]:
    """Run Keystone and an Ironic without nodes.

    The users are ``admin``, in the system and in the project admin, and
    ``ada``, a member of team-a.
    """
    directory = pathlib.Path(directory)
    for name in 'keystone', 'ironic':
        (directory / name).mkdir()
    with contextlib.ExitStack() as stack:
        auth = stack.enter_context(services.keystone(
            directory / 'keystone', keystone_port))
        ironic = stack.enter_context(services.ironic(
            directory / 'ironic',
            f'sqlite:///{directory}/ironic/ironic.sqlite', port, kill=True,
            config={'DEFAULT': {'auth_strategy': 'keystone'},
                    'reservations': {'project_cordons': '1'},
                    'keystone_authtoken': {
                        'auth_type': 'password', 'project_name': 'admin',
                        'project_domain_id': 'default',
                        # Ironic soon refuses a token that was revoked.
                        'token_cache_time': '5',
                        'www_authenticate_uri': auth['auth_url'], **auth}}))
        projects = _create_projects(auth, ironic.url)
        # Log in only now, so that Ironic is in the catalog.
        admin = _connect(auth)
        admin.add_service(sdk.SERVICE)
        yield Cloud(ironic, auth, projects, admin)


def _connect(auth: dict[str, Any]) -> Any:
    return openstack.connect(load_envvars=False, load_yaml_config=False,
                             auth={**auth, 'system_scope': 'all'})


def _create_projects(auth: dict[str, Any], url: str) -> dict[str, str]:
    """Create the catalog, the projects and the user ada.

    :returns: the IDs of the projects by name.
    """
    identity = _connect(auth).identity
    service = identity.create_service(type='baremetal', name='ironic').id
    identity.create_endpoint(service_id=service, url=url, interface='public',
                             region_id='RegionOne')
    projects = {name: identity.create_project(
        name=name, domain_id='default').id for name in PROJECTS}
    member = identity.find_role('member', ignore_missing=False)
    ada = identity.create_user(name='ada', password=auth['password'],
                               domain_id='default')
    identity.assign_project_role_to_user(projects['team-a'], ada, member)
    return projects


def enrol_fleet(cloud: Cloud) -> None:
    """Enrol the fleet of the quickstart, and hold some nodes."""
    owners = {owner: cloud.projects[name] for name, owner in PROJECTS.items()}
    services.enrol(cloud.admin.baremetal, [
        {name: owners.get(value, value) if name in ('owner', 'lessee')
         else value for name, value in node.items()}
        for node in quickstart.FLEET])
    reservations = cloud.admin.baremetal_reservations
    team_a, team_b = (cloud.projects[name] for name in PROJECTS)
    reservations.create_group(
        2, {'resource_class': 'baremetal.gold'}, policy='pack',
        by='capability:rack', project_id=team_b, expires_in=86400)
    active = reservations.create(
        resource_class='baremetal.silver', memory_mb=65536, host='compute-1',
        project_id=team_a)
    reservations.create(resource_class='baremetal.gpu', host='compute-2',
                        project_id=team_b, expires_in=1800)
    reservations.create(candidate_nodes=['arm-1'], project_id=team_a,
                        expires_in=7200)
    reservations.put('/reservations/hosts/compute-1', json={
        'holder': str(uuid.uuid4()), 'ttl': 600})
    baremetal = cloud.admin.baremetal
    baremetal.set_node_provision_state(active.node_uuid, 'active')
    bronze = baremetal.get_node('bronze-3')
    baremetal.set_node_maintenance(bronze, 'its fan is broken')
    services.settle(baremetal, [baremetal.get_node(active.node_uuid)],
                    provision_state='active')


def add_samples(cloud: Cloud) -> None:
    """Add a pool and notices to the fleet; the tests make their own."""
    reservations = cloud.admin.baremetal_reservations
    group, = reservations.groups()
    reservations.describe_group(group, 'Migration of the web shop')
    reservations.create_pool(
        cloud.projects['team-a'], 2, {'resource_class': 'baremetal.silver',
                                      'memory_mb': 65536},
        expires_at={'in': 30 * 86400}, description='Training of models')
    active, = reservations.list(state='active')
    reservations.create_notices(
        'maintenance', nodes=[active.node_uuid], starts_at={'in': 2 * 86400},
        due_at={'in': 2 * 86400 + 14400}, latest_start={'in': 9 * 86400},
        description='New firmware', ticket='CHG-301')
    # It is overdue when the first page is open.
    reservations.create_notices(
        'maintenance', nodes=['bronze-3'], due_at={'in': 1},
        description='Exchange of the fan', ticket='CHG-298')
    reservations.create_notices('fault', nodes=['gpu-1'], category='gpu',
                                description='XID 79', ticket='RMA-12')


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='python -m tools.dashboard', description=__doc__)
    parser.add_argument(
        '--port', type=int, default=os.environ.get('PORT') or 8000,
        help='port of 127.0.0.1 (default: $PORT, or 8000)')
    port = parser.parse_args(argv).port
    services.stop_on_signal()
    try:
        with contextlib.ExitStack() as stack:
            services.check_port(port)
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            console.print('Starting Keystone and Ironic, and enrolling '
                          f'{len(quickstart.FLEET)} nodes of fake hardware')
            trial = stack.enter_context(cloud(
                directory, services.free_port(), services.free_port()))
            enrol_fleet(trial)
            add_samples(trial)
            console.print('Starting Horizon')
            url = stack.enter_context(horizon(directory, port,
                                              trial.auth['auth_url']))
            console.print(f'''
Horizon is running. The whole fleet, as user admin:
  {url}{TO_FLEET}
The machines of a project, as user ada:
  {url}{TO_PROJECT}
Password of both: {trial.auth["password"]}

Ctrl-C stops it.''')
            trial.ironic.process.wait()
            raise services.StartError('Ironic ended:\n'
                                      + services.tail(trial.ironic.log))
    except KeyboardInterrupt:
        console.print('Stopped')
        return 0
    except services.PortTaken as e:
        return quickstart.print_error(f'{e}. Choose another: PORT=8001')
    except services.StartError as e:
        return quickstart.print_error(e)


if __name__ == '__main__':
    sys.exit(main())
