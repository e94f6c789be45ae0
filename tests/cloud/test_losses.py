# SPDX-License-Identifier: Apache-2.0
"""MariaDB is killed during builds, and loses the commits of its last second.

First a server that has only Ironic's database, then one with all databases,
as in Kolla-Ansible. The output says what was lost, and what the audit repairs.
"""

import collections
import contextlib
import dataclasses
import json
import os
import random
import re
import signal
import time

from openstack import exceptions as sdk_exc
import pytest

from tests.cloud import conftest
from tests.cloud import operator
from tests.cloud.operator import eventually
from tests.common import servers
from tools import services
from tools import trial_cloud

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

#: Kolla-Ansible's setting.
LOSES = '--innodb-flush-log-at-trx-commit=0'
#: In each round, it is killed twice while some servers are built.
ROUNDS = int(os.environ.get('IRONIC_RESERVATIONS_LOSS_ROUNDS', 10))
SERVERS = 6

#: Requests in the log of Ironic's API: milliseconds since the epoch when they
#: began, method, path, status, and the header of the fence.
_FORMAT = ('%(tmsecs) %(method) %(uri) %(status) '
           '%(var.HTTP_X_OPENSTACK_IRONIC_RESERVATION)')
_WRITE = re.compile(r'(\d+) (?:PATCH|POST|PUT|DELETE) \S+ (\d+) '
                    r'instance=([^;]+)')
#: Node and instance of a hold, and the instance of an end.
_HOLD = re.compile('Node (.+) is held for instance (.{36})')
_END = re.compile('instance (.{36}) .*is (?:released|free|purged)')


class Cloud(trial_cloud.Cloud):
    """A cloud whose MariaDB loses commits, and whose API logs requests.

    :ivar ironic_database: the server with Ironic's database, if it has one.
    """

    ironic_database = None

    def database_url(self, name):
        if self.ironic_database and name == 'ironic':
            return self.ironic_database.url
        return super().database_url(name)

    def programs(self):
        for name, command, environment in super().programs():
            if name == 'mariadb':
                command = [*command, LOSES]
            elif name == 'ironic':
                command = [*(word for word in command
                             if word != '--disable-logging'),
                           '--log-format', _FORMAT]
            yield name, command, environment


