# SPDX-License-Identifier: Apache-2.0
"""Records the statements by which the installed Ironic writes.

A separate process, because Ironic and this project register some of the same
options, and Ironic expects to be first. Reads from standard input, as JSON,
the calls of Ironic's database API by the name of a write, and prints the
statements of each call with their parameters.
"""

import contextlib
import json
import pathlib
import sys

from ironic.common import exception
from ironic.conf import CONF
from ironic.db.sqlalchemy import api
from oslo_db.sqlalchemy import enginefacade
import sqlalchemy as sa


def main(path):
    """Record all writes, each on a copy of the database of SQLite."""
    original = pathlib.Path(path).read_bytes()
    CONF([], project='ironic')
    CONF.set_override('connection', f'sqlite:///{path}', 'database')
    backend, engine = api.get_backend(), enginefacade.writer.get_engine()
    statements = []

    @sa.event.listens_for(engine, 'before_cursor_execute')
    def record(connection, cursor, statement, parameters, *args):
        if statement.startswith(('UPDATE', 'INSERT', 'DELETE')):
            statements.append((statement, parameters))

    result = {}
    for name, calls in json.load(sys.stdin).items():
        engine.dispose()
        pathlib.Path(path).write_bytes(original)
        result[name] = []
        for method, *args in calls:
            statements.clear()
            # An earlier call may have deleted the node.
            with contextlib.suppress(exception.NodeNotFound):
                getattr(backend, method)(*args)
            result[name].append(list(statements))
    json.dump(result, sys.stdout, default=str)


if __name__ == '__main__':
    main(*sys.argv[1:])
