# SPDX-License-Identifier: Apache-2.0
"""Fleets of any size in Ironic's real schema, and requests for their nodes.

40 hardware profiles in 10 resource classes, 0 to 3 traits, a tenth of the
nodes with a root_device of their own. A rack has nodes of one profile, or of
many. Profiles are shuffled among racks, so that each is spread over the fleet.
Each node has two ports.
"""

import collections
import contextlib
import json
import pathlib
import random
import re
import tempfile
import uuid

import psutil
import pymysql
import sqlalchemy as sa

from tools import services

CLASSES = 10

#: Nodes are enrolled rack by rack, in random order, or one node of each rack
#: after the other.
ORDERED, SCATTERED, ROUND_ROBIN = 'ordered', 'scattered', 'round robin'

#: Number of nodes of a mixed rack that have the same profile.
MAJORITY = 10

_pick = random.Random(1)

#: Resource class, properties and traits of each profile.
PROFILES = [
    (f'baremetal.c{number % CLASSES}',
     {'memory_mb': 2 ** _pick.randint(14, 19),
      'cpus': 2 ** _pick.randint(3, 7),
      'local_gb': _pick.choice([200, 500, 2000]), 'cpu_arch': 'x86_64',
      'capabilities': f'boot_mode:uefi,gpus:{number % 5}'},
     [f'CUSTOM_T{trait}' for trait in range(number % 4)])
    for number in range(40)]

#: The smallest profile: most others satisfy requests for it, too.
SMALLEST = min(PROFILES, key=lambda profile: (
    profile[1]['local_gb'], profile[1]['memory_mb'], profile[1]['cpus']))

# Ironic's periodic tasks would disturb the measurement.
_IRONIC = {'conductor': {'automated_clean': 'false',
                         'sync_power_state_interval': 0},
           'sensor_data': {'send_sensor_data': 'false'}}


@contextlib.contextmanager
def ironic(server, size, track=iter, racks=None, is_mixed=False, config=None):
    """Run a real Ironic with nodes; yield a tools.services.Service.

    SQL enrols the nodes: through the API it would take hours.

    :param racks: order of enrolment if a capability names each node's rack,
        so that each rack has its own hardware profile.
    :param is_mixed: see ``_list_profiles``.
    :param config: more options of Ironic, by section.
    """
    with services.database(server) as url, \
            tempfile.TemporaryDirectory() as directory, \
            services.ironic(directory, url, services.free_port(),
                            config={**_IRONIC, **(config or {})}) as service, \
            connect(url) as connection:
        # One is enrolled through the API, to copy columns that Ironic needs.
        baremetal = services.connect(service.url)
        pattern = services.enrol(baremetal, [{'traits': ['CUSTOM_A']}])
        with connection.cursor() as cursor:
            rows = {}
            for name in ('nodes', 'node_traits'):
                cursor.execute(f'SELECT * FROM {name}')
                rows[name] = dict(zip(
                    (column[0] for column in cursor.description),
                    cursor.fetchone(), strict=True))
            services.remove(baremetal, pattern)
            connection.rollback()
            fill(cursor, size, track, racks, is_mixed)
            for name, row in rows.items():
                cursor.execute(f'UPDATE {name} SET ' + ', '.join(
                    f'`{column}` = COALESCE(`{column}`, %s)'
                    for column in row), [*row.values()])
            connection.commit()
            cursor.execute('ANALYZE TABLE nodes, node_traits, ports')
        yield service


def stop(ironic):
    """Stop Ironic, of which only the database is needed."""
    ironic.process.terminate()
    ironic.process.wait(services.STOP_TIMEOUT)


def peak_memory(pid):
    """Return the peak MiB of the largest process of a service."""
    service = psutil.Process(pid)
    return max(int(re.search(r'VmHWM:\s*(\d+) kB', pathlib.Path(
        f'/proc/{process.pid}/status').read_text())[1])
        for process in (service, *service.children(recursive=True))) / 1024


@contextlib.contextmanager
def connect(url):
    """Open a raw PyMySQL connection."""
    parts = sa.make_url(url)
    with contextlib.closing(pymysql.connect(
            unix_socket=parts.query['unix_socket'], user=parts.username,
            database=parts.database)) as connection:
        yield connection


