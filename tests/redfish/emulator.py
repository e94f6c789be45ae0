# SPDX-License-Identifier: Apache-2.0
"""sushy-tools' emulator of a BMC that reports faults and hangs.

By itself, the emulator reports each machine as healthy.
"""

import contextlib
import threading

import flask
from sushy_tools.emulator import main
from sushy_tools.emulator.resources.systems import fakedriver
from werkzeug import serving

from tools import services


class BMC:
    """The BMC of one machine, which is off.

    :ivar health: of the machine, in Redfish's words.
    :ivar driver_info: of its node.
    """

    def __init__(self, directory):
        self.health = 'OK'
        self._port = services.free_port()
        self.driver_info = {
            'redfish_address': f'http://127.0.0.1:{self._port}'}
        self._requested = threading.Event()
        self._responsive = threading.Event()
        self._responsive.set()
        main.app.configure(extra_config={
            'SUSHY_EMULATOR_FAKE_DRIVER': True,
            'SUSHY_EMULATOR_STATE_DIR': str(directory)})
        main.app.before_request(self._wait)
        main.app.after_request(self._report_health)

    @contextlib.contextmanager
    def serve(self):
        """Respond to requests, each in a thread."""
        server = serving.make_server('127.0.0.1', self._port, main.app,
                                     threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()

    @property
    def power_state(self):
        """The power state of the machine, ``On`` or ``Off``."""
        return main.app.systems.get_power_state(fakedriver.DEFAULT_UUID)

    @contextlib.contextmanager
    def hang(self):
        """Accept connections, but do not respond until the body has run.

        :returns: an Event that the next request sets.
        """
        self._requested.clear()
        self._responsive.clear()
        try:
            yield self._requested
        finally:
            self._responsive.set()

    def _wait(self):
        self._requested.set()
        self._responsive.wait()

    def _report_health(self, response):
        if flask.request.endpoint == 'system_resource' and response.is_json:
            body = response.json
            body['Status']['Health'] = self.health
            response.set_data(flask.json.dumps(body))
        return response
