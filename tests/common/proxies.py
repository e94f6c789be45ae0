# SPDX-License-Identifier: Apache-2.0
"""A proxy between us and MariaDB or MySQL, which cuts and delays."""

import collections
import contextlib
import select
import socket
import socketserver
import threading
import time

import sqlalchemy as sa

#: The connection is cut before the server has heard of a statement.
UNHEARD = 'unheard'
#: The server has done it, and the client does not hear of that.
UNANSWERED = 'unanswered'

#: A packet begins with three bytes of its length, and its number; that of a
#: statement has the number 0, and a 3 for COM_QUERY.
_HEADER, _QUERY = 4, b'\x00\x03'


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy that sees each statement before the server does.

    :param url: of the database.
    :ivar decide: function of a statement in bytes: UNHEARD, UNANSWERED, the
        seconds for which the statement is kept back, or None.
    :ivar seen: Counter of what was decided, ``float`` for delays.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, url, decide=lambda statement: None):
        super().__init__(('127.0.0.1', 0), _Handler)
        self.database, self.decide = sa.make_url(url), decide
        self.seen, self._lock = collections.Counter(), threading.Lock()

    @property
    def url(self):
        # Statements could not be told in what is encrypted.
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
        found = socket.socket(socket.AF_UNIX)
        found.connect(path)
        return found

    def fate(self, statement):
        with self._lock:
            found = self.decide(statement)
            self.seen[float if isinstance(found, float) else found] += 1
            return found


class _Handler(socketserver.BaseRequestHandler):

    def handle(self):
        with contextlib.suppress(OSError), self.server.connect() as upstream:
            for each in self.request, upstream:
                if each.family == socket.AF_INET:
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._relay(upstream):
                pass

    def _relay(self, upstream):
        """Hand on what has come; False where the connection ends."""
        ready, _, _ = select.select([self.request, upstream], [], [])
        if upstream in ready:
            data = upstream.recv(65536)
            self.request.sendall(data)
            return data
        data = self._packet()
        fate = (self.server.fate(data[5:])
                if data[3:5] == _QUERY else None)
        if not data or fate == UNHEARD:
            return False
        if isinstance(fate, float):
            time.sleep(fate)
        upstream.sendall(data)
        if fate == UNANSWERED:
            upstream.recv(1)
        return fate != UNANSWERED

    def _packet(self):
        """A whole packet of the client; nothing where it has gone."""
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
    """A Proxy while it works."""
    with Proxy(url, decide) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        try:
            yield found
        finally:
            found.shutdown()
