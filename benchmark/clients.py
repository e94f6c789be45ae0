# SPDX-License-Identifier: Apache-2.0
"""Clients of the service and of the bare database, each a process."""

import dataclasses
import datetime
import functools
import http.client
import json
import multiprocessing
import random
import socket
import statistics
import time
import types
import uuid

from pymysql import cursors
import sqlalchemy as sa
from sqlalchemy import util
from sqlalchemy.dialects.mysql import pymysql
from sqlalchemy.sql import visitors

from benchmark import fleet
from ironic_reservations import conf
from ironic_reservations import matching
from ironic_reservations.db import functions
from ironic_reservations.db import models
from ironic_reservations.db import node_rows
from ironic_reservations.matching import request_spec

#: The number of many clients.
MANY = 8

_fork = multiprocessing.get_context('fork')


@dataclasses.dataclass(frozen=True)
class Result:
    """Results of concurrent clients.

    :param median: milliseconds of one call.
    :param worst: milliseconds of the slowest call.
    :param rate: calls per second of all clients.
    :param cpu: milliseconds of a client's processor time per call.
    :param durations: seconds of all calls.
    """

    median: float
    worst: float
    rate: float
    cpu: float
    durations: list[float]


class Http:
    """One keep-alive connection."""

    def __init__(self, port):
        self._connection = http.client.HTTPConnection('127.0.0.1', port)
        self._connection.connect()
        self._connection.sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, method, path, expected, body=None, **headers):
        self._connection.request(
            method, path, body and json.dumps(body),
            {'Content-Type': 'application/json', **headers})
        response = self._connection.getresponse()
        text = response.read()
        if response.status != expected:
            raise fleet.WrongResponse(f'{method} {path} {body}: '
                                      f'{response.status} {text}')
        return text and json.loads(text)


def seconds(function, times):
    """Return the median duration of some calls."""
    durations = []
    for _ in range(times):
        began = time.monotonic()
        function()
        durations.append(time.monotonic() - began)
    return statistics.median(durations)


def holding(port, kinds, check, keep=True):
    """Return a client that holds nodes, and checks that they match.

    :param keep: False to release each before the next hold.
    """
    def client(seed):
        connection, requests = Http(port), fleet.requests(kinds, seed)
        while True:
            request = next(requests)
            began = time.perf_counter()
            response = connection.request('POST', '/v1/reservations', 201,
                                          request)
            duration = time.perf_counter() - began
            check(request, response)
            if not keep:
                connection.request('DELETE', '/v1/reservations/'
                                   + response['instance_uuid'], 204)
                # uWSGI's router closes it after a response without a body.
                connection = Http(port)
            yield duration
    return client


def bare(url, has_guard=True):
    """Return a client of the database that does the minimum of a hold.

    It runs an UPDATE, an INSERT and a COMMIT by raw PyMySQL, on nodes that it
    knows.

    :param has_guard: whether the UPDATE has the guard of a hold, which
        compares the whole node; otherwise it compares only the ID.
    """
    # The guard contains the value of an option.
    conf.register_opts()
    matcher = matching.Matcher(request_spec.RequestSpec.from_dict(
        {'memory_mb': 1}))
    as_pymysql = pymysql.dialect(paramstyle='pyformat')
    # The guard that runs is that of the kind of server.
    with fleet.connect(url) as connection:
        as_pymysql.is_mariadb = 'MariaDB' in connection.get_server_info()
    # No released Ironic has this table.
    functions.set_missing_columns(
        types.SimpleNamespace(dialect=as_pymysql), ['deferred_actions.state'])

    def set_value(values, parameter):
        # This precedes the compilation, because one of them is a list.
        if parameter.key in values:
            parameter.value, parameter.required = values[parameter.key], False

    def statements(node):
        values = {'instance_uuid': str(uuid.uuid4()), 'node_id': node['id'],
                  'node_uuid': node['uuid'], 'host': 'compute-1',
                  'request_spec': matcher.spec.canonical,
                  'created_at': datetime.datetime.now()}
        if has_guard:
            statement, read = node_rows.hold_node(
                types.SimpleNamespace(
                    **node, suspect=False, mentions_vif=False), matcher,
                values['instance_uuid'])
            update = visitors.cloned_traverse(statement, {}, {
                'bindparam': functools.partial(set_value, read)})
            # A copied UPDATE has a dict, to which no value can be added.
            update._values = util.immutabledict(update._values)
            update = update.compile(
                    dialect=as_pymysql,
                    compile_kwargs={'render_postcompile': True})
            update = str(update), update.params
        else:
            update = ('UPDATE nodes SET instance_uuid = %s WHERE id = %s '
                      'AND instance_uuid IS NULL',
                      (values['instance_uuid'], node['id']))
        insert = sa.insert(models.reservations).compile(
            dialect=as_pymysql, column_keys=values)
        return update, (str(insert), values)

    def client(seed):
        with fleet.connect(url) as connection:
            cursor = connection.cursor(cursors.DictCursor)
            # Each client has its own nodes.
            cursor.execute(
                'SELECT id, uuid, name, resource_class, properties, '
                'conductor_group, shard, owner, lessee FROM nodes '
                'WHERE id %% %s = %s '
                'ORDER BY RAND() LIMIT 1000', (MANY, seed % MANY))
            for update, insert in [*map(statements, cursor.fetchall())]:
                began = time.perf_counter()
                if not cursor.execute(*update):
                    raise fleet.WrongResponse(f'not free: {update}')
                cursor.execute(*insert)
                connection.commit()
                yield time.perf_counter() - began
    return client


def run(client, times, number=1):
    """Run a number of clients at the same time, each a number of times."""
    barrier, results = _fork.Barrier(number), _fork.SimpleQueue()

    def work(seed):
        calls = client(seed)
        try:
            next(calls)  # This connects.
            barrier.wait()
            began, cpu = time.monotonic(), time.process_time()
            durations = [next(calls) for _ in range(times)]
            results.put((began, time.monotonic(), durations,
                         time.process_time() - cpu))
        except Exception as error:
            results.put(error)
            barrier.abort()

    seed = random.randrange(2 ** 32)
    processes = [_fork.Process(target=work, args=(seed + index,))
                 for index in range(number)]
    for process in processes:
        process.start()
    outcomes = [results.get() for _ in processes]
    for process in processes:
        process.join()
    for error in outcomes:
        if isinstance(error, Exception):
            raise error
    begins, ends, durations, cpu = zip(*outcomes, strict=True)
    durations = sum(durations, [])
    return Result(statistics.median(durations) * 1000, max(durations) * 1000,
                  number * times / (max(ends) - min(begins)),
                  sum(cpu) * 1000 / (number * times), durations)
