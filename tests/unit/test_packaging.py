# SPDX-License-Identifier: Apache-2.0
"""Installed files are those of the tree, and load from the installation."""

import configparser
import importlib.util
import os
import pathlib
import re
import shutil
import sys
import sysconfig
import zipfile

from packaging import version
import pytest

from tests.common import programs
from tools import packages

ROOT = pathlib.Path(__file__).parents[2]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / 'setup.cfg')
# As package_dir in setup.cfg.
TREES = {
    'ironic_reservations': 'ironic_reservations',
    'migrations': 'ironic_reservations/db/migrations',
    'nova_driver': 'nova/virt/ironic_reservations',
}
# Runs with the installation first on the path, and outside of the tree, which
# is on the path of the test itself.
LOAD = """
import importlib.metadata
import sys

import nova.virt

folder = sys.argv[1]
# In an installation, Nova's folder and ours are the same.
nova.virt.__path__.insert(0, f'{folder}/nova/virt')
distribution, = importlib.metadata.distributions(
    name='ironic-reservations', path=[folder])
for entry_point in distribution.entry_points:
    entry_point.load()
    file = sys.modules[entry_point.module].__file__
    assert file.startswith(folder), f'{entry_point.name} is from {file}'
    print(entry_point.group, entry_point.name)
"""
# The tools of the build are programs of the environment.
PATH = f'{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}'
# Loads the client without the libraries of the server.
CLIENT = """
import pkgutil
import sys

for name in (
        'alembic', 'keystonemiddleware', 'nova', 'oslo_db', 'oslo_limit',
        'oslo_messaging', 'oslo_middleware', 'oslo_policy',
        'oslo_upgradecheck', 'pecan', 'prometheus_client', 'sqlalchemy',
        'webob', 'wsme'):
    sys.modules[name] = None

from ironic_reservations import osc
import ironic_reservations.sdk

for module in pkgutil.walk_packages(osc.__path__, f'{osc.__name__}.'):
    __import__(module.name)
    print(module.name)
"""


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    """The wheel, built from the sdist to check that one as well."""
    folder = tmp_path_factory.mktemp('dist')
    programs.run(sys.executable, '-m', 'build', '--no-isolation', '--outdir',
                 folder, ROOT)
    path, = folder.glob('*.whl')
    return path


@pytest.fixture(scope='module')
def lib(wheel, tmp_path_factory):
    """A folder in which only the wheel is installed."""
    folder = tmp_path_factory.mktemp('lib')
    programs.run(
        sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps',
        '--no-index', '--target', folder, wheel)
    return folder


def list_modules():
    return {
        f'{target}/{path.relative_to(ROOT / tree)}'
        for tree, target in TREES.items()
        for path in (ROOT / tree).rglob('*')
        if path.is_file() and '__pycache__' not in path.parts}


@pytest.mark.long
def test_wheel_contains_the_tree(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist()
                 if '.dist-info/' not in name}
    data = {name for name in names if '.data/' in name}
    assert names - data == list_modules()
    # Operators copy these.
    shared_files = SETUP['options.data_files']['share/ironic-reservations']
    assert {pathlib.PurePath(name).name for name in data} == {
        pathlib.PurePath(name).name for name in shared_files.split()}


@pytest.mark.long
def test_releases_are_reproducible(tmp_path):
    """Two builds of a tag are equal, and their version is the tag."""
    def git(*args):
        return programs.run('git', '-c', 'user.name=t', '-c', 'user.email=t',
                            *args)

    def build(name, **kwargs):
        clone, dist = tmp_path / name, tmp_path / f'{name}.dist'
        git('clone', '--quiet', '--no-tags', ROOT, clone)
        git('-C', clone, 'tag', '--annotate', '--message=', '1.0.0')
        programs.run(clone / 'tools/dist.sh', dist, env={
            **os.environ, 'PATH': PATH}, **kwargs)
        return {path.name: path.read_bytes() for path in dist.iterdir()}

    files = build('one')
    assert files.keys() == {
        f'ironic_reservations-1.0.0{suffix}'
        for suffix in ('.tar.gz', '-py3-none-any.whl')}
    assert build('another/path', umask=0o077) == files
    # The commits after a release can be built, too.
    git('-C', tmp_path / 'one', 'commit', '--quiet', '--allow-empty',
        '--message=next')
    assert programs.run(
        sys.executable, 'setup.py', '--version', cwd=tmp_path / 'one'
    ).split()[-1] == '1.0.1.dev1'


