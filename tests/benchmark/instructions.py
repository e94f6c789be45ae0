# SPDX-License-Identifier: Apache-2.0
"""How many instructions a hold takes of the process that serves it.

    python -m tests.benchmark.instructions

It needs Valgrind, whose callgrind counts them, on MariaDB. Unlike times and
rates the number does not depend on what else the machine does, nor, by much,
on which machine it is: two runs differ by less than a thousandth. Our
application is asked in its own process, without a server and a client.
"""

import argparse
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from tests.benchmark import fleet
from tools import services

#: Holds before it is counted, and while it is.
WARM, HOLDS = 60, 160


def serve():
    """Hold nodes in this process, which runs below callgrind."""
    # Not before: this process is to have nothing that a worker has not.
    import webob

    from ironic_reservations import wsgi
    from ironic_reservations.fleet import count

    # The fleet is counted once, before it begins.
    count.AGE_TO_COST = 10 ** 6
    asked = fleet.requests(fleet.MIX, 1)

    def requests(times):
        return [webob.Request.blank(
            '/v1/reservations', method='POST',
            body=json.dumps(next(asked)).encode(),
            content_type='application/json').environ for _ in range(times)]

    def start(status, headers):
        if not status.startswith('201'):
            raise fleet.WrongAnswer(status)

    def hold(requests):
        for environ in requests:
            for _ in wsgi.application(environ, start):
                pass

    def switch(state):
        subprocess.run(['callgrind_control', '-i', state, str(os.getpid())],
                       stdout=subprocess.DEVNULL, check=True)

    hold(requests(WARM))
    counted = requests(HOLDS)
    switch('on')
    hold(counted)
    switch('off')


def measure(conf_file, profile):
    """The instructions of a hold on the fleet of a service.

    :param profile: where callgrind writes what it has found, for
        callgrind_annotate.
    """
    subprocess.run(
        ['valgrind', '-q', '--tool=callgrind', '--instr-atstart=no',
         f'--callgrind-out-file={profile}', sys.executable, '-m',
         __spec__.name, '--serve'],
        check=True, stderr=subprocess.DEVNULL, env={
            **os.environ, 'PYTHONHASHSEED': '0',
            'OS_IRONIC_RESERVATIONS_CONFIG_FILES': conf_file})
    found = re.findall(r'^(?:totals|summary): (\d+)', pathlib.Path(
        profile).read_text(), re.MULTILINE)
    return max(map(int, found)) / HOLDS


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nodes', type=int, default=10000)
    parser.add_argument('--profile', help='a file for what callgrind writes')
    parser.add_argument('--serve', action='store_true', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve()
    services.stop_on_signal()
    logging.getLogger('pifpaf').setLevel('ERROR')
    with services.mariadb() as server, fleet.ironic(
            server, args.nodes) as ironic, \
            tempfile.TemporaryDirectory() as folder:
        found = measure(ironic.conf_file, args.profile or f'{folder}/profile')
    print(f'{found / 1e6:.3f} million instructions a hold')


if __name__ == '__main__':
    main()
