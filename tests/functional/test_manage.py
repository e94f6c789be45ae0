# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-manage, beside a real Ironic."""

import subprocess
import uuid

import pytest

from tests.functional import answers
from tools import services

OURS = '/v1/reservations'


@pytest.fixture(scope='module')
def node_class():
    return f'test-{uuid.uuid4().hex}'


@pytest.fixture(scope='module')
def pool(ironic, node_class):
    with ironic.fleet(*[{'resource_class': node_class}] * 3) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def given_back(ironic, pool, node_class):
    # Rows that other tests have left, their nodes deleted.
    answers.execute(ironic, 'DELETE FROM reservations')
    yield
    answers.execute(
        ironic, "UPDATE nodes SET provision_state = 'available', "
        "instance_uuid = NULL, reservation = NULL, instance_info = '{}' "
        'WHERE resource_class = :c', c=node_class)
    answers.execute(ironic, 'DELETE FROM reservations')


@pytest.fixture
def manage(ironic):
    def run(*args, conf_file=ironic.conf_file):
        return subprocess.run(
            [services.program('ironic-reservations-manage'),
             '--config-file', conf_file, *args], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120)
    return run


def hold(ironic, node_class, **body):
    response = ironic.http.post(OURS, json={'resource_class': node_class,
                                            'expires_in': 3600, **body})
    answers.check(response, 201)
    return response.json()


def lapse(ironic, *held):
    for each in held:
        answers.execute(
            ironic, 'UPDATE reservations SET expires_at = '
            "'2001-02-03 04:05:06' WHERE instance_uuid = :i",
            i=each['instance_uuid'])


def carried(ironic, held):
    return answers.execute(
        ironic, 'SELECT instance_uuid FROM nodes WHERE uuid = :u',
        u=held['node_uuid'])[0][0]


def swept(done):
    """What a sweep says in the end, below its log."""
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_nothing_to_do(ironic, manage):
    assert swept(manage('sweep')) == (
        '0 nodes given back, 0 finished reservations purged')
    done = manage('audit')
    assert (done.returncode, done.stdout) == (
        0, '0 reservations past their lease\n')


def test_sweep(ironic, node_class, manage):
    over, touched, valid = (hold(ironic, node_class) for _ in range(3))
    response = ironic.http.patch(
        f'/v1/nodes/{touched["node_uuid"]}', json=[
            {'op': 'add', 'path': '/instance_info/a', 'value': 'b'}])
    assert response.status_code == 200, response.text
    lapse(ironic, over, touched)
    assert swept(manage('sweep')) == (
        '1 nodes given back, 0 finished reservations purged')
    assert carried(ironic, over) is None
    assert carried(ironic, touched) == touched['instance_uuid']
    assert carried(ironic, valid) == valid['instance_uuid']
    left = ironic.http.get(OURS, params={
        'resource_class': node_class}).json()['reservations']
    assert [each['instance_uuid'] for each in left] == [
        touched['instance_uuid'], valid['instance_uuid']]
    assert swept(manage('sweep')).startswith('0 nodes')


def test_sweep_purges_what_is_finished(ironic, node_class, manage):
    finished, valid = (hold(ironic, node_class) for _ in range(2))
    answers.execute(ironic, 'UPDATE nodes SET instance_uuid = NULL '
                            'WHERE uuid = :u', u=finished['node_uuid'])
    assert swept(manage('sweep')) == (
        '0 nodes given back, 1 finished reservations purged')
    rows = answers.execute(ironic, 'SELECT instance_uuid FROM reservations')
    assert rows == [(valid['instance_uuid'],)]


@pytest.mark.parametrize('columns, said', [
    ({'reservation': 'conductor-1'}, 'node locked by conductor-1'),
    ({'instance_info': '{"a": "b"}'}, 'instance_info')], ids=str)
def test_audit(ironic, node_class, manage, columns, said):
    touched, over, valid = (hold(ironic, node_class, host='compute-1')
                            for _ in range(3))
    for held in touched, valid:
        for name, value in columns.items():
            answers.execute(
                ironic, f'UPDATE nodes SET {name} = :v WHERE uuid = :u',
                v=value, u=held['node_uuid'])
    lapse(ironic, touched, over)
    done = manage('audit')
    assert done.returncode == 1
    line, last = done.stdout.splitlines()
    assert last == '1 reservations past their lease'
    for word in (touched['instance_uuid'], touched['node_uuid'],
                 'compute-1', '2001-02-03 04:05:06', said):
        assert word in line
    # It looks, and does nothing.
    assert carried(ironic, over) == over['instance_uuid']


@pytest.mark.parametrize('state', ['deploying', 'active', 'deleting'])
def test_lease_of_what_is_deployed_is_nobodys_business(
        ironic, node_class, manage, state):
    held = hold(ironic, node_class)
    answers.execute(ironic, 'UPDATE nodes SET provision_state = :s '
                            'WHERE uuid = :u', s=state, u=held['node_uuid'])
    lapse(ironic, held)
    assert manage('audit').returncode == 0
    assert swept(manage('sweep')).startswith('0 nodes')
    assert carried(ironic, held) == held['instance_uuid']


@pytest.mark.parametrize('args', [[], ['nothing'], ['sweep', 'more'],
                                  ['sweep', '--nothing']], ids=str)
def test_wrong_usage(manage, args):
    done = manage(*args)
    assert done.returncode == 2
    assert 'usage:' in done.stderr and 'Traceback' not in done.stderr


def test_help(manage):
    done = manage('--help')
    assert done.returncode == 0
    assert 'sweep' in done.stdout and 'audit' in done.stdout


@pytest.mark.parametrize('command', ['sweep', 'audit'])
@pytest.mark.parametrize('connection', ['sqlite:///{}/empty.sqlite',
                                        'sqlite:///{}/no/such.sqlite'])
def test_no_such_database(tmp_path, manage, command, connection):
    """An error that says what is wrong, instead of a traceback."""
    conf_file = tmp_path / 'ironic.conf'
    conf_file.write_text('[database]\n'
                         f'connection = {connection.format(tmp_path)}\n')
    done = manage(command, conf_file=str(conf_file))
    assert done.returncode > 0
    assert 'Traceback' not in done.stderr + done.stdout
