# SPDX-License-Identifier: Apache-2.0
"""The plugin for DevStack, with stubs of DevStack's functions; other tools."""

import configparser
import json
import pathlib
import re
import shlex

import jinja2
from packaging import requirements
import pytest
import yaml

from ironic_reservations.cmd import exporter
from tests.common import programs

ROOT = pathlib.Path(__file__).parents[2]
STUBS = r"""
define_plugin() { :; }
plugin_requires() { :; }
echo_summary() { :; }
is_service_enabled() { [[ " $SERVICES " == *" $1 "* ]]; }
get_python_exec_prefix() { echo "$DEST/bin"; }
# The last value of an option counts; an empty value unsets it.
iniset() { printf '%s\n' "[$2]" "$3 = $4" >>"$1"; }
inidelete() { printf '%s\n' "[$2]" "$3 =" >>"$1"; }
iniget() { sed -n "/^\[$2\]/,/^\[/s/^$3 = //p" "$1" | tail -n 1; }
NOVA_NUM_CELLS=2
conductor_conf() { echo "$DEST/nova_cell$1.conf"; }
setup_develop() { echo "installed $*"; }
restart_service() { echo "restarted $*"; }
"""


@pytest.fixture
def devstack(tmp_path):
    """Run a phase; return the output and the options in the files."""
    program = tmp_path / 'bin' / 'ironic-reservations-dbsync'
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "dbsync $*"\n')
    program.chmod(0o755)
    names = 'ironic', 'nova', 'placement'
    files = {name: tmp_path / f'{name}.conf' for name in names}
    files['ironic'].write_text('[api]\nmiddleware = other\n')
    files['nova'].write_text(
        '[ironic]\nauth_url = theirs\nproject_name = service\n')
    files['placement'].touch()

    def run(*phase, services='ir-api nova n-cpu', **env):
        output = programs.run(
            'bash', '-euc', f'{STUBS}\n. "$0/devstack/settings"\n'
            '. "$0/devstack/plugin.sh"', ROOT, *phase,
            env={'PATH': '/usr/bin:/bin', 'DEST': str(tmp_path),
                 'IRONIC_RESERVATIONS_DIR': str(ROOT), 'SERVICES': services,
                 **{f'{name.upper()}_CONF': str(path)
                    for name, path in files.items()},
                 'IRONIC_CONF_FILE': str(files['ironic']), **env})
        return output, *(read_options(files[name]) for name in names)
    return run


def read_options(path):
    config = configparser.RawConfigParser(strict=False)
    config.read(path)
    return {(section, option): value
            for section in (*config.sections(), 'DEFAULT')
            for option, value in config.items(section)}


def test_install_phase(devstack):
    assert devstack('stack', 'install')[0] == (
        f'installed {ROOT} mysql,nova,osc,quota\n')
    assert not devstack('stack', 'install', services='nova')[0]


def test_post_config_phase(devstack, tmp_path):
    for _ in range(2):
        _, ironic, nova, placement = devstack('stack', 'post-config')
    assert ironic['api', 'middleware'] == 'other,reservations'
    assert nova['DEFAULT', 'compute_driver'] == (
        'ironic_reservations.ReservationsDriver')
    assert nova['ironic', 'system_scope'] == 'all'
    assert nova['ironic', 'auth_url'] == 'theirs'
    assert not nova['ironic', 'project_name']
    assert nova['filter_scheduler', 'shuffle_best_same_weighed_hosts'] == (
        'true')
    assert placement['placement', 'allocation_conflict_retry_count'] == '50'
    for cell in '12':
        assert read_options(tmp_path / f'nova_cell{cell}.conf') == {
            ('scheduler', 'max_attempts'): '5'}


def test_ironic_alone(devstack):
    for env in {'services': 'ir-api'}, {'IRONIC_RESERVATIONS_DRIVER': 'False'}:
        _, ironic, nova, _ = devstack('stack', 'post-config', **env)
        assert 'reservations' in ironic['api', 'middleware']
        assert ('DEFAULT', 'compute_driver') not in nova
        assert 'restarted' not in devstack('stack', 'extra', **env)[0]


