# SPDX-License-Identifier: Apache-2.0
"""What Kolla-Ansible and Kolla write, as "tox -e kolla" records it.

The driver reads it, logs in at a real Keystone, and uses a real Ironic.
"""

import collections
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import uuid

from oslo_config import cfg
import pytest
import sqlalchemy as sa
import yaml

from tests.common import keystones
from tools import services

pytestmark = pytest.mark.long

RECORD = pathlib.Path(__file__).parents[1] / 'kolla/record'
#: Without and with TLS.
VARIANTS = 'plain', 'tls'
#: nova.conf of the processes of one compute host.
COMPUTES = [f'plain/controller-{number}/nova-compute-ironic-{number}/nova.conf'
            for number in (1, 2)]

#: Uses the configuration as nova-compute does; Nova and Ironic cannot be
#: configured in one process.
PROGRAM = """
import json
import sys

import nova.conf
from nova.virt import ironic_reservations

path, request = sys.argv[1:]
nova.conf.CONF(['--config-file', path], project='nova')
driver = ironic_reservations.ReservationsDriver(None)
reservation = driver.reservations.hold(json.loads(request))
print(json.dumps([
    nova.conf.CONF.host, nova.conf.CONF.compute_driver,
    nova.conf.CONF.reservations.standby,
    [node.name for node in driver.ironic_connection.nodes()],
    reservation['node_name'], reservation['project_id']]))
"""


def read(path, **options):
    """Return the values of options, of one section per keyword."""
    conf = cfg.ConfigOpts()
    for section, opt in options.items():
        conf.register_opt(opt, group=section)
    conf(['--config-file', str(RECORD / path)])
    return [conf[section][opt.name] for section, opt in options.items()]


@pytest.mark.parametrize('variant', VARIANTS)
def test_services(variant):
    folder = f'{variant}/controller-1'
    assert read(f'{folder}/ironic-api/ironic.conf',
                api=cfg.ListOpt('middleware'),
                DEFAULT=cfg.BoolOpt('rbac_service_role_elevated_access')) == [
        ['reservations'], True]
    assert read(f'{folder}/placement-api/placement.conf',
                placement=cfg.IntOpt('allocation_conflict_retry_count')) == [
        50]
    attempts = cfg.IntOpt('max_attempts')
    assert read(f'{folder}/nova-scheduler/nova.conf', scheduler=attempts,
                filter_scheduler=cfg.MultiStrOpt('available_filters')) == [
        5, ['nova.virt.ironic_reservations.filters.all_filters']]
    assert read(f'{folder}/nova-conductor/nova.conf',
                scheduler=attempts) == [5]
    assert read(f'{folder}/mariadb/galera.cnf', mysqld=cfg.IntOpt(
        'innodb_flush_log_at_trx_commit')) == [1]


def test_three_pairs():
    """Each of the hosts has processes on two controllers."""
    controllers = collections.defaultdict(set)
    for path in RECORD.glob('plain/*/nova-compute-ironic-*/nova.conf'):
        conf = services.read_conf(path)
        assert conf['reservations']['standby'] == 'true'
        controllers[conf['DEFAULT']['host']].add(path.parts[-3])
    assert {host: len(names) for host, names in controllers.items()} == {
        f'controller-{number}-ironic': 2 for number in (1, 2, 3)}


@pytest.mark.parametrize('variant', VARIANTS)
def test_monitoring(variant):
    folder = RECORD / variant / 'controller-1'
    config = yaml.safe_load(
        (folder / 'prometheus-server/prometheus.yml').read_text())
    assert config['rule_files'] == [
        '/etc/prometheus/ironic-reservations.rules']
    [targets] = [job['static_configs'][0]['targets']
                 for job in config['scrape_configs']
                 if job['job_name'] == 'ironic-reservations']
    assert targets == [f'192.0.2.1{number}:6387' for number in (1, 2, 3)]
    command = json.loads(
        (folder / 'prometheus-node-exporter/config.json').read_text()
    )['command'].split()
    assert '--collector.systemd' in command


@pytest.fixture
def database(server_url):
    with services.database(server_url) as url:
        yield url


@pytest.fixture
def start(database, tmp_path):
    """Starts the container of Ironic's API: start(variable of Kolla)."""
    conf = services.write_conf(tmp_path / 'ironic.conf', {
        'database': {'connection': database}})
    programs = tmp_path / 'bin'
    programs.mkdir()
    for name, text in {
            # There is no user "ironic".
            'install': 'mkdir -p "${@: -1}"',
            **{name: f'exec {sys.executable.removesuffix("python")}{name} '
                     f'--config-file {conf} "$@"'
               for name in ('ironic-dbsync', 'ironic-reservations-dbsync')},
    }.items():
        (programs / name).write_text(f'#!/bin/bash\n{text}\n')
        (programs / name).chmod(0o755)

    def run(*variables):
        return subprocess.run(
            # As Kolla's kolla_start does.
            ['bash', '-euo', 'pipefail', '-c', '. "$0"; echo started',
             RECORD / 'images/ironic/ironic-api/kolla_ironic_extend_start'],
            env={'PATH': f'{programs}:{os.environ["PATH"]}',
                 'PROMETHEUS_MULTIPROC_DIR': str(tmp_path / 'counts'),
                 **dict.fromkeys(variables, '')},
            check=True, stdout=subprocess.PIPE, text=True).stdout
    return run


