# SPDX-License-Identifier: Apache-2.0
"""The exporter and the API, scraped by a real Prometheus.

The rules and the dashboard come from the documentation. The tests run each of
their queries, and make each alert fire; promtool does so for those of the API
and of the timers.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
from unittest import mock
import uuid

import pytest
import requests
import yaml

from tests.common import contract
from tests.common import databases
from tests.common import exporting
from tests.common import servers
from tests.common import service
from tools import services

DOCS = pathlib.Path(__file__).parents[2] / 'doc' / 'source'
RULES = DOCS / 'examples' / 'prometheus-rules.yaml'
DASHBOARD = json.loads(
    (DOCS / 'examples' / 'grafana-dashboard.json').read_text())

#: Time limit in seconds until Prometheus shows a change.
TIMEOUT = 30

#: The process that acquires the lease of compute-1.
HOLDER = str(uuid.uuid4())


class Prometheus:
    """A server that scrapes one exporter each second."""

    def __init__(self, url):
        self.url = url

    def get(self, path, **query):
        response = requests.get(f'{self.url}/api/v1/{path}', params=query,
                                timeout=60)
        assert response.status_code == 200, response.text
        return response.json()['data']

    def query(self, query):
        return self.get('query', query=query)['result']

    def get_firing(self):
        """Return the labels of the alerts that fire."""
        return [alert['labels'] for alert in self.get('alerts')['alerts']
                if alert['state'] == 'firing']


@contextlib.contextmanager
def prometheus(exporter, directory):
    """Run a Prometheus with the documentation's rules, which fire at once."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules['groups']:
        for rule in group['rules']:
            rule.pop('for', None)
    (directory / 'rules.yaml').write_text(yaml.safe_dump(rules))
    (directory / 'prometheus.yaml').write_text(yaml.safe_dump({
        'global': {'scrape_interval': '1s', 'scrape_timeout': '1s',
                   'evaluation_interval': '200ms'},
        'rule_files': ['rules.yaml'],
        'scrape_configs': [{
            'job_name': 'ironic-reservations',
            'static_configs': [{
                'targets': [exporter.url.removeprefix('http://')]}]}]}))
    port = services.free_port()
    with services.running(
            [servers.find_program('prometheus'),
             f'--config.file={directory / "prometheus.yaml"}',
             f'--storage.tsdb.path={directory / "tsdb"}',
             f'--web.listen-address=127.0.0.1:{port}'],
            directory / 'prometheus.log', f'http://127.0.0.1:{port}/-/ready',
            kill=True):
        yield Prometheus(f'http://127.0.0.1:{port}')


@pytest.fixture(scope='module')
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp('metrics')


@pytest.fixture(scope='module')
def counting(directory):
    """Let processes write their counters into a directory."""
    with mock.patch.dict(os.environ, PROMETHEUS_MULTIPROC_DIR=str(
            directory / 'counters')):
        yield directory / 'counters'


@pytest.fixture(scope='module')
def ironic(counting, start_ironic, shared_directory, server_url):
    """Start an Ironic for this module: the exporter counts all nodes."""
    with databases.on_server(shared_directory, server_url) as url, \
            start_ironic(url) as ironic:
        yield ironic


@pytest.fixture(scope='module')
def exporter(ironic, counting, directory):
    with exporting.exporter(ironic.conf_file, directory) as exporter:
        yield exporter


@pytest.fixture
def fleet(ironic, resource_class):
    """Return a context manager that enrols nodes, and frees them at exit."""
    @contextlib.contextmanager
    def enrol(*nodes):
        with ironic.fleet(*({**node, 'resource_class': resource_class}
                            for node in nodes)) as nodes:
            try:
                yield nodes
            finally:
                ironic.free_nodes(resource_class)
    return enrol


def refuse(ironic, times=1, **body):
    for _ in range(times):
        ironic.create(status=422, **body)


