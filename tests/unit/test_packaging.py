# SPDX-License-Identifier: Apache-2.0
"""What is installed is what is in the tree, and it loads from there."""

import pathlib
import sys
import zipfile

import pytest

from tests.common import programs

ROOT = pathlib.Path(__file__).parents[2]
# As package_dir in setup.cfg.
TREES = {
    'ironic_reservations': 'ironic_reservations',
    'migrations': 'ironic_reservations/db/migrations',
    'nova_driver': 'nova/virt/ironic_reservations',
}
# Runs with the installed folder in front and outside the tree, which is on
# the path of the test itself.
LOAD = """
import importlib.metadata
import sys

import nova.virt

folder = sys.argv[1]
# In an installation Nova's folder and ours are one.
nova.virt.__path__.insert(0, f'{folder}/nova/virt')
found, = importlib.metadata.distributions(
    name='ironic-reservations', path=[folder])
for entry_point in found.entry_points:
    entry_point.load()
    file = sys.modules[entry_point.module].__file__
    assert file.startswith(folder), f'{entry_point.name} is from {file}'
    print(entry_point.group, entry_point.name)
"""
# Lists what the client loads.
CLIENT = """
import pkgutil
import sys

from ironic_reservations import osc
import ironic_reservations.sdk

for module in pkgutil.walk_packages(osc.__path__, f'{osc.__name__}.'):
    __import__(module.name)
print(*sys.modules)
"""


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    """The wheel as built from the sdist, so that this is complete too."""
    folder = tmp_path_factory.mktemp('dist')
    programs.run(sys.executable, '-m', 'build', '--no-isolation', '--outdir',
                 folder, ROOT)
    path, = folder.glob('*.whl')
    return path


def modules_of_the_tree():
    return {
        f'{installed}/{path.relative_to(ROOT / tree)}'
        for tree, installed in TREES.items()
        for path in (ROOT / tree).rglob('*')
        if path.is_file() and '__pycache__' not in path.parts}


def test_wheel_holds_the_tree(wheel):
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist()
                   if '.dist-info/' not in name}
    assert shipped == modules_of_the_tree()


def test_entry_points_load_from_the_wheel(wheel, tmp_path):
    programs.run(
        sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps',
        '--no-index', '--target', tmp_path / 'lib', wheel)
    loaded = programs.run(
        sys.executable, '-c', LOAD, str(tmp_path / 'lib'), cwd=tmp_path,
        env={'PYTHONPATH': str(tmp_path / 'lib')}).split('\n')
    assert 'ironic.api.middleware reservations' in loaded
    assert 'openstack.baremetal.v1 baremetal_reservation_create' in loaded
    assert 'oslo.config.opts ironic_reservations.nova' in loaded


def test_client_loads_nothing_of_the_server():
    loaded = set(programs.run(sys.executable, '-c', CLIENT).split())
    assert 'ironic_reservations.osc.audit.command' in loaded
    assert {name for name in loaded if name.startswith('ironic_reservations.')
            and not name.startswith('ironic_reservations.osc')} == {
                'ironic_reservations.sdk'}
    assert not loaded & {'sqlalchemy', 'pecan', 'wsme', 'oslo_db',
                         'keystonemiddleware'}