def test_bootstrap_container_creates_our_tables(start, database, tmp_path):
    """It leaves the counts of the API that runs next to it."""
    assert start() == 'started\n'
    counts = tmp_path / 'counts/counter_1.db'
    counts.touch()
    for variable in 'KOLLA_UPGRADE', 'KOLLA_BOOTSTRAP':
        assert 'started' not in start(variable)
    engine = sa.create_engine(database)
    assert {'nodes', 'reservations'} <= {*sa.inspect(engine).get_table_names()}
    engine.dispose()
    assert counts.exists()
    assert start() == 'started\n'
    assert not counts.exists()


def test_failed_backup_keeps_the_last_one(tmp_path):
    """The unit runs as systemd runs it, with a program in place of Docker."""
    path = RECORD.parents[2] / (
        'doc/source/examples/kolla/ironic-reservations-backup.service')
    [line] = re.findall('ExecStart=(.*)', path.read_text())
    line = line.replace('/var/backups', str(tmp_path))
    docker = tmp_path / 'docker'
    docker.write_text('#!/bin/sh\necho "$@"\ntest "$MYSQL_PWD" = right\n')
    docker.chmod(0o755)

    def run(password):
        return subprocess.run(
            shlex.split(line.replace('$$', '$').replace('%%', '%')),
            env={'PATH': f'{tmp_path}:{os.environ["PATH"]}',
                 'MYSQL_PWD': password}, check=False).returncode

    assert run('right') == 0
    [backup] = tmp_path.glob('ironic-[1-7].sql')
    assert backup.read_text().startswith(
        'exec --env MYSQL_PWD mariadb mariadb-dump ')
    backup.write_text('the last one')
    assert run('wrong') == 1
    assert backup.read_text() == 'the last one'


@pytest.fixture(scope='module')
def auth(tmp_path_factory):
    with services.keystone(tmp_path_factory.mktemp('keystone'),
                           services.free_port()) as auth:
        yield auth


@pytest.fixture(scope='module')
def ironic(auth, start_ironic):
    config = keystones.config(auth)
    config['DEFAULT']['rbac_service_role_elevated_access'] = 'true'
    del config['reservations'], config['oslo_limit']
    with start_ironic(config=config) as ironic:
        keystone = keystones.Keystone(auth, ironic.url)
        keystone.user('ironic', 'service', 'service')
        ironic.baremetal = keystone.admin().baremetal
        ironic.project = keystone.projects['a']
        yield ironic


def use(compute, ironic, auth, path, **more):
    """Run nova-compute's part with one of COMPUTES.

    :param more: more options of [ironic].
    """
    conf = services.read_conf(RECORD / compute)
    login = conf['ironic']
    assert login['endpoint_override'] == 'http://192.0.2.10:6385/v1'
    login |= {'auth_url': auth['auth_url'].removesuffix('/v3'),
              'endpoint_override': f'{ironic.url}/v1',
              'password': auth['password'], **more}
    return subprocess.run(
        [sys.executable, '-c', PROGRAM,
         services.write_conf(path / 'nova.conf', conf), json.dumps({
             'instance_uuid': str(uuid.uuid4()), 'expires_in': 60,
             'host': conf['DEFAULT']['host'], 'project_id': ironic.project,
             'resource_class': 'kolla'})],
        capture_output=True, text=True, timeout=120)


def test_two_controllers_serve_one_host(ironic, auth, tmp_path):
    with ironic.fleet(*[{'resource_class': 'kolla'}] * 2) as nodes:
        names = {node.name for node in nodes}
        results = []
        for compute in COMPUTES:
            process = use(compute, ironic, auth, tmp_path)
            assert process.returncode == 0, process.stderr
            results.append(json.loads(process.stdout))
        for result in results:
            assert result[:3] == ['controller-1-ironic',
                                  'ironic_reservations.ReservationsDriver',
                                  True]
            assert {*result[3]} == names
            assert result[5] == ironic.project
        assert {result[4] for result in results} == names


def test_system_scope_cannot_be_added(ironic, auth, tmp_path):
    """Kolla-Ansible writes a project, and an override cannot remove it."""
    process = use(COMPUTES[0], ironic, auth, tmp_path, system_scope='all')
    assert process.returncode == 1
    assert 'system' in process.stderr.splitlines()[-1]