@pytest.fixture(params=['separate', 'shared'])
def cloud(request, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        cloud = Cloud(tmp_path_factory.mktemp('cloud') / 'run',
                      services.free_ports(9), lease=operator.LEASE,
                      deploy_delay=operator.DEPLOY_DELAY)
        cloud.compute = conftest.STOP
        if request.param == 'separate':
            cloud.ironic_database = stack.enter_context(
                servers.alone(LOSES, '--max-connections=1000'))
        stack.callback(cloud.down)
        cloud.up()
        yield operator.Operator(cloud)


def read_log(cloud, offset=0):
    """Return the lines of the log of Ironic's API, and its size."""
    with cloud.cloud.log('ironic').open('rb') as file:
        file.seek(offset)
        return file.read().decode(errors='replace').splitlines(), file.tell()


def find_holds(lines):
    """Return the node of each hold that a log begins and does not end."""
    holds = {}
    for line in lines:
        if hold := _HOLD.search(line):
            holds[hold[2]] = hold[1]
        elif end := _END.search(line):
            holds.pop(end[1], None)
    return holds


@dataclasses.dataclass(frozen=True)
class Kill:
    """What was lost when the server of Ironic's database was killed.

    :param at: in milliseconds since the epoch.
    :param lost: instances whose holds were lost.
    :param offset: of the first line in the log after it has started again.
    """

    at: float
    lost: frozenset
    offset: int


def kill_database(cloud, start):
    """Kill the server of Ironic's database, and start it again.

    :param start: offset in the log of the first hold of the round.
    """
    server, at = cloud.cloud.ironic_database, 1000 * time.time()
    if server:
        server.kill()
    else:
        cloud.cloud.signal('mariadb', signal.SIGKILL)
    time.sleep(2)
    # Ironic's API writes nothing before the rows are read.
    with cloud.freeze('ironic'):
        if server:
            server.start()
            server.wait()
        else:
            cloud.cloud.start('mariadb')
        [rows] = servers.wait(lambda: read_reservations(cloud), 'MariaDB')
        lines, offset = read_log(cloud, start)
    return Kill(at, frozenset(
        instance for instance, node in find_holds(lines).items()
        if rows.get(instance) != node), offset)


def read_reservations(cloud):
    with contextlib.suppress(operator.sa.exc.DBAPIError):
        return [{row['instance_uuid']: row['node_uuid'] for row in cloud.sql(
            'ironic', 'SELECT instance_uuid, node_uuid FROM reservations')}]


def check_writes(lines, kill):
    """Check that no build writes to Ironic after its hold was lost.

    A new hold lets it continue.

    :param lines: of the log since the kill.
    :returns: the number of refused writes.
    """
    instances, refusals = {*kill.lost}, 0
    for line in lines:
        if hold := _HOLD.search(line):
            instances.discard(hold[2])
        elif write := _WRITE.search(line):
            start, status, instance = write.groups()
            if instance in instances and int(start) > kill.at:
                assert int(status) >= 400, line
                refusals += status == '412'
    return refusals


def wait_for_builds(cloud, names):
    """Return the servers of a request when their builds have ended.

    Some builds do not end.
    """
    def find():
        return [server for server in cloud.servers() if server.name in names]

    def check():
        assert 'BUILD' not in {server.status for server in find()}

    for _ in range(2):
        with contextlib.suppress(AssertionError):
            eventually(check, 40)
            break
        # A conductor that could not write keeps its locks.
        restart_conductor(cloud)
    return find()


def restart_conductor(cloud):
    cloud.cloud.stop('ironic-conductor')
    cloud.cloud.start('ironic-conductor')


def check_machines(cloud, ours):
    """Check that servers and machines belong to each other one to one."""
    nodes = cloud.nodes()
    instances = collections.Counter(
        node.instance_id for node in nodes if node.instance_id)
    deployments = collections.Counter(
        node.instance_info.get('display_name') for node in nodes
        if node.instance_info and node.provision_state == 'active')
    assert set(instances.values()) <= {1}
    assert {row['instance_uuid']: row['node_uuid']
            for row in cloud.reservations()} == {
        node.instance_id: node.id for node in nodes if node.instance_id}
    for server in ours:
        assert deployments[server.name] <= 1, (server.name, nodes)
        if server.status == 'ACTIVE':
            [node] = [node for node in nodes if node.instance_id == server.id]
            assert node.provision_state == 'active'
            assert node.instance_info['display_name'] == server.name


def repair(cloud):
    """Return the kinds that the audit finds, with its repairs."""
    process = cloud.openstack('baremetal', 'reservation', 'audit', '--repair',
                              '-f', 'json', check=False)
    assert process.stdout, process.stderr
    return collections.Counter(
        f"{row['Kind']} {row['Repair'].partition(':')[0]}"
        for row in json.loads(process.stdout))


def tidy(cloud):
    """Delete all servers, and free all nodes like an operator."""
    restart_conductor(cloud)
    baremetal = cloud.system.baremetal

    def check():
        cloud.delete_all()
        ids = {server.id for server in cloud.servers()}
        for row in cloud.reservations():
            if row['instance_uuid'] not in ids:
                baremetal.delete(f'/reservations/{row["instance_uuid"]}')
        for node in cloud.nodes():
            if (node.instance_id not in ids
                    and node.provision_state in ('active', 'deploy failed')):
                with contextlib.suppress(sdk_exc.SDKException):
                    baremetal.set_node_provision_state(node, 'deleted')
        cloud.assert_all_free()

    eventually(check, 240)


def test_losses(cloud):
    total, options = collections.Counter(), cloud.server_options()
    for number in range(ROUNDS):
        _, start = read_log(cloud)
        cloud.connection.compute.create_server(
            name=f'loss-{number}', min_count=SERVERS, max_count=SERVERS,
            **options)
        # In the first round, Nova loses the servers themselves.
        servers.wait(lambda start=start, number=number: len(
            find_holds(read_log(cloud, start)[0])) >= number % SERVERS,
            'holds')
        kills = [kill_database(cloud, start)]
        time.sleep(random.uniform(0, 2 * operator.DEPLOY_DELAY))
        kills.append(kill_database(cloud, start))
        ours = wait_for_builds(cloud, {
            f'loss-{number}-{server + 1}' for server in range(SERVERS)})
        result = collections.Counter({
            'requested': SERVERS,
            'lost servers': SERVERS - len(ours),
            'lost holds': len(kills[0].lost | kills[1].lost),
            'refused writes': sum(
                check_writes(read_log(cloud, kill.offset)[0], kill)
                for kill in kills),
            'deployed without a server': len([
                node for node in cloud.nodes()
                if node.provision_state == 'active' and not node.instance_id])
        }) + collections.Counter(server.status for server in ours)
        if cloud.cloud.ironic_database:
            check_machines(cloud, ours)
        result += repair(cloud)
        print(number, dict(result), flush=True)
        total += result
        tidy(cloud)
    print(dict(total), flush=True)
    # The test needs losses.
    assert total['lost holds']
