# SPDX-License-Identifier: Apache-2.0
"""Clients, each a process: of the service, and of the bare database."""

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
from sqlalchemy.dialects.mysql import pymysql
from sqlalchemy.sql import visitors

from ironic_reservations import conf
from ironic_reservations import matching
from ironic_reservations.db import functions
from ironic_reservations.db import models
from ironic_reservations.db import node_rows
from ironic_reservations.matching import request_spec
from tests.benchmark import fleet

#: Clients, when there are many.
MANY = 8

_fork = multiprocessing.get_context('fork')


@dataclasses.dataclass(frozen=True)
class Result:
    """What some clients did at the same time.

    :param median: milliseconds of one call.
    :param rate: calls per second of all clients.
    :param cpu: milliseconds of processor time that a call takes of a client.
    """

    median: float
    rate: float
    cpu: float


class Http:
    """One kept-alive connection."""

    def __init__(self, port):
        self._connection = http.client.HTTPConnection('127.0.0.1', port)
        self._connection.connect()
        self._connection.sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, method, path, expected, body=None, **headers):
        self._connection.request(
            method, path, body and json.dumps(body),
            {'Content-Type': 'application/json', **headers})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != expected:
            raise fleet.WrongAnswer(f'{method} {path} {body}: '
                                    f'{answer.status} {text}')
        return text and json.loads(text)


def seconds(function, times):
    """Return the median time of some calls."""
    times_taken = []
    for _ in range(times):
        began = time.monotonic()
        function()
        times_taken.append(time.monotonic() - began)
    return statistics.median(times_taken)


def holding(port, kinds, check, keep=True):
    """A client that holds nodes, and checks that they are what it wanted.

    :param keep: else each is released before the next is held.
    """
    def client(seed):
        connection, requests = Http(port), fleet.requests(kinds, seed)
        while True:
            request = next(requests)
            began = time.perf_counter()
            answer = connection.request('POST', '/v1/reservations', 201,
                                        request)
            taken = time.perf_counter() - began
            check(request, answer)
            if not keep:
                connection.request('DELETE', '/v1/reservations/'
                                   + answer['instance_uuid'], 204)
                # After an answer without a body uWSGI's router closes it.
                connection = Http(port)
            yield taken
    return client


def bare(url, guarded=True):
    """A client of the database: what no hold can do without.

    An UPDATE, an INSERT and a COMMIT by raw PyMySQL, of nodes that are known
    beforehand.

    :param guarded: whether the UPDATE has the guard of a hold, with all that
        a node must still be; else it finds the node by its id alone.
    """
    # The guard has an option's value in it.
    conf.register_opts()
    matcher = matching.Matcher(request_spec.RequestSpec.from_dict(
        {'memory_mb': 1}))
    as_pymysql = pymysql.dialect(paramstyle='pyformat')
    # No released Ironic has this table.
    functions.set_missing_columns(types.SimpleNamespace(dialect=as_pymysql),
                           ['deferred_actions.state'])

    def give(values, parameter):
        # All before it is compiled, because one of them is a list.
        if parameter.key in values:
            parameter.value, parameter.required = values[parameter.key], False

    def statements(node):
        values = {'instance_uuid': str(uuid.uuid4()), 'node_id': node['id'],
                  'node_uuid': node['uuid'], 'host': 'compute-1',
                  'request_spec': matcher.spec.canonical,
                  'created_at': datetime.datetime.now()}
        if guarded:
            statement, read = node_rows.hold_node(
                types.SimpleNamespace(**node), matcher,
                values['instance_uuid'])
            update = visitors.cloned_traverse(statement, {}, {
                'bindparam': functools.partial(give, read)}).compile(
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
        with fleet.connected(url) as connection:
            cursor = connection.cursor(cursors.DictCursor)
            # Each of the clients has nodes of its own.
            cursor.execute(
                'SELECT id, uuid, name, resource_class, properties, '
                'conductor_group, shard, owner, lessee FROM nodes '
                'WHERE id %% %s = %s '
                'ORDER BY RAND() LIMIT 1000', (MANY, seed % MANY))
            for update, insert in [*map(statements, cursor.fetchall())]:
                began = time.perf_counter()
                if not cursor.execute(*update):
                    raise fleet.WrongAnswer(f'not free: {update}')
                cursor.execute(*insert)
                connection.commit()
                yield time.perf_counter() - began
    return client


def run(client, times, number=1):
    """Let so many clients work at the same time, each so many times."""
    begin, results = _fork.Barrier(number), _fork.SimpleQueue()

    def work(seed):
        each = client(seed)
        try:
            next(each)  # Connected.
            begin.wait()
            began, cpu = time.monotonic(), time.process_time()
            taken = [next(each) for _ in range(times)]
            results.put((began, time.monotonic(), taken,
                         time.process_time() - cpu))
        except Exception as error:
            results.put(error)
            begin.abort()

    seed = random.randrange(2 ** 32)
    processes = [_fork.Process(target=work, args=(seed + index,))
                 for index in range(number)]
    for process in processes:
        process.start()
    told = [results.get() for _ in processes]
    for process in processes:
        process.join()
    for error in told:
        if isinstance(error, Exception):
            raise error
    begins, ends, taken, cpu = zip(*told, strict=True)
    return Result(statistics.median(sum(taken, [])) * 1000,
                  number * times / (max(ends) - min(begins)),
                  sum(cpu) * 1000 / (number * times))
