# SPDX-License-Identifier: Apache-2.0
"""Installed beside what people have: deployments.yaml says what."""

import contextlib
import shutil

import pytest
import requests
import sqlalchemy as sa
import yaml

from tests.common import answers
from tests.common import service
from tests.install import environments
from tools import services

TABLE = yaml.safe_load(
    (environments.ROOT / 'tests/install/deployments.yaml').read_text())


class Deployment:
    """An Ironic, and us.

    :ivar ironic: Environment of Ironic.
    :ivar ours: Environment of ours, the same one where Ironic loads us.
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
            self.ours.install(*constraints, wheel)
            assert before <= self.ours.freeze()

    @contextlib.contextmanager
    def running(self, folder, database_url, monkeypatch):
        """It runs; yields the URLs of Ironic's nodes and of ours."""
        self.ironic.programs(monkeypatch, others={
            'ironic-reservations': self.ours, 'uwsgi': self.ours})
        # The tables come first: the application alone answers as soon as it
        # is started.
        with services.ironic(folder, database_url, services.free_port(),
                             config=environments.CHECKED, kill=True,
                             plugin=not self.alone) as ironic:
            if not self.alone:
                self.ours.check(ironic.conf_file)
                yield ironic.url, ironic.url
                return
            self.ours.run('ironic-reservations-dbsync', '--config-file',
                          ironic.conf_file, 'upgrade')
            # As the page says to find it out.
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
def deployed(tmp_path_factory, wheel):
    """Returns the Deployment of a row, which is made once and kept alone.

    Each has half a gigabyte.
    """
    kept = {}

    def remove():
        for folder in list(kept):
            del kept[folder]
            shutil.rmtree(folder)

    def deployed(row):
        if row['ironic'] not in [made for made, _ in kept.values()]:
            remove()
            folder = tmp_path_factory.mktemp('deployment')
            kept[folder] = row['ironic'], Deployment(folder, row, wheel)
        (_, deployment), = kept.values()
        return deployment

    yield deployed
    remove()


@pytest.mark.timeout(900)
@pytest.mark.parametrize('row, database', [
    pytest.param(row, database, id=f'{row["ironic"]}-{database}',
                 marks=() if database in row.get('often', ())
                 else pytest.mark.long)
    for row in TABLE for database in ('sqlite', 'mariadb')
])
def test_deployment(row, database, deployed, request, tmp_path, monkeypatch):
    """Installing moves nothing, and a node is held and given back."""
    deployment = deployed(row)
    with contextlib.ExitStack() as stack:
        url = (f'sqlite:///{tmp_path}/ironic.sqlite' if database == 'sqlite'
               else stack.enter_context(services.database(
                   request.getfixturevalue('server_url'))))
        ironic_url, our_url = stack.enter_context(
            deployment.running(tmp_path, url, monkeypatch))
        ironic, ours = (service.Http(each) for each in (ironic_url, our_url))
        ironic.post('/v1/nodes', json={
            'driver': 'fake-hardware', 'resource_class': 'gold',
            'properties': {'memory_mb': 1024}}).raise_for_status()
        with sa.create_engine(url, poolclass=sa.NullPool).begin() as database:
            database.execute(sa.text(
                "UPDATE nodes SET provision_state = 'available', "
                "power_state = 'power off'"))
        hold_and_release(ironic, ours)


def hold_and_release(ironic, ours):
    wanted = {'resource_class': 'gold', 'memory_mb': 1024}
    newest = ironic.get('/v1').headers[service.API_VERSION]
    held = ours.post(service.OURS, json=wanted)
    answers.check(held, 201)
    assert held.headers[service.API_VERSION] == newest
    instance = held.json()['instance_uuid']
    nodes = ironic.get('/v1/nodes/detail').json()['nodes']
    assert [node['instance_uuid'] for node in nodes] == [instance]
    for wish, status in (
            ({**wanted, 'instance_uuid': instance}, 200), (wanted, 422)):
        answers.check(ours.post(service.OURS, json=wish), status)
    answers.check(ours.delete(f'{service.OURS}/{instance}'), 204)
    nodes = ironic.get('/v1/nodes/detail').json()['nodes']
    assert [node['instance_uuid'] for node in nodes] == [None]
