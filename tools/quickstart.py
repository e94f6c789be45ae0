# SPDX-License-Identifier: Apache-2.0
"""Run a real Ironic with the plugin and a small fleet, as a demonstration.

Shows commands with their real output; the first unexpected one ends the
demonstration with status 1. Nothing remains unless a folder is chosen.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any
import uuid

import requests
from rich import console as rich_console
from rich import progress
import tenacity

from tools import services

console = rich_console.Console(highlight=False, markup=False, soft_wrap=True)

TEAM_A = 'a3b1c0de11114222833344445555aaaa'
TEAM_B = 'b3b1c0de11114222833344445555bbbb'


class Unexpected(Exception):
    """A command had another result than the demonstration describes."""


def make_node(name: str, resource_class: str, memory_mb: int, cpus: int,
              local_gb: int, *traits: str,
              capabilities: str = 'boot_mode:uefi', cpu_arch: str = 'x86_64',
              **fields: Any) -> dict[str, Any]:
    """Return a node for ``services.enrol``."""
    return {'name': name, 'resource_class': resource_class,
            'properties': {'memory_mb': memory_mb, 'cpus': cpus,
                           'local_gb': local_gb, 'cpu_arch': cpu_arch,
                           'capabilities': capabilities},
            'traits': list(traits), **fields}


FLEET = [
    make_node('gold-1', 'baremetal.gold', 131072, 64, 2000, 'CUSTOM_NVME',
              'HW_CPU_X86_VMX', shard='east', owner=TEAM_A,
              capabilities='boot_mode:uefi,rack:r1'),
    make_node('gold-2', 'baremetal.gold', 131072, 64, 2000, 'CUSTOM_NVME',
              shard='east', capabilities='boot_mode:uefi,rack:r1'),
    make_node('gold-3', 'baremetal.gold', 262144, 96, 4000, 'CUSTOM_NVME',
              shard='west', capabilities='boot_mode:uefi,rack:r2'),
    make_node('gold-4', 'baremetal.gold', 131072, 64, 2000, 'CUSTOM_NVME',
              shard='east', capabilities='boot_mode:uefi,rack:r1'),
    make_node('silver-1', 'baremetal.silver', 32768, 16, 480, shard='east'),
    make_node('silver-2', 'baremetal.silver', 65536, 32, 960, shard='east'),
    make_node('silver-3', 'baremetal.silver', 65536, 32, 960, 'CUSTOM_NVME',
              shard='west'),
    make_node('silver-4', 'baremetal.silver', 131072, 32, 960, 'CUSTOM_NVME',
              shard='west', lessee=TEAM_B),
    make_node('silver-5', 'baremetal.silver', 65536, 32, 960, shard='east'),
    make_node('bronze-1', 'baremetal.bronze', 8192, 4, 120, shard='west',
              capabilities='boot_mode:bios'),
    make_node('bronze-2', 'baremetal.bronze', 8192, 4, 120, shard='west',
              capabilities='boot_mode:bios', owner=TEAM_B),
    make_node('bronze-3', 'baremetal.bronze', 16384, 8, 240, shard='east'),
    make_node('gpu-1', 'baremetal.gpu', 131072, 32, 1000, 'CUSTOM_GPU',
              shard='east', capabilities='boot_mode:uefi,gpus:4'),
    make_node('gpu-2', 'baremetal.gpu', 262144, 64, 1000, 'CUSTOM_GPU',
              shard='west', capabilities='boot_mode:uefi,gpus:8'),
    make_node('arm-1', 'baremetal.arm', 65536, 64, 480, cpu_arch='aarch64',
              shard='east', lessee=TEAM_A),
    make_node('arm-2', 'baremetal.arm', 131072, 128, 960, 'CUSTOM_NVME',
              cpu_arch='aarch64', shard='west'),
]


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    services.stop_on_signal()
    try:
        with run_ironic(args) as service:
            say(f'Enrolling {len(FLEET)} nodes of fake hardware')
            baremetal = services.connect(service.url)
            services.enrol(baremetal, FLEET, progress=track_nodes)
            if args.serve:
                wait_for_interrupt(service)
            else:
                Demonstration(service, baremetal).run()
            say('Stopping Ironic')
    except KeyboardInterrupt:
        say('Stopped')
        return 0 if args.serve else 130
    except (services.PortTaken, services.NotSettled, services.StartError,
            Unexpected) as e:
        return print_error(e)
    if not args.serve:
        say('The end. "make serve" starts the same and keeps running.')
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python -m tools.quickstart', description=__doc__)
    parser.add_argument(
        '--serve', action='store_true',
        help='start, enrol and keep running until Ctrl-C')
    parser.add_argument(
        '--port', type=int, default=os.environ.get('PORT') or 6385,
        help='port of 127.0.0.1 (default: $PORT, or 6385)')
    parser.add_argument(
        '--dir', type=pathlib.Path, default=os.environ.get('DIR') or None,
        help='a new or empty folder for configuration, database and log, '
             'which is kept (default: $DIR, or a temporary one)')
    args = parser.parse_args(argv)
    if not 0 < args.port < 65536:
        parser.error(f'not a port: {args.port}')
    if args.dir and args.dir.exists() and (
            not args.dir.is_dir() or any(args.dir.iterdir())):
        parser.error(f'{args.dir} is not a new or empty folder')
    return args


@contextlib.contextmanager
def run_ironic(args: argparse.Namespace) -> Iterator[services.Service]:
    with contextlib.ExitStack() as stack:
        # Check this before creating or printing anything.
        services.check_port(args.port)
        if args.dir:
            args.dir.mkdir(parents=True, exist_ok=True)
            directory = args.dir.absolute()
        else:
            directory = pathlib.Path(
                stack.enter_context(tempfile.TemporaryDirectory()))
        say(f'Starting Ironic with the plugin on port {args.port}; its '
            f'configuration, database and log are in {directory}')
        yield stack.enter_context(services.ironic(
            directory, f'sqlite:///{directory}/ironic.sqlite', args.port))


def track_nodes(nodes: Iterable[Any]) -> Iterable[Any]:
    """Yield nodes, and show progress."""
    return progress.track(nodes, 'Enrolling', console=console)


def wait_for_interrupt(service: services.Service) -> None:
    """Print how to use Ironic, and keep it running until Ctrl-C."""
    console.print(f'''
Ironic is running at {service.url}. In another terminal:

  export PATH={shlex.quote(sysconfig.get_path('scripts'))}:$PATH
  export OS_AUTH_TYPE=none OS_ENDPOINT={service.url}
  openstack baremetal reservation create --resource-class baremetal.gold
  openstack baremetal node list

  curl -s {service.url}/v1/reservations -H 'Content-Type: application/json' \
-d '{{"resource_class": "baremetal.silver", "memory_mb": 65536}}'

Ctrl-C stops it.''')
    service.process.wait()
    raise services.StartError(
        f'Ironic ended; the end of {service.log}:\n'
        + services.tail(service.log))


class Demonstration:
    """Commands on a running Ironic, shown with their output."""

    def __init__(self, service: services.Service, baremetal: Any) -> None:
        self.url = service.url
        self.baremetal = baremetal
        self.environment = services.cli_environment(service.url)

    def run(self) -> None:
        """Run all commands.

        :raises: Unexpected.
        """
        first, second, third, fourth, group = (
            str(uuid.uuid4()) for _ in range(5))
        self.openstack('baremetal node list --fields name resource_class '
                       'traits owner lessee')

        say('The capacity of the fleet, with identical nodes in one line')
        self.openstack('baremetal reservation capacity --host compute-1')

        say('A dry run: what a request would match, without holding it')
        self.openstack(
            'baremetal reservation create --resource-class baremetal.silver '
            '--ram 49152 --trait CUSTOM_NVME --dry-run',
            says='16 nodes considered')

        say('A request: Ironic picks the least oversized node and holds it')
        self.openstack(
            'baremetal reservation create --resource-class baremetal.silver '
            '--ram 49152 --vcpus 16 --trait CUSTOM_NVME '
            '--capability boot_mode=uefi --host compute-1 '
            f'--instance-uuid {first}', says='silver-3')

        say('The same over HTTP, with the extra specs of a flavor')
        self.post({
            'instance_uuid': second, 'host': 'compute-2',
            'memory_mb': 65536, 'vcpus': 32, 'root_gb': 100,
            'extra_specs': {'resources:CUSTOM_BAREMETAL_GPU': '1',
                            'trait:CUSTOM_GPU': 'required',
                            'capabilities:gpus': '>= 4'}}, says='gpu-1')

        say('A request that names candidate nodes')
        self.openstack(
            'baremetal reservation create --ram 65536 --candidate-node '
            'gold-2 --candidate-node gold-3 --shard west '
            f'--instance-uuid {third}', says='gold-3')

        say('Ironic and its clients show who holds what')
        self.openstack('baremetal reservation list')
        self.openstack('baremetal node list --fields name resource_class '
                       'instance_uuid provision_state', says=first)

        say('These nodes are counted as held by their hosts, not as free')
        self.openstack('baremetal reservation capacity --host compute-1 '
                       '--no-cache')

        say('Nothing matches: 422 with the reasons, and nothing is held')
        self.openstack(
            'baremetal reservation create --resource-class baremetal.gold '
            '--trait CUSTOM_NVME --trait CUSTOM_FPGA', status=1,
            says='3 could be held without trait:CUSTOM_FPGA=required')

        say('Four machines in one rack, or none: no rack has enough')
        pack = ('baremetal reservation group create --pack capability:rack '
                '--resource-class baremetal.gold ')
        self.openstack(f'{pack} --members 4', status=1,
                       says='3 could be held in capability:rack r1')

        say('Three machines, held together and released together')
        self.openstack(f'{pack} --members 3 --uuid {group}', says='r1')
        self.openstack(f'baremetal reservation group delete {group}')

        say('A lease expires if no deployment has started')
        self.openstack(
            'baremetal reservation create --resource-class baremetal.arm '
            f'--ram 131072 --instance-uuid {fourth} --expires-in 3 '
            '-c node_name -c state -c expires_at', says='arm-2')
        self.wait_for_expiry(fourth)
        self.openstack('baremetal reservation capacity --no-cache '
                       '--resource-class baremetal.arm')

        say('A deployed node cannot be released')
        self.openstack('baremetal node deploy silver-3')
        self.wait('silver-3', 'active')
        self.openstack(f'baremetal reservation show {first} '
                       '-c node_name -c state', says='active')
        self.openstack(f'baremetal reservation delete {first}',
                       status=1, says='HTTP 409')

        say('Tearing the node down ends the reservation')
        self.openstack('baremetal node undeploy silver-3')
        self.wait('silver-3', 'available')
        self.openstack(f'baremetal reservation show {first}',
                       status=1, says='HTTP 404')

        say('The others are released')
        self.openstack(f'baremetal reservation delete {second} {third}')
        self.openstack('baremetal reservation list -f json', says='[]')

    def openstack(self, command: str, status: int = 0, says: str = '') -> None:
        """Run the openstack command.

        :param status: expected exit status.
        :param says: expected text in the output.
        """
        words = ['openstack', *shlex.split(command)]
        console.print(f'\n$ {shlex.join(words)}', style='bold')
        result = subprocess.run(words, env=self.environment, text=True,
                                stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
        if output := result.stdout.strip('\n'):
            console.print(output)
        check_result(result.stdout, result.returncode, status, says)

    def post(self, body: dict[str, Any], says: str) -> None:
        """Send a request for a reservation."""
        console.print(f'\nPOST {self.url}/v1/reservations', style='bold')
        console.print(json.dumps(body, indent=2))
        response = requests.post(f'{self.url}/v1/reservations', json=body,
                                 timeout=60)
        console.print(f'\nHTTP {response.status_code}', style='bold')
        console.print(json.dumps(response.json(), indent=2))
        check_result(response.text, response.status_code, 201, says)

    def wait_for_expiry(self, instance_uuid: str) -> None:
        console.print('(waiting until the lease has expired)')
        retry = tenacity.retry(
            retry=tenacity.retry_if_result(lambda response: response.ok),
            wait=tenacity.wait_fixed(0.2), stop=tenacity.stop_after_delay(30),
            retry_error_callback=lambda state: None)
        retry(requests.get)(f'{self.url}/v1/reservations/{instance_uuid}',
                            timeout=60)

    def wait(self, name: str, provision_state: str) -> None:
        # The command's own --wait polls every ten seconds.
        console.print(f'(waiting until {name} is {provision_state})')
        node = self.baremetal.get_node(name)
        services.settle(self.baremetal, [node],
                        provision_state=provision_state)


def check_result(output: str, status: int, expected_status: int,
                 says: str) -> None:
    """Raise Unexpected unless a command had the expected result."""
    if status != expected_status or says not in output:
        raise Unexpected(
            f'Unexpected: status {status}, expected {expected_status} and '
            f'"{says}" in the output. To keep the log of Ironic, set '
            'DIR=folder or --dir.')


def say(text: str) -> None:
    """Print a heading."""
    console.print(f'\n# {text}', style='cyan')


def print_error(error: object) -> int:
    """Print an error; return the exit status."""
    print(f'\n{error}', file=sys.stderr)
    return 1


if __name__ == '__main__':
    sys.exit(main())