def test_nodes_and_reservations(ironic, exporter, fleet, resource_class):
    """The exporter reports all metrics of a fleet, and no names of nodes."""
    with fleet(*[{}] * 6) as nodes:
        _, lock, idle, deploying, maintenance, busy = nodes
        for node, host in (idle, 'a'), (deploying, 'b'), (busy, 'b'):
            reservation = ironic.create(candidate_nodes=[node.id], host=host,
                                        expires_in=600)
        ironic.set_node(lock.id, reservation='conductor-1')
        ironic.set_node(deploying.id, provision_state='deploying')
        ironic.set_node(maintenance.id, maintenance=True, shard='s')
        ironic.set_node(busy.id, instance_info='{"a": "b"}')
        ironic.expire(reservation['instance_uuid'])
        samples = exporter.samples()
        assert 'ironic' in exporter.log.read_text()

    def get_samples(name):
        return {tuple(value for _, value in labels): value
                for (key, *labels), value in samples.items()
                if key == f'ironic_reservations_{name}' and value}

    # In the order of the labels' names: group, class, shard, state.
    assert get_samples('nodes') == {
        ('', resource_class, '', 'free'): 2,
        ('', resource_class, '', 'reserved'): 2,
        ('', resource_class, '', 'taken'): 1,
        ('', resource_class, 's', 'out_of_service'): 1}
    assert samples['ironic_reservations_nodes', ('conductor_group', ''),
                   ('resource_class', resource_class), ('shard', 's'),
                   ('state', 'free')] == 0
    assert get_samples('reservations') == {
        ('a', 'reserved'): 1, ('b', 'deploying'): 1, ('b', 'reserved'): 1}
    assert get_samples('overdue') == {(): 1}
    assert get_samples('up') == {(): 1}
    assert 0 < get_samples('scrape_seconds')[()] < 5
    for text in nodes[0].id, busy.id, reservation['instance_uuid']:
        assert text not in str(samples)


def test_requests_are_counted(ironic, exporter, fleet, resource_class,
                              start_uwsgi):
    """The requests of all workers are counted, including dead workers."""
    def read_counters():
        return [exporter.value(f'{name}_total', **labels) or 0
                for name, labels in (
                    ('requests', {'method': 'POST', 'code': '201'}),
                    ('requests', {'method': 'POST', 'code': '422'}),
                    ('requests', {'method': 'POST', 'code': '400'}),
                    ('requests', {'method': 'other', 'code': '405'}),
                    ('refusals', {'by': 'reserved'}),
                    ('refusals', {'by': 'trait'}))] + [
                        exporter.value('hold_seconds_count')]

    before = read_counters()
    with fleet({}, {}) as nodes, start_uwsgi(ironic, processes=1) as other:
        for api in ironic, other:
            api.create(resource_class=resource_class)
            refuse(api, resource_class=resource_class,
                   extra_specs={'trait:CUSTOM_A': 'required'})
            contract.check(api.http.post('/v1/reservations',
                                         json={'secret': 1}), 400)
            contract.check(api.http.request('CUSTOM', '/v1/reservations'),
                           405)
        refuse(other, resource_class=resource_class)
        seen = read_counters()
        assert [now - then for now, then in zip(seen, before, strict=True)
                ] == [2, 3, 2, 2, 1, 2, 2]
        dead, = other.workers()
        os.kill(dead, signal.SIGKILL)
        ironic.delete(other.list()[0]['instance_uuid'])
        other.create(resource_class=resource_class)
        assert dead not in other.workers()
        assert read_counters()[0] == seen[0] + 1
        acquire_lease(ironic)
        ironic.delete(other.list()[0]['instance_uuid'])
        pool = create_pool(ironic, resource_class, 600)
        samples = exporter.samples()
        delete_pool(ironic, pool)
        assert ironic.http.delete(
            f'{service.OURS}/hosts/compute-1',
            params={'holder': HOLDER}).status_code == 204
    assert {re.sub('_(bucket|sum|count)$', '', key[0]) for key in samples
            } == set(re.findall(r'^   [*] - ``(ironic_\w+)', (
                DOCS / 'reference/metrics.rst').read_text(), re.MULTILINE))
    assert samples['ironic_reservations_hold_seconds_sum',] > 0
    for text in 'secret', 'CUSTOM', nodes[0].id:
        assert text not in str(samples)


