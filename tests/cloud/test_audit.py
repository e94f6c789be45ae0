# SPDX-License-Identifier: Apache-2.0
"""What the audit finds where every service is a real one."""

import uuid

import pytest

from tests.cloud.operator import eventually

pytestmark = pytest.mark.timeout(900)


def test_audit(cloud):
    eventually(cloud.finds_nothing)
    servers = cloud.boot_many(3)
    # Also while they are built.
    assert cloud.audit() == set()
    assert set(cloud.settled(servers).values()) == {'ACTIVE'}
    eventually(cloud.finds_nothing)
    held = {each['instance_uuid']: each for each in cloud.reservations()}
    taken, *_ = servers
    host = held[taken]['host']
    other = next(each for each in cloud.cloud.hosts if each != host)

    def hold_by(name):
        response = cloud.system.baremetal.patch(
            f'/reservations/{taken}',
            json=[{'op': 'replace', 'path': '/host', 'value': name}])
        assert response.status_code == 200, response.text

    # Two kinds, made by hand: another host holds a server's machine, and a
    # host holds one for nobody.
    nobodys = str(uuid.uuid4())
    cloud.openstack(
        'baremetal', 'reservation', 'create', '--resource-class',
        'baremetal.gold', '--instance-uuid', nobodys, '--host', host,
        '--expires-in', '600', user='system')
    hold_by(other)
    try:
        assert cloud.audit() == {('no-server', nobodys),
                                 ('wrong-host', taken)}
        assert ('wrong-host', taken) in cloud.audit('--host', other)
    finally:
        hold_by(host)
        cloud.act('baremetal', 'reservation', 'delete', nobodys,
                  user='system')
    eventually(cloud.finds_nothing)
    # A user who does not see all of it is not told that all is well.
    refused = cloud.openstack('baremetal', 'reservation', 'audit',
                              user='demo', check=False)
    assert refused.returncode == 1
    assert not refused.stdout
