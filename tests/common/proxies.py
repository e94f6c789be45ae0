# SPDX-License-Identifier: Apache-2.0
"""A proxy for MariaDB or MySQL that cuts, delays and answers statements."""

import collections
import contextlib
import re
import select
import socket
import socketserver
import threading
import time

import sqlalchemy as sa

#: The connection is cut before the server receives a statement.
UNHEARD = 'unheard'
#: The connection is cut before the client receives the response.
UNANSWERED = 'unanswered'
#: The proxy itself responds that the statement is done.
DONE = 'done'

#: A packet begins with its length in three bytes, and its number; a statement
#: has the number 0, and a 3 for COM_QUERY.
_HEADER, _QUERY = 4, b'\x00\x03'
#: The first packet of a response: OK, no rows, autocommit, no warnings.
_OK = b'\7\0\0\1' b'\0\0\0\2\0\0\0'
#: The response to a statement without rows, after its header.
_NO_ROWS = b'\x00'
#: What statements that write begin with.
_WRITES = b'INSERT', b'UPDATE', b'DELETE'
_UUID = re.compile(rb'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy that inspects each statement.

    :param url: of the database.
    :ivar decide: function of a statement in bytes that returns UNHEARD,
        UNANSWERED, DONE, the seconds of a delay, or None.
    :ivar seen: Counter of the decisions, with ``float`` for delays.
    :ivar commits: transactions that wrote, and whose COMMIT the server has
        acknowledged: time.monotonic(), and the UUIDs, as bytes, in all
        statements on the connection since the one before.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, url, decide=lambda statement: None):
        super().__init__(('127.0.0.1', 0), _Handler)
        self.database, self.decide = sa.make_url(url), decide
        self.seen, self._lock = collections.Counter(), threading.Lock()
        self.commits = []

    @property
    def url(self):
        # Statements cannot be recognized if they are encrypted.
        return self.database.set(
            host='127.0.0.1', port=self.server_address[1]
        ).difference_update_query(['unix_socket']).update_query_dict(
            {'ssl_disabled': 'true'}).render_as_string(hide_password=False)

    @property
    def cuts(self):
        return self.seen[UNHEARD] + self.seen[UNANSWERED]

    def connect(self):
        path = self.database.query.get('unix_socket')
        if not path:
            return socket.create_connection(
                (self.database.host, self.database.port))
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        return connection

    def decide_fate(self, statement):
        with self._lock:
            fate = self.decide(statement)
            self.seen[float if isinstance(fate, float) else fate] += 1
            return fate


class _Handler(socketserver.BaseRequestHandler):

    def handle(self):
        self._last, self._writes, self._uuids = b'', False, set()
        with contextlib.suppress(OSError), self.server.connect() as upstream:
            for connection in self.request, upstream:
                if connection.family == socket.AF_INET:
                    connection.setsockopt(
                        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._relay(upstream):
                pass

    def _relay(self, upstream):
        """Pass on the available data; return whether to continue."""
        ready, _, _ = select.select([self.request, upstream], [], [])
        if upstream in ready:
            data = upstream.recv(65536)
            if (self._writes and self._last == b'COMMIT'
                    and data[_HEADER:][:1] == _NO_ROWS):
                self.server.commits.append((time.monotonic(), self._uuids))
                self._writes, self._uuids = False, set()
            self.request.sendall(data)
            return data
        data = self._packet()
        fate = None
        if data[3:5] == _QUERY:
            self._last = statement = data[5:]
            self._uuids.update(_UUID.findall(statement))
            self._writes = statement != b'ROLLBACK' and (
                self._writes or statement.startswith(_WRITES))
            fate = self.server.decide_fate(statement)
        if not data or fate == UNHEARD:
            return False
        if fate == DONE:
            self.request.sendall(_OK)
            return True
        if isinstance(fate, float):
            time.sleep(fate)
        upstream.sendall(data)
        if fate == UNANSWERED:
            upstream.recv(1)
        return fate != UNANSWERED

    def _packet(self):
        """Return a whole packet of the client; empty if it is gone."""
        data = self.request.recv(65536)
        while data and len(data) < _HEADER + int.from_bytes(
                data[:3], 'little'):
            more = self.request.recv(65536)
            if not more:
                return more
            data += more
        return data


@contextlib.contextmanager
def proxy(url, decide=lambda statement: None):
    """Run a proxy; yield the Proxy."""
    with Proxy(url, decide) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
