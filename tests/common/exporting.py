# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-exporter as a process, and its samples."""

import contextlib

from prometheus_client import parser
import requests

from tools import services


class Exporter:
    """ironic-reservations-exporter on a database."""

    def __init__(self, process, log, url):
        self.process, self.log, self.url = process, log, url

    def samples(self):
        """Return the values of all samples, by name and labels."""
        response = requests.get(f'{self.url}/metrics', timeout=60)
        assert response.status_code == 200
        return {(sample.name, *sorted(sample.labels.items())): sample.value
                for family in parser.text_string_to_metric_families(
                    response.text) for sample in family.samples}

    def value(self, name, **labels):
        return self.samples().get(
            (f'ironic_reservations_{name}', *sorted(labels.items())))


@contextlib.contextmanager
def exporter(conf_file, directory, *args):
    """Run an exporter; yield an Exporter.

    :param directory: for its log.
    :param args: further arguments of the exporter.
    """
    port = services.free_port()
    log = directory / f'exporter-{port}.log'
    url = f'http://127.0.0.1:{port}'
    with services.running(
            [services.program('ironic-reservations-exporter'),
             '--config-file', str(conf_file), '--port', str(port), *args],
            log, url) as process:
        yield Exporter(process, log, url)
