# SPDX-License-Identifier: Apache-2.0
"""Horizon with our panels, before a real Keystone and a real Ironic.

"make dashboard" starts them on the quickstart's fleet, some of it held, and
says where to log in. Horizon has an environment of its own, below .tox.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
import uuid

import openstack
from openstack import connection
from rich import console as rich_console

from ironic_reservations import sdk
from tools import quickstart
from tools import services

ROOT = pathlib.Path(__file__).parents[1]
#: Beside the environment that this runs in.
ENVIRONMENT = pathlib.Path(sys.prefix).with_name('dashboard')
ENABLED = ROOT / 'ironic_reservations' / 'horizon' / 'enabled'

#: Projects by name; whose nodes of the quickstart's fleet are theirs.
PROJECTS = {'team-a': quickstart.TEAM_A, 'team-b': quickstart.TEAM_B}

#: What a URL to log in at ends with, to lead to a panel. Horizon's own first
#: page refuses everybody where there is no Nova.
TO_PROJECT = '?next=/project/baremetal_reservations/'
TO_FLEET = ('?next=/auth/switch_system_scope/%3Fnext='
            '/admin/baremetal_reservations/')

console = rich_console.Console(highlight=False, markup=False, soft_wrap=True)

#: What Horizon reads. An operator copies the files of "enabled" instead.
SETTINGS = '''
# Under a name that is not a setting: all others become some.
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
def horizon(directory, port, keystone_url, system_scope=('baremetal',)):
    """Horizon's development server; yields the URL to log in at.

    :param system_scope: ``SYSTEM_SCOPE_SERVICES``.
    """
    services.check_port(port)
    # It imports local.local_settings, and finds this one first.
    settings = pathlib.Path(directory, 'local', 'local_settings.py')
    settings.parent.mkdir()
    settings.with_name('__init__.py').touch()
    settings.write_text(SETTINGS.format(
        enabled=str(ENABLED), keystone=keystone_url, secret=uuid.uuid4().hex,
        static=str(ENVIRONMENT / 'static'), system_scope=list(system_scope)))
    django = [str(ENVIRONMENT / 'bin' / 'python'), '-m', 'django']
    env = {'DJANGO_SETTINGS_MODULE': 'openstack_dashboard.settings',
           # The panels are those of this tree.
           'PYTHONPATH': f'{directory}{os.pathsep}{ROOT}'}
    log = os.path.join(directory, 'horizon.log')
    # As operators do, once for each version of Horizon: it would take seconds
    # for each page.
    if not (ENVIRONMENT / 'static' / 'dashboard' / 'manifest.json').exists():
        for command in ['collectstatic', '--noinput'], ['compress']:
            services.run(['env', *(f'{name}={value}' for name, value
                                   in env.items()), *django, *command], log)
    url = f'http://127.0.0.1:{port}'
    # Insecure is to serve static files itself. One of them is asked for,
    # because the first page takes long on a busy machine.
    with services.running(
            [*django, 'runserver', '--noreload', '--insecure',
             f'127.0.0.1:{port}'], log,
            f'{url}/static/baremetal_reservations/fleet.css', env, kill=True):
        yield f'{url}/auth/login/'


@dataclasses.dataclass(frozen=True)
class Cloud:
    """A Keystone, and an Ironic that believes it.

    :param ironic: services.Service.
    :param auth: what ``admin`` logs in with, without a scope. The others have
        the same password.
    :param projects: the IDs by name.
    :param admin: a Connection in system scope.
    """

    ironic: services.Service
    auth: dict
    projects: dict
    admin: connection.Connection


@contextlib.contextmanager
def cloud(directory, port, keystone_port):
    """A Cloud whose Ironic has no nodes yet.

    Its users are ``admin``, of the system and of the project admin, and
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
                    'keystone_authtoken': {
                        'auth_type': 'password', 'project_name': 'admin',
                        'project_domain_id': 'default',
                        'www_authenticate_uri': auth['auth_url'], **auth}}))
        projects = _projects(auth, ironic.url)
        # It logs in now, and so has a catalog with Ironic in it.
        admin = _connect(auth)
        admin.add_service(sdk.SERVICE)
        yield Cloud(ironic, auth, projects, admin)


def _connect(auth):
    return openstack.connect(load_envvars=False, load_yaml_config=False,
                             auth={**auth, 'system_scope': 'all'})


def _projects(auth, url):
    """Make what is in the catalog, and who uses it; returns the projects."""
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


def enrol(made):
    """Enrol the quickstart's fleet, and hold some of it."""
    owners = {given: made.projects[name] for name, given in PROJECTS.items()}
    services.enrol(made.admin.baremetal, [
        {name: owners.get(value, value) if name in ('owner', 'lessee')
         else value for name, value in node.items()}
        for node in quickstart.FLEET])
    reservations = made.admin.baremetal_reservations
    team_a, team_b = (made.projects[name] for name in PROJECTS)
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
    baremetal = made.admin.baremetal
    baremetal.set_node_provision_state(active.node_uuid, 'active')
    bronze = baremetal.get_node('bronze-3')
    baremetal.set_node_maintenance(bronze, 'its fan is broken')
    services.settle(baremetal, [baremetal.get_node(active.node_uuid)],
                    provision_state='active')


def main(argv=None):
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
            made = stack.enter_context(cloud(
                directory, services.free_port(), services.free_port()))
            enrol(made)
            console.print('Starting Horizon')
            url = stack.enter_context(horizon(directory, port,
                                              made.auth['auth_url']))
            console.print(f'''
Horizon answers. The whole fleet, as user admin:
  {url}{TO_FLEET}
What a project has, as user ada:
  {url}{TO_PROJECT}
Password of both: {made.auth["password"]}

Ctrl-C stops it.''')
            made.ironic.process.wait()
            raise services.StartError('Ironic ended:\n'
                                      + services.tail(made.ironic.log))
    except KeyboardInterrupt:
        console.print('Stopped')
        return 0
    except services.PortTaken as e:
        return quickstart.fail(f'{e}. Choose another: PORT=8001')
    except services.StartError as e:
        return quickstart.fail(e)


if __name__ == '__main__':
    sys.exit(main())
