# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-manage, beside a real Ironic.

Each command is a process of its own, which takes two seconds to start: a test
does to several nodes at once what they must bear. What a sweep gives back on
which database is in tests/db/test_leases.py.
"""

import subprocess

import pytest

from tools import services

POOL = [{}] * 9

#: In which the lease is nobody's business.
AT_WORK = ('deploying', 'active', 'deleting')

#: In which a host that has died may have left a node.
LEFT = ('deploy failed', 'clean failed')


def run(conf_file, *args):
    return subprocess.run(
        [services.program('ironic-reservations-manage'), '--config-file',
         str(conf_file), *args], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120)


@pytest.fixture
def manage(ironic, pool):
    # Rows that other tests have left, their nodes deleted.
    ironic.execute('DELETE FROM reservations')
    return lambda *args: run(ironic.conf_file, *args)


def hold(ironic, node_class, **body):
    return ironic.create(resource_class=node_class, expires_in=3600, **body)


def lapse(ironic, *held):
    for each in held:
        ironic.execute(
            "UPDATE reservations SET expires_at = '2001-02-03 04:05:06' "
            'WHERE instance_uuid = :i', i=each['instance_uuid'])


def is_held(ironic, held):
    return ironic.carried(held['node_uuid']) == held['instance_uuid']


def swept(done):
    """What a sweep says in the end, below its log."""
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_nothing_to_do(manage):
    done = manage('audit')
    assert (done.returncode, done.stdout) == (
        0, '0 reservations past their lease\n')


def test_sweep(ironic, pool, node_class, manage):
    over, touched, valid, finished, *at_work = held = [
        hold(ironic, node_class) for _ in pool[:7]]
    response = ironic.http.patch(
        f'/v1/nodes/{touched["node_uuid"]}', json=[
            {'op': 'add', 'path': '/instance_info/a', 'value': 'b'}])
    assert response.status_code == 200, response.text
    lapse(ironic, over, touched, *at_work)
    ironic.set_node(finished['node_uuid'], instance_uuid=None)
    for each, state in zip(at_work, AT_WORK, strict=True):
        ironic.set_node(each['node_uuid'], provision_state=state)
    assert swept(manage('sweep')) == (
        '1 nodes given back, 1 finished reservations purged')
    assert [is_held(ironic, each) for each in held] == [
        False, True, True, False, True, True, True]
    assert [each['instance_uuid'] for each in ironic.listed(
        resource_class=node_class)] == [
            each['instance_uuid'] for each in (touched, valid, *at_work)]
    assert swept(manage('sweep')).startswith('0 nodes')


def test_audit(ironic, pool, node_class, manage):
    """It looks, and does nothing."""
    locked, informed, over, valid, failed, uncleaned, *at_work = held = [
        hold(ironic, node_class, host='compute-1') for _ in pool]
    for each in locked, valid:
        ironic.set_node(each['node_uuid'], reservation='conductor-1')
    ironic.set_node(informed['node_uuid'], instance_info='{"a": "b"}')
    for each, state in zip(at_work, AT_WORK, strict=True):
        ironic.set_node(each['node_uuid'], provision_state=state)
    for each, state in zip((failed, uncleaned), LEFT, strict=True):
        ironic.set_node(each['node_uuid'], provision_state=state)
    lapse(ironic, locked, informed, over, failed, uncleaned, *at_work)
    done = manage('audit')
    assert done.returncode == 1
    *lines, last = done.stdout.splitlines()
    assert last == '4 reservations past their lease'
    for each, said in ((locked, 'node locked by conductor-1'),
                       (informed, 'instance_info'),
                       (failed, 'node is deploy failed'),
                       (uncleaned, 'node is clean failed')):
        line, = (line for line in lines if each['instance_uuid'] in line)
        for word in (each['node_uuid'], 'compute-1', '2001-02-03 04:05:06',
                     said):
            assert word in line
    assert all(is_held(ironic, each) for each in held)


@pytest.mark.parametrize('args', [[], ['sweep', 'more']], ids=str)
def test_wrong_usage(ironic, args):
    done = run(ironic.conf_file, *args)
    assert done.returncode == 2
    assert 'usage:' in done.stderr and 'Traceback' not in done.stderr
    assert 'sweep' in done.stderr


@pytest.mark.parametrize('connection', ['sqlite:///{}/empty.sqlite',
                                        'sqlite:///{}/no/such.sqlite'])
def test_no_such_database(tmp_path, connection):
    """An error that says what is wrong, instead of a traceback."""
    conf_file = services.write_conf(tmp_path / 'ironic.conf', {
        'database': {'connection': connection.format(tmp_path)}})
    done = run(conf_file, 'sweep')
    assert done.returncode > 0
    assert 'Traceback' not in done.stderr + done.stdout