def execute(url, *statements):
    """Run statements in one transaction."""
    with connect(url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


def free_all(url):
    """Release all nodes."""
    execute(url, 'UPDATE nodes SET instance_uuid = NULL '
            'WHERE instance_uuid IS NOT NULL',
            'DELETE FROM reservations', 'DELETE FROM reservations_groups')


def _list_racks(size, racks=None):
    """Return the rack of each node: 200 racks, or 40 nodes in each."""
    nodes_per_rack = max(1, min(40, size // 200))
    if racks == ROUND_ROBIN:
        return [number % (size // nodes_per_rack) for number in range(size)]
    rack_numbers = [number // nodes_per_rack for number in range(size)]
    if racks == SCATTERED:
        random.Random(3).shuffle(rack_numbers)
    return rack_numbers


def _list_places(size, racks=None):
    """Yield the rack of each node, and its position in the rack."""
    counts = collections.Counter()
    for rack in _list_racks(size, racks):
        yield rack, counts[rack]
        counts[rack] += 1


def _shuffle_racks(size):
    """Return a number for each rack, from which its profile follows."""
    numbers = [*range(max(_list_racks(size)) + 1)]
    random.Random(2).shuffle(numbers)
    return numbers


def _list_profiles(size, racks=None, is_mixed=False):
    """Return the profile of each node.

    :param is_mixed: whether only ``MAJORITY`` nodes of a rack have its
        profile, and each other node has that of another rack.
    """
    numbers = _shuffle_racks(size)
    return [PROFILES[numbers[
        (rack + 61 * position) % len(numbers)
        if is_mixed and position >= MAJORITY else rack] % len(PROFILES)]
        for rack, position in _list_places(size, racks)]


def find_in_use(size, racks):
    """Return the IDs of about two nodes in five.

    The racks of a profile have 0, 20, 40, 60 and 80 % of such nodes.
    """
    numbers = _shuffle_racks(size)
    return [node_id for node_id, (rack, position) in enumerate(
        _list_places(size, racks), 1)
        if position % 5 < numbers[rack] // len(PROFILES) % 5]


def sample_ids(size):
    """Return the IDs of one in 1,000 nodes, and at least one per profile."""
    ids_by_profile = {}
    for node_id, profile in enumerate(_list_profiles(size), 1):
        ids_by_profile.setdefault(str(profile), []).append(node_id)
    return [node_id for ids in ids_by_profile.values()
            for node_id in random.sample(ids, -(-len(ids) // 1000))]


def find_ids(size, profile):
    """Return the IDs of all nodes of a profile."""
    return [node_id for node_id, other in enumerate(_list_profiles(size), 1)
            if other is profile]


def fill(cursor, size, track=iter, racks=None, is_mixed=False):
    """Enrol the nodes of a fleet, with only the columns that we read."""
    nodes, traits = [], []
    for number, ((resource_class, properties, names), rack) in enumerate(
            zip(_list_profiles(size, racks, is_mixed),
                _list_racks(size, racks), strict=True), 1):
        if racks:
            properties = {**properties, 'capabilities': (
                f'rack:r{rack},{properties["capabilities"]}')}
        if number % 10 == 0:
            properties = {**properties,
                          'root_device': {'serial': uuid.uuid4().hex}}
        nodes.append((number, str(uuid.uuid4()), f'node-{number}',
                      resource_class, json.dumps(properties)))
        traits += [(number, name) for name in names]
    for first in track(range(0, size, 1000)):
        cursor.executemany(
            'INSERT INTO nodes (id, uuid, name, resource_class, properties, '
            'provision_state, power_state, maintenance, conductor_group, '
            "driver, instance_info) VALUES (%s, %s, %s, %s, %s, 'available', "
            "'power off', 0, '', 'fake-hardware', '{}')",
            nodes[first:first + 1000])
    for first in range(0, len(traits), 5000):
        cursor.executemany(
            'INSERT INTO node_traits (node_id, trait) VALUES (%s, %s)',
            traits[first:first + 5000])
    cursor.execute(
        'INSERT INTO ports (uuid, address, node_id, extra, internal_info) '
        "SELECT UUID(), CONCAT('52:54:', id, ':', port), id, '{}', '{}' "
        'FROM nodes JOIN (SELECT 0 AS port UNION SELECT 1) AS two')


# Requests

def class_and_trait(profile):
    resource_class, _, traits = profile
    return {'resource_class': resource_class, 'extra_specs': {
        f'trait:{name}': 'required' for name in traits[:1]}}


def class_and_capability(profile):
    resource_class, properties, _ = profile
    gpus = properties['capabilities'][-1]
    return {'resource_class': resource_class,
            'extra_specs': {'capabilities:gpus': f'>= {gpus}'}}


def exact(profile):
    return {'resource_class': profile[0], **sizes(profile),
            'extra_specs': {'reservations:match': 'exact'}}


def sizes(profile):
    properties = profile[1]
    return {'memory_mb': properties['memory_mb'], 'vcpus': properties['cpus'],
            'root_gb': properties['local_gb']}


WITH_CLASS = (class_and_trait, class_and_capability, exact)
MIX = (*WITH_CLASS, sizes)


def requests(kinds, seed):
    """Yield requests without end, for random profiles."""
    pick = random.Random(seed)
    while True:
        for kind in kinds:
            yield {**kind(pick.choice(PROFILES)),
                   'instance_uuid': str(uuid.uuid4()), 'host': 'compute-1'}


class WrongResponse(Exception):
    """A node was held that does not satisfy the request."""


def checker(size):
    """Return a function that checks a reservation against its request."""
    profiles = _list_profiles(size)

    def check(request, reservation):
        resource_class, properties, traits = profiles[
            int(reservation['node_name'].removeprefix('node-')) - 1]
        specs = request.get('extra_specs', {})
        gpus = re.search(r'\d', specs.get('capabilities:gpus', '0'))[0]
        values = [properties[name]
                  for name in ('memory_mb', 'cpus', 'local_gb')]
        minima = [request.get(name, 0)
                  for name in ('memory_mb', 'vcpus', 'root_gb')]
        fits = values == minima if 'reservations:match' in specs else all(
            value >= least for value, least in zip(values, minima,
                                                   strict=True))
        if not (fits and properties['capabilities'][-1] >= gpus
                and request.get('resource_class') in (None, resource_class)
                and reservation['instance_uuid'] == request['instance_uuid']
                and all(key.partition(':')[2] in traits for key in specs
                        if key.startswith('trait:'))):
            raise WrongResponse(f'{request}: {reservation}')

    return check