def test_version_without_git():
    """Releases are also downloaded as archives of the tree."""
    tags = re.findall(r'^\d+\.\d+\.\d+$', programs.run(
        'git', '-C', ROOT, 'tag', '--merged'), re.MULTILINE)
    constant, = re.findall(r"'PBR_VERSION', '(.*)'",
                           (ROOT / 'setup.py').read_text())
    assert version.parse(constant) >= max(map(version.parse, tags),
                                          default=version.parse('0'))


def test_entry_points_load_from_the_wheel(lib, tmp_path):
    lines = programs.run(
        sys.executable, '-c', LOAD, str(lib), cwd=tmp_path,
        env={'PYTHONPATH': str(lib)}).split('\n')
    assert 'ironic.api.middleware reservations' in lines
    assert 'openstack.baremetal.v1 baremetal_reservation_create' in lines
    assert 'oslo.config.opts ironic_reservations.nova' in lines


def test_link_for_a_separate_installation_of_nova(lib, tmp_path):
    """Follow the page, with Nova in another directory than the driver."""
    elsewhere, bin_ = tmp_path / 'elsewhere', tmp_path / 'bin'
    # An import would change this process.
    nova, = importlib.util.find_spec('nova').submodule_search_locations[:1]
    shutil.copytree(nova, elsewhere / 'nova', copy_function=os.symlink)
    bin_.mkdir()
    # These do not use the module path of the tests.
    for name, module in ('python3', ''), ('pip', '-m pip'):
        (bin_ / name).write_text(
            f'#!/bin/sh\nexec {sys.executable} -S {module} "$@"\n')
        (bin_ / name).chmod(0o755)
    page = (ROOT / 'doc/source/how-to/nova.rst').read_text()
    ask, link = (re.sub(r'^ +# ', '', block, flags=re.MULTILINE)
                 for block in re.findall(
        r'\.\. code-block:: console\n\n((?: +# (?!pip install).*\n)+)',
        page)[:2])

    def run(script):
        return programs.run('bash', '-ec', script, cwd=tmp_path, env={
            'PATH': f'{bin_}:/usr/bin:/bin', 'PYTHONPATH': os.pathsep.join(
                map(str, (lib, elsewhere, sysconfig.get_path('purelib'))))})

    with pytest.raises(AssertionError, match='ModuleNotFoundError'):
        run(ask)
    for _ in range(2):
        run(link)
    run(ask)


def test_client_does_not_need_the_server(tmp_path):
    """Only the modules that the page lists for the client are copied."""
    page = (ROOT / 'doc/source/how-to/install.rst').read_text()
    names = re.findall(r'^   (ironic_reservations/\S+)$', page, re.MULTILINE)
    for name in names:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            target.parent.mkdir(exist_ok=True)
            shutil.copy(source, target)
    assert 'ironic_reservations.osc.audit.command' in programs.run(
        sys.executable, '-S', '-c', CLIENT, cwd=tmp_path,
        env={'PYTHONPATH': os.pathsep.join(
            [str(tmp_path), sysconfig.get_path('purelib')])})


def test_packages_of_the_system_are_named():
    bindep = (ROOT / 'bindep.txt').read_text()
    assert set(re.findall(r'^([\w-]+) \[', bindep, re.MULTILINE)) == {
        *packages.CONTENTS, 'python3-venv'}
