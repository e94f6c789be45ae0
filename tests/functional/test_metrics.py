# SPDX-License-Identifier: Apache-2.0
"""The exporter and the API, as a real Prometheus sees them.

The rules and the dashboard are those of the documentation: each query of
theirs is asked, and each alert is made to fire.
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

from tests.common import answers
from tests.common import databases
from tests.common import exporting
from tests.common import servers
from tests.common import service
from tools import services

DOCS = pathlib.Path(__file__).parents[2] / 'doc' / 'source'
RULES = DOCS / 'prometheus-rules.yaml'
DASHBOARD = json.loads((DOCS / 'grafana-dashboard.json').read_text())

#: Seconds within which Prometheus has seen what has happened.
SOON = 30

#: A process that is a compute host.
OF_HOST = str(uuid.uuid4())


class Prometheus:
    """A server that scrapes one exporter each second."""

    def __init__(self, url):
        self.url = url

    def get(self, path, **query):
        answer = requests.get(f'{self.url}/api/v1/{path}', params=query,
                              timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()['data']

    def query(self, query):
        return self.get('query', query=query)['result']

    def firing(self):
        """The labels of the alerts that fire."""
        return [alert['labels'] for alert in self.get('alerts')['alerts']
                if alert['state'] == 'firing']


@contextlib.contextmanager
def prometheus(exporter, directory):
    """With the rules of the documentation, which fire at once."""
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
    """What is started counts in a folder that is there when it starts."""
    with mock.patch.dict(os.environ, PROMETHEUS_MULTIPROC_DIR=str(
            directory / 'counters')):
        yield directory / 'counters'


@pytest.fixture(scope='module')
def ironic(counting, start_ironic, shared_directory, server_url):
    """An Ironic of its own, because the exporter sees all of its nodes."""
    with databases.on_server(shared_directory, server_url) as url, \
            start_ironic(url) as ironic:
        yield ironic


@pytest.fixture(scope='module')
def exporter(ironic, counting, directory):
    with exporting.exporter(ironic.conf_file, directory) as exporter:
        yield exporter


@pytest.fixture
def fleet(ironic, resource_class):
    """Nodes of a class; they are let go at the end."""
    @contextlib.contextmanager
    def enrolled(*nodes):
        with ironic.fleet(*({**node, 'resource_class': resource_class}
                            for node in nodes)) as nodes:
            try:
                yield nodes
            finally:
                ironic.free_nodes(resource_class)
    return enrolled


def refuse(ironic, times=1, **body):
    for _ in range(times):
        ironic.create(status=422, **body)


def test_nodes_and_reservations(ironic, exporter, fleet, resource_class):
    """All metrics of a fleet, and no names of nodes."""
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


def test_requests(ironic, exporter, fleet, resource_class, start_uwsgi):
    """Those of all workers, the dead ones among them."""
    def counted():
        return [exporter.value(f'{name}_total', **labels) or 0
                for name, labels in (
                    ('requests', {'method': 'POST', 'code': '201'}),
                    ('requests', {'method': 'POST', 'code': '422'}),
                    ('requests', {'method': 'POST', 'code': '400'}),
                    ('requests', {'method': 'other', 'code': '405'}),
                    ('refusals', {'by': 'reserved'}),
                    ('refusals', {'by': 'trait'}))] + [
                        exporter.value('hold_seconds_count')]

    before = counted()
    with fleet({}, {}) as nodes, start_uwsgi(ironic, processes=1) as other:
        for api in ironic, other:
            api.create(resource_class=resource_class)
            refuse(api, resource_class=resource_class,
                   extra_specs={'trait:CUSTOM_A': 'required'})
            answers.check(api.http.post('/v1/reservations',
                                        json={'secret': 1}), 400)
            answers.check(api.http.request('CUSTOM', '/v1/reservations'),
                          405)
        refuse(other, resource_class=resource_class)
        seen = counted()
        assert [now - then for now, then in zip(seen, before, strict=True)
                ] == [2, 3, 2, 2, 1, 2, 2]
        dead, = other.workers()
        os.kill(dead, signal.SIGKILL)
        ironic.delete(other.list()[0]['instance_uuid'])
        other.create(resource_class=resource_class)
        assert dead not in other.workers()
        assert counted()[0] == seen[0] + 1
        be_host(ironic)
        samples = exporter.samples()
        assert ironic.http.delete(
            f'{service.OURS}/hosts/compute-1',
            params={'holder': OF_HOST}).status_code == 204
    assert {re.sub('_(bucket|sum|count)$', '', key[0]) for key in samples
            } == set(re.findall(r'^   [*] - ``(ironic_\w+)', (
                DOCS / 'reference/metrics.rst').read_text(), re.MULTILINE))
    assert samples['ironic_reservations_hold_seconds_sum',] > 0
    for text in 'secret', 'CUSTOM', nodes[0].id:
        assert text not in str(samples)


def test_listens_on_loopback_alone(exporter):
    """By default; another test sets addresses."""
    with pytest.raises(requests.ConnectionError):
        requests.get(exporter.url.replace('127.0.0.1', '127.0.0.2'),
                     timeout=10)


def test_conflicts(ironic, exporter, fleet, resource_class):
    """A node is lost to an operator; a transaction waits for too long."""
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
                # It has waited for three seconds when it begins again.
                wait_for(lambda: exporter.value(
                    'conflicts_total') > before)
                connection.rollback()
            future.result()
        return exporter.value('conflicts_total') - before

    with fleet({}) as [node]:
        assert conflicts('maintenance = 1', 422) == 1
        assert exporter.value('refusals_total', by='maintenance')
        ironic.set_node(node.id, maintenance=False)
        assert conflicts('description = NULL', 201) >= 1


def wait_for(condition):
    return servers.wait(condition, 'what is waited for', SOON)


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
        # Before the first scrape, it knows nothing of the fleet.
        wait_for(lambda: server.query('ironic_reservations_up == 1')
                 and not server.firing())
        yield server


@pytest.fixture(scope='module')
def busy(ironic, server):
    """Something has happened, between two scrapes."""
    resource_class = f'busy-{uuid.uuid4().hex}'
    with ironic.fleet(*[{'resource_class': resource_class}] * 2):
        try:
            ironic.create(resource_class=resource_class, host='compute-1')
            be_host(ironic)
            refuse(ironic, resource_class='none')
            yield
        finally:
            ironic.free_nodes(resource_class)


def be_host(ironic, holder=OF_HOST, status=200):
    assert ironic.http.put(f'{service.OURS}/hosts/compute-1', json={
        'holder': holder, 'ttl': 600}).status_code == status


@pytest.mark.parametrize('query', list(queries()))
def test_dashboard(server, busy, query):
    assert '$' not in query
    lines = wait_for(lambda: [
        line for line in server.query(query)
        if line['value'][1] != 'NaN'])
    # Each line has a name of its own.
    assert len({str(line['metric']) for line in lines}) == len(lines)


@pytest.mark.parametrize('rule', [
    rule for group in yaml.safe_load(RULES.read_text())['groups']
    for rule in group['rules'] if 'record' in rule],
    ids=lambda rule: rule['record'])
def test_recorded(server, busy, rule):
    assert wait_for(lambda: server.query(rule['record']))


def alerts(server):
    return {alert['alertname'].removeprefix('IronicReservations'): alert
            for alert in server.firing()}


def test_used_up(ironic, server, fleet, resource_class):
    with fleet({}):
        ironic.create(resource_class=resource_class)
        wait_for(lambda: alerts(server).get('FleetNearlyUsedUp', {}).get(
            'resource_class') == resource_class)
    wait_for(lambda: 'FleetNearlyUsedUp' not in alerts(server))


def test_overdue(ironic, server, fleet, resource_class):
    with fleet({}, {}):
        reservation = ironic.create(resource_class=resource_class,
                             expires_in=600)
        ironic.set_node(reservation['node_uuid'], instance_info='{"a": "b"}')
        ironic.expire(reservation['instance_uuid'])
        wait_for(lambda: 'Overdue' in alerts(server))
    wait_for(lambda: 'Overdue' not in alerts(server))


def test_refusals(ironic, server, fleet):
    assert 'Refusals' not in alerts(server)
    with fleet({}):
        refuse(ironic, 15, resource_class='none')
    wait_for(lambda: alerts(server).get(
        'Refusals', {}).get('by') == 'resource_class')


def test_host(ironic, server, busy):
    """It has just begun, nobody waits for it, and nobody is it any more."""
    wait_for(lambda: {'Takeover', 'NoStandby'} <= alerts(server).keys())
    be_host(ironic, str(uuid.uuid4()), 409)
    wait_for(lambda: 'NoStandby' not in alerts(server))
    ironic.execute('UPDATE reservations_hosts SET '
                   f'expires_at = {ironic.clock(-5)}')
    wait_for(lambda: alerts(server).get('HostWithoutProcess', {}).get(
        'host') == 'compute-1')
    assert ironic.http.delete(
        f'{service.OURS}/hosts/compute-1').status_code == 204
    wait_for(lambda: not {'HostWithoutProcess', 'Takeover'}
             & alerts(server).keys())


def test_blind(ironic, exporter, server):
    ironic.execute('RENAME TABLE reservations TO away')
    try:
        wait_for(lambda: 'instance' in alerts(server).get('Blind', {}))
        assert exporter.value('up') == 0
        assert not any('nodes' in key[0] for key in exporter.samples())
    finally:
        ironic.execute('RENAME TABLE away TO reservations')
    wait_for(lambda: 'Blind' not in alerts(server))


def test_exporter_is_stopped(server, exporter):
    """The last test, because it does not come back."""
    exporter.process.terminate()
    assert exporter.process.wait(10) == 0
    wait_for(lambda: 'Blind' in alerts(server))


# promtool

def promtool(*args):
    result = subprocess.run([servers.find_program('promtool'), *args],
                          capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_rules_are_well_formed():
    assert re.search(r'SUCCESS: \d rules found',
                     promtool('check', 'rules', '--lint=all',
                              '--lint-fatal', str(RULES)))


def test_rules():
    """The time that a condition must last, and what an alert says."""
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


def test_no_database_and_nothing_counted(tmp_path, monkeypatch):
    """It stays up, and tells that it sees nothing, at all addresses."""
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
