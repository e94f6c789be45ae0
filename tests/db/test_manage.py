# SPDX-License-Identifier: Apache-2.0
"""What ironic-reservations-manage does and says.

Most of it without the process, which takes two seconds to start.
"""

import subprocess

import pytest

from ironic_reservations.cmd import manage
from tests.db import conftest
from tools import services

#: In which the lease is nobody's business.
AT_WORK = ('deploying', 'active', 'deleting')


def last_line(capsys):
    return capsys.readouterr().out.splitlines()[-1]


def test_sweep(fleet, capsys):
    """What is over and what is finished goes, and the rest stays."""
    fleet.add(*[{}] * 7)
    over, touched, valid, finished, *at_work = held = [
        fleet.hold()[0] for _ in range(7)]
    fleet.lapse()
    fleet.renew(valid)
    fleet.edit(touched.node_id, instance_info='{"a": "b"}')
    fleet.edit(finished.node_id, instance_uuid=None)
    for each, state in zip(at_work, AT_WORK, strict=True):
        fleet.edit(each.node_id, provision_state=state)
    manage.sweep()
    assert last_line(capsys) == (
        '1 reservations expired, 1 stale reservations purged')
    assert fleet.held == {
        each.node_id: each.instance_uuid for each in held
        if each not in (over, finished)}
    manage.sweep()
    assert last_line(capsys).startswith('0 reservations expired')


@pytest.mark.parametrize('fields, said', [
    ({'reservation': 'conductor-1'}, 'node locked by conductor-1'),
    ({'instance_info': '{"a": "b"}'}, 'instance_info'),
    # In which a host that has died may have left a node.
    *(({'provision_state': state}, f'node is {state}')
      for state in ('deploy failed', 'clean failed')),
    # What is given back by the next request, and what is in use.
    ({'maintenance': True}, None),
    *(({'provision_state': state}, None) for state in AT_WORK),
], ids=str)
def test_audit(held, capsys, fields, said):
    """It looks, and does nothing."""
    held.edit(held.node_id, **fields)
    held.lapse()
    assert bool(manage.audit()) == bool(said)
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == f'{len(lines)} reservations are overdue'
    assert len(lines) == bool(said)
    for line in lines:
        for word in (conftest.INSTANCE, held[held.node_id].uuid, 'compute-1',
                     f'lease expired at {held.rows[0].expires_at}', said):
            assert word in line
    assert held.held == {held.node_id: conftest.INSTANCE}


def test_audit_of_a_valid_lease(held, capsys):
    held.renew()
    held.edit(held.node_id, reservation='conductor-1')
    assert not manage.audit()
    assert last_line(capsys) == '0 reservations are overdue'


def run(tmp_path, connection, *args):
    """The process, with a database."""
    conf_file = services.write_conf(tmp_path / 'ironic.conf', {
        'database': {'connection': connection.format(tmp_path)}})
    done = subprocess.run(
        [services.program('ironic-reservations-manage'), '--config-file',
         conf_file, *args], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120)
    assert 'Traceback' not in done.stdout + done.stderr
    return done


@pytest.mark.parametrize('args', [[], ['sweep', 'more']], ids=str)
def test_wrong_usage(tmp_path, args):
    done = run(tmp_path, 'sqlite://', *args)
    assert done.returncode == 2
    assert 'usage:' in done.stderr and 'sweep' in done.stderr


@pytest.mark.parametrize('connection', ['sqlite:///{}/empty.sqlite',
                                        'sqlite:///{}/no/such.sqlite'])
def test_no_such_database(tmp_path, connection):
    """An error that says what is wrong, instead of a traceback."""
    assert run(tmp_path, connection, 'sweep').returncode > 0
