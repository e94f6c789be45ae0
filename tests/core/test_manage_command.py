# SPDX-License-Identifier: Apache-2.0
"""Effects and output of ironic-reservations-manage.

Most of it without the process, which takes two seconds to start.
"""

import datetime
import subprocess
import uuid

import pytest
import sqlalchemy as sa

from ironic_reservations.cmd import manage
from tests.common import fleets
from tools import services

#: States in which the lease does not count.
AT_WORK = ('deploying', 'active', 'deleting')


def last_line(capsys):
    return capsys.readouterr().out.splitlines()[-1]


def test_sweep(fleet, capsys):
    """Expired and stale reservations are removed; all others stay."""
    fleet.add(*[{}] * 7)
    first, second, valid, stale, *deploying = reservations = [
        fleet.hold()[0] for _ in range(7)]
    fleet.expire_leases()
    fleet.renew_leases(valid)
    fleet.set_node(second.node_id, instance_info='{"a": "b"}')
    fleet.set_node(stale.node_id, instance_uuid=None)
    for reservation, state in zip(deploying, AT_WORK, strict=True):
        fleet.set_node(reservation.node_id, provision_state=state)
    manage.sweep()
    assert last_line(capsys) == (
        '1 reservations expired, 1 stale reservations purged, '
        '0 old notices deleted, 0 expired pools purged, 0 old reservations '
        'deleted from the history')
    assert fleet.holds == {
        reservation.node_id: reservation.instance_uuid
        for reservation in reservations
        if reservation not in (first, stale)}
    manage.sweep()
    assert last_line(capsys).startswith('0 reservations expired')


@pytest.mark.parametrize('fields, reason', [
    ({'reservation': 'conductor-1'}, 'node locked by conductor-1'),
    ({'instance_info': '{"a": "b"}'}, 'instance_info'),
    # States in which a host that died may have left a node.
    *(({'provision_state': state}, f'node is {state}')
      for state in ('deploy failed', 'clean failed')),
    # The next request releases the first; the others are in use.
    ({'maintenance': True}, None),
    *(({'provision_state': state}, None) for state in AT_WORK),
], ids=str)
def test_audit(busy_fleet, capsys, fields, reason):
    """The audit changes nothing."""
    busy_fleet.set_node(busy_fleet.node_id, **fields)
    busy_fleet.expire_leases()
    assert bool(manage.audit()) == bool(reason)
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == (f'{len(lines)} reservations are overdue, 0 free nodes are '
                    f'prepared, 0 nodes carry an unknown instance, 0 nodes of '
                    f'pools carry an instance of another project, 0 notices '
                    f'are overdue, 0 cordons were set by projects')
    assert len(lines) == bool(reason)
    for line in lines:
        for word in (fleets.INSTANCE, busy_fleet[busy_fleet.node_id].uuid,
                     f'lease expired at {busy_fleet.rows[0].expires_at}',
                     'compute-1', reason):
            assert word in line
    assert busy_fleet.holds == {busy_fleet.node_id: fleets.INSTANCE}


def test_audit_of_a_valid_lease(busy_fleet, capsys):
    busy_fleet.renew_leases()
    busy_fleet.set_node(busy_fleet.node_id, reservation='conductor-1')
    assert not manage.audit()
    assert last_line(capsys).startswith('0 reservations are overdue, ')


def test_audit_of_free_nodes(fleet, capsys):
    dirty, _, foreign = (fleet[node_id].uuid for node_id in fleet.add(
        {}, {}, {'instance_uuid': fleets.INSTANCE}))
    fleet.execute(sa.text('UPDATE nodes SET instance_info = :info '
                          'WHERE uuid = :uuid'),
                  {'info': '{"a": 1, "b": 2}', 'uuid': dirty})
    assert manage.audit() == 1
    assert capsys.readouterr().out.splitlines() == [
        f'node {dirty} is available, but carries something of a tenant; '
        f'remove it: openstack baremetal node unset {dirty} '
        f'--instance-info a --instance-info b',
        f'node {foreign} is available, but carries instance '
        f'{fleets.INSTANCE}, which has no reservation; unless a server has it '
        f'or somebody is about to deploy it: openstack baremetal node unset '
        f'{foreign} --instance-uuid',
        '0 reservations are overdue, 1 free nodes are prepared, 1 nodes carry '
        'an unknown instance, 0 nodes of pools carry an instance of another '
        'project, 0 notices are overdue, 0 cordons were set by projects']


@pytest.mark.on('sqlite', 'server')
def test_audit_of_notices(fleet, capsys):
    late, faulty, *others, fifth = fleet.add(*[{}] * 5)
    past, future = (datetime.datetime.now(datetime.UTC).replace(
        tzinfo=None, microsecond=0) + datetime.timedelta(hours=hours)
        for hours in (-1, 1))
    first, second = (str(uuid.uuid4()) for _ in range(2))
    fleet.add_notice(late, due_at=past, uuid=first)
    fleet.add_notice(faulty, cordon=True, project_id='p', uuid=second)
    # The work goes on, was done, or is planned.
    fleet.add_notice(others[0], due_at=future)
    fleet.add_notice(others[0], due_at=past, ends_at=past)
    fleet.add_notice(others[0], due_at=future, starts_at=future)
    # Reports of projects without a cordon, and closed or failed builds.
    fleet.add_notice(others[1], project_id='p')
    fleet.add_notice(others[1], project_id='p', cordon=True, ends_at=past)
    fleet.add_notice(others[1], project_id='p', cordon=True,
                     is_failed_build=True)
    fleet.cordon(others[1])
    fleet.add_notice(fifth, due_at=past, project_id='p', cordon=True)
    fleet.delete_node(fifth)
    assert manage.audit() == 1
    close = 'openstack baremetal reservation notice close'
    late, faulty = (fleet[node_id].uuid for node_id in (late, faulty))
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == [
        f'node {late} has a notice that was due at {past} UTC; if the work is '
        f'done: {close} {first} --node {late}',
        f'node {faulty} is cordoned by project p since 2001-01-01 00:00:00 '
        f'UTC; after its repair: {close} {second} --node {faulty}']
    assert last.endswith(
        ', 1 notices are overdue, 1 cordons were set by projects')


def run(tmp_path, connection, *args):
    """Run the command on a database."""
    conf_file = services.write_conf(tmp_path / 'ironic.conf', {
        'database': {'connection': connection.format(tmp_path)}})
    process = subprocess.run(
        [services.program('ironic-reservations-manage'), '--config-file',
         conf_file, *args], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120)
    assert 'Traceback' not in process.stdout + process.stderr
    return process


@pytest.mark.parametrize('args', [[], ['sweep', 'more']], ids=str)
def test_wrong_usage(tmp_path, args):
    process = run(tmp_path, 'sqlite://', *args)
    assert process.returncode == 2
    assert 'usage:' in process.stderr and 'sweep' in process.stderr


@pytest.mark.parametrize('connection', ['sqlite:///{}/empty.sqlite',
                                        'sqlite:///{}/no/such.sqlite'])
def test_no_such_database(tmp_path, connection):
    """The command reports an error without a traceback."""
    assert run(tmp_path, connection, 'sweep').returncode > 0