def test_listens_on_loopback_alone(exporter):
    """This is the default; another test sets an address."""
    with pytest.raises(requests.ConnectionError):
        requests.get(exporter.url.replace('127.0.0.1', '127.0.0.2'),
                     timeout=10)


def test_conflicts_are_counted(ironic, exporter, fleet, resource_class):
    """An operator changes the node first, or a transaction waits too long."""
    def conflicts(change, status):
        before = exporter.value('conflicts_total')
        with concurrent.futures.ThreadPoolExecutor() as executor, \
                ironic.engine.connect() as connection:
            connection.exec_driver_sql(
                f"UPDATE nodes SET {change} WHERE uuid = '{node.id}'")
            future = executor.submit(
                ironic.create, status, resource_class=resource_class)
            wait_for(lambda: ironic.execute(
                'SELECT 1 FROM information_schema.innodb_trx '
                "WHERE trx_state = 'LOCK WAIT'"))
            if status == 422:
                connection.commit()
            else:
                # The transaction starts over after three seconds.
                wait_for(lambda: exporter.value(
                    'conflicts_total') > before)
                connection.rollback()
            future.result()
        return exporter.value('conflicts_total') - before

    with fleet({}) as [node]:
        assert conflicts('maintenance = 1', 422) == 1
        assert exporter.value('refusals_total', by='maintenance')
        ironic.set_node(node.id, maintenance=False)
        assert conflicts('description = NULL', 503) >= 1


def wait_for(condition):
    return servers.wait(condition, 'a change in Prometheus', TIMEOUT)


def queries():
    for panel in DASHBOARD['panels']:
        for target in panel['targets']:
            yield pytest.param(
                target['expr'].replace('$__rate_interval', '5m'),
                id=f'{panel["title"]} {target["refId"]}')


@pytest.fixture(scope='module')
def server(exporter, directory):
    with prometheus(exporter, directory) as server:
        wait_for(lambda: requests.get(f'{server.url}/-/ready', timeout=60).ok)
        # Before the first scrape, there are no values.
        wait_for(lambda: server.query('ironic_reservations_up == 1')
                 and not server.get_firing())
        yield server


@pytest.fixture(scope='module')
def activity(ironic, server):
    """Hold a node, acquire a lease and have a request refused."""
    resource_class = f'busy-{uuid.uuid4().hex}'
    with ironic.fleet(*[{'resource_class': resource_class}] * 2):
        try:
            ironic.create(resource_class=resource_class, host='compute-1')
            acquire_lease(ironic)
            refuse(ironic, resource_class='none')
            pool = create_pool(ironic, resource_class, 86400)
            yield
            delete_pool(ironic, pool)
        finally:
            ironic.free_nodes(resource_class)


def create_pool(ironic, resource_class, seconds):
    """Create a pool of a node, and return its UUID."""
    response = ironic.http.post(f'{service.OURS}/pools', json={
        'project_id': 'p', 'members': 1, 'expires_at': {'in': seconds},
        'request': {'resource_class': resource_class}})
    contract.check(response, 201)
    return response.json()['uuid']


def delete_pool(ironic, pool):
    contract.check(ironic.http.delete(f'{service.OURS}/pools/{pool}'), 204)


def acquire_lease(ironic, holder=HOLDER, status=200):
    assert ironic.http.put(f'{service.OURS}/hosts/compute-1', json={
        'holder': holder, 'ttl': 600}).status_code == status


@pytest.mark.parametrize('query', list(queries()))
def test_dashboard(server, activity, query):
    assert '$' not in query
    lines = wait_for(lambda: [
        line for line in server.query(query)
        if line['value'][1] != 'NaN'])
    # The labels of each line are unique.
    assert len({str(line['metric']) for line in lines}) == len(lines)


@pytest.mark.parametrize('rule', [
    rule for group in yaml.safe_load(RULES.read_text())['groups']
    for rule in group['rules'] if 'record' in rule],
    ids=lambda rule: rule['record'])
def test_recording_rules(server, activity, rule):
    assert wait_for(lambda: server.query(rule['record']))


