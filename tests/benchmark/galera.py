# SPDX-License-Identifier: Apache-2.0
"""What it costs never to read what is stale, on a Galera cluster.

    python -m tests.benchmark.galera

Three members on loopback, 1,000 nodes, our application with one process on
one of the members, one client over HTTP; with and without
``[database] mysql_wsrep_sync_wait = 1`` in turn, while the other members have
nothing to do and while one of them commits as fast as it can. Medians in
milliseconds.
"""

import contextlib
import pathlib
import statistics
import tempfile
import threading
import time

import requests
from rich import console
from rich import table

from tests.benchmark import fleet
from tests.common import servers
from tools import services

ROUNDS, REQUESTS = 10, 20


def configure(directory, name, url, **options):
    (directory / name).mkdir()
    return services.write_conf(directory / name / 'ironic.conf', {
        'DEFAULT': {**services.FAKE_HARDWARE, 'auth_strategy': 'noauth'},
        'database': {'connection': url, **options}})


def take(api, taken):
    """One hold, a look at it, its release; and a refusal."""
    url = f'{api.url}/v1/reservations'

    def timed(name, status, method, path='', body=None):
        began = time.perf_counter()
        answer = requests.request(method, url + path, json=body)
        taken.setdefault(name, []).append(
            (time.perf_counter() - began) * 1000)
        if answer.status_code != status:
            raise SystemExit(answer.text)
        return answer.json() if answer.content else None

    made = timed('hold, class', 201, 'POST',
                 body={'resource_class': 'baremetal.c3'})
    path = f'/{made["instance_uuid"]}'
    timed('show', 200, 'GET', path)
    timed('release', 204, 'DELETE', path)
    timed('422 with its explanation', 422, 'POST',
          body={'memory_mb': 2 ** 30})


@contextlib.contextmanager
def writing(member):
    stop = threading.Event()

    def write():
        while not stop.is_set():
            member.sql('UPDATE nodes SET extra = UUID() WHERE id = 1000')

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def main():
    figures = {}
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory()))
        first, second, _ = stack.enter_context(servers.galera())
        plain = configure(directory, 'plain', second.url)
        waiting = configure(directory, 'waiting', second.url,
                            mysql_wsrep_sync_wait=1)
        services.create_schema(plain, directory / 'log')
        with first.connect() as connection:
            fleet.fill(connection.cursor(), 1000)
            connection.commit()
        apis = {name: stack.enter_context(services.uwsgi(
                    'ironic_reservations.wsgi:application', conf,
                    services.free_port(), processes=1))
                for name, conf in (('0', plain), ('1', waiting))}
        for load in contextlib.nullcontext(), writing(first):
            name = ', others idle' if not figures else ', others write'
            with load:
                for _ in range(ROUNDS):
                    for wait, api in apis.items():
                        for _ in range(REQUESTS):
                            take(api, figures.setdefault(wait + name, {}))
    shown = table.Table('median, ms', *figures)
    for what in next(iter(figures.values())):
        shown.add_row(what, *(f'{statistics.median(taken[what]):.2f}'
                              for taken in figures.values()))
    console.Console().print(shown)


if __name__ == '__main__':
    main()
