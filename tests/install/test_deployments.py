# SPDX-License-Identifier: Apache-2.0
"""Installations together with the releases in deployments.yaml."""

import contextlib
import re
import shlex
import shutil

import pytest
import requests
import sqlalchemy as sa
import yaml

from tests.common import contract
from tests.common import service
from tests.install import environments
from tools import services

ROOT = environments.ROOT
TABLE = yaml.safe_load(
    (ROOT / 'tests/install/deployments.yaml').read_text())


def read_installations():
    """Return the arguments of each pip of the README."""
    commands = re.findall(r'^ {4}pip (install .*)$',
                          (ROOT / 'README.rst').read_text(), re.MULTILINE)
    assert commands
    return map(shlex.split, commands)


class Deployment:
    """An Ironic with our plugin or application.

    :ivar ironic: Environment of Ironic.
    :ivar ours: Environment of ours, the same one if Ironic loads the plugin.
    """

    def __init__(self, folder, row, wheel):
        self.alone = row.get('alone', False)
        self.release = f'ironic=={row["ironic"]}'
        self.ironic = environments.Environment(folder / 'ironic')
        constraints = ['-c', environments.constraints(
            folder / 'constraints.txt', row.get('constraints'),
            [self.release, *row.get('instead', ())])]
        self.ironic.install(*constraints, 'ironic', 'PyMySQL')
        before = self.ironic.freeze()
        assert self.release in before
        if self.alone:
            self.ours = environments.Environment(folder / 'ours')
            self.ours.install(f'{wheel}[mysql]', 'pyuwsgi')
        else:
            self.ours = self.ironic
            # The wheel is of the tree, which pip would write to.
            for words in read_installations():
                self.ours.pip(*(
                    {'YOUR-CONSTRAINTS': constraints[1], '.': wheel}.get(
                        word, word) for word in words), cwd=ROOT)
            assert before <= self.ours.freeze()

    @contextlib.contextmanager
    def running(self, folder, database_url, monkeypatch):
        """Run it; yield the URLs of Ironic and of our API."""
        self.ironic.programs(monkeypatch, others={
            'ironic-reservations': self.ours, 'uwsgi': self.ours})
        # The tables come first, because the application answers as soon as it
        # has started.
        with services.ironic(folder, database_url, services.free_port(),
                             config=environments.CONFIG, kill=True,
                             plugin=not self.alone) as ironic:
            if not self.alone:
                self.ours.check(ironic.conf_file)
                yield ironic.url, ironic.url
                return
            self.ours.run('ironic-reservations-dbsync', '--config-file',
                          ironic.conf_file, 'upgrade')
            # The page explains how to determine this version.
            version = requests.head(f'{ironic.url}/v1', timeout=60).headers[
                'X-OpenStack-Ironic-API-Maximum-Version']
            print(self.release, 'says', version)
            config = services.read_conf(ironic.conf_file)
            config['reservations']['max_api_version'] = version
            services.write_conf(ironic.conf_file, config)
            with services.uwsgi('ironic_reservations.wsgi:application',
                                ironic.conf_file, services.free_port(),
                                processes=2) as ours:
                yield ironic.url, ours.url


@pytest.fixture(scope='module')
def make_deployment(tmp_path_factory, wheel):
    """Return the Deployment of a row; only the latest one is kept.

    Each takes half a gigabyte.
    """
    cache = {}

    def remove():
        for folder in list(cache):
            del cache[folder]
            shutil.rmtree(folder)

    def make(row):
        if row['ironic'] not in [release for release, _ in cache.values()]:
            remove()
            folder = tmp_path_factory.mktemp('deployment')
            cache[folder] = row['ironic'], Deployment(folder, row, wheel)
        (_, deployment), = cache.values()
        return deployment

    yield make
    remove()


@pytest.mark.timeout(900)
@pytest.mark.parametrize('row, database', [
    pytest.param(row, database, id=f'{row["ironic"]}-{database}',
                 marks=() if database in row.get('often', ())
                 else pytest.mark.long)
    for row in TABLE for database in ('sqlite', 'mariadb')
])
def test_deployment(row, database, make_deployment, request, tmp_path,
                    monkeypatch):
    """The installation upgrades no package, and the API works."""
    deployment = make_deployment(row)
    with contextlib.ExitStack() as stack:
        url = (f'sqlite:///{tmp_path}/ironic.sqlite' if database == 'sqlite'
               else stack.enter_context(services.database(
                   request.getfixturevalue('server_url'))))
        ironic_url, our_url = stack.enter_context(
            deployment.running(tmp_path, url, monkeypatch))
        ironic, ours = (service.Http(item) for item in (ironic_url, our_url))
        ironic.post('/v1/nodes', json={
            'driver': 'fake-hardware', 'resource_class': 'gold',
            'properties': {'memory_mb': 1024}}).raise_for_status()
        with sa.create_engine(url, poolclass=sa.NullPool).begin() as database:
            database.execute(sa.text(
                "UPDATE nodes SET provision_state = 'available', "
                "power_state = 'power off'"))
        hold_and_release(ironic, ours)


def hold_and_release(ironic, ours):
    spec = {'resource_class': 'gold', 'memory_mb': 1024}
    newest = ironic.get('/v1').headers[service.API_VERSION]
    response = ours.post(service.OURS, json=spec)
    contract.check(response, 201)
    assert response.headers[service.API_VERSION] == newest
    instance = response.json()['instance_uuid']
    nodes = ironic.get('/v1/nodes/detail').json()['nodes']
    assert [node['instance_uuid'] for node in nodes] == [instance]
    for body, status in (
            ({**spec, 'instance_uuid': instance}, 200), (spec, 422)):
        contract.check(ours.post(service.OURS, json=body), status)
    contract.check(ours.delete(f'{service.OURS}/{instance}'), 204)
    nodes = ironic.get('/v1/nodes/detail').json()['nodes']
    assert [node['instance_uuid'] for node in nodes] == [None]