def alerts(server):
    return {alert['alertname'].removeprefix('IronicReservations'): alert
            for alert in server.get_firing()}


@pytest.mark.parametrize('column, other', [
    ('resource_class', 'shard'), ('shard', 'resource_class')])
def test_values_that_are_equal_as_labels(ironic, exporter, server, fleet,
                                         resource_class, column, other):
    with fleet({}, {}) as nodes:
        for node, value in zip(nodes, (None, ''), strict=True):
            ironic.set_node(node.id, **{other: resource_class, column: value})
        try:
            promtool('check', 'metrics', input=requests.get(
                f'{exporter.url}/metrics', timeout=60).text)
            wait_for(lambda: [line['value'][1] for line in server.query(
                f'ironic_reservations_nodes{{{other}="{resource_class}",'
                f'{column}="",state="free"}}')] == ['2'])
        finally:
            for node in nodes:
                ironic.set_node(node.id, resource_class=resource_class)


def test_fleet_nearly_used_up(ironic, server, fleet, resource_class):
    with fleet({}):
        ironic.create(resource_class=resource_class)
        wait_for(lambda: alerts(server).get('FleetNearlyUsedUp', {}).get(
            'resource_class') == resource_class)
    wait_for(lambda: 'FleetNearlyUsedUp' not in alerts(server))


def test_overdue_reservations(ironic, server, fleet, resource_class):
    with fleet({}, {}):
        reservation = ironic.create(resource_class=resource_class,
                                    expires_in=600)
        ironic.set_node(reservation['node_uuid'], instance_info='{"a": "b"}')
        ironic.expire(reservation['instance_uuid'])
        wait_for(lambda: 'Overdue' in alerts(server))
    wait_for(lambda: 'Overdue' not in alerts(server))


def test_overdue_notices(ironic, server, fleet):
    with fleet({}) as [node]:
        notice = {'uuid': str(uuid.uuid4()), 'kind': 'maintenance',
                  'nodes': [node.id], 'due_at': {'in': 1}}
        assert ironic.http.post(f'{service.OURS}/notices',
                                json=notice).status_code == 201
        wait_for(lambda: alerts(server).get(
            'NoticesOverdue', {}).get('kind') == 'maintenance')
        assert ironic.http.patch(
            f'{service.OURS}/notices/{notice["uuid"]}', json=[
                {'op': 'add', 'path': '/ends_at', 'value': 'now'}]
        ).status_code == 200
    wait_for(lambda: 'NoticesOverdue' not in alerts(server))


def test_faults(ironic, server, fleet):
    """A failed build is no open fault."""
    with fleet({}, {}) as nodes:
        for node, category, alert in zip(
                nodes, ('build', None), ('FailedBuilds', 'FaultsOpen'),
                strict=True):
            assert 'FaultsOpen' not in alerts(server)
            ironic.create(candidate_nodes=[node.id])
            contract.check(ironic.http.post(f'{service.OURS}/notices', json={
                'kind': 'fault', 'nodes': [node.id], 'cordon': False,
                'category': category}), 201)
            wait_for(lambda alert=alert: alert in alerts(server))
        ironic.execute('DELETE FROM reservations_notices')
    wait_for(lambda: not {'FailedBuilds', 'FaultsOpen'}
             & alerts(server).keys())


def test_pools(ironic, server, fleet, resource_class):
    names = {'PoolExpires', 'PoolUnhealthy'}
    with fleet({}) as [node]:
        pool = create_pool(ironic, resource_class, 8 * 86400)
        wait_for(lambda: server.query(
            f'ironic_reservations_pool_healthy{{pool="{pool}"}} == 1'))
        assert not [labels for labels in server.get_firing()
                    if labels.get('pool') == pool]
        ironic.set_node(node.id, maintenance=True)
        contract.check(ironic.http.patch(
            f'{service.OURS}/pools/{pool}', json=[
                {'op': 'add', 'path': '/expires_at', 'value': {'in': 600}}]),
            200)
        wait_for(lambda: {
            labels['alertname'].removeprefix('IronicReservations')
            for labels in server.get_firing()
            if labels.get('pool') == pool} == names)
        delete_pool(ironic, pool)
    wait_for(lambda: pool not in str(server.get_firing()))


