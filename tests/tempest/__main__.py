# SPDX-License-Identifier: Apache-2.0
"""Run Tempest against a whole cloud.

    tox -e tempest
    tox -e tempest -- tempest.api.compute.servers
    tox -e tempest -- --driver ironic.IronicDriver

Starts a cloud as "make cloud" does, runs tempest.api.compute and the tests of
ironic-tempest-plugin, or those that match regular expressions, and stops it.
``exclude.txt`` lists the tests that are not run, ``failures.yaml`` those that
are expected to fail, both with reasons. The exit status is 1 if another test
fails, or if one of these does not. With Nova's own driver, Nova's scheduler
has its default options.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

from stestr.repository import util
import tempest
import testtools
import yaml

from tools import services
from tools import trial_cloud

HERE = pathlib.Path(__file__).parent
FOLDER = '.tox/tempest-run'
#: Run one after the other, because Nova's own driver has a compute node for
#: each node that the tests of the plugin create.
SUITES = (r'^tempest\.(serial_tests\.)?api\.compute\.',
          r'^ironic_tempest_plugin\.')
#: With a third host, ServersAffinityTest disables one and leaves it disabled.
COMPUTES = 2
NODES = 30
#: Operations that Ironic, or its fake hardware, does not have. Tempest's other
#: defaults of [compute-feature-enabled] are right.
MISSING = (
    'attach_encrypted_volume', 'can_migrate_between_any_hosts',
    'cold_migration', 'console_output', 'ide_bus', 'live_migration',
    'metadata_service', 'pause', 'rescue', 'shelve', 'snapshot', 'suspend')


def make_conf(cloud, folder):
    """Return the options of tempest.conf by section."""
    connection = cloud.connect()
    images = [connection.image.find_image(trial_cloud.IMAGE),
              cloud.create_image('other')]
    flavors = [connection.compute.find_flavor(trial_cloud.FLAVOR),
               cloud.create_flavor('bm.other')]
    filters = services.read_conf(
        trial_cloud.EXAMPLES / 'nova-scheduler.conf')['filter_scheduler']
    versions = {'min_microversion': '2.1', 'max_microversion': 'latest'}
    # With "latest", Tempest requests versions that an older Nova lacks.
    newest = connection.compute.get_endpoint_data().max_microversion
    return {
        'DEFAULT': {'log_file': folder / 'tempest.log'},
        'oslo_concurrency': {'lock_path': folder / 'lock'},
        'auth': {'admin_username': 'admin', 'admin_project_name': 'admin',
                 'admin_password': trial_cloud.PASSWORD,
                 'admin_system': 'all', 'create_isolated_networks': 'false'},
        'identity': {'uri_v3': cloud.auth_url},
        'service_available': {'ironic': 'true', **dict.fromkeys(
            ('cinder', 'swift', 'horizon'), 'false')},
        'compute': {
            'image_ref': images[0].id, 'image_ref_alt': images[1].id,
            'flavor_ref': flavors[0].id, 'flavor_ref_alt': flavors[1].id,
            'fixed_network_name': trial_cloud.NETWORK,
            'hypervisor_type': 'ironic', 'min_compute_nodes': COMPUTES,
            'build_timeout': 180, **versions,
            'max_microversion': '.'.join(map(str, newest))},
        'compute-feature-enabled': {
            'scheduler_enabled_filters': filters['enabled_filters'],
            **dict.fromkeys(MISSING, 'false')},
        'placement': {**versions, 'min_microversion': '1.0'},
        'network': {'shared_physical_network': 'true'},
        'network-feature-enabled': {
            'floating_ips': 'false', 'api_extensions': ','.join(
                extension.alias
                for extension in connection.network.extensions())},
        # Fake machines have no SSH.
        'validation': {'run_validation': 'false'},
        'baremetal': {**versions, 'min_microversion': '1.1',
                      'enabled_hardware_types': 'fake-hardware',
                      'active_timeout': 120, 'unprovision_timeout': 120},
    }


def run(folder, regex):
    """Run tests; return their statuses by name."""
    subprocess.run(
        ['stestr', '--test-path', pathlib.Path(tempest.__file__).with_name(
            'test_discover'),
         '--top-dir', pathlib.Path(tempest.__file__).parents[1],
         '--group-regex', r'([^\.]*\.)*', '--repo-url', folder,
         'run', '--concurrency', '2', '--suppress-attachments',
         '--exclude-list', HERE / 'exclude.txt', regex],
        env={**os.environ, 'TEMPEST_CONFIG': str(folder / 'tempest.conf')})
    statuses = {}

    def add(test):
        # The rest of an ID are Tempest's UUID and attributes of the test.
        statuses[test['id'].partition('[')[0]] = test['status']

    results = testtools.StreamToDict(add)
    results.startTestRun()
    util.get_repo_open(repo_url=str(folder)).get_latest_run(
        ).get_test().run(results)
    results.stopTestRun()
    return statuses


def compare(statuses, driver, suites):
    """Yield the differences from failures.yaml."""
    failures = {test for test in statuses
                if statuses[test] not in ('success', 'skip')}
    for group in yaml.safe_load((HERE / 'failures.yaml').read_text()):
        if group.get('driver', driver) != driver:
            continue
        failures.difference_update(group['tests'])
        for test in group['tests']:
            status = statuses.get(test, 'not run')
            if (status != 'fail' and not group.get('by_chance')
                    and any(re.search(suite, test) for suite in suites)):
                yield f'{test}: {status}, expected to fail: {group["reason"]}'
    for test in sorted(failures):
        yield f'{test}: failed unexpectedly'


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('suites', nargs='*', default=SUITES, metavar='REGEX',
                        help='tests to run (default: all)')
    parser.add_argument('--driver', default=trial_cloud.DRIVER,
                        help='compute_driver (default: %(default)s)')
    args = parser.parse_args()
    services.stop_on_signal()
    cloud = trial_cloud.Cloud(
        FOLDER, services.free_ports(9), COMPUTES, NODES, args.driver,
        scheduler=None if args.driver == trial_cloud.DRIVER else {})
    cloud.up()
    try:
        folder = cloud.folder / 'tempest'
        folder.mkdir()
        services.write_conf(folder / 'tempest.conf', make_conf(cloud, folder))
        statuses = {}
        for suite in args.suites:
            statuses.update(run(folder, suite))
    finally:
        cloud.down()
    differences = list(compare(statuses, args.driver, args.suites))
    counts = [f'{list(statuses.values()).count(status)} {status}'
              for status in sorted(set(statuses.values()))]
    print('', *differences, ', '.join(counts), sep='\n')
    return int(bool(differences) or not statuses)


if __name__ == '__main__':
    sys.exit(main())