def test_extra_phase(devstack, tmp_path):
    assert devstack('stack', 'extra')[0].splitlines() == [
        f'dbsync --config-file {tmp_path}/ironic.conf upgrade',
        'restarted devstack@n-cpu']


@pytest.mark.parametrize('phase', ['unstack', 'clean'])
def test_end_phases(devstack, phase):
    """DevStack itself removes all files."""
    assert not devstack(phase)[0]


# Other tools

def read_documented_file(name):
    """Return the options of a file of the documentation, without logins."""
    config = configparser.RawConfigParser(default_section='')
    config.read(ROOT / 'doc' / 'source' / 'examples' / name)
    return {(section, option): value for section in config.sections()
            for option, value in config.items(section)
            if not re.match('auth_|username|password|user_domain', option)}


def test_openstack_ansible():
    overrides = yaml.safe_load(
        (ROOT / 'doc/source/examples/openstack-ansible.yml').read_text())
    assert overrides['ironic_ironic_conf_overrides'] == {
        'api': {'middleware': 'reservations'}}
    assert {
        (section, option): str(value).replace('True', 'true')
        for name in ('nova_nova_conf_overrides',
                     'placement_placement_conf_overrides')
        for section, options in overrides[name].items()
        for option, value in options.items()
    } == {**read_documented_file('nova-compute.conf'),
          **read_documented_file('nova-scheduler.conf'),
          **read_documented_file('placement.conf')}


def test_kolla():
    """For each image, pip understands the requirement."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(
        ROOT / 'doc' / 'source' / 'examples'))
    # Kolla puts the file before the template of an image.
    environment.globals['parent_template'] = environment.from_string(
        '{{ (ironic_base_pip_packages_append + nova_base_pip_packages_append '
        '+ horizon_pip_packages_append) | join(" ") }}')
    words = shlex.split(environment.get_template(
        'kolla/template-overrides.j2').render())
    assert [requirements.Requirement(word).extras for word in words] == [
        {'mysql', 'quota'}, {'nova'}, {'horizon'}]


def test_exporter_of_kolla():
    """It has the image of the API, and the volume with the API's counts."""
    folder = ROOT / 'doc/source/examples/kolla'
    variables = yaml.safe_load((folder / 'globals.yml').read_text())
    [volume] = re.findall("'(.*?)'", variables['ironic_api_extra_volumes'])
    unit = (folder / 'ironic-reservations-exporter.service').read_text()
    assert f'--volume {volume} ' in unit
    assert (f'    {variables["reservations_image"]}/ironic-api:'
            f'{variables["reservations_tag"]}\n') in unit
    assert (f'ENV PROMETHEUS_MULTIPROC_DIR={volume.partition(":")[2]}\n'
            in (folder / 'template-overrides.j2').read_text())
    command = json.loads((folder / 'exporter.json').read_text())['command']
    assert {*re.findall('--([a-z-]+)', command)} <= {
        'config-file', *(opt.name for opt in exporter.OPTIONS)}


def test_receivers_of_kolla():
    """Each severity of the rules has one, and only "info" reaches nobody."""
    folder = ROOT / 'doc/source/examples'
    config = yaml.safe_load(
        (folder / 'kolla/prometheus-alertmanager.yml').read_text())
    receivers = {row.pop('name'): row for row in config['receivers']}
    route = config['route']
    by_severity = {
        re.fullmatch(r'severity = (\w+)', *child['matchers'])[1]:
            receivers[child['receiver']] for child in route['routes']}
    severities = {*re.findall(r'severity: (\w+)', (
        folder / 'prometheus-rules.yaml').read_text())}
    assert {*by_severity} < severities
    assert [severity for severity in severities if not by_severity.get(
        severity, receivers[route['receiver']])] == ['info']