def test_refusals(ironic, server, fleet):
    assert 'Refusals' not in alerts(server)
    with fleet({}):
        refuse(ironic, 15, resource_class='none')
    wait_for(lambda: alerts(server).get(
        'Refusals', {}).get('by') == 'resource_class')


def test_host_lease(ironic, server, activity):
    """A new host lease has no standby at first, then one, and expires."""
    wait_for(lambda: {'Takeover', 'NoStandby'} <= alerts(server).keys())
    acquire_lease(ironic, str(uuid.uuid4()), 409)
    wait_for(lambda: 'NoStandby' not in alerts(server))
    ironic.execute('UPDATE reservations_hosts SET '
                   f'expires_at = {ironic.clock(-5)}')
    wait_for(lambda: alerts(server).get('HostWithoutProcess', {}).get(
        'host') == 'compute-1')
    assert ironic.http.delete(
        f'{service.OURS}/hosts/compute-1').status_code == 204
    wait_for(lambda: not {'HostWithoutProcess', 'Takeover'}
             & alerts(server).keys())


def test_missing_table(ironic, exporter, server):
    ironic.execute('RENAME TABLE reservations TO away')
    try:
        wait_for(lambda: 'Blind' in alerts(server)
                 and 'instance' in alerts(server).get('ExporterDown', {}))
        assert exporter.value('up') == 0
        assert not any('nodes' in key[0] for key in exporter.samples())
    finally:
        ironic.execute('RENAME TABLE away TO reservations')
    wait_for(lambda: not {'Blind', 'ExporterDown'} & alerts(server).keys())


def test_exporter_is_stopped(server, exporter):
    """This is the last test, because the exporter is not restarted."""
    exporter.process.terminate()
    assert exporter.process.wait(10) == 0
    wait_for(lambda: {'Blind', 'ExporterDown'} <= alerts(server).keys())


# promtool

def promtool(*args, **kwargs):
    result = subprocess.run([servers.find_program('promtool'), *args],
                            capture_output=True, text=True, check=False,
                            **kwargs)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_rules_are_well_formed():
    assert re.search(r'SUCCESS: \d+ rules found',
                     promtool('check', 'rules', '--lint=all',
                              '--lint-fatal', str(RULES)))


def test_alerting_rules():
    """A condition must last for some time, and alerts have their texts."""
    assert 'SUCCESS' in promtool(
        'test', 'rules',
        str(pathlib.Path(__file__).with_name('prometheus-rules-test.yaml')))


# The command

def test_port_is_taken(tmp_path):
    conf_file = services.write_conf(tmp_path / 'ironic.conf', {})
    with socket.create_server(('127.0.0.1', 0)) as other:
        port = other.getsockname()[1]
        result = subprocess.run(
            [services.program('ironic-reservations-exporter'),
             '--config-file', conf_file, '--port', str(port)],
            capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert f'Cannot listen on 127.0.0.1:{port}: ' in result.stderr
    assert 'Traceback' not in result.stderr


def test_missing_database_and_counters(tmp_path, monkeypatch):
    """The exporter keeps running and reports ``up`` 0 on each address."""
    monkeypatch.delenv('PROMETHEUS_MULTIPROC_DIR', raising=False)
    conf_file = services.write_conf(tmp_path / 'ironic.conf', {
        'database': {'connection': f'sqlite:///{tmp_path}/no/such.sqlite'}})
    with exporting.exporter(conf_file, tmp_path, '--listen-address',
                            '0.0.0.0') as exporter:
        assert requests.get(exporter.url.replace('127.0.0.1', '127.0.0.2'),
                            timeout=10).status_code == 200
        for _ in range(2):
            samples = exporter.samples()
            assert {key for key, in samples} == {
                'ironic_reservations_up',
                'ironic_reservations_scrape_seconds'}
            assert samples['ironic_reservations_up',] == 0
        assert 'Cannot count the fleet' in exporter.log.read_text()
        exporter.process.send_signal(signal.SIGTERM)
        assert exporter.process.wait(10) == 0
